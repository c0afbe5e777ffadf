"""The dense operators and a living TensorFlow: equal where it must be exact, close where functions are approximated.

Names differ here and there: the catalogue has those of TensorFlow's C++ API, `tf.raw_ops` those of the graph.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

import rowgrad
from rowgrad._ops.gradients import apply_to_arrays, backward
from rowgrad._runtime.dtypes import COMPLEX, FLOATS, INTEGERS, NUMBERS, NUMPY, PLAIN
from rowgrad.blocks.operators import OPERATORS

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")

from record_golden import as_array

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(6)
ELEMENTWISE = [operator for operator in OPERATORS.values() if operator.family == "elementwise"]
# TensorFlow rounds half and bfloat16 after every step.
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-6, "complex64": 1e-6}
EXACT = {"Identity", "Neg", "Add", "Sub", "Mul", "Relu", "ReluGrad", "ZerosLike", "OnesLike", "Cast", "Square"}
GRAPH_NAMES: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "ReduceSum": ("Sum", dict),
    "ReduceMean": ("Mean", dict),
    "Concat": ("ConcatV2", dict),
    "Gather": ("GatherV2", lambda given: {**given, "axis": 0}),
    "ConcatOffset": ("ConcatOffset", lambda given: {"concat_dim": given["axis"], "shape": given["shapes"]}),
    "Cast": ("Cast", lambda given: {**given, "DstT": tf.as_dtype(given["DstT"])}),
    "Add": ("AddV2", dict),
    "Unique": ("Unique", lambda given: {**given, "out_idx": tf.as_dtype(given.get("out_idx", "int32"))}),
    "UniqueWithCounts": ("UniqueWithCounts", lambda given: {**given, "out_idx": tf.as_dtype(given["out_idx"])}),
    "Shape": ("Shape", lambda given: {**given, "out_type": tf.as_dtype(given.get("out_type", "int32"))}),
    "Size": ("Size", lambda given: {**given, "out_type": tf.as_dtype(given.get("out_type", "int32"))}),
}


def ask(name: str, inputs: dict[str, Any], attributes: dict[str, Any] | None = None) -> list[Array]:
    """TensorFlow's answer."""
    given = {pin: [tf.constant(x) for x in value] if isinstance(value, list) else tf.constant(value)
             for pin, value in inputs.items()} | (attributes or {})  # fmt: skip
    if name == "SigmoidCrossEntropyWithLogits":
        return [as_array(tf.nn.sigmoid_cross_entropy_with_logits(**given))]
    graph_name, renamed = GRAPH_NAMES.get(name, (name, dict))
    position = given.pop("position", None)
    result = getattr(tf.raw_ops, graph_name)(**renamed(given))
    if position is not None:
        return [as_array(result[position])]
    return [as_array(tensor) for tensor in (result if isinstance(result, tuple | list) else (result,))]


def agree(name: str, inputs: dict[str, Any], attributes: dict[str, Any] | None = None, *, exact: bool = True) -> None:
    expected = ask(name, inputs, attributes)
    actual = list(apply_to_arrays(OPERATORS[name], list(inputs.values()), attributes).values())
    assert len(actual) == len(expected)
    for want, got in zip(expected, actual, strict=True):
        assert got.shape == want.shape
        if want.dtype.kind == "O":
            assert [str(x) for x in got.ravel()] == [x.decode() for x in want.ravel()]
            continue
        assert got.dtype == want.dtype
        dtype = next((n for n, known in NUMPY.items() if known == want.dtype), "")
        if exact or dtype in INTEGERS:
            np.testing.assert_array_equal(got, want)
        else:
            wide = complex if dtype in COMPLEX else float
            rtol = TOLERANCE.get(dtype, 1e-12)
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=rtol)


def values(dtype: str, shape: tuple[int, ...], *, positive: bool = False) -> Array:
    if dtype == "string":
        return RNG.integers(0, 99, shape).astype(str)
    if dtype == "bool":
        return RNG.integers(0, 2, shape) == 1
    if dtype in INTEGERS:
        return RNG.integers(1 if positive or dtype.startswith("u") else -9, 10, shape).astype(dtype)
    numbers = RNG.standard_normal(shape) * 2
    if dtype in COMPLEX:
        return (numbers + 1j * RNG.standard_normal(shape)).astype(dtype)
    return (np.abs(numbers) + 0.1 if positive else numbers).astype(NUMPY[dtype])


# Types that rowgrad takes and TensorFlow's kernels do not.
ONLY_HERE = {
    "Cumsum": ("uint32",),
    "Where": ("float16",),
    "SquaredDifference": ("int8", "int16"),
    "Range": ("int8", "int16", "uint8", "uint16", "uint32", "uint64"),
    "MatMul": ("int8", "int16", "uint8", "uint16", "uint32", "uint64"),
}


