"""One contest: every contestant's answer is checked against ours, then all are timed in turns.

The turns are interleaved, so that a slow minute of the machine slows everyone, and the best turn of each counts: what
disturbs a measurement only ever adds to it. In its turn a contestant is called back to back, without pauses, as a
training loop calls it; the first calls are not timed, because they find the caches and the cores as the one before
left them. Nothing here knows an operator or a framework.
"""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from bench.case import OURS
from rowgrad._runtime.dtypes import BFLOAT16, Array

ROUNDS, FEWEST_ROUNDS = 7, 3
MOST_SECONDS = 6.0  # for the rounds of one contestant; what takes longer gets fewer rounds
TURN = 0.04  # seconds of timed calls in a turn; a quarter of it goes before, untimed
MOST_CALLS = 10_000


@dataclass(frozen=True)
class Entry:
    """A contestant's way to do one piece of work."""

    run: Callable[[], Any]  # this is timed
    answer: Callable[[], Sequence[Array]] | None  # does the work once, from the same beginning as all others do
    prepare: Callable[[], object] | None = None  # before each turn, untimed
    exact: bool = False  # whether the answer must be ours to the bit
    tolerance: float = 1e-3  # else: how far it may be off, relative to ours


@dataclass
class Timing:
    """The seconds each call took, round by round; or why there are none."""

    seconds: list[float] = field(default_factory=list)
    calls: int = 1  # in each round
    problem: str = ""

    @property
    def best(self) -> float:
        """The fastest round, in seconds a call."""
        return min(self.seconds)

    def as_json(self) -> dict[str, Any]:
        """Milliseconds for the report."""
        if self.problem:
            return {"problem": self.problem}
        middle = median(self.seconds)
        return {"ms": _ms(self.best), "median_ms": _ms(middle), "rounds": len(self.seconds), "calls": self.calls}


def compete(entries: Mapping[str, Entry], *, rounds: int = ROUNDS, turn: float = TURN) -> dict[str, Timing]:
    """Check and time `entries`, ours first; whose answer is wrong, or who fails, is not timed.

    If ours fails there is nothing to compare with, and its error is raised.
    """
    timings = {name: Timing() for name in entries}
    _check_answers(entries, timings)
    able = [name for name in entries if not timings[name].problem]
    planned = {name: _plan(entries[name], timings[name], rounds, turn) for name in able}
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for number in range(max(planned.values())):
            # Nobody always runs behind the same other one.
            for name in (*able[number % len(able) :], *able[: number % len(able)]):
                if number < planned[name]:
                    timings[name].seconds.append(_time(entries[name], timings[name].calls))
    finally:
        if was_enabled:
            gc.enable()
    return timings


def differences(ours: Sequence[Array], theirs: Sequence[Array], *, exact: bool, tolerance: float) -> str:
    """What is wrong with `theirs`, or nothing."""
    if len(ours) != len(theirs):
        return f"it has {len(theirs)} results; ours has {len(ours)}"
    for position, (right, given) in enumerate(zip(ours, theirs, strict=True)):
        if right.shape != given.shape:
            return f"result {position} has shape {list(given.shape)}; ours has {list(right.shape)}"
        equal = _equal(right, given) if exact else _close(right, given, tolerance)
        if not equal.all():
            place = tuple(int(index) for index in np.unravel_index(int(np.argmin(equal)), equal.shape))
            count = equal.size - int(np.count_nonzero(equal))
            kind = "differ" if exact else f"differ by more than {tolerance:g} of it"
            return (
                f"{count} of {equal.size} numbers of result {position} {kind}; "
                f"at {list(place)} it has {given[place]}, ours has {right[place]}"
            )
    return ""


def _check_answers(entries: Mapping[str, Entry], timings: dict[str, Timing]) -> None:
    first, *others = entries
    if first != OURS:
        raise ValueError(f"the first contestant is {first}; it must be {OURS}.")
    right = [np.array(array) for array in _answer(entries[OURS])]
    for name in others:
        entry = entries[name]
        if entry.answer is None:  # it does a part of the work only
            continue
        try:
            given = [np.asarray(array) for array in _answer(entry)]
        except Exception as error:  # a peer may fail in any way; the others go on
            timings[name].problem = f"{type(error).__name__}: {error}"
            continue
        wrong = differences(right, given, exact=entry.exact, tolerance=entry.tolerance)
        if wrong:
            timings[name].problem = f"wrong answer: {wrong}"


def _answer(entry: Entry) -> Sequence[Array]:
    assert entry.answer is not None
    if entry.prepare is not None:
        entry.prepare()
    return entry.answer()


def _plan(entry: Entry, timing: Timing, rounds: int, turn: float) -> int:
    """Warm up, and find how many rounds of how many calls to time."""
    taken = _time(entry, 1)
    if taken < turn:
        # The first call may be the slowest by far; the loop that follows tells.
        taken = _time(entry, min(max(int(turn / 4 / taken), 2), 100))
        timing.calls = min(max(round(turn / taken), 1), MOST_CALLS)
    return max(min(rounds, int(MOST_SECONDS / taken)), min(rounds, FEWEST_ROUNDS))


def _time(entry: Entry, calls: int) -> float:
    """The seconds of one call."""
    if entry.prepare is not None:
        entry.prepare()
    run = entry.run
    for _ in range(max(calls // 4, 1)):
        run()
    started = time.perf_counter()
    for _ in range(calls):
        result = run()
    taken = time.perf_counter() - started
    del result  # after the clock has stopped: giving memory back is not part of the work
    return taken / calls


def _equal(right: Array, given: Array) -> Array:
    if right.dtype != given.dtype:
        return np.zeros(right.shape, bool)
    if right.dtype.kind == "f" or right.dtype == BFLOAT16:
        words = np.dtype(f"u{right.dtype.itemsize}")  # −0 is not +0 here
        return np.atleast_1d(right.view(words) == given.view(words))
    return np.atleast_1d(right == given)


def _close(right: Array, given: Array, tolerance: float) -> Array:
    if right.dtype.kind in "iub":
        return np.atleast_1d(right == given)
    if BFLOAT16 in (right.dtype, given.dtype):
        right, given = right.astype(np.float32), given.astype(np.float32)
    return np.atleast_1d(np.isclose(given, right, rtol=tolerance, atol=tolerance / 10))


def _ms(seconds: float) -> float:
    return float(f"{seconds * 1e3:.5g}")
