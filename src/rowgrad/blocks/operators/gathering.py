"""Rows and elements by their index: Range, Gather, GatherNd, and ScatterNd, which is the gradient of both.

Where indices repeat, ScatterNd adds up. Floats go the way of the segment gradients: sorted by index, summed in input
order, half and bfloat16 in float32; the bits are the same for any number of threads.
"""

from math import ceil, prod
from typing import Any

import numpy as np

from rowgrad._ops import OPERATORS
from rowgrad._ops.broadcasting import Known, Result, ask, at, first_true, fresh, listed, of_rank, same, sizes
from rowgrad._ops.catalogue import Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._ops.shapes import Shape
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import FLOATS, IDS, INTEGERS, NUMBERS, PLAIN, Array
from rowgrad._runtime.memory import allocate
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.elementwise import TOO_LARGE, WRONG_TYPE
from rowgrad.errors import InvalidArgumentError, OutOfMemoryError, OutOfRangeError


def _range(start: Array, limit: Array, delta: Array) -> Array:
    (length,) = ask(_ranged, {"start": start, "limit": limit, "delta": delta})
    result = fresh((length,), start.dtype, "limit")
    if start.dtype.kind in "iu":
        # In 64 bits: the last element lies before limit, so nothing overflows in the end, whatever happens on the way.
        words = np.uint64 if start.dtype == np.uint64 else np.int64
        steps = np.arange(length).astype(words)
        np.add(start.astype(words), steps * delta.astype(words), out=result, casting="unsafe")
    else:
        wide = np.float64 if start.dtype.itemsize > 2 else np.float32
        np.copyto(result, start.astype(wide) + np.arange(length, dtype=wide) * delta.astype(wide), casting="unsafe")
    return result


