"""How many threads, who says so, and what happens when threads and processes multiply."""

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from types import FrameType
from typing import Any

import numpy as np
import pytest

import rowgrad
from rowgrad import _kernels as kernels
from rowgrad._runtime import team, threads


@pytest.fixture(autouse=True)
def helpers_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not another test has loaded PyTorch, whose threads would run kernels."""
    monkeypatch.setattr(team, "_forked", True)


def problem(seed: int) -> tuple["np.ndarray[tuple[int, int], np.dtype[np.float32]]", ...]:
    rng = np.random.default_rng(seed)
    grad = rng.standard_normal((300, 17)).astype(np.float32)
    return grad, rng.integers(0, 50, 40_000), rng.integers(0, 300, 40_000)


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWGRAD_NUM_THREADS", "3")
    assert rowgrad.get_num_threads() == 3
    rowgrad.set_num_threads(5)
    assert rowgrad.get_num_threads() == 5


@pytest.mark.parametrize("bad", [0, -1, 1.5, "2", True, None, 10**6])
def test_bad_counts_are_refused(bad: object) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match="from 1 to"):
        rowgrad.set_num_threads(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["many", "0", "1.5"])
def test_a_bad_environment_is_named(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWGRAD_NUM_THREADS", bad)
    with pytest.raises(rowgrad.InvalidArgumentError, match="ROWGRAD_NUM_THREADS"):
        rowgrad.get_num_threads()


HELPER = threads._Helper.run.__code__


def outermost(frame: FrameType) -> FrameType:
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def test_helpers_really_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is cut into chunks is worked on by more than one thread."""
    monkeypatch.setattr(threads, "GRAIN", 1)
    rowgrad.set_num_threads(4)
    grad, indices, segments = problem(0)
    rowgrad.sparse_segment_sum_grad(grad, indices, segments, 50)

    def helping() -> int:
        return sum(frame.f_code is HELPER for frame in map(outermost, sys._current_frames().values()))

    deadline = time.monotonic() + 10
    while helping() < 3 and time.monotonic() < deadline:  # on a busy machine a new thread begins late
        time.sleep(0.01)
    assert helping() >= 3


def test_many_callers_at_once(many_chunks: None) -> None:
    grad, indices, segments = problem(1)
    expected = rowgrad.sparse_segment_mean_grad(grad, indices, segments, 50)
    wrong = []

    def work() -> None:
        for _ in range(20):
            result = rowgrad.sparse_segment_mean_grad(grad, indices, segments, 50)
            if not np.array_equal(result, expected):
                wrong.append(result)

    callers = [threading.Thread(target=work) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
        assert not caller.is_alive()
    assert not wrong


def test_no_helper_begins_before_the_caller_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception is raised at each bytecode of a call in turn; helpers must leave calls alone that did not begin."""
    monkeypatch.setattr(threads, "GRAIN", 1)
    rowgrad.set_num_threads(2)
    began: list[set[str]] = []

    def call(position: int) -> None:
        """A call in which `position` bytecodes of this library run before Ctrl-C comes."""
        mine, me, left = set[str](), threading.get_ident(), position
        began.append(mine)

        def kernel(workers: Any, chunks: int, out: Any) -> None:
            if threading.get_ident() == me:
                sys.settrace(None)
                workers[0][kernels.sharing.ARRIVALS] = 1  # as machine code does
                mine.add("caller")
            else:
                mine.add("helper")

        def trace(frame: Any, event: str, arg: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename != threads.__file__:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                left -= 1
                if left < 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        workers = threads.Workers(1000)
        sys.settrace(trace)
        try:
            workers.run(kernel, None)
        finally:
            sys.settrace(None)

    for position in range(1000):
        try:
            call(position)
        except KeyboardInterrupt:
            continue
        break
    else:
        raise AssertionError("no call came to its end")

    came = threading.Event()

    def last(workers: Any, chunks: int) -> None:
        """The helper works in the order of the calls: when it comes to this one, it has been at the others."""
        if threading.current_thread() is threading.main_thread():
            workers[0][kernels.sharing.ARRIVALS] = 1
            while not came.wait(0.01):
                threads.call_helpers()
        else:
            came.set()

    threads.Workers(1000).run(last)
    threads._jobs.clear()  # what an exception at the last bytecodes leaves there
    assert {"caller"} <= began[-1]
    assert {"helper"} not in began
    assert sum(not calls for calls in began) > 20


FORK = """
import os, numpy as np, rowgrad
from rowgrad._runtime import threads
threads.GRAIN = 1
rowgrad.set_num_threads(3)
grad, ids = np.ones((300, 17), np.float32), np.arange(40_000) % 50
expected = rowgrad.sparse_segment_sum_grad(grad, ids, ids, 50)
child = os.fork()
result = rowgrad.sparse_segment_sum_grad(grad, ids, ids, 50)
same = np.array_equal(result, expected) and len(threads._helpers) == 2
if child == 0:
    os._exit(0 if same else 1)
print(same and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_has_helpers_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "True", done.stderr


def test_a_finished_call_keeps_nothing_alive(many_chunks: None) -> None:
    grad, indices, segments = problem(3)
    result = rowgrad.sparse_segment_sum_grad(grad, indices, segments, 50)
    gone = weakref.ref(result)
    del result
    for _ in range(100):
        if gone() is None:
            break
        threading.Event().wait(0.05)
    gc.collect()
    assert gone() is None
