"""Concat, ConcatOffset, Slice and Pad."""

from typing import Any

import numpy as np
import pytest
from gradient_check import check
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_check import check_shapes
from test_rearranging import NEW
from test_shaping import assert_same, numbered

import rowgrad
from rowgrad._ops.shapes import infer
from rowgrad._runtime.dtypes import NUMBERS, PLAIN
from rowgrad.blocks import raw_ops
from rowgrad.blocks.operators import OPERATORS

# ---------------------------------------------------------------- values


@pytest.mark.parametrize("dtype", PLAIN)
def test_every_type(dtype: str) -> None:
    x = numbered((2, 3), dtype)
    rows = x.tolist()
    assert_same(raw_ops.ConcatV2([x, x[:1]], 0), np.array([*rows, rows[0]], x.dtype))
    assert_same(raw_ops.ConcatV2([x, x[:, :1]], -1), np.array([[*row, row[0]] for row in rows], x.dtype))
    assert_same(raw_ops.Slice(x, [0, 1], [-1, 2]), np.array([row[1:] for row in rows], x.dtype))
    if dtype in (*NUMBERS, "bool"):
        padded = np.zeros((3, 5), x.dtype)
        padded[1:, 2:] = x
        assert_same(raw_ops.Pad(x, [[1, 0], [2, 0]]), padded)


def test_texts_of_different_widths() -> None:
    assert raw_ops.ConcatV2([np.array(["a"]), np.array(["bcd"])], 0).tolist() == ["a", "bcd"]
    assert raw_ops.ConcatV2([np.array(["a"], object), np.array(["bcd"])], 0).tolist() == ["a", "bcd"]


def test_one_array_is_copied() -> None:
    x = np.ones(3)
    for result in (raw_ops.ConcatV2([x], 0), raw_ops.Slice(x, [0], [3]), raw_ops.Pad(x, [[0, 0]])):
        assert_same(result, x)
        assert not np.shares_memory(result, x)


def test_scalars() -> None:
    assert raw_ops.Slice(np.array(5.0), [], []).tolist() == 5.0
    assert raw_ops.Pad(np.array(5.0), np.zeros((0, 2), np.int32)).tolist() == 5.0


@st.composite
def parts(draw: st.DrawFn) -> tuple[list[Any], int]:
    shape = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    arrays = []
    for size in draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)):
        shape[axis] = size
        arrays.append(numbered(tuple(shape)) + 100 * len(arrays))
    return arrays, axis


@settings(deadline=None)
@given(parts(), st.data())
def test_concat_and_its_offsets(case: tuple[list[Any], int], data: st.DataObject) -> None:
    values, axis = case
    check_shapes("Concat", {"values": values, "axis": axis}, data)
    whole = raw_ops.ConcatV2(values, axis)
    shapes = [np.array(value.shape, np.int64) for value in values]
    for position, value in enumerate(values):
        offset = raw_ops.ConcatOffsetPart(axis, shapes, position=position)
        assert (offset.dtype, offset.shape) == (np.int64, (value.ndim,))
        assert_same(raw_ops.Slice(whole, offset, shapes[position]), value)
    check_shapes("ConcatOffset", {"axis": axis, "shapes": shapes}, data, {"position": 0})


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(-1, 4)), max_size=3), st.data())
def test_slice(dimensions: list[tuple[int, int, int]], data: st.DataObject) -> None:
    sizes = [n for n, _, _ in dimensions]
    begin = [min(b, n) for n, b, _ in dimensions]
    size = [min(s, n - b) for (n, _, s), b in zip(dimensions, begin, strict=True)]
    x = numbered(tuple(sizes))
    inputs = {"input": x, "begin": np.array(begin, np.int32), "size": np.array(size, np.int32)}
    check_shapes("Slice", inputs, data)
    window = tuple(slice(b, None if s == -1 else b + s) for b, s in zip(begin, size, strict=True))
    result = raw_ops.Slice(*inputs.values())
    assert_same(result, x[window].copy())
    after = [n - b - m for n, b, m in zip(sizes, begin, result.shape, strict=True)]
    paddings = np.array([begin, after], np.int64).T.reshape(-1, 2)
    check_shapes("Pad", {"input": result, "paddings": paddings}, data)
    expected = np.zeros_like(x)
    expected[window] = x[window]
    assert_same(raw_ops.Pad(result, paddings), expected)


