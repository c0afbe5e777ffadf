"""The forward segment operators: look up rows of a table and pool them, segment by segment."""

from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._kernels.kinds import SUM
from rowgrad._ops import checks
from rowgrad._ops.catalogue import Attribute, Example, Operator, declare
from rowgrad._ops.order import one_id_type
from rowgrad._ops.pins import INT64_MAX, Pin
from rowgrad._ops.sparse_segment_grad import KINDS, SNAKE, WORDS, G
from rowgrad._runtime import dtypes, team
from rowgrad._runtime.dtypes import FLOATS, IDS, REALS, Array
from rowgrad._runtime.memory import is_nontemporal, place
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError, RowgradError

if TYPE_CHECKING:
    from rowgrad._ops.plan import Plan

INT64 = np.dtype(np.int64)
INT32_MAX = 2**31 - 1
CACHED = 1 << 16  # a table up to this many bytes is in the caches, and fetching its rows first costs more than it saves
SMALL = 1 << 20  # bytes; a smaller result takes the short way
AHEAD = 16  # entries; the rows of a larger table are fetched so long before they are needed


def _pool(kind: int, data: Array, indices: Array, segment_ids: Array, num_segments: Any = None, *,
          plan: "Plan | None" = None, out: Array | None = None) -> Array:  # fmt: skip
    if type(num_segments) is not int and num_segments is not None:
        num_segments = checks.count("num_segments", num_segments)
    size = indices.size
    fits = indices.ndim == segment_ids.ndim == 1 and segment_ids.size == size and data.ndim
    if not fits or (num_segments is not None and num_segments < 0):
        _check(data, indices, segment_ids, num_segments)
    rows, data_rows = _rows(segment_ids, num_segments), data.shape[0]
    row_size = data.nbytes // data_rows if data_rows else 0
    if rows * max(row_size, 1) > INT64_MAX:
        raise _too_large("num_segments" if num_segments is not None else "segment_ids", rows)
    workers = Workers(size * (16 + row_size))
    ahead = AHEAD if data.nbytes > CACHED else 0
    if not workers.helpers and size and rows * row_size < SMALL and out is None and plan is None:
        output = np.empty((rows, *data.shape[1:]), data.dtype)
        run_parallel = workers.team or None
        wrong = kernels.sparse_segment.pool_small(
            run_parallel, workers.threads, workers.chunks, *one_id_type(indices, segment_ids), rows, data_rows,
            *_described(kind, data, output), ahead,
        )  # fmt: skip
        if run_parallel:
            team.note(wrong == kernels.sparse_segment.LATE)
    else:
        argument = "segment_ids" if num_segments is None else "num_segments"
        output, wrong = _pool_large(workers, kind, data, indices, segment_ids, rows, argument, ahead, plan, out)
    if wrong >= 0:
        wrong = _first_bad(wrong, indices, segment_ids, rows, data_rows)
        raise _diagnose(wrong, indices, segment_ids, rows, data_rows, num_segments is not None)
    return output


