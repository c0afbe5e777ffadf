"""Reductions of the rows of an array by segment: sums, means, products, largest and smallest, sorted and unsorted.

Sorted segments are runs of rows, and the result has a row for each id up to the last. Unsorted ones come in any order,
rows with a negative id are left out, and the number of segments is given.
"""

from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.catalogue import Example, Operator, Rule, declare
from rowgrad._ops.order import one_id_type
from rowgrad._ops.pins import INT64_MAX, Pin
from rowgrad._ops.sparse_segment_grad import G
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import IDS, NUMBERS, REALS, Array
from rowgrad._runtime.memory import allocate, is_nontemporal, place
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError, RowgradError

INT64, INT32_MAX = np.dtype(np.int64), 2**31 - 1
LINE = 64  # bytes in a cache line
PACKET = 32  # bytes that TensorFlow reduces side by side; of half and bfloat16, half as many
# The kernels' reductions: of columns in whole packets, of the columns after them, and of unsorted segments.
ADD, MULTIPLY, LARGER, LARGER_LATER, SMALLER, SMALLER_LATER = range(6)
REDUCTIONS = {
    "Sum": (ADD, ADD, ADD),
    "Mean": (ADD, ADD, ADD),
    "SqrtN": (ADD, ADD, ADD),
    "Prod": (MULTIPLY, MULTIPLY, MULTIPLY),
    "Max": (LARGER, LARGER_LATER, LARGER_LATER),
    "Min": (SMALLER, SMALLER_LATER, SMALLER_LATER),
}


class Values(NamedTuple):
    """An array of one element each: where sorted and unsorted reductions begin, and 0, all in the type of the sums."""

    sorted_start: Array
    unsorted_start: Array
    zero: Array


class Way(NamedTuple):
    """How rows of one width travel through the kernels for sorted segments; arrays of no elements tell kinds.

    `start` is where sums begin, in their type, and `empty` what rows without a segment hold, in that of the data.
    """

    stored: "np.dtype[Any]"
    parts: int
    packed: int
    packed_kind: Array
    kind: Array
    lanes: Array
    start: Array
    empty: Array


@lru_cache(maxsize=1024)
def _way(name: str, dtype: "np.dtype[Any]", columns: int, is_given: bool) -> Way:
    stored, sums, parts = _summing(name, dtype)
    packed = _packed(name, dtype, columns * parts)
    packed_kind, kind, _ = (kernels.segments.kind_of(reduction) for reduction in REDUCTIONS[name])
    lanes, values = lanes_of(sums, packed or columns * parts), _values(name, dtype)
    empty = (values.unsorted_start if is_given or name == "Prod" else values.zero).astype(dtype)
    return Way(stored, parts, packed, packed_kind, kind, lanes, values.sorted_start, empty)


def _summing(name: str, dtype: "np.dtype[Any]") -> dtypes.Summing:
    """How values travel through kernels; sums and products of unsigned integers have the bits of signed ones."""
    if dtype.kind == "u" and name not in ("Max", "Min"):
        return dtypes.summing(np.dtype(f"i{dtype.itemsize}"))
    return dtypes.summing(dtype)


@lru_cache(maxsize=256)
def _values(name: str, dtype: "np.dtype[Any]") -> Values:
    sums = _summing(name, dtype).sums
    zero = np.zeros(1, sums)
    if name not in ("Max", "Min"):
        start = np.ones(1, sums) if name == "Prod" else zero
        return Values(start, start, zero)
    info: Any = np.iinfo(dtype) if dtype.kind in "iu" else ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    end = info.min if name == "Max" else info.max
    infinity = end if dtype.kind in "iu" else -np.inf if name == "Max" else np.inf
    return Values(np.array([infinity], sums), np.array([end], sums), zero)


