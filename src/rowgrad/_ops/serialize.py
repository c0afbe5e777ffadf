"""Sparse tensors as text: three TensorProto messages each, of the indices, the values and the shape."""

from itertools import pairwise

import numpy as np

from rowgrad._ops import checks
from rowgrad._ops.broadcasting import Known, Result
from rowgrad._ops.catalogue import OPERATORS, REQUIRED, Attribute, Example, Operator, declare
from rowgrad._ops.pins import Pin
from rowgrad._ops.results import StoredEntries
from rowgrad._ops.sparse_groups import check_entries, outside, sizes_of
from rowgrad._ops.tensor_protos import BadProtoError, content, decode, encode, header
from rowgrad._runtime.dtypes import PLAIN, QUANTISED, Array, name_of
from rowgrad._runtime.memory import allocate, check_room
from rowgrad._runtime.text_columns import make_bytes
from rowgrad.errors import DTypeError, InvalidArgumentError

LONGEST = 4096  # entries of rows that are written by a kernel
PARTS = ("sparse_indices", "sparse_values", "sparse_shape")


def _serialize(sparse_indices: Array, sparse_values: Array, sparse_shape: Array, *, out_type: str = "string") -> Array:
    for name, array, rank in zip(PARTS, (sparse_indices, sparse_values, sparse_shape), (2, 1, 1), strict=True):
        checks.rank(name, array, rank)
        check_room(2 * array.nbytes, name)
    found = np.empty(3, object)
    found[:] = [encode(sparse_indices), encode(sparse_values), encode(sparse_shape)]
    return found


def rows_of(indices: Array, values: Array, shape: Array) -> tuple[tuple[int, ...], Array]:
    """The shape of a sparse tensor that is cut into its rows, and where each of them begins among the entries."""
    check_entries("sparse_values", values, indices, shape, "sparse_")
    sizes = sizes_of("sparse_shape", shape)
    if len(sizes) < 2:
        raise InvalidArgumentError(
            f"sparse_shape is {list(sizes)}; there must be 2 dimensions or more, the first of which is cut. "
            "Use SerializeSparse, or expand it.",
            code="wrong-rank", argument="sparse_shape", value=sizes,
        )  # fmt: skip
    if ((indices < 0) | (indices >= np.array(sizes, np.int64))).any():
        raise outside("sparse_indices", indices, sizes, range(len(sizes)), "sparse_shape")
    change = np.diff(indices, axis=0)
    first = np.take_along_axis(change, (change != 0).argmax(axis=1)[:, None], 1)[:, 0]
    if (first <= 0).any():
        position = int((first <= 0).argmax()) + 1
        raise InvalidArgumentError(
            f"sparse_indices[{position}] is {indices[position].tolist()}, after {indices[position - 1].tolist()}; "
            "indices must ascend, and none may occur twice. Use SparseReorder.",
            code="unsorted-indices", argument="sparse_indices", position=position, value=tuple(indices[position]),
        )  # fmt: skip
    check_room(sizes[0] * 64, "sparse_shape")
    return sizes, np.searchsorted(indices[:, 0], np.arange(sizes[0] + 1))


def _serialize_many(sparse_indices: Array, sparse_values: Array, sparse_shape: Array, *,
                    out_type: str = "string") -> Array:  # fmt: skip
    sizes, starts = rows_of(sparse_indices, sparse_values, sparse_shape)
    check_room(2 * (sparse_indices.nbytes + sparse_values.nbytes), "sparse_values")
    rank, kind, width = len(sizes) - 1, name_of(sparse_values.dtype), sparse_values.itemsize
    found = np.empty((sizes[0], 3), object)
    found[:, 2] = encode(np.array(sizes[1:], np.int64))
    longest = int(np.diff(starts).max(initial=0))
    inner = np.frombuffer(bytearray(content(sparse_indices[:, 1:])), np.uint8)
    # Rows with as many entries begin with the same bytes.
    heads = [header("int64", (n, rank), 8 * n * rank) for n in range(longest + 1)] if longest <= LONGEST else []
    has_made = bool(heads) and make_bytes(found[:, 0], inner, 8 * rank, starts, heads)
    spans = [] if has_made and kind != "string" else [*pairwise(starts.tolist())]
    if not has_made:
        found[:, 0] = [encode(sparse_indices[begin:end, 1:]) for begin, end in spans]
    if kind == "string":
        found[:, 1] = [encode(sparse_values[begin:end]) for begin, end in spans]
        return found
    heads = [header(kind, (n,), n * width) for n in range(longest + 1)] if heads else []
    values = np.frombuffer(bytearray(content(sparse_values)), np.uint8)
    if not (heads and make_bytes(found[:, 1], values, width, starts, heads)):
        found[:, 1] = [encode(sparse_values[begin:end]) for begin, end in spans or pairwise(starts.tolist())]
    return found


# Reading


def _bad(position: tuple[int, ...], message: str) -> InvalidArgumentError:
    place = ", ".join(map(str, position))
    return InvalidArgumentError(f"serialized_sparse[{place}] {message} Pass the result of SerializeSparse.",
                                code="bad-proto", argument="serialized_sparse", position=position)  # fmt: skip


