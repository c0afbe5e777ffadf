"""Hashes of text: TensorFlow's recorded ones, the same from every kind of column, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad import features, raw_ops

RECORDED = json.loads((Path(__file__).parent.parent / "data" / "features-tensorflow-2.21.json").read_text())
LARGEST = 2**63 - 1
WORDS = ["", "a", "žluťoučký kůň", "日本語", "😀" * 9, "x" * 100, "plain ascii text"]


def objects(strings: list[Any]) -> Any:
    array = np.empty(len(strings), object)
    array[:] = strings
    return array


STRINGS = objects([bytes.fromhex(string) for string in RECORDED["strings"]])


def test_recorded_hashes() -> None:
    assert features.string_to_hash_bucket_fast(STRINGS, LARGEST).tolist() == RECORDED["fast"]
    assert features.string_to_hash_bucket_strong(STRINGS, LARGEST, [3, -4]).tolist() == RECORDED["strong"]
    assert features.string_to_hash_bucket(STRINGS, LARGEST).tolist() == RECORDED["older"]
    assert raw_ops.StringToHashBucket(STRINGS, num_buckets=LARGEST).tolist() == RECORDED["older"]


def test_known_hashes() -> None:
    """The first value of SipHash's own test vectors, whose key is 00 01 02 … 0f."""
    key = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
    assert features.siphash64([b""], key).tolist() == [0x726FDB47DD0E0E31]
    assert features.siphash64([bytes(range(15))], key).tolist() == [0xA129CA6149BE45E5]
    assert features.fingerprint64([""]).tolist() == [0x9AE16A3B2F90404F]


@pytest.mark.parametrize("kind", ["objects", "bytes", "fixed width", "variable width", "other byte order",
                                  "fixed bytes", "list", "every second", "square", "read-only"])  # fmt: skip
def test_every_kind_of_column(kind: str) -> None:
    encoded = [word.encode() for word in WORDS]
    expected = features.fingerprint64(objects(encoded))
    columns: dict[str, Any] = {
        "objects": objects(WORDS),
        "bytes": objects(encoded),
        "fixed width": np.array(WORDS),
        "variable width": np.array(WORDS, np.dtypes.StringDType()),
        "other byte order": np.array(WORDS).astype(np.array(WORDS).dtype.newbyteorder()),
        "fixed bytes": np.array(encoded),
        "list": WORDS,
        "every second": np.array([item for word in WORDS for item in (word, "no")])[::2],
        "square": np.array(WORDS[:6]).reshape(2, 3),
        "read-only": np.array(WORDS),
    }
    if kind == "read-only":
        columns[kind].flags.writeable = False
    found = features.fingerprint64(columns[kind])
    if kind == "square":
        assert found.shape == (2, 3)
        expected = expected[:6].reshape(2, 3)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["string", "large_string", "binary", "large_binary"])
def test_arrays_of_pyarrow(kind: str) -> None:
    pa = framework("pyarrow")
    words = [word.encode() for word in WORDS] if "binary" in kind else WORDS
    column = pa.array(words, getattr(pa, kind)())
    expected = features.fingerprint64(WORDS)
    np.testing.assert_array_equal(features.fingerprint64(column), expected)
    np.testing.assert_array_equal(features.fingerprint64(column[2:5]), expected[2:5])
    chunked = pa.chunked_array([column[:3], column[3:]])
    np.testing.assert_array_equal(features.fingerprint64(chunked), expected)
    assert features.fingerprint64(column[:0]).size == 0
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        features.fingerprint64(pa.array([None, *words], column.type))
    assert info.value.code == "has-nulls"
    with pytest.raises(rowgrad.DTypeError):
        features.fingerprint64(pa.array([1, 2]))