# ---------------------------------------------------------------- errors

M = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "argument", "code"),
    [
        (lambda: raw_ops.ConcatV2([M, M[:, :2]], 0), "values", "shape-mismatch"),
        (lambda: raw_ops.ConcatV2([M, M[0]], 0), "values", "wrong-rank"),
        (lambda: raw_ops.ConcatV2([1.0, 2.0], 0), "values", "wrong-rank"),
        (lambda: raw_ops.ConcatV2([M, M], 2), "axis", "axis-out-of-range"),
        (lambda: raw_ops.ConcatV2([M, M], -3), "axis", "axis-out-of-range"),
        (lambda: raw_ops.ConcatV2([M, M], [0]), "axis", "wrong-rank"),
        (lambda: raw_ops.ConcatV2([], 0), "values", "not-a-list"),
        (lambda: raw_ops.ConcatV2(M, 0), "values", "not-a-list"),
        (lambda: raw_ops.ConcatOffsetPart(0, [[2, 3], [2, 4]], position=0), "values", "shape-mismatch"),
        (lambda: raw_ops.ConcatOffsetPart(0, [[2, 3], [2]], position=0), "shapes", "shape-mismatch"),
        (lambda: raw_ops.ConcatOffsetPart(2, [[2, 3]], position=0), "axis", "axis-out-of-range"),
        (lambda: raw_ops.ConcatOffsetPart(0, [[2, 3]], position=1), "position", "index-out-of-range"),
        (lambda: raw_ops.ConcatOffsetPart(0, [[2, 3]], position=-1), "position", "index-out-of-range"),
        (lambda: raw_ops.ConcatOffsetPart(0, [[-2, 3]], position=0), "shapes", "negative-size"),
        (lambda: raw_ops.ConcatOffsetPart(0, [3, 4], position=0), "shapes", "wrong-rank"),
        (lambda: raw_ops.ConcatOffsetPart(0, [[2**31 - 1]] * 3, position=2), "shapes", "index-out-of-range"),
        (lambda: raw_ops.Slice(M, [0], [1, 1]), "begin", "length-mismatch"),
        (lambda: raw_ops.Slice(M, [0, 0], [1]), "size", "length-mismatch"),
        (lambda: raw_ops.Slice(M, [0, 4], [1, 0]), "begin", "index-out-of-range"),
        (lambda: raw_ops.Slice(M, [0, -1], [1, 0]), "begin", "negative-size"),
        (lambda: raw_ops.Slice(M, [1, 1], [1, 3]), "size", "index-out-of-range"),
        (lambda: raw_ops.Slice(M, [1, 1], [1, -2]), "size", "negative-size"),
        (lambda: raw_ops.Slice(M, np.array([1, 1]), [1, 2**62]), "size", "index-out-of-range"),
        (lambda: raw_ops.Slice(M, 0, 1), "begin", "wrong-rank"),
        (lambda: raw_ops.Pad(M, [[1, 1]]), "paddings", "length-mismatch"),
        (lambda: raw_ops.Pad(M, [[1, 1, 1], [1, 1, 1]]), "a row of paddings", "length-mismatch"),
        (lambda: raw_ops.Pad(M, [1, 1]), "paddings", "wrong-rank"),
        (lambda: raw_ops.Pad(M, [[0, 0], [0, -1]]), "paddings", "negative-size"),
        (lambda: raw_ops.Pad(M, [[0, 0], [0, 2**40]]), "paddings", "out-of-memory"),
        (lambda: raw_ops.Pad(M, [[2**62, 2**62], [2**62, 2**62]]), "paddings", "out-of-memory"),
    ],
)
def test_errors(call: Any, argument: str, code: str) -> None:
    with pytest.raises(rowgrad.RowgradError) as info:
        call()
    assert (info.value.argument, info.value.code) == (argument, code)


def test_where_it_is_wrong() -> None:
    with pytest.raises(rowgrad.OutOfRangeError, match=r"size\[1\] is 3; from 1, allowed: −1 to 2") as info:
        raw_ops.Slice(M, [1, 1], [1, 3])
    assert (info.value.position, info.value.value) == (1, 3)
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"paddings\[1, 0\] is -4") as negative:
        raw_ops.Pad(M, [[0, 0], [-4, 0]])
    assert negative.value.position == (1, 0)
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"values\[1\] has shape \[1, 2\], but values\[0\]"):
        raw_ops.ConcatV2([np.ones((2, 3)), np.ones((2, 2))], 0)


