"""Cutting, stacking, counting and watching beside NumPy, with their gradients, shapes and errors."""

from typing import Any

import numpy as np
import pytest
from gradient_check import check
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rowgrad.blocks import Page, Session, raw_ops
from rowgrad.blocks.operators import OPERATORS
from rowgrad.errors import RowgradError

SMOOTH = np.array([[0.3, -1.2, 2.0, 0.1], [0.9, 1.7, -0.4, 0.6]])
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("StridedSlice", {"input": SMOOTH, "begin": np.array([1, 3]), "end": np.array([0, 0]),
                      "strides": np.array([1, -2])}, {"shrink_axis_mask": 1}),
    ("StridedSliceGrad", {"shape": np.array([2, 4]), "begin": np.array([0, 1]), "end": np.array([2, 4]),
                          "strides": np.array([1, 2]), "dy": SMOOTH[:, :2]}, {}),
    ("Split", {"split_dim": np.array(-1, np.int32), "value": SMOOTH}, {"num_split": 2, "index": 1}),
    ("Unpack", {"value": SMOOTH}, {"num": 4, "axis": -1, "index": 2}),
    ("Pack", {"values": [SMOOTH, SMOOTH * 2, SMOOTH + 1]}, {"axis": -2}),
    ("Squeeze", {"input": SMOOTH[:, None]}, {"axis": [1]}),
    ("Tile", {"input": SMOOTH, "multiples": np.array([2, 3])}, {}),
    ("Cumsum", {"x": SMOOTH, "axis": np.array(1)}, {"exclusive": True, "reverse": True}),
    ("Cumsum", {"x": SMOOTH, "axis": np.array(-2)}, {}),
    ("Pow", {"x": np.abs(SMOOTH), "y": np.array([1.5, 2.0, 0.5, 3.0])}, {}),
    ("Rsqrt", {"x": np.abs(SMOOTH)}, {}),
    ("CheckNumerics", {"tensor": SMOOTH}, {"message": "m"}),
]  # fmt: skip
NEW = ("StridedSlice", "StridedSliceGrad", "Split", "Unpack", "Pack", "Squeeze", "Tile", "Cumsum", "Where", "Unique",
       "UniqueWithCounts", "Bincount", "Bucketize", "Pow", "Rsqrt", "Round", "CheckNumerics", "RandomShuffle", "Zeros",
       "Ones")  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attributes"), CASES, ids=[case[0] for case in CASES])
def test_gradients_to_the_second_order(name: str, inputs: dict[str, Any], attributes: dict[str, Any]) -> None:
    check(name, inputs, attributes)


def test_all_gradients_are_checked() -> None:
    assert {case[0] for case in CASES} == {name for name in NEW if OPERATORS[name].gradient}


@given(arrays.arrays(np.int32, st.tuples(st.integers(0, 4), st.integers(0, 4))), st.data())
def test_strided_slices_are_those_of_python(array: Any, data: Any) -> None:
    places = [data.draw(st.tuples(*[st.integers(-6, 6)] * 2, st.integers(-3, 3).filter(bool))) for _ in range(2)]
    begin, end, strides = zip(*places, strict=True)
    masks = {"begin_mask": data.draw(st.integers(0, 3)), "end_mask": data.draw(st.integers(0, 3))}
    key = tuple(slice(None if masks["begin_mask"] >> i & 1 else b, None if masks["end_mask"] >> i & 1 else e, s)
                for i, (b, e, s) in enumerate(places))  # fmt: skip
    found = raw_ops.StridedSlice(array, list(begin), list(end), list(strides), **masks)
    np.testing.assert_array_equal(found, array[key])
    back = raw_ops.StridedSliceGrad(list(array.shape), list(begin), list(end), list(strides), found, **masks)
    expected = np.zeros_like(array)
    expected[key] = found
    np.testing.assert_array_equal(back, expected)


