"""Slices, stacks, counts and powers of pages beside a living TensorFlow: values, gradients and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dense_tensorflow import RNG, agree, as_array, ask, tf, types, values

import rowgrad
from rowgrad._ops.gradients import apply_to_arrays, backward
from rowgrad._runtime.dtypes import COMPLEX, FLOATS, INTEGERS, PLAIN
from rowgrad.blocks import Page, Session
from rowgrad.blocks.operators import OPERATORS

I32 = np.int32


def parts(name: str, inputs: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Each part that a block gives is that of TensorFlow's operator, which gives all."""
    tensors = {"axis" if pin == "split_dim" else pin: tf.constant(value) for pin, value in inputs.items()}
    expected = getattr(tf.raw_ops, name)(**tensors, **attributes)
    for index, want in enumerate(expected):
        (got,) = apply_to_arrays(OPERATORS[name], list(inputs.values()), {**attributes, "index": index}).values()
        if got.dtype.kind in "OSUT":
            assert [str(x) for x in got.ravel()] == [x.decode() for x in as_array(want).ravel()]
        else:
            np.testing.assert_array_equal(got, as_array(want))


@pytest.mark.parametrize("dtype", PLAIN)
def test_moves(dtype: str) -> None:
    x = values(dtype, (2, 3, 4))
    agree("StridedSlice", {"input": x, "begin": np.array([0, 2, -1]), "end": np.array([2, 0, -4]),
                           "strides": np.array([1, -1, -2])}, {"end_mask": 2})  # fmt: skip
    limits = {"begin": np.array([1, 0, 1], I32), "end": np.array([2, 0, 3], I32), "strides": np.array([1, 1, 1], I32)}
    agree("StridedSlice", {"input": x, **limits}, {"shrink_axis_mask": 1, "ellipsis_mask": 2})
    agree("Pack", {"values": [x, x, x]}, {"axis": -2})
    agree("Squeeze", {"input": x[:, :1, None]}, {"axis": [1, 2]})
    agree("Squeeze", {"input": x[:1, :, :1]}, {"axis": []})
    if dtype not in ("uint16", "uint64"):  # TensorFlow has no kernels for these
        agree("Tile", {"input": x, "multiples": np.array([2, 0, 3])})
        agree("Tile", {"input": x, "multiples": np.array([2, 1, 3], I32)})
    parts("Split", {"split_dim": I32(-1), "value": x}, {"num_split": 2})
    parts("Unpack", {"value": x}, {"num": 3, "axis": 1})


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_strided_slices(data: Any) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    count = data.draw(st.integers(0, len(shape)))
    numbers = st.lists(st.integers(-6, 6), min_size=count, max_size=count)
    inputs = {"input": np.arange(np.prod(shape)).reshape(shape), "begin": np.array(data.draw(numbers), np.int64),
              "end": np.array(data.draw(numbers), np.int64),
              "strides": np.array(data.draw(st.lists(st.integers(-3, 3).filter(bool), min_size=count, max_size=count)),
                                  np.int64)}  # fmt: skip
    masks = {name: data.draw(st.integers(0, 2**count - 1)) for name in ("begin_mask", "end_mask", "new_axis_mask",
                                                                       "shrink_axis_mask")}  # fmt: skip
    # A place that is shrunk goes forward in TensorFlow; what begin_mask means for it is nothing.
    inputs["strides"] = np.where([masks["shrink_axis_mask"] >> i & 1 for i in range(count)], 1, inputs["strides"])
    masks["begin_mask"] &= ~masks["shrink_axis_mask"]
    try:
        expected = ask("StridedSlice", inputs, masks)
    except (tf.errors.OpError, ValueError):
        with pytest.raises(rowgrad.InvalidArgumentError):
            apply_to_arrays(OPERATORS["StridedSlice"], list(inputs.values()), masks)
        return
    (got,) = apply_to_arrays(OPERATORS["StridedSlice"], list(inputs.values()), masks).values()
    np.testing.assert_array_equal(got, expected[0])


@pytest.mark.parametrize("dtype", types("Cumsum"))
def test_cumsum(dtype: str) -> None:
    for exclusive in (False, True):
        for reverse in (False, True):
            agree("Cumsum", {"x": values(dtype, (3, 5)), "axis": I32(-1)}, {"exclusive": exclusive, "reverse": reverse},
                  exact=dtype in INTEGERS)  # fmt: skip


@pytest.mark.parametrize("dtype", types("Where"))
def test_where(dtype: str) -> None:
    x = values(dtype, (3, 4))
    x[0] = 0
    agree("Where", {"condition": x})
    agree("Where", {"condition": x[:0]})


@pytest.mark.parametrize("dtype", [name for name in types("Unique") if name not in COMPLEX])
def test_unique(dtype: str) -> None:
    x = values(dtype, (20,)) if dtype not in FLOATS else values("int32", (20,)).astype(values(dtype, (1,)).dtype)
    for kind in ("int32", "int64"):
        agree("Unique", {"x": x}, {"out_idx": kind})
        agree("UniqueWithCounts", {"x": x}, {"out_idx": kind})


@pytest.mark.parametrize("dtype", types("Bincount"))
def test_counts(dtype: str) -> None:
    x = np.array([3, 1, 1, 9, 0], I32)
    agree("Bincount", {"arr": x, "size": I32(5), "weights": values(dtype, (5,))})
    agree("Bincount", {"arr": x, "size": I32(5), "weights": values(dtype, (0,))})
    agree("Bucketize", {"input": values(dtype, (3, 4))}, {"boundaries": [-2.5, 0.0, 0.1, 3.0]})


