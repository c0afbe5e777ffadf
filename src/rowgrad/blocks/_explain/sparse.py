"""Why numbers of sparse and ragged tensors are what they are: moves, reductions, sums, products, counts and crosses."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rowgrad._ops import OPERATORS
from rowgrad._runtime.dtypes import Array
from rowgrad.blocks._explain import orders
from rowgrad.blocks._explain.calls import (
    Call,
    Explainer,
    following,
    members,
    moved,
    nothing,
    run,
    whole,
)
from rowgrad.blocks._explain.terms import Term, add_up, combine, exponential, function, number, rounded

# Rows that are empty


def _filled(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    value = call.outputs[pin][index]
    ids = "indices" if "indices" in call.inputs else "value_rowids"
    if pin == "output_values":
        return moved("values", "default_value")(call, pin, index)
    if pin == "empty_row_indicator":
        rows = call[ids][:, 0] if call[ids].ndim > 1 else call[ids]
        count = int((rows == index[0]).sum())
        return function(f"row {index[0]} has {count} entries", value)
    if pin == "reverse_index_map":
        return function(f"where entry {index[0]} has gone", value, [call.entry("values", index)])
    return following("output_values", ("values", "default_value"), {"values": ids})(call, pin, index)


def _filled_grad(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    places, dtype = call["reverse_index_map"], call["grad_values"].dtype
    if pin == "d_values":
        return call.entry("grad_values", (int(places[index]),), [("reverse_index_map", index)])
    is_new = np.ones(len(call["grad_values"]), bool)
    is_new[places] = False
    entries = members(is_new)
    if not entries:
        return nothing(dtype, "no row was empty")
    terms = [call.entry("grad_values", (i,)) for i in entries]
    return rounded(add_up(terms, call.width("grad_values"), from_zero=True), dtype)


def _filled_grad_grad(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    entries, dtype = members(call["reverse_index_map"] == index[0]), call["d_values_grad"].dtype
    if not entries:
        return call.entry("d_default_value_grad", ())
    terms = [call.entry("d_values_grad", (i,), [("reverse_index_map", i)]) for i in entries]
    return rounded(add_up(terms, call.width("d_values_grad"), from_zero=True), dtype)


# Reductions


def _kept_axes(call: Call) -> tuple[int, list[int], list[int]]:
    rank = len(call["input_shape"])
    gone = sorted({int(axis) % rank for axis in np.reshape(call["reduction_axes"], -1)})
    return rank, [axis for axis in range(rank) if axis not in gone], gone


def _reduced(kind: str, call: Call, pin: str, index: tuple[int, ...]) -> Term:
    rank, kept, gone = _kept_axes(call)
    keeps = bool(call.attributes.get("keep_dims"))
    indices, dtype = call["input_indices"], call["input_values"].dtype
    if pin == "output_shape":
        return whole(call, pin, index)
    if pin == "output":
        place = [index[axis] for axis in kept] if keeps else list(index)
    else:
        row = call.outputs["output_indices"][index[0]]
        place = [int(row[axis]) for axis in kept] if keeps else [int(i) for i in row]
    entries = members((indices[:, kept] == np.array(place, np.int64).reshape(1, -1)).all(axis=1))
    entries.sort(key=lambda i: [int(indices[i, axis]) for axis in gone])
    if pin == "output_indices":
        axis = index[1] if keeps else kept[index[1]]
        if axis in gone:
            return number(0, np.int64, "the axis is summed over")
        return call.entry("input_indices", (entries[0], axis))
    if not entries:
        return nothing(dtype, "no entry is there")
    terms = [call.entry("input_values", (i,), [("input_indices", (i, axis)) for axis in range(rank)]) for i in entries]
    return rounded(_eigen(terms, call.width("input_values"), kind), dtype)


def _eigen(terms: Sequence[Term], width: Any, kind: str) -> Term:
    packet = max(32 // np.dtype(width).itemsize, 1)
    if kind == "sum":
        return orders.eigen(terms, width, packet)
    low = np.iinfo(width).min if np.dtype(width).kind in "iu" else -np.inf
    start = number(low, width, orders.START)
    return orders.eigen_leaf(terms, width, packet, "choice", start, "larger, the earlier of equals",
                             "larger, the later of equals")  # fmt: skip


def _reduced_ids(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    _, kept, _ = _kept_axes(call)
    return function("the number of the group of its indices", call.outputs[pin][index],
                    [call.entry("input_indices", (index[0], axis)) for axis in kept])  # fmt: skip


# Two sparse tensors


def _met(call: Call, index: Array, k: int) -> tuple[int | None, int | None]:
    """The entries of both that meet in entry `k` of the result."""
    if not (_is_rising(call["a_indices"]) and _is_rising(call["b_indices"])):
        return _kept(call, _merged(call["a_indices"].tolist(), call["b_indices"].tolist()))[k]
    found = [np.flatnonzero((call[name] == index).all(axis=1)) for name in ("a_indices", "b_indices")]
    return int(found[0][0]) if len(found[0]) else None, int(found[1][0]) if len(found[1]) else None


def _is_rising(indices: Array) -> bool:
    """Whether each index comes after the one before it."""
    steps = np.diff(indices, axis=0)
    if not steps.size:
        return len(indices) < 2
    first = (steps != 0).argmax(axis=1)
    return bool((steps[np.arange(len(steps)), first] > 0).all())


def _merged(a: list[Any], b: list[Any]) -> list[tuple[int | None, int | None]]:
    found: list[tuple[int | None, int | None]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        found.append((i if a[i] <= b[j] else None, j if b[j] <= a[i] else None))
        i, j = i + (found[-1][0] is not None), j + (found[-1][1] is not None)
    return found + [(k, None) for k in range(i, len(a))] + [(None, k) for k in range(j, len(b))]


def _kept(call: Call, pairs: list[tuple[int | None, int | None]]) -> list[tuple[int | None, int | None]]:
    """Those that stay: SparseAdd drops sums below its threshold."""
    if "thresh" not in call.inputs:
        return pairs
    width, kept = call.width("a_values"), []
    for i, j in pairs:
        if i is not None and j is not None:
            with np.errstate(all="ignore"):
                total = (call["a_values"][i : i + 1].astype(width) + call["b_values"][j : j + 1].astype(width))[0]
                total = np.asarray(total).astype(call["a_values"].dtype)[()]
                wide = int(total) if total.dtype.kind in "iu" and total.itemsize < 4 else total
                if not np.asarray(call["thresh"]) <= np.abs(wide):
                    continue
        kept.append((i, j))
    return kept


def _both(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    """SparseAdd, SparseSparseMaximum and SparseSparseMinimum."""
    name = call.operator.name
    outputs = "sum_indices" if name == "SparseAdd" else "output_indices"
    if pin.endswith("shape"):
        return call.entry("a_shape", index)
    row = call.outputs[outputs][index[0]]
    i, j = _met(call, row, index[0])
    if pin == outputs:
        return call.entry("a_indices", (i, index[1])) if i is not None else call.entry("b_indices", (j or 0, index[1]))
    dtype, width = call["a_values"].dtype, call.width("a_values")
    rank = call["a_indices"].shape[1]
    sides = [call.entry(f"{side}_values", (at,), [(f"{side}_indices", (at, axis)) for axis in range(rank)])
             if at is not None else None for side, at in (("a", i), ("b", j))]  # fmt: skip
    if name == "SparseAdd":
        return rounded(add_up([side for side in sides if side is not None], width), dtype)
    count = len(call.outputs["output_values"])
    packet = {"float32": 8, "float64": 4}.get(str(dtype), count + 1)
    which = "first" if index[0] >= count // packet * packet else "second"
    rule = f"{'larger' if name == 'SparseSparseMaximum' else 'smaller'}, the {which} of equals, NaN first"
    zero = number(0, dtype, "no entry is there")
    return combine("choice", [side or zero for side in sides], dtype, rule=rule)


def _sum_of_grads(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    """SparseAddGradGrad: which entries a gradient of the sum went to is asked of SparseAddGrad, with numbers."""
    dtype, width = call["a_grad"].dtype, call.width("a_grad")
    labels = np.arange(1, len(call["sum_indices"]) + 1, dtype=np.float64)
    ids = {name: call[name] for name in ("a_indices", "b_indices", "sum_indices")}
    targets = run(OPERATORS["SparseAddGrad"], {"backprop_val_grad": labels, **ids}, {})
    terms = [call.entry(f"{side}_grad", (i,)) for side in "ab"
             for i in members(targets[f"{side}_val_grad"] == index[0] + 1)]  # fmt: skip
    if not terms:
        return nothing(dtype, "no entry was added here")
    return add_up(terms, width, from_zero=True, rounds=dtype)


def _chosen(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    side = pin[0]
    entry = call.entry(f"{side}_values", index)
    return function("1 where this entry is the one that is taken, else 0", call.outputs[pin][index], [entry])


# A sparse tensor and a dense one


def _broadcast(indices: Array, dense: Array) -> Array:
    """The places in `dense` of entries, which broadcasts to the shape that these are in."""
    rank = dense.ndim
    tail = indices[:, indices.shape[1] - rank :]
    return np.where(np.array(dense.shape, np.int64).reshape(1, -1) == 1, 0, tail)


def _beside_dense(kind: str, call: Call, pin: str, index: tuple[int, ...]) -> Term:
    (k,) = index
    width = call.width("sp_values")
    ids = [("sp_indices", (k, axis)) for axis in range(call["sp_indices"].shape[1])]
    place = _broadcast(call["sp_indices"][k : k + 1], call["dense"])[0]
    terms = [call.entry("sp_values", (k,), ids), call.entry("dense", [int(i) for i in place], ids)]
    return rounded(combine(kind, terms, width), call["sp_values"].dtype)


def _scattered(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    places = _broadcast(call["sp_indices"], call["dense"])
    entries, dtype = members((places == np.array(index, np.int64).reshape(1, -1)).all(axis=1)), call["grad"].dtype
    if not entries:
        return nothing(dtype, "no entry is here")
    terms = [call.entry("grad", (i,)) for i in entries]
    return add_up(terms, call.width("grad"), from_zero=True, rounds=dtype)


def _added_to_dense(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    entries = members((call["a_indices"] == np.array(index, np.int64).reshape(1, -1)).all(axis=1))
    rank = len(index)
    terms = [call.entry("a_values", (i,), [("a_indices", (i, axis)) for axis in range(rank)]) for i in entries]
    return add_up([call.entry("b", index), *terms], call.width("b"), rounds=call["b"].dtype)


def _product(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    """SparseTensorDenseMatMul: the entries of a row in their order."""
    adjoint_a, adjoint_b = (bool(call.attributes.get(f"adjoint_{side}")) for side in "ab")
    row, inner = (1, 0) if adjoint_a else (0, 1)
    ids, dtype, width = call["a_indices"], call["b"].dtype, call.width("b")
    entries = members(ids[:, row] == index[0])
    if not entries:
        return nothing(dtype, f"row {index[0]} has no entries")
    if dtype.kind == "c" and (adjoint_a or adjoint_b):
        return whole(call, pin, index)
    terms = []
    for i in entries:
        column = int(ids[i, inner])
        where = (index[1], column) if adjoint_b else (column, index[1])
        because = [("a_indices", (i, 0)), ("a_indices", (i, 1))]
        factors = [call.entry("b", where, because), call.entry("a_values", (i,), because)]
        terms.append(combine("product", factors, width))
    return rounded(add_up(terms, width, from_zero=True), dtype)


def _softmax(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    indices, width = call["sp_indices"], call.width("sp_values")
    order = np.lexsort(indices.T[::-1]) if indices.shape[1] else np.arange(len(indices))  # results are in this order
    here = int(order[index[0]])
    rows = indices[order]
    entries = [int(order[i]) for i in members((rows[:, :-1] == indices[here, :-1].reshape(1, -1)).all(axis=1))]
    terms = [call.entry("sp_values", (i,), [("sp_indices", (i, 0))]) for i in entries]
    wide = [rounded(term, width) for term in terms]
    largest = _eigen(wide, width, "max")
    powers = [exponential(combine("difference", [term, largest], width)) for term in wide]
    packet = 32 // np.dtype(width).itemsize
    total = orders.eigen_leaf(powers, width, packet, "sum", number(0, width, orders.START))
    return rounded(combine("quotient", [powers[entries.index(here)], total], width), call["sp_values"].dtype)


# Counts


def _counted(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    """Bincounts and counts with sparse output: ones, or weights, of the entries with a value in a row."""
    values = np.asarray(call["values"])
    if pin.endswith("shape"):
        return whole(call, pin, index)
    place = index if pin == "output" else tuple(int(i) for i in call.outputs["output_indices"][index[0]])
    flat = values.reshape(-1)
    is_here = flat == place[-1]
    if len(place) > 1:
        is_here = is_here & (_rows(call, values) == place[0])
    entries = members(is_here)
    where = [tuple(int(i) for i in np.unravel_index(i, values.shape)) for i in entries]
    if pin == "output_indices":
        if index[1] == len(place) - 1:
            return call.entry("values", where[0])
        return function("the row that the value is in", call.outputs[pin][index], [call.entry("values", where[0])])
    dtype, weights = call.outputs[pin].dtype, np.asarray(call["weights"])
    if not entries:
        return nothing(dtype, f"the value {place[-1]} does not occur")
    width = call.width("weights")
    if call.attributes.get("binary_output"):
        return function(f"1, because the value {place[-1]} occurs", call.outputs[pin][index],
                        [call.entry("values", at) for at in where])  # fmt: skip
    if weights.size:
        terms = [call.entry("weights", at, [("values", at)]) for at in where]
    else:
        terms = [Term("number", np.asarray(1, width)[()], dtype=width, text="1", because=(call.place("values", at),))
                 for at in where]  # fmt: skip
    return rounded(add_up(terms, width, from_zero=True), dtype)


def _rows(call: Call, values: Array) -> Array:
    if "splits" in call.inputs:
        return np.searchsorted(call["splits"], np.arange(values.size), side="right") - 1
    if "indices" in call.inputs:
        return np.asarray(call["indices"][:, 0])
    return np.repeat(np.arange(len(values)), values.shape[1])


# Texts


def _of_one(name: str, call: Call, pin: str, index: tuple[int, ...]) -> Term:
    return function("the fingerprint of the text, modulo num_buckets", call.outputs[pin][index],
                    [call.entry(name, index)])  # fmt: skip


def _joined(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    ids = np.asarray(call["segment_ids"])
    flat = members(ids.reshape(-1) == index[0])
    places = [tuple(int(i) for i in np.unravel_index(at, ids.shape)) for at in flat]
    terms = [call.entry("inputs", (*place, *index[1:]), [("segment_ids", place)]) for place in places]
    return function("the texts of the segment, joined", call.outputs[pin][index], terms)


def _crossed(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    """The combination of one value of each column; the last column changes fastest."""
    row = int(call.outputs["output_indices"][index[0], 0])
    if pin != "output_values":
        return whole(call, pin, index)
    columns: list[list[Term]] = []
    for part, ids in enumerate(call["indices"]):
        entries = members(ids[:, 0] == row)
        columns.append([call.entry("values", (i,), (), part) for i in entries])
    for part, dense in enumerate(call["dense_inputs"]):
        columns.append([call.entry("dense_inputs", (row, i), (), part) for i in range(dense.shape[1])])
    combination = int(call.outputs["output_indices"][index[0], 1])
    terms: list[Term] = []
    for size, column in zip(map(len, columns[::-1]), columns[::-1], strict=True):
        terms.insert(0, column[combination % size])
        combination //= size
    text = "the texts of its columns, joined" if call.outputs[pin].dtype.kind in "OSUT" else "the hash of its columns"
    return function(text, call.outputs[pin][index], terms)


# Ragged tensors


def _ranged(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    value = call.outputs[pin][index]
    if pin == "rt_nested_splits":
        return function(f"how many numbers the first {index[0]} rows have", value)
    row = int(np.searchsorted(call.outputs["rt_nested_splits"], index[0], side="right")) - 1
    step = index[0] - int(call.outputs["rt_nested_splits"][row])
    parts = [call.entry(name, (row,) if np.ndim(call[name]) else ()) for name in ("starts", "deltas")]
    return function(f"start + {step} · delta of row {row}", value, parts)


def _by_pin(**pins: Explainer) -> Explainer:
    def chosen(call: Call, pin: str, index: tuple[int, ...]) -> Term:
        return pins.get(pin, whole)(call, pin, index)

    return chosen


def _entries(values_out: str, values: str, ids_out: str, ids: str) -> Explainer:
    return _by_pin(**{values_out: moved(values), ids_out: following(values_out, (values,), {values: ids})})


SPARSE: dict[str, Explainer] = {
    "SparseFillEmptyRows": _filled,
    "RaggedFillEmptyRows": _filled,
    "SparseFillEmptyRowsGrad": _filled_grad,
    "RaggedFillEmptyRowsGrad": _filled_grad,
    "SparseFillEmptyRowsGradGrad": _filled_grad_grad,
    "SparseSlice": _entries("output_values", "values", "output_indices", "indices"),
    "SparseSliceGrad": moved("backprop_val_grad"),
    "SparseSliceGradGrad": moved("grad"),
    "SparseReorder": _entries("output_values", "input_values", "output_indices", "input_indices"),
    "SparseReorderGrad": moved("grad"),
    "SparseReduceSum": partial(_reduced, "sum"),
    "SparseReduceSumSparse": partial(_reduced, "sum"),
    "SparseReduceMax": partial(_reduced, "max"),
    "SparseReduceMaxSparse": partial(_reduced, "max"),
    "SparseReduceSegments": _reduced_ids,
    "SparseAdd": _both,
    "SparseAddGrad": moved("backprop_val_grad"),
    "SparseAddGradGrad": _sum_of_grads,
    "SparseSparseMaximum": _both,
    "SparseSparseMinimum": _both,
    "SparseSparseChosen": _chosen,
    "SparseDenseCwiseAdd": partial(_beside_dense, "sum"),
    "SparseDenseCwiseMul": partial(_beside_dense, "product"),
    "SparseDenseCwiseDiv": partial(_beside_dense, "quotient"),
    "SparseDenseGather": moved("dense"),
    "SparseDenseScatter": _scattered,
    "SparseTensorDenseAdd": _added_to_dense,
    "SparseSoftmax": _softmax,
    "SparseBincount": _counted,
    "DenseCountSparseOutput": _counted,
    "SparseCountSparseOutput": _counted,
    "RaggedBincount": _counted,
    "RaggedCountSparseOutput": _counted,
    "SparseConcat": _entries("output_values", "values", "output_indices", "indices"),
    "SparseSplitPart": _entries("output_values", "values", "output_indices", "indices"),
    "StringToHashBucketFast": partial(_of_one, "input"),
    "StringToHashBucketStrong": partial(_of_one, "input"),
    "StringToHashBucket": partial(_of_one, "string_tensor"),
    "UnsortedSegmentJoin": _joined,
    "SparseCross": _crossed,
    "SparseCrossV2": _crossed,
    "SparseCrossHashed": _crossed,
    "RaggedTensorToSparse": _by_pin(sparse_values=moved("rt_dense_values")),
    "RaggedTensorToTensor": moved("values", "default_value"),
    "RaggedRange": _ranged,
    "RaggedGatherValues": _by_pin(output_dense_values=moved("params_dense_values")),
    "SparseToDense": moved("sparse_values", "default_value"),
    "SparseTensorDenseMatMul": _product,
}
# Operators whose results depend on whole inputs: bytes, shapes, splits, places.
WHOLE = (
    "SparseReshape",
    "SerializeSparse",
    "SerializeManySparse",
    "DeserializeSparse",
    "DeserializeManySparse",
    "SparseSplitOffset",
    "SparseConcatPlaces",
    "RaggedCross",
    "RaggedGatherSplits",
)
SPARSE |= dict.fromkeys(WHOLE, whole)
