"""Hashes of text, as TensorFlow makes them: FarmHash's fingerprints, the keyed SipHash, and buckets of both."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops.catalogue import REQUIRED, Attribute, Example, Operator, declare
from rowgrad._ops.pins import Pin
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.memory import allocate
from rowgrad._runtime.text_columns import TextColumn, column_of
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError

FAST, STRONG, OLDER = "fingerprints", "strong_hashes", "older_hashes"


def hash_column(column: TextColumn, kind: str, buckets: int = 0, key: tuple[int, int] | None = None) -> Array:
    """The hash of each string, as uint64, or, where there are `buckets`, the remainder."""
    output = allocate(column.size, np.uint64)
    keys = () if key is None else tuple(np.uint64(part % 2**64) for part in key)
    workers = Workers(column.data.size + 16 * column.size)
    workers.run(getattr(kernels.hashes, kind), *column, column.size, np.uint64(buckets), *keys, output)
    return output


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


def check_buckets(num_buckets: int, least: int = 1) -> int:
    """A number of buckets of 63 bits."""
    if not least <= num_buckets < 2**63:
        raise InvalidArgumentError(
            f"num_buckets is {num_buckets}; it must be {least} or more, and less than 2**63.",
            code="wrong-attribute",
            argument="num_buckets",
            value=num_buckets,
        )
    return num_buckets


def buckets_of(value: Any, argument: str, kind: str, num_buckets: int, key: tuple[int, int] | None = None) -> Array:
    """The bucket of each string of an ndarray or of an array of pyarrow, in its shape."""
    found = hash_column(column_of(value, argument), kind, check_buckets(num_buckets), key).view(np.int64)
    return found.reshape(value.shape) if isinstance(value, np.ndarray) else found


def _fast(input: Array, *, num_buckets: int) -> Array:
    return buckets_of(input, "input", FAST, num_buckets)


def _strong(input: Array, *, num_buckets: int, key: Any) -> Array:
    return buckets_of(input, "input", STRONG, num_buckets, check_key(key))


def _older(string_tensor: Array, *, num_buckets: int) -> Array:
    return buckets_of(string_tensor, "string_tensor", OLDER, num_buckets)


def _same_shape(shapes: Mapping[str, Any], values: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    (shape,) = shapes.values() if shapes else (None,)
    return {"output": shape}


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
        inputs=(Pin(pin, "string", "[...]", "The strings; `str` is hashed as UTF-8."),),
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
