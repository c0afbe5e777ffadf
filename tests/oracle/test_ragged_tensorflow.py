"""Ragged operators and tensors beside a live TensorFlow, to the bit.

What ends TensorFlow's process, or makes it read outside of arrays (splits past the end, falling row ids, fewer weights
than values), is not drawn; rowgrad refuses it, and `tests/ops/test_ragged.py` shows that.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rowgrad
from rowgrad import RaggedTensor, raw_ops

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")

ID_TYPES = st.sampled_from(["int32", "int64"])


@st.composite
def nested(draw: Any) -> tuple[list[np.ndarray], int]:
    """Row splits of one to three levels, and the number of values."""
    dtype, rows, found = draw(ID_TYPES), draw(st.integers(0, 4)), []
    for _ in range(draw(st.integers(1, 3))):
        lengths = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
        found.append(np.cumsum([0, *lengths]).astype(dtype))
        rows = sum(lengths)
    return found, rows


def values_of(count: int, dtype: str, inner: tuple[int, ...]) -> np.ndarray:
    size = count * int(np.prod(inner))
    if dtype == "string":
        return np.array([f"v{number}".encode() for number in range(size)], object).reshape(count, *inner)
    return np.arange(1, size + 1).astype(dtype).reshape(count, *inner)


def compare(found: Any, expected: Any) -> None:
    for one, other in zip(*((x,) if not isinstance(x, tuple) else x for x in (found, expected)), strict=True):
        other = other.numpy()
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        if other.dtype == object:
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


def both(name: str, *, arguments: dict[str, Any], types: dict[str, str] | None = None) -> None:
    """The same result, or an error, of both."""
    types = types or {}
    # TensorFlow takes arrays of NumPy for int32 where that is the default.
    given = {key: tf.constant(value) if isinstance(value, np.ndarray) else value for key, value in arguments.items()}
    try:
        expected = getattr(tf.raw_ops, name)(**given, **{key: tf.as_dtype(kind) for key, kind in types.items()})
    except tf.errors.InvalidArgumentError:
        with pytest.raises(rowgrad.InvalidArgumentError):
            getattr(raw_ops, name)(**arguments, **types)
        return
    compare(getattr(raw_ops, name)(**arguments, **types), expected)


@settings(deadline=None)
@given(rows=nested(), dtype=st.sampled_from(["float32", "int64", "bool", "complex64", "bfloat16", "string"]),
       inner=st.sampled_from([(), (2,), (1, 2), (0,)]), damage=st.integers(0, 12))  # fmt: skip
def test_to_sparse(rows: Any, dtype: str, inner: tuple[int, ...], damage: int) -> None:
    splits, count = rows
    if damage == 0:
        splits = [*splits[:-1], splits[-1] + 1]
    elif damage == 1:
        splits = [*splits[:-1], splits[-1][:0]]
    kind = tf.as_dtype(dtype).as_numpy_dtype if dtype == "bfloat16" else dtype
    values = values_of(count, kind if dtype != "string" else "string", inner)
    both("RaggedTensorToSparse", arguments={"rt_nested_splits": splits, "rt_dense_values": values})


@settings(deadline=None, max_examples=150)
@given(rows=nested(), data=st.data(), dtype=st.sampled_from(["float32", "float64", "int32", "string"]),
       inner=st.sampled_from([(), (2,), (3, 2)]), by_ids=st.booleans())  # fmt: skip
def test_to_tensor(rows: Any, data: Any, dtype: str, inner: tuple[int, ...], by_ids: bool) -> None:
    splits, count = rows
    values = values_of(count, dtype, inner)
    rank = len(splits) + 1 + len(inner)
    sizes = data.draw(st.lists(st.sampled_from([-1, -1, -1, 0, 1, 2, 5, -2]), min_size=rank, max_size=rank + 1))
    shape: Any = np.array(sizes if data.draw(st.booleans()) else [-1] * rank, data.draw(ID_TYPES))
    if data.draw(st.integers(0, 5)) == 0:
        shape = np.int64(data.draw(st.sampled_from([-1, 2])))
    default = values_of(1, dtype, inner)[0] if inner and data.draw(st.booleans()) else values_of(1, dtype, ())[0]
    partitions: list[Any] = splits
    kinds = ["ROW_SPLITS"] * len(splits)
    if by_ids:
        assume(splits[0].size > 1)
        partitions = [splits[0].dtype.type(splits[0].size - 1)]
        partitions += [np.repeat(np.arange(each.size - 1), np.diff(each)).astype(each.dtype) for each in splits]
        kinds = ["FIRST_DIM_SIZE", *["VALUE_ROWIDS"] * len(splits)]
    both("RaggedTensorToTensor", arguments={
        "shape": shape, "values": values, "default_value": default, "row_partition_tensors": partitions,
        "row_partition_types": kinds,
    })  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(data=st.data(), dtype=st.sampled_from(["float32", "float64", "int32", "int64"]), splits=ID_TYPES)
def test_ranges(data: Any, dtype: str, splits: str) -> None:
    numbers = st.integers(-20, 20) if dtype.startswith("i") else st.floats(-20, 20, width=32, allow_subnormal=False)
    steps = st.integers(-3, 3) if dtype.startswith("i") else st.sampled_from([0.1, -0.1, 0.5, 7.0, 0.3, 0.0, -2.5])
    size = data.draw(st.integers(0, 4))

    def drawn(what: Any) -> np.ndarray:
        if data.draw(st.booleans()):
            return np.array(data.draw(what), dtype)
        return np.array(
            data.draw(st.lists(what, min_size=size, max_size=size + (data.draw(st.integers(0, 9)) == 0))), dtype
        )

    both("RaggedRange", arguments={"starts": drawn(numbers), "limits": drawn(numbers), "deltas": drawn(steps)},
         types={"Tsplits": splits})  # fmt: skip


def test_long_ranges() -> None:
    both("RaggedRange", arguments={"starts": np.float32([0, 5]), "limits": np.float32([1000, 4000]),
                                   "deltas": np.float32([0.1, 0.7])})  # fmt: skip


@st.composite
def counted(draw: Any) -> dict[str, Any]:
    lengths = draw(st.lists(st.integers(0, 4), max_size=4))
    count = sum(lengths)
    values = draw(st.lists(st.integers(0, 6) | st.integers(-1, 6), min_size=count, max_size=count))
    dtype = draw(st.sampled_from(["int32", "int64", "float32", "float64"]))
    weights = draw(st.lists(st.floats(-9, 9, width=16), min_size=count, max_size=count)) if draw(st.booleans()) else []
    splits = np.cumsum([0, *lengths])
    if draw(st.integers(0, 9)) == 0:
        splits = draw(st.sampled_from([splits + 1, splits[:0]]))
    return {"splits": splits, "values": np.array(values, draw(ID_TYPES)), "weights": np.array(weights).astype(dtype),
            "binary_output": draw(st.booleans())}  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(arguments=counted(), size=st.integers(-1, 8))
def test_bincount(arguments: dict[str, Any], size: int) -> None:
    both("RaggedBincount", arguments={**arguments, "size": arguments["values"].dtype.type(size)})


@settings(deadline=None, max_examples=150)
@given(arguments=counted(), least=st.integers(-1, 9), most=st.integers(-1, 9))
def test_counts(arguments: dict[str, Any], least: int, most: int) -> None:
    assume(arguments["values"].size or arguments["splits"].size < 2 or arguments["splits"][-1] == 0)
    both("RaggedCountSparseOutput", arguments={**arguments, "minlength": least, "maxlength": most})


@settings(deadline=None)
@given(rows=nested(), data=st.data())
def test_tensors(rows: Any, data: Any) -> None:
    splits, count = rows
    values = values_of(count, "float32", (2,))
    ours: Any = values
    theirs: Any = tf.constant(values)
    for each in splits[::-1]:
        ours, theirs = RaggedTensor(ours, each), tf.RaggedTensor.from_row_splits(theirs, each)
    assert ours.to_list() == theirs.to_list()
    assert ours == RaggedTensor.from_tensorflow(theirs)
    assert ours.to_tensorflow().to_list() == theirs.to_list()
    np.testing.assert_array_equal(ours.to_dense(7.0), theirs.to_tensor(7.0))
    if len(ours):
        chosen = np.array(data.draw(st.lists(st.integers(0, len(ours) - 1), max_size=4)), np.int64)
        assert ours.gather(chosen).to_list() == tf.gather(theirs, chosen).to_list()
    np.testing.assert_array_equal(ours.value_rowids(), theirs.value_rowids())
    np.testing.assert_array_equal(rowgrad.row_splits_to_segment_ids(splits[0]),
                                  tf.ragged.row_splits_to_segment_ids(splits[0]))  # fmt: skip
    ids = ours.value_rowids()
    np.testing.assert_array_equal(rowgrad.segment_ids_to_row_splits(ids, len(ours)),
                                  tf.ragged.segment_ids_to_row_splits(ids, len(ours)))  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.data())
def test_gather(lengths: list[int], data: st.DataObject) -> None:
    """Rows of one and of two ragged dimensions; now and then a split or an index is wrong."""
    kind = data.draw(st.sampled_from([np.int32, np.int64]))
    nested = [np.cumsum([0, *lengths]).astype(kind)]
    if data.draw(st.booleans()):
        inner = data.draw(st.lists(st.integers(0, 3), min_size=sum(lengths), max_size=sum(lengths)))
        nested.append(np.cumsum([0, *inner]).astype(kind))
    values = np.arange(2 * int(nested[-1][-1]), dtype=np.float32).reshape(-1, 2)
    shape = data.draw(st.sampled_from([(), (0,), (3,), (2, 2), (1, 0)]))
    indices = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=int(np.prod(shape)),
                                          max_size=int(np.prod(shape)))), np.int64).reshape(shape)  # fmt: skip
    if data.draw(st.integers(0, 3)) == 0:
        spoiled = data.draw(st.sampled_from([*nested, indices]))
        if spoiled.size:
            spoiled.reshape(-1)[data.draw(st.integers(0, spoiled.size - 1))] = data.draw(st.integers(-2, 12))
    rank = len(nested) + indices.ndim - 1
    given_arrays = {"params_nested_splits": nested, "params_dense_values": values, "indices": indices}
    try:
        expected = tf.raw_ops.RaggedGather(params_nested_splits=[*map(tf.constant, nested)], params_dense_values=values,
                                           indices=tf.constant(indices), OUTPUT_RAGGED_RANK=rank)  # fmt: skip
    except (tf.errors.OpError, ValueError):
        with pytest.raises(rowgrad.RowgradError):
            raw_ops.RaggedGather(**given_arrays, OUTPUT_RAGGED_RANK=rank)
        return
    try:
        found = raw_ops.RaggedGather(**given_arrays, OUTPUT_RAGGED_RANK=rank)
    except rowgrad.InvalidArgumentError as error:
        assert error.code == "bad-offsets"  # deviation D24
        return
    for want, got in zip(expected.output_nested_splits, found.output_nested_splits, strict=True):
        assert (got.dtype, got.tolist()) == (want.dtype.as_numpy_dtype, want.numpy().tolist())
    assert found.output_dense_values.tolist() == expected.output_dense_values.numpy().tolist()
