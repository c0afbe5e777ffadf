"""The segment gradients, dense (Grad) and compact (GradV2), and the gradients of both.

A gradient sends the gradient row of each segment back to the table rows that were pooled into it; `row_sums` sums them.
The gradient of a gradient pools again, with the same factors.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad._kernels.kinds import MEAN, SQRT_N, SUM
from rowgrad._ops import checks
from rowgrad._ops.catalogue import Example, Operator, declare
from rowgrad._ops.pins import Pin
from rowgrad._ops.results import RowGradient
from rowgrad._ops.row_sums import GRAD_ROWS, Small, bad_segment, check_pairs, sum_pairs
from rowgrad._runtime.dtypes import FLOATS, IDS, Array
from rowgrad._runtime.memory import place
from rowgrad.errors import OutOfRangeError

if TYPE_CHECKING:
    from rowgrad._ops.plan import Plan

KINDS = {"Sum": SUM, "Mean": MEAN, "SqrtN": SQRT_N}
SNAKE = {"Sum": "sum", "Mean": "mean", "SqrtN": "sqrt_n"}


def _gradient(kind: int, compact: bool, grad: Array, indices: Array, segment_ids: Array, count: Any, *,
              plan: "Plan | None" = None, out: Array | None = None) -> Any:  # fmt: skip
    rows_name = "dense_output_dim0" if compact else "output_dim0"
    rows = check_pairs(grad, indices, segment_ids, rows_name, count)
    if rows == 0 or indices.size == 0:
        # TensorFlow does not look at the ids then, and neither do we; its dense result is uninitialised, ours is zero.
        shape = (0 if compact else rows, *grad.shape[1:])
        output = place(out, shape, grad.dtype, argument=rows_name, zero=True)
        return RowGradient(output, np.empty(0, indices.dtype)) if compact else output
    segments = grad.shape[0]
    if segment_ids.item(-1) >= segments:
        raise bad_segment(segment_ids, segment_ids.size - 1, segments, GRAD_ROWS)
    blamed = indices, segment_ids, rows, rows_name, segments, GRAD_ROWS
    return sum_pairs(kind, grad, indices, segment_ids, rows, blamed, False, compact, rows_name, plan, out)


def _pool_again(kind: int, grad: Array, indices: Array, segment_ids: Array, count: Any, *,
                out: Array | None = None) -> Any:  # fmt: skip
    """The gradient of a gradient: pool as the forward operator, segments in any order, with the backward factors."""
    segments = check_pairs(grad, indices, segment_ids, "num_segments", count)
    if segments == 0 or indices.size == 0:
        return place(out, (segments, *grad.shape[1:]), grad.dtype, argument="num_segments", zero=True)
    blamed = indices, segment_ids, grad.shape[0], GRAD_ROWS, segments, "num_segments"
    return sum_pairs(kind, grad, segment_ids, indices, segments, blamed, True, False, "num_segments", None, out)


def _index_rank(sorted_unique_indices: Array, indices: Array) -> Array:
    checks.rank("sorted_unique_indices", sorted_unique_indices, 1)
    checks.rank("indices", indices, 1)
    ranks = np.searchsorted(sorted_unique_indices, indices)
    known = ranks < sorted_unique_indices.size
    known[known] = sorted_unique_indices[ranks[known]] == indices[known]
    if not known.all():
        position = int(known.argmin())
        raise OutOfRangeError(
            f"indices[{position}] is {int(indices[position])}, which does not occur in sorted_unique_indices. "
            "Pass the indices that the compact gradient was made from, and its sorted_unique_indices.",
            code="index-out-of-range",
            argument="indices",
            position=position,
            value=int(indices[position]),
        )
    return ranks.astype(np.int64, copy=False)


# Declarations

TYPES = {"T": FLOATS, "Tidx": IDS, "Tseg": IDS}
INDICES = Pin("indices", "Tidx", "[N]", "The table row of each entry; rows may repeat.")
SEGMENT_IDS = Pin("segment_ids", "Tseg", "[N]", "The segment of each entry, in any order; gaps are fine.")
G = [[1.0, 2.0, 3.0], [4.0, 4.0, 2.0], [3.0, 1.0, 5.0]]
SCALES = {"Sum": "1", "Mean": "1 / max(count[s], 1)", "SqrtN": "1 / sqrt(max(count[s], 1))"}
WORDS = {"Sum": "sum", "Mean": "mean", "SqrtN": "sum divided by the square root of the count"}
GRAD_ERRORS = (
    "InvalidArgumentError: indices or segment_ids is not a vector, or they differ in length",
    "InvalidArgumentError: {rows} is not a scalar, or negative",
    "InvalidArgumentError: grad is a scalar",
    "OutOfMemoryError: the result does not fit into memory",
    "OutOfRangeError: an index is not in [0, {rows}), or a segment id not in [0, rows of grad)",
    "DTypeError: a type that is not listed",
)
KEPT = "With {rows} = 0 or no entries the ids are ignored, as in TensorFlow."


def _examples(kind: str) -> Example:
    known = {
        "Sum": ([0, 0, 2], [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [3.0, 1.0, 5.0]]),
        "Mean": ([2, 2, 2], [[1.0, 0.333333, 1.666667]] * 3),
        "SqrtN": ([0, 0, 2], [[0.707107, 1.414214, 2.121320]] * 2 + [[3.0, 1.0, 5.0]]),
    }
    segment_ids, output = known[kind]
    inputs = {"grad": G, "indices": [0, 1, 2], "segment_ids": segment_ids, "output_dim0": 3}
    return Example(inputs, {"output": output})


def _formula(kind: str) -> str:
    return (
        "count[s] = how often s occurs in segment_ids\n"
        f"scale[s] = {SCALES[kind]}\n"
        "output[r] = Σ over i with indices[i] = r of grad[segment_ids[i]] · scale[segment_ids[i]], in the order of i"
    )


def _declare_dense(kind: str) -> None:
    declare(Operator(
        name=f"SparseSegment{kind}Grad",
        function=f"sparse_segment_{SNAKE[kind]}_grad",
        family="sparse_segment_grad",
        summary=f"The dense gradient of a pooled look-up ({WORDS[kind]}): one row for each row of the table.",
        inputs=(
            Pin("grad", "T", "[S, ...]", "The gradient of each segment's pooled row."),
            INDICES,
            SEGMENT_IDS,
            Pin("output_dim0", "int32", "[]", "The number of rows of the table; any 64-bit size."),
        ),
        outputs=(Pin("output", "T", "[output_dim0, ...]", "The gradient of the table; rows never looked up are 0."),),
        types=TYPES,
        formula=_formula(kind),
        errors=tuple(text.format(rows="output_dim0") for text in GRAD_ERRORS),
        cost="O(N · (width + log rows)); rows that are not looked up cost only their zeros.",
        example=_examples(kind),
        compute=partial(_gradient, KINDS[kind], False),
        options=("out", "plan"),
        gradient={
            "grad": lambda op, d_output, indices, segment_ids, grad: op[f"SparseSegment{kind}GradGrad"](
                d_output, indices, segment_ids, op.rows(grad)
            )
        },
        notes=KEPT.format(rows="output_dim0"),
    ))  # fmt: skip


def _declare_compact(kind: str) -> None:
    inputs = {"grad": G, "indices": [7, 1, 7], "segment_ids": [0, 0, 2], "dense_output_dim0": 1000}
    outputs: dict[str, Any] = {
        "Sum": [[1.0, 2.0, 3.0], [4.0, 3.0, 8.0]],
        "Mean": [[0.5, 1.0, 1.5], [3.5, 2.0, 6.5]],
        "SqrtN": [[0.707107, 1.414214, 2.121320], [3.707107, 2.414214, 7.121320]],
    }
    declare(Operator(
        name=f"SparseSegment{kind}GradV2",
        function=f"sparse_segment_{SNAKE[kind]}_grad_v2",
        family="sparse_segment_grad",
        summary=f"The compact gradient of a pooled look-up ({WORDS[kind]}): only the rows that were looked up.",
        inputs=(
            Pin("grad", "T", "[S, ...]", "The gradient of each segment's pooled row."),
            INDICES,
            SEGMENT_IDS,
            Pin("dense_output_dim0", "int32", "[]", "The number of rows of the table, which does not affect the cost."),
        ),
        outputs=(
            Pin("output", "T", "[U, ...]", "The gradient of each row that was looked up, in ascending order of rows."),
            Pin("sorted_unique_indices", "Tidx", "[U]", "Which rows these are, ascending."),
        ),
        types=TYPES,
        formula=_formula(kind).replace("output[r]", "row r of the table")
        + "\nsorted_unique_indices = the distinct indices, ascending; output = their rows",
        errors=tuple(text.format(rows="dense_output_dim0") for text in GRAD_ERRORS),
        cost="O(N · (width + log rows)), for any size of the table.",
        example=Example(inputs, {"output": outputs[kind], "sorted_unique_indices": [1, 7]}),
        compute=partial(_gradient, KINDS[kind], True),
        quick=Small(KINDS[kind]),
        options=("plan",),
        gradient={
            "grad": lambda op, d_output, sorted_unique_indices, indices, segment_ids, grad: op[
                f"SparseSegment{kind}GradGrad"
            ](d_output, op.IndexRank(sorted_unique_indices, indices), segment_ids, op.rows(grad))
        },
        result=RowGradient,
        notes=KEPT.format(rows="dense_output_dim0")
        + " Row u equals row sorted_unique_indices[u] of the dense gradient bit for bit.",
    ))  # fmt: skip


def _declare_grad_grad(kind: str) -> None:
    first = {"Sum": [5.0, 6.0, 5.0], "Mean": [2.5, 3.0, 2.5], "SqrtN": [3.535534, 4.242641, 3.535534]}
    errors = (
        "InvalidArgumentError: indices or segment_ids is not a vector, or they differ in length",
        "InvalidArgumentError: num_segments is not a scalar, or negative",
        "InvalidArgumentError: grad is a scalar",
        "OutOfMemoryError: the result does not fit into memory",
        "OutOfRangeError: an index is not in [0, rows of grad), or a segment id not in [0, num_segments)",
        "DTypeError: a type that is not listed",
    )
    declare(Operator(
        name=f"SparseSegment{kind}GradGrad",
        function=f"sparse_segment_{SNAKE[kind]}_grad_grad",
        raw_only=True,
        family="sparse_segment_grad",
        summary=f"The gradient of SparseSegment{kind}Grad with respect to its grad: pool again, segments in any order.",
        inputs=(
            Pin("grad", "T", "[M, ...]", "The upstream gradient of the dense gradient."),
            INDICES,
            SEGMENT_IDS,
            Pin("num_segments", "int64", "[]", "The number of rows of the dense gradient's grad."),
        ),
        outputs=(Pin("output", "T", "[num_segments, ...]", "The gradient of each segment's gradient row."),),
        types=TYPES,
        formula="count[s] = how often s occurs in segment_ids\n"
        f"scale[s] = {SCALES[kind]}\n"
        "output[s] = Σ over i with segment_ids[i] = s of grad[indices[i]] · scale[s], in the order of i",
        errors=errors,
        cost="O(N · (width + log segments)); sorted segment ids are detected and not sorted again.",
        example=Example(
            {"grad": G, "indices": [0, 1, 2], "segment_ids": [0, 0, 2], "num_segments": 3},
            {"output": [first[kind], [0.0, 0.0, 0.0], [3.0, 1.0, 5.0]]},
        ),
        compute=partial(_pool_again, KINDS[kind]),
        options=("out",),
        gradient={
            "grad": lambda op, d_output, indices, segment_ids, grad: op[f"SparseSegment{kind}Grad"](
                d_output, indices, segment_ids, op.rows(grad)
            )
        },
        in_tensorflow=False,
    ))  # fmt: skip


for _kind in KINDS:
    _declare_dense(_kind)
    _declare_compact(_kind)
    _declare_grad_grad(_kind)

declare(Operator(
    name="IndexRank",
    function="index_rank",
    raw_only=True,
    family="sparse_segment_grad",
    summary="The position of each index among the sorted distinct ones: its row in the compact gradient.",
    inputs=(
        Pin("sorted_unique_indices", "Tidx", "[U]", "Distinct indices, ascending, as in a compact gradient."),
        Pin("indices", "Tind", "[N]", "The indices to look up."),
    ),
    outputs=(Pin("ranks", "int64", "[N]", "sorted_unique_indices[ranks[i]] = indices[i]."),),
    types={"Tidx": IDS, "Tind": IDS},
    formula="ranks[i] = the u with sorted_unique_indices[u] = indices[i]",
    errors=(
        "InvalidArgumentError: an input is not a vector",
        "OutOfRangeError: an index does not occur in sorted_unique_indices",
        "DTypeError: a type that is not listed",
    ),
    cost="O(N · log U).",
    example=Example({"sorted_unique_indices": [1, 7], "indices": [7, 1, 7]}, {"ranks": [1, 0, 1]}),
    compute=_index_rank,
    in_tensorflow=False,
))  # fmt: skip
