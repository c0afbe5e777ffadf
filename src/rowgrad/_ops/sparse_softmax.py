"""Softmax along the last dimension of a sparse tensor.

Entries that share all but their last index are one group (`sparse_groups`). Elements without an entry count as −∞, not
as 0.
"""

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops.catalogue import Example, Operator, declare
from rowgrad._ops.pins import Pin
from rowgrad._ops.sparse_groups import check_entries, group, sizes_of
from rowgrad._ops.sparse_reduce import PACKET
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.memory import allocate, place
from rowgrad.errors import InvalidArgumentError


def _softmax(sp_indices: Array, sp_values: Array, sp_shape: Array, *, out: Array | None = None) -> Array:
    check_entries("sp_values", sp_values, sp_indices, sp_shape, "sp_")
    sizes_of("sp_shape", sp_shape)
    rank = sp_shape.size
    if rank < 2:
        raise InvalidArgumentError(
            f"sp_shape is {sp_shape.tolist()}; the tensor must have two dimensions or more. Reshape it.",
            code="wrong-rank",
            argument="sp_shape",
            value=tuple(sp_shape.tolist()),
        )
    output = place(out, sp_values.shape, sp_values.dtype, argument="sp_values", zero=False)
    if output.size == 0:
        return output
    groups = group(sp_indices, (rank - 1,))
    stored, sums, _ = dtypes.summing(sp_values.dtype)
    lanes = kernels.lanes.lanes_for(sums, PACKET // sums.itemsize)
    kinds = kernels.segments.kind_of(0), kernels.segments.kind_of(2), kernels.segments.kind_of(3)
    groups.workers.run(
        kernels.sparse_softmax.softmax, groups.starts, groups.in_order(sp_values).view(stored), *kinds,
        np.array([-np.inf, 0], sums), lanes, allocate(sp_values.shape, sums), output.view(stored),
    )  # fmt: skip
    return output


declare(Operator(
    name="SparseSoftmax",
    function="sparse_softmax",
    family="sparse_softmax",
    summary="Softmax of the entries of a sparse tensor along its last dimension; missing entries are ignored.",
    inputs=(
        Pin("sp_indices", "int64", "[N, rank]", "The index of each entry, ascending."),
        Pin("sp_values", "T", "[N]", "The value of each entry."),
        Pin("sp_shape", "int64", "[rank]", "The shape of the sparse tensor."),
    ),
    outputs=(Pin("output", "T", "[N]", "The new value of each entry, in the order of indices."),),
    types={"T": ("float16", "float32", "float64")},
    formula="output[i] = exp(sp_values[i] − m) / Σ over the entries j of the same row of exp(sp_values[j] − m), where "
    "m is the largest of them",
    errors=(
        "InvalidArgumentError: sp_indices is not a matrix, sp_values or sp_shape not a vector, or lengths do not match",
        "InvalidArgumentError: sp_shape has less than two dimensions, or a negative length",
        "OutOfMemoryError: the result does not fit into memory",
        "DTypeError: a type that is not listed",
    ),
    cost="O(N · rank), and that of a sort if indices do not ascend.",
    example=Example(
        {"sp_indices": [[0, 0], [0, 2], [1, 1]], "sp_values": [1.0, 1.0, 3.0], "sp_shape": [2, 3]},
        {"output": [0.5, 0.5, 1.0]},
    ),
    compute=_softmax,
    options=("out",),
    gradient={
        "sp_values": lambda op, d_output, output, sp_indices, sp_shape: op.SparseReorderGrad(
            op.Mul(
                output,
                op.Sub(
                    d_output,
                    op.SegmentSumGrad(
                        op.UnsortedSegmentSum(
                            op.Mul(d_output, output),
                            op.SparseReduceSegments(
                                op.SparseReorder(sp_indices, output, sp_shape).output_indices, sp_shape, [-1]
                            ),
                            op.rows(d_output),
                        ),
                        op.SparseReduceSegments(
                            op.SparseReorder(sp_indices, output, sp_shape).output_indices, sp_shape, [-1]
                        ),
                    ),
                ),
            ),
            sp_indices,
            sp_shape,
        )
    },
    notes="As in TensorFlow, values come in the order of indices, also where these do not ascend, and indices are not "
    "compared with sp_shape. Exponentials differ from TensorFlow's by up to two units in the last place. Half is "
    "computed in float32 and rounded once.",
))  # fmt: skip
