"""Calls of the functions of `rowgrad.sparse`, with their results; tests make the arrays of each framework of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rowgrad
from rowgrad import sparse

A = [[0, 1], [1, 2], [2, 0]], [5.0, -3.0, 7.0], [3, 3]
B = [[0, 1], [1, 1], [2, 2]], [1.0, -2.0, 4.0], [3, 3]
DENSE = np.arange(9, dtype=np.float32).reshape(3, 3)
Make = Callable[[Any], Any]


def tensor(make: Make, parts: Any, dtype: Any = np.float32) -> rowgrad.SparseTensor:
    indices, values, shape = parts
    return rowgrad.SparseTensor(np.array(indices), make(np.array(values, dtype)), shape)


def plain(result: Any) -> Any:
    """Nested lists of everything that a function gives."""
    if isinstance(result, rowgrad.SparseTensor):
        return [plain(result.indices), plain(result.values), list(result.dense_shape)]
    if isinstance(result, list | tuple):
        return [plain(item) for item in result]
    return np.asarray(result).tolist()


CALLS: dict[str, tuple[Callable[[Any, Any, Any, Make], Any], Any]] = {
    "add": (lambda a, b, d, m: sparse.add(a, b), [[[0, 1], [1, 1], [1, 2], [2, 0], [2, 2]], [6, -2, -3, 7, 4], [3, 3]]),
    "add a threshold": (
        lambda a, b, d, m: sparse.add(a, b, 6.5),
        [[[1, 1], [1, 2], [2, 0], [2, 2]], [-2, -3, 7, 4], [3, 3]],
    ),
    "add dense": (lambda a, b, d, m: sparse.add(d, a), [[0, 6, 2], [3, 4, 2], [13, 7, 8]]),
    "maximum": (lambda a, b, d, m: sparse.maximum(a, b).values, [5, 0, 0, 7, 4]),
    "minimum": (lambda a, b, d, m: sparse.minimum(a, b).values, [1, -2, -3, 0, 0]),
    "reduce_sum": (lambda a, b, d, m: sparse.reduce_sum(a, -1), [5, -3, 7]),
    "reduce_sum of all": (lambda a, b, d, m: sparse.reduce_sum(a), 9),
    "reduce_sum, sparse": (
        lambda a, b, d, m: sparse.reduce_sum(b, 0, keepdims=True, output_is_sparse=True),
        [[[0, 1], [0, 2]], [-1, 4], [1, 3]],
    ),
    "reduce_max": (lambda a, b, d, m: sparse.reduce_max(b, [0], keepdims=True), [[0, 1, 4]]),
    "softmax": (lambda a, b, d, m: sparse.softmax(a).values, [1, 1, 1]),
    "sparse_dense_matmul": (
        lambda a, b, d, m: sparse.sparse_dense_matmul(a, d),
        [[15, 20, 25], [-18, -21, -24], [0, 7, 14]],
    ),
    "sparse_dense_matmul, transposed": (
        lambda a, b, d, m: sparse.sparse_dense_matmul(a, d, adjoint_a=True, adjoint_b=True),
        [[14, 35, 56], [0, 15, 30], [-3, -12, -21]],
    ),
    "dense first": (lambda a, b, d, m: sparse.sparse_dense_matmul(d, a), [[14, 0, -3], [35, 15, -12], [56, 30, -21]]),
    "sampled_addmm": (
        lambda a, b, d, m: sparse.sampled_addmm(a.indices, a.values, a.dense_shape, d, d, beta=2.0, alpha=0.5).values,
        [19, 27, 48.5],
    ),
    "reorder": (
        lambda a, b, d, m: sparse.reorder(tensor(m, ([[1, 0], [0, 1]], [1.0, 2.0], [2, 2]))),
        [[[0, 1], [1, 0]], [2, 1], [2, 2]],
    ),
    "reshape": (lambda a, b, d, m: sparse.reshape(a, [9]), [[[1], [5], [6]], [5, -3, 7], [9]]),
    "transpose": (lambda a, b, d, m: sparse.transpose(a), [[[0, 2], [1, 0], [2, 1]], [7, 5, -3], [3, 3]]),
    "transpose by perm": (
        lambda a, b, d, m: sparse.transpose(a, [0, 1]),
        [[[0, 1], [1, 2], [2, 0]], [5, -3, 7], [3, 3]],
    ),
    "expand_dims": (
        lambda a, b, d, m: sparse.expand_dims(a, 1),
        [[[0, 0, 1], [1, 0, 2], [2, 0, 0]], [5, -3, 7], [3, 1, 3]],
    ),
    "reset_shape": (lambda a, b, d, m: list(sparse.reset_shape(b).dense_shape), [3, 3]),
    "reset_shape to larger": (lambda a, b, d, m: list(sparse.reset_shape(b, [5, 4]).dense_shape), [5, 4]),
    "retain": (
        lambda a, b, d, m: sparse.retain(a, np.array([True, False, True])),
        [[[0, 1], [2, 0]], [5, 7], [3, 3]],
    ),
    "slice": (lambda a, b, d, m: sparse.slice(a, [1, 0], [2, 3]), [[[0, 2], [1, 0]], [-3, 7], [2, 3]]),
    "split": (
        lambda a, b, d, m: sparse.split(a, 2, 0),
        [[[[0, 1], [1, 2]], [5, -3], [2, 3]], [[[0, 0]], [7], [1, 3]]],
    ),
    "concat": (
        lambda a, b, d, m: sparse.concat(-1, [a, b]),
        [[[0, 1], [0, 4], [1, 2], [1, 4], [2, 0], [2, 5]], [5, 1, -3, -2, 7, 4], [3, 6]],
    ),
    "concat of other lengths": (
        lambda a, b, d, m: sparse.concat(0, [a, sparse.reset_shape(b, [3, 5])], expand_nonconcat_dims=True).dense_shape,
        [6, 5],
    ),
    "fill_empty_rows": (
        lambda a, b, d, m: sparse.fill_empty_rows(sparse.slice(a, [1, 0], [2, 2]), 9.0),
        [[[[0, 0], [1, 0]], [9, 7], [2, 2]], [True, False]],
    ),
    "map_values": (lambda a, b, d, m: sparse.map_values(lambda x, y: x * y, a, a).values, [25, 9, 49]),
    "to_dense": (lambda a, b, d, m: sparse.to_dense(a), [[0, 5, 0], [0, 0, -3], [7, 0, 0]]),
    "to_dense with a default": (lambda a, b, d, m: a.to_dense(1.5), [[1.5, 5, 1.5], [1.5, 1.5, -3], [7, 1.5, 1.5]]),
    "from_dense": (lambda a, b, d, m: sparse.from_dense(sparse.to_dense(b)), [*B]),
    "to_indicator": (
        lambda a, b, d, m: sparse.to_indicator(tensor(m, ([[0, 0], [0, 1], [1, 0]], [2, 0, 1], [2, 2]), np.int32), 3),
        [[True, False, True], [False, True, False]],
    ),
    "segment_sum": (lambda a, b, d, m: sparse.segment_sum(d, [0, 2], [0, 0], 2), [[6, 8, 10], [0, 0, 0]]),
    "segment_mean": (lambda a, b, d, m: sparse.segment_mean(d, [0, 2], [0, 0]), [[3, 4, 5]]),
    "segment_sqrt_n": (lambda a, b, d, m: sparse.segment_sqrt_n(d, [0], [0]), [[0, 1, 2]]),
    "bincount": (
        lambda a, b, d, m: sparse.bincount(tensor(m, ([[0, 0], [0, 1], [2, 0]], [1, 1, 4], [3, 2]), np.int32)),
        [[[1], [4]], [2, 1], [5]],
    ),
    "bincount by row": (
        lambda a, b, d, m: sparse.bincount(m(np.array([[1, 2, 1], [0, 5, 5]])), axis=-1, maxlength=5),
        [[[0, 1], [0, 2], [1, 0]], [2, 1, 1], [2, 5]],
    ),
    "bincount with weights": (
        lambda a, b, d, m: sparse.bincount(
            tensor(m, ([[0, 0], [0, 1], [2, 0]], [1, 1, 4], [3, 2]), np.int32),
            tensor(m, ([[0, 0], [0, 1], [2, 0]], [0.5, 1.5, 4.0], [3, 2])),
            axis=-1,
            minlength=7,
        ),
        [[[0, 1], [2, 4]], [2.0, 4.0], [3, 7]],
    ),
    "cross_hashed": (
        lambda a, b, d, m: sparse.cross_hashed(
            [tensor(m, ([[0, 0], [1, 0]], [5, 6], [2, 1]), np.int32), m(np.array([[7], [8]]))], 100
        ),
        [[[0, 0], [1, 0]], [29, 71], [2, 1]],
    ),
    "cross": (
        lambda a, b, d, m: (
            sparse.cross([tensor(m, ([[0, 0], [1, 0]], [5, 6], [2, 1]), np.int32), [["x"], ["y"]]]).values
        ),
        ["5_X_x", "6_X_y"],
    ),
    "mask": (lambda a, b, d, m: sparse.mask((d, np.array([4, 5, 6])), [5]), [[[0, 1, 2], [6, 7, 8]], [4, 6]]),
}
