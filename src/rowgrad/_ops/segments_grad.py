"""The gradients of plain segment reductions, for sorted and unsorted segments alike, and the gradients of these.

Sums and means send the row of a segment back to all its rows; the largest and the smallest share it among the rows that
are equal to it, as TensorFlow does; a product multiplies it with the product of all other rows.
"""

from functools import partial
from math import prod

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.catalogue import Example, Operator, Rule, declare
from rowgrad._ops.order import one_id_type
from rowgrad._ops.pins import Pin
from rowgrad._ops.segments import NO_ROOM, WRONG_TYPE, check_prefix, divisors_of, past_the_end
from rowgrad._ops.sparse_segment_grad import G
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import COMPLEX, FLOATS, IDS, Array
from rowgrad._runtime.memory import allocate, place
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError

ROWS_OF_GRAD = "the number of rows of grad"


def _take(name: str, grad: Array, segment_ids: Array, *, out: Array | None = None) -> Array:
    checks.at_least_vector("grad", grad)
    rows, tail = grad.shape[0], grad.shape[1:]
    output = place(out, (*segment_ids.shape, *tail), grad.dtype, argument="segment_ids", zero=False)
    if output.size == 0:
        return output
    stored, sums, parts = dtypes.summing(grad.dtype)
    (ids,), width = one_id_type(segment_ids.reshape(-1)), parts * prod(tail)
    workers = Workers(ids.size * (8 + 2 * width * stored.itemsize))
    wrong = workers.run(
        kernels.segments_grad.take_rows, ids, rows, grad.reshape(-1).view(stored), width,
        divisors_of(name, segment_ids, rows, sums), kernels.lanes.lanes_for(sums, width),
        output.reshape(-1).view(stored), np.empty(workers.chunks, np.int64),
    )  # fmt: skip
    if wrong >= 0:
        raise past_the_end(segment_ids, int(wrong), rows, ROWS_OF_GRAD)
    return output


def _share(backward: bool, grad: Array, data: Array, output: Array, segment_ids: Array, *,
           out: Array | None = None) -> Array:  # fmt: skip
    """The gradient of the largest or smallest (`backward`), or of that gradient to its grad."""
    tail = check_prefix("data", data, segment_ids)
    checks.at_least_vector("output", output)
    rows = output.shape[0]
    _same_shape("output", output.shape, (rows, *tail), "the rows of data")
    other, name = (output, "output") if backward else (data, "data")
    _same_shape("grad", grad.shape, other.shape, name)
    result = place(out, data.shape if backward else output.shape, grad.dtype, argument="output", zero=False)
    if result.size == 0 or data.size == 0:
        result.fill(0)
        return result
    stored, sums, _ = dtypes.summing(grad.dtype)
    (ids,), width = one_id_type(segment_ids.reshape(-1)), prod(tail)
    workers = Workers(ids.size * (8 + 3 * width * stored.itemsize))
    counts = allocate((rows * width,), sums)
    wrong = workers.run(
        kernels.segments_grad.max_grad, workers.threads, ids, rows, data.reshape(-1).view(stored),
        output.reshape(-1).view(stored), grad.reshape(-1).view(stored), width, backward,
        kernels.lanes.lanes_for(sums, width), counts, counts[:0] if backward else allocate(counts.shape, sums),
        result.reshape(-1).view(stored), np.empty(workers.chunks, np.int64),
    )  # fmt: skip
    if wrong >= 0:
        raise past_the_end(segment_ids, int(wrong), rows, "the number of rows of output")
    return result


def _multiply_others(grad: Array, data: Array, segment_ids: Array, *, out: Array | None = None) -> Array:
    tail = check_prefix("data", data, segment_ids)
    checks.at_least_vector("grad", grad)
    rows = grad.shape[0]
    _same_shape("grad", grad.shape, (rows, *tail), "the rows of data")
    output = place(out, data.shape, data.dtype, argument="data", zero=False)
    if data.size == 0:
        return output
    stored, sums, _ = dtypes.summing(data.dtype)
    (ids,), width = one_id_type(segment_ids.reshape(-1)), prod(tail)
    workers = Workers(ids.size * (8 + 3 * width * stored.itemsize))
    wrong = workers.run(
        kernels.segments_grad.prod_grad, workers.threads, ids, rows, data.reshape(-1).view(stored),
        grad.reshape(-1).view(stored), width, kernels.lanes.lanes_for(sums, width), allocate((rows * width,), sums),
        allocate((rows * width,), sums), output.reshape(-1).view(stored), np.empty(workers.chunks, np.int64),
    )  # fmt: skip
    if wrong >= 0:
        raise past_the_end(segment_ids, int(wrong), rows, ROWS_OF_GRAD)
    return output


