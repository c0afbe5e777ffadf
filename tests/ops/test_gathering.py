"""Range, Gather, GatherNd and ScatterNd."""

from typing import Any

import numpy as np
import pytest
from gradient_check import check
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from shape_check import check_shapes
from test_shaping import SMALL, assert_same, numbered

import rowgrad
from rowgrad._ops.shapes import infer
from rowgrad._runtime.dtypes import FLOATS, INTEGERS, NUMBERS, NUMPY, PLAIN
from rowgrad.blocks import raw_ops
from rowgrad.blocks.operators import OPERATORS

Array = np.ndarray[Any, Any]

# ---------------------------------------------------------------- Range


@pytest.mark.parametrize("dtype", INTEGERS)
def test_range_of_whole_numbers(dtype: str) -> None:
    for start, limit, delta in [(0, 5, 1), (3, 18, 5), (2, 2, 1), (100, 126, 13)]:
        result = raw_ops.Range(*(np.array(n, dtype) for n in (start, limit, delta)))
        assert (result.dtype, result.tolist()) == (np.dtype(dtype), list(range(start, limit, delta)))
    if not dtype.startswith("u"):
        result = raw_ops.Range(*(np.array(n, dtype) for n in (5, -6, -3)))
        assert result.tolist() == [5, 2, -1, -4]


def test_range_at_the_ends_of_types() -> None:
    for dtype in INTEGERS:
        info = np.iinfo(dtype)
        ends = [np.array(info.max - 3, dtype), np.array(info.max, dtype), np.array(2, dtype)]
        assert raw_ops.Range(*ends).tolist() == [info.max - 3, info.max - 1]
    low, high, step = np.int64(-(2**63)), np.int64(2**63 - 1), np.int64(2**62)
    assert raw_ops.Range(low, high, step).tolist() == [-(2**63), -(2**62), 0, 2**62]


@pytest.mark.parametrize("dtype", FLOATS)
def test_range_of_floats(dtype: str) -> None:
    result = raw_ops.Range(*(np.array(x, NUMPY[dtype]) for x in (0.5, 2.0, 0.25)))
    assert result.dtype == NUMPY[dtype]
    assert result.tolist() == [0.5, 0.75, 1.0, 1.25, 1.5, 1.75]
    assert raw_ops.Range(*(np.array(x, NUMPY[dtype]) for x in (1.0, 1.0, 0.5))).shape == (0,)


def test_a_long_range_does_not_drift() -> None:
    result = raw_ops.Range(np.float32(0), np.float32(1000), np.float32(0.125))
    assert result.tolist() == [i / 8 for i in range(8000)]


@settings(deadline=None)
@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-4, 4).filter(bool), st.data())
def test_range_shapes(start: int, limit: int, delta: int, data: st.DataObject) -> None:
    if (limit - start) * delta >= 0:
        ends = {"start": np.array(start), "limit": np.array(limit), "delta": np.array(delta)}
        check_shapes("Range", ends, data)
        assert raw_ops.Range(**ends).tolist() == list(range(start, limit, delta))


@pytest.mark.parametrize(
    ("ends", "argument", "code"),
    [
        ((0, 5, 0), "delta", "bad-range"),
        ((0, 5, -1), "limit", "bad-range"),
        ((5, 0, 1), "limit", "bad-range"),
        ((0.0, float("nan"), 1.0), "limit", "bad-range"),
        ((0.0, float("inf"), 1.0), "limit", "bad-range"),
        ((float("-inf"), 0.0, 1.0), "start", "bad-range"),
        ((0.0, 1.0, float("nan")), "delta", "bad-range"),
        ((np.int64(0), 2**40, 1), "limit", "out-of-memory"),
        ((np.int64(-(2**63)), 2**63 - 1, 1), "limit", "out-of-memory"),
        ((np.float64(0), 1e300, 1e-300), "limit", "bad-range"),
        ((np.float64(0), 1e12, 1.0), "limit", "out-of-memory"),
        (([0], [5], [1]), "start", "wrong-rank"),
    ],
)
def test_range_errors(ends: Any, argument: str, code: str) -> None:
    with pytest.raises(rowgrad.RowgradError) as info:
        raw_ops.Range(*ends)
    assert (info.value.argument, info.value.code) == (argument, code)


