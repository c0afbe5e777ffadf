"""One contest: every contestant's answer is checked against ours, then all are timed in turns.

The turns are interleaved, so that a slow minute of the machine slows everyone, and the best round of each counts: what
disturbs a measurement only ever adds to it. Nothing here knows an operator or a framework.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from bench.work import OURS
from rowgrad._runtime.dtypes import BFLOAT16, Array

ROUNDS, FEWEST_ROUNDS = 7, 3
MOST_SECONDS = 15.0  # for the rounds of one contestant; what takes longer gets fewer rounds
SHORTEST_ROUND = 0.01  # what takes less is called in a loop
MOST_CALLS = 2000
# OpenMP's threads (PyTorch, FBGEMM) keep spinning for 5 to 10 ms after a call and would take a core from the next.
PAUSE = 0.015


@dataclass(frozen=True)
class Entry:
    """A contestant's way to do one piece of work."""

    name: str
    run: Callable[[], Any]  # this is timed
    answer: Callable[[Any], Sequence[Array]]  # what `run` gave, as arrays to compare
    prepare: Callable[[], object] | None = None  # before each round, untimed
    exact: bool = False  # whether the answer must be ours to the bit
    tolerance: float = 1e-3  # else: how far it may be off, relative to ours
    once: bool = False  # whether each call needs a `prepare` of its own


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


def compete(entries: Sequence[Entry], *, rounds: int = ROUNDS, pause: float = PAUSE) -> dict[str, Timing]:
    """Check and time `entries`, ours first; whose answer is wrong, or who fails, is not timed.

    Each gets a warm-up call beside the checked one. If ours fails there is nothing to compare with, and its error
    is raised.
    """
    timings = {entry.name: Timing() for entry in entries}
    _check_answers(entries, timings)
    able = [entry for entry in entries if not timings[entry.name].problem]
    planned = {entry.name: _plan(entry, timings[entry.name], rounds) for entry in able}
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for turn in range(max(planned.values())):
            # Nobody always runs behind the same other one.
            for entry in (*able[turn % len(able) :], *able[: turn % len(able)]):
                if turn < planned[entry.name]:
                    timing = timings[entry.name]
                    timing.seconds.append(_time(entry, timing.calls, pause))
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


def _check_answers(entries: Sequence[Entry], timings: dict[str, Timing]) -> None:
    ours, *others = entries
    if ours.name != OURS:
        raise ValueError(f"the first contestant is {ours.name}; it must be {OURS}.")
    right = [np.array(array) for array in ours.answer(_prepared(ours))]
    for entry in others:
        try:
            given = [np.asarray(array) for array in entry.answer(_prepared(entry))]
        except Exception as error:  # a peer may fail in any way; the others go on
            timings[entry.name].problem = f"{type(error).__name__}: {error}"
            continue
        wrong = differences(right, given, exact=entry.exact, tolerance=entry.tolerance)
        if wrong:
            timings[entry.name].problem = f"wrong answer: {wrong}"


def _plan(entry: Entry, timing: Timing, rounds: int) -> int:
    """Warm up, and find how many rounds of how many calls to time."""
    taken = _time(entry, 1, 0.0)
    if taken < SHORTEST_ROUND and not entry.once:
        # The first call may be the slowest by far; the loop that follows tells.
        taken = _time(entry, 20, 0.0)
        timing.calls = min(max(int(SHORTEST_ROUND / taken), 1), MOST_CALLS)
    return max(min(rounds, int(MOST_SECONDS / taken)), min(rounds, FEWEST_ROUNDS))


def _time(entry: Entry, calls: int, pause: float) -> float:
    """The seconds of one call."""
    if entry.prepare is not None:
        entry.prepare()
    if pause:
        time.sleep(pause)
    run = entry.run
    for _ in range(calls // 4):  # a loop of short calls begins warm, as it would without the pause
        run()
    started = time.perf_counter()
    for _ in range(calls):
        result = run()
    taken = time.perf_counter() - started
    del result  # after the clock has stopped: giving memory back is not part of the work
    return taken / calls


def _prepared(entry: Entry) -> Any:
    if entry.prepare is not None:
        entry.prepare()
    return entry.run()


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