def _pool_large(workers: Workers, kind: int, data: Array, indices: Array, segment_ids: Array, rows: int, argument: str,
                ahead: int, plan: "Plan | None", out: Array | None) -> tuple[Array, int]:  # fmt: skip
    """The output, and -1 or a position before the first bad entry."""
    size, data_rows = indices.size, data.shape[0]
    if plan is not None:
        plan.check("data", data_rows, "the output", rows)
    # Where most rows have no segment, memory that comes zeroed is cheaper than zeroing it.
    zero = (rows > 2 * size and out is None) or size == 0
    output = place(out, (rows, *data.shape[1:]), data.dtype, argument=argument, zero=zero)
    if size == 0:
        return output, -1
    wrong = workers.run(
        kernels.sparse_segment.pool, *one_id_type(indices, segment_ids), rows, data_rows,
        *_described(kind, data, output), is_nontemporal(output, output.nbytes // rows), not zero, ahead,
        out is not None, np.empty(workers.chunks, INT64),
    )  # fmt: skip
    return output, wrong


def _described(kind: int, data: Array, output: Array) -> tuple[Any, ...]:
    """What a kernel is told of table and output: elements, columns, and which code it needs for them."""
    stored, sums, _ = dtypes.summing(data.dtype)
    width = output.size // output.shape[0]
    source, target = data.ravel(), output.ravel()
    if stored is not data.dtype:
        source, target = source.view(stored), target.view(stored)
    lanes, wide = _lanes(sums, width)
    return source, width, kind, lanes, wide, None if kind == SUM else True, target


@cache
def _lanes(sums: "np.dtype[Any]", width: int) -> tuple[Array, bool | None]:
    lanes = kernels.lanes.lanes_for(sums, width)
    return lanes, None if width == kernels.lanes.lane_count(lanes) else True


def _check(data: Array, indices: Array, segment_ids: Array, num_segments: int | None) -> None:
    """Raise the error for arrays whose shapes do not belong together, or a negative number of segments."""
    if num_segments is not None:
        checks.count("num_segments", num_segments)
    checks.rank("indices", indices, 1)
    checks.rank("segment_ids", segment_ids, 1)
    checks.same_length("segment_ids", segment_ids.size, "indices", indices.size)
    checks.at_least_vector("data", data)


def _rows(segment_ids: Array, num_segments: int | None) -> int:
    """The number of rows of the output, which the last id must allow."""
    if segment_ids.size == 0:
        return num_segments or 0
    last = int(segment_ids[-1])
    rows = last + 1 if num_segments is None else num_segments
    if last >= INT32_MAX and last == np.iinfo(segment_ids.dtype).max:
        raise _too_large("segment_ids", last + 1)
    if not 0 <= last < rows:
        raise _bad_segment(segment_ids, segment_ids.size - 1, rows, num_segments is not None)
    return rows


def _too_large(argument: str, rows: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{argument} asks for {rows} rows, more than can be counted. Number the segments from 0, without large gaps.",
        code="too-large",
        argument=argument,
        value=rows,
    )


def _bad_segment(segment_ids: Array, position: int, rows: int, is_given: bool) -> RowgradError:
    name = "num_segments" if is_given else "the last id + 1"
    remedy = "Number the segments from 0" + (", or raise num_segments." if is_given else ".")
    value = int(segment_ids[position])
    return checks.out_of_range("segment_ids", position, value, rows, name, "segment-id-out-of-range", remedy)


def _first_bad(start: int, indices: Array, segment_ids: Array, rows: int, data_rows: int) -> int:
    """The first wrong entry from `start` on; `start` itself if another thread has corrected it since."""
    ids, index = segment_ids[start:], indices[start:]
    before = np.concatenate([segment_ids[start - 1 : start] if start else np.zeros(1, ids.dtype), ids[:-1]])
    wrong = (ids < before) | (ids >= rows) | (index < 0) | (index >= data_rows)
    return start + int(wrong.argmax())


def _diagnose(
    position: int, indices: Array, segment_ids: Array, rows: int, data_rows: int, is_given: bool
) -> RowgradError:
    """The error for the entry at `position`, the first that is wrong."""
    segment = int(segment_ids[position])
    falls = np.flatnonzero(segment_ids[1:] < segment_ids[:-1]) + 1
    # An id past the last one can only be followed by a smaller one, and that says more.
    if falls.size and (position == falls[0] or (segment >= rows and not is_given)):
        fall = int(falls[0])
        return InvalidArgumentError(
            f"segment_ids[{fall}] is {int(segment_ids[fall])}, smaller than {int(segment_ids[fall - 1])} before it; "
            "the ids must not decrease. Sort the entries by segment.",
            code="unsorted-segment-ids",
            argument="segment_ids",
            position=fall,
            value=int(segment_ids[fall]),
        )
    if not 0 <= segment < rows:
        return _bad_segment(segment_ids, position, rows, is_given)
    return checks.out_of_range("indices", position, int(indices[position]), data_rows, "the number of rows of data",
                               "index-out-of-range", "Drop the entry, or look up in a larger table.")  # fmt: skip


# Declarations

SCALED = {
    "Sum": "output[s] = x0 + x1 + … + x(n−1)",
    "Mean": "output[s] = (x0 + x1 + … + x(n−1)) / n",
    "SqrtN": "output[s] = (x0 + x1 + … + x(n−1)) / sqrt(n)",
}
SPARSE_GRADIENT = Attribute(
    "sparse_gradient",
    False,
    "Whether the backward operator is the compact one (GradV2). The result is the same.",
    passed=False,
)


def _declare(kind: str, *, counted: bool) -> None:
    example = {
        "Sum": ([0, 1, 2], [0, 0, 1], [[5.0, 6.0, 5.0], [3.0, 1.0, 5.0]]),
        "Mean": ([2, 1, 0], [0, 0, 1], [[3.5, 2.5, 3.5], [1.0, 2.0, 3.0]]),
        "SqrtN": ([0, 1, 2], [0, 0, 2], [[3.535534, 4.242641, 3.535534], [0.0, 0.0, 0.0], [3.0, 1.0, 5.0]]),
    }
    indices, segment_ids, output = example[kind]
    inputs: dict[str, Any] = {"data": G, "indices": indices, "segment_ids": segment_ids}
    extra: tuple[Pin, ...] = ()
    if counted:
        inputs["num_segments"] = 4
        output = output + [[0.0, 0.0, 0.0]] * (4 - len(output))
        extra = (Pin("num_segments", "Tnum", "[]", "The number of rows of the output; at least the last id + 1."),)
    declare(Operator(
        name=f"SparseSegment{kind}" + "WithNumSegments" * counted,
        function=f"sparse_segment_{SNAKE[kind]}",
        family="sparse_segment",
        summary=f"Look up rows of a table and pool them by segment ({WORDS[kind]})"
        + (", into a given number of rows." if counted else "."),
        inputs=(
            Pin("data", "T", "[V, ...]", "The table."),
            Pin("indices", "Tidx", "[N]", "The table row of each entry; rows may repeat."),
            Pin("segment_ids", "Tseg", "[N]", "The segment of each entry, not decreasing; gaps are fine."),
            *extra,
        ),
        outputs=(Pin("output", "T", "[num_segments, ...]" if counted else "[last(segment_ids) + 1, ...]",
                     "The pooled rows; segments without entries are 0."),),
        types={"T": REALS if kind == "Sum" else FLOATS, "Tidx": IDS, "Tseg": IDS} | ({"Tnum": IDS} if counted else {}),
        attributes=(SPARSE_GRADIENT,),
        formula="x0 … x(n−1) = data[indices[i]] for the i with segment_ids[i] = s, in the order of i\n" + SCALED[kind],
        errors=(
            *(("InvalidArgumentError: num_segments is not a scalar, or negative",) if counted else ()),
            "InvalidArgumentError: indices or segment_ids is not a vector, or they differ in length",
            "InvalidArgumentError: data is a scalar",
            "InvalidArgumentError: the segment ids decrease, or ask for more rows than can be counted",
            "OutOfMemoryError: the result does not fit into memory",
            "OutOfRangeError: a segment id is negative" + (" or not below num_segments" if counted else "")
            + ", or an index is not in [0, rows of data)",
            "DTypeError: a type that is not listed",
        ),
        cost="O(N · width + rows · width).",
        example=Example(inputs, {"output": output}),
        compute=partial(_pool, KINDS[kind]),
        options=("out", "plan"),
        gradient={
            "data": lambda op, d_output, indices, segment_ids, data: op[f"SparseSegment{kind}Grad"](
                d_output, indices, segment_ids, op.rows(data)
            )
        },
        compact_gradient={
            "data": lambda op, d_output, indices, segment_ids, data: op[f"SparseSegment{kind}GradV2"](
                d_output, indices, segment_ids, op.rows(data)
            )
        },
        notes="The additions are made in TensorFlow's order, so the result is the same to the bit; half and bfloat16 "
        "are summed in float32 and rounded once.",
    ))  # fmt: skip


for _kind in KINDS:
    _declare(_kind, counted=False)
    _declare(_kind, counted=True)
