"""Comparisons, choices and random numbers beside NumPy, with their gradients, shapes and errors."""

from typing import Any

import numpy as np
import pytest
from gradient_check import check
from test_rearranging import NEW

from rowgrad.blocks import raw_ops
from rowgrad.blocks.operators import OPERATORS
from rowgrad.errors import RowgradError

X = np.array([[1.5, -2.0, np.nan], [0.0, np.inf, -0.5]])
Y = np.array([1.5, 0.0, -np.inf])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("name", "function"),
    [("Equal", np.equal), ("NotEqual", np.not_equal), ("Less", np.less), ("LessEqual", np.less_equal),
     ("Greater", np.greater), ("GreaterEqual", np.greater_equal), ("Maximum", np.maximum), ("Minimum", np.minimum)],
)  # fmt: skip
def test_two_inputs_broadcast(name: str, function: Any, dtype: str) -> None:
    x, y = X.astype(dtype), Y.astype(dtype)
    found, expected = getattr(raw_ops, name)(x, y), function(x, y)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(RowgradError):
        getattr(raw_ops, name)(x, y[:2])


@pytest.mark.parametrize(
    ("name", "function"),
    [("Abs", np.abs), ("Sign", np.sign), ("Floor", np.floor), ("Ceil", np.ceil), ("Rint", np.rint),
     ("Log1p", np.log1p), ("Expm1", np.expm1), ("IsFinite", np.isfinite)],
)  # fmt: skip
def test_one_input(name: str, function: Any) -> None:
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(getattr(raw_ops, name)(X), function(X))


def test_booleans() -> None:
    x, y = np.array([[True], [False]]), np.array([True, False])
    assert raw_ops.LogicalAnd(x, y).tolist() == [[True, False], [False, False]]
    assert raw_ops.LogicalOr(x, y).tolist() == [[True, True], [True, False]]
    assert raw_ops.LogicalNot(y).tolist() == [False, True]
    assert raw_ops.ReduceAll(x, [0]).tolist() == [False]
    assert raw_ops.ReduceAny(x, [0, 1], keep_dims=True).tolist() == [[True]]
    assert raw_ops.ReduceAll(np.zeros((0, 2), bool), [0]).tolist() == [True, True]
    with pytest.raises(RowgradError):
        raw_ops.LogicalNot(np.array([1, 2]))


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_extremes(dtype: str) -> None:
    x = np.array([[3, 1, 3], [-2, 5, 0]], dtype)
    for name, function in (("ReduceMax", np.max), ("ReduceMin", np.min)):
        assert getattr(raw_ops, name)(x, [1]).tolist() == function(x, axis=1).tolist()
        assert getattr(raw_ops, name)(x, [0, 1], keep_dims=True).tolist() == [[function(x).item()]]
        assert getattr(raw_ops, name)(x, np.array([], np.int32)).tolist() == x.tolist()
    assert raw_ops.ArgMax(x, 1).tolist() == [0, 1]
    assert raw_ops.ArgMin(x, -1, output_type="int32").dtype == np.int32
    empty = raw_ops.ReduceMax(np.zeros((0, 2), dtype), [0])
    assert (empty < -(10**8)).all()
    with pytest.raises(RowgradError, match="no elements"):
        raw_ops.ArgMax(np.zeros((2, 0), dtype), 1)
    with pytest.raises(RowgradError):
        raw_ops.ArgMax(x, 2)


def test_one_hot_fill_clip_select() -> None:
    assert raw_ops.OneHot([[1, -1], [2, 0]], 3, 1.0, 0.0).tolist() == [
        [[0, 1, 0], [0, 0, 0]], [[0, 0, 1], [1, 0, 0]]
    ]  # fmt: skip
    assert raw_ops.OneHot([0], 0, 1, 0).shape == (1, 0)
    with pytest.raises(RowgradError, match="negative"):
        raw_ops.OneHot([0], -1, 1.0, 0.0)
    assert raw_ops.Fill([2, 0], 1.5).shape == (2, 0)
    with pytest.raises(RowgradError):
        raw_ops.Fill([-1], 1.5)
    np.testing.assert_array_equal(raw_ops.ClipByValue(X, -1.0, 1.0), np.clip(X, -1, 1))
    assert raw_ops.SelectV2([[True], [False]], [1.0, 2.0], 0.0).tolist() == [[1, 2], [0, 0]]
    assert raw_ops.SelectV2([True, False], ["a", "b"], ["c", "d"]).tolist() == ["a", "d"]
    array = np.array([1.0])
    assert not np.shares_memory(raw_ops.StopGradient(array), array)


