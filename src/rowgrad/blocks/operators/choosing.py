"""Choices along dimensions, and arrays of chosen values: ReduceMax, ReduceAll, ArgMax, OneHot, Fill, ClipByValue."""

from functools import partial
from typing import Any

import numpy as np

from rowgrad._ops.broadcasting import Known, Result, ask, distinct_axes, fresh, of_rank, sizes
from rowgrad._ops.catalogue import Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import IDS, PLAIN, REALS, Array
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.comparing import FAMILY, Two, select
from rowgrad.blocks.operators.elementwise import TOO_LARGE, WRONG_TYPE, wide
from rowgrad.blocks.operators.reductions import AXIS, KEEP_DIMS, _reduced, _spread
from rowgrad.errors import InvalidArgumentError


def _extreme(function: Any, input: Array, axis: Array, *, keep_dims: bool = False) -> Array:
    shape = ask(_reduced, {"input": input, "axis": axis}, keep_dims=keep_dims)
    axes = distinct_axes("axis", axis, input.ndim)
    start: Any = {}
    if input.dtype.kind != "b":  # of nothing it is what every number is larger, or smaller, than
        low = function is np.maximum
        kind = input.dtype
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            start = {"initial": limits.min if low else limits.max}
        else:
            start = {"initial": -np.inf if low else np.inf}
    with np.errstate(all="ignore"):
        found = function.reduce(wide(input), axis=axes, **start)
        return np.asarray(found).reshape(shape).astype(input.dtype, copy=False)


def _to_extreme(op: Any, d_output: Any, input: Any, output: Any, axis: Any, T: Any) -> Any:
    """Elements that are equally large share the gradient."""
    is_one = op.Cast(op.Equal(input, _spread(op, output, input, axis)), DstT=T)
    return op.Mul(op.Div(is_one, _spread(op, op.ReduceSum(is_one, axis), input, axis)),
                  _spread(op, d_output, input, axis))  # fmt: skip


def _arg(function: Any, input: Array, dimension: Any, *, output_type: str = "int64") -> Array:
    shape = ask(_without_dimension, {"input": input, "dimension": dimension})
    (axis,) = distinct_axes("dimension", np.asarray(dimension), input.ndim)
    if not input.shape[axis]:
        raise InvalidArgumentError(f"input has no elements along dimension {axis}; there is nothing to choose from.",
                                   code="empty", argument="input", value=input.shape)  # fmt: skip
    result = fresh(shape, dtypes.NUMPY[output_type])
    result[...] = function(wide(input), axis=axis)
    return result


def _without_dimension(shapes: Known, values: Known, _: Any) -> Result:
    before = shapes.get("input")
    of_rank("dimension", shapes.get("dimension"), 0)
    if before is None:
        return {"output": None}
    if "dimension" not in values:
        return {"output": (None,) * max(len(before) - 1, 0)}
    (axis,) = distinct_axes("dimension", np.asarray(values["dimension"]), len(before))
    return {"output": tuple(size for d, size in enumerate(before) if d != axis)}


def _one_hot(indices: Array, depth: int, on_value: Array, off_value: Array, *, axis: int = -1) -> Array:
    given = {"indices": indices, "depth": depth, "on_value": on_value, "off_value": off_value}
    result = fresh(ask(_with_depth, given, axis=axis), on_value.dtype)
    result[...] = off_value
    last = np.moveaxis(result, axis, -1)
    np.copyto(last, on_value, where=indices[..., None] == np.arange(last.shape[-1], dtype=np.int64))
    return result


def _with_depth(shapes: Known, values: Known, attributes: Any) -> Result:
    for name in ("depth", "on_value", "off_value"):
        of_rank(name, shapes.get(name), 0)
    depth = int(values["depth"]) if "depth" in values else None
    if depth is not None and depth < 0:
        raise InvalidArgumentError(f"depth is {depth}; it must not be negative.", code="negative", argument="depth",
                                   value=depth)  # fmt: skip
    before = shapes.get("indices")
    if before is None:
        return {"output": None}
    axis = attributes.get("axis", -1)
    if not -1 <= axis <= len(before):
        raise InvalidArgumentError(f"axis is {axis}; it must be -1 or in [0, {len(before)}].", code="out-of-range",
                                   argument="axis", value=axis)  # fmt: skip
    place = len(before) if axis == -1 else axis
    return {"output": (*before[:place], depth, *before[place:])}


def _fill(dims: Array, value: Array) -> Array:
    result = fresh(ask(_filled, {"dims": dims, "value": value}), value.dtype, "dims")
    result[...] = value
    return result


