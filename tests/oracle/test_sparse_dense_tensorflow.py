"""SparseToDense and SparseTensorDenseMatMul beside TensorFlow's: results, and what is refused."""

from __future__ import annotations

import os
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rowgrad
from rowgrad.blocks import raw_ops

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")

RNG = np.random.default_rng(9)
REFUSED = (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError, ValueError)
EMPTY = np.empty((0, 2), np.int32)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, ml_dtypes.bfloat16, np.complex64, np.bool_])
@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize(
    ("indices", "shape", "values"),
    [
        (2, [4], 1),
        (4, [4], 1),
        ([1, 3], [4], [1, 0]),
        ([1, 3], [4], 1),
        ([1, 3], [4], [1]),
        ([3, 1], [4], [1, 0]),
        ([3, 3], [4], [0, 1]),
        ([[0, 1], [1, 0]], [2, 2], [1, 1]),
        ([[1, 0], [0, 1]], [2, 2], [1, 1]),
        ([[0, 1], [0, 1]], [2, 2], [0, 1]),
        ([[0, 2]], [2, 2], [1]),
        ([[0, -1]], [2, 2], [1]),
        ([[0, 1]], [2], [1]),
        ([[0, 1]], [2, 2], [[1]]),
        (EMPTY, [2, 2], np.empty(0)),
        (EMPTY, [0, 2], np.empty(0)),
    ],
    ids=repr,
)
def test_sparse_to_dense(dtype: Any, validate: bool, indices: Any, shape: Any, values: Any) -> None:
    inputs = {"sparse_indices": np.array(indices, np.int32), "output_shape": np.array(shape, np.int32),
              "sparse_values": np.array(values).astype(dtype), "default_value": np.array(1).astype(dtype)}  # fmt: skip
    try:
        expected = tf.raw_ops.SparseToDense(**inputs, validate_indices=validate).numpy()
    except REFUSED:
        with pytest.raises(rowgrad.InvalidArgumentError):
            raw_ops.SparseToDense(**inputs, validate_indices=validate)
        return
    result = raw_ops.SparseToDense(**inputs, validate_indices=validate)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.complex64, np.complex128, ml_dtypes.bfloat16])
@pytest.mark.parametrize("count", [0, 40, 900])
@pytest.mark.parametrize("adjoint_a", [False, True])
@pytest.mark.parametrize("adjoint_b", [False, True])
@pytest.mark.parametrize("columns", [0, 1, 5, 200])
def test_product(dtype: Any, count: int, adjoint_a: bool, adjoint_b: bool, columns: int) -> None:
    """Bit for bit, on numbers of which the order of the additions shows in the last bits.

    TensorFlow rounds bfloat16 after every step, so that is compared on a few small whole numbers.
    """
    rows, inner = 6, 9

    def numbers(*shape: int) -> Any:
        if dtype is np.int32:
            return RNG.integers(-(2**31), 2**31, shape)
        if dtype is ml_dtypes.bfloat16:
            return RNG.integers(-1, 2, shape) * (RNG.random(shape) < 40 / max(count, 1))
        found = RNG.standard_normal(shape)
        return found + 1j * RNG.standard_normal(shape) if np.dtype(dtype).kind == "c" else found

    shape = np.array([inner, rows] if adjoint_a else [rows, inner])
    inputs = {
        "a_indices": np.stack([RNG.integers(0, size, count) for size in shape], axis=1),
        "a_values": numbers(count).astype(dtype),
        "a_shape": shape,
        "b": numbers(*((columns, inner) if adjoint_b else (inner, columns))).astype(dtype),
    }
    expected = tf.raw_ops.SparseTensorDenseMatMul(**inputs, adjoint_a=adjoint_a, adjoint_b=adjoint_b).numpy()
    result = raw_ops.SparseTensorDenseMatMul(**inputs, adjoint_a=adjoint_a, adjoint_b=adjoint_b)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "change",
    [
        {"a_indices": np.array([[0, 3]])},
        {"a_indices": np.array([[-1, 0]])},
        {"a_indices": np.array([[0, 0, 0]])},
        {"a_values": np.ones(2, np.float32)},
        {"a_shape": np.array([2, 3, 4])},
        {"b": np.ones((2, 2), np.float32)},
        {"b": np.ones(3, np.float32)},
    ],
    ids=repr,
)
def test_what_is_refused(change: dict[str, Any]) -> None:
    inputs = {"a_indices": np.array([[0, 0]]), "a_values": np.ones(1, np.float32), "a_shape": np.array([2, 3]),
              "b": np.ones((3, 2), np.float32), **change}  # fmt: skip
    with pytest.raises(REFUSED):
        tf.raw_ops.SparseTensorDenseMatMul(**inputs)
    with pytest.raises(rowgrad.InvalidArgumentError):
        raw_ops.SparseTensorDenseMatMul(**inputs)


@pytest.mark.parametrize("adjoint_a", [False, True])
@pytest.mark.parametrize("adjoint_b", [False, True])
def test_gradients_of_the_product(adjoint_a: bool, adjoint_b: bool) -> None:
    from rowgrad._ops.gradients import backward
    from rowgrad.blocks.operators import OPERATORS

    shape = np.array([6, 4])
    indices = np.stack([np.arange(6), RNG.integers(0, 4, 6)], axis=1)
    values = RNG.standard_normal(6)
    inner, rows = (6, 4) if adjoint_a else (4, 6)
    b = RNG.standard_normal((3, inner) if adjoint_b else (inner, 3))
    flow = RNG.standard_normal((rows, 3))
    with tf.GradientTape() as tape:
        tensors = tf.constant(values), tf.constant(b)
        tape.watch(tensors)
        sparse = tf.SparseTensor(indices, tensors[0], shape)
        product = tf.sparse.sparse_dense_matmul(sparse, tensors[1], adjoint_a=adjoint_a, adjoint_b=adjoint_b)
    expected = tape.gradient(product, tensors, output_gradients=tf.constant(flow))
    inputs = {"a_indices": indices, "a_values": values, "a_shape": shape, "b": b}
    attributes = {"adjoint_a": adjoint_a, "adjoint_b": adjoint_b}
    gradients = backward(OPERATORS["SparseTensorDenseMatMul"], inputs, {"product": flow}, attributes=attributes,
                         operators=OPERATORS)  # fmt: skip
    for name, wanted in zip(("a_values", "b"), expected, strict=True):
        np.testing.assert_allclose(gradients[name], wanted, rtol=1e-12, atol=1e-12)
