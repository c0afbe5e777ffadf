"""The forward segment operators: look up rows of a table and pool them, segment by segment."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._kernels.kinds import CHUNKS_PER_THREAD, SUM, ahead_of
from rowgrad._ops import checks
from rowgrad._ops.catalogue import Attribute, Example, Operator, declare
from rowgrad._ops.pins import INT64_MAX, Pin
from rowgrad._ops.quick import ID_TYPES, MOST_WAYS, NDARRAY, first_call, is_plain
from rowgrad._ops.sparse_segment_grad import KINDS, SNAKE, WORDS, G
from rowgrad._runtime import dtypes, team
from rowgrad._runtime.dtypes import FLOATS, IDS, REALS, Array
from rowgrad._runtime.memory import NONTEMPORAL, is_nontemporal, place
from rowgrad._runtime.threads import Workers, most_threads
from rowgrad.errors import InvalidArgumentError, RowgradError

if TYPE_CHECKING:
    from rowgrad._ops.plan import Plan

INT64 = np.dtype(np.int64)
INT32_MAX = 2**31 - 1
FEW = 256  # entries up to which ids are converted to one type: that takes less than compiling for each pair of types
ENTRY = 64  # what an entry costs beside its row, in bytes of a row
SHARED = 1 << 19  # bytes of work for which a team pays, wherever the rows are
LATE = -2  # from the kernel: all is well, but the team took long to come together
MANY = 1 << 23  # bytes of work that are cut into several chunks a thread, in case one of them is late


class _Way(NamedTuple):
    """What calls on tables of one type and row shape have in common.

    How rows are `stored`, if not as they are; what kernels are told of them; and the compiled code for ids as they are
    and for converted ones, for one thread and for a team.
    """

    row_bytes: int
    width: int
    stored: "np.dtype[Any] | None"
    lanes: Array
    wide: bool | None
    converts: bool
    code: list[Callable[..., int] | None]


def _way(dtype: "np.dtype[Any]", indices: "np.dtype[Any]", segment_ids: "np.dtype[Any]", tail: tuple[int, ...]) -> _Way:
    stored, sums, _ = dtypes.summing(dtype)
    width = prod(tail)
    lanes = kernels.lanes.lanes_for_rows(sums, width)
    wide = None if width == kernels.lanes.lane_count(lanes) else True
    converts = not indices == segment_ids == INT64
    return _Way(width * dtype.itemsize, width, None if stored is dtype else stored, lanes, wide, converts, [None] * 4)


class _Pool:
    """Pools by one kernel, on this thread or on PyTorch's, where arrays are just as that takes them.

    Gives None else. Python takes longer than the work of most calls, so little is done here.
    """

    def __init__(self, kind: int, types: tuple[str, ...]) -> None:
        self.kind, self.scaled = kind, None if kind == SUM else True
        self._types = frozenset(dtypes.NUMPY[name] for name in types)
        self._ways: dict[tuple[Any, ...], _Way] = {}

    def __call__(self, data: Any, indices: Any, segment_ids: Any, num_segments: Any = None) -> Array | None:
        if type(data) is not NDARRAY or type(indices) is not NDARRAY or type(segment_ids) is not NDARRAY:
            return None
        dtype, shape = data.dtype, data.shape
        key = dtype, indices.dtype, segment_ids.dtype, shape[1:]
        way = self._ways.get(key) or self._make_way(key)
        if way is None or not (is_plain(data) and is_plain(indices) and is_plain(segment_ids)):
            return None
        row_bytes, width, stored, lanes, wide, converts, code = way
        size, rows = indices.size, num_segments
        if not size or not shape or indices.ndim != 1 or segment_ids.ndim != 1 or segment_ids.size != size:
            return None
        last = segment_ids.item(-1)
        if rows is None:
            rows = last + 1
        elif type(rows) is not int:
            return None
        if not 0 <= last < rows or rows * row_bytes >= NONTEMPORAL or last >= INT32_MAX:
            return None
        data_rows = shape[0]
        work = size * (ENTRY + row_bytes)
        run_parallel, threads, chunks, number = None, 1, 1, 0
        if work >= SHARED:
            if team.is_left_alone():
                return None  # whoever gets helpers asks, once for a call
            address, threads = team.team(work, most_threads())
            if address:
                run_parallel, number, chunks = address, 1, threads if work < MANY else threads * CHUNKS_PER_THREAD
            elif most_threads() > 1:
                return None  # helpers of our own
        if converts and size < FEW:
            indices, segment_ids = indices.astype(INT64, copy=False), segment_ids.astype(INT64, copy=False)
            number += 2
        output = np.empty((rows, *shape[1:]), dtype)
        source, target = data, output
        if len(shape) != 2:
            source, target = data.reshape(data_rows, width), output.reshape(rows, width)
        if stored is not None:
            source, target = source.view(stored), target.view(stored)
        args = (
            run_parallel, threads, chunks, indices, segment_ids, rows, data_rows, source, width, self.kind, lanes,
            wide, self.scaled, target, ahead_of(data_rows * row_bytes, size),
        )  # fmt: skip
        call = code[number]
        if call is None:
            wrong, code[number] = first_call(kernels.sparse_segment.pool_small, args)
        else:
            wrong = call(*args)
        if run_parallel is not None:
            team.note(wrong == LATE)
        if wrong >= 0:
            raise _error(wrong, indices, segment_ids, rows, data_rows, num_segments is not None)
        return output

    def _make_way(self, key: tuple[Any, ...]) -> _Way | None:
        dtype, indices, segment_ids, _ = key
        if dtype not in self._types or indices not in ID_TYPES or segment_ids not in ID_TYPES:
            return None
        if len(self._ways) > MOST_WAYS:
            self._ways.clear()
        self._ways[key] = way = _way(*key)
        return way


def _pool(quick: _Pool, data: Array, indices: Array, segment_ids: Array, num_segments: Any = None, *,
          plan: "Plan | None" = None, out: Array | None = None) -> Array:  # fmt: skip
    if out is None and plan is None and (found := quick(data, indices, segment_ids, num_segments)) is not None:
        return found
    if type(num_segments) is not int and num_segments is not None:
        num_segments = checks.count("num_segments", num_segments)
    fits = indices.ndim == segment_ids.ndim == 1 and segment_ids.size == indices.size and data.ndim
    if not fits or (num_segments is not None and num_segments < 0):
        _check(data, indices, segment_ids, num_segments)
    rows, size, (data_rows, *tail) = _rows(segment_ids, num_segments), indices.size, data.shape
    way = _way(data.dtype, indices.dtype, segment_ids.dtype, tuple(tail))
    argument = "segment_ids" if num_segments is None else "num_segments"
    if rows * max(way.row_bytes, 1) > INT64_MAX:
        raise _too_large(argument, rows)
    if plan is not None:
        plan.check("data", data_rows, "the output", rows)
    # Where most rows have no segment, memory that comes zeroed is cheaper than zeroing it.
    zero = (rows > 2 * size and out is None) or size == 0
    output = place(out, (rows, *tail), data.dtype, argument=argument, zero=zero)
    if size == 0:
        return output
    source, target = data.reshape(-1), output.reshape(-1)
    if way.stored is not None:
        source, target = source.view(way.stored), target.view(way.stored)
    workers = Workers(size * (16 + way.row_bytes))
    wrong = workers.run(
        kernels.sparse_segment.pool, indices, segment_ids, rows, data_rows, source, way.width, quick.kind, way.lanes,
        way.wide, quick.scaled, target, is_nontemporal(output, way.row_bytes), not zero,
        ahead_of(data_rows * way.row_bytes, size), out is not None, np.empty(workers.chunks, INT64),
    )  # fmt: skip
    if wrong >= 0:
        raise _error(wrong, indices, segment_ids, rows, data_rows, num_segments is not None)
    return output


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
    last: int = segment_ids.item(-1)
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


def _error(start: int, indices: Array, segment_ids: Array, rows: int, data_rows: int, is_given: bool) -> RowgradError:
    """The error for the first entry from `start` on that is wrong."""
    position = _first_bad(start, indices, segment_ids, rows, data_rows)
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
    quick = _Pool(KINDS[kind], REALS if kind == "Sum" else FLOATS)
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
        compute=partial(_pool, quick),
        quick=quick,
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
