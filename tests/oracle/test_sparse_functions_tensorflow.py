"""`rowgrad.sparse` with TensorFlow's tensors, and its counts and crosses beside those of a living TensorFlow."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rowgrad
import strategies  # noqa: F401 (comes before strategies_sparse)
import strategies_sparse
from rowgrad import sparse
from sparse_cases import CALLS, DENSE, A, B, plain, tensor

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")


def make(array: Any) -> Any:
    return tf.constant(array)


@pytest.mark.parametrize("name", CALLS)
def test_tensors_of_tensorflow(name: str) -> None:
    call, expected = CALLS[name]
    found = call(tensor(make, A), tensor(make, B), make(DENSE), make)
    wanted = plain(expected)
    if name == "cross":
        wanted = [text.encode() for text in wanted]
    assert plain(found) == wanted
    if isinstance(found, rowgrad.SparseTensor):
        assert isinstance(found.values, tf.Tensor)


def agree(name: str, arguments: tuple[Any, ...], **options: Any) -> None:
    try:
        expected = getattr(tf.sparse, name)(*arguments, **options)
    except (tf.errors.OpError, ValueError, TypeError):
        with pytest.raises(rowgrad.RowgradError):
            getattr(sparse, name)(*arguments, **options)
        return
    found = getattr(sparse, name)(*arguments, **options)
    assert found.indices.numpy().tolist() == expected.indices.numpy().tolist()
    assert found.values.dtype == expected.values.dtype
    assert found.values.numpy().tolist() == expected.values.numpy().tolist()
    assert list(found.dense_shape) == expected.dense_shape.numpy().tolist()


def in_order(parts: Any, dtype: Any) -> tf.SparseTensor:
    indices, values, shape = parts
    indices = indices[np.lexsort(indices.T[::-1])]
    return tf.SparseTensor(indices, tf.constant(np.abs(values) % 9, dtype), shape)


TENSORS = strategies_sparse.tensors(np.dtype(np.int32), rank=2, unique=True, least=1)


@settings(max_examples=150, deadline=None)
@given(TENSORS, st.sampled_from([tf.int32, tf.int64]), st.sampled_from([0, -1, 1, None]), st.booleans(),
       st.sampled_from([None, 0, 3, -2]), st.sampled_from([None, 0, 4]), st.booleans(), st.booleans())  # fmt: skip
def test_bincount(parts: Any, dtype: Any, axis: Any, weighted: bool, least: Any, most: Any, binary: bool,
                  dense: bool) -> None:  # fmt: skip
    values = in_order(parts, dtype)
    weights = values.with_values(tf.cast(values.values, tf.float32) / 4) if weighted else None
    if dense:
        values, weights = values.values, None if weights is None else weights.values
        values = tf.reshape(values, [1, -1])
        weights = None if weights is None else tf.reshape(weights, [1, -1])
    agree("bincount", (values,), weights=weights, axis=axis, minlength=least, maxlength=most, binary_output=binary)


@settings(max_examples=100, deadline=None)
@given(st.lists(TENSORS, min_size=1, max_size=3), st.lists(st.booleans(), min_size=3, max_size=3), st.booleans(),
       st.sampled_from([0, 1, 100]), st.sampled_from([None, 0, 7]), st.sampled_from([None, "", "_"]))  # fmt: skip
def test_crosses(tensors: list[Any], texts: list[bool], dense: bool, buckets: int, key: Any, between: Any) -> None:
    rows = int(tensors[0][2][0])
    inputs: list[Any] = []
    for (indices, values, shape), is_text in zip(tensors, texts, strict=False):
        kept = indices[:, 0] < rows
        found = in_order((indices[kept], values[kept], np.array([rows, shape[1]])), tf.int32)
        inputs.append(found.with_values(tf.strings.as_string(found.values)) if is_text else found)
    if dense:
        inputs.append(tf.reshape(tf.range(2 * rows), [rows, 2]))
    agree("cross", (inputs,), separator=between)
    agree("cross_hashed", (inputs,), num_buckets=buckets, hash_key=key)
