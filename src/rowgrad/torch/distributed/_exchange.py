"""Messages between the ranks of a group: headers first, then bytes, all of them counted, and failures in plain words.

Everything travels as bytes, so a backend needs to know no types. All ranks call the same methods in the same order.
What they do together begins with headers of one size, which tell where each rank is, and ends with `done`. So a rank
that is elsewhere, because it left a step early, is found before messages of different sizes meet: Gloo ends the process
that gets more than it waits for.
"""

import hashlib
import time
from collections.abc import Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from rowgrad._runtime.dtypes import Array
from rowgrad.errors import InvalidArgumentError, RowgradError
from rowgrad.torch.distributed._errors import CommunicationError, PeerError
from rowgrad.torch.distributed._mailbox import Mailbox
from rowgrad.torch.distributed._shared_memory import SharedMemory, together
from rowgrad.torch.distributed._traffic import Traffic

FINE, REFUSED = 0, -1
HEADER = 7  # whole numbers: how it stands, the place, the layer, the call, and three that the caller chooses
NOTHING = (0, 0, 0)
COLLECTION = 1  # in the place of a call, where a collection is made
LONGEST = 366 * 24 * 3600  # seconds


class Place(IntEnum):
    """Where ranks meet."""

    SETTINGS = 0
    FORWARD = 1
    ROWS = 2
    BACKWARD = 3
    TABLE = 4
    SUMS = 5


class Kept(Protocol):
    """What lies in the memory of other ranks, and can be kept before that changes."""

    def keep(self) -> None: ...


class _GroupState:
    """What all layers on a group share: how many there are, and what this rank has begun and not finished."""

    def __init__(self) -> None:
        self.layers = 0
        self.unfinished: str | None = None
        self.memory: SharedMemory | None = None  # once a layer asks for it
        self.underway: Kept | None = None  # what was begun and not waited for


_states: "WeakKeyDictionary[Any, _GroupState]" = WeakKeyDictionary()  # by group
_groups: dict[float, Any] = {}  # of all ranks, by the seconds that their messages may take


class Work(NamedTuple):
    """Something under way: what waits for it, where its result will be, and what else must live until then."""

    waiting: list[Any]
    result: Tensor
    purpose: str
    began: float
    kept: tuple[Any, ...] = ()


class Trade:
    """Messages under way between all ranks; `finish` waits for them, and gives what came from each rank."""

    def __init__(self, exchange: "Exchange", work: Work, sizes: Sequence[int], own: Array) -> None:
        self._exchange, self._work, self._sizes, self._own = exchange, work, sizes, own
        self._found: list[Array] | None = None

    def finish(self) -> list[Array]:
        """The bytes from each rank; those of ranks of this machine lie in their memory, until the ranks meet again."""
        if self._found is None:
            exchange, memory = self._exchange, self._exchange.memory
            came, at, found = exchange.finish(self._work).numpy(), 0, []
            for rank, size in enumerate(self._sizes):
                if rank == exchange.rank:
                    found.append(self._own)
                    at += 8 * (memory.mail is not None)
                elif memory.is_near(rank):
                    found.append(memory.read(rank, int(came[at : at + 8].view(np.int64)[0]), size))
                    at += 8
                else:
                    found.append(came[at : at + size])
                    at += size
            self._found = found
        return self._found

    def keep(self) -> None:
        """Wait, and copy what lies in the memory of others, which is about to change."""
        found, memory = self.finish(), self._exchange.memory
        own = self._exchange.rank
        self._found = [data.copy() if rank == own or memory.is_near(rank) else data for rank, data in enumerate(found)]