# ---------------------------------------------------------------- Gather and GatherNd


@pytest.mark.parametrize("ids", ["int32", "int64"])
@pytest.mark.parametrize("dtype", PLAIN)
def test_gather(dtype: str, ids: str) -> None:
    params = numbered((4, 3), dtype)
    rows = params.tolist()
    for indices in ([2, 0, 2], [[3], [1]], 1, []):
        index = np.array(indices, ids)
        expected = np.array([rows[i] for i in index.ravel()], params.dtype).reshape(*index.shape, 3)
        assert_same(raw_ops.Gather(params, index), expected)


@pytest.mark.parametrize("ids", ["int32", "int64"])
@pytest.mark.parametrize("dtype", PLAIN)
def test_gather_nd(dtype: str, ids: str) -> None:
    params = numbered((4, 3), dtype)
    picked = np.array([params[3, 1], params[0, 2]], params.dtype)
    assert_same(raw_ops.GatherNd(params, np.array([[3, 1], [0, 2]], ids)), picked)
    assert_same(raw_ops.GatherNd(params, np.array([[[3]], [[0]]], ids)), params[[[3], [0]]])
    assert_same(raw_ops.GatherNd(params, np.array([3, 1], ids)), np.asarray(params[3, 1], params.dtype))
    assert_same(raw_ops.GatherNd(params, np.zeros((2, 0), ids)), np.stack([params, params]))


@st.composite
def lookups(draw: st.DrawFn) -> tuple[Array, Array]:
    """Params and indices of any ranks and depths, all in range."""
    shape = draw(SMALL)
    depth = draw(st.integers(0, len(shape)))
    batch = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4))
    if 0 in shape[:depth]:
        batch = (0, *batch)
    columns = [np.array(draw(st.lists(st.integers(0, max(n - 1, 0)), min_size=int(np.prod(batch)),
                                      max_size=int(np.prod(batch)))), np.int64) for n in shape[:depth]]  # fmt: skip
    indices = np.stack(columns, -1) if depth else np.zeros((int(np.prod(batch)), 0), np.int64)
    return numbered(shape), indices.reshape(*batch, depth)


@settings(deadline=None)
@given(lookups(), st.data())
def test_gather_nd_and_scatter_nd(case: tuple[Array, Array], data: st.DataObject) -> None:
    params, indices = case
    check_shapes("GatherNd", {"params": params, "indices": indices}, data)
    output = raw_ops.GatherNd(params, indices)
    expected = np.zeros(params.shape)
    for place in np.ndindex(indices.shape[:-1]):
        index = tuple(indices[place].tolist())
        np.testing.assert_array_equal(output[place], params[index])
        expected[index] += output[place]
    shape = np.array(params.shape, np.int64)
    check_shapes("ScatterNd", {"indices": indices, "updates": output, "shape": shape}, data)
    np.testing.assert_array_equal(raw_ops.ScatterNd(indices, output, shape), expected)


@settings(deadline=None)
@given(SMALL.filter(lambda shape: len(shape) and shape[0]), st.data())
def test_gather_shapes(shape: tuple[int, ...], data: st.DataObject) -> None:
    indices = np.zeros(data.draw(SMALL), np.int32)
    check_shapes("Gather", {"params": numbered(shape), "indices": indices}, data)


# ---------------------------------------------------------------- ScatterNd