def test_masks_of_strided_slices() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    one = [1, 1, 1]
    assert raw_ops.StridedSlice(array, [0, 1], [0, 3], [1, 1], ellipsis_mask=1).tolist() == array[..., 1:3].tolist()
    assert raw_ops.StridedSlice(array, [0, 0], [0, 2], [1, 1], new_axis_mask=1).shape == (1, 2, 3, 4)
    assert raw_ops.StridedSlice(array, [1, -1, 2], one, one, shrink_axis_mask=7).tolist() == 22
    assert not np.shares_memory(raw_ops.StridedSlice(array, [0], [2], [1]), array)


@given(arrays.arrays(st.sampled_from([np.float32, np.int64]), st.integers(0, 30)))
def test_unique_values_come_in_their_order(x: Any) -> None:
    found = raw_ops.UniqueWithCounts(x)
    order: list[Any] = []
    for item in x.tolist():
        if item not in order or item != item:
            order.append(item)
    assert [str(value) for value in found.y.tolist()] == [str(value) for value in order]
    np.testing.assert_array_equal(found.y[found.idx], x)
    assert found.count.sum() == len(x)
    assert raw_ops.Unique(x, out_idx="int64").idx.dtype == np.int64


def test_values_beside_numpy() -> None:
    x = np.array([[1.0, 0.0], [np.nan, -2.5]], np.float32)
    assert raw_ops.Where(x).tolist() == np.argwhere(x).tolist()
    assert raw_ops.Where(np.array(True)).shape == (1, 0)
    assert raw_ops.Unique(np.array(["b", "a", "b"], object)).y.tolist() == ["b", "a"]
    assert raw_ops.Bincount([3, 1, 1, 9], 4, np.array([], np.float32)).tolist() == [0, 2, 0, 1]
    assert raw_ops.Bincount([], 0, np.array([], np.int64)).tolist() == []
    assert raw_ops.Bucketize(np.array([-1.0, 0.0, 9.9, 10.0]), boundaries=[0, 10.0]).tolist() == [0, 1, 1, 2]
    assert raw_ops.Bucketize(np.array([5]), boundaries=[]).tolist() == [0]
    assert raw_ops.Pow(np.array([2, 3]), [3, 0]).tolist() == [8, 1]
    assert raw_ops.Round(np.array([0.5, 1.5, -2.5])).tolist() == [0, 2, -2]
    assert raw_ops.Rsqrt(np.array([0.0, 4.0])).tolist() == [np.inf, 0.5]
    assert raw_ops.Cumsum(np.array([[1, 2], [3, 4]]), 0, reverse=True).tolist() == [[4, 6], [3, 4]]
    assert raw_ops.Cumsum(np.zeros((2, 0)), 1, exclusive=True).shape == (2, 0)
    assert raw_ops.Tile(np.array(["a"], object), [2]).tolist() == ["a", "a"]
    assert raw_ops.Pack([[1, 2], [3, 4]], axis=-1).tolist() == [[1, 3], [2, 4]]
    assert raw_ops.UnpackPart(np.arange(6).reshape(2, 3), num=3, axis=1, index=2).tolist() == [2, 5]
    assert raw_ops.SplitPart(0, np.arange(6), num_split=3, index=2).tolist() == [4, 5]
    assert raw_ops.Squeeze(np.zeros((1, 2, 1))).shape == (2,)
    assert raw_ops.Zeros([2, 0], dtype="int64").dtype == np.int64
    assert raw_ops.Ones([2]).tolist() == [1, 1]
    shuffled = raw_ops.SeededShuffle(np.arange(100), [3, 4])
    assert sorted(shuffled.tolist()) == list(range(100))
    assert shuffled.tolist() == raw_ops.SeededShuffle(np.arange(100), [3, 4]).tolist() != list(range(100))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: raw_ops.StridedSlice([1, 2], [0], [1], [0]), r"strides\[0\] is 0"),
        (lambda: raw_ops.StridedSlice([1, 2], [0, 0], [1, 1], [1, 1]), "there are 2 places for the 1 dimensions"),
        (lambda: raw_ops.StridedSlice([1, 2], [0], [1, 1], [1]), "end has 2 elements, and begin 1"),
        (lambda: raw_ops.StridedSlice([1, 2], [2], [3], [1], shrink_axis_mask=1), "begin has 2 for dimension 0"),
        (lambda: raw_ops.StridedSlice([1, 2], [0, 0], [1, 1], [1, 1], ellipsis_mask=3), "only one position"),
        (lambda: raw_ops.StridedSliceGrad([3], [0], [2], [1], [1.0]), r"dy has shape \[1\], and the slice has \[2\]"),
        (lambda: raw_ops.SplitPart(0, [1, 2, 3], num_split=2, index=0), "which 2 parts of equal size do not make"),
        (lambda: raw_ops.SplitPart(0, [1, 2], num_split=2, index=2), "index is 2; allowed: 0 to 1"),
        (lambda: raw_ops.SplitPart(0, [1, 2], num_split=0, index=0), "num_split is 0"),
        (lambda: raw_ops.UnpackPart([1, 2], num=3, index=0), "num is 3, and dimension 0 of value has size 2"),
        (lambda: raw_ops.Pack([[1], [1, 2]]), "they must be equal"),
        (lambda: raw_ops.Squeeze([[1, 2]], axis=[1]), "dimension 1 of input has size 2"),
        (lambda: raw_ops.Tile([1], [1, 2]), "multiples has 2 elements, and input has 1 dimensions"),
        (lambda: raw_ops.Tile([1], [-1]), "must be 0 or more"),
        (lambda: raw_ops.Cumsum([1.0], 1), "axis is 1"),
        (lambda: raw_ops.Unique([[1]]), "x has shape"),
        (lambda: raw_ops.Bincount([-1], 2, [1.0]), r"arr\[0\] is -1"),
        (lambda: raw_ops.Bincount([1], -2, [1.0]), "size is -2"),
        (lambda: raw_ops.Bincount([1], 2, [1.0, 2.0]), "there must be one for each value, or none"),
        (lambda: raw_ops.Bucketize([1.0], boundaries=[2.0, 1.0]), "they must ascend"),
        (lambda: raw_ops.Bucketize([1.0], boundaries=["a"]), "it must be a list of numbers"),
        (lambda: raw_ops.Bucketize([1.0], boundaries=[float("nan")]), "it must be a list of numbers"),
        (lambda: raw_ops.Pow(np.array([2]), np.array([-1])), "negative power"),
        (lambda: raw_ops.CheckNumerics([1.0, np.inf], message="loss"), "loss: tensor has inf at 1, and 1 elements"),
        (lambda: raw_ops.SeededShuffle([1.0], [1]), "it must be two whole numbers"),
        (lambda: raw_ops.Zeros([-1]), "must be 0 or more"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(call: Any, text: str) -> None:
    with pytest.raises(RowgradError, match=text):
        call()


def test_print_tells_every_so_many_steps_and_assert_ends_a_loop() -> None:
    page = Page()
    page.add("Variable", "n", initial_value=0.0)
    page.add("Add", "next", x="n", y=1.0)
    page.add("Assign", "count", ref="n", value="next")
    page.add("Print", "told", input="next", data=["next:z", "n:ref"], message="n: ", every=2)
    page.add("Square", "after", x="told")
    page.add("LessEqual", "small", x="next", y=5.0)
    page.add("Assert", "limit", condition="small", data=["next:z"])
    session = Session(page)
    history = session.loop(10)
    assert history.steps == 5
    assert str(history.results.errors[0]) == "limit:condition: the condition is false: 6"
    assert [tuple(line) for line in session.printed] == [(2, "told", "n: 2 1"), (4, "told", "n: 4 3"),
                                                         (6, "told", "n: 6 5")]  # fmt: skip
    assert session.results()["after:y"] == 36
    page.add_gradients("after", ["n"])
    assert Session(page).run()["gradients/d_n"] is not None


def test_save_every_so_many_steps(tmp_path: Any) -> None:
    page = Page(folder=tmp_path)
    page.add("Variable", "n", initial_value=0.0)
    page.add("Add", "next", x="n", y=1.0)
    page.add("Assign", "count", ref="n", value="next")
    page.add("Save", filename={"value": "n.npz"}, tensor_names=["n"], data=["next:z"], every=3)
    session = Session(page)
    session.loop(2)
    assert not (tmp_path / "n.npz").exists()
    session.loop(3)
    with np.load(tmp_path / "n.npz") as saved:
        assert saved["n"] == 3
