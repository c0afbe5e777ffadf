"""SigmoidCrossEntropyWithLogits and SoftmaxCrossEntropyWithLogits."""

import math
from typing import Any

import numpy as np
import pytest
from gradient_check import backward, check
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_check import check_shapes
from test_elementwise import TOLERANCE, sample
from test_shaping import SMALL

import rowgrad
from rowgrad._ops.shapes import infer
from rowgrad._runtime.dtypes import FLOATS, NUMPY
from rowgrad.blocks import raw_ops
from rowgrad.blocks.operators import OPERATORS

RNG = np.random.default_rng(4)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sigmoid_loss(dtype: str) -> None:
    logits = sample(dtype, (2, 5))
    labels = RNG.integers(0, 5, (2, 5)).astype(NUMPY[dtype]) / NUMPY[dtype].type(4)
    loss = raw_ops.SigmoidCrossEntropyWithLogits(logits, labels)
    assert (loss.dtype, loss.shape) == (NUMPY[dtype], (2, 5))
    for place in np.ndindex(2, 5):
        x, z = float(logits[place]), float(labels[place])
        yes = 1 / (1 + math.exp(-x))
        expected = -z * math.log(yes) - (1 - z) * math.log1p(-yes)
        assert float(loss[place]) == pytest.approx(expected, rel=TOLERANCE.get(dtype, 1e-12), abs=1e-12)


def test_sigmoid_loss_at_the_ends() -> None:
    logits = np.array([1000.0, -1000.0, 1000.0, -40.0, np.nan])
    loss = raw_ops.SigmoidCrossEntropyWithLogits(logits, np.array([1.0, 0.0, 0.0, 0.0, 1.0]))
    assert loss[:3].tolist() == [0.0, 0.0, 1000.0]
    assert loss[3] == pytest.approx(math.exp(-40), rel=1e-12)
    assert np.isnan(loss[4])


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_loss(dtype: str) -> None:
    features = sample(dtype, (3, 4))
    labels = np.array([[0, 1, 0, 0], [0.25, 0.25, 0.5, 0], [0, 0, 0, 1]]).astype(NUMPY[dtype])
    loss, backprop = raw_ops.SoftmaxCrossEntropyWithLogits(features, labels)
    assert loss.dtype == backprop.dtype == NUMPY[dtype]
    for b in range(3):
        row, wanted = features[b].astype(float).tolist(), labels[b].astype(float).tolist()
        total = math.fsum(math.exp(x) for x in row)
        expected = -math.fsum(z * (x - math.log(total)) for x, z in zip(row, wanted, strict=True))
        assert float(loss[b]) == pytest.approx(expected, rel=TOLERANCE.get(dtype, 1e-12))
        gradient = [math.exp(x) / total - z for x, z in zip(row, wanted, strict=True)]
        assert backprop[b].astype(float).tolist() == pytest.approx(gradient, rel=2 * TOLERANCE.get(dtype, 1e-12),
                                                                   abs=1e-7)  # fmt: skip


def test_softmax_loss_at_the_ends() -> None:
    features = np.array([[1000.0, 0.0], [1000.0, 0.0], [np.nan, 0.0]])
    loss, backprop = raw_ops.SoftmaxCrossEntropyWithLogits(features, np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    assert loss[:2].tolist() == [0.0, 1000.0]
    assert backprop[:2].tolist() == [[0.0, 0.0], [1.0, -1.0]]
    assert np.isnan(loss[2])
    for shape in [(0, 3), (3, 0), (0, 0)]:
        loss, backprop = raw_ops.SoftmaxCrossEntropyWithLogits(np.ones(shape), np.ones(shape))
        assert (loss.tolist(), backprop.shape) == ([0.0] * shape[0], shape)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_many_classes_are_not_lost(dtype: str) -> None:
    features, labels = np.zeros((1, 4096), NUMPY[dtype]), np.full((1, 4096), 1 / 4096).astype(NUMPY[dtype])
    loss, _ = raw_ops.SoftmaxCrossEntropyWithLogits(features, labels)
    assert float(loss[0]) == pytest.approx(math.log(4096), rel=TOLERANCE[dtype])


def test_backprop_is_the_gradient() -> None:
    features, labels = RNG.standard_normal((2, 3)), np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
    operator = OPERATORS["SoftmaxCrossEntropyWithLogits"]
    gradient = backward(operator, {"features": features, "labels": labels}, {"loss": np.ones(2)})["features"]
    np.testing.assert_allclose(gradient, raw_ops.SoftmaxCrossEntropyWithLogits(features, labels).backprop, atol=1e-15)


# ---------------------------------------------------------------- errors and shapes

M = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "argument", "code"),
    [
        (lambda: raw_ops.SigmoidCrossEntropyWithLogits(M, M[0]), "labels", "shape-mismatch"),
        (lambda: raw_ops.SigmoidCrossEntropyWithLogits(M, M.astype(np.float32)), None, None),
        (lambda: raw_ops.SigmoidCrossEntropyWithLogits(np.ones(2, np.int32), [0, 1]), "logits", "wrong-dtype"),
        (lambda: raw_ops.SoftmaxCrossEntropyWithLogits(M, M[:1]), "labels", "shape-mismatch"),
        (lambda: raw_ops.SoftmaxCrossEntropyWithLogits(M[0], M[0]), "features", "wrong-rank"),
        (lambda: raw_ops.SoftmaxCrossEntropyWithLogits(M, M[0]), "labels", "wrong-rank"),
    ],
)
def test_errors(call: Any, argument: str | None, code: str | None) -> None:
    if code is None:
        assert call().dtype == np.float64  # what is exact is converted
        return
    with pytest.raises(rowgrad.RowgradError) as info:
        call()
    assert (info.value.argument, info.value.code) == (argument, code)