def types(name: str, variable: str = "T") -> list[str]:
    return [dtype for dtype in OPERATORS[name].types[variable] if dtype not in ONLY_HERE.get(name, ())]


# ---------------------------------------------------------------- values

SHAPES = [((2, 3), (2, 3)), ((3,), (2, 1)), ((), (4,)), ((0, 3), (1,))]
TYPED = [pytest.param(operator.name, dtype, id=f"{operator.name}-{dtype}")
         for operator in ELEMENTWISE if "T" in operator.types and operator.name != "AddN"
         for dtype in types(operator.name)]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), TYPED)
def test_elementwise(name: str, dtype: str) -> None:
    pins = [pin.name for pin in OPERATORS[name].inputs]
    positive = name in ("Sqrt", "Log", "Div", "Pow", "Rsqrt")
    for shapes in SHAPES:
        equal = name == "ReluGrad"
        arrays = {pin: values(dtype, shapes[0] if equal else shape, positive=positive)
                  for pin, shape in zip(pins, shapes, strict=False)}  # fmt: skip
        exact = dtype in INTEGERS or (name in EXACT and dtype not in COMPLEX)
        agree(name, arrays, exact=exact)


@pytest.mark.parametrize("source", [*NUMBERS, "bool"])
@pytest.mark.parametrize("target", [*NUMBERS, "bool"])
def test_cast(source: str, target: str) -> None:
    x = values(source, (50,), positive=target.startswith("uint"))
    if target.startswith("uint") and source in COMPLEX:
        x = x[x.real > 0]
    # TensorFlow rounds float64 to float32 on the way to half, so now and then the last bit differs.
    agree("Cast", {"x": x}, {"DstT": target}, exact=target != "float16")


@pytest.mark.parametrize("dtype", NUMBERS)
def test_add_n(dtype: str) -> None:
    agree("AddN", {"inputs": [values(dtype, (2, 3)) for _ in range(3)]}, exact=False)


@pytest.mark.parametrize("dtype", PLAIN)
def test_shape_operators(dtype: str) -> None:
    x = values(dtype, (2, 3, 4))
    agree("Shape", {"input": x}, {"out_type": "int64"})
    agree("Size", {"input": x}, {"out_type": "int32"})
    agree("Reshape", {"tensor": x, "shape": np.array([4, -1])})
    agree("Transpose", {"x": x, "perm": np.array([-1, 0, 1], np.int32)})
    agree("ExpandDims", {"input": x, "axis": -2})
    agree("BroadcastTo", {"input": x[:, :1], "shape": np.array([2, 2, 5, 4])})
    agree("Concat", {"values": [x, x[:, :1], x[:, :0]], "axis": -2})
    agree("Slice", {"input": x, "begin": np.array([0, 1, 4]), "size": np.array([-1, 2, -1])})
    agree("Gather", {"params": x, "indices": np.array([[1], [0]])})
    agree("GatherNd", {"params": x, "indices": np.array([[1, 2], [0, 0]], np.int32)})
    agree("GatherNd", {"params": x, "indices": np.zeros((2, 0), np.int32)})
    if dtype != "string":
        agree("Pad", {"input": x, "paddings": np.array([[0, 1], [2, 0], [0, 0]], np.int32)})


def test_empty_reshapes() -> None:
    for shape, wanted in [((0, 3), [0, -1]), ((0,), [0, -1]), ((0, 3), [5, -1]), ((2, 0, 3), [-1, 0])]:
        agree("Reshape", {"tensor": np.ones(shape), "shape": np.array(wanted)})


