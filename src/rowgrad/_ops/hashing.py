"""Hashes of text, as TensorFlow makes them: FarmHash's fingerprints, the keyed SipHash, and buckets of both; joins."""

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.catalogue import REQUIRED, Attribute, Example, Operator, declare
from rowgrad._ops.pins import Pin
from rowgrad._runtime.dtypes import IDS, Array
from rowgrad._runtime.memory import allocate, check_room
from rowgrad._runtime.text_columns import TextColumn, column_of, layout
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError

FAST, STRONG, OLDER = "fingerprints", "strong_hashes", "older_hashes"


def hash_column(column: TextColumn, kind: str, buckets: int = 0, key: tuple[int, int] | None = None) -> Array:
    """The hash of each string, as uint64, or, where there are `buckets`, the remainder."""
    output = allocate(column.size, np.uint64)
    keys = () if key is None else tuple(np.uint64(part % 2**64) for part in key)
    workers = Workers(column.data.size + 16 * column.size)
    kernel = getattr(kernels.hash_batches if kind == FAST else kernels.hashes, kind)
    workers.run(kernel, *column, column.size, _divisor(buckets), *keys, output)
    return output


@lru_cache(256)
def _divisor(buckets: int) -> Array:
    return kernels.hashes.divisor(buckets)  # type: ignore[no-any-return]


def hash_numbers(values: Array, kind: str, key: tuple[int, int] | None = None) -> Array:
    """The hash of the low four bytes of each number, which is all that TensorFlow's SparseCrossHashed looks at."""
    data = values.astype("<i8").astype("<u4").view(np.uint8)
    begins = np.arange(values.size, dtype=np.int64) * 4
    return hash_column(TextColumn(data, begins, begins + 4), kind, 0, key)


def check_key(key: Any, argument: str = "key") -> tuple[int, int]:
    """Two whole numbers of 64 bits."""
    parts = list(key) if isinstance(key, list | tuple | np.ndarray) else []
    if len(parts) != 2 or not all(isinstance(part, int | np.integer) and not isinstance(part, bool) for part in parts):
        raise InvalidArgumentError(
            f"{argument} is {key!r}; it must be two whole numbers.",
            code="wrong-attribute",
            argument=argument,
            value=repr(key),
        )
    return int(parts[0]), int(parts[1])


def check_buckets(num_buckets: Any, least: int = 1) -> int:
    """A number of buckets of 63 bits."""
    number = checks.count("num_buckets", num_buckets, None)
    if not least <= number < 2**63:
        raise InvalidArgumentError(
            f"num_buckets is {number}; it must be {least} or more, and less than 2**63.",
            code="wrong-attribute",
            argument="num_buckets",
            value=number,
        )
    return number


def buckets_of(value: Any, argument: str, kind: str, num_buckets: int, key: tuple[int, int] | None = None) -> Array:
    """The bucket of each string of an ndarray or of an array of pyarrow, in its shape."""
    found = hash_column(column_of(value, argument), kind, check_buckets(num_buckets), key).view(np.int64)
    return found.reshape(value.shape) if isinstance(value, np.ndarray) else found


def _fast(input: Array, *, num_buckets: int) -> Array:
    if input.dtype.kind == "O" and (known := layout()) is not None and input.flags.c_contiguous:
        by, output = _divisor(check_buckets(num_buckets)), allocate(input.shape, np.int64)
        workers = Workers.with_gil(32 * input.size)
        if workers.run(kernels.objects.fingerprints, input.__array_interface__["data"][0], input.size, known, by,
                       output.reshape(-1).view(np.uint64), np.empty(workers.chunks, np.int64)) < 0:  # fmt: skip
            return output
    return buckets_of(input, "input", FAST, num_buckets)


def _strong(input: Array, *, num_buckets: int, key: Any) -> Array:
    return buckets_of(input, "input", STRONG, num_buckets, check_key(key))


def _older(string_tensor: Array, *, num_buckets: int) -> Array:
    return buckets_of(string_tensor, "string_tensor", OLDER, num_buckets)


