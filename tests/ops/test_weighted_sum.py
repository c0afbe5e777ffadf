"""Weighted sums: gradients of first and second order, where each weight goes, and that threads never show."""

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
from rowgrad import raw_ops
from rowgrad._ops import OPERATORS
from rowgrad._ops.gradients import backward
from rowgrad._runtime.dtypes import FLOATS, NUMPY

RNG = np.random.default_rng(3)
THREADS = (1, 2, 3, 8)


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    before = rowgrad.get_num_threads()
    yield
    rowgrad.set_num_threads(before)


def table(*shape: int) -> Any:
    return RNG.standard_normal(shape)


INDICES, SEGMENTS = np.array([4, 0, 4, 2, 0, 4]), np.array([1, 3, 1, 0, 0, 3], np.int32)
CASES: dict[str, dict[str, Any]] = {
    "SparseSegmentWeightedSum": {
        "data": table(5, 2, 3), "weights": table(6), "indices": INDICES, "segment_ids": SEGMENTS, "num_segments": 5,
    },
    "SparseSegmentWeightedSumGradV2": {
        "grad": table(4, 3), "weights": table(6), "indices": INDICES * 2**58, "segment_ids": SEGMENTS,
        "dense_output_dim0": 2**62,
    },
    "RowDot": {"a": table(5, 19), "b": table(4, 19), "a_rows": INDICES, "b_rows": SEGMENTS},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    check(name, CASES[name], {"out_type": "float64"} if name == "RowDot" else None)


def test_all_are_checked() -> None:
    assert set(CASES) == {o.name for o in OPERATORS.values() if o.family == "weighted_sum" and o.gradient}


@pytest.mark.parametrize("name", ["SparseSegmentWeightedSum", "RowDot"])
def test_shapes(name: str) -> None:
    @settings(max_examples=30, deadline=None)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        check_shapes(name, CASES[name], data)

    run()


def test_the_compact_gradient_is_the_dense_one() -> None:
    operator, inputs = OPERATORS["SparseSegmentWeightedSum"], CASES["SparseSegmentWeightedSum"]
    d_output = {"output": table(5, 2, 3)}
    dense, compact = (backward(operator, inputs, d_output, compact=kind)["data"] for kind in (False, True))
    assert isinstance(compact, rowgrad.RowGradient)
    assert compact.sorted_unique_indices.tolist() == [0, 2, 4]
    assert_same(dense[[0, 2, 4]], compact.output)


@pytest.mark.parametrize("out_type", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_types_of_dots(dtype: str, out_type: str) -> None:
    """The sum is rounded to the type that is asked for, and to no other on the way."""
    a, b = (table(3, 40).astype(NUMPY[dtype]) for _ in range(2))
    rows = np.array([2, 0, 1])
    exact = (a[rows].astype(np.float64) * b.astype(np.float64)).sum(axis=1)
    dots = raw_ops.RowDot(a, b, rows, np.arange(3), out_type=out_type)
    assert dots.dtype == NUMPY[out_type]
    digits = min(ml_dtypes.finfo(NUMPY[out_type]).nmant, 23 if dtype != "float64" else 52)
    np.testing.assert_allclose(dots.astype(np.float64), exact, rtol=0, atol=float(40 * 2.0**-digits))


def test_half_is_summed_in_float32() -> None:
    ones = np.ones((1, 2), ml_dtypes.bfloat16)
    ids = np.zeros(4096, np.int64)
    output = rowgrad.sparse_segment_weighted_sum(ones, np.ones(4096, np.float16), ids, ids, 1)
    assert output.tolist() == [[4096, 4096]]


def test_a_double_weight_too_large_for_a_float_is_infinite() -> None:
    output = rowgrad.sparse_segment_weighted_sum(np.ones((1, 1), np.float32), np.array([1e300]), [0], [0], 1)
    assert output.tolist() == [[np.inf]]


@pytest.mark.parametrize("length", [3, 2000])
def test_the_first_bad_entry_is_named(length: int) -> None:
    """Whichever of its two ids is wrong, in a small call and in a large one."""
    good = np.zeros(length, np.int64)
    args: dict[str, Any] = {"data": np.ones((2, 1)), "weights": np.ones(length), "indices": good, "segment_ids": good}
    for name, other in (("indices", "segment_ids"), ("segment_ids", "indices")):
        early, late = good.copy(), good.copy()
        early[1], late[2] = 7, -1
        with pytest.raises(rowgrad.OutOfRangeError) as info:
            rowgrad.sparse_segment_weighted_sum(**{**args, name: early, other: late}, num_segments=3)
        assert (info.value.argument, info.value.position, info.value.value) == (name, 1, 7)


def test_out() -> None:
    inputs = CASES["SparseSegmentWeightedSum"]
    expected = rowgrad.sparse_segment_weighted_sum(**inputs)
    out = np.full((5, 2, 3), np.nan)
    assert rowgrad.sparse_segment_weighted_sum(**inputs, out=out) is out
    assert_same(expected, out)
    for wrong in (out[:4], out.astype(np.float32), inputs["data"]):
        with pytest.raises(rowgrad.InvalidArgumentError) as info:
            rowgrad.sparse_segment_weighted_sum(**inputs, out=wrong)
        assert info.value.code == "bad-out"
    dots = np.full(6, np.nan)
    assert rowgrad.row_dot(**CASES["RowDot"], out=dots) is dots
    assert_same(rowgrad.row_dot(**CASES["RowDot"]), dots)


def test_rows_must_have_the_same_shape() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        rowgrad.row_dot(np.ones((2, 3)), np.ones((2, 4)), [0], [1])
    assert (info.value.argument, info.value.code) == ("b", "length-mismatch")


@pytest.mark.parametrize("width", [1, 5, 70])
@pytest.mark.parametrize("dtype", FLOATS)
def test_large_calls(dtype: str, width: int) -> None:
    """The same bits for any number of threads, and as many sums of single entries make them."""
    random = np.random.default_rng(width)
    n, rows, segments = 30_000, 4_000, 2_500
    indices = (rows * random.random(n) ** 4).astype(np.int32)
    segment_ids = random.integers(0, segments, n)
    data = random.standard_normal((rows, width)).astype(NUMPY[dtype])
    grad = random.standard_normal((segments, width)).astype(NUMPY[dtype])
    weights = random.standard_normal(n).astype(np.float32)
    found = []
    for threads in THREADS:
        rowgrad.set_num_threads(threads)
        compact = rowgrad.sparse_segment_weighted_sum_grad_v2(grad, weights, indices, segment_ids, 2**40)
        found.append([
            rowgrad.sparse_segment_weighted_sum(data, weights, indices, segment_ids, segments),
            rowgrad.sparse_segment_weighted_sum(grad, weights, segment_ids, indices, rows),
            *compact,
            rowgrad.row_dot(grad, data, segment_ids, indices),
        ])  # fmt: skip
    for other in found[1:]:
        for want, got in zip(found[0], other, strict=True):
            assert_same(want, got)

    forward, dense, output, unique, dots = found[0]
    assert_same(np.unique(indices), unique)
    assert_same(dense[unique], output)
    exact, absolute = np.zeros((2, segments, width))
    terms = data[indices].astype(np.float64) * weights[:, None]
    np.add.at(exact, segment_ids, terms)
    np.add.at(absolute, segment_ids, np.abs(terms))
    info = ml_dtypes.finfo(NUMPY[dtype])
    epsilon, tiny = float(info.eps), float(info.smallest_subnormal)
    assert (np.abs(forward.astype(np.float64) - exact) <= 1e-5 * absolute + epsilon * np.abs(exact) + tiny).all()
    products = grad[segment_ids].astype(np.float64) * data[indices].astype(np.float64)
    bound = 1e-5 * np.abs(products).sum(axis=1) + epsilon * np.abs(products.sum(axis=1)) + tiny
    assert (np.abs(dots.astype(np.float64) - products.sum(axis=1)) <= bound).all()