class Exchange:
    """A process group as the layers use it.

    Parameters
    ----------
    group : process group, optional
        By default all ranks.
    timeout : float, optional
        Seconds that a message may take. A group of all ranks with this time is made then, once for all layers; for
        another `group` its own time counts. Below some seconds, a busy machine may not even make the group.
    """

    def __init__(self, group: Any = None, *, timeout: float | None = None, traffic: Traffic | None = None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise InvalidArgumentError(
                "there is no process group. Start with torchrun and call torch.distributed.init_process_group('gloo'); "
                "one process is enough.",
                code="no-process-group",
                argument="group",
            )
        outside = dist.GroupMember.NON_GROUP_MEMBER
        if not (group is None or group is outside or isinstance(group, dist.ProcessGroup)):
            raise InvalidArgumentError(
                f"group is {group!r}; it must be a process group, as torch.distributed.new_group makes them, or None.",
                code="wrong-argument",
                argument="group",
                value=str(group),
            )
        self.group = _timed(group, timeout)
        self.rank = dist.get_rank(self.group)
        self.size = dist.get_world_size(self.group)
        if self.rank < 0:
            raise InvalidArgumentError(
                "this process is not a member of the group. Only members can use the layer.",
                code="not-a-member",
                argument="group",
            )
        self.traffic = Traffic() if traffic is None else traffic
        self.layer = self.calls = 0  # its number in the group, and how often it was called
        self._state = _states.setdefault(self.process_group, _GroupState())

    @property
    def process_group(self) -> Any:
        """The group itself, also where it is that of all ranks."""
        return dist.group.WORLD if self.group is None else self.group

    @property
    def memory(self) -> SharedMemory:
        """What the ranks of one machine share; all ranks must ask for it together the first time."""
        if self._state.memory is None:
            self._state.memory = SharedMemory(self.group, self.rank, self.size)
        return self._state.memory

    def share_memory(self, room: float, call: int = COLLECTION) -> float:
        """Make what the ranks of one machine share; gives the bytes that each rank has, the least of all.

        `room` is what this rank's machine has. Headers come first, so that ranks that make other layers are found.
        """
        self.headers(Place.SETTINGS, call)
        began, near = time.monotonic(), 0
        try:
            near = len(self.memory.peers)
        except RuntimeError as error:
            raise self.failure("counts", began, error) from error
        self.done()
        found = self.headers(Place.SETTINGS, call, [(int(room / (near + 1)), 0, 0)] * self.size)
        self.done()
        return float(min(each for each, _, _ in found))

    def table_memory(self, nbytes: int) -> Array | None:
        """Memory for tables that all ranks of a group see, where they are on one machine; all must ask for it."""
        if self.memory.common is None or not nbytes:
            return None
        self.headers(Place.SETTINGS, COLLECTION)
        began = time.monotonic()
        try:
            found = together(self.group, self.rank, self.size, nbytes)
        except RuntimeError as error:
            raise self.failure("counts", began, error) from error
        self.done()
        return found

    def trade(self, blocks: Sequence[Array], taken: Sequence[int], purpose: str) -> Trade:
        """Begin to give a block of bytes to each rank and to take so many from each.

        All blocks are of one `memory.room`. The own one goes nowhere, and those for ranks of this machine stay where
        they are: these are told the place.
        """
        memory, near = self.memory, self.memory.is_near
        self._settle()
        others = [rank for rank in range(self.size) if rank != self.rank]
        sent = sum(blocks[rank].size for rank in others)
        if memory.mail is not None:
            places = np.array([[memory.place_of(block)] for block in blocks])
            return self._underway(self._post(memory.mail, places, purpose, sent), taken, blocks)
        given = [0 if rank == self.rank else 8 if near(rank) else blocks[rank].size for rank in range(self.size)]
        sizes = [0 if rank == self.rank else 8 if near(rank) else taken[rank] for rank in range(self.size)]
        parts = [np.array([memory.place_of(blocks[rank])]).view(np.uint8) if near(rank) else blocks[rank]
                 for rank in others]  # fmt: skip
        message = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0, np.uint8)
        work = self.start(torch.from_numpy(message), given, sizes, purpose, sent)
        return self._underway(work, taken, blocks)

    def _underway(self, work: Work, taken: Sequence[int], blocks: Sequence[Array]) -> Trade:
        self.memory.sent()
        made = self._state.underway = Trade(self, work, taken, blocks[self.rank])
        return made

    def _post(self, mail: Mailbox, letters: Array, purpose: str, sent: int) -> Work:
        """Begin to give each rank a row of whole numbers, where all ranks share memory."""
        result = torch.empty(letters.nbytes, dtype=torch.uint8)
        self.traffic.add(purpose, sent)
        return Work([mail.post(letters, result)], result, purpose, time.monotonic())

    def received(self, trade: Trade) -> list[Array]:
        """Wait for a trade that is read before the ranks meet again."""
        found = trade.finish()
        self.release(trade)
        return found

    def hold(self, found: Kept) -> None:
        """What this rank wrote to `room` is complete, and what others wrote is kept before the ranks meet again."""
        self._settle()
        self.memory.sent()
        self._state.underway = found

    def release(self, found: Kept) -> None:
        """What was held is read, or not needed."""
        if self._state.underway is found:
            self._state.underway = None

    def meet(self, purpose: str) -> None:
        """Wait until all ranks have come here; only where all share memory."""
        mail = self.memory.mail
        assert mail is not None
        self._settle()
        self.finish(self._post(mail, np.zeros((self.size, 1), np.int64), purpose, 0))

    def _settle(self) -> None:
        """Keep what is under way: once the ranks meet again, the memory of others changes."""
        trade, self._state.underway = self._state.underway, None
        if trade is not None:
            trade.keep()

    def headers(
        self, place: Place, call: int, mine: Sequence[Sequence[int]] | None = None, error: RowgradError | None = None
    ) -> list[list[int]]:
        """Begin what all ranks do together: three whole numbers to each rank, and three from each.

        Where a rank is at another place, or refuses, all raise. With `error`, this rank refuses: all others are told,
        and then it is raised here.
        """
        return self.heard(self.announce(place, call, mine, error), error)

    def announce(
        self, place: Place, call: int, mine: Sequence[Sequence[int]] | None = None, error: RowgradError | None = None
    ) -> Work:
        """Send the headers; `heard` waits for those of the others."""
        if self._state.unfinished is not None:
            raise CommunicationError(
                f"rank {self.rank} of {self.size} left {self._state.unfinished} before it was finished, by an error "
                "there; the other ranks may still wait for it. Start the job again from its last checkpoint.",
                code="left-early",
            )
        self._settle()
        if mine is None or error is not None:
            mine = [NOTHING] * self.size
        self._state.unfinished = _told(place, self.layer, call)
        tag = FINE if error is None else REFUSED, place, self.layer, call
        numbers = np.array([[*tag, *row] for row in mine], np.int64)
        if self._state.memory is not None and self._state.memory.mail is not None:
            return self._post(self._state.memory.mail, numbers, "counts", HEADER * 8 * (self.size - 1))
        return self.start(torch.from_numpy(numbers), [HEADER * 8] * self.size, [HEADER * 8] * self.size, "counts")

    def heard(self, work: Work, error: RowgradError | None = None) -> list[list[int]]:
        """The headers of all ranks, once they are at the same place and none refuses."""
        found: list[list[int]] = self.finish(work).view(torch.int64).view(self.size, HEADER).tolist()
        if error is None:
            refused = [rank for rank, header in enumerate(found) if header[0] != FINE]
            if any(header[1:4] != found[0][1:4] for header in found):
                error = _apart(found)
            elif refused:
                error = refusal(refused)
        if error is not None:
            self.done()
            raise error
        return [header[4:] for header in found]

    def done(self) -> None:
        """All that was begun with the headers is sent and received."""
        self._state.unfinished = None

    def start(
        self, data: Tensor, given: Sequence[int], taken: Sequence[int], purpose: str, sent: int | None = None
    ) -> Work:
        """Begin to send `given` bytes of `data` to each rank and to take `taken` from each.

        `sent` is how many bytes that counts for, where it is not what the process group sends.
        """
        data = flat(data)
        result = torch.empty(sum(taken), dtype=torch.uint8)
        self.traffic.add(purpose, sum(given) - given[self.rank] if sent is None else sent)
        began = time.monotonic()
        try:
            work = dist.all_to_all_single(result, data, list(taken), list(given), group=self.group, async_op=True)
        except RuntimeError as error:
            raise self.failure(purpose, began, error) from error
        return Work([work], result, purpose, began, (data,))

    def finish(self, work: Work) -> Tensor:
        """The bytes that came, those of rank 0 first."""
        try:
            for part in work.waiting:
                part.wait()
        except RuntimeError as error:
            raise self.failure(work.purpose, work.began, error) from error
        return work.result

    def swap(self, data: Tensor, given: Sequence[int], taken: Sequence[int], purpose: str) -> Tensor:
        """Send and take, and wait for it. Sizes are rows of `data`, and so is the result."""
        row = data.element_size() * _width(data)
        bytes_ = self.start(data, [n * row for n in given], [n * row for n in taken], purpose)
        return self.finish(bytes_).view(data.dtype).view(sum(taken), *data.shape[1:])

    def check_rank(self, rank: int | None) -> None:
        """What is gathered goes to all ranks, or to one that there is."""
        if not (rank is None or (type(rank) is int and 0 <= rank < self.size)):
            raise InvalidArgumentError(
                f"rank is {rank!r}; allowed: None, for all ranks, or 0 to {self.size - 1}.",
                code="wrong-argument",
                argument="rank",
                value=rank,
            )

    def gather(self, piece: Tensor, sizes: Sequence[int], purpose: str, to: int | None = None) -> Tensor | None:
        """The pieces of all ranks below one another, on all ranks or on `to` only; rank r's has sizes[r] rows."""
        here = to is None or to == self.rank
        result = piece.new_empty((sum(sizes) if here else 0, *piece.shape[1:]))
        piece, others = piece.contiguous(), [rank for rank in range(self.size) if rank != self.rank]
        targets = [rank for rank in others if to in (None, rank)]
        began, waiting, end = time.monotonic(), [], 0
        self.traffic.add(purpose, piece.nbytes * len(targets))
        try:
            for rank, size in enumerate(sizes):
                begin, end = end, end + size
                if here and rank == self.rank:
                    result[begin:end] = piece
                elif here and size and result.numel():
                    waiting.append(dist.irecv(flat(result[begin:end]), group=self.group, group_src=rank))
            if piece.numel():
                waiting += [dist.isend(flat(piece), group=self.group, group_dst=rank) for rank in targets]
        except RuntimeError as error:
            raise self.failure(purpose, began, error) from error
        found = self.finish(Work(waiting, result, purpose, began, (piece,)))
        return found if here else None

    def compare(self, settings: dict[str, int], error: RowgradError | None = None) -> None:
        """See that all ranks have the same settings, each given as a whole number; else all ranks raise.

        The layer gets the same number on all ranks, by which its messages are told from those of others.
        """
        digest = hashlib.blake2b(repr(settings).encode(), digest_size=7).digest()
        mine = int.from_bytes(digest), self._state.layers, 0
        found = self.headers(Place.SETTINGS, 0, [mine] * self.size, error)
        self.layer = self._state.layers = 1 + max(layers for _, layers, _ in found)
        if any(header[0] != mine[0] for header in found):
            self._tell_difference(settings)
        self.done()

    def _tell_difference(self, settings: dict[str, int]) -> None:
        numbers = torch.tensor([list(settings.values())] * self.size, dtype=torch.int64)
        found = self.swap(numbers, [1] * self.size, [1] * self.size, "counts")
        self.done()
        for name, values in zip(settings, found.T.tolist(), strict=True):
            other = [rank for rank, value in enumerate(values) if value != values[0]]
            if other:
                ranks = ", ".join(map(str, other))
                raise PeerError(
                    f"the ranks do not agree on {name}: rank 0 has one value, {_named(other)} {ranks} another. "
                    "Make the layer with the same settings on all ranks.",
                    code="ranks-differ",
                    argument=name,
                    value=other,
                )

    def failure(self, purpose: str, began: float, error: BaseException) -> CommunicationError:
        """The error for a message that failed."""
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        return CommunicationError(
            f"the exchange of {purpose} failed on rank {self.rank} of {self.size} after "
            f"{time.monotonic() - began:.1f} s: {reason}. Another rank has stopped, cannot be reached, or calls the "
            "layers in another order. Start the job again from its last checkpoint.",
            code="communication-failed",
            value=purpose,
        )