def _ranged(shapes: Known, values: Known, _: Any) -> Result:
    ends = ("start", "limit", "delta")
    for name in ends:
        of_rank(name, shapes.get(name), 0)
    if not all(name in values for name in ends):
        return {"output": (None,)}
    start, limit, delta = (np.asarray(values[name]).item() for name in ends)
    for name, value in zip(ends, (start, limit, delta), strict=True):
        if value - value != 0:  # infinite, or not a number
            raise _wrong_range(name, value, "it must be finite")
    if delta == 0:
        raise _wrong_range("delta", delta, "steps of 0 lead nowhere")
    if (limit - start) * (1 if delta > 0 else -1) < 0:
        raise _wrong_range("limit", limit, f"from start {start} it is never reached in steps of {delta}")
    if isinstance(start, int):
        return {"output": (-((start - limit) // delta),)}
    steps = (limit - start) / delta
    if steps > 2**62:
        raise _wrong_range("limit", limit, f"{steps:.3g} steps of {delta} are too many")
    return {"output": (ceil(steps),)}


def _wrong_range(name: str, value: Any, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{name} is {value}; {why}. Choose start, limit and delta so that steps of delta lead from start to limit.",
        code="bad-range",
        argument=name,
        value=value,
    )


def _at_least_vector(name: str, shape: Shape | None, why: str) -> None:
    if shape == ():
        raise InvalidArgumentError(
            f"{name} is a scalar; it must have at least one dimension, {why}. Reshape it.",
            code="wrong-rank",
            argument=name,
            value=(),
        )


def _gather(params: Array, indices: Array) -> Array:
    shape = ask(_gathered, {"params": params, "indices": indices})
    _check(indices, params.shape[:1], "params", one_index=True)
    return _take(params, indices, shape)


def _gathered(shapes: Known, _: Any, __: Any) -> Result:
    params, indices = shapes.get("params"), shapes.get("indices")
    _at_least_vector("params", params, "its rows")
    return {"output": None if params is None or indices is None else (*indices, *params[1:])}


def _take(rows: Array, indices: Array, shape: tuple[int, ...]) -> Array:
    """Rows by indices that have been checked."""
    result = fresh(shape, rows.dtype, "indices")
    if result.size == 0:
        return result
    np.take(rows, indices, axis=0, out=result.reshape((*indices.shape, *rows.shape[1:])), mode="clip")
    return result


def _check(indices: Array, limits: tuple[int, ...], what: str, *, one_index: bool = False) -> None:
    """Each column of `indices` (or, with `one_index`, each element) must lie within the dimension it stands for."""
    bounds = np.array(limits)
    bad = (indices < 0) | (indices >= (bounds[0] if one_index else bounds))
    if not bad.any():
        return
    position = first_true(bad)
    column = 0 if one_index or not isinstance(position, tuple | int) else np.unravel_index(bad.argmax(), bad.shape)[-1]
    limit, value = limits[int(column)], int(indices.reshape(-1)[bad.argmax()])
    allowed = f"allowed: 0 to {limit - 1}" if limit else "nothing is allowed"
    raise OutOfRangeError(
        f"{at('indices', position)} is {value}; {allowed} (dimension {column} of {what} is {limit}). "
        "Drop the index, or use a larger array.",
        code="index-out-of-range",
        argument="indices",
        position=position,
        value=value,
    )


def _flat(indices: Array, limits: tuple[int, ...]) -> Array:
    """For each row of `indices` the number of the element it points to, counted row by row."""
    strides = [prod(limits[d + 1 :]) for d in range(len(limits))]
    return np.asarray((indices * np.array(strides, np.int64)).sum(axis=-1, dtype=np.int64))


def _kept(indices: Array, limits: tuple[int, ...], what: str, policy: str) -> Array | None:
    """Which indices are in range, where the others are ignored; else they must all be, and there is no need to tell."""
    if policy not in POLICIES:
        raise InvalidArgumentError(f"bad_indices_policy is {policy!r}; allowed: {', '.join(map(repr, POLICIES))}.",
                                   code="wrong-attribute", argument="bad_indices_policy", value=policy)  # fmt: skip
    if policy != "IGNORE":
        _check(indices, limits, what)
        return None
    return np.asarray(((indices >= 0) & (indices < np.array(limits, np.int64))).all(axis=-1))


def _gather_nd(params: Array, indices: Array, *, bad_indices_policy: str = "") -> Array:
    shape = ask(_gathered_nd, {"params": params, "indices": indices})
    depth = indices.shape[-1]
    limits, rest = params.shape[:depth], params.shape[depth:]
    kept = _kept(indices, limits, "params", bad_indices_policy)
    table = params.reshape(prod(limits), *rest)
    if kept is None or kept.all():
        return _take(table, _flat(indices, limits), shape)
    result = fresh(shape, params.dtype, "indices")
    is_text, is_bytes = params.dtype.kind in "USOT", isinstance(params.flat[0] if params.size else b"", bytes)
    result[...] = 0 if not is_text else b"" if is_bytes else ""
    result[kept] = table[_flat(indices[kept], limits)]
    return result


def _gathered_nd(shapes: Known, _: Any, __: Any) -> Result:
    params, indices = shapes.get("params"), shapes.get("indices")
    _at_least_vector("indices", indices, "the length of an index")
    if params is None or indices is None or not isinstance(indices[-1], int):
        return {"output": None}
    _at_most_rank(indices, len(params), "params")
    return {"output": (*indices[:-1], *params[indices[-1] :])}


def _at_most_rank(indices: Shape, rank: int, what: str) -> None:
    depth = indices[-1]
    if isinstance(depth, int) and depth > rank:
        raise InvalidArgumentError(
            f"indices has shape {listed(indices)}: each index has {depth} numbers, but {what} has {rank} dimensions. "
            "Pass as many numbers as dimensions, or fewer.",
            code="length-mismatch",
            argument="indices",
            value=indices,
        )


def _scatter_nd(indices: Array, updates: Array, shape: Array, *, bad_indices_policy: str = "") -> Array:
    wanted = ask(_scattered, {"indices": indices, "updates": updates, "shape": shape})
    depth = indices.shape[-1]
    limits, rest = wanted[:depth], wanted[depth:]
    kept = _kept(indices, limits, "the result", bad_indices_policy)
    if kept is not None and not kept.all():
        indices, updates = indices[kept], updates[kept]
    rows = updates.reshape(prod(indices.shape[:-1]), prod(rest))
    places = _flat(indices, limits).reshape(-1)
    if rows.size == 0:
        return allocate(wanted, updates.dtype, argument="shape", zero=True)
    if dtypes.name_of(updates.dtype) in FLOATS:
        try:
            entries = np.arange(rows.shape[0])
            found = OPERATORS["SparseSegmentSumGrad"].compute(rows, places, entries, prod(limits))
        except OutOfMemoryError as error:
            error.argument = "shape"
            raise
        return found.reshape(wanted)  # type: ignore[no-any-return]
    result = allocate(wanted, updates.dtype, argument="shape", zero=True)
    with np.errstate(all="ignore"):
        np.add.at(result.reshape(prod(limits), prod(rest)), places, rows)
    return result


def _scattered(shapes: Known, values: Known, _: Any) -> Result:
    indices, updates, wanted = shapes.get("indices"), shapes.get("updates"), sizes("shape", shapes, values)
    _at_least_vector("indices", indices, "the length of an index")
    if indices is not None and wanted is not None:
        _at_most_rank(indices, len(wanted), "the result")
        if isinstance(indices[-1], int):
            same(("indices, with what is left of shape,", "updates"), (*indices[:-1], *wanted[indices[-1] :]), updates)
    return {"output": wanted}


# Declarations

PARAMS = Pin("params", "Tparams", "[M, ...]", "The array to look up in.")
POLICIES = ("", "DEFAULT", "ERROR", "IGNORE")
POLICY = Attribute("bad_indices_policy", "", "IGNORE to leave out indices that are out of range; else they are errors.",
                   "text")  # fmt: skip
OUT_OF_RANGE = "OutOfRangeError: an index is negative, or past the end of its dimension"

declare(Operator(
    name="Range",
    function=None,
    family="gathering",
    summary="Numbers from start up to, but without, limit, in steps of delta.",
    inputs=(
        Pin("start", "Tidx", "[]", "The first number."),
        Pin("limit", "Tidx", "[]", "The end, exclusive."),
        Pin("delta", "Tidx", "[]", "The step, which may be negative."),
    ),
    outputs=(Pin("output", "Tidx", "[n]", "The numbers."),),
    types={"Tidx": tuple(dict.fromkeys(("int32", *FLOATS, *INTEGERS)))},
    formula="output[i] = start + i · delta, for i from 0 to ⌈(limit − start) / delta⌉ − 1",
    errors=(
        "InvalidArgumentError: an input is not a scalar or not finite, delta is 0, or leads away from limit",
        WRONG_TYPE,
        TOO_LARGE,
    ),
    cost="O(numbers).",
    example=Example({"start": 3, "limit": 18, "delta": 5}, {"output": [3, 8, 13]}),
    compute=_range,
    shape_rule=_ranged,
    notes="TensorFlow adds delta again and again, which drifts; here each number is rounded once.",
))  # fmt: skip

declare(Operator(
    name="Gather",
    function=None,
    family="gathering",
    summary="Look up rows.",
    inputs=(PARAMS, Pin("indices", "Tindices", "[...]", "The rows to look up; any shape, rows may repeat.")),
    outputs=(Pin("output", "Tparams", "[...]", "The rows, in the shape of indices."),),
    types={"Tparams": PLAIN, "Tindices": IDS},
    formula="output[i, j, …] = params[indices[i, j, …]]",
    errors=("InvalidArgumentError: params is a scalar", OUT_OF_RANGE, WRONG_TYPE, TOO_LARGE),
    cost="O(elements of the result).",
    example=Example({"params": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "indices": [2, 0]},
                    {"output": [[5.0, 6.0], [1.0, 2.0]]}),
    compute=_gather,
    attributes=(Attribute("validate_indices", True, "Has no effect: indices are always checked.", passed=False),),
    shape_rule=_gathered,
    gradient={
        "params": lambda op, d_output, indices, params, Tindices: op.ScatterNd(
            op.ExpandDims(indices, -1), d_output, op.Shape(params, out_type=Tindices)
        )
    },
))  # fmt: skip

declare(Operator(
    name="GatherNd",
    function=None,
    family="gathering",
    summary="Look up elements, or rows, by the indices of several dimensions.",
    inputs=(
        Pin("params", "Tparams", "[...]", "The array to look up in."),
        Pin("indices", "Tindices", "[..., depth]", "Along the last dimension: an index into the first dimensions."),
    ),
    outputs=(Pin("output", "Tparams", "[...]", "The elements, in the shape of indices without its last dimension."),),
    types={"Tparams": PLAIN, "Tindices": IDS},
    formula="output[i, …] = params[indices[i, …, 0], indices[i, …, 1], …]",
    errors=(
        "InvalidArgumentError: indices is a scalar, or an index has more numbers than params has dimensions",
        OUT_OF_RANGE,
        WRONG_TYPE,
        TOO_LARGE,
    ),
    cost="O(elements of the result + elements of indices).",
    example=Example({"params": [[1.0, 2.0], [3.0, 4.0]], "indices": [[0, 1], [1, 0]]}, {"output": [2.0, 3.0]}),
    compute=_gather_nd,
    attributes=(POLICY,),
    shape_rule=_gathered_nd,
    gradient={
        "params": lambda op, d_output, indices, params, Tindices, bad_indices_policy: op.ScatterNd(
            indices, d_output, op.Shape(params, out_type=Tindices), bad_indices_policy=bad_indices_policy
        )
    },
))  # fmt: skip

declare(Operator(
    name="ScatterNd",
    function=None,
    family="gathering",
    summary="Add values into zeros, at indices of one or several dimensions.",
    inputs=(
        Pin("indices", "Tindices", "[..., depth]", "Along the last dimension: an index into the result."),
        Pin("updates", "T", "[...]", "The values to add."),
        Pin("shape", "Tindices", "[rank]", "The shape of the result."),
    ),
    outputs=(Pin("output", "T", "[...]", "The sums; 0 where no index points."),),
    types={"T": NUMBERS, "Tindices": IDS},
    formula="output[r] = Σ over i with indices[i] = r of updates[i], in the order of i",
    errors=(
        "InvalidArgumentError: indices is a scalar, shape no vector or negative, or updates not of the shape of "
        "indices without its last dimension, then what is left of shape",
        OUT_OF_RANGE,
        WRONG_TYPE,
        TOO_LARGE,
    ),
    cost="O(elements of updates + indices · log rows + elements of the result).",
    example=Example({"indices": [[1], [3], [1]], "updates": [1.0, 2.0, 4.0], "shape": [4]},
                    {"output": [0.0, 5.0, 0.0, 2.0]}),
    compute=_scatter_nd,
    attributes=(POLICY,),
    shape_rule=_scattered,
    gradient={
        "updates": lambda op, d_output, indices, bad_indices_policy: op.GatherNd(
            d_output, indices, bad_indices_policy=bad_indices_policy
        )
    },
    notes="half and bfloat16 are summed in float32 and rounded once.",
))  # fmt: skip