@pytest.mark.parametrize("ids", ["int32", "int64"])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_scatter_nd_adds_up(dtype: str, ids: str) -> None:
    updates = numbered((3, 2), dtype)
    result = raw_ops.ScatterNd(np.array([[1], [3], [1]], ids), updates, np.array([4, 2], ids))
    assert result.dtype == NUMPY[dtype]
    np.testing.assert_array_equal(result, np.array([[0, 0], [4, 6], [0, 0], [2, 3]]).astype(NUMPY[dtype]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_many_small_terms_are_not_lost(dtype: str) -> None:
    indices = np.zeros((4096, 1), np.int32)
    assert raw_ops.ScatterNd(indices, np.ones(4096, NUMPY[dtype]), [2]).tolist() == [4096.0, 0.0]


def test_whole_numbers_wrap() -> None:
    result = raw_ops.ScatterNd([[0], [0]], np.array([100, 100], np.int8), [1])
    assert result.tolist() == [-56]


def test_not_a_number_stays_where_it_is() -> None:
    result = raw_ops.ScatterNd([[0], [2], [2]], np.array([np.nan, np.inf, -np.inf]), [4])
    np.testing.assert_array_equal(result, [np.nan, 0.0, np.nan, 0.0])


# ---------------------------------------------------------------- errors

M = np.ones((4, 3))


@pytest.mark.parametrize(
    ("call", "argument", "code"),
    [
        (lambda: raw_ops.Gather(M, [4]), "indices", "index-out-of-range"),
        (lambda: raw_ops.Gather(M, [-1]), "indices", "index-out-of-range"),
        (lambda: raw_ops.Gather(M, 2**62), "indices", "index-out-of-range"),
        (lambda: raw_ops.Gather(M[:0], [0]), "indices", "index-out-of-range"),
        (lambda: raw_ops.Gather(1.0, [0]), "params", "wrong-rank"),
        (lambda: raw_ops.GatherNd(M, [[0, 3]]), "indices", "index-out-of-range"),
        (lambda: raw_ops.GatherNd(M, [[0, 0, 0]]), "indices", "length-mismatch"),
        (lambda: raw_ops.GatherNd(M, 0), "indices", "wrong-rank"),
        (lambda: raw_ops.GatherNd(M[:0], [[0, 0]]), "indices", "index-out-of-range"),
        (lambda: raw_ops.ScatterNd([[4]], [1.0], [4]), "indices", "index-out-of-range"),
        (lambda: raw_ops.ScatterNd([[-1]], [1.0], [4]), "indices", "index-out-of-range"),
        (lambda: raw_ops.ScatterNd([[0, 0]], [1.0], [4]), "indices", "length-mismatch"),
        (lambda: raw_ops.ScatterNd(0, 1.0, [4]), "indices", "wrong-rank"),
        (lambda: raw_ops.ScatterNd([[0]], [1.0, 2.0], [4]), "updates", "shape-mismatch"),
        (lambda: raw_ops.ScatterNd([[0]], [[1.0]], [4]), "updates", "shape-mismatch"),
        (lambda: raw_ops.ScatterNd([[0]], [1.0], [-4]), "shape", "negative-size"),
        (lambda: raw_ops.ScatterNd([[0]], [1.0], 4), "shape", "wrong-rank"),
        (lambda: raw_ops.ScatterNd(np.array([[0]]), [1.0], [2**40]), "shape", "out-of-memory"),
        (lambda: raw_ops.ScatterNd(np.array([[0]]), [1], [2**40]), "shape", "out-of-memory"),
        (lambda: raw_ops.ScatterNd(np.array([[0, 0]]), [1.0], [2**62, 2**62]), "shape", "out-of-memory"),
        (lambda: raw_ops.ScatterNd(np.array([[0]]), np.ones((1, 0)), [2**62, 0]), "shape", "out-of-memory"),
        (lambda: raw_ops.ScatterNd(np.zeros((0, 1), np.int64), np.ones(0), [2**40]), "shape", "out-of-memory"),
    ],
)
def test_errors(call: Any, argument: str, code: str) -> None:
    with pytest.raises(rowgrad.RowgradError) as info:
        call()
    assert (info.value.argument, info.value.code) == (argument, code)


def test_where_an_index_is_wrong() -> None:
    with pytest.raises(rowgrad.OutOfRangeError, match=r"indices\[1, 0\] is 9; allowed: 0 to 3") as info:
        raw_ops.Gather(M, [[0, 1], [9, 0]])
    assert (info.value.position, info.value.value) == ((1, 0), 9)
    with pytest.raises(rowgrad.OutOfRangeError, match=r"indices\[1, 1\] is -5; allowed: 0 to 2 \(dimension 1 of"):
        raw_ops.GatherNd(M, [[0, 1], [3, -5]])
    with pytest.raises(rowgrad.OutOfRangeError, match=r"indices\[1\] is 7; allowed: 0 to 2 \(dimension 1") as info:
        raw_ops.GatherNd(M, [0, 7])
    assert info.value.position == 1
    with pytest.raises(rowgrad.OutOfRangeError, match=r"indices is 7; allowed: 0 to 3") as info:
        raw_ops.Gather(M, np.array(7))
    assert info.value.position is None


# ---------------------------------------------------------------- shapes before running


@pytest.mark.parametrize(
    ("name", "shapes", "values", "expected"),
    [
        ("Range", {}, {}, (None,)),
        ("Gather", {"params": ("rows", 3), "indices": ("batch", 2)}, {}, ("batch", 2, 3)),
        ("Gather", {"params": ("rows", 3)}, {}, None),
        ("GatherNd", {"params": ("rows", 3), "indices": ("batch", 1)}, {}, ("batch", 3)),
        ("GatherNd", {"params": ("rows", 3), "indices": ("batch", None)}, {}, None),
        ("ScatterNd", {"indices": ("batch", 1), "updates": ("batch", 3)}, {"shape": ("rows", 3)}, ("rows", 3)),
        ("ScatterNd", {"shape": (2,)}, {}, (None, None)),
        ("ScatterNd", {}, {}, None),
    ],
)
def test_names_and_unknown_sizes(name: str, shapes: Any, values: Any, expected: Any) -> None:
    assert next(iter(infer(OPERATORS[name], shapes, values).values())) == expected


@pytest.mark.parametrize(
    ("name", "shapes", "values"),
    [
        ("Gather", {"params": ()}, {}),
        ("GatherNd", {"params": ("rows", 3), "indices": (2, 3)}, {}),
        ("ScatterNd", {"indices": ("batch", 1), "updates": ("batch", 4)}, {"shape": np.array([5, 3])}),
    ],
)
def test_clashes_are_found_before_running(name: str, shapes: Any, values: Any) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        infer(OPERATORS[name], shapes, values)
    assert info.value.argument


# ---------------------------------------------------------------- gradients

X = np.arange(6.0).reshape(2, 3)
GRADIENTS: list[tuple[str, dict[str, Any]]] = [
    ("Gather", {"params": X, "indices": [1, 1, 0]}),
    ("Gather", {"params": X, "indices": np.array([[0], [0]], np.int64)}),
    ("Gather", {"params": X, "indices": np.array(1, np.int32)}),
    ("Gather", {"params": X, "indices": []}),
    ("GatherNd", {"params": X, "indices": [[1, 2], [0, 0], [1, 2]]}),
    ("GatherNd", {"params": X, "indices": np.array([[1], [1]], np.int64)}),
    ("GatherNd", {"params": X, "indices": np.zeros((2, 0), np.int32)}),
    ("ScatterNd", {"indices": [[1], [1]], "updates": X, "shape": [3, 3]}),
    ("ScatterNd", {"indices": np.array([[1, 0], [1, 0]]), "updates": X[0, :2], "shape": np.array([2, 2])}),
]


@pytest.mark.parametrize(("name", "inputs"), GRADIENTS)
def test_gradients(name: str, inputs: dict[str, Any]) -> None:
    check(name, inputs)


def test_all_gradients_are_checked() -> None:
    assert {name for name, _ in GRADIENTS} == {
        o.name for o in OPERATORS.values() if o.family == "gathering" and o.gradient
    }
