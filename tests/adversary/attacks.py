"""The attacks. Each takes a target, how long it may take, and a random generator, and raises if something is wrong.

They run in a process of their own (see `run`), for what they look for is a crash. Wrong input that is refused is fine,
and so is any answer where the input changed during the call; a crash, a hang or a wrong answer to sound input is not.
"""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numba
import numpy as np

import rowgrad
from adversary.damage import damage
from adversary.targets import Array, Target, check
from rowgrad._runtime import threads
from rowgrad.errors import InvalidArgumentError, RowgradError

Attack = Callable[[Target, float, np.random.Generator], None]
CHILD_SECONDS = 60


# Memory that changes


@numba.njit(nogil=True)
def _flip(array: Array, good: Array, wrong: Array, seed: int, rounds: int) -> int:
    """Write a wrong number somewhere and a good one elsewhere, over and over, without the GIL."""
    state = np.uint64(seed)
    for _ in range(rounds):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        array[(state >> np.uint64(33)) % np.uint64(array.size)] = wrong[
            (state >> np.uint64(20)) % np.uint64(wrong.size)
        ]
        place = (state >> np.uint64(13)) % np.uint64(array.size)
        array[place] = good[place]
    return int(state >> np.uint64(1))


def flip(target: Target, seconds: float, random: np.random.Generator) -> None:
    """Another thread writes to each of the ids in turn while the call runs."""
    places = [(name, number) for name in target.ids for number in range(len(target.arrays(name)))]
    for name, number in places:
        args = target.fresh()
        ids, good = (target.arrays(name, given)[number].reshape(-1) for given in (args, target.args))
        if ids.size == 0:
            continue
        top = min(2**40, np.iinfo(ids.dtype).max - 1)
        wrong = np.array([top, -1, int(good.max()) + 1], ids.dtype)
        stop = threading.Event()

        def write(ids: Array = ids, good: Array = good, wrong: Array = wrong, stop: Any = stop) -> None:
            seed = 1
            while not stop.is_set():
                seed = _flip(ids, good, wrong, seed, 20_000)

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        try:
            for _ in until(seconds / len(places)):
                with suppress(RowgradError, IndexError):
                    target.results(args)
        finally:
            stop.set()
            writer.join()
    check(target, target.results(), target.results(), "after its ids had been flipped")


# Calls in the middle of calls