@settings(max_examples=100, deadline=None)
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=3, min_side=0))
def test_broadcast_gradient_args(case: Any) -> None:
    """TensorFlow lists what changes nothing, sizes of 1 in both, now and then; the sums must be the same."""
    s0, s1 = (np.array(shape, np.int32) for shape in case.input_shapes)
    ones = np.ones(case.result_shape)
    expected = ask("BroadcastGradientArgs", {"s0": s0, "s1": s1})
    actual = rowgrad.blocks.raw_ops.BroadcastGradientArgs(s0, s1)
    for shape, want, got in zip(case.input_shapes, expected, actual, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(ones.sum(tuple(got)).reshape(shape), ones.sum(tuple(want)).reshape(shape))


@pytest.mark.parametrize("ids", [np.int32, np.int64])
def test_permutations_and_offsets(ids: type) -> None:
    agree("InvertPermutation", {"x": np.array([2, 0, 1], ids)})
    shapes = [np.array(shape, ids) for shape in ([2, 3], [2, 5], [2, 1])]
    for position in range(3):
        agree("ConcatOffset", {"axis": np.int32(-1), "shapes": shapes}, {"position": position})


@pytest.mark.parametrize("dtype", types("Range", "Tidx"))
def test_range(dtype: str) -> None:
    for start, limit, delta in [(0, 5, 1), (3, 18, 5), (2, 2, 1)]:
        ends = {"start": start, "limit": limit, "delta": delta}
        given = {pin: np.array(value, NUMPY[dtype]) for pin, value in ends.items()}
        agree("Range", given)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_scatter_nd(dtype: str) -> None:
    given = {"indices": np.array([[1], [3], [1]]), "updates": values(dtype, (3, 2)), "shape": np.array([4, 2])}
    agree("ScatterNd", given, exact=False)


@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMean"])
def test_reductions(name: str, dtype: str, keep_dims: bool) -> None:
    x = values(dtype, (2, 3, 4))
    for axis in (0, [-1], [0, 2], [], [0, 1, 2]):
        agree(name, {"input": x, "axis": np.array(axis, np.int32)}, {"keep_dims": keep_dims}, exact=False)
    if dtype not in COMPLEX:  # of nothing it is NaN, but 0 in TensorFlow's complex types
        agree(name, {"input": x[:, :0], "axis": np.array([1])}, {"keep_dims": keep_dims}, exact=False)


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_and_losses(dtype: str) -> None:
    x = values(dtype, (4, 5))
    labels = np.abs(values(dtype, (4, 5)))
    labels = (labels / labels.sum(axis=1, keepdims=True)).astype(NUMPY[dtype])
    for name in ("Softmax", "LogSoftmax"):
        for logits in (x, x[0], x[:, None], x[:, :0]):
            agree(name, {"logits": logits}, exact=False)
    agree("SigmoidCrossEntropyWithLogits", {"logits": x, "labels": labels}, exact=False)
    agree("SoftmaxCrossEntropyWithLogits", {"features": x, "labels": labels}, exact=False)
    agree("SoftmaxCrossEntropyWithLogits", {"features": x[:, :0], "labels": labels[:, :0]}, exact=False)


@pytest.mark.parametrize("dtype", types("MatMul"))
def test_matmul(dtype: str) -> None:
    a, b = values(dtype, (2, 3)), values(dtype, (3, 4))
    for transpose_a in (False, True):
        for transpose_b in (False, True):
            given = {"a": np.ascontiguousarray(a.T) if transpose_a else a,
                     "b": np.ascontiguousarray(b.T) if transpose_b else b}  # fmt: skip
            agree("MatMul", given, {"transpose_a": transpose_a, "transpose_b": transpose_b}, exact=False)


CORNERS = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, 1e30])


@pytest.mark.parametrize("name", ["Sqrt", "Exp", "Log", "Relu", "Sigmoid", "Tanh", "Square", "Neg"])
def test_corners(name: str) -> None:
    for dtype in (np.float32, np.float64):
        agree(name, {OPERATORS[name].inputs[0].name: CORNERS.astype(dtype)}, exact=False)


# ---------------------------------------------------------------- gradients

X, Y = np.array([[0.5, 1.25, 2.0], [3.0, 0.75, 1.5]]), np.array([[0.25], [2.0]])
Z = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
DIFFERENTIATED: list[tuple[str, dict[str, Any], dict[str, Any], Callable[..., Any]]] = [
    ("Add", {"x": X, "y": Y}, {}, tf.add),
    ("Sub", {"x": X, "y": Y}, {}, tf.subtract),
    ("Mul", {"x": X, "y": Y}, {}, tf.multiply),
    ("Div", {"x": X, "y": Y}, {}, tf.divide),
    ("SquaredDifference", {"x": X, "y": Y}, {}, tf.math.squared_difference),
    *((name, {OPERATORS[name].inputs[0].name: X}, {}, getattr(tf.raw_ops, name))
      for name in ("Neg", "Square", "Sqrt", "Exp", "Log", "Relu", "Sigmoid", "Tanh", "Softmax", "LogSoftmax")),
    ("ReduceMean", {"input": X, "axis": np.array([1])}, {}, tf.raw_ops.Mean),
    ("ReduceSum", {"input": X, "axis": np.array([0])}, {"keep_dims": True}, tf.raw_ops.Sum),
    ("MatMul", {"a": X, "b": Z}, {"transpose_b": True}, tf.raw_ops.MatMul),
    ("Gather", {"params": X, "indices": np.array([1, 1, 0])}, {}, lambda params, indices: tf.gather(params, indices)),
    ("SigmoidCrossEntropyWithLogits", {"logits": X, "labels": Z}, {}, tf.nn.sigmoid_cross_entropy_with_logits),
    ("SoftmaxCrossEntropyWithLogits", {"features": X, "labels": Z}, {},
     lambda features, labels: tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=features, labels=labels).loss),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attributes", "function"), DIFFERENTIATED, ids=lambda x: str(x)[:20])
