"""The largest row of each segment, column by column, and the gradients of that, of any order.

The forward operator tells which row each result came from; the gradients need nothing else: they send each element
to the row that was chosen, or fetch it from there.
"""

from functools import partial
from math import prod
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._kernels.kinds import SMALL
from rowgrad._ops import checks
from rowgrad._ops.catalogue import Example, Operator, declare
from rowgrad._ops.order import WORD_BITS, one_id_type, order_ids
from rowgrad._ops.pins import Pin
from rowgrad._ops.results import RowGradient, SegmentMax
from rowgrad._ops.row_sums import SMALL_ROW, diagnose
from rowgrad._ops.sparse_segment_grad import G
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import FLOATS, IDS, Array
from rowgrad._runtime.memory import allocate, borrow_work, place, return_work
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError, OutOfRangeError, RowgradError


def _max(data: Array, indices: Array, segment_ids: Array, num_segments: Any, *, out: Array | None = None) -> SegmentMax:
    checks.rank("indices", indices, 1)
    checks.rank("segment_ids", segment_ids, 1)
    checks.same_length("segment_ids", segment_ids.size, "indices", indices.size)
    checks.at_least_vector("data", data)
    segments = checks.count("num_segments", num_segments)
    size, tail = indices.size, data.shape[1:]
    shape = (segments, *tail)
    output = place(out, shape, data.dtype, argument="num_segments", zero=size == 0)
    chosen = allocate(shape, np.int64, argument="num_segments")
    if size == 0:
        chosen.fill(-1)
        return SegmentMax(output, chosen)

    def bad(position: int) -> RowgradError:
        rows_name = "the number of rows of data"
        return diagnose(position, indices, segment_ids, data.shape[0], rows_name, segments, "num_segments")

    stored, sums, _ = dtypes.summing(data.dtype)
    width = prod(tail)
    lanes = kernels.lanes.lanes_for(sums, width)
    row_bytes = data.itemsize * width
    flat, results = data.reshape(-1).view(stored), (output.reshape(-1).view(stored), chosen.reshape(-1))
    if size <= SMALL and row_bytes <= SMALL_ROW and segments < 2**31 > data.shape[0]:
        work = borrow_work(sums)
        wrong = kernels.segment_max.max_small(
            *one_id_type(segment_ids, indices), segments, data.shape[0], flat, width, lanes, *results, work[0]
        )  # fmt: skip
        return_work(work)
        if wrong >= 0:
            raise bad(int(wrong))
        return SegmentMax(output, chosen)
    workers = Workers(size * (16 + row_bytes))
    order = order_ids(workers, segment_ids, indices, segments, data.shape[0])
    if order.bad >= 0:
        raise bad(order.bad)
    if width:  # without columns, there may be more rows than words have room for
        workers.run(kernels.segment_max.max_rows, order.words, order.shift, segments, flat, width, lanes, *results)
    return SegmentMax(output, chosen)


def _check_chosen(grad: Array, chosen: Array) -> None:
    checks.at_least_vector("grad", grad)
    checks.at_least_vector("chosen", chosen)
    if grad.shape != chosen.shape:
        raise InvalidArgumentError(
            f"chosen has shape {list(chosen.shape)}, but grad has {list(grad.shape)}; they must be the same. Pass the "
            "rows that the forward operator chose.",
            code="length-mismatch",
            argument="chosen",
            value=chosen.shape,
        )


def _bad_choice(chosen: Array, position: int, rows: int, rows_name: str) -> InvalidArgumentError:
    place = tuple(int(i) for i in np.unravel_index(position, chosen.shape))
    value = int(chosen[place])
    if -1 <= value < rows:
        return checks.changed("chosen")
    return OutOfRangeError(
        f"chosen[{', '.join(map(str, place))}] is {value}; allowed: -1 (nothing was chosen) to {rows - 1} ({rows_name} "
        f"is {rows}). Pass the rows that the forward operator chose, and the size of its table.",
        code="index-out-of-range",
        argument="chosen",
        position=place,
        value=value,
    )


