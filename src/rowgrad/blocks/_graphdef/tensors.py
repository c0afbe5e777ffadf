"""TensorProtos and ndarrays, of every type that pages know.

Reading is strict: the values must be of the type and number that the shape says, but for the one shorthand that
TensorFlow has: the last value stands for all that follow. What that may grow to is limited, so that a few bytes cannot
ask for all memory.
"""

import math
from typing import Any

import numpy as np

from rowgrad._runtime.dtypes import BFLOAT16, NUMPY, Array, name_of
from rowgrad.blocks.literals import as_text
from rowgrad.errors import PageError

# TensorFlow's numbers for types, and the fields that hold single values of each.
TYPES = {
    "float32": (1, "float_val"), "float64": (2, "double_val"), "int32": (3, "int_val"), "uint8": (4, "int_val"),
    "int16": (5, "int_val"), "int8": (6, "int_val"), "string": (7, "string_val"), "complex64": (8, "scomplex_val"),
    "int64": (9, "int64_val"), "bool": (10, "bool_val"), "qint8": (11, "int_val"), "quint8": (12, "int_val"),
    "qint32": (13, "int_val"), "bfloat16": (14, "half_val"), "qint16": (15, "int_val"), "quint16": (16, "int_val"),
    "uint16": (17, "int_val"), "complex128": (18, "dcomplex_val"), "float16": (19, "half_val"),
    "uint32": (22, "uint32_val"), "uint64": (23, "uint64_val"),
}  # fmt: skip
NUMBER_OF = {name: number for name, (number, _) in TYPES.items()}
NAME_OF = {number: name for name, number in NUMBER_OF.items()}
REF = 100  # what is added to the number of a type for a reference to a variable of it
MOST_GROWN = 256 * 2**20  # bytes that shorthands of one graph may stand for
MOST_RANK = 32


def write_tensor(proto: Any, array: Array) -> None:
    """Fill the TensorProto `proto` with `array`."""
    name = name_of(array.dtype)
    proto.dtype, field = TYPES[name]
    proto.tensor_shape.SetInParent()
    for size in array.shape:
        proto.tensor_shape.dim.add().size = size
    if name == "string":
        proto.string_val.extend(_bytes(item) for item in array.ravel().tolist())
        return
    base = _base(array)
    if base.size == 1 and field not in ("half_val", "scomplex_val", "dcomplex_val") and np.isfinite(base).all():
        getattr(proto, field).extend(base.ravel().tolist())  # as TensorFlow does it: easier to read in text
    else:
        little = np.ascontiguousarray(base).astype(base.dtype.newbyteorder("<"), copy=False)
        proto.tensor_content = little.tobytes()


class Reader:
    """Reads TensorProtos of one graph."""

    def __init__(self) -> None:
        self.grown = 0

    def read(self, proto: Any, node: str) -> Array:
        """The array in `proto`; errors name `node`."""
        name = NAME_OF.get(proto.dtype)
        if name is None:
            raise bad(f"a tensor of type {proto.dtype}, which pages do not support", node)
        shape = _shape(proto.tensor_shape, node)
        size = math.prod(shape)
        if name == "string":
            try:
                texts = [as_text(item) for item in proto.string_val]
            except PageError as error:
                raise PageError.of(error, node, "Const") from error
            if not texts and size:
                texts = [""]
            return self._spread(np.array(texts, object), shape, size, node)
        target = NUMPY[name]
        base = target[0] if target.names else target
        if proto.tensor_content:
            if len(proto.tensor_content) != size * base.itemsize:
                raise bad(f"{len(proto.tensor_content)} bytes for {list(shape)} values of {name}", node)
            words = np.dtype(np.uint16) if base == BFLOAT16 else base
            flat = np.frombuffer(proto.tensor_content, words.newbyteorder("<")).astype(words).view(base)
        else:
            flat = self._spread(_values(proto, name, base, node), (size,), size, node)
        return flat.view(target).reshape(shape)

    def _spread(self, values: Array, shape: tuple[int, ...], size: int, node: str) -> Array:
        """`values`, of which the last is repeated until there are `size`."""
        if len(values) > size:
            raise bad(f"{len(values)} values for the shape {list(shape)}", node)
        if len(values) < size:
            self.grown += size * max(values.itemsize, 1)
            if self.grown > MOST_GROWN:
                raise bad(f"a constant of {size} elements that holds {len(values)}; graphs may repeat values up to "
                          f"{MOST_GROWN >> 20} MB in all", node, "too-large")  # fmt: skip
            last = values[-1:] if len(values) else np.zeros(1, values.dtype)
            values = np.concatenate([values, np.repeat(last, size - len(values))])
        return values.reshape(shape)


def _values(proto: Any, name: str, base: "np.dtype[Any]", node: str) -> Array:
    found = list(getattr(proto, TYPES[name][1]))
    if base.kind == "c":
        if len(found) % 2:
            raise bad("half a complex number", node)
        return np.array(found, f"f{base.itemsize // 2}").view(base)
    if name in ("float16", "bfloat16"):
        if not all(0 <= value < 2**16 for value in found):
            raise bad(f"16-bit words that are not in [0, {2**16})", node)
        return np.array(found, np.uint16).view(base)
    if base.kind in "iu":
        limits = np.iinfo(base)
        if not all(limits.min <= value <= limits.max for value in found):
            raise bad(f"a value that {name} cannot hold", node)
    return np.array(found, base)


def _shape(proto: Any, node: str) -> tuple[int, ...]:
    sizes = tuple(dim.size for dim in proto.dim)
    if proto.unknown_rank or any(size < 0 for size in sizes) or len(sizes) > MOST_RANK:
        raise bad("a tensor whose shape is not known, or has more dimensions than arrays can have", node)
    # NumPy multiplies the sizes in 64 bits, also where one of them is 0.
    if math.prod(size or 1 for size in sizes) >= 2**62:
        raise bad(f"a tensor of shape {list(sizes)}, larger than any memory", node, "too-large")
    return sizes


def _base(array: Array) -> Array:
    if array.dtype.names:
        (name,) = array.dtype.names
        array = array[name]
    return array.view(np.uint16) if array.dtype == BFLOAT16 else array


def _bytes(item: Any) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()


def bad(what: str, node: str, code: str = "bad-graphdef") -> PageError:
    """The error of a graph that holds something it must not."""
    return PageError(f"the graph has {what}.", block=node, code=code)
