"""Operators in a process that uses PyTorch: its threads run the kernels, and results are those of any other threads."""

import os
import sys
import threading

import numpy as np
import pytest
import torch

import rowgrad
from rowgrad._runtime import team, threads

ROWS, WIDTH, SIZE = 2000, 16, 60_000


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(threads, "_chosen", 2)
    monkeypatch.setattr(team, "_alone", 0)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    return (
        rng.standard_normal((ROWS, WIDTH), np.float32),
        rng.integers(0, ROWS, SIZE),
        np.sort(rng.integers(0, ROWS, SIZE)),
    )


def calls(data, ids, segment_ids):
    """Kernels with and without a result, with one phase and with many."""
    indices = np.stack([segment_ids, ids], axis=1)
    yield rowgrad.sparse_segment_sum(data, ids, segment_ids)
    yield rowgrad.sparse_segment_mean(data, ids, segment_ids, num_segments=ROWS + 9)
    yield from rowgrad.sparse_segment_sqrt_n_grad_v2(data, ids, np.sort(ids), ROWS)
    yield rowgrad.sparse_segment_mean_grad(data, ids, np.sort(ids), ROWS)
    yield from rowgrad.sparse_fill_empty_rows(indices, data.reshape(-1)[: SIZE // 2].repeat(2), [2 * ROWS, ROWS], 0.5)
    yield rowgrad.unsorted_segment_max(data.repeat(30, axis=0), ids, ROWS)


def test_the_team_gives_the_bits_of_one_thread(arrays, monkeypatch):
    late = []
    monkeypatch.setattr(team, "note", late.append)
    shared = list(calls(*arrays))
    assert len(late) > 5  # so often was the team asked
    monkeypatch.setattr(threads, "_chosen", 1)
    for one, other in zip(shared, calls(*arrays), strict=True):
        assert one.tobytes() == other.tobytes()


def test_errors_come_from_the_team(arrays):
    data, ids, segment_ids = arrays
    ids = ids.copy()
    ids[40_000] = ROWS
    with pytest.raises(IndexError, match=r"indices\[40000\]"):
        rowgrad.sparse_segment_sum(data, ids, segment_ids)
    out = np.full((ROWS, WIDTH), 7, np.float32)
    with pytest.raises(IndexError, match=r"indices\[40000\]"):
        rowgrad.sparse_segment_sum(data, ids, segment_ids, num_segments=ROWS, out=out)
    assert (out == 7).all()


def test_many_threads_have_a_team_each(arrays):
    expected, found = rowgrad.sparse_segment_sum(*arrays), []

    def work():
        found.extend(rowgrad.sparse_segment_sum(*arrays).tobytes() == expected.tobytes() for _ in range(20))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [True] * 80


def test_a_late_team_leaves_work_to_helpers(arrays, monkeypatch):
    expected = rowgrad.sparse_segment_sum(*arrays)
    monkeypatch.setattr(team, "_alone", 5)
    assert threads.Workers(10 * threads.GRAIN).helpers == 1
    assert rowgrad.sparse_segment_sum(*arrays).tobytes() == expected.tobytes()
    assert team._alone == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_has_helpers_of_its_own(arrays):
    expected = rowgrad.sparse_segment_sum(*arrays).tobytes()
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if rowgrad.sparse_segment_sum(*arrays).tobytes() == expected else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_pytorch_with_one_thread_has_no_team():
    torch.set_num_threads(1)
    assert team.team(1 << 30, 2) == (0, 1)


def test_the_team_keeps_no_array_alive(arrays, monkeypatch):
    asked = []
    monkeypatch.setattr(team, "note", asked.append)
    before = [sys.getrefcount(array) for array in arrays]
    for _ in range(3):
        rowgrad.sparse_segment_mean(*arrays)
    assert asked
    assert [sys.getrefcount(array) for array in arrays] == before
