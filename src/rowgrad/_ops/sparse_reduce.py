"""Reductions of sparse tensors along some of their dimensions, to dense and to sparse ones."""

from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.broadcasting import Known, Result, of_rank, one_axis, sizes
from rowgrad._ops.catalogue import Attribute, Example, Operator, Rule, declare
from rowgrad._ops.pins import Pin
from rowgrad._ops.results import SparseEntries
from rowgrad._ops.sparse_groups import Groups, check_entries, group, outside, sizes_of
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import IDS, NUMBERS, REALS, Array
from rowgrad._runtime.memory import allocate, place
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError

PACKET = 32  # bytes that TensorFlow reduces side by side
ADD, LARGER, LARGER_LATER = 0, 2, 3


class Way(NamedTuple):
    """How values of one type are reduced."""

    stored: "np.dtype[Any]"
    sums: "np.dtype[Any]"
    parts: int
    start: Array
    packed_kind: Array
    kind: Array
    lanes: Array


@lru_cache(maxsize=256)
def _way(name: str, dtype: "np.dtype[Any]") -> Way:
    is_max = name == "Max"
    signed = np.dtype(f"i{dtype.itemsize}") if dtype.kind == "u" and not is_max else dtype
    stored, sums, parts = dtypes.summing(signed)
    start = np.zeros(1, sums)
    if is_max:
        info: Any = np.iinfo(dtype) if dtype.kind in "iu" else ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        start[0] = info.min if dtype.kind in "iu" else -np.inf
    kind_of = kernels.segments.kind_of
    kinds = kind_of(LARGER if is_max else ADD), kind_of(LARGER_LATER if is_max else ADD)
    return Way(stored, sums, parts, start, *kinds, kernels.lanes.lanes_for(sums, PACKET // sums.itemsize))


def reduce_groups(name: str, groups: Groups, values: Array) -> Array:
    """One value for each group."""
    stored, sums, parts, start, packed_kind, kind, lanes = _way(name, values.dtype)
    output = allocate((groups.starts.size - 1,), values.dtype)
    if output.size == 0:
        return output
    chunks, depth = groups.workers.chunks, kernels.sparse_reduce.DEPTH
    groups.workers.run(
        kernels.sparse_reduce.reduce_groups, groups.starts, groups.in_order(values).view(stored), packed_kind, kind,
        start, lanes, None if parts == 2 else parts, np.empty(chunks * 3 * depth, np.int64),
        np.empty(chunks * 2 * depth, sums), output.view(stored), key=(name, values.dtype),
    )  # fmt: skip
    return output


def _axes(input_shape: Any, reduction_axes: Any) -> tuple[int, ...]:
    """The axes to reduce, each once, ascending; TensorFlow takes them twice too."""
    axes = np.asarray(reduction_axes)
    if axes.ndim > 1:
        raise InvalidArgumentError(
            f"reduction_axes has shape {list(axes.shape)}; it must be a scalar or a vector. Reshape it.",
            code="wrong-rank",
            argument="reduction_axes",
            value=axes.shape,
        )
    rank = len(input_shape)
    given = axes.reshape(-1).tolist()
    return tuple(sorted({axis % rank if -rank <= axis < rank else one_axis("reduction_axes", axis, rank)
                         for axis in given}))  # fmt: skip


def _reduced_shape(shapes: Known, values: Known, attributes: Known) -> Result:
    of_rank("input_indices", shapes.get("input_indices"), 2)
    of_rank("input_values", shapes.get("input_values"), 1)
    known = sizes("input_shape", shapes, values)
    if known is None or "reduction_axes" not in values:
        return {"output": None}
    return {"output": _without(known, _axes(known, values["reduction_axes"]), attributes.get("keep_dims"))}


def _entries_shape(shapes: Known, values: Known, attributes: Known) -> Result:
    left = _reduced_shape(shapes, values, attributes)["output"]
    rank = None if left is None else len(left)
    return {"output_indices": (None, rank), "output_values": (None,), "output_shape": (rank,)}


def _ids_shape(shapes: Known, values: Known, attributes: Known) -> Result:
    return {"segment_ids": of_rank("input_indices", shapes.get("input_indices"), 2)[:1]}


def _without(shape: Any, axes: tuple[int, ...], keep_dims: Any) -> tuple[Any, ...]:
    if keep_dims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _prepared(values: Array, indices: Array, input_shape: Array, reduction_axes: Any) -> tuple[Any, tuple[int, ...]]:
    check_entries("input_values", values, indices, input_shape)
    shape = sizes_of("input_shape", input_shape)
    return shape, _axes(shape, reduction_axes)


def _dense(name: str, input_indices: Array, input_values: Array, input_shape: Array, reduction_axes: Any, *,
           keep_dims: bool = False, out: Array | None = None) -> Array:  # fmt: skip
    shape, axes = _prepared(input_values, input_indices, input_shape, reduction_axes)
    output = place(out, _without(shape, axes, keep_dims), input_values.dtype, argument="input_shape", zero=True)
    groups = group(input_indices, axes)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    sizes_kept = np.array([shape[axis] for axis in kept], np.int64)
    if (groups.indices.view(np.uint64) >= sizes_kept.view(np.uint64)).any():  # as which negative ones are large
        raise outside("input_indices", input_indices, shape, kept, "input_shape")
    places = groups.indices[:, 0] if len(kept) == 1 else groups.indices @ strides(sizes_kept.tolist())
    output.reshape(-1)[places] = reduce_groups(name, groups, input_values)
    return output


def strides(shape: Any) -> Array:
    """How many places further the next index of each dimension is."""
    return np.array([prod(shape[axis + 1 :]) for axis in range(len(shape))], np.int64)


def _sparse(name: str, input_indices: Array, input_values: Array, input_shape: Array, reduction_axes: Any, *,
            keep_dims: bool = False) -> SparseEntries:  # fmt: skip
    shape, axes = _prepared(input_values, input_indices, input_shape, reduction_axes)
    groups = group(input_indices, axes)
    indices = groups.indices
    if keep_dims and axes:
        indices = np.zeros((len(indices), len(shape)), np.int64)
        indices[:, [axis for axis in range(len(shape)) if axis not in axes]] = groups.indices
    values = reduce_groups(name, groups, input_values)
    return SparseEntries(indices, values, np.array(_without(shape, axes, keep_dims), np.int64))


def _segments(input_indices: Array, input_shape: Array, reduction_axes: Any, *, dense: bool = False,
              out: Array | None = None) -> Array:  # fmt: skip
    checks.rank("input_indices", input_indices, 2)
    checks.rank("input_shape", input_shape, 1)
    checks.same_length("input_shape", input_shape.size, "a row of input_indices", input_indices.shape[1])
    shape = sizes_of("input_shape", input_shape)
    axes, input_indices = _axes(shape, reduction_axes), input_indices.astype(np.int64, copy=False)
    output = place(out, input_indices.shape[:1], np.int64, argument="input_indices", zero=False)
    if dense:
        kept = [axis for axis in range(len(shape)) if axis not in axes]
        steps = np.zeros(len(shape), np.int64)
        steps[kept] = strides([shape[axis] for axis in kept])
        limits = np.array([size if axis in kept else -1 for axis, size in enumerate(shape)], np.int64)
        workers = Workers(output.size * (8 * len(shape) + 8))
        bad = np.empty(workers.chunks, np.int64)
        if workers.run(kernels.sparse_reduce.locate, input_indices.reshape(-1), len(shape), steps, limits, output, bad):
            raise outside("input_indices", input_indices, shape, kept, "input_shape")
    else:
        output[...] = group(input_indices, axes).number()
    return output


# Declarations

ENTRIES = (
    Pin("input_indices", "int64", "[N, rank]", "The index of each entry, in any order."),
    Pin("input_values", "T", "[N]", "The value of each entry."),
    Pin("input_shape", "int64", "[rank]", "The shape of the sparse tensor."),
)
AXES = Pin("reduction_axes", "int32", "[axes]", "The dimensions to reduce, a vector or one; negative ones count from "
           "the last.")  # fmt: skip
KEEP = Attribute("keep_dims", False, "Whether to keep a reduced dimension, with length 1.")
ERRORS = (
    "InvalidArgumentError: input_indices is not a matrix, or input_values or input_shape not a vector",
    "InvalidArgumentError: input_values is not as long as input_indices, or input_shape not as long as its rows",
    "InvalidArgumentError: a length of input_shape is negative, or reduction_axes not a scalar or a vector",
    "OutOfRangeError: an axis is not within the dimensions of input_shape",
)
NO_ROOM = "OutOfMemoryError: the result does not fit into memory"
WRONG_TYPE = "DTypeError: a type that is not listed"
EXAMPLE = {"input_indices": [[0, 0], [0, 2], [1, 1]], "input_values": [1.0, 2.0, 3.0], "input_shape": [2, 3],
           "reduction_axes": [1]}  # fmt: skip
WHAT = {"Sum": "Add up", "Max": "Take the largest of"}
BY = {"Sum": "Σ", "Max": "the largest"}
NOTES = {
    "Sum": "The entries of a group are added in the order of their indices, as Eigen does it in TensorFlow: see "
    "docs/exactness.md. Half and bfloat16 are summed in float32 and rounded once.",
    "Max": "Places without entries are 0, as in TensorFlow. A NaN is left out, unless it is the last of the entries "
    "behind the last whole packet of 8 (4 of float64).",
}


def _rule(name: str, dense: bool) -> Rule:
    if dense and name == "Sum":
        return lambda op, d_output, input_indices, input_shape, reduction_axes: op.SegmentSumGrad(
            op.Reshape(d_output, [-1]),
            op.SparseReduceSegments(input_indices, input_shape, reduction_axes, dense=True),
        )
    if dense:
        return lambda op, d_output, input_values, output, input_indices, input_shape, reduction_axes: op.SegmentMaxGrad(
            op.Reshape(d_output, [-1]), input_values, op.Reshape(output, [-1]),
            op.SparseReduceSegments(input_indices, input_shape, reduction_axes, dense=True),
        )  # fmt: skip
    if name == "Sum":
        return lambda op, d_output_values, input_indices, input_shape, reduction_axes: op.SegmentSumGrad(
            d_output_values, op.SparseReduceSegments(input_indices, input_shape, reduction_axes)
        )
    return lambda op, d_output_values, input_values, output_values, input_indices, input_shape, reduction_axes: (
        op.SegmentMaxGrad(d_output_values, input_values, output_values,
                          op.SparseReduceSegments(input_indices, input_shape, reduction_axes))
    )  # fmt: skip


def _declare(name: str) -> None:
    shared: dict[str, Any] = {
        "family": "sparse_reduce",
        "inputs": (*ENTRIES, AXES),
        "types": {"T": NUMBERS if name == "Sum" else REALS},
        "attributes": (KEEP,),
        "cost": "O(N · rank · log(places)); sorted entries are detected and not sorted again.",
        "notes": NOTES[name],
    }
    declare(Operator(
        name=f"SparseReduce{name}",
        function=f"sparse_reduce_{name.lower()}",
        summary=f"{WHAT[name]} the entries of a sparse tensor along some dimensions; the result is dense.",
        outputs=(Pin("output", "T", "[...]", "The dense tensor; places without entries are 0."),),
        formula=f"output[k] = {BY[name]} of input_values[i] over the i whose index is k in the dimensions that stay",
        errors=(*ERRORS, "OutOfRangeError: an index is not within input_shape in a dimension that stays", NO_ROOM,
                WRONG_TYPE),
        example=Example(EXAMPLE, {"output": [3.0, 3.0] if name == "Sum" else [2.0, 3.0]}),
        compute=partial(_dense, name),
        shape_rule=_reduced_shape,
        options=("out",),
        gradient={"input_values": _rule(name, True)},
        **shared,
    ))  # fmt: skip
    declare(Operator(
        name=f"SparseReduce{name}Sparse",
        function=f"sparse_reduce_{name.lower()}_sparse",
        summary=f"{WHAT[name]} the entries of a sparse tensor along some dimensions; the result is sparse.",
        outputs=(
            Pin("output_indices", "int64", "[G, r]", "The index of each group of entries, ascending."),
            Pin("output_values", "T", "[G]", "Its value."),
            Pin("output_shape", "int64", "[r]", "The shape that is left."),
        ),
        formula=f"output_values[g] = {BY[name]} of input_values[i] over the i whose index is output_indices[g] in the "
        "dimensions that stay",
        errors=(*ERRORS, NO_ROOM, WRONG_TYPE),
        example=Example(
            EXAMPLE, {"output_indices": [[0], [1]], "output_values": [3.0, 3.0] if name == "Sum" else [2.0, 3.0],
                      "output_shape": [2]}),
        compute=partial(_sparse, name),
        shape_rule=_entries_shape,
        gradient={"input_values": _rule(name, False)},
        result=SparseEntries,
        **{**shared, "notes": shared["notes"] + " Indices are not compared with input_shape, as in TensorFlow."},
    ))  # fmt: skip


for _name in WHAT:
    _declare(_name)

declare(Operator(
    name="SparseReduceSegments",
    function="sparse_reduce_segments",
    raw_only=True,
    family="sparse_reduce",
    summary="Number the entries of a sparse tensor by the place that a reduction brings them to.",
    inputs=(*(Pin(pin.name, "Tindices", pin.shape, pin.doc) for pin in (ENTRIES[0], ENTRIES[2])), AXES),
    outputs=(Pin("segment_ids", "int64", "[N]", "The number of each entry's group, or its place in the result."),),
    types={"Tindices": IDS},
    attributes=(Attribute("dense", False, "Whether to number the places of the dense result, not the groups that "
                                          "have entries."),),
    formula="segment_ids[i] = how many groups come before that of entry i (dense: how many places)",
    errors=(*(text.replace(", or input_values or input_shape", ", or input_shape").replace(
        "input_values is not as long as input_indices, or ", "") for text in ERRORS),
        "OutOfRangeError: with dense, an index is not within input_shape in a dimension that stays", NO_ROOM,
        WRONG_TYPE),
    cost="O(N · rank), and, unless dense, that of a sort.",
    example=Example({name: EXAMPLE[name] for name in ("input_indices", "input_shape", "reduction_axes")},
                    {"segment_ids": [0, 0, 1]}),
    compute=_segments,
    shape_rule=_ids_shape,
    options=("out",),
    in_tensorflow=False,
))  # fmt: skip
