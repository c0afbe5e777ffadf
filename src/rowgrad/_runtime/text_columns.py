"""Columns of text as kernels take them: one array of bytes, and where each string begins and ends.

Strings are what NumPy calls text (fixed-width, variable-width or objects), and the arrays of pyarrow, whose memory is
used as it is. `str` is encoded as UTF-8, as TensorFlow has it.
"""

import ctypes
import sys
import sysconfig
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._runtime.arrays import settle
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.memory import allocate
from rowgrad._runtime.threads import Workers
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfMemoryError

WIDE = 1 << 27  # characters that strings of one width may take together


MANY = 512  # objects for which a kernel is faster than Python


class TextColumn(NamedTuple):
    """The strings data[begins[i]:ends[i]]."""

    data: Array
    begins: Array
    ends: Array

    @property
    def size(self) -> int:
        """How many strings there are."""
        return self.begins.size


def is_arrow(value: Any) -> bool:
    """Whether `value` is an array of pyarrow, or several in a row."""
    return type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "type")


def column_of(value: Any, argument: str) -> TextColumn:
    """The column of an ndarray of text, or of an array of pyarrow."""
    if is_arrow(value):
        return _of_arrow(value, argument)
    kind = value.dtype.kind
    if kind == "S":
        return _of_bytes(np.ascontiguousarray(value))
    if kind == "T":
        try:
            longest = int(np.strings.str_len(value).max(initial=0))
        except ValueError:  # of what is missing there is no length
            missing = sum(not isinstance(text, str) for text in value.ravel().tolist())
            raise _has_nulls(argument, missing, "Fill them first") from None
        if longest * value.size < WIDE:
            return _of_points(value.astype(f"U{max(longest, 1)}"), argument)
    if kind == "U":
        return _of_points(np.ascontiguousarray(value), argument)
    flat = np.ascontiguousarray(value).reshape(-1) if kind == "O" else value.ravel()
    return (_gathered(flat) if kind == "O" else None) or _of_objects(flat.tolist(), argument)


def are_text(objects: Array) -> bool:
    """Whether all objects of an array are `str` or `bytes`."""
    known = layout() if objects.size >= MANY and objects.flags.c_contiguous else None
    if known is not None and kernels.objects.are_text(objects.ctypes.data, objects.size, known):
        return True
    return set(map(type, objects.ravel().tolist())) <= {str, bytes} or all(
        isinstance(item, str | bytes) for item in objects.flat
    )


def _gathered(objects: Array) -> TextColumn | None:
    """The column of a vector of objects, if all are `bytes` or ASCII; None if they are not, or cannot be read."""
    known = layout()
    if known is None or objects.size < MANY:
        return None
    offsets, nbytes = allocate(objects.size + 1, np.int64), 32 * objects.size
    for _ in range(3):  # other threads may change the objects between two tries
        data = allocate(nbytes + 8, np.uint8)
        total = kernels.objects.gather(
            objects.ctypes.data, objects.size, known, data.ctypes.data, data.nbytes, offsets
        )  # fmt: skip
        if total < 0:
            return None
        if total + 8 <= data.nbytes:
            return TextColumn(data, offsets[:-1], offsets[1:])
        nbytes = total + total // 8
    return None