def _read(serialized: Array, row: int, dtype: str) -> tuple[Array, Array, Array]:
    """One sparse tensor; each part must be of its type and rank."""
    parts = []
    for column, (what, kind, rank) in enumerate((("indices", "int64", 2), ("values", dtype, 1), ("shape", "int64", 1))):
        text = serialized[row, column]
        try:
            array = decode(text if isinstance(text, bytes) else str(text).encode())
        except BadProtoError as error:
            raise _bad((row, column), f"is not a tensor: {error}.") from None
        if name_of(array.dtype) != kind:
            raise DTypeError(f"serialized_sparse[{row}, {column}] has {what} of {name_of(array.dtype)}, not of {kind}.",
                             code="wrong-dtype", argument="serialized_sparse", value=name_of(array.dtype))  # fmt: skip
        if array.ndim != rank:
            raise _bad((row, column), f"has {what} of shape {list(array.shape)}, not of {rank} dimensions.")
        parts.append(array)
    indices, values, shape = parts
    if values.size != len(indices) or shape.size != indices.shape[1]:
        raise _bad((row,), f"has indices of shape {list(indices.shape)}, {values.size} values and a shape of "
                   f"{shape.size} dimensions, which do not fit.")  # fmt: skip
    return indices, values, shape


def stack(parts: list[tuple[Array, Array, Array]], argument: str) -> StoredEntries:
    """Sparse tensors of one rank as one, with a dimension more; each of the others is as long as the longest."""
    rank = parts[0][2].size
    for position, (_, _, shape) in enumerate(parts):
        if shape.size != rank:
            raise InvalidArgumentError(
                f"{argument}[{position}] is of a tensor with {shape.size} dimensions, the first one has {rank}; all "
                "must have the same number.",
                code="wrong-rank", argument=argument, position=position, value=shape.size,
            )  # fmt: skip
        sizes_of(argument, shape)
    entries = sum(len(values) for _, values, _ in parts)
    indices = allocate((entries, rank + 1), np.int64, argument=argument)
    start = 0
    for row, (part, _, _) in enumerate(parts):
        indices[start : start + len(part), 0] = row
        indices[start : start + len(part), 1:] = part
        start += len(part)
    shape = np.array([len(parts), *np.max([shape for _, _, shape in parts], axis=0)], np.int64)
    sizes_of(argument, shape)
    return StoredEntries(indices, np.concatenate([values for _, values, _ in parts]), shape)


def _deserialize(serialized_sparse: Array, *, dtype: str) -> StoredEntries:
    before = serialized_sparse.shape
    if not before or before[-1] != 3:
        raise InvalidArgumentError(f"serialized_sparse has shape {list(before)}; the last dimension must have 3 "
                                   "elements: indices, values and shape.", code="wrong-shape",
                                   argument="serialized_sparse", value=before)  # fmt: skip
    rows = serialized_sparse.reshape(-1, 3)
    if not len(rows):
        raise InvalidArgumentError(f"serialized_sparse has shape {list(before)}; there must be at least one tensor.",
                                   code="empty", argument="serialized_sparse", value=before)  # fmt: skip
    if len(before) == 1:
        return StoredEntries(*_read(rows, 0, dtype))
    found = stack([_read(rows, row, dtype) for row in range(len(rows))], "serialized_sparse")
    after = np.array([*before[:-1], *found.sparse_shape[1:]], np.int64)
    if len(before) == 2:
        return found
    reshaped = OPERATORS["SparseReshape"].compute(found.sparse_indices, found.sparse_shape, after)
    return StoredEntries(reshaped.output_indices, found.sparse_values, after)


def _rows_shape(shapes: Known, values: Known, attributes: Known) -> Result:
    return {"serialized_sparse": (int(values["sparse_shape"][0]) if "sparse_shape" in values else None, 3)}


def _entries_shape(shapes: Known, values: Known, attributes: Known) -> Result:
    return {"sparse_indices": (None, None), "sparse_values": (None,), "sparse_shape": (None,)}


# Declarations

TYPES = (*PLAIN, *QUANTISED)
NO_ROOM = "OutOfMemoryError: the result does not fit into memory"
WRONG_TYPE = "DTypeError: a type that is not listed"
ENTRIES = (
    Pin("sparse_indices", "int64", "[entries, rank]", "The index of each entry."),
    Pin("sparse_values", "T", "[entries]", "The value of each entry."),
    Pin("sparse_shape", "int64", "[rank]", "The shape of the sparse tensor."),
)
OUT_TYPE = Attribute("out_type", "string", "The type of the result; only string is supported.", "dtype")
STORED = (
    Pin("sparse_indices", "int64", "[M, r]", "The index of each entry."),
    Pin("sparse_values", "dtype", "[M]", "The value of each entry."),
    Pin("sparse_shape", "int64", "[r]", "The shape of the sparse tensor."),
)
OF_TYPE = Attribute("dtype", REQUIRED, "The type that the values must have.", "dtype")
NO_TENSOR = (
    "InvalidArgumentError: a string is not a TensorProto, or indices, values and shape do not match",
    "DTypeError: the values have another type",
)
TEXTS = [
    b'\x08\t\x12\x08\x12\x02\x08\x01\x12\x02\x08\x01"\x08\x01\0\0\0\0\0\0\0',
    b'\x08\x03\x12\x04\x12\x02\x08\x01"\x04\x05\0\0\0',
    b'\x08\t\x12\x04\x12\x02\x08\x01"\x08\x02\0\0\0\0\0\0\0',
]
# The same with elements in the fields of their types, where TensorFlow reads them too.
SHORT = [
    "\x08\t\x12\x08\x12\x02\x08\x01\x12\x02\x08\x01R\x01\x01",
    "\x08\x03\x12\x04\x12\x02\x08\x01:\x01\x05",
    "\x08\t\x12\x04\x12\x02\x08\x01R\x01\x02",
]