def test_gradients(name: str, inputs: Any, attributes: Any, function: Callable[..., Any]) -> None:
    operator = OPERATORS[name]
    tensors = {pin: tf.constant(value) for pin, value in inputs.items()}
    watched = [tensors[pin] for pin in operator.gradient]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        output = function(**tensors, **attributes)
    upstream = RNG.standard_normal(output.shape)
    expected = tape.gradient(output, watched, tf.constant(upstream))
    actual = backward(operator, inputs, {operator.outputs[0].name: upstream}, attributes=attributes,
                      operators=OPERATORS)  # fmt: skip
    for pin, want in zip(operator.gradient, expected, strict=True):
        np.testing.assert_allclose(actual[pin], as_array(tf.convert_to_tensor(want)), rtol=1e-12, atol=1e-14)


# ---------------------------------------------------------------- errors

M = np.ones((2, 3))
I32 = np.int32
WRONG: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("Add", {"x": M, "y": np.ones(4)}, {}),
    ("Div", {"x": np.array([1], I32), "y": np.array([0], I32)}, {}),
    ("AddN", {"inputs": [M, M[:1]]}, {}),
    ("ReluGrad", {"gradients": M, "features": M[:1]}, {}),
    ("Reshape", {"tensor": M, "shape": np.array([4, -1])}, {}),
    ("Reshape", {"tensor": M, "shape": np.array([-1, -1])}, {}),
    ("Transpose", {"x": M, "perm": np.array([0, 0])}, {}),
    ("Transpose", {"x": M, "perm": np.array([0, 2])}, {}),
    ("Transpose", {"x": M, "perm": np.array([0])}, {}),
    ("InvertPermutation", {"x": np.array([0, 0])}, {}),
    ("ExpandDims", {"input": M, "axis": 3}, {}),
    ("BroadcastTo", {"input": M, "shape": np.array([2, 4])}, {}),
    ("BroadcastTo", {"input": M, "shape": np.array([3])}, {}),
    ("BroadcastGradientArgs", {"s0": np.array([2]), "s1": np.array([3])}, {}),
    ("Concat", {"values": [M, M[:, :2]], "axis": 0}, {}),
    ("Concat", {"values": [M, M], "axis": 2}, {}),
    ("Slice", {"input": M, "begin": np.array([0, 2]), "size": np.array([1, 2])}, {}),
    ("Slice", {"input": M, "begin": np.array([0, -1]), "size": np.array([1, 1])}, {}),
    ("Slice", {"input": M, "begin": np.array([0]), "size": np.array([1])}, {}),
    ("Pad", {"input": M, "paddings": np.array([[0, 0], [0, -1]])}, {}),
    ("Pad", {"input": M, "paddings": np.array([[0, 0]])}, {}),
    ("Range", {"start": I32(0), "limit": I32(5), "delta": I32(0)}, {}),
    ("Range", {"start": I32(0), "limit": I32(5), "delta": I32(-1)}, {}),
    ("Gather", {"params": M, "indices": np.array([2])}, {}),
    ("Gather", {"params": M, "indices": np.array([-1])}, {}),
    ("GatherNd", {"params": M, "indices": np.array([[0, 3]])}, {}),
    ("GatherNd", {"params": M, "indices": np.array([[0, 0, 0]])}, {}),
    ("ScatterNd", {"indices": np.array([[4]]), "updates": np.ones(1), "shape": np.array([4])}, {}),
    ("ScatterNd", {"indices": np.array([[0]]), "updates": np.ones(2), "shape": np.array([4])}, {}),
    ("ReduceSum", {"input": M, "axis": np.array([2])}, {}),
    ("ReduceMean", {"input": M, "axis": np.array([0, -2])}, {}),
    ("Softmax", {"logits": np.float32(1)}, {}),
    ("MatMul", {"a": M, "b": M}, {}),
    ("MatMul", {"a": M, "b": M[0]}, {}),
    ("SoftmaxCrossEntropyWithLogits", {"features": M, "labels": np.ones((2, 2))}, {}),
]


@pytest.mark.parametrize(("name", "inputs", "attributes"), WRONG)
def test_errors_agree(name: str, inputs: Any, attributes: Any) -> None:
    with pytest.raises((tf.errors.OpError, ValueError)):
        ask(name, inputs, attributes)
    with pytest.raises(rowgrad.InvalidArgumentError):
        apply_to_arrays(OPERATORS[name], list(inputs.values()), attributes)
