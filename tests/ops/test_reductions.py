"""ReduceSum, ReduceMean, Softmax, LogSoftmax and MatMul."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from gradient_check import check
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_check import check_shapes
from test_elementwise import TOLERANCE, assert_equal, sample
from test_rearranging import NEW
from test_shaping import SMALL, numbered

import rowgrad
from rowgrad._ops.shapes import infer
from rowgrad._runtime.dtypes import COMPLEX, FLOATS, INTEGERS, NUMBERS, NUMPY
from rowgrad.blocks import raw_ops
from rowgrad.blocks.operators import OPERATORS

Array = np.ndarray[Any, Any]
AXES: list[Any] = [0, -1, [1], [0, 2], [-1, 0, 1], []]

# ---------------------------------------------------------------- sums and means


def reduced(x: Array, axes: Any, mean: bool, keep_dims: bool) -> Array:
    """In plain loops, exact for whole numbers."""
    gone = {axis % x.ndim for axis in np.atleast_1d(np.array(axes, int)).tolist()}
    groups: dict[tuple[int, ...], list[Any]] = {}
    for place in np.ndindex(x.shape):
        kept = tuple((0 if d in gone else i) for d, i in enumerate(place) if keep_dims or d not in gone)
        groups.setdefault(kept, []).append(x[place].item())
    shape = [1 if d in gone else n for d, n in enumerate(x.shape) if keep_dims or d not in gone]
    result = np.zeros(shape, object)
    for kept, items in groups.items():
        whole = all(isinstance(item, int) for item in items)
        result[kept] = sum(items) if not mean else math.trunc(Fraction(sum(items), len(items))) if whole else (
            sum(items) / len(items))  # fmt: skip
    return result


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMean"])
def test_reduce(name: str, dtype: str) -> None:
    x = sample(dtype, (2, 3, 2))
    for axes in AXES:
        for keep_dims in (False, True):
            result = getattr(raw_ops, name)(x, axes, keep_dims=keep_dims)
            expected = reduced(x, axes, name == "ReduceMean", keep_dims)
            if dtype in FLOATS + COMPLEX:
                wide = complex if dtype in COMPLEX else float
                assert result.dtype == NUMPY[dtype]
                np.testing.assert_allclose(result.astype(wide), expected.astype(wide), rtol=TOLERANCE.get(dtype, 1e-14),
                                           atol=1e-6)  # fmt: skip
                assert result.shape == expected.shape
            else:
                assert_equal(result, expected, dtype)
            assert not np.shares_memory(result, x)


@settings(deadline=None)
@given(SMALL, st.data())
def test_reduce_shapes(shape: tuple[int, ...], data: st.DataObject) -> None:
    rank = len(shape)
    axes = data.draw(st.lists(st.integers(0, rank - 1), unique=True) if rank else st.just([]))
    signed = np.array([axis - rank * data.draw(st.booleans()) for axis in axes], np.int64)
    axis = np.array(signed[0]) if len(axes) == 1 and data.draw(st.booleans()) else signed
    for name in ("ReduceSum", "ReduceMean"):
        check_shapes(name, {"input": numbered(shape), "axis": axis}, data, {"keep_dims": data.draw(st.booleans())})
    np.testing.assert_array_equal(raw_ops.ReduceSum(numbered(shape), axis), numbered(shape).sum(axis=tuple(axes)))


def test_of_nothing() -> None:
    assert raw_ops.ReduceSum(np.ones((2, 0)), 1).tolist() == [0.0, 0.0]
    assert np.isnan(raw_ops.ReduceMean(np.ones((2, 0)), 1)).all()
    assert raw_ops.ReduceMean(np.ones((0, 2), np.int32), 1).shape == (0,)
    assert raw_ops.ReduceMean(np.ones((2, 0), np.int32), 1).tolist() == [0, 0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_many_small_terms_are_not_lost(dtype: str) -> None:
    ones = np.ones(4096, NUMPY[dtype])
    assert raw_ops.ReduceSum(ones, 0).tolist() == 4096.0
    assert raw_ops.ReduceMean(ones, 0).tolist() == 1.0
    assert raw_ops.MatMul(ones[None], ones[:, None]).tolist() == [[4096.0]]
    # The sum, but not the mean, is past the range of half.
    assert raw_ops.ReduceMean(np.full(4096, 1024, NUMPY[dtype]), 0).tolist() == 1024.0


def test_means_of_whole_numbers_do_not_wrap() -> None:
    assert raw_ops.ReduceMean(np.full(200, 100, np.int8), 0).tolist() == 100
    assert raw_ops.ReduceMean(np.array([-3, -4], np.int32), 0).tolist() == -3
    assert raw_ops.ReduceSum(np.full(2, 100, np.int8), 0).tolist() == -56


# ---------------------------------------------------------------- softmax


def softmax(row: list[float]) -> list[float]:
    top = max(row)
    powers = [math.exp(x - top) for x in row]
    return [power / math.fsum(powers) for power in powers]


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(dtype: str) -> None:
    for shape in [(4,), (2, 3), (2, 2, 5), (3, 1)]:
        x = sample(dtype, shape)
        rows = [softmax(row) for row in x.reshape(-1, shape[-1]).astype(float).tolist()]
        expected = np.array(rows).reshape(shape)
        assert_equal(raw_ops.Softmax(x), expected.astype(object), dtype)
        result = raw_ops.LogSoftmax(x)
        assert result.dtype == NUMPY[dtype]
        np.testing.assert_allclose(result.astype(float), np.log(expected), rtol=TOLERANCE.get(dtype, 1e-13), atol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_does_not_overflow(dtype: str) -> None:
    x = np.array([[60000.0, 0.0], [-60000.0, -60000.0]], NUMPY[dtype])
    assert raw_ops.Softmax(x).tolist() == [[1.0, 0.0], [0.5, 0.5]]
    top = float(x[0, 0])
    assert raw_ops.LogSoftmax(x)[0].tolist() == [0.0, -top]


def test_softmax_of_corners() -> None:
    x = np.array([[np.inf, 1.0], [-np.inf, 1.0], [-np.inf, -np.inf], [np.nan, 1.0]])
    result = raw_ops.Softmax(x)
    assert np.isnan(result[[0, 2, 3]]).any(axis=1).all()
    assert result[1].tolist() == [0.0, 1.0]
    assert raw_ops.LogSoftmax(x)[1].tolist() == [-np.inf, 0.0]
    for shape in [(0,), (2, 0), (0, 2)]:
        assert raw_ops.Softmax(np.ones(shape)).shape == raw_ops.LogSoftmax(np.ones(shape)).shape == shape


# ---------------------------------------------------------------- products


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_matmul(dtype: str, transpose_a: bool, transpose_b: bool) -> None:
    a, b = sample(dtype, (2, 3)), sample(dtype, (3, 4))
    expected = np.array([[sum(x.item() * y.item() for x, y in zip(row, column, strict=True)) for column in b.T]
                         for row in a], object)  # fmt: skip
    result = raw_ops.MatMul(a.T if transpose_a else a, b.T if transpose_b else b, transpose_a=transpose_a,
                            transpose_b=transpose_b)  # fmt: skip
    if dtype in INTEGERS:
        assert_equal(result, expected, dtype)
    else:
        wide = complex if dtype in COMPLEX else float
        assert (result.dtype, result.shape) == (NUMPY[dtype], (2, 4))
        np.testing.assert_allclose(result.astype(wide), expected.astype(wide), rtol=TOLERANCE.get(dtype, 1e-13),
                                   atol=1e-6)  # fmt: skip


@settings(deadline=None)
@given(st.tuples(*[st.integers(0, 3)] * 3), st.booleans(), st.booleans(), st.data())
def test_matmul_shapes(sizes: tuple[int, int, int], transpose_a: bool, transpose_b: bool, data: st.DataObject) -> None:
    m, k, n = sizes
    a, b = np.ones((k, m) if transpose_a else (m, k)), np.ones((n, k) if transpose_b else (k, n))
    check_shapes("MatMul", {"a": a, "b": b}, data, {"transpose_a": transpose_a, "transpose_b": transpose_b})
    result = raw_ops.MatMul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    assert (result == k).all()


def test_corners_are_silent() -> None:
    with np.errstate(all="raise"):
        for dtype in FLOATS:
            with np.errstate(over="ignore"):
                x = np.array([[np.nan, np.inf], [-np.inf, 1e30]]).astype(NUMPY[dtype])
            raw_ops.MatMul(x, x)
            raw_ops.ReduceSum(x, 0)
            raw_ops.ReduceMean(x, 0)
            raw_ops.Softmax(x)
            raw_ops.LogSoftmax(x)


# ---------------------------------------------------------------- errors

M = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "argument", "code"),
    [
        (lambda: raw_ops.ReduceSum(M, 2), "axis", "axis-out-of-range"),
        (lambda: raw_ops.ReduceSum(M, [0, -3]), "axis", "axis-out-of-range"),
        (lambda: raw_ops.ReduceSum(1.0, 0), "axis", "axis-out-of-range"),
        (lambda: raw_ops.ReduceMean(M, [0, 0]), "axis", "repeated-axis"),
        (lambda: raw_ops.ReduceMean(M, [1, -1]), "axis", "repeated-axis"),
        (lambda: raw_ops.ReduceSum(M, [[0]]), "axis", "wrong-rank"),
        (lambda: raw_ops.ReduceSum(M, [0.0]), "axis", "wrong-dtype"),
        (lambda: raw_ops.Softmax(1.0), "logits", "wrong-rank"),
        (lambda: raw_ops.LogSoftmax(1.0), "logits", "wrong-rank"),
        (lambda: raw_ops.Softmax(np.ones(2, np.int32)), "logits", "wrong-dtype"),
        (lambda: raw_ops.MatMul(M, M), "b", "shape-mismatch"),
        (lambda: raw_ops.MatMul(M, M, transpose_a=True, transpose_b=True), "b", "shape-mismatch"),
        (lambda: raw_ops.MatMul(M, M[0]), "b", "wrong-rank"),
        (lambda: raw_ops.MatMul(M[None], M), "a", "wrong-rank"),
        (lambda: raw_ops.MatMul(np.ones((2**20, 0)), np.ones((0, 2**20))), None, "out-of-memory"),
    ],
)
def test_errors(call: Any, argument: str | None, code: str) -> None:
    with pytest.raises(rowgrad.RowgradError) as info:
        call()
    assert (info.value.argument, info.value.code) == (argument, code)


def test_what_messages_say() -> None:
    with pytest.raises(rowgrad.OutOfRangeError, match=r"axis\[1\] is 5; allowed: -2 to 1") as info:
        raw_ops.ReduceSum(M, [0, 5])
    assert (info.value.position, info.value.value) == (1, 5)
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"a has shape \[2, 3\] and b has \[2, 3\]: .* 3, .* 2"):
        raw_ops.MatMul(M, M)
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"axis\[1\] is -1, the same dimension as axis\[0\]"):
        raw_ops.ReduceSum(M, [1, -1])


# ---------------------------------------------------------------- shapes before running


@pytest.mark.parametrize(
    ("name", "shapes", "values", "attributes", "expected"),
    [
        ("ReduceSum", {"input": ("batch", 3)}, {"axis": np.array([1])}, {}, ("batch",)),
        ("ReduceSum", {"input": ("batch", 3)}, {"axis": 0}, {"keep_dims": True}, (1, 3)),
        ("ReduceSum", {"input": ("batch", 3), "axis": ()}, {}, {}, (None,)),
        ("ReduceSum", {"input": ("batch", 3), "axis": (2,)}, {}, {}, ()),
        ("ReduceSum", {"input": ("batch", 3), "axis": (None,)}, {}, {}, None),
        ("ReduceSum", {"input": ("batch", 3)}, {}, {"keep_dims": True}, (None, None)),
        ("ReduceSum", {}, {"axis": 0}, {}, None),
        ("Softmax", {"logits": ("batch", 3)}, {}, {}, ("batch", 3)),
        ("MatMul", {"a": ("batch", 3), "b": (3, None)}, {}, {}, ("batch", None)),
        ("MatMul", {"a": ("batch", 3)}, {}, {"transpose_a": True}, (3, None)),
        ("MatMul", {}, {}, {}, (None, None)),
    ],
)
def test_names_and_unknown_sizes(name: str, shapes: Any, values: Any, attributes: Any, expected: Any) -> None:
    assert next(iter(infer(OPERATORS[name], shapes, values, attributes).values())) == expected


@pytest.mark.parametrize(
    ("name", "shapes", "values", "attributes"),
    [
        ("ReduceSum", {"input": ("batch", 3)}, {"axis": 2}, {}),
        ("ReduceMean", {"axis": (1, 1)}, {}, {}),
        ("Softmax", {"logits": ()}, {}, {}),
        ("MatMul", {"a": ("batch", 3), "b": (4, None)}, {}, {}),
        ("MatMul", {"a": ("batch", 3), "b": (4, 3)}, {}, {}),
        ("MatMul", {"b": (3,)}, {}, {}),
    ],
)
def test_clashes_are_found_before_running(name: str, shapes: Any, values: Any, attributes: Any) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        infer(OPERATORS[name], shapes, values, attributes)
    assert info.value.argument


# ---------------------------------------------------------------- gradients

X = np.array([[0.5, 1.25, -2.0], [3.0, -0.75, 1.5]])
Y = np.array([[0.25, -1.0], [1.5, 2.0], [-0.5, 0.75]])
GRADIENTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *((name, {"input": X[:, None], "axis": axis}, {"keep_dims": keep_dims})
      for name in ("ReduceSum", "ReduceMean") for axis in ([0, -1], 2, []) for keep_dims in (False, True)),
    # (The mean of nothing is no number, and neither is its gradient.)
    *(("ReduceSum", {"input": X[:, :0], "axis": axis}, {}) for axis in (0, 1)),
    ("ReduceMean", {"input": X[:, :0], "axis": 0}, {}),
    ("ReduceMean", {"input": X, "axis": np.array([1], np.int64)}, {}),
    *((name, {"logits": x}, {}) for name in ("Softmax", "LogSoftmax") for x in (X, X[0], X[:, None])),
    *(("MatMul", {"a": X.T if transpose_a else X, "b": Y.T if transpose_b else Y},
       {"transpose_a": transpose_a, "transpose_b": transpose_b})
      for transpose_a in (False, True) for transpose_b in (False, True)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attributes"), GRADIENTS)
def test_gradients(name: str, inputs: dict[str, Any], attributes: dict[str, Any]) -> None:
    check(name, inputs, attributes)


def test_all_gradients_are_checked() -> None:
    assert {name for name, _, _ in GRADIENTS} == {
        o.name for o in OPERATORS.values() if o.family == "reductions" and o.gradient and o.name not in NEW
    }