@settings(deadline=None)
@given(SMALL, st.integers(0, 3), st.integers(0, 3), st.data())
def test_shapes(shape: tuple[int, ...], batch: int, classes: int, data: st.DataObject) -> None:
    x, rows = np.ones(shape), np.ones((batch, classes))
    check_shapes("SigmoidCrossEntropyWithLogits", {"logits": x, "labels": x}, data)
    check_shapes("SoftmaxCrossEntropyWithLogits", {"features": rows, "labels": rows}, data)


def test_names_and_unknown_sizes() -> None:
    operator = OPERATORS["SoftmaxCrossEntropyWithLogits"]
    inferred = infer(operator, {"features": ("batch", None), "labels": (None, 3)}, {})
    assert inferred == {"loss": ("batch",), "backprop": ("batch", 3)}
    assert infer(operator, {}, {}) == {"loss": (None,), "backprop": (None, None)}
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        infer(operator, {"features": ("batch", 2), "labels": (None, 3)}, {})
    assert info.value.argument == "labels"


# ---------------------------------------------------------------- gradients

X = np.array([[0.5, 1.25, -2.0], [3.0, -0.75, 1.5]])
Z = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.75]])  # the second row is not 1 in sum
GRADIENTS: list[tuple[str, dict[str, Any]]] = [
    ("SigmoidCrossEntropyWithLogits", {"logits": X, "labels": Z}),
    ("SigmoidCrossEntropyWithLogits", {"logits": X[0, 0], "labels": Z[0, 0]}),
    ("SoftmaxCrossEntropyWithLogits", {"features": X, "labels": Z}),
    ("SparseSoftmaxCrossEntropyWithLogits", {"features": X, "labels": np.array([2, 0])}),
]


@pytest.mark.parametrize(("name", "inputs"), GRADIENTS)
def test_gradients(name: str, inputs: dict[str, Any]) -> None:
    check(name, inputs)


@pytest.mark.parametrize("output", ["loss", "backprop"])
def test_gradients_of_one_output_alone(output: str) -> None:
    operator, inputs = OPERATORS["SoftmaxCrossEntropyWithLogits"], {"features": X, "labels": Z}
    both = {"loss": np.array([1.0, -2.0]), "backprop": X}
    only = backward(operator, inputs, {output: both[output]})
    zeros = {name: np.zeros_like(value) if name != output else value for name, value in both.items()}
    full = backward(operator, inputs, zeros)
    for name in inputs:
        np.testing.assert_array_equal(only[name], full[name])


def test_all_gradients_are_checked() -> None:
    assert {name for name, _ in GRADIENTS} == {
        o.name for o in OPERATORS.values() if o.family == "losses" and o.gradient
    }


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_labels_as_numbers(dtype: Any) -> None:
    """The same as with labels of 1 and 0; gradients of first and second order."""
    random = np.random.default_rng(2)
    features, labels = random.standard_normal((5, 4)), np.array([0, 3, 1, 1, 2], dtype)
    found = raw_ops.SparseSoftmaxCrossEntropyWithLogits(features, labels)
    expected = raw_ops.SoftmaxCrossEntropyWithLogits(features, np.eye(4)[labels])
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-14)
    np.testing.assert_allclose(found.backprop, expected.backprop, rtol=1e-14)
    check("SparseSoftmaxCrossEntropyWithLogits", {"features": features, "labels": labels})
    with pytest.raises(rowgrad.OutOfRangeError, match=r"labels\[1\] is 4; .*0 to 3"):
        raw_ops.SparseSoftmaxCrossEntropyWithLogits(features, np.array([0, 4, 1, 1, 2], dtype))
