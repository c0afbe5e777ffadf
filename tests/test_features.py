"""Buckets and vocabularies; hashes and crosses are in `tests/ops`."""

from collections.abc import Callable

import numpy as np
import pytest

import rowgrad
from optional import framework
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


def test_vocabularies_of_any_text() -> None:
    words = ["a", "bé", "c\0"]
    encoded = [word.encode() for word in words]
    for given in (words, encoded, np.array(words, object), np.array(words[:2], np.dtypes.StringDType())):
        for asked in (words, encoded, np.array(encoded, object)):
            assert features.vocabulary_lookup(asked[: len(given)], given).tolist() == list(range(len(given)))
    assert features.vocabulary_lookup([b"\xff", "a"], words).tolist() == [-1, 0]
    assert features.vocabulary_lookup([], words).tolist() == []
    assert features.vocabulary_lookup(["a"], []).tolist() == [-1]
    pa = framework("pyarrow")
    column = pa.array(["bé", "a"])
    for given in (column, column.dictionary_encode(), pa.chunked_array([column]), column.cast(pa.string_view())):
        assert features.vocabulary_lookup(given, pa.array(words)).tolist() == [1, 0]
        assert features.fingerprint64(given).tolist() == features.fingerprint64(["bé", "a"]).tolist()
    assert features.vocabulary_lookup(pa.array([7, 5]), pa.chunked_array([[5, 6, 7]])).tolist() == [2, 0]


def test_numbers_of_buckets_may_be_numpys() -> None:
    assert features.string_to_hash_bucket_fast(["apple"], np.int64(10)) == [1]  # type: ignore[arg-type]
    assert features.vocabulary_lookup(["x"], ["a"], num_oov_buckets=np.int32(1)).tolist() == [1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: features.string_to_hash_bucket_fast(["a"], 2.5), "num_buckets"),  # type: ignore[arg-type]
        (lambda: features.string_to_hash_bucket_fast(["a"], None), "num_buckets"),  # type: ignore[arg-type]
        (lambda: features.fingerprint64(np.array(["a", None], np.dtypes.StringDType(na_object=None))), "strings"),
        (lambda: features.fingerprint_cat64([1.5], [1]), "first"),
        (lambda: features.fingerprint_cat64([1], ["a"]), "second"),
        (lambda: features.fingerprint_cat64([1, 2], [1, 2, 3]), "second"),
        (lambda: features.bucketize(np.array(["a"], np.dtypes.StringDType()), [0]), "input"),
        (lambda: features.bucketize([1.0], ["a"]), "boundaries"),  # type: ignore[list-item]
        (lambda: features.vocabulary_lookup([1, 2.5], [1, 2]), "input"),
        (lambda: features.vocabulary_lookup([None], ["None"]), "input"),
        (lambda: features.vocabulary_lookup(["\ud800"], ["a"]), "input"),
        (lambda: features.vocabulary_lookup(["a"], None), "vocabulary"),
        (lambda: features.vocabulary_lookup(["1"], [1]), "vocabulary"),
        (lambda: features.vocabulary_lookup(["x"], ["a"], num_oov_buckets=-1), "num_oov_buckets"),
        (lambda: features.vocabulary_lookup(["x"], ["a"], default_value=0.5), "default_value"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_is_named(call: Callable[[], object], argument: str) -> None:
    with pytest.raises(rowgrad.errors.RowgradError) as info:
        call()
    assert info.value.argument == argument