def _gradient(compact: bool, grad: Array, chosen: Array, count: Any, *, out: Array | None = None) -> Any:
    rows_name = "dense_output_dim0" if compact else "output_dim0"
    rows = checks.count(rows_name, count)
    _check_chosen(grad, chosen)
    tail, flat_chosen = grad.shape[1:], chosen.reshape(-1)
    if grad.size == 0 or (grad.size > SMALL and not (flat_chosen != -1).any()):
        output = place(out, (0 if compact else rows, *tail), grad.dtype, argument=rows_name, zero=True)
        return RowGradient(output, np.empty(0, np.int64)) if compact else output
    stored, sums, _ = dtypes.summing(grad.dtype)
    flat, width = grad.reshape(-1).view(stored), prod(tail)
    lanes = kernels.lanes.lanes_for(sums, width)
    if grad.size <= SMALL and rows < 2**31 and out is None:
        output, unique = _room(compact, grad.size, rows, grad, chosen, out)
        work = borrow_work(sums)
        distinct = kernels.segment_max.add_small(flat_chosen, rows, flat, width, compact, lanes, work[1],
                                                 output.reshape(-1).view(stored), unique, work[0])  # fmt: skip
        return_work(work)
        if distinct < 0:
            raise _bad_choice(chosen, -1 - distinct, rows, rows_name)
        return RowGradient(output[:distinct], unique[:distinct]) if compact else output

    wrong = (flat_chosen < -1) | (flat_chosen >= rows)
    if wrong.any():
        raise _bad_choice(chosen, int(wrong.argmax()), rows, rows_name)
    elements = np.flatnonzero(flat_chosen >= 0)
    targets, limit, names = flat_chosen, rows, None
    if elements.size < flat_chosen.size:
        targets = flat_chosen[elements]
    if (rows - 1).bit_length() + grad.size.bit_length() > WORD_BITS:
        # Rows as large as hashes do not share a word with a position; their ranks do.
        names, targets = np.unique(targets, return_inverse=True)
        limit = names.size
    workers = Workers(targets.size * (24 + grad.itemsize))
    order = order_ids(workers, targets, None if elements.size == grad.size else elements, limit, grad.size)
    if order.bad >= 0:
        raise checks.changed("chosen")
    output, unique = _room(compact, order.distinct, rows, grad, chosen, out)
    totals = np.empty(order.chunks * width, sums)
    workers.run(
        kernels.segment_max.add_rows, order.words, order.shift, order.row_starts, flat, width, compact, lanes, totals,
        output.reshape(-1).view(stored), unique,
    )  # fmt: skip
    if not compact:
        return output
    return RowGradient(output, unique if names is None else names)


def _room(compact: bool, most: int, rows: int, grad: Array, chosen: Array, out: Array | None) -> tuple[Array, Array]:
    """Room for the rows that are chosen, and for their numbers; or for all rows."""
    tail = grad.shape[1:]
    if compact:
        return allocate((most, *tail), grad.dtype, argument="grad"), np.empty(most, np.int64)
    output = place(out, (rows, *tail), grad.dtype, argument="output_dim0", zero=True)
    return output, np.empty(0, np.int64)


def _grad_grad(grad: Array, chosen: Array, *, out: Array | None = None) -> Array:
    checks.at_least_vector("grad", grad)
    checks.at_least_vector("chosen", chosen)
    if grad.shape[1:] != chosen.shape[1:]:
        raise InvalidArgumentError(
            f"the rows of chosen have shape {list(chosen.shape[1:])}, but those of grad have {list(grad.shape[1:])}; "
            "they must be the same. Pass the rows that the forward operator chose.",
            code="length-mismatch",
            argument="chosen",
            value=chosen.shape,
        )
    output = place(out, chosen.shape, grad.dtype, argument="chosen", zero=False)
    words, _ = dtypes.as_words(grad)
    workers = Workers(chosen.size * (8 + 2 * grad.itemsize))
    bad = workers.run(
        kernels.segment_max.take, chosen.reshape(-1), grad.shape[0], words, prod(grad.shape[1:]),
        dtypes.as_words(output)[0], np.empty(workers.chunks, np.int64),
    )  # fmt: skip
    if bad >= 0:
        raise _bad_choice(chosen, int(bad), grad.shape[0], "the number of rows of grad")
    return output


def _chosen_rank(sorted_unique_indices: Array, chosen: Array) -> Array:
    checks.rank("sorted_unique_indices", sorted_unique_indices, 1)
    checks.at_least_vector("chosen", chosen)
    flat = chosen.reshape(-1)
    ranks = np.searchsorted(sorted_unique_indices, flat)
    known = ranks < sorted_unique_indices.size
    known[known] = sorted_unique_indices[ranks[known]] == flat[known]
    nothing = flat == -1
    known |= nothing
    if not known.all():
        place = tuple(int(i) for i in np.unravel_index(int(known.argmin()), chosen.shape))
        raise OutOfRangeError(
            f"chosen[{', '.join(map(str, place))}] is {int(chosen[place])}, which does not occur in "
            "sorted_unique_indices. Pass the rows that the compact gradient was made from, and its "
            "sorted_unique_indices.",
            code="index-out-of-range",
            argument="chosen",
            position=place,
            value=int(chosen[place]),
        )
    ranks[nothing] = -1
    return ranks.astype(np.int64, copy=False).reshape(chosen.shape)