def _filled(shapes: Known, values: Known, _: Any) -> Result:
    of_rank("value", shapes.get("value"), 0)
    return {"output": sizes("dims", shapes, values)}


def _clip(t: Array, clip_value_min: Array, clip_value_max: Array) -> Array:
    result = fresh(ask(_clipped, {"t": t, "clip_value_min": clip_value_min, "clip_value_max": clip_value_max}), t.dtype)
    np.minimum(t, clip_value_max, out=result)
    np.maximum(result, clip_value_min, out=result)
    return result


def _clipped(shapes: Known, _: Any, __: Any) -> Result:
    for name in ("clip_value_min", "clip_value_max"):
        of_rank(name, shapes.get(name), 0)
    return {"output": shapes.get("t")}


# Declarations


def _declare(**fields: Any) -> None:
    declare(Operator(function=None, family=FAMILY, **{"cost": "O(elements).", **fields}))


REDUCED = (
    "InvalidArgumentError: axis has more than one dimension, or names a dimension twice",
    "OutOfRangeError: an axis is not in [−rank, rank)", WRONG_TYPE, TOO_LARGE,
)  # fmt: skip
for _name, _row in {
    "ReduceMax": Two(
        np.maximum, "The largest element over some of the dimensions.", "output = max of input", [2.0, 4.0]
    ),
    "ReduceMin": Two(
        np.minimum, "The smallest element over some of the dimensions.", "output = min of input", [1.0, 3.0]
    ),
}.items():
    _declare(
        name=_name, summary=_row.summary, inputs=(Pin("input", "T", "[...]", "Any array."), AXIS),
        outputs=(Pin("output", "T", "[...]", "The input without these dimensions."),),
        types={"T": REALS, "Tidx": IDS}, formula=f"{_row.formula} over the dimensions in axis", errors=REDUCED,
        compute=partial(_extreme, _row.function), attributes=(KEEP_DIMS,), shape_rule=_reduced,
        example=Example({"input": [[1.0, 2.0], [3.0, 4.0]], "axis": [1]}, {"output": _row.result}),
        gradient={"input": _to_extreme},
        notes="Elements that are equally large share the gradient. Of nothing it is the limit of the type.",
    )  # fmt: skip
for _name, _row in {
    "ReduceAll": Two(
        np.logical_and, "Whether all elements over some of the dimensions are true.", "all", [True, False]
    ),
    "ReduceAny": Two(np.logical_or, "Whether any element over some of the dimensions is true.", "any", [True, True]),
}.items():
    _declare(
        name=_name, summary=_row.summary, inputs=(Pin("input", "bool", "[...]", "Any array."), AXIS),
        outputs=(Pin("output", "bool", "[...]", "The input without these dimensions."),), types={"Tidx": IDS},
        formula=f"output = {_row.formula} of input over the dimensions in axis", errors=REDUCED,
        compute=partial(_extreme, _row.function), attributes=(KEEP_DIMS,), shape_rule=_reduced,
        example=Example({"input": [[True, True], [True, False]], "axis": [1]}, {"output": _row.result}),
    )  # fmt: skip
for _name, _row in {
    "ArgMax": Two(np.argmax, "The position of the largest element along a dimension.", "max", [1, 0]),
    "ArgMin": Two(np.argmin, "The position of the smallest element along a dimension.", "min", [0, 1]),
}.items():
    _declare(
        name=_name, summary=_row.summary,
        inputs=(Pin("input", "T", "[...]", "Any array."), Pin("dimension", "Tidx", "[]", "The dimension to reduce.")),
        outputs=(Pin("output", "output_type", "[...]", "The input without this dimension."),),
        types={"T": REALS, "Tidx": IDS, "output_type": IDS},
        formula=f"output = the first i at which input[…, i, …] is the {_row.formula}imum",
        errors=("InvalidArgumentError: there are no elements along the dimension",
                "OutOfRangeError: dimension is not in [−rank, rank)", WRONG_TYPE, TOO_LARGE),
        compute=partial(_arg, _row.function),
        attributes=(Attribute("output_type", "int64", "The type of the positions: int32 or int64.", kind="dtype"),),
        example=Example({"input": [[1.0, 2.0], [4.0, 3.0]], "dimension": 1}, {"output": _row.result}),
        shape_rule=_without_dimension,
    )  # fmt: skip
