"""Order and shape of sparse tensors: gradients, large calls, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_check import check

import rowgrad
from golden import assert_same
from rowgrad._ops import functions
from rowgrad.errors import InvalidArgumentError
from shared_texts import different_lengths

RNG = np.random.default_rng(4)
INDICES = np.array([[2, 1], [0, 3], [2, 0], [0, 3], [1, 1]])


def test_gradients() -> None:
    check("SparseReorder", {"input_indices": INDICES, "input_values": RNG.standard_normal(5), "input_shape": [3, 4]})


@pytest.mark.parametrize("spread", [50, 2**61])
def test_large_calls(spread: int) -> None:
    """By keys that fit into words, and by NumPy where they do not; for every number of threads."""
    n = 40_000
    indices = RNG.integers(-spread, spread, (n, 3))
    values = RNG.standard_normal(n)
    order = np.lexsort(indices.T[::-1])
    before = rowgrad.get_num_threads()
    try:
        for threads in (1, 2, 3, 8):
            rowgrad.set_num_threads(threads)
            found = rowgrad.sparse_reorder(indices, values, [1, 1, 1])
            assert_same(indices[order], found.output_indices)
            assert_same(values[order], found.output_values)
            assert_same(values, functions.sparse_reorder_grad(found.output_values, indices, [1, 1, 1]))
            again = rowgrad.sparse_reorder(*found, [1, 1, 1])
            assert_same(found.output_values, again.output_values)
    finally:
        rowgrad.set_num_threads(before)


def test_large_reshapes() -> None:
    indices = np.stack([RNG.integers(0, size, 40_000) for size in (30, 70, 11)], axis=1)
    found = rowgrad.sparse_reshape(indices, [30, 70, 11], [-1, 55])
    places = np.ravel_multi_index(tuple(indices.T), (30, 70, 11))
    assert_same(np.stack(np.unravel_index(places, (420, 55)), axis=1), found.output_indices)
    assert found.output_shape.tolist() == [420, 55]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rowgrad.sparse_reorder([[0, 1]], [1.0, 2.0], [2, 2]),
         "SparseReorder: " + different_lengths("input_values", 2, "input_indices", 1)),
        (lambda: rowgrad.sparse_reshape([[0, 1]], [2, 3], [4, -1]),
         "SparseReshape: new_shape is [4, -1], which does not match the 6 places of input_shape. The products of both "
         "must be equal."),
        (lambda: rowgrad.sparse_reshape([[0, 1]], [2, 3], [-1, -1]),
         "SparseReshape: new_shape[1] is -1; only one length may be -1."),
        (lambda: rowgrad.sparse_reshape([[0, 1]], [0, 3], [3, 0]),
         "SparseReshape: input_indices has 1 entries, but input_shape is [0, 3], which has room for none. Fix "
         "input_shape, or pass no entries."),
    ],
)  # fmt: skip
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as info:
        call()
    assert str(info.value) == message
