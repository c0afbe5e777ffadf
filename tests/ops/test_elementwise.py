"""Elementwise operators: values of every type against plain Python, broadcasting, corners, errors."""

import cmath
import math
import operator as python
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gradient_check import backward, check
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from shape_check import check_shapes
from test_rearranging import NEW

import rowgrad
from rowgrad._ops.shapes import infer
from rowgrad._runtime.dtypes import COMPLEX, FLOATS, INTEGERS, NUMBERS, NUMPY, REALS
from rowgrad.blocks import raw_ops
from rowgrad.blocks.operators import OPERATORS

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
TOLERANCE = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-6, "complex64": 1e-6}


def sample(name: str, shape: tuple[int, ...] = (2, 3)) -> Array:
    """Small numbers of any type, none of them 0."""
    numbers = RNG.integers(1, 9, shape) * (1 if name.startswith("uint") else RNG.choice([-1, 1], shape))
    if name in COMPLEX:
        return (numbers + 0.5j * RNG.integers(-4, 5, shape)).astype(name)
    return (numbers / (1 if name in INTEGERS else 4)).astype(NUMPY[name])


def each(function: Callable[..., Any], *arrays: Array) -> Array:
    """`function` of every element, in plain Python, broadcast by hand."""
    arrays = np.broadcast_arrays(*arrays)
    result = np.empty(arrays[0].shape, object)
    for place in np.ndindex(result.shape):
        result[place] = function(*(array[place].item() for array in arrays))
    return result


def assert_equal(result: Array, expected: Array, name: str) -> None:
    assert type(result) is np.ndarray
    assert result.dtype == NUMPY[name]
    assert result.shape == expected.shape
    if name in INTEGERS:
        bits = NUMPY[name].itemsize * 8
        wrapped = [int(value) % 2**bits for value in expected.flat]
        assert [int(value) % 2**bits for value in result.flat] == wrapped
    else:
        wide = complex if name in COMPLEX else float
        np.testing.assert_allclose(result.astype(wide), expected.astype(wide), rtol=TOLERANCE.get(name, 1e-14))


def truncated(x: Any, y: Any) -> Any:
    return int(abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1) if isinstance(x, int) else x / y


BINARY = {
    "Add": python.add,
    "Sub": python.sub,
    "Mul": python.mul,
    "Div": truncated,
    "SquaredDifference": lambda x, y: abs(x - y) ** 2,
}


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtype: str) -> None:
    if dtype not in OPERATORS[name].types["T"]:
        with pytest.raises(rowgrad.DTypeError):
            getattr(raw_ops, name)(sample(dtype), sample(dtype))
        return
    for shapes in [((2, 3), (2, 3)), ((3,), (2, 1)), ((), (4,)), ((2, 1, 3), (5, 1)), ((), ()), ((0, 3), (1,))]:
        x, y = (sample(dtype, shape) for shape in shapes)
        assert_equal(getattr(raw_ops, name)(x, y), each(BINARY[name], x, y), dtype)


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


UNARY: dict[str, Callable[[Any], Any]] = {
    "Identity": lambda x: x,
    "Neg": python.neg,
    "Square": lambda x: x * x,
    "Sqrt": cmath.sqrt,
    "Exp": cmath.exp,
    "Log": cmath.log,
    "Relu": lambda x: max(x, 0),
    "Sigmoid": logistic,
    "Tanh": cmath.tanh,
    "ZerosLike": lambda x: 0,
    "OnesLike": lambda x: 1,
}


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: str) -> None:
    if dtype not in OPERATORS[name].types["T"]:
        with pytest.raises(rowgrad.DTypeError):
            getattr(raw_ops, name)(sample(dtype))
        return
    for shape in [(2, 3), (), (0,)]:
        x = sample(dtype, shape)
        if name in ("Sqrt", "Log") and dtype in FLOATS:
            x = np.abs(x)
        expected = each(UNARY[name], x)
        if dtype in FLOATS:
            expected = each(lambda value: value.real, expected.astype(complex))
        assert_equal(getattr(raw_ops, name)(x), expected, dtype)


def converted(value: Any, target: str) -> Any:
    if target not in COMPLEX and isinstance(value, complex):
        value = value.real
    return bool(value) if target == "bool" else int(value) if target in INTEGERS else value


@pytest.mark.parametrize("source", [*NUMBERS, "bool"])
def test_cast(source: str) -> None:
    x = np.array([True, False]) if source == "bool" else sample(source)
    for target in [*NUMBERS, "bool"]:
        # What is negative has no place in an unsigned type, and no stated result there.
        given = x[x.real > 0] if target.startswith("uint") else x
        assert_equal(raw_ops.Cast(given, DstT=target), each(lambda v, t=target: converted(v, t), given), target)


def test_cast_of_corners_is_silent() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e300])
    assert raw_ops.Cast(x, DstT="float16").tolist()[1:] == [np.inf, -np.inf, np.inf]
    assert raw_ops.Cast(x, DstT="int8").dtype == np.int8
    assert raw_ops.Cast(x, DstT="bool").tolist() == [True] * 4


