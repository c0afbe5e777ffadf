"""How many threads, who says so, and what happens when threads and processes multiply."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import rowgrad
from rowgrad._runtime import threads


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


def test_helpers_really_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is cut into chunks is worked on by more than one thread."""
    monkeypatch.setattr(threads, "GRAIN", 1)
    rowgrad.set_num_threads(4)
    grad, indices, segments = problem(0)
    rowgrad.sparse_segment_sum_grad(grad, indices, segments, 50)
    names = {thread.name for thread in threading.enumerate()}
    assert {"rowgrad-0", "rowgrad-1", "rowgrad-2"} <= names


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