SMOOTH = np.array([[0.3, -1.2, 2.0], [0.9, 1.7, -0.4]])
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("Abs", {"x": SMOOTH}, {}),
    ("Log1p", {"x": np.abs(SMOOTH)}, {}),
    ("Expm1", {"x": SMOOTH}, {}),
    ("Maximum", {"x": SMOOTH, "y": np.array([0.1, 0.2, 0.5])}, {}),
    ("Minimum", {"x": SMOOTH, "y": np.array([[0.1], [0.2]])}, {}),
    ("ReduceMax", {"input": SMOOTH, "axis": np.array([1])}, {}),
    ("ReduceMin", {"input": SMOOTH, "axis": np.array([0, 1])}, {"keep_dims": True}),
    ("SelectV2", {"condition": np.array([True, False, True]), "t": SMOOTH, "e": np.array(0.7)}, {}),
    ("Fill", {"dims": np.array([2, 3]), "value": np.array(0.7)}, {}),
    ("ClipByValue", {"t": SMOOTH, "clip_value_min": np.array(-1.0), "clip_value_max": np.array(1.0)}, {}),
]


@pytest.mark.parametrize(("name", "inputs", "attributes"), CASES, ids=[case[0] for case in CASES])
def test_gradients_to_the_second_order(name: str, inputs: dict[str, Any], attributes: dict[str, Any]) -> None:
    check(name, inputs, attributes)


def test_all_gradients_are_checked() -> None:
    found = {o.name for o in OPERATORS.values() if o.family == "choosing" and o.gradient}
    assert {case[0] for case in CASES} == found - {*NEW}


# Random numbers: recorded from TensorFlow 2.21, tf.raw_ops.StatelessRandom…(shape=[5], seed=[1, 2]).
UNIFORM = [0.8440604209899902, 0.19204533100128174, 0.9962232112884521, 0.16038739681243896, 0.27199018001556396]
UNIFORM64 = [0.7524837538451801, 0.9697857725627486, 0.17592233912897481, 0.8555556648693279, 0.514811871731222]
NORMAL = [0.544110119342804, 0.20738030970096588, 0.0735643208026886, 0.04643455147743225, -1.301589846611023]
NORMAL64 = [-0.1423118100189212, 0.7406072461585091, -1.469047669443883, 1.147747453689489, -0.7218813856153005]


def test_random_numbers_are_those_of_tensorflow() -> None:
    assert raw_ops.StatelessRandomUniform([5], [1, 2]).tolist() == UNIFORM
    assert raw_ops.StatelessRandomUniform([5], [1, 2], dtype="float64").tolist() == UNIFORM64
    np.testing.assert_allclose(raw_ops.StatelessRandomNormal([5], [1, 2]), NORMAL, rtol=1e-6)
    np.testing.assert_allclose(raw_ops.StatelessRandomNormal([5], [1, 2], dtype="float64"), NORMAL64, rtol=1e-14)


@pytest.mark.parametrize("name", ["StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"])
def test_random_numbers_are_reproducible_and_distributed_as_they_should(name: str) -> None:
    draw = getattr(raw_ops, name)
    found = draw([300, 1000], [7, -8])
    assert found.tobytes() == draw([300, 1000], [7, -8]).tobytes()
    assert found.reshape(-1)[:50].tolist() == draw([50], [7, -8]).tolist()
    assert found.tobytes() != draw([300, 1000], [8, -8]).tobytes()
    mean, spread = (0.5, 12**-0.5) if name == "StatelessRandomUniform" else (0, 1)
    assert abs(found.mean() - mean) < 0.01
    if name == "StatelessTruncatedNormal":
        assert np.abs(found).max() < 2
        assert abs(found.std() - 0.8796) < 0.01
    else:
        assert abs(found.std() - spread) < 0.01
    assert draw([0, 3], [1, 2]).shape == (0, 3)
    assert draw([], [1, 2]).shape == ()
    for wrong in (([2], [1]), ([-1], [1, 2]), ([2], [[1, 2]])):
        with pytest.raises(RowgradError):
            draw(*wrong)


def test_the_dimension_of_one_hot_goes_where_it_is_wanted() -> None:
    indices = np.array([[1, 0, 2], [-1, 3, 1]], np.int32)
    last = OPERATORS["OneHot"](indices, 3, 5.0, -1.0)
    for axis in (-1, 0, 1, 2):
        found = OPERATORS["OneHot"](indices, 3, 5.0, -1.0, axis=axis)
        assert found.tolist() == np.moveaxis(last, -1, axis).tolist()
    with pytest.raises(RowgradError, match=r"axis is 3; it must be -1 or in \[0, 2\]"):
        OPERATORS["OneHot"](indices, 3, 5.0, -1.0, axis=3)


def test_arrays_that_do_not_broadcast_are_not_equal_if_that_is_no_error() -> None:
    x, y = np.ones(2), np.ones(3)
    assert OPERATORS["Equal"](x, y, incompatible_shape_error=False).tolist() is False
    assert OPERATORS["NotEqual"](x, y, incompatible_shape_error=False).tolist() is True
    assert OPERATORS["Equal"](x, x, incompatible_shape_error=False).tolist() == [True, True]
    with pytest.raises(RowgradError):
        OPERATORS["Equal"](x, y)