@pytest.mark.parametrize("kind", [str, bytes])
def test_strings_of_segments_are_joined_in_their_order(kind: Any) -> None:
    random = np.random.default_rng(3)
    words = [word if kind is str else word.encode() for word in WORDS]
    inputs = np.array([[words[i] for i in row] for row in random.integers(0, len(WORDS), (40, 2))], object)
    ids = random.integers(0, 9, 40)
    found = raw_ops.UnsortedSegmentJoin(inputs, ids, 10, separator="; ")
    between = "; " if kind is str else b"; "
    for segment in range(10):
        for column in range(2):
            expected = type(between)()
            for i in np.flatnonzero(ids == segment):  # as in TensorFlow: no separator behind nothing
                expected += (between if expected else expected) + inputs[i, column]
            assert found[segment, column] == expected


def test_zeros_at_the_end_count_in_lists() -> None:
    assert len(set(features.fingerprint64(["a", "a\0", b"a\0\0"]).tolist())) == 3


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowgrad._runtime.threads.GRAIN", 1)
    rowgrad.set_num_threads(threads)
    words = np.array([f"word number {number}" for number in range(2000)])
    one_by_one = np.array([int(features.fingerprint64(word)) for word in words[::97]], np.uint64)
    np.testing.assert_array_equal(features.fingerprint64(words)[::97], one_by_one)


@pytest.mark.parametrize("sizes", ["all", "1 to 3", "4 to 16", "17 and more"])
@pytest.mark.parametrize("count", [1, 7, 64, 200])
def test_batches_of_any_sizes(sizes: str, count: int) -> None:
    """Strings are hashed in batches, short ones side by side; each as it is hashed alone."""
    low, high = {"all": (0, 10**6), "1 to 3": (1, 3), "4 to 16": (4, 16), "17 and more": (17, 10**6)}[sizes]
    fitting = [i for i, text in enumerate(STRINGS) if low <= len(text) <= high]
    chosen = np.random.default_rng(count).choice(fitting, count)
    expected = [RECORDED["fast"][i] for i in chosen]
    assert raw_ops.StringToHashBucketFast(STRINGS[chosen], num_buckets=LARGEST).tolist() == expected
    assert (features.fingerprint64(STRINGS[chosen]) % np.uint64(LARGEST)).tolist() == expected
    packed = features.string_to_hash_bucket_fast(STRINGS[chosen].astype("S"), 1000)
    trimmed = objects([text.rstrip(b"\0") for text in STRINGS[chosen]])
    assert packed.tolist() == [int(features.fingerprint64([text])[0]) % 1000 for text in trimmed]


@pytest.mark.parametrize("buckets", [1, 2, 3, 641, 10**6, 2**32 - 1, 2**32, 2**32 + 1, 2**62 + 1, LARGEST])
def test_remainders_of_any_number_of_buckets(buckets: int) -> None:
    hashes = features.fingerprint64(STRINGS)
    expected = [int(found) % buckets for found in hashes]
    assert features.string_to_hash_bucket_fast(STRINGS, buckets).tolist() == expected


