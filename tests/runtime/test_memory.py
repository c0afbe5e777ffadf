"""Too much is refused before it is touched; what is empty costs nothing and is zero."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rowgrad
from rowgrad._runtime import memory


def test_what_is_not_free_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 10**8)
    with pytest.raises(rowgrad.OutOfMemoryError, match=r"0\.1 GB are free") as info:
        rowgrad.sparse_segment_sum_grad(np.ones((1, 100), np.float32), [0], [0], 10**6)
    assert (info.value.argument, info.value.op) == ("output_dim0", "SparseSegmentSumGrad")


def test_the_machine_has_some_memory_free() -> None:
    assert 1 << 24 < memory.available() <= 1 << 62


@pytest.mark.parametrize("rows", [2**32 + 2, 2**32, 2**31])
def test_num_segments_is_never_cut(rows: int) -> None:
    assert rowgrad.sparse_segment_sum(np.ones((3, 0), np.float32), [0, 1], [0, 0], rows).shape == (rows, 0)
    try:
        result = rowgrad.sparse_segment_sum(np.ones((3, 2), np.int8), [0, 1], [0, 0], np.int64(rows))
    except rowgrad.OutOfMemoryError as error:
        assert error.argument == "num_segments"
    else:
        assert result.shape == (rows, 2)
        assert result[0].tolist() == [2, 2]
        assert not result[-1].any()


@pytest.mark.parametrize("kind", ["sum", "mean", "sqrt_n"])
def test_empty_batches_give_zeros(kind: str) -> None:
    dirty = [np.full((500, 7), 9, np.float32) for _ in range(20)]
    del dirty
    nothing = np.empty(0, np.int32)
    dense = getattr(rowgrad, f"sparse_segment_{kind}_grad")(np.ones((3, 7), np.float32), nothing, nothing, 500)
    assert dense.shape == (500, 7)
    assert not dense.any()
    pooled = getattr(rowgrad, f"sparse_segment_{kind}")(np.ones((3, 7), np.float32), nothing, nothing, 500)
    assert pooled.shape == (500, 7)
    assert not pooled.any()


def test_rows_between_and_behind_segments_are_zero_even_in_used_memory() -> None:
    for _ in range(20):
        np.full((40, 8), 9, np.float32)
        pooled = rowgrad.sparse_segment_sum(np.ones((30, 8), np.float32), np.arange(30), np.arange(30) // 2 * 2 + 5, 40)
        assert not pooled[:5].any()
        assert not pooled[6:34:2].any()
        assert not pooled[34:].any()
        assert (pooled[5:34:2] == 2).all()


def test_a_huge_table_costs_the_compact_gradient_nothing() -> None:
    result = rowgrad.sparse_segment_sum_grad_v2(np.ones((2, 3), np.float32), [2**62, 5, 2**62], [0, 1, 1], 2**63 - 1)
    assert result.sorted_unique_indices.tolist() == [5, 2**62]
    assert result.output.tolist() == [[1.0] * 3, [2.0] * 3]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("width", [2, 8, 16, 20, 72, 104])
def test_results_written_by_non_temporal_stores_are_the_same(
    dtype: Any, width: int, many_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    table, ids = rng.random((300, width)).astype(dtype), rng.integers(0, 300, 2000)
    bags = np.sort(rng.integers(0, 900, 2000) // 2 * 2)  # every other row is empty

    def results() -> list[bytes]:
        pooled = rowgrad.sparse_segment_mean(table, ids, bags, 1000, out=_used((1000, width), dtype))
        dense = rowgrad.sparse_segment_mean_grad(pooled, ids * 3, bags, 1000, out=_used((1000, width), dtype))
        summed = rowgrad.segment_sum(table[ids], bags, out=_used((int(bags[-1]) + 1, width), dtype))
        return [pooled.tobytes(), dense.tobytes(), summed.tobytes()]

    expected = results()
    monkeypatch.setattr(memory, "NONTEMPORAL", 0)
    assert results() == expected


def _used(shape: tuple[int, ...], dtype: Any) -> "np.ndarray[Any, Any]":
    """An array that begins with a cache line and is not zero."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.full(size + 64, 9, np.uint8)
    return room[-room.ctypes.data % 64 :][:size].view(dtype).reshape(shape)


def test_large_results_begin_with_a_cache_line() -> None:
    for zero in (False, True):
        assert memory.allocate((memory.POOLED + 8,), np.uint8, zero=zero).ctypes.data % memory.LINE == 0


def test_when_the_interpreter_ends_no_memory_is_kept() -> None:
    memory.clear_pool()
    lease = memory._Lease(np.empty(memory.POOLED, np.uint8))
    lease.__del__(lambda: True)
    assert not memory._free
    lease.__del__(lambda: False)
    assert len(memory._free) == 1


def test_the_buffers_of_a_call_are_its_own() -> None:
    first, second = memory.scratch(100, np.int64), memory.scratch(100, np.int64)
    assert not np.shares_memory(first, second)
    place = first.ctypes.data
    part = first[10:20]
    del first
    assert not np.shares_memory(part, memory.scratch(100, np.int64))  # a view keeps the memory
    del part
    assert memory.scratch(100, np.int64).ctypes.data == place

    work, other = memory.borrow_work(np.dtype(np.float32)), memory.borrow_work(np.dtype(np.float32))
    assert not any(np.shares_memory(one, two) for one, two in zip(work, other, strict=True))
    memory.return_work(work)
    assert memory.borrow_work(np.dtype(np.float32))[0] is work[0]
