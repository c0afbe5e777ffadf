"""Hashes, crosses, buckets and vocabularies beside a live TensorFlow, to the bit."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rowgrad
from rowgrad import features, raw_ops
from rowgrad._ops import OPERATORS

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.binary(max_size=12) | st.text(max_size=6).map(str.encode)


def objects(strings: list[bytes]) -> np.ndarray:
    array = np.empty(len(strings), object)
    array[:] = strings
    return array


@pytest.mark.parametrize("buckets", [1, 10, 2**31 + 11, 2**63 - 1])
def test_hashes_of_every_length(buckets: int) -> None:
    rng = np.random.default_rng(0)
    strings = objects([rng.bytes(size) for size in (*range(300), 1000, 70_001)])
    np.testing.assert_array_equal(
        features.string_to_hash_bucket_fast(strings, buckets), tf.strings.to_hash_bucket_fast(strings, buckets)
    )
    np.testing.assert_array_equal(
        features.string_to_hash_bucket(strings, buckets), tf.strings.to_hash_bucket(strings, buckets)
    )
    key = [2**62 + 5, -7]
    np.testing.assert_array_equal(
        features.string_to_hash_bucket_strong(strings, buckets, key),
        tf.strings.to_hash_bucket_strong(strings, buckets, key),
    )


@settings(deadline=None)
@given(strings=st.lists(st.text(max_size=40), min_size=1), buckets=st.integers(1, 2**63 - 1))
def test_hashes_of_text(strings: list[str], buckets: int) -> None:
    expected = tf.strings.to_hash_bucket_fast(objects([text.encode() for text in strings]), buckets)
    np.testing.assert_array_equal(features.string_to_hash_bucket_fast(strings, buckets), expected)


def test_hashes_of_shapes_and_of_what_is_wrong() -> None:
    square = np.array([["a", "bc"], ["", "äöü"]])
    found = raw_ops.StringToHashBucketFast(input=square, num_buckets=7)
    np.testing.assert_array_equal(found, tf.raw_ops.StringToHashBucketFast(input=square, num_buckets=7))
    for buckets in (0, -1):
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.raw_ops.StringToHashBucketFast(input=square, num_buckets=buckets)
        with pytest.raises(rowgrad.InvalidArgumentError):
            raw_ops.StringToHashBucketFast(input=square, num_buckets=buckets)


# Crosses


@st.composite
def columns(draw: Any) -> dict[str, Any]:
    """Sparse and dense columns, with rows that are empty, unsorted, negative or out of range."""
    rows = draw(st.integers(0, 4))
    values: list[Any] = []
    indices, shapes, dense = [], [], []

    def content(size: int, text: bool) -> np.ndarray:
        drawn = draw(st.lists(TEXT if text else INT64, min_size=size, max_size=size))
        return objects(drawn) if text else np.array(drawn, np.int64)

    for _ in range(draw(st.integers(0, 3))):
        entries = draw(st.lists(st.integers(-1, rows) | st.integers(0, max(rows - 1, 0)), max_size=6))
        entries = entries if draw(st.integers(0, 4)) == 0 else sorted(entries)
        indices.append(np.array([[row, 0] for row in entries], np.int64).reshape(-1, 2))
        values.append(content(len(entries), draw(st.booleans())))
        shapes.append(np.array([rows, 3], np.int64))
    for _ in range(draw(st.integers(0, 2))):
        width = draw(st.integers(0, 2))
        dense.append(content(rows * width, draw(st.booleans())).reshape(rows, width))
    return {"indices": indices, "values": values, "shapes": shapes, "dense_inputs": dense}


def compare(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        other = other.numpy()
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)


@settings(deadline=None, max_examples=150)
@given(args=columns(), buckets=st.integers(0, 2**63 - 1) | st.integers(0, 20), key=INT64,
       out=st.sampled_from(["int64", "string"]))  # fmt: skip
def test_sparse_cross(args: dict[str, Any], buckets: int, key: int, out: str) -> None:
    same = {"hashed_output": out == "int64", "num_buckets": buckets, "hash_key": key}
    expected = tf.raw_ops.SparseCross(**args, **same, out_type=tf.as_dtype(out), internal_type=tf.int64)
    compare(raw_ops.SparseCross(**args, **same, out_type=out, internal_type="int64"), expected)


@settings(deadline=None, max_examples=150)
@given(args=columns(), buckets=st.integers(-3, 20), strong=st.booleans(), salt=st.tuples(INT64, INT64))
def test_sparse_cross_hashed(args: dict[str, Any], buckets: int, strong: bool, salt: tuple[int, int]) -> None:
    assume(args["values"] or args["dense_inputs"])  # TensorFlow's process ends, and of dense numbers with a key
    assume(not (strong and any(dense.dtype.kind == "i" for dense in args["dense_inputs"])))
    same = {"num_buckets": buckets, "strong_hash": strong, "salt": np.array(salt, np.int64)}
    compare(raw_ops.SparseCrossHashed(**args, **same), tf.raw_ops.SparseCrossHashed(**args, **same))


@settings(deadline=None, max_examples=100)
@given(args=columns(), sep=TEXT)
def test_sparse_cross_of_text(args: dict[str, Any], sep: bytes) -> None:
    compare(raw_ops.SparseCrossV2(**args, sep=objects([sep]).reshape(())), tf.raw_ops.SparseCrossV2(**args, sep=sep))


@settings(deadline=None, max_examples=150)
@given(args=columns(), data=st.data(), buckets=st.integers(0, 20), out=st.sampled_from(["int64", "string"]),
       splits=st.sampled_from(["int32", "int64"]))  # fmt: skip
def test_ragged_cross(args: dict[str, Any], data: Any, buckets: int, out: str, splits: str) -> None:
    rows = len(args["dense_inputs"][0]) if args["dense_inputs"] else int(args["shapes"][0][0]) if args["shapes"] else 2
    ragged_values, row_splits = [], []
    for _ in range(data.draw(st.integers(0, 2))):
        lengths = data.draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
        ragged_values.append(
            np.array(data.draw(st.lists(INT64, min_size=sum(lengths), max_size=sum(lengths))), np.int64)
        )
        row_splits.append(np.cumsum([0, *lengths]).astype(splits))
    order = "R" * len(ragged_values) + "S" * len(args["values"]) + "D" * len(args["dense_inputs"])
    order = "".join(data.draw(st.permutations(order)))
    same = {
        "ragged_values": ragged_values, "ragged_row_splits": row_splits, "sparse_indices": args["indices"],
        "sparse_values": args["values"], "sparse_shape": args["shapes"], "dense_inputs": args["dense_inputs"],
        "input_order": order, "hashed_output": out == "int64", "num_buckets": buckets, "hash_key": 956888297470,
    }  # fmt: skip
    expected = tf.raw_ops.RaggedCross(**same, out_values_type=tf.as_dtype(out), out_row_splits_type=tf.as_dtype(splits))
    compare(raw_ops.RaggedCross(**same, out_values_type=out, out_row_splits_type=splits), expected)


MATRIX = {"indices": [np.zeros((1, 2), np.int64)], "values": [np.ones(1, np.int64)],
          "shapes": [np.array([2, 2], np.int64)], "dense_inputs": [np.ones((2, 1), np.int64)]}  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"indices": [np.zeros((1, 3), np.int64)]},
        {"indices": [np.zeros(2, np.int64)]},
        {"values": [np.ones(2, np.int64)]},
        {"values": [np.ones((1, 1), np.int64)]},
        {"shapes": [np.array([3, 2], np.int64)]},
        {"shapes": [np.array([2, 2, 2], np.int64)]},
        {"dense_inputs": [np.ones((3, 1), np.int64)]},
        {"dense_inputs": [np.ones(2, np.int64)]},
    ],
    ids=str,
)
def test_the_same_columns_are_refused(wrong: dict[str, Any]) -> None:
    rest = {"num_buckets": 5, "strong_hash": False, "salt": np.array([1, 2], np.int64)}
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.raw_ops.SparseCrossHashed(**(MATRIX | wrong), **rest)
    with pytest.raises(rowgrad.InvalidArgumentError):
        raw_ops.SparseCrossHashed(**(MATRIX | wrong), **rest)


@pytest.mark.parametrize("name", ["StringToHashBucketFast", "StringToHashBucketStrong", "StringToHashBucket",
                                  "SparseCross", "SparseCrossHashed", "RaggedCross"])  # fmt: skip
def test_worked_examples(name: str) -> None:
    operator = OPERATORS[name]
    inputs = {
        pin.name: [np.asarray(part, np.int64 if np.asarray(part).dtype.kind == "i" else None) for part in value]
        if pin.many
        else value
        for pin, value in zip(operator.inputs, operator.example.inputs.values(), strict=True)
    }
    attributes = {
        key: tf.as_dtype(value) if key.endswith("_type") else value
        for key, value in operator.example.attributes.items()
    }
    found = getattr(tf.raw_ops, name)(**inputs, **attributes)
    found = found if isinstance(found, tuple) else (found,)
    for part, expected in zip(found, operator.example.outputs.values(), strict=True):
        np.testing.assert_array_equal(part.numpy(), expected)


# Buckets and vocabularies


NORMAL = st.floats(-(2.0**90), 2.0**90, width=32, allow_subnormal=False)


@settings(deadline=None)
@given(values=st.lists(NORMAL | st.sampled_from([0.0, 1.0, 2.5, np.nan, np.inf])),
       edges=st.lists(st.sampled_from([-1.0, 0.0, 1.0, 2.5]) | NORMAL))  # fmt: skip
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_bucketize(dtype: str, values: list[float], edges: list[float]) -> None:
    numbers = np.array([value if dtype.startswith("f") else int(max(-2e9, min(value, 2e9))) if value == value else 0
                        for value in values], dtype)  # fmt: skip
    expected = tf.raw_ops.Bucketize(input=numbers, boundaries=sorted(edges))
    np.testing.assert_array_equal(features.bucketize(numbers, sorted(edges)), expected)


def test_boundaries_must_ascend() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.raw_ops.Bucketize(input=[1.0], boundaries=[2.0, 1.0])
    with pytest.raises(rowgrad.InvalidArgumentError):
        features.bucketize([1.0], [2.0, 1.0])


@pytest.mark.parametrize("words", [["a", "bc", "ü"], [5, -3, 10**12]], ids=str)
def test_vocabularies(words: list[Any]) -> None:
    text = isinstance(words[0], str)
    kind = tf.string if text else tf.int64
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(words, [0, 1, 2], kind, tf.int64), 7, lookup_key_dtype=kind
    )
    asked = np.array([*words, *(["x", "", "longer than sixteen bytes"] if text else [0, -1, 2**40])])
    expected = table.lookup(tf.constant(asked, kind))
    np.testing.assert_array_equal(features.vocabulary_lookup(asked, words, num_oov_buckets=7), expected)


def test_crossed_columns() -> None:
    """With the key that crossed columns have where none is given."""
    colours = np.array([[b"red", b"blue"], [b"green", b"red"], [b"blue", b"blue"]])
    sizes, shops = np.arange(6).reshape(3, 2) * 7, ([[0, 0], [2, 0], [2, 1]], [b"x", b"y", b"z"], [3, 2])
    sparse = tf.SparseTensor(*shops)
    expected = tf.sparse.cross_hashed([sparse, tf.constant(colours), tf.constant(sizes)], 1000)
    found = features.cross_features([shops, colours, sizes], 1000)
    np.testing.assert_array_equal(found.output_indices, expected.indices)
    np.testing.assert_array_equal(found.output_values, expected.values)
    np.testing.assert_array_equal(found.output_shape, expected.dense_shape)


# Joins


@settings(deadline=None)
@given(data=st.data(), separator=st.text(max_size=2))
def test_joins(data: Any, separator: str) -> None:
    size, segments = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 4))
    tail = data.draw(st.sampled_from([(), (2,)]))
    count = size * int(np.prod(tail))
    texts = objects(data.draw(st.lists(TEXT, min_size=count, max_size=count))).reshape(size, *tail)
    ids = np.array(data.draw(st.lists(st.integers(-1, segments) | st.integers(0, max(segments - 1, 0)), min_size=size,
                                      max_size=size)), np.int32)  # fmt: skip
    given = {"inputs": texts, "segment_ids": ids, "num_segments": segments, "separator": separator}
    try:
        expected = tf.raw_ops.UnsortedSegmentJoin(**given)
    except tf.errors.InvalidArgumentError:
        with pytest.raises(rowgrad.InvalidArgumentError):
            raw_ops.UnsortedSegmentJoin(**given)
        return
    found = raw_ops.UnsortedSegmentJoin(**given)
    assert found.shape == expected.shape
    assert [x if isinstance(x, bytes) else x.encode() for x in found.flat] == list(expected.numpy().flat)