def flat(data: Tensor) -> Tensor:
    """The bytes of a tensor."""
    if data.numel() == 0:  # whose strides are anything
        return torch.empty(0, dtype=torch.uint8)
    return data.detach().contiguous().view(-1).view(torch.uint8)


def _told(place: int, layer: int, call: int) -> str:
    """Where a rank is, in words."""
    match place:
        case Place.SETTINGS:
            return "making a collection" if call == COLLECTION else "making a layer"
        case Place.SUMS:
            return "all_reduce_rows"
        case Place.TABLE:
            return f"gathering the table of layer {layer}"
        case Place.ROWS:
            return f"finishing request {call} of layer {layer}"
    return f"{Place(place).name.lower()} pass {call} of layer {layer}"


def _apart(headers: list[list[int]]) -> PeerError:
    places = "; ".join(f"rank {rank}: {_told(*header[1:4])}" for rank, header in enumerate(headers))
    other = [rank for rank, header in enumerate(headers) if header[1:4] != headers[0][1:4]]
    return PeerError(
        f"the ranks are at different places ({places}; layers are numbered as they were made). A rank left a step "
        "early, perhaps by an error that was caught there, or calls the layers in another order. Nothing else was "
        "exchanged: let all ranks go on with the next batch.",
        code="ranks-apart",
        value=other,
    )