@pytest.mark.parametrize("dtype", types("Round"))
def test_round(dtype: str) -> None:
    agree("Round", {"x": values(dtype, (30,))})
    if dtype in FLOATS:
        agree("Round", {"x": np.array([0.5, 1.5, 2.5, -0.5, -1.5]).astype(values(dtype, (1,)).dtype)})
        agree("CheckNumerics", {"tensor": values(dtype, (3,))}, {"message": "m"})


X = np.array([[0.5, 1.25, 2.0, 0.1], [3.0, 0.75, 1.5, 0.7]])
LIMITS = {"begin": np.array([1, 3]), "end": np.array([0, 0]), "strides": np.array([1, -2])}
DIFFERENTIATED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("StridedSlice", {"input": X, **LIMITS}, {"shrink_axis_mask": 1}),
    ("Squeeze", {"input": X[:, None]}, {"axis": [1]}),
    ("Tile", {"input": X, "multiples": np.array([2, 3], I32)}, {}),
    ("Cumsum", {"x": X, "axis": I32(1)}, {"exclusive": True, "reverse": True}),
    ("Pow", {"x": X, "y": np.array([1.5, 2.0, -0.5, 3.0])}, {}),
    ("Pow", {"x": np.array([-2.0, 0.0, 3.0]), "y": np.array([2.0, 2.0, 2.0])}, {}),
    ("Rsqrt", {"x": X}, {}),
    ("CheckNumerics", {"tensor": X}, {"message": "m"}),
]


@pytest.mark.parametrize(("name", "inputs", "attributes"), DIFFERENTIATED, ids=lambda x: str(x)[:20])
def test_gradients(name: str, inputs: Any, attributes: Any) -> None:
    operator = OPERATORS[name]
    tensors = {pin: tf.constant(value) for pin, value in inputs.items()}
    watched = [tensors[pin] for pin in operator.gradient]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        output = getattr(tf.raw_ops, name)(**tensors, **attributes)
    upstream = RNG.standard_normal(output.shape)
    expected = tape.gradient(output, watched, tf.constant(upstream))
    actual = backward(operator, inputs, {operator.outputs[0].name: upstream}, attributes=attributes,
                      operators=OPERATORS)  # fmt: skip
    for pin, want in zip(operator.gradient, expected, strict=True):
        np.testing.assert_allclose(actual[pin], as_array(tf.convert_to_tensor(want)), rtol=1e-12, atol=1e-14)


def test_gradients_of_parts_and_stacks() -> None:
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        one, other = tf.split(x, 2, axis=1)
        total = tf.reduce_sum(tf.stack([one * 2.0, other * other], axis=1) * tf.unstack(x, axis=1)[3][0])
    expected = as_array(tape.gradient(total, x))
    page = Page()
    page.add("Const", "x", value=X)
    page.add("Split", "one", split_dim=1, value="x", num_split=2, index=0)
    page.add("Split", "other", split_dim=-1, value="x", num_split=2, index=1)
    page.add("Mul", "twice", x="one", y=2.0)
    page.add("Square", "square", x="other")
    page.add("Pack", "stacked", values=["twice", "square"], axis=1)
    page.add("Unpack", "column", value="x", num=4, axis=-1, index=3)
    page.add("StridedSlice", "first", input="column", begin=[0], end=[1], strides=[1], shrink_axis_mask=1)
    page.add("Mul", "product", x="stacked", y="first")
    page.add("ReduceSum", "total", input="product", axis=[0, 1, 2])
    gradient = page.add_gradients("total", ["x"])["x"]
    found = Session(page).run().raise_first()
    np.testing.assert_allclose(found[str(gradient)], expected, rtol=1e-12)


WRONG: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("StridedSlice", {"input": X, "begin": np.array([0]), "end": np.array([1]), "strides": np.array([0])}, {}),
    ("StridedSlice", {"input": X, "begin": np.array([0, 0, 0]), "end": np.array([1, 1, 1]),
                      "strides": np.array([1, 1, 1])}, {}),
    ("StridedSlice", {"input": X, "begin": np.array([2]), "end": np.array([3]), "strides": np.array([1])},
     {"shrink_axis_mask": 1}),
    ("Pack", {"values": [X, X[:1]]}, {"axis": 0}),
    ("Pack", {"values": [X, X]}, {"axis": 3}),
    ("Squeeze", {"input": X}, {"axis": [0]}),
    ("Tile", {"input": X, "multiples": np.array([1])}, {}),
    ("Tile", {"input": X, "multiples": np.array([1, -1])}, {}),
    ("Cumsum", {"x": X, "axis": I32(2)}, {}),
    ("Unique", {"x": X}, {}),
    ("Bincount", {"arr": np.array([-1], I32), "size": I32(2), "weights": np.array([1.0])}, {}),
    ("Bucketize", {"input": X}, {"boundaries": [1.0, 0.0]}),
    ("Pow", {"x": np.array([2], I32), "y": np.array([-1], I32)}, {}),
    ("CheckNumerics", {"tensor": np.array([np.nan])}, {"message": "m"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attributes"), WRONG)
def test_errors_agree(name: str, inputs: Any, attributes: Any) -> None:
    with pytest.raises((tf.errors.OpError, ValueError)):
        ask(name, inputs, attributes)
    with pytest.raises(rowgrad.InvalidArgumentError):
        apply_to_arrays(OPERATORS[name], list(inputs.values()), attributes)