_declare(
    name="OneHot",
    summary="A row for each index, with one value at the index and another elsewhere.",
    inputs=(
        Pin("indices", "TI", "[...]", "The positions of on_value; one outside [0, depth) gives a row of off_value."),
        Pin("depth", "int32", "[]", "The length of the rows."),
        Pin("on_value", "T", "[]", "The value at the index."),
        Pin("off_value", "T", "[]", "The value elsewhere."),
    ),
    outputs=(Pin("output", "T", "[...]", "The indices with one more dimension, of size depth."),),
    types={"T": PLAIN, "TI": IDS},
    formula="output[…, j] = on_value if indices[…] = j, else off_value",
    errors=("InvalidArgumentError: depth is negative, or depth, on_value or off_value is not a scalar",
            "InvalidArgumentError: axis is not -1, nor one of the dimensions of the result", WRONG_TYPE, TOO_LARGE),
    cost="O(elements of the result).",
    compute=_one_hot,
    attributes=(Attribute("axis", -1, "The position of the new dimension; -1 is the last position.", "int"),),
    example=Example({"indices": [1, 0], "depth": 3, "on_value": 1.0, "off_value": 0.0},
                    {"output": [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]}),
    shape_rule=_with_depth,
)  # fmt: skip
_declare(
    name="Fill",
    summary="An array of one value.",
    inputs=(Pin("dims", "index_type", "[rank]", "Its shape."), Pin("value", "T", "[]", "The value.")),
    outputs=(Pin("output", "T", "[...]", "The value, everywhere."),),
    types={"T": PLAIN, "index_type": IDS},
    formula="output[…] = value",
    errors=("InvalidArgumentError: dims is not a vector or has a negative size, or value is not a scalar", WRONG_TYPE,
            TOO_LARGE),
    cost="O(elements of the result).",
    compute=_fill,
    example=Example({"dims": [2, 2], "value": 0.5}, {"output": [[0.5, 0.5], [0.5, 0.5]]}),
    shape_rule=_filled,
    gradient={"value": lambda op, d_output: op.ReduceSum(d_output, op.Range(0, op.Size(op.Shape(d_output)), 1))},
)  # fmt: skip


def _is_low(op: Any, t: Any, clip_value_min: Any, clip_value_max: Any) -> Any:
    """Where clip_value_min is what comes out; it is the last word where it is the larger limit."""
    return op.Less(op.Minimum(t, clip_value_max), clip_value_min)


def _where_limited(op: Any, d_output: Any, limited: Any) -> Any:
    """The gradient to a limit: the sum over the elements that became it."""
    flowing = op.SelectV2(limited, d_output, op.ZerosLike(d_output))
    return op.ReduceSum(flowing, op.Range(0, op.Size(op.Shape(flowing)), 1))


_declare(
    name="ClipByValue",
    summary="Clip elements to the range from a least to a largest value.",
    inputs=(
        Pin("t", "T", "[...]", "Any array."),
        Pin("clip_value_min", "T", "[]", "The least value."),
        Pin("clip_value_max", "T", "[]", "The largest value."),
    ),
    outputs=(Pin("output", "T", "[...]", "The shape of t."),),
    types={"T": REALS},
    formula="output = max(min(t, clip_value_max), clip_value_min)",
    errors=("InvalidArgumentError: clip_value_min or clip_value_max is not a scalar", WRONG_TYPE, TOO_LARGE),
    compute=_clip,
    example=Example({"t": [-3.0, 0.5, 2.0], "clip_value_min": -1.0, "clip_value_max": 1.0},
                    {"output": [-1.0, 0.5, 1.0]}),
    shape_rule=_clipped,
    gradient={
        "t": lambda op, d_output, t, clip_value_min, clip_value_max: op.SelectV2(
            op.LogicalOr(_is_low(op, t, clip_value_min, clip_value_max), op.Greater(t, clip_value_max)),
            op.ZerosLike(d_output), d_output,
        ),
        "clip_value_min": lambda op, d_output, t, clip_value_min, clip_value_max: _where_limited(
            op, d_output, _is_low(op, t, clip_value_min, clip_value_max)
        ),
        "clip_value_max": lambda op, d_output, t, clip_value_min, clip_value_max: _where_limited(
            op, d_output, op.LogicalAnd(
                op.Greater(t, clip_value_max), op.LogicalNot(_is_low(op, t, clip_value_min, clip_value_max))
            ),
        ),
    },
)  # fmt: skip
_declare(
    name="StopGradient",
    summary="The same values; gradients do not flow through.",
    inputs=(Pin("input", "T", "[...]", "Any shape."),),
    outputs=(Pin("output", "T", "[...]", "The same."),),
    types={"T": PLAIN},
    formula="output = input",
    errors=(WRONG_TYPE, TOO_LARGE),
    compute=lambda input: select(np.array(True), input, input),
    example=Example({"input": [1.0, 2.0]}, {"output": [1.0, 2.0]}),
)
