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
from rowgrad._runtime import arrays
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
    one, other = (np.asarray(value).astype(np.uint64) for value in (first, second))
    factor, shift = np.uint64(0xC6A4A7935BD1E995), np.uint64(47)
    with np.errstate(over="ignore"):
        mixed = other * factor
        found = (one ^ factor ^ (mixed ^ mixed >> shift) * factor) * factor
        found = (found ^ found >> shift) * factor
        result: Array = found ^ found >> shift
    return result


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
    edges = np.asarray(boundaries, np.float32)
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
    if is_arrow(input):
        input = np.array(input.to_pylist(), object)
    numbers = not isinstance(input, str | bytes | list | tuple) and arrays.adopt(input).dtype.kind in "iu"
    words = np.asarray(vocabulary) if numbers else None
    if isinstance(input, list | tuple) and input and isinstance(input[0], int | np.integer):
        numbers, words = True, np.asarray(vocabulary)
    values = np.asarray(input, np.int64) if numbers else _text(input, "input")
    keys = (
        words.tolist() if words is not None else [_as_bytes(word) for word in _text(vocabulary, "vocabulary").tolist()]
    )
    places = dict(zip(keys, range(len(keys)), strict=True))
    if len(places) != len(keys):
        raise InvalidArgumentError(
            "the vocabulary has a word twice; each must have one place.", code="repeated-word", argument="vocabulary"
        )
    wanted = values.ravel().tolist()
    found = np.fromiter(
        (places.get(word if numbers else _as_bytes(word), -1) for word in wanted), np.int64, len(wanted)
    )
    unknown = found < 0
    if unknown.any():
        if num_oov_buckets > 0:
            rest = values.ravel()[unknown]
            text = rest.astype("S20") if numbers else rest
            found[unknown] = len(keys) + string_to_hash_bucket_fast(text, num_oov_buckets)
        else:
            found[unknown] = default_value
    return found.reshape(values.shape)


def _as_bytes(word: Any) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


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
        value = np.array(value.to_pylist(), object)
    found = np.array(value) if isinstance(value, list | tuple) else arrays.adopt(value)
    if found.dtype.kind in "iu":
        return np.ascontiguousarray(found.astype(np.int64, copy=False))
    return _text(value if isinstance(value, list | tuple) else found, name)  # type: ignore[no-any-return]


def __dir__() -> list[str]:
    return __all__
