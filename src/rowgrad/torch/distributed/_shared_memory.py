"""Memory that the ranks of one machine share, so that what they send to each other is written once and read there.

Each rank has one piece of memory without a name (`memfd_create`), which the others open through /proc: nothing is left
behind by a rank that is killed. It is as large as the machine's memory, but only pages that are written are taken.
Where that is impossible (another system, other users, other containers), messages go through the process group.
"""

import mmap
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from rowgrad._runtime.dtypes import Array
from rowgrad.errors import OutOfMemoryError
from rowgrad.torch.distributed._mailbox import ORDERED, Mailbox, seconds_of, words

SWITCH = "ROWGRAD_SHARED_MEMORY"  # set to 0, all messages go through the process group
MOST = 1 << 45  # bytes of addresses for all ranks of a machine
LINE = 64
TOKEN = 16  # bytes by which a piece of memory is recognised
WORDS = 8  # whole numbers that a rank tells of itself


class SharedMemory:
    """The shared memory of a group's ranks: this rank's own, and that of the others that can be read.

    There are two halves, written in turn: what the ranks read of the one is read before they meet again, and only then
    it is written anew. Where all ranks share memory, `mail` carries their short messages too; else it is None.
    """

    mail: Mailbox | None = None
    common: Array | None = None  # written by all ranks, each at places of its own; where there is `mail`
    read_since = 0  # the number of the last message before this rank began to read what lies in `common`

    def __init__(self, group: Any, rank: int, size: int) -> None:
        self.rank = rank
        self._front = -(-(LINE + 8 * words(size)) // LINE) * LINE  # bytes before the halves: the token, and the slots
        self._turn = 0
        self._used = 0
        self._peers: dict[int, Array] = {}
        self._own: Array | None = None
        mine, token = np.zeros(WORDS, np.int64), os.urandom(TOKEN)
        if size > 1 and os.environ.get(SWITCH, "1") != "0":
            self._open(mine, token)
        told = _gathered(mine, group, size)
        host = int(mine[2])
        near = [r for r in range(size) if r != rank and told[r, 0] and self._own is not None and told[r, 2] == host]
        for peer in near:
            with suppress(OSError, ValueError):
                self._peers[peer] = _mapped(told[peer])
        seen = np.array([r in self._peers for r in range(size)], np.int64)
        both = _gathered(seen, group, size)
        self._peers = {peer: array for peer, array in self._peers.items() if both[peer, rank]}
        if self._fd is not None and size > 1:
            os.close(self._fd)  # all that could be opened is open
        if not self._peers:
            self._own = None
        elif self._own is not None and ORDERED and both.sum() == size * (size - 1):
            slots = {r: array[LINE:][: 8 * words(size)].view(np.int64) for r, array in self._peers.items()}
            slots[rank] = self._own[LINE:][: 8 * words(size)].view(np.int64)
            processes = {r: int(told[r, 1]) for r in self._peers}
            self.mail = Mailbox(rank, size, slots, processes, seconds_of(dist.group.WORLD if group is None else group))
        if both.sum() == size * (size - 1) and size > 1:  # so all ranks come here
            self.common = together(group, rank, size, self._half if self.mail is not None else 0)

    _fd: int | None = None

    def _open(self, mine: Array, token: bytes) -> None:
        """Make this rank's memory, and note what others need to find it."""
        try:
            nbytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            self._half = min(nbytes, MOST // (2 * max(os.cpu_count() or 1, 64))) // LINE * LINE
            fd = os.memfd_create("rowgrad", os.MFD_CLOEXEC)
            nbytes = self._front + 2 * self._half
            os.ftruncate(fd, nbytes)
            self._own = np.frombuffer(mmap.mmap(fd, nbytes), np.uint8)
        except (OSError, AttributeError, ValueError):
            return
        self._own[:TOKEN] = np.frombuffer(token, np.uint8)
        self._fd = fd
        mine[:] = (1, os.getpid(), _machine(), fd, nbytes, *np.frombuffer(token, np.int64), 0)

    def is_near(self, rank: int) -> bool:
        """Whether this rank and another read each other's memory."""
        return rank in self._peers

    @property
    def peers(self) -> list[int]:
        """The ranks whose memory can be read."""
        return sorted(self._peers)

    def room(self, nbytes: int) -> Array:
        """Memory for a message that is written next; all of one message comes from one call."""
        if self._own is None:
            room = np.empty(nbytes + LINE, np.uint8)
            return room[-room.ctypes.data % LINE :][:nbytes]
        if nbytes > self._half:
            raise OutOfMemoryError(
                f"a message of {nbytes / 1e9:.3g} GB is larger than the {self._half / 1e9:.3g} GB that ranks of one "
                "machine share. Use smaller batches.",
                code="out-of-memory",
                value=nbytes,
            )
        begin = self._front + self._turn * self._half
        return self._own[begin : begin + nbytes]

    def sent(self) -> None:
        """The message is complete: the next one is written to the other half."""
        self._turn = 1 - self._turn

    def leave(self, data: Array) -> int:
        """Leave bytes for all other ranks, which `left` finds at the place that this tells."""
        block = self.room(8 + data.size)
        block[:8].view(np.int64)[0] = data.size
        block[8:] = data
        self.sent()
        return self.place_of(block)

    def left(self, places: list[int]) -> list[Array]:
        """What each rank has left, this one too."""
        found = []
        for rank, place in enumerate(places):
            size = int(self.read(rank, place, 8).view(np.int64)[0])
            found.append(self.read(rank, place + 8, size))
        return found

    def place_of(self, block: Array) -> int:
        """Where a block of `room` lies, for others to find."""
        assert self._own is not None
        return int(block.ctypes.data - self._own.ctypes.data) if block.size else 0

    def read(self, rank: int, place: int, nbytes: int) -> Array:
        """What a rank has at a place."""
        memory = self._own if rank == self.rank else self._peers[rank]
        assert memory is not None
        if not 0 <= place <= memory.size - nbytes:
            raise ValueError(f"rank {rank} tells of {nbytes} bytes at {place}, beyond its shared memory")
        return memory[place : place + nbytes]


def together(group: Any, rank: int, size: int, nbytes: int) -> Array | None:
    """Zeros that all ranks of one machine read and write; all must ask for them. None where a rank cannot.

    The first rank makes them, and takes pages as they are written.
    """
    mine, fd, found = np.zeros(WORDS, np.int64), None, None
    if rank == 0 and nbytes:
        with suppress(OSError, AttributeError, ValueError):
            fd = os.memfd_create("rowgrad", os.MFD_CLOEXEC)
            os.ftruncate(fd, LINE + nbytes)
            found = np.frombuffer(mmap.mmap(fd, LINE + nbytes), np.uint8)
            found[:TOKEN] = np.frombuffer(os.urandom(TOKEN), np.uint8)
            mine[:] = (1, os.getpid(), 0, fd, LINE + nbytes, *found[:TOKEN].view(np.int64), 0)
    told = _gathered(mine, group, size)[0]
    if rank and told[0] and nbytes:
        with suppress(OSError, ValueError):
            found = _mapped(told, writable=True)
    all_have = _gathered(np.array([found is not None]).astype(np.int64), group, size).all()
    if fd is not None:
        os.close(fd)
    return None if found is None or not all_have else found[LINE:]


def _mapped(told: Array, writable: bool = False) -> Array:
    """The memory that a rank told of; raises if it cannot be opened, or is another."""
    _, pid, _, fd, nbytes, *token = (int(number) for number in told[:7])
    opened = os.open(f"/proc/{pid}/fd/{fd}", (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    access = mmap.PROT_READ | mmap.PROT_WRITE * writable
    try:
        found: Array = np.frombuffer(mmap.mmap(opened, nbytes, prot=access), np.uint8)
    finally:
        os.close(opened)
    if found[:TOKEN].view(np.int64).tolist() != token:
        raise ValueError("another process has this number by now")
    return found


def _machine() -> int:
    """A number for this machine since it was started, the same in all its processes."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        name = socket.gethostname()
    return int.from_bytes(name.replace("-", "").encode()[:7].rjust(7, b"0"))


def _gathered(mine: Array, group: Any, size: int) -> Array:
    """What each rank tells, a row for each."""
    if size == 1:
        return mine[None]
    result = [torch.empty(mine.size, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(result, torch.from_numpy(mine), group=group)
    return np.stack([each.numpy() for each in result])