@contextmanager
def alarms(handler: Callable[..., Any], random: np.random.Generator) -> Iterator[Callable[[], None]]:
    """Signals at random moments; what is yielded sets the next one."""
    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_REAL, float(random.uniform(5e-6, 4e-4)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def reenter(target: Target, seconds: float, random: np.random.Generator) -> None:
    """A signal handler makes another call of the operator in the middle of a call: its buffers hold other things."""
    expected, (args, answer) = target.results(), another(target)
    depth = 0

    def handler(*_: Any) -> None:
        nonlocal depth
        if depth < 2:
            depth += 1
            try:
                check(target, target.results(args), answer, "in a signal handler")
            finally:
                depth -= 1

    with alarms(handler, random) as next_alarm:
        for _ in until(seconds):
            next_alarm()
            check(target, target.results(), expected, "after a signal handler made another call")


def another(target: Target) -> tuple[dict[str, Any], list[Array]]:
    """Arguments that differ where they can, and their results: entries in another order, other values, or the same."""
    for change_ids, change_values in ((True, True), (True, False), (False, True)):
        args = target.fresh()
        for name in args:
            for array in target.arrays(name, args):
                if name in target.ids and change_ids:
                    array[...] = array[::-1].copy()
                elif name not in target.ids and change_values and array.dtype.kind in "fiuc":
                    array += array.dtype.type(1)
        with suppress(RowgradError, IndexError):
            return args, target.results(args)
    return target.fresh(), target.results()


class _Interrupt(BaseException):
    pass


def interrupt(target: Target, seconds: float, random: np.random.Generator) -> None:
    """An exception at any moment: nothing is written to `out` afterwards, and the next call is right."""
    expected = target.results()
    out = np.empty_like(expected[0]) if target.takes_out else None

    is_calling = False

    def handler(*_: Any) -> None:
        if is_calling:  # a signal at the last moment may be handled after the timer was stopped
            raise _Interrupt

    with alarms(handler, random) as next_alarm:
        for _ in until(seconds):
            with suppress(_Interrupt):
                if out is not None:
                    out.view(np.uint8).fill(1)
                is_calling = True
                next_alarm()
                try:
                    target.results(None if out is None else target.fresh(), **({} if out is None else {"out": out}))
                finally:
                    is_calling = False
                    signal.setitimer(signal.ITIMER_REAL, 0)
            is_calling = False
            if out is not None:
                left = out.copy()
                time.sleep(2e-4)
                assert left.tobytes() == out.tobytes(), f"{target.name}: out was written after the call had ended"
    check(target, target.results(), expected, "after interrupts")


# Many at once


def crowd(target: Target, seconds: float, random: np.random.Generator) -> None:
    """Sixteen threads make the same call, with one thread each and with several."""
    expected = target.results()
    problems: list[BaseException] = []

    def work() -> None:
        try:
            for _ in until(seconds):
                check(target, target.results(), expected, "beside other threads")
        except BaseException as problem:
            problems.append(problem)

    workers = [threading.Thread(target=work) for _ in range(16)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    if problems:
        raise problems[0]


def fork(target: Target, seconds: float, random: np.random.Generator) -> None:
    """Fork while other threads make the call; the child makes it too."""
    expected = target.results()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            target.results()

    workers = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in workers:
        thread.start()
    try:
        for _ in until(seconds):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    signal.alarm(CHILD_SECONDS)
                    faulthandler.dump_traceback_later(CHILD_SECONDS - 5)  # shows where a child hangs
                    check(target, target.results(), expected, "in a forked child")
                    code = 0
                finally:
                    os._exit(code)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert status == 0, f"{target.name}: a forked child ended with {status}"
    finally:
        stop.set()
        for thread in workers:
            thread.join()


# Results on top of inputs


def overlap(target: Target, seconds: float, random: np.random.Generator) -> None:
    """`out` shares memory with each of the inputs: that is refused, and nothing is changed."""
    if not target.takes_out:
        return
    result = target.results()[0]
    if result.size == 0:
        return
    for name, value in target.args.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind == "O" or value.ndim == 0 or value.size == 0:
            continue
        shift = int(random.integers(0, value.nbytes)) // 16 * 16
        memory = np.zeros(value.nbytes + result.nbytes + 64, np.uint8)
        held = memory[: value.nbytes].view(value.dtype).reshape(value.shape)
        held[...] = value
        out = memory[shift : shift + result.nbytes].view(result.dtype).reshape(result.shape)
        before = memory.copy()
        try:
            target.results({**target.fresh(), name: held}, out=out)
        except InvalidArgumentError as error:
            assert error.code == "bad-out" and name in str(error), f"{target.name}: {error}"
        else:
            raise AssertionError(f"{target.name}: out may lie on top of {name}")
        assert before.tobytes() == memory.tobytes(), f"{target.name}: a refused call wrote to out"


ATTACKS: dict[str, Attack] = {
    "flip": flip,
    "reenter": reenter,
    "interrupt": interrupt,
    "crowd": crowd,
    "fork": fork,
    "overlap": overlap,
    "damage": damage,
}


def until(seconds: float) -> Iterator[int]:
    """Count for so long, and at least once."""
    end, count = time.monotonic() + seconds, 0
    while count == 0 or time.monotonic() < end:
        yield count
        count += 1


@contextmanager
def parallel() -> Iterator[None]:
    """Even small calls are divided among threads."""
    grain = threads.GRAIN
    threads.GRAIN = 1
    rowgrad.set_num_threads(3)
    try:
        yield
    finally:
        threads.GRAIN = grain