def refusal(ranks: list[int]) -> PeerError:
    """The error for what other ranks refused."""
    names = ", ".join(map(str, ranks))
    return PeerError(
        f"{_named(ranks)} {names} rejected the input there, so no rank continues. The error there says why; fix it, "
        "and all ranks can try again.",
        code="peer-refused",
        value=ranks if len(ranks) > 1 else ranks[0],
    )


def _named(ranks: list[int]) -> str:
    return "rank" if len(ranks) == 1 else "ranks"


def _width(data: Tensor) -> int:
    return data[:1].numel() if data.shape[0] else int(torch.Size(data.shape[1:]).numel())


def _timed(group: Any, timeout: float | None) -> Any:
    """The group, or one of the same ranks whose messages may take so long."""
    if timeout is None:
        return group
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= LONGEST:
        raise InvalidArgumentError(
            f"timeout is {timeout!r}; it is a number of seconds above 0, and at most {LONGEST:,} (a year).",
            code="bad-timeout",
            argument="timeout",
            value=timeout,
        )
    if group is not None:
        # Making a group takes all ranks of the program, and here are only those of this one.
        raise InvalidArgumentError(
            "timeout is for the group of all ranks. For another group, pass it to "
            "torch.distributed.new_group(ranks, timeout=…).",
            code="wrong-argument",
            argument="timeout",
            value=timeout,
        )
    made = _groups.get(float(timeout))
    if made is None or not _alive(made):
        dist.barrier()  # ranks come here at different times, and the limit is for messages, not for the meeting
        made = _groups[float(timeout)] = dist.new_group(timeout=timedelta(seconds=timeout))
    return made


def _alive(group: Any) -> bool:
    """Whether a group was not destroyed since."""
    try:
        dist.get_rank(group)
    except (ValueError, RuntimeError):
        return False
    return True
