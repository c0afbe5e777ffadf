"""The functions behind feature columns, for arrays: hashes of text, buckets, crosses and vocabularies.

The hashes and crosses are TensorFlow's to the bit, so a model that was trained with its feature columns finds the same
rows. Text is a NumPy array (objects, StringDType, fixed width), a list, or a pyarrow array, which is not copied; `str`
is hashed as UTF-8.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rowgrad._ops import checks, cross, hashing
from rowgrad._ops.cross import DEFAULT_HASH_KEY
from rowgrad._ops.hashing import FAST, OLDER, STRONG
from rowgrad._ops.pins import Input, Pin
from rowgrad._ops.results import CrossedFeatures
from rowgrad._runtime import arrays, dtypes
from rowgrad._runtime.dtypes import REALS, Array
from rowgrad._runtime.text_columns import column_of, is_arrow
from rowgrad.errors import DTypeError, InvalidArgumentError

__all__ = [
    "bucketize",
    "cross_features",
    "fingerprint64",
    "fingerprint_cat64",
    "siphash64",
    "string_to_hash_bucket",
    "string_to_hash_bucket_fast",
    "string_to_hash_bucket_strong",
    "vocabulary_lookup",
]


def _text(value: Any, argument: str) -> Any:
    """An ndarray of text or an array of pyarrow; lists become objects, which keep zeros at the end of a string."""
    if is_arrow(value):
        return value
    found = np.array(value, object) if isinstance(value, str | bytes | list | tuple) else arrays.adopt(value)
    if found.dtype.kind not in "OSUT":
        raise DTypeError(
            f"{argument} is {found.dtype.name}; it must be text. Convert it first, for example with `.astype(str)`.",
            code="wrong-dtype",
            argument=argument,
            value=found.dtype.name,
        )
    return found


def _shaped(found: Array, value: Any) -> Array:
    return found.reshape(value.shape) if isinstance(value, np.ndarray) else found


def fingerprint64(strings: Any) -> Array:
    """FarmHash's Fingerprint64 of each string, as uint64.

    Examples
    --------
    >>> from rowgrad import features
    >>> features.fingerprint64(["apple", "pear"]).tolist()
    [6447335267136888601, 14886797468258206918]
    """
    text = _text(strings, "strings")
    return _shaped(hashing.hash_column(column_of(text, "strings"), FAST), text)


def fingerprint_cat64(first: Any, second: Any) -> Array:
    """FingerprintCat64, the fingerprint of two fingerprints in their order, element by element, as uint64.

    Examples
    --------
    >>> from rowgrad import features
    >>> int(features.fingerprint_cat64(1, 2))
    14454907135238785252
    """
    one, other = _words("first", first), _words("second", second)
    if any(a != b and 1 not in (a, b) for a, b in zip(one.shape[::-1], other.shape[::-1], strict=False)):
        raise InvalidArgumentError(
            f"first has shape {list(one.shape)}, and second {list(other.shape)}; they cannot be broadcast together.",
            code="shape-mismatch",
            argument="second",
            value=other.shape,
        )
    factor, shift = np.uint64(0xC6A4A7935BD1E995), np.uint64(47)
    with np.errstate(over="ignore"):
        mixed = other * factor
        found = (one ^ factor ^ (mixed ^ mixed >> shift) * factor) * factor
        found = (found ^ found >> shift) * factor
        result: Array = found ^ found >> shift
    return result


def _words(argument: str, value: Any) -> Array:
    """Whole numbers as words of 64 bits."""
    found = arrays.adopt_as(argument, value)
    if found.dtype.kind not in "iu" and found.size:
        name = dtypes.name_of(found.dtype)
        raise DTypeError(
            f"{argument} is {name}; it must be int64 or uint64. Convert it first.",
            code="wrong-dtype",
            argument=argument,
            value=name,
        )
    return found.astype(np.uint64)


def siphash64(strings: Any, key: Sequence[int]) -> Array:
    """SipHash-2-4 of each string with a key of two 64-bit numbers, as uint64.

    Examples
    --------
    >>> from rowgrad import features
    >>> features.siphash64(["apple"], (1, 2)).tolist()
    [2280705998109963863]
    """
    text = _text(strings, "strings")
    return _shaped(hashing.hash_column(column_of(text, "strings"), STRONG, 0, hashing.check_key(key)), text)


def string_to_hash_bucket_fast(input: Any, num_buckets: int) -> Array:
    """The bucket of each string by Fingerprint64, as int64: `tf.strings.to_hash_bucket_fast`.

    Examples
    --------
    >>> from rowgrad import features
    >>> features.string_to_hash_bucket_fast(["apple", "pear"], 10).tolist()
    [1, 8]
    """
    return hashing.buckets_of(_text(input, "input"), "input", FAST, num_buckets)


def string_to_hash_bucket_strong(input: Any, num_buckets: int, key: Sequence[int]) -> Array:
    """The bucket of each string by SipHash with a key, as int64: `tf.strings.to_hash_bucket_strong`.

    Examples
    --------
    >>> from rowgrad import features
    >>> features.string_to_hash_bucket_strong(["apple", "pear"], 10, key=[1, 2]).tolist()
    [3, 5]
    """
    return hashing.buckets_of(_text(input, "input"), "input", STRONG, num_buckets, hashing.check_key(key))


def string_to_hash_bucket(input: Any, num_buckets: int) -> Array:
    """The bucket of each string by TensorFlow's legacy hash, as int64: `tf.strings.to_hash_bucket`.

    Examples
    --------
    >>> from rowgrad import features
    >>> features.string_to_hash_bucket(["apple", "pear"], 10).tolist()
    [0, 3]
    """
    return hashing.buckets_of(_text(input, "input"), "input", OLDER, num_buckets)


def bucketize(input: Any, boundaries: Sequence[float]) -> Array:
    """The number of boundaries that are not larger than each number, as int32: TensorFlow's Bucketize.

    Boundaries are float32 and ascend; NaN is in the last bucket, as in TensorFlow.

    Examples
    --------
    >>> from rowgrad import features
    >>> features.bucketize([-5.0, 0.0, 3.5, 100.0], boundaries=[0, 10, 100]).tolist()
    [0, 1, 1, 3]
    """
    values = Input(Pin("input", "T", "[...]", "The numbers."), REALS).fit(input)
    edges = Input(Pin("boundaries", "T", "[N]", "The limits of buckets."), REALS).fit(boundaries).astype(np.float32)
    checks.rank("boundaries", edges, 1)
    if (edges[1:] < edges[:-1]).any() or np.isnan(edges).any():
        position = int((edges[1:] < edges[:-1]).argmax()) + 1 if not np.isnan(edges).any() else None
        raise InvalidArgumentError(
            "boundaries must ascend, and none may be NaN. Sort them.",
            code="unsorted-boundaries",
            argument="boundaries",
            position=position,
        )
    if values.dtype.kind in "iu":
        values = values.astype(np.float32)  # as whole numbers are compared in TensorFlow
    found: Array = np.searchsorted(edges, values, side="right").astype(np.int32)
    return found


def vocabulary_lookup(input: Any, vocabulary: Any, *, num_oov_buckets: int = 0, default_value: int = -1) -> Array:
    """The position of each string or integer in a vocabulary, as int64.

    Values that are not in it get `default_value`, or, with `num_oov_buckets`, one of that many ids after those of the
    vocabulary: by Fingerprint64 of the string, or of the number as text, as in TensorFlow's tables.

    Examples
    --------
    >>> from rowgrad import features
    >>> features.vocabulary_lookup(["pear", "fig", "apple"], ["apple", "pear"]).tolist()
    [1, -1, 0]
    >>> features.vocabulary_lookup(["fig"], ["apple", "pear"], num_oov_buckets=3).tolist()
    [2]
    """
    values, words = _features(input, "input"), _features(vocabulary, "vocabulary")
    checks.rank("vocabulary", words, 1)
    keys, wanted = _keys(words, "vocabulary"), _keys(values, "input")
    numbers = values.dtype.kind == "i"
    if numbers != (words.dtype.kind == "i") and values.size and words.size:
        raise DTypeError(
            f"input is of {'whole numbers' if numbers else 'text'}, but vocabulary is not; both must be. "
            "Convert one of them.",
            code="wrong-dtype",
            argument="vocabulary",
            value=dtypes.name_of(words.dtype),
        )
    places = dict(zip(keys, range(len(keys)), strict=True))
    if len(places) != len(keys):
        raise InvalidArgumentError(
            "the vocabulary has a word twice; each must have one place.", code="repeated-word", argument="vocabulary"
        )
    buckets = checks.count("num_oov_buckets", num_oov_buckets)
    found = np.fromiter((places.get(word, -1) for word in wanted), np.int64, len(wanted))
    unknown = found < 0
    if unknown.any():
        if buckets > 0:
            rest = values.ravel()[unknown]
            found[unknown] = len(keys) + string_to_hash_bucket_fast(rest.astype("S20") if numbers else rest, buckets)
        else:
            found[unknown] = checks.count("default_value", default_value, None)
    return found.reshape(values.shape)


def _keys(values: Array, argument: str) -> list[Any]:
    """The values as a dict tells them apart: whole numbers, or bytes."""
    if values.dtype.kind == "i":
        return values.ravel().tolist()
    column = column_of(values, argument)
    data = column.data.tobytes()
    return [data[begin:end] for begin, end in zip(column.begins.tolist(), column.ends.tolist(), strict=True)]


def cross_features(columns: Sequence[Any], num_buckets: int, *, hash_key: int = DEFAULT_HASH_KEY) -> CrossedFeatures:
    """Cross columns as TensorFlow's `crossed_column` does: every combination of one feature of each, in buckets.

    Parameters
    ----------
    columns : sequence
        Each a matrix of whole numbers or text; a vector, which has one feature in each row; or a sparse tensor, a tuple
        of indices, values and shape. All have the same number of rows. As in TensorFlow, sparse columns come before
        dense ones.
    num_buckets : int
        The number of buckets; 0 for hashes of 63 bits.
    hash_key : int
        The initial value of hashes; the default is that of `crossed_column`.

    Returns
    -------
    CrossedFeatures
        A sparse tensor of int64, whose values are rows of the crossed column's table.

    Examples
    --------
    >>> from rowgrad import features
    >>> features.cross_features([["a", "b"], [[7], [8]]], 100).output_values.tolist()
    [56, 26]
    """
    sparse: list[cross.Column] = []
    dense: list[cross.Column] = []
    for at, given in enumerate(columns):
        name = f"columns[{at}]"
        if isinstance(given, tuple) and len(given) == 3 and np.ndim(given[0]) == 2:
            indices, values, shape = given
            names = (f"the indices of {name}", f"the values of {name}", f"the shape of {name}")
            sparse.append(cross.of_sparse(names, np.asarray(indices, np.int64), _features(values, name),
                                          np.asarray(shape, np.int64)))  # fmt: skip
        else:
            matrix = _features(given, name)
            dense.append(cross.of_dense(name, matrix[:, None] if matrix.ndim == 1 else matrix))
    batch = cross.batch_of([*sparse, *dense])
    return cross.crossed(batch, cross.cross_values(batch, text=False, num_buckets=num_buckets, hash_key=hash_key))


def _features(value: Any, name: str) -> Array:
    """Whole numbers as int64, or text."""
    if is_arrow(value):
        whole = str(value.type).removeprefix("u").startswith("int") and not value.null_count
        value = value.to_numpy() if whole else np.array(value.to_pylist(), object)
    if isinstance(value, list | tuple):
        items = np.array(value, object).ravel()
        if not items.size or any(isinstance(item, bool) or not isinstance(item, int | np.integer) for item in items):
            return _text(value, name)  # type: ignore[no-any-return]
    found = arrays.adopt_as(name, value)
    return np.ascontiguousarray(found, np.int64) if found.dtype.kind in "iu" else _text(found, name)


def __dir__() -> list[str]:
    return __all__
