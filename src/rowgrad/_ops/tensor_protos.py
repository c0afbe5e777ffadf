"""Arrays as the bytes of TensorFlow's TensorProto messages, and back; neither TensorFlow nor protobuf is needed.

TensorFlow writes the elements as they lie in memory, and reads them from any field that may hold them.
"""

from collections.abc import Iterator
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np

from rowgrad._runtime.dtypes import NUMPY, Array, name_of
from rowgrad._runtime.memory import allocate, check_room

# TensorFlow's numbers of types.
NUMBERS = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "string": 7, "complex64": 8, "int64": 9,
    "bool": 10, "qint8": 11, "quint8": 12, "qint32": 13, "bfloat16": 14, "qint16": 15, "quint16": 16, "uint16": 17,
    "complex128": 18, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip
NAMES = {number: name for name, number in NUMBERS.items()}
DTYPE, SHAPE, CONTENT, STRINGS = 1, 2, 4, 8
# The field that holds elements of each type one by one, and the type that they have there.
FLOAT, DOUBLE, INT, INT64, BOOL, HALF, UINT32, UINT64 = 5, 6, 7, 10, 11, 13, 16, 17
FIXED = {FLOAT: "<f4", DOUBLE: "<f8", 9: "<f4", 12: "<f8"}
FIELDS = {
    "float32": FLOAT, "float64": DOUBLE, "complex64": 9, "complex128": 12, "int64": INT64, "bool": BOOL,
    "float16": HALF, "bfloat16": HALF, "uint32": UINT32, "uint64": UINT64, "string": STRINGS,
}  # fmt: skip
MOST_DIMENSIONS, MOST_ELEMENTS = 254, 2**63 - 1


class BadProtoError(ValueError):
    """Bytes that are no TensorProto, or one that TensorFlow makes no tensor of."""


def varint(number: int) -> bytes:
    """`number` in base 128, the lowest digits first."""
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def header(dtype: str, shape: tuple[int, ...], size: int) -> bytes:
    """What comes before the elements, which take `size` bytes."""
    dimensions = b""
    for length in shape:
        one = b"\x08" + varint(length) if length else b""
        dimensions += b"\x12" + varint(len(one)) + one
    found = b"\x08" + varint(NUMBERS[dtype]) + b"\x12" + varint(len(dimensions)) + dimensions
    return found + b'"' + varint(size) if size else found


def content(array: Array) -> bytes:
    """The elements as TensorFlow keeps them: lengths, then characters, of strings."""
    if name_of(array.dtype) != "string":
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    texts = [text if isinstance(text, bytes) else text.encode() for text in array.ravel().tolist()]
    return b"".join([varint(len(text)) for text in texts]) + b"".join(texts)


def encode(array: Array) -> bytes:
    """`array` as TensorFlow serializes a tensor."""
    elements = content(array)
    return header(name_of(array.dtype), array.shape, len(elements)) + elements


# Reading