@pytest.mark.parametrize("dtype", REALS)
def test_relu_grad(dtype: str) -> None:
    gradients, features = sample(dtype, (7,)), sample(dtype, (7,))
    features[0] = 0
    expected = each(lambda g, f: g if f > 0 else 0, gradients, features)
    assert_equal(raw_ops.ReluGrad(gradients, features), expected, dtype)


def test_relu_grad_of_corners() -> None:
    result = raw_ops.ReluGrad(np.array([np.inf, np.nan, 2.0]), np.array([-1.0, 0.0, np.nan]))
    assert result.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_add_n(dtype: str) -> None:
    arrays = [sample(dtype) for _ in range(4)]
    assert_equal(raw_ops.AddN(arrays), each(lambda *values: sum(values), *arrays), dtype)
    one = raw_ops.AddN(arrays[:1])
    assert_equal(one, each(lambda value: value, arrays[0]), dtype)
    assert not np.shares_memory(one, arrays[0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_many_small_terms_are_not_lost(dtype: str) -> None:
    assert raw_ops.AddN([np.ones(1, NUMPY[dtype])] * 4096).tolist() == [4096.0]


CORNERS = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_corners_are_silent(name: str, dtype: str) -> None:
    with np.errstate(over="ignore"):
        x = CORNERS.astype(NUMPY[dtype])
    with np.errstate(all="raise"):
        if name in UNARY:
            getattr(raw_ops, name)(x)
        else:
            getattr(raw_ops, name)(x[:, None], x)


def test_sigmoid_at_the_ends() -> None:
    for dtype in FLOATS:
        x = np.array([-np.inf, -60000.0, 0.0, 60000.0, np.inf]).astype(NUMPY[dtype])
        assert raw_ops.Sigmoid(x).tolist() == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert raw_ops.Sigmoid(np.array(-700.0)) == pytest.approx(math.exp(-700), rel=1e-12)


def test_strings_pass_through_identity() -> None:
    assert raw_ops.Identity(["a", "bc"]).tolist() == ["a", "bc"]
    assert raw_ops.Identity(np.array([b"a", b"bc"], object)).tolist() == [b"a", b"bc"]


def test_results_are_fresh() -> None:
    frozen = np.ones(3)
    frozen.flags.writeable = False
    for name in UNARY:
        result = getattr(raw_ops, name)(frozen)
        result[...] = 7
        assert frozen.tolist() == [1.0, 1.0, 1.0]


# ---------------------------------------------------------------- errors


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"x has shape \[2, 3\] and y has \[4\].*3 and 4") as info:
        raw_ops.Add(np.ones((2, 3)), np.ones(4))
    assert (info.value.argument, info.value.code, info.value.op) == ("y", "shape-mismatch", "Add")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_by_a_whole_zero(dtype: str) -> None:
    y = np.ones((2, 3), dtype)
    y[1, 2] = 0
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"y\[1, 2\] is 0") as info:
        raw_ops.Div(np.ones(3, dtype), y)
    assert (info.value.argument, info.value.position, info.value.code) == ("y", (1, 2), "division-by-zero")
    with pytest.raises(rowgrad.InvalidArgumentError, match="y is 0"):
        raw_ops.Div(np.ones(3, dtype), np.zeros((), dtype))
    assert raw_ops.Div(np.ones(0, dtype), np.zeros(1, dtype)).shape == (0,)  # nothing is divided


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_the_quotient_that_does_not_fit_wraps(dtype: str) -> None:
    least = np.iinfo(dtype).min
    assert raw_ops.Div(np.array([least], dtype), np.array([-1], dtype)).tolist() == [least]


def test_unequal_shapes() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        raw_ops.AddN([np.ones(2), np.ones(2), np.ones(3)])
    assert (info.value.argument, info.value.code) == ("inputs", "shape-mismatch")
    assert "inputs[2] has shape [3]" in str(info.value)
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        raw_ops.ReluGrad(np.ones(2), np.ones((2, 1)))
    assert (info.value.argument, info.value.code) == ("features", "shape-mismatch")
    with pytest.raises(rowgrad.InvalidArgumentError):
        raw_ops.AddN([])


def test_wrong_types() -> None:
    for call in (
        lambda: raw_ops.Add(np.ones(2, np.float32), np.ones(2, np.float64)),
        lambda: raw_ops.Exp(np.ones(2, np.int32)),
        lambda: raw_ops.Mul(np.ones(2, bool), True),
        lambda: raw_ops.Neg(["a"]),
        lambda: raw_ops.Add(np.ones(2, np.int32), 0.5),
        lambda: raw_ops.Add(np.ones(2, np.uint8), -1),
    ):
        with pytest.raises(rowgrad.DTypeError):
            call()
    with pytest.raises(rowgrad.InvalidArgumentError):
        raw_ops.Cast(np.ones(2), DstT="float8")
    with pytest.raises(rowgrad.InvalidArgumentError):
        raw_ops.Cast(np.ones(2))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_written_in_python_take_the_type_of_the_array(dtype: str) -> None:
    x = sample(dtype)
    for result in (raw_ops.Mul(x, 2), raw_ops.Mul(2, x)):
        assert_equal(result, each(lambda value: 2 * value, x), dtype)
    if dtype in FLOATS + COMPLEX:
        assert_equal(raw_ops.Mul(0.5, x), each(lambda value: 0.5 * value, x), dtype)


