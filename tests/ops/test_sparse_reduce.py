"""Reductions of sparse tensors: gradients, large calls, long groups, attributes, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_check import check

import naive
import rowgrad
from golden import assert_same
from rowgrad._ops import functions
from rowgrad.errors import RowgradError
from shared_texts import out_of_range

RNG = np.random.default_rng(4)
INDICES = np.array([[2, 1], [0, 3], [2, 0], [0, 3], [1, 1]])
KINDS = [f"sparse_reduce_{kind}{form}" for kind in ("sum", "max") for form in ("", "_sparse")]


@pytest.mark.parametrize(
    "name", ["SparseReduceSum", "SparseReduceSumSparse", "SparseReduceMax", "SparseReduceMaxSparse"]
)
@pytest.mark.parametrize("axes", [[], [0], [1], [1, 0], 0])
@pytest.mark.parametrize("keep_dims", [False, True])
def test_gradients(name: str, axes: Any, keep_dims: bool) -> None:
    inputs = {"input_indices": INDICES, "input_values": RNG.standard_normal(5), "input_shape": [3, 4]}
    check(name, {**inputs, "reduction_axes": np.array(axes, np.int32)}, {"keep_dims": keep_dims})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize("axes", [[], 1, [-1, 0], [0, 1, 2, 0]])
def test_attributes(kind: str, keep_dims: bool, axes: Any) -> None:
    indices = np.stack([RNG.integers(0, size, 40) for size in (3, 4, 2)], axis=1)
    args = (indices, RNG.standard_normal(40), np.array([3, 4, 2]), np.array(axes, np.int32))
    expected = getattr(naive, kind)(*args, keep_dims=keep_dims)
    found = getattr(functions, kind)(*args, keep_dims=keep_dims)
    pairs = zip(expected, found, strict=True) if isinstance(found, tuple) else [(expected, found)]
    for want, got in pairs:
        assert_same(want, got)


@pytest.mark.parametrize("spread", [50, 2**61])
@pytest.mark.parametrize("axes", [[2], [0, 1]])
def test_large_calls(spread: int, axes: list[int]) -> None:
    """By keys that fit into words, and by NumPy where they do not; for every number of threads."""
    n = 40_000
    indices = RNG.integers(-spread, spread, (n, 3))
    indices[:, 1] %= 5
    values = RNG.integers(-9, 9, n)
    kept = [axis for axis in range(3) if axis not in axes]
    unique, inverse = np.unique(indices[:, kept], axis=0, return_inverse=True)
    sums = np.zeros(len(unique), np.int64)
    np.add.at(sums, inverse.reshape(-1), values)
    before = rowgrad.get_num_threads()
    try:
        for threads in (1, 2, 3, 8):
            rowgrad.set_num_threads(threads)
            found = rowgrad.sparse_reduce_sum_sparse(indices, values, [1, 1, 1], axes)
            assert_same(unique, found.output_indices)
            assert_same(sums, found.output_values)
            assert_same(inverse.reshape(-1), functions.sparse_reduce_segments(indices, [1, 1, 1], axes))
    finally:
        rowgrad.set_num_threads(before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("n", [8191, 8192, 8193, 20_000, 40_001])
def test_long_groups(dtype: Any, n: int) -> None:
    """Sums that are cut in two, again and again; the entries come in any order."""
    values = RNG.standard_normal(n) * 2.0 ** RNG.integers(-4, 5, n)
    values = (values + 1j * values[::-1] if np.dtype(dtype).kind == "c" else values).astype(dtype)
    order = RNG.permutation(n)
    expected = naive.eigen_sum(values, 32 // np.dtype(dtype).itemsize)
    found = rowgrad.sparse_reduce_sum(order[:, None], values[order], [n], [0])
    assert_same(expected.reshape(()), found)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rowgrad.sparse_reduce_sum([[0, 1]], [1.0], [2, 3], [2]),
         "SparseReduceSum: reduction_axes is 2; allowed: -2 to 1. Choose one of the 2 dimensions."),
        (lambda: rowgrad.sparse_reduce_sum([[0, 1]], [1.0], [2, 3], [[1]]),
         "SparseReduceSum: reduction_axes has shape [1, 1]; it must be a scalar or a vector. Reshape it."),
        (lambda: rowgrad.sparse_reduce_max([[0, 1], [2, 0]], [1.0, 2.0], [2, 3], [1]),
         "SparseReduceMax: " + out_of_range("input_indices", (1, 0), 2, 2, "input_shape[0]",
                                            "Drop the entry, or raise input_shape.")),
        (lambda: rowgrad.raw_ops.SparseReduceSegments([[0, 1], [2, 0]], [2, 3], [1], dense=True),
         "SparseReduceSegments: " + out_of_range("input_indices", (1, 0), 2, 2, "input_shape[0]",
                                                 "Drop the entry, or raise input_shape.")),
        (lambda: rowgrad.sparse_reduce_sum([[0, 1]], [1.0], [2, 3], [1], keep_dims=1),
         "SparseReduceSum: keep_dims is 1; it must be True or False."),
    ],
)  # fmt: skip
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(RowgradError) as info:
        call()
    assert str(info.value) == message
