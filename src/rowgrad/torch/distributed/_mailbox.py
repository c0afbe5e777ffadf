"""Short messages between the ranks of one machine, through the memory they share: some microseconds instead of Gloo's
hundreds.

Each rank has two slots for each other one, written in turn. A rank posts message k + 2 only after all have posted
k + 1, and they do that only after they have read k; so a slot is never written while it is read.
"""

import os
import platform
import select
import threading
import time
from datetime import timedelta
from typing import Any
from weakref import finalize

import torch

from rowgrad._runtime.dtypes import Array

SLOT = 16  # whole numbers: which message it is, and what it says
# Stores of other processors may be seen in another order than they were made.
ORDERED = platform.machine() in ("x86_64", "AMD64") and hasattr(os, "pidfd_open")
SPIN, YIELD, NAP = 200, 2e-3, 1e-4  # looks; then seconds in which other processes run first; then seconds of sleep
LOOK = 0.02  # seconds between looks whether another rank still lives


class Lost(RuntimeError):
    """Another rank has ended, or does not answer."""


class Mailbox:
    """The slots of all ranks.

    Parameters
    ----------
    rank, size : int
    slots : dict of rank to int64 array
        Each rank's slots, as many as `words` tells; its own ones can be written.
    processes : dict of rank to int
        The numbers of the other ranks' processes.
    seconds : float
        That a message may take.
    """

    def __init__(self, rank: int, size: int, slots: dict[int, Array], processes: dict[int, int],
                 seconds: float) -> None:  # fmt: skip
        self.rank, self.size, self.seconds = rank, size, seconds
        self._left = {peer: each[:1] for peer, each in slots.items()}  # 1 once a rank is at its end
        self._slots = {peer: each[SLOT:].reshape(2, size, SLOT) for peer, each in slots.items()}
        self._lives = {peer: os.pidfd_open(process) for peer, process in processes.items()}
        self.posted = self.heard = 0  # the number of the last message, and of the last one that has come from all ranks
        self._fence = threading.Lock()
        finalize(self, _leave, self._left[rank], list(self._lives.values()), os.getpid())

    def post(self, letters: Array, result: torch.Tensor) -> "Letters":
        """Give each rank a row of whole numbers; `result` gets those of all ranks, in their order."""
        self.posted += 1
        own = self._slots[self.rank][self.posted % 2]
        own[:, 1 : 1 + letters.shape[1]] = letters
        with self._fence:  # all that was written before, also by non-temporal stores, is seen before the number is
            pass
        own[:, 0] = self.posted
        return Letters(self, self.posted, letters, result)

    def fetch(self, peer: int, number: int, words: int) -> Array:
        """What another rank posts to this one; waits for it."""
        slot: Array = self._slots[peer][number % 2, self.rank]
        said: Array = slot[1 : 1 + words]
        for _ in range(SPIN):
            if slot[0] == number:
                return said
        begun = time.monotonic()
        looked = begun
        while slot[0] != number:
            now = time.monotonic()
            if now - looked > LOOK:
                looked = now
                if self._has_ended(peer) and slot[0] != number:
                    raise Lost(f"rank {peer} has ended")
                if now - begun > self.seconds:
                    raise Lost(f"rank {peer} did not answer for {self.seconds:g} s")
            if now - begun < YIELD:
                os.sched_yield()
            else:
                time.sleep(NAP)
        return said

    def _has_ended(self, peer: int) -> bool:
        if self._left[peer][0]:
            return True
        watched = select.poll()
        watched.register(self._lives[peer], select.POLLIN)
        return bool(watched.poll(0))


class Letters:
    """A message under way."""

    def __init__(self, mailbox: Mailbox, number: int, own: Array, result: torch.Tensor) -> None:
        self._mailbox, self._number, self._own = mailbox, number, own
        self._result = result.view(torch.int64).numpy().reshape(own.shape)

    def wait(self) -> None:
        """Read what all ranks have posted."""
        box = self._mailbox
        for peer in range(box.size):
            self._result[peer] = (
                self._own[peer] if peer == box.rank else box.fetch(peer, self._number, self._own.shape[1])
            )
        box.heard = max(box.heard, self._number)


def words(size: int) -> int:
    """How many whole numbers a rank's slots have, for so many ranks."""
    return SLOT + 2 * size * SLOT


def seconds_of(group: Any) -> float:
    """How long a message of a process group may take."""
    limit: timedelta = group._get_backend(torch.device("cpu")).options._timeout
    return limit.total_seconds()


def _leave(left: Array, lives: list[int], process: int) -> None:
    if os.getpid() == process:  # and not a copy of it
        left[0] = 1
        for each in lives:
            os.close(each)