# ---------------------------------------------------------------- shapes before running


@pytest.mark.parametrize(
    ("name", "shapes", "values", "expected"),
    [
        ("Concat", {"values": [("batch", 2), (None, 3)]}, {"axis": 1}, ("batch", 5)),
        ("Concat", {"values": [("batch", 2), None]}, {"axis": -1}, ("batch", None)),
        ("Concat", {"values": [("a", 2), ("b", 2)]}, {"axis": 0}, (None, 2)),
        ("Concat", {"values": [("a", 2)]}, {"axis": 0}, ("a", 2)),
        ("Concat", {"values": [("a", 2), ("b", 2)]}, {}, (None, None)),
        ("Concat", {}, {"axis": 0}, None),
        ("Slice", {"input": ("batch", 4)}, {"begin": np.array([0, 1]), "size": np.array([-1, -1])}, ("batch", 3)),
        ("Slice", {"input": ("batch", 4)}, {"size": np.array([2, -1])}, (2, None)),
        ("Slice", {"input": ("batch", 4)}, {"size": ("batch", 2)}, ("batch", 2)),
        ("Slice", {"begin": (2,)}, {}, (None, None)),
        ("Slice", {}, {}, None),
        ("Pad", {"input": ("batch", 4)}, {"paddings": np.array([[0, 0], [1, 2]])}, ("batch", 7)),
        ("Pad", {"input": ("batch", 4)}, {"paddings": np.array([[1, 0], [1, 2]])}, (None, 7)),
        ("Pad", {"paddings": (3, 2)}, {}, (None, None, None)),
    ],
)
def test_names_and_unknown_sizes(name: str, shapes: Any, values: Any, expected: Any) -> None:
    assert next(iter(infer(OPERATORS[name], shapes, values).values())) == expected


@pytest.mark.parametrize(
    ("name", "shapes", "values"),
    [
        ("Concat", {"values": [("batch", 2), (None, 3)]}, {"axis": 0}),
        ("Concat", {"values": [("batch", 2), (None,)]}, {}),
        ("Slice", {"input": ("batch", 4)}, {"begin": np.array([0, 5])}),
        ("Slice", {"input": ("batch", 4)}, {"size": np.array([0, 5])}),
        ("Pad", {"input": ("batch", 4), "paddings": (1, 2)}, {}),
        ("Pad", {"paddings": ("n", 3)}, {}),
    ],
)
def test_clashes_are_found_before_running(name: str, shapes: Any, values: Any) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        infer(OPERATORS[name], shapes, values)
    assert info.value.argument


# ---------------------------------------------------------------- gradients

X = np.arange(6.0).reshape(2, 3)
GRADIENTS: list[tuple[str, dict[str, Any]]] = [
    ("Concat", {"values": [X, X[:1], X[:0]], "axis": 0}),
    ("Concat", {"values": [X, X[:, :1]], "axis": -1}),
    ("Concat", {"values": [X[0]], "axis": np.int64(0)}),
    ("Slice", {"input": X, "begin": [0, 1], "size": [-1, 1]}),
    ("Slice", {"input": X, "begin": np.array([1, 0], np.int64), "size": np.array([1, 3], np.int64)}),
    ("Slice", {"input": X[0, 0], "begin": [], "size": []}),
    ("Pad", {"input": X, "paddings": [[1, 0], [0, 2]]}),
    ("Pad", {"input": X, "paddings": np.array([[0, 1], [1, 1]], np.int64)}),
    ("Pad", {"input": X[0, 0], "paddings": np.zeros((0, 2), np.int32)}),
]


@pytest.mark.parametrize(("name", "inputs"), GRADIENTS)
def test_gradients(name: str, inputs: dict[str, Any]) -> None:
    check(name, inputs)


def test_all_gradients_are_checked() -> None:
    assert {name for name, _ in GRADIENTS} == {
        o.name for o in OPERATORS.values() if o.family == "joining" and o.gradient and o.name not in NEW
    }
