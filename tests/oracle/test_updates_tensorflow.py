"""The optimizers' steps beside TensorFlow's own, on variables that TensorFlow changes in place."""

from __future__ import annotations

import os
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rowgrad.blocks import raw_ops

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")

RNG = np.random.default_rng(3)
ADAM = {"beta1_power": 0.81, "beta2_power": 0.998, "lr": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7}
# TensorFlow rounds half and bfloat16 after every operation, rowgrad once.
TOLERANCE = {np.float16: 1e-2, ml_dtypes.bfloat16: 8e-2, np.float32: 1e-6, np.float64: 1e-14}
BY_DTYPE = pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: np.dtype(dtype).name)
INDICES = pytest.mark.parametrize("indices", [[], [3, 0], [1, 1, 4, 1, 0]], ids=str)


def states(shape: tuple[int, ...], dtype: Any, count: int) -> list[np.ndarray]:
    return [RNG.uniform(0.5, 2, shape).astype(dtype) for _ in range(count)]


def assert_close(results: Any, variables: list[Any], dtype: Any) -> None:
    results = results if isinstance(results, tuple) else (results,)
    for result, variable in zip(results, variables, strict=True):
        expected = variable.numpy()
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        tolerance = TOLERANCE[dtype]
        np.testing.assert_allclose(result.astype(float), expected.astype(float), rtol=tolerance, atol=tolerance / 10)


@BY_DTYPE
@pytest.mark.parametrize("shape", [(), (5,), (33, 7)], ids=str)
def test_gradient_descent(dtype: Any, shape: tuple[int, ...]) -> None:
    (var,) = states(shape, dtype, 1)
    grad, alpha = RNG.standard_normal(shape).astype(dtype), dtype(0.3)
    variable = tf.Variable(var)
    tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=alpha, delta=grad)
    assert_close(raw_ops.ApplyGradientDescent(var, alpha, grad), [variable], dtype)


@BY_DTYPE
@pytest.mark.parametrize("update_slots", [True, False])
def test_adagrad(dtype: Any, update_slots: bool) -> None:
    arrays, grad, lr = states((33, 7), dtype, 2), RNG.standard_normal((33, 7)).astype(dtype), dtype(0.3)
    variables = [tf.Variable(array) for array in arrays]
    tf.raw_ops.ResourceApplyAdagrad(
        var=variables[0].handle, accum=variables[1].handle, lr=lr, grad=grad, update_slots=update_slots
    )
    assert_close(raw_ops.ApplyAdagrad(*arrays, lr, grad, update_slots=update_slots), variables, dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])  # 1 − 0.999 is 0 in bfloat16
@pytest.mark.parametrize("use_nesterov", [True, False])
def test_adam(dtype: Any, use_nesterov: bool) -> None:
    arrays, grad = states((33, 7), dtype, 3), RNG.standard_normal((33, 7)).astype(dtype)
    scalars = {name: dtype(value) for name, value in ADAM.items()}
    variables = [tf.Variable(array) for array in arrays]
    handles = dict(zip(("var", "m", "v"), (variable.handle for variable in variables), strict=True))
    tf.raw_ops.ResourceApplyAdam(**handles, **scalars, grad=grad, use_nesterov=use_nesterov)
    assert_close(raw_ops.ApplyAdam(*arrays, *scalars.values(), grad, use_nesterov=use_nesterov), variables, dtype)


@BY_DTYPE
@INDICES
@pytest.mark.parametrize("id_dtype", [np.int32, np.int64])
def test_adagrad_of_rows(dtype: Any, indices: list[int], id_dtype: Any) -> None:
    ids = np.array(indices, id_dtype)
    arrays, grad = states((6, 3), dtype, 2), RNG.standard_normal((ids.size, 3)).astype(dtype)
    variables = [tf.Variable(array) for array in arrays]
    tf.raw_ops.ResourceSparseApplyAdagrad(
        var=variables[0].handle, accum=variables[1].handle, lr=dtype(0.3), grad=grad, indices=ids
    )
    assert_close(raw_ops.SparseApplyAdagrad(*arrays, dtype(0.3), grad, ids), variables, dtype)


@BY_DTYPE
@INDICES
def test_gradient_descent_of_rows(dtype: Any, indices: list[int]) -> None:
    """TensorFlow's SGD subtracts lr · grad from rows with ScatterSub."""
    ids = np.array(indices, np.int64)
    (var,) = states((6, 3), dtype, 1)
    grad, alpha = RNG.standard_normal((ids.size, 3)).astype(dtype), dtype(0.3)
    variable = tf.Variable(var)
    tf.raw_ops.ResourceScatterSub(resource=variable.handle, indices=ids, updates=alpha * grad)
    assert_close(raw_ops.SparseApplyGradientDescent(var, alpha, grad, ids), [variable], dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@INDICES
def test_lazy_adam(dtype: Any, indices: list[int]) -> None:
    """TensorFlow has no such operator; its dense one on one row after the other is the same."""
    ids = np.array(indices, np.int64)
    arrays, grad = states((6, 3), dtype, 3), RNG.standard_normal((ids.size, 3)).astype(dtype)
    scalars = {name: dtype(value) for name, value in ADAM.items()}
    expected = [tf.Variable(array) for array in arrays]
    for row, one in zip(indices, grad, strict=True):
        variables = [tf.Variable(variable[row]) for variable in expected]
        handles = dict(zip(("var", "m", "v"), (variable.handle for variable in variables), strict=True))
        tf.raw_ops.ResourceApplyAdam(**handles, **scalars, grad=one)
        for variable, new in zip(expected, variables, strict=True):
            variable[row].assign(new)
    assert_close(raw_ops.SparseApplyAdam(*arrays, *scalars.values(), grad, ids), expected, dtype)


def test_wrong_indices_are_wrong_in_both() -> None:
    var, accum, grad = np.ones((2, 1), np.float32), np.ones((2, 1), np.float32), np.ones((1, 1), np.float32)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.raw_ops.ResourceSparseApplyAdagrad(
            var=tf.Variable(var).handle, accum=tf.Variable(accum).handle, lr=np.float32(1), grad=grad, indices=[2]
        )
    with pytest.raises(IndexError):
        raw_ops.SparseApplyAdagrad(var, accum, 1.0, grad, [2])