def _same_shape(shapes: Mapping[str, Any], values: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    (shape,) = shapes.values() if shapes else (None,)
    return {"output": shape}


# UnsortedSegmentJoin


def _join(inputs: Array, segment_ids: Array, num_segments: Any, *, separator: str = "") -> Array:
    segments = checks.count("num_segments", num_segments)
    check_room(16 * segments, "num_segments")
    if segment_ids.ndim == 0 or inputs.shape[: segment_ids.ndim] != segment_ids.shape:
        raise InvalidArgumentError(
            f"segment_ids has shape {list(segment_ids.shape)}, and inputs {list(inputs.shape)}; the former must have "
            "one dimension or more, and be those that inputs begins with.",
            code="shape-mismatch",
            argument="segment_ids",
            value=segment_ids.shape,
        )
    ids, tail = segment_ids.reshape(-1), inputs.shape[segment_ids.ndim :]
    wrong = (ids < 0) | (ids >= segments)
    if wrong.any():
        position = int(wrong.argmax())
        raise checks.out_of_range("segment_ids", position, int(ids[position]), segments, "num_segments",
                                  "index-out-of-range", "Drop the entry, or fix the id.")  # fmt: skip
    order = np.argsort(ids, kind="stable")
    counts = np.bincount(ids, minlength=segments)
    texts = inputs.reshape(ids.size, prod(tail))[order]
    is_bytes = inputs.dtype.kind == "S" or (inputs.dtype.kind == "O" and any(isinstance(x, bytes) for x in inputs.flat))
    between: Any = separator.encode() if is_bytes else separator
    columns, stops = texts.T.tolist(), np.concatenate([[0], np.cumsum(counts)]).tolist()
    if is_bytes:
        columns = [[text if isinstance(text, bytes) else text.encode() for text in column] for column in columns]
    output = np.empty((segments, texts.shape[1]), object)
    for at, column in enumerate(columns):
        output[:, at] = [_joined_text(between, column[begin:end]) for begin, end in pairwise(stops)]
    found = output.reshape(segments, *tail)
    return found if is_bytes or not found.size else found.astype(str)


def _joined_text(between: Any, texts: list[Any]) -> Any:
    """As in TensorFlow, nothing stands between empty strings at the beginning and what follows."""
    first = next((at for at, text in enumerate(texts) if text), len(texts))
    return between.join(texts[first:])


def _join_shape(shapes: Mapping[str, Any], values: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    inputs, ids, count = shapes.get("inputs"), shapes.get("segment_ids"), values.get("num_segments")
    if inputs is None or ids is None:
        return {"output": None}
    return {"output": (None if count is None else int(count), *inputs[len(ids) :])}


NUM_BUCKETS = Attribute("num_buckets", REQUIRED, "How many buckets there are, 1 or more.", "int")
KEY = Attribute("key", REQUIRED, "The key: two whole numbers.", "list")
ERRORS = (
    "InvalidArgumentError: num_buckets is less than 1",
    "InvalidArgumentError: a string has a lone surrogate",
    "OutOfMemoryError: the result does not fit into memory",
    "DTypeError: the input is not text",
)


def _declare(name: str, summary: str, pin: str, formula: str, compute: Any, outputs: list[int],
             attributes: Mapping[str, Any], errors: tuple[str, ...] = ERRORS) -> None:  # fmt: skip
    declare(Operator(
        name=name,
        function=None,
        family="hashing",
        summary=summary,
        inputs=(Pin(pin, "string", "[...]", "The strings; `str` is hashed as UTF-8.", unread=True),),
        outputs=(Pin("output", "int64", "[...]", "The bucket of each string, from 0 to num_buckets − 1."),),
        types={},
        attributes=(NUM_BUCKETS, KEY) if "key" in attributes else (NUM_BUCKETS,),
        formula=formula,
        errors=errors,
        cost="O(bytes of all strings).",
        example=Example({pin: ["apple", "pear", ""]}, {"output": outputs}, attributes=attributes),
        compute=compute,
        shape_rule=_same_shape,
        notes="The same bits as in TensorFlow, on every machine and in every version.",
    ))  # fmt: skip


_declare("StringToHashBucketFast", "The bucket of each string, by FarmHash's Fingerprint64.", "input",
         "output[i] = Fingerprint64(input[i]) mod num_buckets", _fast, [1, 8, 3], {"num_buckets": 10})  # fmt: skip
_declare("StringToHashBucketStrong", "The bucket of each string, by SipHash-2-4 with a key.", "input",
         "output[i] = SipHash(key, input[i]) mod num_buckets", _strong, [3, 5, 5],
         {"num_buckets": 10, "key": [1, 2]},
         ("InvalidArgumentError: key is not two whole numbers", *ERRORS))  # fmt: skip
_declare("StringToHashBucket", "The bucket of each string, by the older hash, which TensorFlow advises against.",
         "string_tensor", "output[i] = Hash64(string_tensor[i]) mod num_buckets", _older, [0, 3, 9],
         {"num_buckets": 10})  # fmt: skip
declare(Operator(
    name="UnsortedSegmentJoin",
    function=None,
    family="hashing",
    summary="Join the strings of each segment.",
    inputs=(
        Pin("inputs", "string", "[N, ...]", "The strings."),
        Pin("segment_ids", "Tindices", "[N]", "The segment of each, in any order."),
        Pin("num_segments", "Tnumsegments", "[]", "The number of segments."),
    ),
    outputs=(Pin("output", "string", "[num_segments, ...]", "The strings of each segment, in their order."),),
    types={"Tindices": IDS, "Tnumsegments": IDS},
    attributes=(Attribute("separator", "", "The separator between two strings.", "text"),),
    formula="output[s] = the inputs[i] with segment_ids[i] = s, with the separator between them",
    errors=(
        "InvalidArgumentError: segment_ids does not have the leading dimensions of inputs, or num_segments is negative",
        "OutOfRangeError: a segment id is not in [0, num_segments)",
        *ERRORS[2:],
    ),
    cost="O(bytes of all strings + N · log N).",
    example=Example({"inputs": ["a", "b", "c"], "segment_ids": [0, 2, 0], "num_segments": 3},
                    {"output": ["a-c", "", "b"]}, attributes={"separator": "-"}),
    compute=_join,
    shape_rule=_join_shape,
))  # fmt: skip
