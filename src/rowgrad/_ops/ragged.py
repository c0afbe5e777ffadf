"""Ragged tensors as arrays: values, and for each ragged dimension the row splits between which its rows lie.

Operators under TensorFlow's names: to sparse and dense tensors, and ranges as rows. `ragged_splits` checks row splits,
`ragged_range` computes ranges; `ragged_tensor` has the class that people hold, which is made of these.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.catalogue import REQUIRED, Attribute, Example, Operator, declare
from rowgrad._ops.pins import Pin
from rowgrad._ops.quick import CODE
from rowgrad._ops.ragged_range import ragged_range
from rowgrad._ops.ragged_splits import BAD_SPLITS, NO_ROOM, TYPES, check_nested, check_splits, row_ids
from rowgrad._ops.results import RaggedEntries, RaggedRows
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import IDS, PLAIN, Array
from rowgrad._runtime.memory import allocate, check_room
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError

# RaggedTensorToSparse


def places_of(nested: Sequence[Array]) -> Array:
    """The index of each value: its row in the outermost dimension, then its place in each of the others."""
    if len(nested) == 1:
        (splits,) = nested
        pairs = allocate((int(splits[-1]), 2), np.int64)
        Workers(pairs.nbytes).run(kernels.ragged_rows.index_pairs, splits, splits.size - 1, pairs.reshape(-1))
        return pairs
    columns: list[Array] = []
    for splits in nested:
        rows = row_ids(splits)
        columns = [column[rows] for column in columns] or [rows]
        columns.append(np.arange(int(splits[-1])) - splits[rows])
    return np.stack(columns, axis=1)


def _to_sparse(rt_nested_splits: tuple[Array, ...], rt_dense_values: Array) -> RaggedEntries:
    checks.at_least_vector("rt_dense_values", rt_dense_values)
    nested = check_nested("rt_nested_splits", rt_nested_splits, rt_dense_values.shape[0])
    inner = rt_dense_values.shape[1:]
    check_room(8 * rt_dense_values.size * (len(nested) + 1 + len(inner)), "rt_dense_values")
    indices = places_of(nested)
    if inner:
        rest = np.stack(np.meshgrid(*map(np.arange, inner), indexing="ij"), axis=-1).reshape(-1, len(inner))
        indices = np.concatenate(
            [np.repeat(indices, len(rest), axis=0), np.tile(rest, (rt_dense_values.shape[0], 1))], axis=1
        )
    longest = [int(np.diff(splits).max(initial=0)) for splits in nested]
    shape = np.array([nested[0].size - 1, *longest, *inner], np.int64)
    return RaggedEntries(np.ascontiguousarray(indices, np.int64), rt_dense_values.reshape(-1).copy(), shape)


# RaggedTensorToTensor

INT64 = np.dtype(np.int64)
SPLITS, IDS_OF_ROWS, FIRST = "ROW_SPLITS", "VALUE_ROWIDS", "FIRST_DIM_SIZE"


class _Level(NamedTuple):
    """One ragged dimension: the number of its rows, and how many items each has."""

    rows: int
    lengths: Array

    @property
    def items(self) -> int:
        """How many there are in all rows."""
        return int(self.lengths.sum())

    @property
    def of_items(self) -> Array:
        """The row of each."""
        return np.repeat(np.arange(self.rows), self.lengths)


def _levels(tensors: tuple[Array, ...], kinds: Any) -> list[_Level]:
    kinds = [str(kind) for kind in kinds] if isinstance(kinds, list | tuple) else []
    if not kinds or len(kinds) != len(tensors):
        raise _bad_partition(
            f"there are {len(tensors)} row partitions, and {len(kinds)} types of them; pass one for each."
        )
    if kinds == [SPLITS] * len(kinds):
        counts = [*(splits.size - 1 for splits in tensors[1:]), None]
        found = [check_splits(f"row_partition_tensors[{at}]", *pair)
                 for at, pair in enumerate(zip(tensors, counts, strict=True))]  # fmt: skip
        return [_Level(splits.size - 1, np.diff(splits)) for splits in found]
    if kinds != [FIRST, *[IDS_OF_ROWS] * (len(kinds) - 1)] or len(kinds) == 1:
        raise _bad_partition(
            f"the types of row partitions are {kinds}; they must all be {SPLITS}, or {FIRST} and then {IDS_OF_ROWS}."
        )
    checks.rank("row_partition_tensors[0]", tensors[0], 0)
    rows, levels = max(int(tensors[0]), 0), []
    for at, tensor in enumerate(tensors[1:], 1):
        checks.rank(f"row_partition_tensors[{at}]", tensor, 1)
        ids = tensor.astype(np.int64)
        if ids.size and (ids[0] < 0 or ids.max() >= rows or (ids[1:] < ids[:-1]).any()):
            raise _bad_partition(
                f"row_partition_tensors[{at}] must have ascending rows, from 0 to {rows - 1}. Sort the values."
            )
        levels.append(_Level(rows, np.bincount(ids, minlength=rows)))
        rows = ids.size
    return levels


def _bad_partition(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, code="bad-offsets", argument="row_partition_tensors")


def _wanted(shape: Array, levels: list[_Level], inner: tuple[int, ...]) -> list[int]:
    """The sizes of the dense tensor: those asked for, and for -1 as many as there are."""
    rank = len(levels) + 1 + len(inner)
    found = [levels[0].rows, *(int(level.lengths.max(initial=0)) for level in levels), *inner]
    if shape.ndim == 0:
        if int(shape) != -1:
            raise _bad_shape(f"shape is {int(shape)}; the only number that it may be is -1, for any shape.", shape)
        return found
    checks.rank("shape", shape, 1)
    if shape.size != rank:
        raise _bad_shape(f"shape has {shape.size} sizes, but the ragged tensor has {rank} dimensions.", shape)
    sizes = shape.tolist()
    for axis, (size, there) in enumerate(zip(sizes, found, strict=True)):
        if size < -1 or (axis > len(levels) and size not in (-1, there)):
            allowed = "-1 or more" if size < -1 else f"-1 or {there}"
            raise _bad_shape(f"shape[{axis}] is {size}; it must be {allowed}.", shape)
    return [there if size == -1 else size for size, there in zip(sizes, found, strict=True)]


def _bad_shape(message: str, shape: Array) -> InvalidArgumentError:
    return InvalidArgumentError(
        message, code="shape-mismatch", argument="shape", value=tuple(shape.reshape(-1).tolist())
    )


def _to_tensor(shape: Array, values: Array, default_value: Array, row_partition_tensors: tuple[Array, ...], *,
               row_partition_types: Any) -> Array:  # fmt: skip
    if row_partition_types == [SPLITS] and len(row_partition_tensors) == 1:
        found = _of_row_splits(shape, values, default_value, row_partition_tensors[0])
        if found is not None:
            return found
    checks.at_least_vector("values", values)
    levels = _levels(row_partition_tensors, row_partition_types)
    inner = values.shape[1:]
    sizes = _wanted(shape, levels, inner)
    last = levels[-1].items
    if last > values.shape[0]:
        raise _bad_partition(f"the row partitions name {last} values, but there are {values.shape[0]}.")
    if default_value.ndim > len(inner) or any(
        size not in (1, there) for size, there in zip(default_value.shape[::-1], inner[::-1], strict=False)
    ):
        raise InvalidArgumentError(
            f"default_value has shape {list(default_value.shape)}, which cannot be broadcast to a value of shape "
            f"{list(inner)}.",
            code="shape-mismatch",
            argument="default_value",
            value=default_value.shape,
        )
    is_text = values.dtype.kind in "USOT"
    if not is_text and len(levels) == 1 and 0 not in sizes:
        splits = np.zeros(levels[0].rows + 1, np.int64)
        np.cumsum(levels[0].lengths, out=splits[1:])
        return _filled_rows(splits, values, default_value, sizes)
    dtype = np.result_type(values.dtype, default_value.dtype) if is_text else values.dtype
    result = np.empty(sizes, dtype) if is_text else allocate(tuple(sizes), dtype, argument="shape")
    result[...] = default_value
    places, keep = np.arange(levels[0].rows), np.arange(levels[0].rows) < sizes[0]
    for level, size in zip(levels, sizes[1:], strict=False):
        begins = np.cumsum(level.lengths) - level.lengths
        rows = level.of_items
        inside = np.arange(rows.size) - begins[rows]
        places = places[rows] * size + inside
        keep = keep[rows] & (inside < size)
    flat = result.reshape(-1, *inner)
    if keep.all():
        flat[places] = values[:last]
    else:
        flat[places[keep]] = values[:last][keep]
    return result


def _filled_rows(splits: Array, values: Array, default_value: Array, sizes: list[int]) -> Array:
    """One ragged dimension of numbers, row by row."""
    result = allocate(tuple(sizes), values.dtype, argument="shape")
    if values.ndim == 1:
        default = default_value.reshape(1)
    else:
        default = np.array(np.broadcast_to(default_value, values.shape[1:]), values.dtype, order="C").reshape(-1)
    word, per = dtypes.WORDS[values.itemsize]
    Workers(result.nbytes).run(
        kernels.ragged_rows.fill_rows, splits, min(splits.size - 1, sizes[0]), sizes[1], values.ravel().view(word),
        per * default.size, default.view(word), result.ravel().view(word), key=word,
    )  # fmt: skip
    return result


def _of_row_splits(shape: Array, values: Array, default_value: Array, row_splits: Array) -> Array | None:
    """A ragged matrix of numbers, which most are, in few steps; None if there is more to be said, or an error."""
    if values.ndim != 1 or default_value.ndim or row_splits.ndim != 1 or values.dtype.kind in "USOT":
        return None
    wanted = shape.tolist()
    if shape.shape != (2,) or min(wanted) < -1 or not row_splits.size:
        return None
    splits = np.empty(row_splits.size, INT64)
    longest = CODE[kernels.ragged_rows.copy_splits, row_splits.dtype](row_splits, splits)
    if longest < 0 or splits.item(-1) > values.size:
        return None
    rows, columns = wanted
    sizes = [splits.size - 1 if rows == -1 else rows, longest if columns == -1 else columns]
    return _filled_rows(splits, values, default_value, sizes) if 0 not in sizes else None


def _places(op: Any, d_result: Any, values: Any, row_partition_tensors: Any, row_partition_types: Any) -> Any:
    """The number of the value at each place of the result, -1 where it was filled, as a vector."""
    inner = op.Sub(op.Size(op.Shape(values)), 1)
    shape = op.Slice(op.Shape(d_result), [0], op.Reshape(op.Sub(op.Size(op.Shape(d_result)), inner), [1]))
    places = op.RaggedTensorToTensor(shape, op.Range(0, op.rows(values), 1), -1, list(row_partition_tensors),
                                     row_partition_types=row_partition_types)  # fmt: skip
    return op.Reshape(places, [-1])


def _value_gradient(op: Any, d_result: Any, values: Any, row_partition_tensors: Any, row_partition_types: Any) -> Any:
    places = _places(op, d_result, values, row_partition_tensors, row_partition_types)
    # A negative number is left out.
    return op.UnsortedSegmentSum(_in_rows(op, d_result, values), places, op.rows(values))


def _in_rows(op: Any, d_result: Any, values: Any) -> Any:
    """A gradient of the result with a row for each place, as values have one for each value."""
    return op.Reshape(d_result, op.Concat([[-1], op.Slice(op.Shape(values), [1], [-1])], 0))


def _default_gradient(op: Any, d_result: Any, values: Any, default_value: Any, row_partition_tensors: Any,
                      row_partition_types: Any) -> Any:  # fmt: skip
    places = _places(op, d_result, values, row_partition_tensors, row_partition_types)
    rows = _in_rows(op, d_result, values)
    total = op.ReduceSum(op.UnsortedSegmentSum(rows, op.Sub(-1, places), 1), 0)  # -1 becomes 0, others negative
    axes = op.BroadcastGradientArgs(op.Shape(default_value), op.Shape(total)).r0
    return op.Reshape(op.ReduceSum(total, axes), op.Shape(default_value))


# Declarations

NESTED = Pin(
    "rt_nested_splits", "Tsplits", "[R]", "The row splits of each ragged dimension, outermost first.", True, True
)
VALUES = Pin("values", "T", "[N, ...]", "The values, row after row.")
RANGES = ("bfloat16", "float32", "float64", "int32", "int64")
PARTITIONS = Attribute(
    "row_partition_types", REQUIRED,
    "The type of each of row_partition_tensors: ROW_SPLITS for all, or FIRST_DIM_SIZE and then VALUE_ROWIDS.", "list",
)  # fmt: skip


def _sparse_shapes(
    shapes: Mapping[str, Any], values: Mapping[str, Any], attributes: Mapping[str, Any]
) -> dict[str, Any]:
    return {"sparse_indices": (None, None), "sparse_values": (None,), "sparse_dense_shape": (None,)}


def _tensor_shapes(
    shapes: Mapping[str, Any], values: Mapping[str, Any], attributes: Mapping[str, Any]
) -> dict[str, Any]:
    wanted = values.get("shape")
    if wanted is None or np.ndim(wanted) == 0:
        return {"result": None}
    return {"result": tuple(None if size < 0 else int(size) for size in np.asarray(wanted).tolist())}


def _range_shapes(
    shapes: Mapping[str, Any], values: Mapping[str, Any], attributes: Mapping[str, Any]
) -> dict[str, Any]:
    return {"rt_nested_splits": (None,), "rt_dense_values": (None,)}


declare(Operator(
    name="RaggedTensorToSparse",
    function=None,
    family="ragged",
    summary="Convert a ragged tensor to a sparse one.",
    inputs=(NESTED, Pin("rt_dense_values", "T", "[N, ...]", "The values, row after row.")),
    outputs=(
        Pin("sparse_indices", "int64", "[M, rank]", "The index of each value."),
        Pin("sparse_values", "T", "[M]", "The values."),
        Pin("sparse_dense_shape", "int64", "[rank]", "The number of rows, and the longest of each dimension."),
    ),
    types={"T": PLAIN, "Tsplits": IDS},
    formula="value number j of row i has the index [i, j]",
    errors=(BAD_SPLITS, NO_ROOM, TYPES),
    cost="O(values · rank).",
    example=Example(
        {"rt_nested_splits": [[0, 2, 2, 3]], "rt_dense_values": [1.0, 2.0, 3.0]},
        {"sparse_indices": [[0, 0], [0, 1], [2, 0]], "sparse_values": [1.0, 2.0, 3.0], "sparse_dense_shape": [3, 2]},
    ),
    compute=_to_sparse,
    result=RaggedEntries,
    shape_rule=_sparse_shapes,
    gradient={
        "rt_dense_values": lambda op, d_sparse_values, rt_dense_values: op.Reshape(
            d_sparse_values, op.Shape(rt_dense_values)
        )
    },
))  # fmt: skip
declare(Operator(
    name="RaggedTensorToTensor",
    function=None,
    family="ragged",
    summary="Convert a ragged tensor to a dense one, with padded rows.",
    inputs=(
        Pin("shape", "Tshape", "[rank]", "The shape; -1 for a size that follows from the rows. Longer rows are cut."),
        VALUES,
        Pin("default_value", "T", "[...]", "The padding value: a number, or of the shape of a value."),
        Pin("row_partition_tensors", "Tindex", "[...]", "How values lie in rows, outermost first.", True, True),
    ),
    outputs=(Pin("result", "T", "[...]", "The dense tensor."),),
    types={"T": PLAIN, "Tshape": IDS, "Tindex": IDS},
    attributes=(PARTITIONS,),
    formula="result[i, j] = value number j of row i, or default_value",
    errors=(
        "InvalidArgumentError: row partitions do not match one another, or to the values",
        "InvalidArgumentError: shape or default_value does not match the values",
        NO_ROOM,
        TYPES,
    ),
    cost="O(values + size of the result).",
    example=Example(
        {"shape": [-1, -1], "values": [1.0, 2.0, 3.0], "default_value": 0.0, "row_partition_tensors": [[0, 2, 2, 3]]},
        {"result": [[1.0, 2.0], [0.0, 0.0], [3.0, 0.0]]}, attributes={"row_partition_types": ["ROW_SPLITS"]},
    ),
    compute=_to_tensor,
    bounds_ids=True,
    notes="Row ids that decrease are rejected; TensorFlow drops some of their values, or reads outside of the values.",
    shape_rule=_tensor_shapes,
    gradient={"values": _value_gradient, "default_value": _default_gradient},
))  # fmt: skip
declare(Operator(
    name="RaggedRange",
    function=None,
    family="ragged",
    summary="Ranges of numbers, one in each row.",
    inputs=(
        Pin("starts", "T", "[...]", "The first number of each row, or of all."),
        Pin("limits", "T", "[...]", "The end of each row, exclusive."),
        Pin("deltas", "T", "[...]", "The step of each row."),
    ),
    outputs=(
        Pin("rt_nested_splits", "Tsplits", "[R]", "Where each row begins and ends."),
        Pin("rt_dense_values", "T", "[N]", "The numbers, row after row."),
    ),
    types={"T": RANGES, "Tsplits": IDS},
    attributes=(Attribute("Tsplits", "int64", "The type of the row splits.", "dtype"),),
    formula="row i = starts[i], starts[i] + deltas[i], … as long as it is before limits[i]",
    errors=(
        "InvalidArgumentError: an input is not a number or a vector, or vectors differ in length",
        "InvalidArgumentError: a step is 0, or a range has no end",
        NO_ROOM,
        TYPES,
    ),
    cost="O(values).",
    example=Example({"starts": [0, 5, 8], "limits": [3, 5, 12], "deltas": 2},
                    {"rt_nested_splits": [0, 2, 2, 4], "rt_dense_values": [0, 2, 8, 10]}),
    compute=ragged_range,
    result=RaggedRows,
    notes="Floating-point numbers are added up step by step, as TensorFlow does.",
    shape_rule=_range_shapes,
))  # fmt: skip
