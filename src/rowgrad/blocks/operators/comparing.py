"""Comparisons, choices and tests, element by element: Equal and its like, Maximum, SelectV2, IsFinite, Abs, Floor.

They are made of NumPy, as the other dense operators are. Comparisons and whole numbers have no gradients.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rowgrad._ops.broadcasting import Known, Result, ask, broadcast, fresh
from rowgrad._ops.catalogue import Attribute, Example, Operator, Rule
from rowgrad._ops.pins import Pin
from rowgrad._runtime.dtypes import FLOATS, NUMBERS, PLAIN, REALS, Array
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.elementwise import TOO_LARGE, WRONG_TYPE, _broadcasting, _map, _summed_back, wide
from rowgrad.errors import InvalidArgumentError

FAMILY = "choosing"
NO_BROADCAST = "InvalidArgumentError: the shapes do not broadcast"


def _compare(function: Callable[..., Any], x: Array, y: Array) -> Array:
    result = fresh(ask(_broadcasting, {"x": x, "y": y}), np.dtype(bool))
    with np.errstate(all="ignore"):
        function(x, y, out=result)
    return result


def _compare_any(function: Callable[..., Any], x: Array, y: Array, *, incompatible_shape_error: bool = True) -> Array:
    """Equal or NotEqual; arrays of shapes that do not broadcast are not equal, unless that is an error."""
    if not incompatible_shape_error and not _broadcasts(x.shape, y.shape):
        return np.array(function is np.not_equal)
    return _compare(function, x, y)


def _broadcasts(*shapes: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def _compared(shapes: Known, values: Known, attributes: Any) -> Result:
    if attributes.get("incompatible_shape_error", True):
        return _broadcasting(shapes, values, attributes)
    try:
        return _broadcasting(shapes, values, attributes)
    except InvalidArgumentError:
        return {"z": ()}


def _larger(function: Callable[..., Any], x: Array, y: Array) -> Array:
    result = fresh(ask(_broadcasting, {"x": x, "y": y}), x.dtype)
    with np.errstate(all="ignore"):
        function(x, y, out=result)
    return result


def select(condition: Array, t: Array, e: Array) -> Array:
    result = fresh(ask(_selected, {"condition": condition, "t": t, "e": e}), t.dtype)
    np.copyto(result, e)
    np.copyto(result, t, where=condition)
    return result


def _selected(shapes: Known, _: Any, __: Any) -> Result:
    both = broadcast(("t", "e"), shapes.get("t"), shapes.get("e"))
    return {"output": broadcast(("condition", "t"), shapes.get("condition"), both)}


def _test(function: Callable[..., Any], x: Array) -> Array:
    result = fresh(x.shape, np.dtype(bool))
    function(wide(x), out=result)
    return result


# Declarations


def _declare(**fields: Any) -> None:
    declare(Operator(function=None, family=FAMILY, **{"cost": "O(elements).", **fields}))


class Two(NamedTuple):
    """What two operators that are declared alike differ in."""

    function: Any
    summary: str
    formula: str
    result: list[Any]


COMPARISONS = {
    "Equal": Two(np.equal, "Whether two elements are equal.", "z = x equals y", [False, True, False]),
    "NotEqual": Two(np.not_equal, "Whether two elements differ.", "z = x does not equal y", [True, False, True]),
    "Less": Two(np.less, "Whether x is less than y.", "z = x < y", [True, False, False]),
    "LessEqual": Two(np.less_equal, "Whether x is at most y.", "z = x ≤ y", [True, True, False]),
    "Greater": Two(np.greater, "Whether x is larger than y.", "z = x > y", [False, False, True]),
    "GreaterEqual": Two(np.greater_equal, "Whether x is at least y.", "z = x ≥ y", [False, True, True]),
}
X, Y = Pin("x", "T", "[...]", "Any shape."), Pin("y", "T", "[...]", "A shape that broadcasts with that of x.")
Z = "The shape that x and y broadcast to."
for _name, _row in COMPARISONS.items():
    _same = _name in ("Equal", "NotEqual")
    _declare(
        name=_name, summary=_row.summary, inputs=(X, Y), outputs=(Pin("z", "bool", "[...]", Z),),
        types={"T": (*NUMBERS, "bool") if _same else REALS}, formula=_row.formula,
        errors=(NO_BROADCAST, WRONG_TYPE, TOO_LARGE),
        compute=partial(_compare_any if _same else _compare, _row.function),
        attributes=(Attribute("incompatible_shape_error", True, "Whether shapes must broadcast; else, arrays whose "
                              "shapes do not are not equal."),) * _same,
        example=Example({"x": [1.0, 2.0, 3.0], "y": [2.0]}, {"z": _row.result}),
        shape_rule=_compared if _same else _broadcasting,
        notes="NaN is equal to nothing, and neither less nor larger than anything.",
    )  # fmt: skip
for _name, _row in {
    "LogicalAnd": Two(np.logical_and, "Whether both are true.", "z = x and y", [True, False]),
    "LogicalOr": Two(np.logical_or, "Whether one or both are true.", "z = x or y", [True, True]),
}.items():
    _declare(
        name=_name, summary=_row.summary,
        inputs=(Pin("x", "bool", "[...]", X.doc), Pin("y", "bool", "[...]", Y.doc)),
        outputs=(Pin("z", "bool", "[...]", Z),), types={}, formula=_row.formula,
        errors=(NO_BROADCAST, WRONG_TYPE, TOO_LARGE), compute=partial(_compare, _row.function),
        example=Example({"x": [True, False], "y": [True]}, {"z": _row.result}), shape_rule=_broadcasting,
    )  # fmt: skip


def _where(compare: str, first: bool) -> Rule:
    """The gradient goes to x where the comparison is true, else to y."""

    def rule(op: Any, d_z: Any, x: Any, y: Any, z: Any) -> Any:
        chosen, zeros = getattr(op, compare)(x, y), op.ZerosLike(d_z)
        return op.SelectV2(chosen, d_z, zeros) if first else op.SelectV2(chosen, zeros, d_z)

    return rule


for _name, _row in {
    "Maximum": Two(np.maximum, "The larger of two elements.", "z = max(x, y)", [2.0, 2.0, 3.0]),
    "Minimum": Two(np.minimum, "The smaller of two elements.", "z = min(x, y)", [1.0, 2.0, 2.0]),
}.items():
    _by = "GreaterEqual" if _name == "Maximum" else "LessEqual"
    _declare(
        name=_name, summary=_row.summary, inputs=(X, Y), outputs=(Pin("z", "T", "[...]", Z),), types={"T": REALS},
        formula=_row.formula, errors=(NO_BROADCAST, WRONG_TYPE, TOO_LARGE), compute=partial(_larger, _row.function),
        example=Example({"x": [1.0, 2.0, 3.0], "y": [2.0]}, {"z": _row.result}), shape_rule=_broadcasting,
        gradient={"x": _summed_back(_where(_by, True), "r0"), "y": _summed_back(_where(_by, False), "r1")},
        notes="NaN takes precedence over any number. If both are equal, the gradient goes to x.",
    )  # fmt: skip


def _to_chosen(name: str) -> Rule:
    """The gradient of a choice that was broadcast, summed back to the shape of what was chosen."""

    def rule(op: Any, d_output: Any, condition: Any, t: Any, e: Any) -> Any:
        zeros = op.ZerosLike(d_output)
        flowing = op.SelectV2(condition, d_output, zeros) if name == "t" else op.SelectV2(condition, zeros, d_output)
        chosen = t if name == "t" else e
        axes = op.BroadcastGradientArgs(op.Shape(chosen), op.Shape(d_output)).r0
        return op.Reshape(op.ReduceSum(flowing, axes), op.Shape(chosen))

    return rule


_declare(
    name="SelectV2",
    summary="Choose between two arrays, element by element.",
    inputs=(
        Pin("condition", "bool", "[...]", "Where to choose t."),
        Pin("t", "T", "[...]", "The values where condition is true."),
        Pin("e", "T", "[...]", "The values elsewhere."),
    ),
    outputs=(Pin("output", "T", "[...]", "The shape that all three broadcast to."),),
    types={"T": PLAIN},
    formula="output = t where condition, else e",
    errors=(NO_BROADCAST, WRONG_TYPE, TOO_LARGE),
    compute=select,
    example=Example({"condition": [True, False], "t": [1.0, 2.0], "e": [0.0]}, {"output": [1.0, 0.0]}),
    shape_rule=_selected,
    gradient={"t": _to_chosen("t"), "e": _to_chosen("e")},
)
_declare(
    name="LogicalNot",
    summary="Whether an element is false.",
    inputs=(Pin("x", "bool", "[...]", "Any shape."),),
    outputs=(Pin("y", "bool", "[...]", "The shape of the input."),),
    types={},
    formula="y = not x",
    errors=(WRONG_TYPE, TOO_LARGE),
    compute=partial(_test, np.logical_not),
    example=Example({"x": [True, False]}, {"y": [False, True]}),
)
_declare(
    name="IsFinite",
    summary="Whether an element is a number, and not infinite.",
    inputs=(Pin("x", "T", "[...]", "Any shape."),),
    outputs=(Pin("y", "bool", "[...]", "The shape of the input."),),
    types={"T": FLOATS},
    formula="y = x is neither infinite nor NaN",
    errors=(WRONG_TYPE, TOO_LARGE),
    compute=partial(_test, np.isfinite),
    example=Example({"x": [1.0, 2.0]}, {"y": [True, True]}),
)


class _One(NamedTuple):
    function: Any
    types: tuple[str, ...]
    summary: str
    formula: str
    example: tuple[list[float], list[float]]
    gradient: Rule | None = None


SIGNED = tuple(name for name in REALS if not name.startswith("uint"))
for _name, _each in {
    "Abs": _One(
        np.absolute,
        SIGNED,
        "The absolute value of each element.",
        "y = |x|",
        ([-1.5, 2.0], [1.5, 2.0]),
        lambda op, d_y, x: op.Mul(d_y, op.Sign(x)),
    ),
    "Sign": _One(np.sign, SIGNED, "The sign of each element.", "y = −1, 0 or 1", ([-1.5, 2.0], [-1.0, 1.0])),
    "Floor": _One(np.floor, FLOATS, "Round down.", "y = ⌊x⌋", ([-1.5, 2.5], [-2.0, 2.0])),
    "Ceil": _One(np.ceil, FLOATS, "Round up.", "y = ⌈x⌉", ([-1.5, 2.5], [-1.0, 3.0])),
    "Rint": _One(
        np.rint,
        FLOATS,
        "Round to the nearest whole number; halves to the even one.",
        "y = x, rounded",
        ([-1.5, 2.5], [-2.0, 2.0]),
    ),
    "Log1p": _One(
        np.log1p,
        FLOATS,
        "The logarithm of 1 + x, also where x is small.",
        "y = log(1 + x)",
        ([0.0, 1.0], [0.0, 0.693147]),
        lambda op, d_y, x: op.Div(d_y, op.Add(1.0, x)),
    ),
    "Expm1": _One(
        np.expm1,
        FLOATS,
        "The exponential less 1, also where x is small.",
        "y = exp(x) − 1",
        ([0.0, 1.0], [0.0, 1.718282]),
        lambda op, d_y, y: op.Mul(d_y, op.Add(y, 1.0)),
    ),
}.items():
    _declare(
        name=_name, summary=_each.summary, inputs=(Pin("x", "T", "[...]", "Any shape."),),
        outputs=(Pin("y", "T", "[...]", "The shape and type of the input."),), types={"T": _each.types},
        formula=_each.formula, errors=(WRONG_TYPE, TOO_LARGE), compute=partial(_map, _each.function),
        example=Example({"x": _each.example[0]}, {"y": _each.example[1]}),
        gradient={"x": _each.gradient} if _each.gradient else {},
    )  # fmt: skip
