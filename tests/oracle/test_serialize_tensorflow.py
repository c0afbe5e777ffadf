"""Sparse tensors as text and in maps beside a living TensorFlow, byte for byte."""

from __future__ import annotations

import os
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import golden
import rowgrad
import strategies
import strategies_sparse
from golden import assert_same
from rowgrad import raw_ops

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")

from record_golden import as_array, as_tensor

TYPES = pytest.mark.parametrize("dtype", strategies.ANYTHING, ids=golden.dtype_name)
NUMBERS = st.integers(-9, 9)
NAMES = count()


def agree(name: str, inputs: dict[str, Any], **attributes: Any) -> Any:
    """The same results, or an error of both."""
    try:
        expected = getattr(tf.raw_ops, name)(**{key: as_tensor(value) for key, value in inputs.items()}, **attributes)
    except tf.errors.OpError:
        with pytest.raises(rowgrad.RowgradError):
            getattr(raw_ops, name)(**inputs, **attributes)
        return None
    found = getattr(raw_ops, name)(**inputs, **attributes)
    both = (expected, found) if isinstance(expected, tuple) else ((expected,), (found,))
    for want, got in zip(*both, strict=True):
        assert_same(as_array(want), got)
    return found


def entries(tensor: Any) -> dict[str, Any]:
    return dict(zip(("sparse_indices", "sparse_values", "sparse_shape"), tensor, strict=True))


@st.composite
def spoiled(draw: st.DrawFn, dtype: np.dtype[Any]) -> dict[str, Any]:
    """A sparse tensor in order, of which now and then one part is wrong."""
    found = entries(draw(strategies_sparse.tensors(dtype, unique=True, least=1)))
    if len(found["sparse_shape"]):
        found["sparse_indices"] = found["sparse_indices"][np.lexsort(found["sparse_indices"].T[::-1])]
    name = draw(st.sampled_from(sorted(found)))
    array = found[name]
    match draw(st.integers(0, 12)):
        case 0:
            found[name] = array[:-1]
        case 1:
            found[name] = array[None]
        case 2 if array.dtype.kind == "i" and array.size:
            array = array.copy()
            array.reshape(-1)[draw(st.integers(0, array.size - 1))] = draw(NUMBERS)
            found[name] = array
        case 3 if name == "sparse_indices":
            found[name] = array[::-1].copy()
        case 4:
            found[name] = array[..., None][..., 0:1] if array.ndim else array
    return found


@TYPES
@pytest.mark.parametrize("name", ["SerializeSparse", "SerializeManySparse"])
def test_texts_are_the_same(name: str, dtype: np.dtype[Any]) -> None:
    @settings(max_examples=80, deadline=None)
    @given(spoiled(dtype))
    def check(inputs: dict[str, Any]) -> None:
        text = agree(name, inputs)
        if text is None or (inputs["sparse_shape"] < 0).any():  # TensorFlow ends the process when it reads such a text
            return
        for back in ("DeserializeSparse", "DeserializeManySparse"):
            for shaped in (text, text[None], text[..., None, :], text[..., :2], text[:0], np.stack([text, text])):
                if back == "DeserializeManySparse" and shaped.ndim != 2:
                    continue
                agree(back, {"serialized_sparse": shaped}, dtype=golden.dtype_name(dtype))
                agree(back, {"serialized_sparse": shaped}, dtype="int16")

    check()


def test_tensors_of_several_shapes_are_stacked() -> None:
    @settings(max_examples=80, deadline=None)
    @given(st.lists(strategies_sparse.tensors(np.dtype(np.float32), least=0), min_size=1, max_size=4))
    def check(tensors: list[Any]) -> None:
        texts = np.stack([tf.raw_ops.SerializeSparse(**entries(tensor)).numpy() for tensor in tensors])
        agree("DeserializeManySparse", {"serialized_sparse": texts}, dtype="float32")
        agree("DeserializeSparse", {"serialized_sparse": texts[:, None]}, dtype="float32")

    check()


FIELDS = {
    "float32": "float_val", "float64": "double_val", "float16": "half_val", "bfloat16": "half_val",
    "complex64": "scomplex_val", "complex128": "dcomplex_val", "int64": "int64_val", "uint32": "uint32_val",
    "uint64": "uint64_val", "bool": "bool_val", "string": "string_val",
}  # fmt: skip


@TYPES
def test_values_are_read_from_their_fields(dtype: np.dtype[Any]) -> None:
    """One after the other, as `tf.make_tensor_proto` writes a few of them; the last one stands for the rest."""
    name = golden.dtype_name(dtype)
    for length, numbers in ((3, [1, 0, 1]), (3, [1, 2]), (2, [0]), (3, [])):
        values = np.array(numbers).astype(dtype) if name != "string" else np.array([b"ab", b"", b"c"][: len(numbers)])
        message = tf.make_tensor_proto(np.zeros(1, dtype) if name != "string" else [b""])
        plain = values.view(np.uint16) if FIELDS.get(name) == "half_val" else values
        plain = plain.view(plain.real.dtype) if plain.dtype.kind == "c" else plain
        message.tensor_content = b""
        message.tensor_shape.dim[0].size = length
        field = getattr(message, FIELDS.get(name, "int_val"))
        del field[:]
        field.extend(plain.tolist())
        parts = (tf.make_tensor_proto(np.zeros((length, 1), np.int64)), message, tf.make_tensor_proto(np.array([4])))
        texts = np.array([part.SerializeToString() for part in parts], object)
        assert agree("DeserializeSparse", {"serialized_sparse": texts}, dtype=name) is not None


def test_damaged_texts() -> None:
    inputs = {"sparse_indices": np.array([[0, 1], [2, 0]]), "sparse_values": np.float32([5, 7]),
              "sparse_shape": np.array([3, 2])}  # fmt: skip
    good = tf.raw_ops.SerializeSparse(**inputs).numpy()

    @settings(max_examples=500, deadline=None)
    @given(st.integers(0, 2), st.integers(0, 60), st.integers(0, 255), st.booleans())
    def check(part: int, at: int, byte: int, cut: bool) -> None:
        texts = good.copy()
        text = bytearray(texts[part])
        at %= len(text)
        texts[part] = bytes(text[:at]) if cut else bytes(text[:at] + bytes([byte]) + text[at + 1 :])
        agree("DeserializeSparse", {"serialized_sparse": texts}, dtype="float32")

    check()


@TYPES
@pytest.mark.parametrize("name", ["AddSparseToTensorsMap", "AddManySparseToTensorsMap"])
def test_maps_give_back_what_they_hold(name: str, dtype: np.dtype[Any]) -> None:
    @settings(max_examples=60, deadline=None)
    @given(spoiled(dtype), st.data())
    def check(inputs: dict[str, Any], data: st.DataObject) -> None:
        named = {"shared_name": f"{name} {next(NAMES)}"}
        handles = agree(name, inputs, **named)
        if handles is None:
            return
        agree(name, inputs, **named)  # handles go on
        taken = data.draw(st.lists(st.integers(0, 2 * np.size(handles)), max_size=4))
        kind = data.draw(st.sampled_from([golden.dtype_name(dtype)] * 7 + ["int16"]))
        agree("TakeManySparseFromTensorsMap", {"sparse_handles": np.array(taken, np.int64)}, dtype=kind, **named)

    check()
