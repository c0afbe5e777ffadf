"""The largest of a segment: gradients of first and second order, ties and NaN, and that threads never show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gradient_check import check
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_check import check_shapes

import rowgrad
from golden import assert_same
from rowgrad._ops import OPERATORS, functions
from rowgrad._ops.gradients import backward
from rowgrad._runtime.dtypes import FLOATS, NUMPY

RNG = np.random.default_rng(4)
THREADS = (1, 2, 3, 8)


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    before = rowgrad.get_num_threads()
    yield
    rowgrad.set_num_threads(before)


CHOSEN = np.array([[4, 0, 4], [-1, -1, -1], [2, 4, 0], [4, 0, -1]])
CASES: dict[str, dict[str, Any]] = {
    "SparseSegmentMax": {
        "data": RNG.standard_normal((5, 2, 3)), "indices": np.array([4, 0, 4, 2, 0, 1]),
        "segment_ids": np.array([1, 3, 1, 0, 0, 3], np.int32), "num_segments": 5,
    },
    "SparseSegmentMaxGrad": {"grad": RNG.standard_normal((4, 3)), "chosen": CHOSEN, "output_dim0": 6},
    "SparseSegmentMaxGradV2": {
        "grad": RNG.standard_normal((4, 3)), "chosen": np.where(CHOSEN < 0, -1, CHOSEN * 2**60),
        "dense_output_dim0": 2**63 - 1,
    },
    "SparseSegmentMaxGradGrad": {"grad": RNG.standard_normal((5, 3)), "chosen": CHOSEN},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    check(name, CASES[name])


def test_all_are_checked() -> None:
    assert set(CASES) == {o.name for o in OPERATORS.values() if o.family == "segment_max" and o.gradient}


@pytest.mark.parametrize("name", ["SparseSegmentMax", "SparseSegmentMaxGrad", "SparseSegmentMaxGradGrad"])
def test_shapes(name: str) -> None:
    @settings(max_examples=30, deadline=None)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        check_shapes(name, CASES[name], data)

    run()


def test_the_compact_gradient_is_the_dense_one() -> None:
    operator, inputs = OPERATORS["SparseSegmentMax"], CASES["SparseSegmentMax"]
    d_output = {"output": RNG.standard_normal((5, 2, 3))}
    dense, compact = (backward(operator, inputs, d_output, compact=kind)["data"] for kind in (False, True))
    assert isinstance(compact, rowgrad.RowGradient)
    _, chosen = rowgrad.sparse_segment_max(**inputs)
    assert compact.sorted_unique_indices.tolist() == sorted(set(chosen.reshape(-1).tolist()) - {-1})
    assert_same(dense[compact.sorted_unique_indices], compact.output)


@pytest.mark.parametrize("dtype", FLOATS)
def test_ties_and_nan(dtype: str) -> None:
    """The first in the order of entries is kept, among numbers, zeros of either sign and NaN alike."""
    data = np.array([[0.0], [-0.0], [np.nan], [5.0], [-np.inf]]).astype(NUMPY[dtype])
    indices = [1, 0, 1, 3, 2, 3, 2, 4, 4]
    segment_ids = [0, 0, 0, 1, 1, 1, 1, 2, 2]
    output, chosen = rowgrad.sparse_segment_max(data, indices, segment_ids, 4)
    assert chosen[:, 0].tolist() == [1, 2, 4, -1]
    assert_same(np.concatenate([data[[1, 2, 4]], np.zeros((1, 1), data.dtype)]), output)


def test_half_is_summed_in_float32() -> None:
    chosen = np.zeros((4096, 1), np.int64)
    output = rowgrad.sparse_segment_max_grad(np.ones((4096, 1), ml_dtypes.bfloat16), chosen, 2)
    assert output.tolist() == [[4096], [0]]


@pytest.mark.parametrize("rows", [2, 2000])
@pytest.mark.parametrize("bad", [-2, 7, 2**40, -(2**63), 2**63 - 1])
def test_a_row_outside_the_table_is_named(rows: int, bad: int) -> None:
    chosen = np.zeros((rows, 3), np.int64)
    chosen[0] = -1
    chosen[1, 2] = bad
    grad = np.ones((rows, 3), np.float32)
    for call in (
        lambda: rowgrad.sparse_segment_max_grad(grad, chosen, 7),
        lambda: rowgrad.sparse_segment_max_grad_v2(grad, chosen, 7),
        lambda: functions.sparse_segment_max_grad_grad(grad[:1].repeat(7, axis=0), chosen),
    ):
        with pytest.raises(rowgrad.OutOfRangeError) as info:
            call()
        assert (info.value.argument, info.value.position, info.value.value) == ("chosen", (1, 2), bad)


def test_nothing_chosen_at_all() -> None:
    for rows in (3, 2000):
        chosen, grad = np.full((rows, 2), -1), np.ones((rows, 2), np.float16)
        assert not rowgrad.sparse_segment_max_grad(grad, chosen, 5).any()
        compact = rowgrad.sparse_segment_max_grad_v2(grad, chosen, 5)
        assert compact.output.shape == (0, 2) and compact.sorted_unique_indices.shape == (0,)


def test_no_columns() -> None:
    """Rows without columns have nothing to compare, however many they are; their ids are looked at all the same."""
    data = np.empty((2**40, 0))
    output, chosen = rowgrad.sparse_segment_max(data, [2**39], [2**30], 2**36)
    assert output.shape == chosen.shape == (2**36, 0)
    with pytest.raises(rowgrad.OutOfRangeError):
        rowgrad.sparse_segment_max(data, [2**40], [0], 3)
    assert rowgrad.sparse_segment_max_grad(data[:3], np.empty((3, 0), np.int64), 4).shape == (4, 0)
    assert functions.sparse_segment_max_grad_grad(data[:3], np.empty((5, 0), np.int64)).shape == (5, 0)


def test_out() -> None:
    for name, shape in (("SparseSegmentMax", (5, 2, 3)), ("SparseSegmentMaxGrad", (6, 3))):
        operator, inputs = OPERATORS[name], CASES[name]
        expected = operator(*inputs.values())
        out = np.full(shape, np.nan)
        found = operator(*inputs.values(), out=out)
        first, wanted = (found[0], expected[0]) if operator.result else (found, expected)
        assert first is out
        assert_same(wanted, out)
        with pytest.raises(rowgrad.InvalidArgumentError) as info:
            operator(*inputs.values(), out=out[1:])
        assert info.value.code == "bad-out"
    out = np.full((4, 3), np.nan)
    assert functions.sparse_segment_max_grad_grad(**CASES["SparseSegmentMaxGradGrad"], out=out) is out
    assert_same(functions.sparse_segment_max_grad_grad(**CASES["SparseSegmentMaxGradGrad"]), out)


def test_chosen_must_have_the_shape_of_the_gradient() -> None:
    for function in (rowgrad.sparse_segment_max_grad, rowgrad.sparse_segment_max_grad_v2):
        with pytest.raises(rowgrad.InvalidArgumentError) as info:
            function(np.ones((2, 3)), np.zeros((2, 2), np.int64), 4)
        assert (info.value.argument, info.value.code) == ("chosen", "length-mismatch")


@pytest.mark.parametrize("order", ["sorted", "unsorted"])
@pytest.mark.parametrize("width", [1, 5, 70])
@pytest.mark.parametrize("dtype", FLOATS)
def test_large_calls(dtype: str, width: int, order: str) -> None:
    """The same bits for any number of threads, and what NumPy finds."""
    random = np.random.default_rng(width)
    n, rows, segments = 20_000, 3_000, 2_000
    indices = (rows * random.random(n) ** 4).astype(np.int32)
    segment_ids = random.integers(0, segments - 10, n) // 2 * 2
    segment_ids = np.sort(segment_ids) if order == "sorted" else segment_ids
    data = random.standard_normal((rows, width)).astype(NUMPY[dtype])
    grad = random.standard_normal((segments, width)).astype(NUMPY[dtype])
    found = []
    for threads in THREADS:
        rowgrad.set_num_threads(threads)
        output, chosen = rowgrad.sparse_segment_max(data, indices, segment_ids, segments)
        dense = rowgrad.sparse_segment_max_grad(grad, chosen, rows)
        compact = rowgrad.sparse_segment_max_grad_v2(grad, chosen, 2**40)
        back = functions.sparse_segment_max_grad_grad(dense, chosen)
        found.append([output, chosen, dense, *compact, back])
    for other in found[1:]:
        for want, got in zip(found[0], other, strict=True):
            assert_same(want, got)

    output, chosen, dense, compact_output, unique, back = found[0]
    largest = np.full((segments, width), -np.inf)
    np.maximum.at(largest, segment_ids, data[indices].astype(np.float64))
    empty = np.bincount(segment_ids, minlength=segments) == 0
    assert_same(np.where(empty[:, None], 0, largest).astype(data.dtype), output)
    assert (chosen[empty] == -1).all()
    columns = np.arange(width)
    assert_same(output[~empty], data[chosen[~empty], columns])
    assert_same(np.unique(chosen[~empty]), unique)
    assert_same(dense[unique], compact_output)
    assert not np.delete(dense, unique, axis=0).any()
    assert_same(np.where(empty[:, None], 0, dense[chosen, columns]).astype(data.dtype), back)
    exact, absolute = np.zeros((2, rows, width))
    at = (chosen[~empty], np.broadcast_to(columns, chosen[~empty].shape))
    np.add.at(exact, at, grad[~empty].astype(np.float64))
    np.add.at(absolute, at, np.abs(grad[~empty].astype(np.float64)))
    epsilon = float(ml_dtypes.finfo(NUMPY[dtype]).eps)
    assert (np.abs(dense.astype(np.float64) - exact) <= 1e-5 * absolute + epsilon * np.abs(exact)).all()
