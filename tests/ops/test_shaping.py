"""Reshape, Transpose, ExpandDims, BroadcastTo and the operators of sizes and axes."""

from typing import Any

import numpy as np
import pytest
from gradient_check import check
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from shape_check import check_shapes
from test_rearranging import NEW

import rowgrad
from rowgrad._ops.shapes import infer
from rowgrad._runtime.dtypes import NUMPY, PLAIN
from rowgrad.blocks import raw_ops
from rowgrad.blocks.operators import OPERATORS

Array = np.ndarray[Any, Any]
SMALL = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)


def numbered(shape: tuple[int, ...], dtype: str = "float64") -> Array:
    """Distinct values of any type."""
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    if dtype == "string":
        return numbers.astype(str)
    return numbers % 2 == 1 if dtype == "bool" else numbers.astype(NUMPY[dtype])


def assert_same(result: Array, expected: Array) -> None:
    assert type(result) is np.ndarray
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert result.tolist() == expected.tolist()
    assert result.flags.c_contiguous
    assert result.flags.writeable


@pytest.mark.parametrize("dtype", PLAIN)
def test_every_type(dtype: str) -> None:
    x = numbered((2, 3), dtype)
    rows = x.tolist()
    assert_same(raw_ops.Reshape(x, [3, -1]), np.array([rows[0][:2], [rows[0][2], rows[1][0]], rows[1][1:]], x.dtype))
    assert_same(raw_ops.Transpose(x, [1, 0]), np.array([list(column) for column in zip(*rows, strict=True)], x.dtype))
    assert_same(raw_ops.ExpandDims(x, 1), np.array([[row] for row in rows], x.dtype))
    assert_same(raw_ops.BroadcastTo(x[:, :1], [2, 2, 2]), np.array([[[row[0]] * 2 for row in rows]] * 2, x.dtype))
    assert raw_ops.Shape(x).tolist() == [2, 3]
    assert raw_ops.Size(x).tolist() == 6


def test_negative_axes_of_a_permutation() -> None:
    x = numbered((2, 3, 4))
    assert_same(raw_ops.Transpose(x, [-1, 0, 1]), raw_ops.Transpose(x, [2, 0, 1]))
    assert raw_ops.InvertPermutation([-1, 0, 1]).tolist() == [1, 2, 0]


def test_the_missing_size_of_empty_arrays() -> None:
    for shape, wanted, expected in [
        ((0, 3), [-1, 3], (0, 3)),
        ((0,), [0, -1], (0, 1)),
        ((0, 3), [0, -1], (0, 3)),
        ((0, 3), [5, -1], (5, 0)),
        ((2, 0, 3), [-1, 0], (6, 0)),
    ]:
        assert raw_ops.Reshape(np.ones(shape), wanted).shape == expected


def test_objects_are_text_too() -> None:
    x = np.array([["a", "bcd"], ["ef", ""]], object)
    assert raw_ops.Transpose(x, [1, 0]).tolist() == [["a", "ef"], ["bcd", ""]]
    assert raw_ops.Reshape(x, [-1]).tolist() == ["a", "bcd", "ef", ""]


def test_results_are_fresh() -> None:
    x = np.zeros((1, 2))
    x.flags.writeable = False
    for result in (
        raw_ops.Reshape(x, [1, 2]),
        raw_ops.Transpose(x, [0, 1]),
        raw_ops.ExpandDims(x, 0),
        raw_ops.BroadcastTo(x, [1, 2]),
    ):
        result[...] = 7
    assert x.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("out_type", ["int32", "int64"])
def test_shape_and_size(out_type: str) -> None:
    for shape in [(), (0,), (2, 0, 3), (4,)]:
        sizes, count = raw_ops.Shape(np.ones(shape), out_type=out_type), raw_ops.Size(np.ones(shape), out_type=out_type)
        assert (sizes.dtype, sizes.tolist()) == (np.dtype(out_type), list(shape))
        assert (count.dtype, count.shape, count.item()) == (np.dtype(out_type), (), int(np.prod(shape)))


def test_sizes_past_int32() -> None:
    wide = np.broadcast_to(np.int8(0), (2**31, 1))[:, :0]
    with pytest.raises(rowgrad.OutOfRangeError, match="int64"):
        raw_ops.Shape(wide)
    assert raw_ops.Shape(wide, out_type="int64").tolist() == [2**31, 0]
    with pytest.raises(rowgrad.InvalidArgumentError):
        raw_ops.Shape([1], out_type="int8")


@settings(deadline=None)
@given(SMALL, st.data())
def test_transpose_and_back(shape: tuple[int, ...], data: st.DataObject) -> None:
    x, perm = numbered(shape), np.array(data.draw(st.permutations(range(len(shape)))), np.int32)
    y = raw_ops.Transpose(x, perm)
    for place in np.ndindex(shape):
        assert y[tuple(place[axis] for axis in perm)] == x[place]
    assert_same(raw_ops.Transpose(y, raw_ops.InvertPermutation(perm)), x)
    check_shapes("Transpose", {"x": x, "perm": perm}, data)
    check_shapes("InvertPermutation", {"x": perm}, data)