# Declarations

CHOSEN = Pin("chosen", "int64", "[S, ...]", "The table row that each element came from, or -1 for none.")
WRONG_TYPE = "DTypeError: a type that is not listed"
NO_ROOM = "OutOfMemoryError: the result does not fit into memory"
GRAD_ERRORS = (
    "InvalidArgumentError: {rows} is not a scalar, or negative",
    "InvalidArgumentError: grad is a scalar, or chosen does not have its shape",
    NO_ROOM,
    "OutOfRangeError: an element of chosen is not in [-1, {rows})",
    WRONG_TYPE,
)
CHOICE = [[1, 1, 2], [-1, -1, -1], [0, 0, 0]]
MAX_GRAD = "output[r, c] = Σ over s with chosen[s, c] = r of grad[s, c], in the order of s"
SUMS = "half and bfloat16 are summed in float32 and rounded once."

declare(Operator(
    name="SparseSegmentMax",
    function="sparse_segment_max",
    family="segment_max",
    summary="Look up rows of a table and keep, column by column, the largest of each segment.",
    inputs=(
        Pin("data", "T", "[V, ...]", "The table."),
        Pin("indices", "Tidx", "[N]", "The table row of each entry; rows may repeat."),
        Pin("segment_ids", "Tseg", "[N]", "The segment of each entry, in any order; gaps are fine."),
        Pin("num_segments", "int64", "[]", "The number of rows of the output."),
    ),
    outputs=(
        Pin("output", "T", "[num_segments, ...]", "The largest of each column; segments without entries are 0."),
        Pin("chosen", "int64", "[num_segments, ...]", "The table row that each came from; -1 without entries."),
    ),
    types={"T": FLOATS, "Tidx": IDS, "Tseg": IDS},
    formula="output[s, c] = the largest data[indices[i], c] of the i with segment_ids[i] = s\n"
    "chosen[s, c] = indices[i] of the first i for which it is",
    errors=(
        "InvalidArgumentError: indices or segment_ids is not a vector, or they differ in length",
        "InvalidArgumentError: num_segments is not a scalar, or negative",
        "InvalidArgumentError: data is a scalar",
        NO_ROOM,
        "OutOfRangeError: an index is not in [0, rows of data), or a segment id not in [0, num_segments)",
        WRONG_TYPE,
    ),
    cost="O(N · (width + log segments)); sorted segment ids are detected and not sorted again.",
    example=Example(
        {"data": G, "indices": [0, 1, 2], "segment_ids": [2, 0, 0], "num_segments": 3},
        {"output": [[4.0, 4.0, 5.0], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0]], "chosen": CHOICE},
    ),
    compute=_max,
    options=("out",),
    gradient={"data": lambda op, d_output, chosen, data: op.SparseSegmentMaxGrad(d_output, chosen, op.rows(data))},
    compact_gradient={
        "data": lambda op, d_output, chosen, data: op.SparseSegmentMaxGradV2(d_output, chosen, op.rows(data))
    },
    result=SegmentMax,
    notes="The first NaN of a segment is larger than all numbers; 0 and -0 are equal, and the first is kept.",
    in_tensorflow=False,
))  # fmt: skip

declare(Operator(
    name="SparseSegmentMaxGrad",
    function="sparse_segment_max_grad",
    family="segment_max",
    summary="The dense gradient of SparseSegmentMax: each element goes to the row that was chosen for it.",
    inputs=(
        Pin("grad", "T", "[S, ...]", "The gradient of each segment's row."),
        CHOSEN,
        Pin("output_dim0", "int64", "[]", "The number of rows of the table."),
    ),
    outputs=(Pin("output", "T", "[output_dim0, ...]", "The gradient of the table; 0 where nothing was chosen."),),
    types={"T": FLOATS},
    formula=MAX_GRAD,
    errors=tuple(text.format(rows="output_dim0") for text in GRAD_ERRORS),
    cost="O(S · width · log rows); rows that are not chosen cost only their zeros.",
    example=Example(
        {"grad": G, "chosen": CHOICE, "output_dim0": 3},
        {"output": [[3.0, 1.0, 5.0], [1.0, 2.0, 0.0], [0.0, 0.0, 3.0]]},
    ),
    compute=partial(_gradient, False),
    options=("out",),
    gradient={"grad": lambda op, d_output, chosen: op.SparseSegmentMaxGradGrad(d_output, chosen)},
    notes=SUMS[0].upper() + SUMS[1:],
    in_tensorflow=False,
))  # fmt: skip