@cache
def layout() -> Array | None:
    """Where this Python has the data of its strings (see `kernels.objects`); None if it is not known."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED") or sys.maxsize < 2**62:
        return None
    plain, accented = "".join(["ab", "cd"]), "".join(["ab", "c\xe9"])
    state, header = 4, sys.getsizeof("") - 1
    words = [ctypes.c_int64.from_address(id(text) + 8 * state).value for text in (plain, accented)]
    # One bit tells the two apart: in the first byte, or from Python 3.14 on in the third. Others are not written.
    changes = (words[0] ^ words[1]) & words[0]
    is_ascii = changes & 0xFF or changes & 0xFF0000
    known = np.array([id(bytes), id(str), bytes.__basicsize__ - 1, header, state, is_ascii], np.int64)
    # It is tried on strings that are known before it is relied on.
    found = ctypes.string_at(id(plain) + header, 4), ctypes.string_at(id(b"wxyz") + bytes.__basicsize__ - 1, 4)
    heads = [[ctypes.c_int64.from_address(id(item) + 8 * word).value for word in (1, 2)] for item in (plain, b"wxyz")]
    is_known = found == (b"abcd", b"wxyz") and heads == [[id(str), 4], [id(bytes), 4]]
    return known if is_known and is_ascii.bit_count() == 1 and header % 8 == 0 else None


def make_bytes(target: Array, data: Array, width: int, begins: Array, heads: list[bytes] | None = None) -> bool:
    """Fill a column of objects with `bytes`: object i has the items begins[i] to begins[i + 1] of `width` bytes each.

    `heads` has what stands before each number of items. Tells whether this Python can do that.
    """
    known = layout()
    if known is None:
        return False
    head = np.frombuffer(bytearray(b"".join(heads or []) + b"\0"), np.uint8)
    ends = np.concatenate([[0], np.cumsum([len(one) for one in heads])]) if heads else np.empty(0, np.int64)
    made = kernels.objects.make_bytes(
        _interface(), known, target.ctypes.data, target.strides[0] // 8, len(target), head, ends, data, width, begins
    )
    if made < len(target):
        raise OutOfMemoryError(f"there is no memory for text {made} of {len(target)}.", code="out-of-memory")
    return True


@cache
def _interface() -> Array:
    """The addresses of the functions of Python that `kernels.objects.make_bytes` calls."""
    functions = ("PyBytes_FromStringAndSize", "Py_DecRef", "PyErr_Clear")
    return np.array([ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in functions],
                    np.int64)  # fmt: skip


def _of_bytes(array: Array) -> TextColumn:
    width, size = array.dtype.itemsize, array.size
    data = _bytes(array)
    begins, ends = np.arange(size, dtype=np.int64) * width, allocate(size, np.int64)
    Workers(data.size).run(kernels.hashes.trimmed_ends, data, width, size, ends)
    return TextColumn(data, begins, ends)


def _bytes(array: Array) -> Array:
    flat = array.reshape(-1)
    data: Array = flat.view(np.uint8) if flat.dtype.itemsize else np.empty(0, np.uint8)
    return data if data.flags.writeable else data.copy()


def _of_points(array: Array, argument: str) -> TextColumn:
    width, size = array.dtype.itemsize // 4, array.size
    if width == 0:
        return TextColumn(np.empty(0, np.uint8), np.zeros(size, np.int64), np.zeros(size, np.int64))
    points = np.require(array.reshape(-1), array.dtype.newbyteorder("="), ["A", "W"]).view(np.uint32)
    workers = Workers(points.nbytes)
    offsets, wrong = allocate(size + 1, np.int64), np.full(workers.chunks, -1, np.int64)
    offsets[0] = 0
    workers.run(kernels.hashes.utf8_sizes, points, width, size, offsets[1:], wrong)
    if (wrong >= 0).any():
        raise _no_text(argument, int(wrong[wrong >= 0].min()))
    np.cumsum(offsets, out=offsets)
    data = allocate(int(offsets[-1]), np.uint8, argument=argument)
    workers.run(kernels.hashes.utf8_bytes, points, width, size, offsets, data)
    return TextColumn(data, offsets[:-1], offsets[1:])


def _has_nulls(argument: str, count: int, remedy: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{argument} has {count} nulls, which have no hash. {remedy}.",
        code="has-nulls",
        argument=argument,
        value=count,
    )


def _no_text(argument: str, position: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{argument} has a lone surrogate in string {position}, which UTF-8 has no bytes for. Fix the text.",
        code="bad-text",
        argument=argument,
        position=position,
    )


def _of_objects(strings: list[Any], argument: str) -> TextColumn:
    """All of `str`, or all of `bytes`, or of both, which takes longer."""
    try:
        return _joined("\0".join(strings).encode(), strings)
    except UnicodeEncodeError:
        position = next(i for i, text in enumerate(strings) if any(0xD800 <= ord(c) < 0xE000 for c in text))
        raise _no_text(argument, position) from None
    except TypeError:
        if set(map(type, strings)) <= {bytes, np.bytes_}:
            return _joined(b"\0".join(strings), strings)
    odd = next((i for i, text in enumerate(strings) if not isinstance(text, str | bytes)), None)
    if odd is not None:
        kind = type(strings[odd]).__name__
        raise DTypeError(
            f"{argument} has a {kind} in it; it must be text. Convert it first, for example with `.astype(str)`.",
            code="wrong-dtype",
            argument=argument,
            position=odd,
            value=kind,
        )
    parts = [text if isinstance(text, bytes) else text.encode() for text in strings]
    return _joined(b"\0".join(parts), parts)


def _joined(data: bytes, parts: list[Any]) -> TextColumn:
    """Strings with a zero between them, which tells where each ends, unless one has a zero in it."""
    array = settle(np.frombuffer(data, np.uint8))
    stops = np.flatnonzero(array == 0)
    if stops.size == len(parts) - 1:
        return TextColumn(array, np.concatenate([[0], stops + 1]), np.concatenate([stops, [array.size]]))
    sizes = np.array([len(part if isinstance(part, bytes) else part.encode()) for part in parts], np.int64)
    ends = np.cumsum(sizes + 1) - 1
    return TextColumn(array, ends - sizes, ends)


def _of_arrow(value: Any, argument: str) -> TextColumn:
    if hasattr(value, "combine_chunks"):
        value = value.combine_chunks() if value.num_chunks != 1 else value.chunk(0)
    if hasattr(value, "dictionary_decode"):
        value = value.dictionary_decode()
    kind = str(value.type)
    if kind.endswith("_view"):
        kind = f"large_{kind.removesuffix('_view')}"
        value = value.cast(kind)
    offset_types = {"string": np.int32, "binary": np.int32, "large_string": np.int64, "large_binary": np.int64}
    if kind not in offset_types:
        raise DTypeError(
            f"{argument} is an array of pyarrow of type {kind}; allowed: {', '.join(offset_types)}. Cast it first.",
            code="wrong-dtype",
            argument=argument,
            value=kind,
        )
    if value.null_count:
        raise _has_nulls(argument, value.null_count, "Fill them first: `.fill_null('')`")
    if len(value) == 0:
        return TextColumn(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    _, offsets, data = value.buffers()
    places = np.frombuffer(offsets, offset_types[kind])[value.offset : value.offset + len(value) + 1]
    text = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return TextColumn(settle(text), settle(places[:-1]), settle(places[1:]))