@settings(deadline=None)
@given(SMALL, st.data())
def test_reshape_shapes(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = numbered(shape)
    wanted = list(data.draw(st.permutations(shape)))
    others = [i for i in range(len(wanted)) if np.prod(wanted[:i] + wanted[i + 1 :]) > 0]
    if others and data.draw(st.booleans()):
        wanted[data.draw(st.sampled_from(others))] = -1
    check_shapes("Reshape", {"tensor": x, "shape": np.array(wanted, np.int64)}, data)
    assert raw_ops.Reshape(x, np.array(wanted, np.int64)).ravel().tolist() == x.ravel().tolist()


@settings(deadline=None)
@given(SMALL, st.data())
def test_expand_dims_shapes(shape: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    check_shapes("ExpandDims", {"input": numbered(shape), "axis": axis}, data)
    assert_same(raw_ops.ExpandDims(numbered(shape), axis), np.expand_dims(numbered(shape), axis))


@settings(deadline=None)
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=3, min_side=0), st.data())
def test_broadcast_to(case: Any, data: st.DataObject) -> None:
    x, wanted = numbered(case.input_shapes[0]), np.array(case.result_shape, np.int32)
    check_shapes("BroadcastTo", {"input": x, "shape": wanted}, data)
    assert_same(raw_ops.BroadcastTo(x, wanted), np.broadcast_to(x, case.result_shape).copy())


@settings(deadline=None)
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=3, min_side=0), st.data())
def test_gradient_axes(case: Any, data: st.DataObject) -> None:
    s0, s1 = (np.array(shape, np.int64) for shape in case.input_shapes)
    check_shapes("BroadcastGradientArgs", {"s0": s0, "s1": s1}, data)
    axes = raw_ops.BroadcastGradientArgs(s0, s1)
    ones = np.ones(case.result_shape)
    for shape, reduced in zip(case.input_shapes, axes, strict=True):
        assert reduced.dtype == np.int64
        total = ones.sum(axis=tuple(reduced)).reshape(shape)
        repeats = ones.size / max(total.size, 1)
        assert (total == repeats).all()


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "argument", "code"),
    [
        (lambda: raw_ops.Reshape(np.ones(6), [4]), "shape", "shape-mismatch"),
        (lambda: raw_ops.Reshape(np.ones(6), [4, -1]), "shape", "shape-mismatch"),
        (lambda: raw_ops.Reshape(np.ones(6), [-1, -1]), "shape", "shape-mismatch"),
        (lambda: raw_ops.Reshape(np.ones(6), [0, -1]), "shape", "shape-mismatch"),
        (lambda: raw_ops.Reshape(np.ones(6), [-2, 3]), "shape", "negative-size"),
        (lambda: raw_ops.Reshape(np.ones(6), 6), "shape", "wrong-rank"),
        (lambda: raw_ops.Reshape(np.ones(6), [[6]]), "shape", "wrong-rank"),
        (lambda: raw_ops.Reshape(np.ones(1), [1] * 100), "shape", "wrong-rank"),
        (lambda: raw_ops.Reshape(np.ones(6), [2**62, 2**62]), "shape", "shape-mismatch"),
        (lambda: raw_ops.Transpose(np.ones((2, 3)), [0]), "perm", "length-mismatch"),
        (lambda: raw_ops.Transpose(np.ones((2, 3)), [0, 2]), "perm", "axis-out-of-range"),
        (lambda: raw_ops.Transpose(np.ones((2, 3)), [-3, 0]), "perm", "axis-out-of-range"),
        (lambda: raw_ops.Transpose(np.ones((2, 3)), [1, -1]), "perm", "repeated-axis"),
        (lambda: raw_ops.Transpose(np.ones((2, 3)), [1, 1]), "perm", "repeated-axis"),
        (lambda: raw_ops.Transpose(np.ones(2), 0), "perm", "wrong-rank"),
        (lambda: raw_ops.InvertPermutation([0, 2]), "x", "axis-out-of-range"),
        (lambda: raw_ops.InvertPermutation([1, 1]), "x", "repeated-axis"),
        (lambda: raw_ops.InvertPermutation([[0]]), "x", "wrong-rank"),
        (lambda: raw_ops.ExpandDims(np.ones(2), 2), "axis", "axis-out-of-range"),
        (lambda: raw_ops.ExpandDims(np.ones(2), -3), "axis", "axis-out-of-range"),
        (lambda: raw_ops.ExpandDims(np.ones(2), [0]), "axis", "wrong-rank"),
        (lambda: raw_ops.BroadcastTo(np.ones(2), [3]), "shape", "shape-mismatch"),
        (lambda: raw_ops.BroadcastTo(np.ones((2, 2)), [2]), "shape", "shape-mismatch"),
        (lambda: raw_ops.BroadcastTo(np.ones(2), [1]), "shape", "shape-mismatch"),
        (lambda: raw_ops.BroadcastTo(np.ones(2), [-1, 2]), "shape", "negative-size"),
        (lambda: raw_ops.BroadcastTo(1.0, [2**40]), "shape", "out-of-memory"),
        (lambda: raw_ops.BroadcastTo(1.0, [2**62, 2**62]), "shape", "out-of-memory"),
        (lambda: raw_ops.BroadcastTo("a", [2**40]), "shape", "out-of-memory"),
        (lambda: raw_ops.BroadcastTo(1.0, [1] * 100), "shape", "wrong-rank"),
        (lambda: raw_ops.BroadcastGradientArgs([2], [3]), "s1", "shape-mismatch"),
        (lambda: raw_ops.BroadcastGradientArgs([-2], [3]), "s0", "negative-size"),
    ],
)
def test_errors(call: Any, argument: str, code: str) -> None:
    with pytest.raises(rowgrad.RowgradError) as info:
        call()
    assert (info.value.argument, info.value.code) == (argument, code)