def _number(data: bytes, at: int) -> tuple[int, int]:
    found = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        found |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return found & 2**64 - 1, at
    raise BadProtoError("it ends within a number, or a number has more than 64 bits")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: their numbers, with a number or bytes."""
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        field, kind = tag >> 3, tag & 7
        if field == 0 or kind not in (0, 1, 2, 5):
            raise BadProtoError(f"byte {at} begins no field")
        if kind == 0:
            value, at = _number(data, at)
            yield field, value
            continue
        size, at = _number(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        if at + size > len(data):
            raise BadProtoError(f"it has {len(data)} bytes, but a field ends at {at + size}")
        yield field, data[at : at + size]
        at += size


def _shape(data: bytes) -> list[int]:
    sizes = []
    for field, dimension in _fields(data):
        if field == 3 and dimension:
            raise BadProtoError("its rank is not known")
        if field == 2 and isinstance(dimension, bytes):
            sizes.append(next((size for at, size in reversed([*_fields(dimension)]) if at == 1), 0))
    if len(sizes) > MOST_DIMENSIONS or any(size > MOST_ELEMENTS for size in sizes):
        raise BadProtoError("its shape has a negative length or too many dimensions")
    return sizes


def decode(data: bytes) -> Array:
    """The tensor of a TensorProto, or `BadProtoError`."""
    dtype, shape, elements = 0, list[int](), b""
    fields: dict[int, list[Any]] = {}
    for field, value in _fields(data):  # a field of another form than its own is passed over, as by protobuf
        is_bytes = isinstance(value, bytes)
        if field == DTYPE:
            dtype = dtype if is_bytes else value
        elif field == SHAPE and is_bytes:
            shape += _shape(value)
        elif field == CONTENT and is_bytes:
            elements = value
        else:
            fields.setdefault(field, []).append(value)
    if dtype not in NAMES:
        raise BadProtoError(f"it is of type {dtype}, which has no elements")
    name, count = NAMES[dtype], prod(shape)
    if count > MOST_ELEMENTS or (0 in shape and prod(size for size in shape if size) > MOST_ELEMENTS):
        raise BadProtoError("it has too many elements")
    flat = _of_content(name, count, elements) if elements and count else _of_field(name, count, fields)
    return flat.reshape(shape)


def _of_content(name: str, count: int, data: bytes) -> Array:
    if name == "string":
        return _strings(count, data)
    kind = NUMPY[name]
    if len(data) != count * kind.itemsize:
        raise BadProtoError(f"{count} elements of {name} take {count * kind.itemsize} bytes, not {len(data)}")
    if name == "bool":
        return np.not_equal(np.frombuffer(data, np.uint8), 0)
    return np.frombuffer(data, kind.newbyteorder("<")).astype(kind)


def _strings(count: int, data: bytes) -> Array:
    if count > len(data):
        raise BadProtoError(f"there are {count} strings in {len(data)} bytes")
    sizes, at = [], 0
    for _ in range(count):
        size, at = _number(data, at)
        sizes.append(size)
    stops = [*accumulate(sizes, initial=at)]
    if stops[-1] != len(data):
        raise BadProtoError(f"its strings take {stops[-1]} bytes, not {len(data)}")
    found = np.empty(count, object)
    found[:] = [data[begin:end] for begin, end in pairwise(stops)]
    return found


def _of_field(name: str, count: int, fields: dict[int, list[Any]]) -> Array:
    """The elements one by one; the last one stands for those that are missing, and 0 if there are none."""
    field = FIELDS.get(name, INT)
    found = _listed(field, fields.get(field, []))
    if name == "string":
        check_room(8 * count, "serialized_sparse")
    result = np.empty(count, object) if name == "string" else allocate(count, NUMPY[name])
    if name == "string":
        found = np.array([*found, b""], object)[: len(found) or 1]
    elif not len(found):
        found = np.zeros(1, NUMPY[name])
    elif name in ("float16", "bfloat16"):
        found = found.astype(np.uint16).view(NUMPY[name])
    elif name in ("complex64", "complex128"):
        found = found[: found.size // 2 * 2].view(NUMPY[name])
    elif NUMPY[name].names:
        found = found.astype(NUMPY[name][0]).view(NUMPY[name])
    else:
        found = found.astype(NUMPY[name])
    result[: len(found)] = found[:count]
    result[len(found) :] = found[-1]
    return result


def _listed(field: int, parts: list[Any]) -> Array:
    """The elements of a repeated field, packed or not."""
    if field == STRINGS:
        texts = [part for part in parts if isinstance(part, bytes)]
        found = np.empty(len(texts), object)
        found[:] = texts
        return found
    if field in FIXED:
        joined = b"".join(part for part in parts if isinstance(part, bytes))
        if len(joined) % np.dtype(FIXED[field]).itemsize:
            raise BadProtoError(f"field {field} ends within a number")
        return np.frombuffer(joined, FIXED[field]).astype(FIXED[field][1:])
    numbers: list[int] = []
    for part in parts:
        if isinstance(part, int):
            numbers.append(part)
            continue
        at = 0
        while at < len(part):
            number, at = _number(part, at)
            numbers.append(number)
    return np.array(numbers, np.uint64)
