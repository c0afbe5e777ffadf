"""Why numbers of segments are what they are: pooled look-ups and their gradients, plain segments and theirs."""

from collections.abc import Sequence
from functools import partial
from math import prod, sqrt
from typing import Any

import ml_dtypes
import numpy as np

from rowgrad.blocks._explain import orders
from rowgrad.blocks._explain.calls import Call, Explainer, members, nothing
from rowgrad.blocks._explain.terms import Term, add_up, combine, function, number, rounded

LATER = {"max": "larger, the later of equals", "min": "smaller, the later of equals"}
EARLIER = {"max": "larger, the earlier of equals", "min": "smaller, the earlier of equals"}


# Pooled look-ups


def _pooled(kind: str, call: Call, pin: str, index: tuple[int, ...]) -> Term:
    entries = members(call["segment_ids"] == index[0])
    dtype = call["data"].dtype
    if not entries:
        return nothing(dtype, f"no entry belongs to segment {index[0]}")
    terms = [_looked_up(call, "data", "indices", i, index[1:]) for i in entries]
    return rounded(orders.pooled(terms, call.width("data"), kind), dtype)


def _looked_up(call: Call, values: str, ids: str, i: int, rest: tuple[int, ...]) -> Term:
    return call.entry(values, (call[ids][i], *rest), [("indices", i), ("segment_ids", i)])


def _row(call: Call, index: tuple[int, ...]) -> int:
    """The row of the table that a row of a gradient is of."""
    rows = call.outputs.get("sorted_unique_indices")
    return index[0] if rows is None else int(rows[index[0]])


def _unique(call: Call, pin: str, index: tuple[int, ...], ids: str = "indices") -> Term:
    row = call.outputs[pin][index]
    first = np.argwhere(call[ids] == row)[0]
    return call.entry(ids, [int(i) for i in first])


def _pooled_grad(kind: str, call: Call, pin: str, index: tuple[int, ...]) -> Term:
    if pin == "sorted_unique_indices":
        return _unique(call, pin, index)
    row = _row(call, index)
    return _scattered(call, kind, members(call["indices"] == row), "segment_ids", index,
                      f"no entry looks up row {row}")  # fmt: skip


def _pooled_grad_grad(kind: str, call: Call, pin: str, index: tuple[int, ...]) -> Term:
    return _scattered(call, kind, members(call["segment_ids"] == index[0]), "indices", index,
                      f"no entry belongs to segment {index[0]}")  # fmt: skip


def _scattered(call: Call, kind: str, entries: list[int], ids: str, index: tuple[int, ...], why: str) -> Term:
    """The sum of grad[ids[i]] · scale over entries i, one after the other."""
    dtype, width = call["grad"].dtype, call.width("grad")
    if not entries:
        return nothing(dtype, why)
    terms = []
    counts = dict(zip(*(found.tolist() for found in np.unique(call["segment_ids"], return_counts=True)), strict=True))
    for i in entries:
        term = _looked_up(call, "grad", ids, i, index[1:])
        if kind != "sum":
            count = counts[int(call["segment_ids"][i])]
            scale = 1.0 / (count if kind == "mean" else sqrt(count))
            name = f"1/{count}" if kind == "mean" else f"1/√{count}"
            term = combine("product", [term, number(scale, width, name)], width)
        terms.append(term)
    return rounded(add_up(terms, width, from_zero=True), dtype)


# Weighted sums and dots


