"""What occurs, and where and how often: Where, Unique, UniqueWithCounts, Bincount, Bucketize; and powers.

Results whose size depends on values have unknown sizes until they run.
"""

from typing import Any

import numpy as np

from rowgrad._ops.broadcasting import Known, Result, ask, fresh, of_rank
from rowgrad._ops.catalogue import REQUIRED, Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import COMPLEX, FLOATS, IDS, NUMBERS, PLAIN, Array
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.comparing import NO_BROADCAST
from rowgrad.blocks.operators.elementwise import TOO_LARGE, WRONG_TYPE, _broadcasting, _map, _summed_back, wide
from rowgrad.blocks.operators.results import Counted, Found
from rowgrad.errors import InvalidArgumentError, OutOfRangeError


def _where(condition: Array) -> Array:
    found = np.argwhere(values_differ_from_zero(condition))
    result = fresh((len(found), condition.ndim), np.dtype(np.int64))
    result[...] = found
    return result


def values_differ_from_zero(array: Array) -> Array:
    """Whether elements are true, or not 0."""
    return array if array.dtype == bool else wide(array) != 0


def _found(x: Array, out_idx: str) -> tuple[Array, Array, Array]:
    """The values in the order in which they first occur, where each element is among them, and how often each occurs.

    A NaN is equal to no other, as in TensorFlow.
    """
    of_rank("x", x.shape, 1)
    if x.dtype.kind in "OSUT":
        places: dict[Any, int] = {}
        index = np.array([places.setdefault(item, len(places)) for item in x.tolist()], np.int64)
        first = np.array([list(index).index(i) for i in range(len(places))], np.int64)
        values = x[first]
    else:
        _, first, inverse = np.unique(wide(x), return_index=True, return_inverse=True, equal_nan=False)
        order = np.argsort(first, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        values, index = x[first[order]], rank[inverse.reshape(-1)] if len(order) else np.zeros(0, np.int64)
    counts = np.bincount(index, minlength=len(values)) if len(values) else np.zeros(0, np.int64)
    kind = dtypes.NUMPY[out_idx]
    result = fresh(values.shape, x.dtype)
    result[...] = values
    return result, index.astype(kind), counts.astype(kind)


def _unique(x: Array, *, out_idx: str = "int32") -> Found:
    return Found(*_found(x, out_idx)[:2])


def _unique_with_counts(x: Array, *, out_idx: str = "int32") -> Counted:
    return Counted(*_found(x, out_idx))


def _unique_shape(shapes: Known, _: Known, __: Known) -> Result:
    (length,) = of_rank("x", shapes.get("x"), 1)
    return {"y": (None,), "idx": (length,), "count": (None,)}


def _bincount(arr: Array, size: Any, weights: Array) -> Array:
    (bins,) = ask(_bins, {"arr": arr, "size": size, "weights": weights})
    if weights.size and weights.shape != arr.shape:
        raise InvalidArgumentError(f"weights has shape {list(weights.shape)}, and arr has {list(arr.shape)}; there "
                                   "must be one for each value, or none.", code="shape-mismatch", argument="weights",
                                   value=weights.shape)  # fmt: skip
    flat = arr.reshape(-1).astype(np.int64)
    if (flat < 0).any():
        position = int((flat < 0).argmax())
        raise OutOfRangeError(f"arr[{position}] is {int(flat[position])}; it must be 0 or more.",
                              code="negative-size", argument="arr", position=position,
                              value=int(flat[position]))  # fmt: skip
    result = fresh((bins,), weights.dtype)
    result[...] = 0
    kept = flat < bins
    # One after the other, as TensorFlow adds on one thread.
    np.add.at(result, flat[kept], weights.reshape(-1)[kept] if weights.size else result.dtype.type(1))
    return result


def _bins(shapes: Known, values: Known, _: Known) -> Result:
    of_rank("size", shapes.get("size"), 0)
    if "size" not in values:
        return {"bins": (None,)}
    size = int(np.asarray(values["size"]))
    if size < 0:
        raise OutOfRangeError(f"size is {size}; it must be 0 or more.", code="negative-size", argument="size",
                              value=size)  # fmt: skip
    return {"bins": (size,)}


def _bucketize(input: Array, *, boundaries: Any) -> Array:
    edges = np.array(boundaries, np.float32)
    if (np.diff(edges) < 0).any() or np.isnan(edges).any():
        raise InvalidArgumentError(f"boundaries are {list(boundaries)}; they must ascend.", code="not-sorted",
                                   argument="boundaries", value=boundaries)  # fmt: skip
    result = fresh(input.shape, np.dtype(np.int32))
    # TensorFlow compares in the wider of both types; NaN is past all boundaries.
    result[...] = np.searchsorted(edges.astype(np.float64), input.astype(np.float64), side="right")
    return result


def _pow(x: Array, y: Array) -> Array:
    result = fresh(ask(_broadcasting, {"x": x, "y": y}), x.dtype)
    if x.dtype.kind in "i" and (y < 0).any():
        position = int((y.reshape(-1) < 0).argmax())
        raise InvalidArgumentError("a whole number cannot be raised to a negative power. Cast to a float type first.",
                                   code="negative-power", argument="y", position=position)  # fmt: skip
    with np.errstate(all="ignore"):
        result[...] = np.power(wide(x), wide(y)).astype(x.dtype)
    return result


def _rsqrt(x: Array, out: Array) -> None:
    np.copyto(out, 1 / np.sqrt(wide(x)), casting="same_kind")


def _to_power(op: Any, d_z: Any, x: Any, y: Any, z: Any) -> Any:
    """The gradient to the exponent: 0 where the logarithm of x is no number, as in TensorFlow."""
    positive = op.Greater(x, op.ZerosLike(x))
    log = op.SelectV2(positive, op.Log(op.SelectV2(positive, x, op.OnesLike(x))), op.ZerosLike(x))
    return op.Mul(d_z, op.Mul(z, log))


def _to_base(op: Any, d_z: Any, x: Any, y: Any, z: Any) -> Any:
    return op.Mul(d_z, op.Mul(y, op.Pow(x, op.Sub(y, 1.0))))


# Declarations


def _declare(**fields: Any) -> None:
    declare(Operator(function=None, **{"cost": "O(elements).", **fields}))


_OUT_IDX = Attribute("out_idx", "int32", "The type of the numbers.", kind="dtype")
_X = (Pin("x", "T", "[N]", "A vector."),)
_FOUND = (
    Pin("y", "T", "[U]", "The values, each once, in the order in which they first occur."),
    Pin("idx", "out_idx", "[N]", "For each element of x, its place in y."),
)
_declare(
    name="Where",
    family="choosing",
    summary="The indices of the elements that are true, or not 0.",
    inputs=(Pin("condition", "T", "[...]", "Any array of numbers or booleans."),),
    outputs=(Pin("index", "int64", "[N, rank]", "The index of each, row by row."),),
    types={"T": (*NUMBERS, "bool")},
    formula="index = all places with condition[place] ≠ 0, in order",
    errors=(WRONG_TYPE, TOO_LARGE),
    example=Example({"condition": [[0.0, 2.0], [3.0, 0.0]]}, {"index": [[0, 1], [1, 0]]}),
    compute=_where,
    shape_rule=lambda shapes, _, __: {
        "index": (None, None if shapes.get("condition") is None else len(shapes["condition"]))
    },
)
_declare(
    name="Unique",
    family="choosing",
    summary="The values that occur in a vector, each once.",
    inputs=_X,
    outputs=_FOUND,
    types={"T": PLAIN, "out_idx": IDS},
    formula="y[idx[i]] = x[i]",
    errors=("InvalidArgumentError: x is not a vector", WRONG_TYPE, TOO_LARGE),
    cost="O(N log N).",
    example=Example({"x": [3.0, 1.0, 3.0]}, {"y": [3.0, 1.0], "idx": [0, 1, 0]}),
    compute=_unique,
    attributes=(_OUT_IDX,),
    result=Found,
    shape_rule=lambda *given: {name: shape for name, shape in _unique_shape(*given).items() if name != "count"},
)
_declare(
    name="UniqueWithCounts",
    family="choosing",
    summary="The values that occur in a vector, each once, and how often.",
    inputs=_X,
    outputs=(*_FOUND, Pin("count", "out_idx", "[U]", "How often each value of y occurs.")),
    types={"T": PLAIN, "out_idx": IDS},
    formula="y[idx[i]] = x[i]; count[u] = how many idx[i] are u",
    errors=("InvalidArgumentError: x is not a vector", WRONG_TYPE, TOO_LARGE),
    cost="O(N log N).",
    example=Example({"x": [3.0, 1.0, 3.0]}, {"y": [3.0, 1.0], "idx": [0, 1, 0], "count": [2, 1]}),
    compute=_unique_with_counts,
    attributes=(_OUT_IDX,),
    result=Counted,
    shape_rule=_unique_shape,
)
_declare(
    name="Bincount",
    family="choosing",
    summary="How often each whole number occurs, or the sum of its weights.",
    inputs=(
        Pin("arr", "int32", "[...]", "The numbers, 0 or more."),
        Pin("size", "int32", "[]", "How many there are to count; larger ones are left out."),
        Pin("weights", "T", "[...]", "A weight for each number; an empty array counts each as 1."),
    ),
    outputs=(Pin("bins", "T", "[size]", "For each number, how often it occurs."),),
    types={"T": ("float32", "float64", "int32", "int64")},
    formula="bins[v] = Σ weights[i] over all i with arr[i] = v",
    errors=("OutOfRangeError: size or a number is negative",
            "InvalidArgumentError: weights has neither the shape of arr nor no elements", WRONG_TYPE, TOO_LARGE),
    cost="O(elements + size).",
    example=Example({"arr": [1, 1, 0], "size": 3, "weights": [0.5, 1.0, 2.0]}, {"bins": [2.0, 1.5, 0.0]}),
    compute=_bincount,
    shape_rule=_bins,
)  # fmt: skip
_declare(
    name="Bucketize",
    family="choosing",
    summary="The interval that each number lies in.",
    inputs=(Pin("input", "T", "[...]", "The numbers."),),
    outputs=(Pin("output", "int32", "[...]", "For each, how many boundaries are at most as large."),),
    types={"T": ("float32", "float64", "int32", "int64")},
    formula="output = the number of boundaries b with b ≤ input",
    errors=("InvalidArgumentError: the boundaries do not ascend", WRONG_TYPE, TOO_LARGE),
    cost="O(elements · log(boundaries)).",
    example=Example({"input": [-5.0, 10.0, 150.0]}, {"output": [0, 2, 3]},
                    attributes={"boundaries": [0.0, 10.0, 100.0]}),
    compute=_bucketize,
    attributes=(Attribute("boundaries", REQUIRED, "The boundaries, ascending, as float32.", kind="numbers"),),
    shape_rule=lambda shapes, _, __: {"output": shapes.get("input")},
)  # fmt: skip
_declare(
    name="Pow",
    family="elementwise",
    summary="Raise to a power, element by element.",
    inputs=(
        Pin("x", "T", "[...]", "The base, of any shape."),
        Pin("y", "T", "[...]", "The exponent; its shape broadcasts with that of x."),
    ),
    outputs=(Pin("z", "T", "[...]", "The shape that x and y broadcast to."),),
    types={"T": (*FLOATS, "int32", "int64", *COMPLEX)},
    formula="z = x to the power of y",
    errors=(NO_BROADCAST, "InvalidArgumentError: a whole number is raised to a negative power", WRONG_TYPE, TOO_LARGE),
    cost="O(elements of the result).",
    example=Example({"x": [2.0, 9.0], "y": [3.0, 0.5]}, {"z": [8.0, 3.0]}),
    compute=_pow,
    shape_rule=_broadcasting,
    gradient={"x": _summed_back(_to_base, "r0"), "y": _summed_back(_to_power, "r1")},
    notes="The gradient is for real types. To the exponent it is 0 where x is not positive.",
)
_declare(
    name="Rsqrt",
    family="elementwise",
    summary="One divided by the square root of each element.",
    inputs=(Pin("x", "T", "[...]", "Any shape."),),
    outputs=(Pin("y", "T", "[...]", "The shape and type of the input."),),
    types={"T": FLOATS},
    formula="y = 1 / √x",
    errors=(WRONG_TYPE, TOO_LARGE),
    compute=lambda x: _map(_rsqrt, x),
    example=Example({"x": [4.0, 16.0]}, {"y": [0.5, 0.25]}),
    gradient={"x": lambda op, d_y, y: op.Mul(d_y, op.Mul(-0.5, op.Mul(y, op.Square(y))))},
    notes="Of 0 it is ∞, of a negative number NaN.",
)
_declare(
    name="Round",
    family="choosing",
    summary="Round to the nearest whole number; halves to the even one.",
    inputs=(Pin("x", "T", "[...]", "Any shape."),),
    outputs=(Pin("y", "T", "[...]", "The shape and type of the input."),),
    types={"T": FLOATS},
    formula="y = x, rounded",
    errors=(WRONG_TYPE, TOO_LARGE),
    compute=lambda x: _map(np.rint, x),
    example=Example({"x": [-1.5, 2.5]}, {"y": [-2.0, 2.0]}),
)