@pytest.mark.parametrize("odd", [None, 3.5])
@pytest.mark.parametrize("threads", [1, 2, 5, 40])
def test_threads_made_for_a_call_that_holds_the_gil(
    threads: int, odd: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowgrad._runtime.team.team", lambda work, most: (0, 1))
    monkeypatch.setattr("rowgrad._runtime.threads.NEW_THREAD_GRAIN", 1 << 16)
    rowgrad.set_num_threads(threads)
    chosen = np.random.default_rng(1).integers(0, len(STRINGS), 50_000)
    column = STRINGS[chosen]
    if odd is None:
        found = raw_ops.StringToHashBucketFast(column, num_buckets=LARGEST)
        np.testing.assert_array_equal(found, np.array(RECORDED["fast"])[chosen])
    else:
        column[31_234] = odd
        with pytest.raises(rowgrad.DTypeError, match="input has a float in it"):
            raw_ops.StringToHashBucketFast(column, num_buckets=LARGEST)


def test_two_fingerprints_in_their_order() -> None:
    mask, factor = 2**64 - 1, 0xC6A4A7935BD1E995

    def mixed(value: int) -> int:
        return value ^ value >> 47

    def both(one: int, other: int) -> int:
        found = (one ^ factor ^ mixed(other * factor & mask) * factor & mask) * factor & mask
        return mixed(mixed(found) * factor & mask)

    first, second = features.fingerprint64(WORDS), features.fingerprint64(WORDS[::-1])
    expected = [both(int(one), int(other)) for one, other in zip(first, second, strict=True)]
    assert features.fingerprint_cat64(first, second).tolist() == expected


@pytest.mark.parametrize(
    ("call", "error", "argument"),
    [
        (lambda: raw_ops.StringToHashBucketFast(["a"], num_buckets=0), rowgrad.InvalidArgumentError, "num_buckets"),
        (lambda: raw_ops.StringToHashBucketFast([1], num_buckets=1), rowgrad.DTypeError, "input"),
        (lambda: raw_ops.StringToHashBucketStrong(["a"], num_buckets=1, key=[1]), rowgrad.InvalidArgumentError, "key"),
        (lambda: features.fingerprint64(["a", 1]), rowgrad.DTypeError, "strings"),
        (lambda: features.fingerprint64(np.arange(3)), rowgrad.DTypeError, "strings"),
        (lambda: features.fingerprint64(np.array(["a", "\ud800"])), rowgrad.InvalidArgumentError, "strings"),
        (lambda: features.fingerprint64(["a", "\ud800"]), rowgrad.InvalidArgumentError, "strings"),
    ],
)
def test_what_is_wrong_is_named(call: Any, error: Any, argument: str) -> None:
    with pytest.raises(error) as info:
        call()
    assert info.value.argument == argument


@pytest.mark.parametrize("kind", [object, "S3", "U3"])
def test_no_strings_have_no_hashes(kind: Any) -> None:
    for strings in (np.array([], kind), np.empty((0, 2), kind)):
        found = features.fingerprint64(strings)
        assert (found.dtype, found.shape) == (np.dtype(np.uint64), strings.shape)


class _Text(str):
    """A string that is no plain `str`."""


@pytest.mark.parametrize("odd", [None, "caf\xe9", "\u4e2d", _Text("own"), "", "zero\0inside", "long" * 5000])
def test_many_objects_are_read_as_few_are(odd: str | None) -> None:
    """Many are read by a kernel, if all are `bytes` or ASCII; few, and all others, by Python."""
    texts: list[Any] = [f"feature {i}" if i % 3 else b"bytes %d" % i for i in range(2000)]
    if odd is not None:
        texts[1234] = odd
    many = raw_ops.StringToHashBucketFast(np.array(texts, object), num_buckets=10**9)
    few = [raw_ops.StringToHashBucketFast(np.array(texts[at : at + 100], object), num_buckets=10**9)
           for at in range(0, len(texts), 100)]  # fmt: skip
    np.testing.assert_array_equal(many, np.concatenate(few))


def test_objects_that_are_no_text_are_refused() -> None:
    with pytest.raises(rowgrad.DTypeError, match="input has a float in it"):
        raw_ops.StringToHashBucketFast(np.array([b"a"] * 1000 + [1.5], object), num_buckets=10)


@pytest.mark.parametrize("size", [3, 5000])
def test_what_is_no_text_is_named(size: int) -> None:
    words = np.array([b"a"] * size, object)
    words[1] = None
    with pytest.raises(rowgrad.DTypeError, match="NoneType") as caught:
        features.fingerprint64(words)
    assert (caught.value.code, caught.value.position) == ("wrong-dtype", 1)


def test_empty_strings_that_a_join_begins_with() -> None:
    found = raw_ops.UnsortedSegmentJoin(["", "", "a", "", "b"], [0, 0, 1, 1, 1], 2, separator="-")
    assert found.tolist() == ["", "a--b"]
