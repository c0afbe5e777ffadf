"""Buckets and vocabularies; hashes and crosses are in `tests/ops`."""

import numpy as np
import pytest

import rowgrad
from rowgrad import features


def test_buckets() -> None:
    values = np.array([[-1.0, 0.0], [9.99, np.nan]])
    assert features.bucketize(values, [0, 10]).tolist() == [[0, 1], [1, 2]]
    assert features.bucketize([5, 10], [0, 10]).dtype == np.int32
    assert features.bucketize([1.0], []).tolist() == [0]
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        features.bucketize([1.0], [0.0, 2.0, 1.0])
    assert (info.value.argument, info.value.position) == ("boundaries", 2)


def test_vocabularies() -> None:
    assert features.vocabulary_lookup(np.array([["b", "x"]]), ["a", "b"]).tolist() == [[1, -1]]
    assert features.vocabulary_lookup([b"b", "x"], ["a", "b"], default_value=0).tolist() == [1, 0]
    assert features.vocabulary_lookup([7, 5], [5, 6, 7]).tolist() == [2, 0]
    unknown = features.vocabulary_lookup(["x", "y"], ["a", "b"], num_oov_buckets=4)
    assert unknown.tolist() == (2 + features.string_to_hash_bucket_fast(["x", "y"], 4)).tolist()
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        features.vocabulary_lookup(["a"], ["a", "a"])
    assert info.value.code == "repeated-word"