def _sorted(name: str, data: Array, segment_ids: Array, num_segments: Any = None, *, out: Array | None = None) -> Array:
    if segment_ids.ndim != 1 or segment_ids.shape != data.shape[:1]:
        checks.rank("segment_ids", segment_ids, 1)
        checks.at_least_vector("data", data)
        checks.same_length("segment_ids", segment_ids.size, "the rows of data", data.shape[0])
    dtype, columns, is_given = data.dtype, prod(data.shape[1:]), num_segments is not None
    rows = _rows(segment_ids, num_segments, columns * data.itemsize)
    argument = "num_segments" if is_given else "segment_ids"
    output = place(out, (rows, *data.shape[1:]), dtype, argument=argument, zero=False)
    stored, parts, packed, packed_kind, kind, lanes, start, empty = _way(name, dtype, columns, is_given)
    if segment_ids.size == 0:
        output.fill(empty[0])
        return output
    workers = Workers(segment_ids.size * (8 + columns * data.itemsize))
    (ids,), bad = one_id_type(segment_ids), np.empty(workers.chunks, INT64)
    width, is_product = columns * parts, name == "Prod" and parts == 2
    wrong = -1
    if out is not None or is_product or width == 0:
        wrong = workers.run(kernels.segments.check_sorted, ids, rows, bad)
    if wrong < 0 and is_product:
        return _multiply(output, ids, data, packed=packed // 2)
    if wrong < 0 and width:
        flat, results, key = data.ravel(), output.ravel(), (name, dtype, ids.dtype, lanes.ndim)
        if stored is not dtype:
            # Kernels write `empty` as it is, so it comes as results are stored.
            flat, results, empty = flat.view(stored), results.view(stored), empty.view(stored)
        if packed:
            wrong = workers.run(kernels.segments.reduce_wide, ids, rows, flat, width, packed, packed_kind, kind,
                                start, empty, lanes, results, is_nontemporal(output, width * data.itemsize), bad,
                                key=key)  # fmt: skip
        else:
            is_mean = name == "Mean" and dtype.kind not in "iu"
            wrong = workers.run(kernels.segments.reduce_narrow, ids, rows, flat, width, kind, start, empty, is_mean,
                                lanes, results, bad, key=key)  # fmt: skip
    if wrong >= 0:
        raise _diagnose(int(wrong), segment_ids, rows, is_given)
    if name == "Mean" and dtype.kind in "iu":
        _divide_whole(output, segment_ids)
    return output


def lanes_of(sums: "np.dtype[Any]", width: int) -> Array:
    """How wide vectors are; of integers there are two widths only, so that kernels are compiled for few."""
    if sums.kind in "iu":
        width = LINE // sums.itemsize if width * sums.itemsize >= LINE else 1
    return kernels.lanes.lanes_for(sums, width)  # type: ignore[no-any-return]


def _packed(name: str, dtype: "np.dtype[Any]", width: int) -> int:
    """How many columns TensorFlow reduces in whole packets, where that shows; parts of complex numbers are columns."""
    narrow = dtype.itemsize == 2
    if dtype.kind in "iu" or name == "Mean" or (narrow and name in ("Sum", "Prod")):
        return 0  # in one order anyway, or with one rounding
    packet = PACKET // 2 // 2 if narrow else PACKET // dtypes.summing(dtype).sums.itemsize
    return width // packet * packet


def _multiply(output: Array, ids: Array, data: Array, packed: int | None = None) -> Array:
    """The products of complex numbers, of which vectors would have to know real and imaginary parts."""
    output.fill(1)
    rows, width = output.shape[0], prod(data.shape[1:])
    flat, results = data.reshape(-1), output.reshape(-1)
    if packed is None:
        wrong = kernels.segments.multiply_unsorted(ids, rows, flat, width, results)
        if wrong >= 0:
            raise past_the_end(ids, wrong, rows)
    else:
        kernels.segments.multiply_sorted(ids, rows, flat, width, packed, results)
    return output


def _divide_whole(output: Array, segment_ids: Array) -> None:
    """Means of integers, cut towards 0. A count that its type cannot hold wraps there, as in TensorFlow.

    One that wraps to 0 ends a process of TensorFlow; here the sum is divided by the count itself.
    """
    ids = segment_ids.copy()
    counts = np.bincount(ids[(ids >= 0) & (ids < output.shape[0])], minlength=output.shape[0])
    wrapped = counts.astype(output.dtype)
    is_unsigned = output.dtype.kind == "u"
    whole = np.where(wrapped == 0, np.maximum(counts, 1), wrapped.astype(np.int64))
    divisors = whole.astype(np.uint64 if is_unsigned else np.int64).reshape(-1, *(1,) * (output.ndim - 1))
    sums = output.astype(divisors.dtype)
    output[...] = ((sums - np.fmod(sums, divisors)) // divisors).astype(output.dtype)


def _rows(segment_ids: Array, num_segments: Any, row_bytes: int) -> int:
    """The number of rows of the output, which the last id must allow."""
    given = None if num_segments is None else checks.count("num_segments", num_segments)
    rows = given or 0
    if segment_ids.size:
        last = segment_ids.item(-1)
        rows = last + 1 if given is None else given
        if not 0 <= last < rows:
            raise _bad_segment(segment_ids, segment_ids.size - 1, rows, given is not None)
    if rows * max(row_bytes, 1) > INT64_MAX or (rows > INT32_MAX and segment_ids.itemsize == 4):
        argument = "segment_ids" if given is None else "num_segments"
        raise InvalidArgumentError(
            f"{argument} asks for {rows} rows, more than can be counted. Number the segments from 0, without large "
            "gaps.",
            code="too-large",
            argument=argument,
            value=rows,
        )
    return rows


def _bad_segment(segment_ids: Array, position: int, rows: int, is_given: bool) -> RowgradError:
    name = "num_segments" if is_given else "the last id + 1"
    remedy = "Number the segments from 0" + (", or raise num_segments." if is_given else ".")
    value = int(segment_ids[position])
    return checks.out_of_range("segment_ids", position, value, rows, name, "segment-id-out-of-range", remedy)


def _diagnose(start: int, segment_ids: Array, rows: int, is_given: bool) -> RowgradError:
    """The error for the first id that is wrong, from `start` on."""
    ids = segment_ids.copy()
    falls = np.flatnonzero(ids[1:] < ids[:-1]) + 1
    outside = np.flatnonzero((ids < 0) | (ids >= rows))
    if outside.size and (ids[outside[0]] < 0 or is_given) and not (falls.size and falls[0] <= outside[0]):
        return _bad_segment(ids, int(outside[0]), rows, is_given)
    if not falls.size:
        return checks.changed("segment_ids")
    fall = int(falls[0])
    return InvalidArgumentError(
        f"segment_ids[{fall}] is {int(ids[fall])}, smaller than {int(ids[fall - 1])} before it; the ids must not "
        "decrease. Sort the rows by segment, or use an unsorted operator.",
        code="unsorted-segment-ids",
        argument="segment_ids",
        position=fall,
        value=int(ids[fall]),
    )


# Unsorted


def check_prefix(data_name: str, data: Array, segment_ids: Array) -> tuple[Any, ...]:
    """The shape of segment_ids must begin that of `data`; tells what follows."""
    if data.shape[: segment_ids.ndim] != segment_ids.shape:
        raise InvalidArgumentError(
            f"segment_ids has shape {list(segment_ids.shape)}, but {data_name} has {list(data.shape)}, which must "
            "begin with it: an id for each row. Pass as many ids as there are rows.",
            code="length-mismatch",
            argument="segment_ids",
            value=segment_ids.shape,
        )
    return tuple(data.shape[segment_ids.ndim :])


def past_the_end(segment_ids: Array, start: int, rows: int, rows_name: str = "num_segments") -> RowgradError:
    """The error for the first id that is past the end, from `start` on."""
    flat = segment_ids.reshape(-1)
    position = start + int((flat[start:] >= rows).argmax())
    place = tuple(int(i) for i in np.unravel_index(position, segment_ids.shape))
    if flat[position] < rows:
        return checks.changed("segment_ids")
    remedy = f"Fix the id, make it negative to leave the row out, or raise {rows_name}."
    return checks.out_of_range("segment_ids", place[0] if len(place) == 1 else place, int(flat[position]), rows,
                               rows_name, "segment-id-out-of-range", remedy)  # fmt: skip


def counts_of(segment_ids: Array, rows: int) -> Array:
    """How many rows each segment has, at least 1."""
    flat = segment_ids.reshape(-1).copy()
    return np.maximum(np.bincount(flat[(flat >= 0) & (flat < rows)], minlength=rows), 1)


def divisors_of(name: str, segment_ids: Array, rows: int, sums: "np.dtype[Any]") -> Array:
    """What sums are divided by, for each segment; nothing for a plain sum."""
    if name not in ("Mean", "SqrtN"):
        return np.empty(0, sums)
    counts = counts_of(segment_ids, rows)
    return (np.sqrt(counts) if name == "SqrtN" else counts).astype(sums)


def _unsorted(name: str, data: Array, segment_ids: Array, num_segments: Any, *, out: Array | None = None) -> Array:
    rows = checks.count("num_segments", num_segments)
    tail = check_prefix("data", data, segment_ids)
    output = place(out, (rows, *tail), data.dtype, argument="num_segments", zero=False)
    start = _values(name, data.dtype).unsorted_start
    if data.size == 0:  # TensorFlow does not look at the ids then, and neither do we
        output.fill(start[0])
        return output
    stored, sums, parts = _summing(name, data.dtype)
    (ids,), width = one_id_type(segment_ids.reshape(-1)), parts * prod(tail)
    if name == "Prod" and parts == 2:
        return _multiply(output, ids, data.reshape(-1, *tail))
    divisors = divisors_of(name, segment_ids, rows, sums)
    flat = output.reshape(-1).view(stored)
    rounds = stored != sums or divisors.size > 0
    totals = allocate((rows * width,), sums, argument="num_segments") if rounds else flat
    workers = Workers(ids.size * (8 + width * sums.itemsize))
    wrong = workers.run(
        kernels.segments.reduce_unsorted, workers.threads, ids, rows, data.reshape(-1).view(stored), width,
        kernels.segments.kind_of(REDUCTIONS[name][2]), start, divisors, lanes_of(sums, width), totals,
        rounds, flat, np.empty(workers.chunks, np.int64),
    )  # fmt: skip
    if wrong >= 0:
        raise past_the_end(segment_ids, int(wrong), rows)
    return output


# Declarations

WORDS = {
    "Sum": "The sum of",
    "Mean": "The mean of",
    "SqrtN": "The sum, divided by the square root of the count, of",
    "Prod": "The product of",
    "Max": "The largest of",
    "Min": "The smallest of",
}
FORMULAS = {
    "Sum": "x0 + x1 + … + x(n−1)",
    "Mean": "(x0 + x1 + … + x(n−1)) / n",
    "SqrtN": "(x0 + x1 + … + x(n−1)) / sqrt(n)",
    "Prod": "x0 · x1 · … · x(n−1)",
    "Max": "the largest of x0, x1, …, x(n−1), column by column",
    "Min": "the smallest of x0, x1, …, x(n−1), column by column",
}
ROWS = "x0 … x(n−1) = data[i] for the i with segment_ids[i] = s, in the order of i\n"
EMPTY = {"Prod": "1", "Max": "the lowest number of the type", "Min": "the highest number of the type"}
RESULTS = {  # of rows [1, 2, 3], [4, 4, 2] in segment 0 and [3, 1, 5] in segment 2
    "Sum": [5.0, 6.0, 5.0],
    "Mean": [2.5, 3.0, 2.5],
    "SqrtN": [3.535534, 4.242641, 3.535534],
    "Prod": [4.0, 8.0, 6.0],
    "Max": [4.0, 4.0, 3.0],
    "Min": [1.0, 2.0, 2.0],
}
NO_ROOM = "OutOfMemoryError: the result does not fit into memory"
WRONG_TYPE = "DTypeError: a type that is not listed"
LATER = (
    "Of equal values, such as 0 and -0, and of a NaN and a number, the later one stays{}, as in TensorFlow on x86-64."
)
HALF = "Half and bfloat16 are computed in float32 and rounded once."
PACKETS = (
    "The order is TensorFlow's: columns in whole packets of 32 bytes have four totals, of every fourth row each, from "
    "16 rows on; all others have one. "
)


def _notes(name: str, is_sorted: bool) -> str:
    if name in ("Max", "Min"):
        where = " in columns after the last whole packet of 8 (4 of float64), in others the earlier one or the number"
        return LATER.format(where if is_sorted else "")
    more = " Means of integers are cut towards 0." if name == "Mean" and is_sorted else ""
    return (PACKETS if is_sorted and name in ("Sum", "Prod") else "") + HALF + more


def _types(name: str) -> dict[str, tuple[str, ...]]:
    return {"T": REALS if name in ("Max", "Min") else NUMBERS, "Tindices": IDS}


def _rules(name: str) -> dict[str, Rule]:
    if name in ("Max", "Min"):
        return {"data": lambda op, d_output, data, output, segment_ids: op.SegmentMaxGrad(
            d_output, data, output, segment_ids)}  # fmt: skip
    if name == "Prod":
        return {"data": lambda op, d_output, data, segment_ids: op.SegmentProdGrad(d_output, data, segment_ids)}
    return {"data": lambda op, d_output, segment_ids: op[f"Segment{name}Grad"](d_output, segment_ids)}


DATA = Pin("data", "T", "[N, ...]", "The rows.")


def _declare_sorted(name: str, *, counted: bool) -> None:
    empty = EMPTY.get(name, "0") if counted or name == "Prod" else "0"
    has_gap = empty in ("0", "1")
    rows = [RESULTS[name], *[[float(empty)] * 3 for _ in range(has_gap)], [3.0, 1.0, 5.0]]
    inputs: dict[str, Any] = {"data": G, "segment_ids": [0, 0, 1 + has_gap]}
    inputs |= {"num_segments": len(rows)} if counted else {}
    count = (Pin("num_segments", "Tnumsegments", "[]", "The number of rows of the output."),) if counted else ()
    declare(Operator(
        name=f"Segment{name}" + "V2" * counted,
        function=f"segment_{name.lower()}",
        family="segments",
        summary=f"{WORDS[name]} the rows of each segment; segments are runs of rows"
        + (", and their number is given." if counted else "."),
        inputs=(DATA, Pin("segment_ids", "Tindices", "[N]", "The segment of each row, not decreasing; gaps are fine."),
                *count),
        outputs=(Pin("output", "T", "[num_segments, ...]" if counted else "[last(segment_ids) + 1, ...]",
                     f"A row for each segment; those without rows are {empty}."),),
        types=_types(name) | ({"Tnumsegments": IDS} if counted else {}),
        formula=ROWS + f"output[s] = {FORMULAS[name]}",
        errors=(
            *(("InvalidArgumentError: num_segments is not a scalar, or negative",) if counted else ()),
            "InvalidArgumentError: segment_ids is not a vector, or not as long as data has rows",
            "InvalidArgumentError: data is a scalar",
            "InvalidArgumentError: the segment ids decrease, or ask for more rows than can be counted",
            NO_ROOM,
            "OutOfRangeError: a segment id is negative" + (" or not below num_segments" if counted else ""),
            WRONG_TYPE,
        ),
        cost="O(size of data + size of the output).",
        example=Example(inputs, {"output": rows}),
        compute=partial(_sorted, name),
        options=("out",),
        gradient=_rules(name),
        notes=_notes(name, True)
        + (" TensorFlow has this operator only in functions that XLA compiles." if counted else ""),
    ))  # fmt: skip


SNAKE = {"SqrtN": "sqrt_n"}
EXAMPLES = {  # of rows [1, 2, 3], [4, 4, 2] and [3, 1, 5] in segments 0, 1 and 0, or the second in none
    "Sum": [[4.0, 3.0, 8.0]],
    "Mean": [[2.0, 1.5, 4.0], [4.0, 4.0, 2.0]],
    "SqrtN": [[2.828427, 2.121320, 5.656854], [4.0, 4.0, 2.0]],
    "Prod": [[3.0, 2.0, 15.0]],
    "Max": [[3.0, 2.0, 5.0], [4.0, 4.0, 2.0]],
    "Min": [[1.0, 1.0, 3.0], [4.0, 4.0, 2.0]],
}


def _declare_unsorted(name: str) -> None:
    empty = EMPTY.get(name, "0")
    rows = EXAMPLES[name]
    is_ours = name in ("Mean", "SqrtN")
    declare(Operator(
        name=f"UnsortedSegment{name}",
        function=f"unsorted_segment_{SNAKE.get(name, name.lower())}",
        family="segments",
        summary=f"{WORDS[name]} the rows of each segment; ids come in any order, and rows with a negative id are left "
        "out.",
        inputs=(DATA, Pin("segment_ids", "Tindices", "[N]", "The segment of each row, in any order."),
                Pin("num_segments", "Tnumsegments", "[]", "The number of rows of the output.")),
        outputs=(Pin("output", "T", "[num_segments, ...]",
                     f"A row for each segment; those without rows are {empty}."),),
        types={**_types(name), "T": tuple(t for t in _types(name)["T"] if not is_ours or "int" not in t),
               "Tnumsegments": IDS},
        formula=ROWS + f"output[s] = {FORMULAS[name]}",
        errors=(
            "InvalidArgumentError: num_segments is not a scalar, or negative",
            "InvalidArgumentError: the shape of data does not begin with that of segment_ids",
            NO_ROOM,
            "OutOfRangeError: a segment id is not below num_segments",
            WRONG_TYPE,
        ),
        cost="O(size of data + size of the output); each thread reads all ids.",
        example=Example(
            {"data": G, "segment_ids": [0, -1 if len(rows) == 1 else 1, 0], "num_segments": len(rows)},
            {"output": rows},
        ),
        compute=partial(_unsorted, name),
        options=("out",),
        gradient=_rules(name),
        notes=_notes(name, False) + " Rows may have several dimensions before those that are reduced: where "
        "segment_ids has more dimensions than one, it has an id for each of them. In JAX and on pages it is a vector. "
        "Without elements in data the ids are ignored.",
        in_tensorflow=not is_ours,
    ))  # fmt: skip


for _name in ("Sum", "Mean", "Prod", "Max", "Min"):
    _declare_sorted(_name, counted=False)
    if _name != "Mean":
        _declare_sorted(_name, counted=True)
for _name in ("Sum", "Mean", "SqrtN", "Prod", "Max", "Min"):
    _declare_unsorted(_name)