declare(Operator(
    name="SparseSegmentMaxGradV2",
    function="sparse_segment_max_grad_v2",
    family="segment_max",
    summary="The compact gradient of SparseSegmentMax: only the rows that were chosen at least once.",
    inputs=(
        Pin("grad", "T", "[S, ...]", "The gradient of each segment's row."),
        CHOSEN,
        Pin("dense_output_dim0", "int64", "[]", "The number of rows of the table, which does not affect the cost."),
    ),
    outputs=(
        Pin("output", "T", "[U, ...]", "The gradient of each row that was chosen, in ascending order of rows."),
        Pin("sorted_unique_indices", "int64", "[U]", "Which rows these are, ascending."),
    ),
    types={"T": FLOATS},
    formula=MAX_GRAD.replace("output[r, c]", "row r of the table, column c,")
    + "\nsorted_unique_indices = the distinct elements of chosen but -1, ascending; output = their rows",
    errors=tuple(text.format(rows="dense_output_dim0") for text in GRAD_ERRORS),
    cost="O(S · width · log rows), for any size of the table.",
    example=Example(
        {"grad": G, "chosen": [[7, 7, 2], [-1, -1, -1], [7, 2, 2]], "dense_output_dim0": 1000},
        {"output": [[0.0, 1.0, 8.0], [4.0, 2.0, 0.0]], "sorted_unique_indices": [2, 7]},
    ),
    compute=partial(_gradient, True),
    gradient={
        "grad": lambda op, d_output, sorted_unique_indices, chosen: op.SparseSegmentMaxGradGrad(
            d_output, op.ChosenRank(sorted_unique_indices, chosen)
        )
    },
    result=RowGradient,
    notes="Row u equals row sorted_unique_indices[u] of the dense gradient bit for bit; " + SUMS,
    in_tensorflow=False,
))  # fmt: skip

declare(Operator(
    name="SparseSegmentMaxGradGrad",
    function="sparse_segment_max_grad_grad",
    raw_only=True,
    family="segment_max",
    summary="The gradient of SparseSegmentMaxGrad with respect to its grad: each element of the chosen row.",
    inputs=(Pin("grad", "T", "[M, ...]", "The upstream gradient of the dense gradient."), CHOSEN),
    outputs=(Pin("output", "T", "[S, ...]", "The gradient of each segment's gradient row."),),
    types={"T": FLOATS},
    formula="output[s, c] = grad[chosen[s, c], c], or 0 where chosen[s, c] = -1",
    errors=(
        "InvalidArgumentError: grad or chosen is a scalar, or their rows differ in shape",
        NO_ROOM,
        "OutOfRangeError: an element of chosen is not in [-1, rows of grad)",
        WRONG_TYPE,
    ),
    cost="O(S · width).",
    example=Example(
        {"grad": G, "chosen": CHOICE}, {"output": [[4.0, 4.0, 5.0], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0]]}
    ),
    compute=_grad_grad,
    options=("out",),
    gradient={"grad": lambda op, d_output, chosen, grad: op.SparseSegmentMaxGrad(d_output, chosen, op.rows(grad))},
    in_tensorflow=False,
))  # fmt: skip

declare(Operator(
    name="ChosenRank",
    function="chosen_rank",
    raw_only=True,
    family="segment_max",
    summary="The position of each chosen row among the sorted distinct ones: its row in the compact gradient.",
    inputs=(
        Pin("sorted_unique_indices", "int64", "[U]", "Distinct rows, ascending, as in a compact gradient."),
        Pin("chosen", "int64", "[S, ...]", "The rows to look up, or -1 for none."),
    ),
    outputs=(Pin("ranks", "int64", "[S, ...]", "sorted_unique_indices[ranks] = chosen; -1 stays -1."),),
    types={},
    formula="ranks[s, c] = the u with sorted_unique_indices[u] = chosen[s, c], or -1 where that is -1",
    errors=(
        "InvalidArgumentError: sorted_unique_indices is not a vector, or chosen is a scalar",
        "OutOfRangeError: an element of chosen is neither -1 nor in sorted_unique_indices",
        WRONG_TYPE,
    ),
    cost="O(elements of chosen · log U).",
    example=Example(
        {"sorted_unique_indices": [2, 7], "chosen": [[7, 7, 2], [-1, -1, -1]]}, {"ranks": [[1, 1, 0], [-1, -1, -1]]}
    ),
    compute=_chosen_rank,
    in_tensorflow=False,
))  # fmt: skip