declare(Operator(
    name="SerializeSparse",
    function=None,
    family="serialize",
    summary="Serialize a sparse tensor as three strings: indices, values and shape as TensorProto messages.",
    inputs=ENTRIES,
    outputs=(Pin("serialized_sparse", "string", "[3]", "The messages."),),
    types={"T": TYPES, "out_type": ("string",)},
    attributes=(OUT_TYPE,),
    formula="serialized_sparse = TensorProto(sparse_indices), TensorProto(sparse_values), TensorProto(sparse_shape)",
    errors=("InvalidArgumentError: sparse_indices is not a matrix, or sparse_values or sparse_shape not a vector",
            NO_ROOM, WRONG_TYPE),
    cost="O(bytes).",
    example=Example({"sparse_indices": [[1]], "sparse_values": [5], "sparse_shape": [2]},
                    {"serialized_sparse": TEXTS}),
    compute=_serialize,
    shape_rule=lambda shapes, values, attributes: {"serialized_sparse": (3,)},
    notes="Lengths are not compared, as in TensorFlow.",
))  # fmt: skip
declare(Operator(
    name="SerializeManySparse",
    function=None,
    family="serialize",
    summary="Serialize each row of a sparse tensor as three strings.",
    inputs=ENTRIES,
    outputs=(Pin("serialized_sparse", "string", "[rows, 3]", "The messages of each row."),),
    types={"T": TYPES, "out_type": ("string",)},
    attributes=(OUT_TYPE,),
    formula="serialized_sparse[i] = SerializeSparse(row i)",
    errors=("InvalidArgumentError: ranks and lengths do not match, there is one dimension only, or indices do "
            "not ascend", "OutOfRangeError: an index is not within sparse_shape", NO_ROOM, WRONG_TYPE),
    cost="O(bytes + rows).",
    example=Example({"sparse_indices": [[0, 1]], "sparse_values": [5], "sparse_shape": [1, 2]},
                    {"serialized_sparse": [TEXTS]}),
    compute=_serialize_many,
    shape_rule=_rows_shape,
))  # fmt: skip
declare(Operator(
    name="DeserializeSparse",
    function=None,
    family="serialize",
    summary="Deserialize a sparse tensor; several are stacked.",
    inputs=(Pin("serialized_sparse", "Tserialized", "[...]", "The messages of SerializeSparse, [..., 3]."),),
    outputs=STORED,
    types={"dtype": TYPES, "Tserialized": ("string",)},
    attributes=(OF_TYPE,),
    formula="the tensors, stacked along the dimensions of serialized_sparse before the last",
    errors=("InvalidArgumentError: the last dimension is not 3, there are no tensors, or they differ in rank",
            *NO_TENSOR, NO_ROOM),
    cost="O(bytes).",
    example=Example({"serialized_sparse": SHORT},
                    {"sparse_indices": [[1]], "sparse_values": [5], "sparse_shape": [2]},
                    attributes={"dtype": "int32"}),
    compute=_deserialize,
    result=StoredEntries,
    shape_rule=_entries_shape,
    notes="Tensors of different lengths get the longest of each dimension.",
))  # fmt: skip
declare(Operator(
    name="DeserializeManySparse",
    function=None,
    family="serialize",
    summary="Deserialize a sparse tensor from its serialized rows.",
    inputs=(Pin("serialized_sparse", "string", "[rows, 3]", "The messages of SerializeManySparse."),),
    outputs=STORED,
    types={"dtype": TYPES},
    attributes=(OF_TYPE,),
    formula="sparse tensor whose row i is DeserializeSparse(serialized_sparse[i])",
    errors=("InvalidArgumentError: serialized_sparse is not [rows, 3], there are no rows, or they differ in rank",
            *NO_TENSOR, NO_ROOM),
    cost="O(bytes).",
    example=Example({"serialized_sparse": [SHORT]},
                    {"sparse_indices": [[0, 1]], "sparse_values": [5], "sparse_shape": [1, 2]},
                    attributes={"dtype": "int32"}),
    compute=_deserialize,
    result=StoredEntries,
    shape_rule=_entries_shape,
))  # fmt: skip