def test_no_room() -> None:
    x = np.broadcast_to(np.float32(1), (2**20, 1))
    with pytest.raises(rowgrad.OutOfMemoryError):
        raw_ops.Add(np.zeros((2**20, 1), np.float32), np.zeros((1, 2**20), np.float32))
    assert raw_ops.Neg(x).shape == x.shape


# ---------------------------------------------------------------- shapes before running


@settings(deadline=None)
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=3, min_side=0), st.data())
def test_inferred_shapes_hold(case: Any, data: st.DataObject) -> None:
    x, y = (np.ones(shape) for shape in case.input_shapes)
    check_shapes("Mul", {"x": x, "y": y}, data)
    assert raw_ops.Mul(x, y).shape == case.result_shape


@settings(deadline=None)
@given(hnp.array_shapes(min_dims=0, min_side=0), st.integers(1, 4), st.data())
def test_inferred_shapes_of_one_shape(shape: tuple[int, ...], count: int, data: st.DataObject) -> None:
    x = np.ones(shape)
    check_shapes("AddN", {"inputs": [x] * count}, data)
    check_shapes("ReluGrad", {"gradients": x, "features": x}, data)
    check_shapes("Cast", {"x": x}, data, {"DstT": "int8"})


@pytest.mark.parametrize(
    ("x", "y", "z"),
    [
        (("batch", 3), ("batch", 1), ("batch", 3)),
        (("batch",), (1,), ("batch",)),
        (("batch",), (5,), (5,)),
        (("batch",), (0,), (0,)),
        (("batch",), ("time",), (None,)),
        (("batch",), (None,), (None,)),
        ((None,), (1,), (None,)),
        ((None,), (4,), (4,)),
        (("batch", 2), (), ("batch", 2)),
        (None, (3,), None),
    ],
)
def test_broadcasting_of_names(x: Any, y: Any, z: Any) -> None:
    for left, right in ((x, y), (y, x)):
        assert infer(OPERATORS["Add"], {"x": left, "y": right}, {}) == {"z": z}


def test_clashes_are_found_before_running() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        infer(OPERATORS["Sub"], {"x": ("batch", 3), "y": (4,)}, {})
    assert info.value.argument == "y"
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        infer(OPERATORS["AddN"], {"inputs": [(2, None), ("n", 3), (3, 3)]}, {})
    assert info.value.argument == "inputs"
    assert infer(OPERATORS["AddN"], {"inputs": [(2, None), None, ("n", "m")]}, {}) == {"sum": (2, "m")}
    assert infer(OPERATORS["ReluGrad"], {"gradients": ("n", 2)}, {}) == {"backprops": ("n", 2)}


# ---------------------------------------------------------------- gradients

X = np.array([[0.5, 1.25, 2.0], [3.0, 0.75, 1.5]])
GRADIENTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *((name, {OPERATORS[name].inputs[0].name: X}, {}) for name in UNARY if OPERATORS[name].gradient),
    ("Tanh", {"x": -X}, {}),
    ("Sigmoid", {"x": -X}, {}),
    ("Relu", {"features": X - 1.1}, {}),
    ("ReluGrad", {"gradients": X, "features": X - 1.1}, {}),
    ("Cast", {"x": X}, {"DstT": "float64"}),
    ("AddN", {"inputs": [X, X + 1, X[::-1]]}, {}),
    *((name, {"x": X, "y": X[::-1] + 0.5}, {}) for name in BINARY),
    *((name, {"x": X[:1, None], "y": X[:, :1] + 0.5}, {}) for name in BINARY),
    *((name, {"x": X[0, 0], "y": X + 0.5}, {}) for name in BINARY),
    ("Mul", {"x": X[:0], "y": X[:1]}, {}),
]


@pytest.mark.parametrize(("name", "inputs", "attributes"), GRADIENTS)
def test_gradients(name: str, inputs: dict[str, Any], attributes: dict[str, Any]) -> None:
    check(name, inputs, attributes)


def test_all_gradients_are_checked() -> None:
    checked = {name for name, _, _ in GRADIENTS}
    found = {o.name for o in OPERATORS.values() if o.family == "elementwise" and o.gradient}
    assert checked == found - {*NEW}


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_keep_the_type(dtype: str) -> None:
    x = X.astype(NUMPY[dtype])
    for name, inputs, attributes in GRADIENTS:
        if "x" in inputs and name != "Cast":
            given = dict.fromkeys(inputs, x)
            (output,) = (pin.name for pin in OPERATORS[name].outputs)
            for gradient in backward(OPERATORS[name], given, {output: x}, attributes=attributes).values():
                assert gradient.dtype == NUMPY[dtype]