def _same_shape(name: str, shape: tuple[int, ...], wanted: tuple[int, ...], other: str) -> None:
    if shape != wanted:
        raise InvalidArgumentError(
            f"{name} has shape {list(shape)}; by the shape of {other} it must have {list(wanted)}. Pass the "
            "inputs and results of the forward operator.",
            code="length-mismatch",
            argument=name,
            value=shape,
        )


# Declarations

SEGMENT_IDS = Pin("segment_ids", "Tindices", "[N]", "The segment of each row, in any order; negative for none.")
GRAD = Pin("grad", "T", "[S, ...]", "The gradient of each segment's row.")
DATA = Pin("data", "T", "[N, ...]", "The rows that were reduced.")
BEST = Pin("output", "T", "[S, ...]", "The result of the forward operator: the largest or smallest of each segment.")
PAST = "OutOfRangeError: a segment id is not below the number of rows of {}"
SUMMARIES = {
    "Sum": "The gradient of SegmentSum and UnsortedSegmentSum: each row gets that of its segment.",
    "Mean": "The gradient of SegmentMean and UnsortedSegmentMean: each row gets that of its segment over the count.",
    "SqrtN": "The gradient of UnsortedSegmentSqrtN: each row gets that of its segment, over the root of the count.",
}
FORMULAS = {"Sum": "", "Mean": " / n, the number of rows of the segment", "SqrtN": " / sqrt(n), n rows in the segment"}
EXAMPLES = {
    "Sum": [[3.0, 1.0, 5.0], [1.0, 2.0, 3.0], [3.0, 1.0, 5.0]],
    "Mean": [[1.5, 0.5, 2.5], [1.0, 2.0, 3.0], [1.5, 0.5, 2.5]],
    "SqrtN": [[2.121320, 0.707107, 3.535534], [1.0, 2.0, 3.0], [2.121320, 0.707107, 3.535534]],
}


def _declare_take(name: str) -> None:
    rule: Rule = lambda op, d_output, segment_ids, grad: op[f"UnsortedSegment{name}"](  # noqa: E731
        d_output, segment_ids, op.rows(grad)
    )
    declare(Operator(
        name=f"Segment{name}Grad",
        function=f"segment_{'sqrt_n' if name == 'SqrtN' else name.lower()}_grad",
        raw_only=True,
        family="segments_grad",
        summary=SUMMARIES[name],
        inputs=(GRAD, SEGMENT_IDS),
        outputs=(Pin("output", "T", "[N, ...]", "The gradient of each row; 0 for rows without a segment."),),
        types={"T": (*FLOATS, *COMPLEX), "Tindices": IDS},
        formula=f"output[i] = grad[segment_ids[i]]{FORMULAS[name]}",
        errors=("InvalidArgumentError: grad is a scalar", NO_ROOM, PAST.format("grad"), WRONG_TYPE),
        cost="O(size of the output).",
        example=Example({"grad": G, "segment_ids": [2, 0, 2]}, {"output": EXAMPLES[name]}),
        compute=partial(_take, name),
        options=("out",),
        gradient={"grad": rule},
        in_tensorflow=False,
    ))  # fmt: skip


for _name in SUMMARIES:
    _declare_take(_name)

SHARE_ERRORS = (
    "InvalidArgumentError: the shapes do not match",
    NO_ROOM,
    PAST.format("output"),
    WRONG_TYPE,
)
SHARED = [[4.0, 2.0, 3.0], [4.0, 4.0, 3.0], [0.0, 0.0, 0.0]]
BEST_OF = [[4.0, 4.0, 3.0], [0.0, 0.0, 0.0]]