def test_where_a_permutation_is_wrong() -> None:
    with pytest.raises(rowgrad.OutOfRangeError, match=r"perm\[1\] is 7; allowed: -3 to 2") as info:
        raw_ops.Transpose(np.ones((1, 1, 1)), [0, 7, 1])
    assert (info.value.position, info.value.value) == (1, 7)
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"perm\[2\] is 0, the same dimension as perm\[0\]"):
        raw_ops.Transpose(np.ones((1, 1, 1)), [0, 1, 0])


# ---------------------------------------------------------------- shapes before running


@pytest.mark.parametrize(
    ("name", "shapes", "values", "expected"),
    [
        ("Shape", {"input": ("batch", None)}, {}, (2,)),
        ("Shape", {}, {}, (None,)),
        ("Size", {}, {}, ()),
        ("Reshape", {"tensor": ("batch", 3)}, {"shape": np.array([-1, 3])}, (None, 3)),
        ("Reshape", {"tensor": (4, 3)}, {"shape": ("batch", None)}, ("batch", None)),
        ("Reshape", {"tensor": (4, 3), "shape": (3,)}, {}, (None, None, None)),
        ("Reshape", {"tensor": (4, 3)}, {}, None),
        ("Transpose", {"x": ("batch", 3)}, {"perm": np.array([1, 0])}, (3, "batch")),
        ("Transpose", {"x": ("batch", 3)}, {}, (None, None)),
        ("Transpose", {"perm": (3,)}, {}, (None, None, None)),
        ("ExpandDims", {"input": ("batch",)}, {"axis": -1}, ("batch", 1)),
        ("ExpandDims", {"input": ("batch",)}, {}, (None, None)),
        ("BroadcastTo", {"input": ("batch", 1)}, {"shape": ("batch", 4)}, ("batch", 4)),
        ("BroadcastTo", {"input": ("n",)}, {"shape": np.array([1])}, (1,)),
        ("BroadcastTo", {"input": (3,), "shape": (2,)}, {}, (None, 3)),
    ],
)
def test_names_and_unknown_sizes(name: str, shapes: Any, values: Any, expected: Any) -> None:
    assert next(iter(infer(OPERATORS[name], shapes, values).values())) == expected


@pytest.mark.parametrize(
    ("name", "shapes", "values"),
    [
        ("Reshape", {"tensor": (4, 3)}, {"shape": np.array([5, -1])}),
        ("Transpose", {"x": ("batch", 3), "perm": (3,)}, {}),
        ("ExpandDims", {"input": ("batch",)}, {"axis": 2}),
        ("BroadcastTo", {"input": ("batch", 3)}, {"shape": np.array([2, 4])}),
        ("BroadcastTo", {"input": (1, 1), "shape": (1,)}, {}),
    ],
)
def test_clashes_are_found_before_running(name: str, shapes: Any, values: Any) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        infer(OPERATORS[name], shapes, values)
    assert info.value.argument


# ---------------------------------------------------------------- gradients

X = np.arange(6.0).reshape(2, 3)
GRADIENTS: list[tuple[str, dict[str, Any]]] = [
    ("Reshape", {"tensor": X, "shape": [3, -1]}),
    ("Reshape", {"tensor": X, "shape": np.array([6], np.int64)}),
    ("Transpose", {"x": X[:, None], "perm": [2, 0, 1]}),
    ("ExpandDims", {"input": X, "axis": -1}),
    ("BroadcastTo", {"input": X[:, :1], "shape": np.array([2, 2, 3], np.int64)}),
    ("BroadcastTo", {"input": X[0, 0], "shape": [2]}),
]


@pytest.mark.parametrize(("name", "inputs"), GRADIENTS)
def test_gradients(name: str, inputs: dict[str, Any]) -> None:
    check(name, inputs)


def test_all_gradients_are_checked() -> None:
    assert {name for name, _ in GRADIENTS} == {
        o.name for o in OPERATORS.values() if o.family == "shaping" and o.gradient and o.name not in NEW
    }