def _weighted(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    if pin == "sorted_unique_indices":
        return _unique(call, pin, index)
    values, ids = ("data", "indices") if "data" in call.inputs else ("grad", "segment_ids")
    row = index[0] if values == "data" else _row(call, index)
    entries = members(call["segment_ids" if values == "data" else "indices"] == row)
    dtype, width = call[values].dtype, call.width(values)
    if not entries:
        return nothing(dtype, f"no entry belongs to segment {row}")
    terms = [combine("product", [_looked_up(call, values, ids, i, index[1:]), call.entry("weights", (i,))], width)
             for i in entries]  # fmt: skip
    return rounded(add_up(terms, width, from_zero=True), dtype)


def _row_dot(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    (i,) = index
    width = call.width("a")
    left, right = int(call["a_rows"][i]), int(call["b_rows"][i])
    places = list(np.ndindex(call["a"].shape[1:]))
    sides = (("a", left, "a_rows"), ("b", right, "b_rows"))
    terms = [combine("product", [call.entry(name, (row, *place), [(ids, i)]) for name, row, ids in sides], width)
             for place in places]  # fmt: skip
    return rounded(orders.lanes(terms, width), call.outputs[pin].dtype)


# The largest of a segment


def _largest(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    entries = members(call["segment_ids"] == index[0])
    if pin == "chosen":
        row = call.outputs[pin][index]
        near = [i for i in entries if call["indices"][i] == row]
        if not near:
            return nothing(np.int64, f"no entry belongs to segment {index[0]}", -1)
        return call.entry("indices", (near[0],), [("segment_ids", near[0])])
    dtype = call["data"].dtype
    if not entries:
        return nothing(dtype, f"no entry belongs to segment {index[0]}")
    terms = [_looked_up(call, "data", "indices", i, index[1:]) for i in entries]
    return combine("choice", terms, dtype, rule="largest, the first of equals, NaN first")


def _largest_grad(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    if pin == "sorted_unique_indices":
        return _unique(call, pin, index, "chosen")
    row, rest = _row(call, index), index[1:]
    dtype = call["grad"].dtype
    entries = members(call["chosen"][(slice(None), *rest)] == row)
    if not entries:
        return nothing(dtype, f"no segment has chosen row {row}")
    terms = [call.entry("grad", (i, *rest), [("chosen", (i, *rest))]) for i in entries]
    return rounded(add_up(terms, call.width("grad"), from_zero=True), dtype)


def _largest_grad_grad(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    row = int(call["chosen"][index])
    if row < 0:
        return nothing(call["grad"].dtype, "the segment is empty")
    return call.entry("grad", (row, *index[1:]), [("chosen", index)])


def _rank(ids: str, call: Call, pin: str, index: tuple[int, ...]) -> Term:
    value = call.outputs[pin][index]
    if value < 0:
        return nothing(np.int64, "the segment is empty", -1)
    return function(f"the place of {ids}[{', '.join(map(str, index))}] in sorted_unique_indices", value,
                    [call.entry(ids, index), call.entry("sorted_unique_indices", (int(value),))])  # fmt: skip


# Rows by segment


def _limit(kind: str, dtype: Any, *, finite: bool) -> Any:
    """The value that a reduction begins with."""
    if kind not in ("max", "min"):
        return 1 if kind == "prod" else 0
    info: Any = np.iinfo(dtype) if dtype.kind in "iu" else ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    if finite or dtype.kind in "iu":
        return info.min if kind == "max" else info.max
    return -np.inf if kind == "max" else np.inf


def _fold(kind: str, terms: Sequence[Term], width: Any, start: Term | None, rules: Any) -> Term:
    if kind == "prod":
        return combine("product", [start, *terms] if start else terms, width)
    if kind in rules:
        return combine("choice", [start, *terms] if start else terms, width, rule=rules[kind])
    return add_up(terms, width, from_zero=start is not None)


def _sorted(kind: str, call: Call, pin: str, index: tuple[int, ...]) -> Term:
    data, rest = call["data"], index[1:]
    dtype, width = data.dtype, call.width("data")
    entries = members(call["segment_ids"] == index[0])
    if not entries:
        empty = _limit(kind, dtype, finite=True) if "num_segments" in call.inputs else 1 if kind == "prod" else 0
        return nothing(dtype, f"no row belongs to segment {index[0]}", empty)
    terms = [call.entry("data", (i, *rest), [("segment_ids", i)]) for i in entries]
    if len(terms) == 1:
        return terms[0]
    packet = 8 if dtype.itemsize == 2 else 32 // dtype.itemsize
    full = prod(data.shape[1:]) // packet * packet
    if kind == "mean" or (kind in ("sum", "prod") and dtype.itemsize == 2):
        full = 0
    column = int(np.ravel_multi_index(rest, data.shape[1:])) if rest else 0
    start = number(_limit(kind, dtype, finite=False), width, orders.START)
    if column < full and len(terms) >= 16 and kind in ("sum", "prod"):
        total = orders.packed(terms, width, "sum" if kind == "sum" else "product", start)
    else:
        total = _fold(kind, terms, width, start, EARLIER if column < full else LATER)
    if kind != "mean":
        return rounded(total, dtype)
    return rounded(_divided(total, len(terms), dtype, width), dtype)


def _divided(total: Term, count: int, dtype: Any, width: Any, *, root: bool = False) -> Term:
    divisor: Any = sqrt(count) if root else count
    if dtype.kind in "iu":  # the count is of the same type; where that makes it 0, it stays what it was
        divisor = int(np.array(count).astype(dtype)) or count
    name = f"√{count}" if root else str(count)
    term = number(divisor, np.int64 if dtype.kind in "iu" else width, name)
    return combine("quotient", [total, term], width, rule="real")


def _unsorted(kind: str, call: Call, pin: str, index: tuple[int, ...]) -> Term:
    ids, data = np.asarray(call["segment_ids"]), call["data"]
    dtype, width, rest = data.dtype, call.width("data"), index[1:]
    flat = members(ids.reshape(-1) == index[0])
    places = [tuple(int(i) for i in np.unravel_index(at, ids.shape)) for at in flat] if ids.ndim else [()] * len(flat)
    start = number(_limit(kind, dtype, finite=True), width, orders.START)
    if not places:
        return nothing(dtype, f"no row belongs to segment {index[0]}", start.value)
    terms = [call.entry("data", (*place, *rest), [("segment_ids", place)]) for place in places]
    total = _fold(kind, terms, width, start, LATER)
    if kind in ("mean", "sqrt_n"):
        total = _divided(total, len(terms), dtype, width, root=kind == "sqrt_n")
    return rounded(total, dtype)


def _taken(kind: str, call: Call, pin: str, index: tuple[int, ...]) -> Term:
    ids, dtype = np.asarray(call["segment_ids"]), call["grad"].dtype
    place, rest = index[: ids.ndim], index[ids.ndim :]
    segment = int(ids[place])
    if segment < 0:
        return nothing(dtype, "a negative segment id is left out")
    entry = call.entry("grad", (segment, *rest), [("segment_ids", place)])
    if kind == "sum":
        return entry
    count = int((ids == segment).sum())
    return rounded(_divided(entry, count, dtype, call.width("grad"), root=kind == "sqrt_n"), dtype)


def _equal_rows(call: Call, segment: int, rest: tuple[int, ...]) -> list[int]:
    column = call["data"][(slice(None), *rest)]
    return members((call["segment_ids"] == segment) & (column == call["output"][(segment, *rest)]))


def _share(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    segment, rest, dtype = int(call["segment_ids"][index[0]]), index[1:], call["grad"].dtype
    equal = _equal_rows(call, segment, rest) if segment >= 0 else []
    if index[0] not in equal:
        return nothing(dtype, "the row is not the one that was chosen")
    entry = call.entry("grad", (segment, *rest), [("segment_ids", index[0])])
    return rounded(_divided(entry, len(equal), dtype, call.width("grad")), dtype)


def _share_grad(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    equal, dtype, width = _equal_rows(call, index[0], index[1:]), call["grad"].dtype, call.width("grad")
    if not equal:
        return nothing(dtype, f"no row of segment {index[0]} was chosen")
    terms = [call.entry("grad", (i, *index[1:]), [("segment_ids", i)]) for i in equal]
    return rounded(_divided(add_up(terms, width, from_zero=True), len(equal), dtype, width), dtype)


def _product_grad(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    segment, rest, dtype = int(call["segment_ids"][index[0]]), index[1:], call["grad"].dtype
    width = call.width("grad")
    if segment < 0:
        return nothing(dtype, "a negative segment id is left out")
    rows = members(call["segment_ids"] == segment)
    terms = [call.entry("data", (i, *rest), [("segment_ids", i)]) for i in rows]
    zeros = [term for term in terms if term.value == 0]
    here = terms[rows.index(index[0])]
    grad = call.entry("grad", (segment, *rest), [("segment_ids", index[0])])
    product = combine("product", [number(1, width, orders.START), *(term for term in terms if term.value != 0)], width)
    if not zeros:
        others = combine("quotient", [product, here], width)
    elif len(zeros) == 1 and here.value == 0:
        others = product
    else:
        others = number(0, width, "another row is 0")
    return rounded(combine("product", [grad, others], width), dtype)


def _from_offsets(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    segment = int(call.outputs[pin][index])
    return function(f"the last segment that begins at or before entry {index[0]}", call.outputs[pin][index],
                    [call.entry("offsets", (segment,))])  # fmt: skip


SEGMENTS: dict[str, Explainer] = {
    "IndexRank": partial(_rank, "indices"),
    "SparseSegmentWeightedSum": _weighted,
    "SparseSegmentWeightedSumGradV2": _weighted,
    "RowDot": _row_dot,
    "SparseSegmentMax": _largest,
    "SparseSegmentMaxGrad": _largest_grad,
    "SparseSegmentMaxGradV2": _largest_grad,
    "SparseSegmentMaxGradGrad": _largest_grad_grad,
    "ChosenRank": partial(_rank, "chosen"),
    "SegmentMean": partial(_sorted, "mean"),
    "SegmentMaxGrad": _share,
    "SegmentMaxGradGrad": _share_grad,
    "SegmentProdGrad": _product_grad,
    "SegmentIdsFromOffsets": _from_offsets,
}
for _name, _kind in (("Sum", "sum"), ("Mean", "mean"), ("SqrtN", "sqrt_n")):
    SEGMENTS |= {
        f"SparseSegment{_name}": partial(_pooled, _kind),
        f"SparseSegment{_name}WithNumSegments": partial(_pooled, _kind),
        f"SparseSegment{_name}Grad": partial(_pooled_grad, _kind),
        f"SparseSegment{_name}GradV2": partial(_pooled_grad, _kind),
        f"SparseSegment{_name}GradGrad": partial(_pooled_grad_grad, _kind),
        f"Segment{_name}Grad": partial(_taken, _kind),
        f"UnsortedSegment{_name}": partial(_unsorted, _kind),
    }
for _name, _kind in (("Sum", "sum"), ("Prod", "prod"), ("Max", "max"), ("Min", "min")):
    SEGMENTS |= {
        f"Segment{_name}": partial(_sorted, _kind),
        f"Segment{_name}V2": partial(_sorted, _kind),
        f"UnsortedSegment{_name}": partial(_unsorted, _kind),
    }