declare(Operator(
    name="SegmentMaxGrad",
    function="segment_max_grad",
    raw_only=True,
    family="segments_grad",
    summary="The gradient of SegmentMax, SegmentMin and their unsorted forms: rows that equal it share it.",
    inputs=(GRAD, DATA, BEST, SEGMENT_IDS),
    outputs=(Pin("d_data", "T", "[N, ...]", "The gradient of each row."),),
    types={"T": FLOATS, "Tindices": IDS},
    formula="n[s, c] = how many rows i of segment s have data[i, c] = output[s, c]\n"
    "d_data[i, c] = grad[s, c] / n[s, c] if data[i, c] = output[s, c], else 0, where s = segment_ids[i]",
    errors=SHARE_ERRORS,
    cost="O(size of data).",
    example=Example(
        {"grad": [[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]], "data": SHARED, "output": BEST_OF, "segment_ids": [0, 0, 1]},
        {"d_data": [[0.5, 0.0, 1.5], [0.5, 2.0, 1.5], [5.0, 6.0, 7.0]]},
    ),
    compute=partial(_share, True),
    options=("out",),
    gradient={
        "grad": lambda op, d_d_data, data, output, segment_ids: op.SegmentMaxGradGrad(
            d_d_data, data, output, segment_ids
        )
    },
    in_tensorflow=False,
))  # fmt: skip

declare(Operator(
    name="SegmentMaxGradGrad",
    function="segment_max_grad_grad",
    raw_only=True,
    family="segments_grad",
    summary="The gradient of SegmentMaxGrad with respect to its grad: the mean of the rows that equal the largest.",
    inputs=(Pin("grad", "T", "[N, ...]", "The upstream gradient of each row's gradient."), DATA, BEST, SEGMENT_IDS),
    outputs=(Pin("d_grad", "T", "[S, ...]", "The gradient of each segment's gradient row."),),
    types={"T": FLOATS, "Tindices": IDS},
    formula="d_grad[s, c] = the mean of grad[i, c] over the rows i of segment s with data[i, c] = output[s, c], or 0",
    errors=SHARE_ERRORS,
    cost="O(size of data).",
    example=Example(
        {"grad": G, "data": SHARED, "output": BEST_OF, "segment_ids": [0, 0, 1]},
        {"d_grad": [[2.5, 4.0, 2.5], [3.0, 1.0, 5.0]]},
    ),
    compute=partial(_share, False),
    options=("out",),
    gradient={
        "grad": lambda op, d_d_grad, data, output, segment_ids: op.SegmentMaxGrad(d_d_grad, data, output, segment_ids)
    },
    in_tensorflow=False,
))  # fmt: skip

declare(Operator(
    name="SegmentProdGrad",
    function="segment_prod_grad",
    raw_only=True,
    family="segments_grad",
    summary="The gradient of SegmentProd and UnsortedSegmentProd: that of the segment times the other rows' product.",
    inputs=(GRAD, DATA, SEGMENT_IDS),
    outputs=(Pin("d_data", "T", "[N, ...]", "The gradient of each row; 0 for rows without a segment."),),
    types={"T": FLOATS, "Tindices": IDS},
    formula="d_data[i] = grad[s] · Π data[j] over the rows j of segment s but i, where s = segment_ids[i]",
    errors=(
        "InvalidArgumentError: the shapes do not match",
        NO_ROOM,
        PAST.format("grad"),
        WRONG_TYPE,
    ),
    cost="O(size of data).",
    example=Example(
        {"grad": [[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]], "data": G, "segment_ids": [0, 0, 1]},
        {"d_data": [[4.0, 8.0, 6.0], [1.0, 4.0, 9.0], [5.0, 6.0, 7.0]]},
    ),
    compute=_multiply_others,
    options=("out",),
    gradient={
        "grad": lambda op, d_d_data, data, segment_ids, grad: op.UnsortedSegmentSum(
            op.Mul(d_d_data, op.SegmentProdGrad(op.OnesLike(grad), data, segment_ids)), segment_ids, op.rows(grad)
        ),
        "data": lambda op, d_d_data, d_data, data, segment_ids, grad: op.Div(
            op.Sub(
                op.SegmentSumGrad(
                    op.UnsortedSegmentSum(op.Mul(d_d_data, d_data), segment_ids, op.rows(grad)), segment_ids
                ),
                op.Mul(d_d_data, d_data),
            ),
            data,
        ),
    },
    notes="The product of the others is that of all over data[i], unless there is a 0 in the segment: then it is made "
    "without that 0. Its own gradient to data is for data without zeros.",
    in_tensorflow=False,
))  # fmt: skip
