"""Elementwise operators: arithmetic with broadcasting, activations, conversions.

All are declared from two small tables, of one input and of two. Results are fresh arrays of the declared type; what is
not a number passes through, and no warning is given. Gradients are those of real types.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rowgrad._ops.broadcasting import (
    Known,
    Result,
    ShapeRule,
    ask,
    at,
    broadcast,
    copied,
    first_true,
    fresh,
    same,
    same_as_all,
)
from rowgrad._ops.catalogue import REQUIRED, Attribute, Example, Operator, Rule
from rowgrad._ops.pins import Pin
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import COMPLEX, FLOATS, NUMBERS, REALS, Array
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.errors import InvalidArgumentError

SIGNED = tuple(name for name in NUMBERS if not name.startswith("uint"))
PLAIN_NUMBERS = (*NUMBERS, "bool")
NARROW = frozenset({dtypes.NUMPY["float16"], dtypes.BFLOAT16})


def wide(array: Array) -> Array:
    """Half and bfloat16 as float32, in which steps that belong together are made before one rounding."""
    return array.astype(np.float32) if array.dtype in NARROW else array


def _map(function: Callable[..., Any], x: Array) -> Array:
    result = fresh(x.shape, x.dtype)
    with np.errstate(all="ignore"):
        function(x, out=result)
    return result


def _sigmoid(x: Array, out: Array) -> None:
    """Without overflow: exp only ever sees what is not positive."""
    x = wide(x)
    small = np.exp(-np.abs(x))
    np.copyto(out, np.where(x >= 0, 1, small) / (1 + small), casting="same_kind")


def _relu(x: Array, out: Array) -> None:
    np.maximum(x, x.dtype.type(0), out=out)


def _relu_grad(gradients: Array, features: Array) -> Array:
    shape = ask(equal("gradients", "features", "backprops"), {"gradients": gradients, "features": features})
    result = fresh(shape, gradients.dtype)
    result[...] = 0
    np.copyto(result, gradients, where=features > 0)
    return result


# Where TensorFlow cuts digits off, if asked to: not from float64 to bfloat16.
TRUNCATED = (("float64", "float32"), ("float64", "float16"), ("float32", "float16"), ("float32", "bfloat16"))
MANTISSA = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def _cast(x: Array, *, DstT: str, Truncate: bool = False) -> Array:
    target = dtypes.NUMPY[DstT]
    result = fresh(x.shape, target)
    source = dtypes.name_of(x.dtype)
    if Truncate and (source, DstT) in TRUNCATED:
        # As in TensorFlow, the digits that do not fit are set to 0 first, then it is rounded.
        words = x.view(f"u{x.itemsize}")
        x = (words >> (lost := MANTISSA[source] - MANTISSA[DstT]) << lost).view(x.dtype)
    with np.errstate(all="ignore"):
        np.copyto(result, x.real if x.dtype.kind == "c" and target.kind != "c" else x, casting="unsafe")
    return result


def _like(number: int, x: Array) -> Array:
    result = fresh(x.shape, x.dtype)
    result[...] = number
    return result


def _binary(function: Callable[..., Any], x: Array, y: Array) -> Array:
    result = fresh(ask(_broadcasting, {"x": x, "y": y}), x.dtype)
    with np.errstate(all="ignore"):
        function(x, y, out=result)
    return result


def _divide(x: Array, y: Array, out: Array) -> None:
    if x.dtype.kind not in "iu":
        np.true_divide(x, y, out=out)
        return
    if out.size and not y.all():
        position = first_true(y == 0)
        raise InvalidArgumentError(
            f"{at('y', position)} is 0, and whole numbers cannot be divided by it. Cast to a float type first.",
            code="division-by-zero",
            argument="y",
            position=position,
            value=0,
        )
    # Towards zero, as in C++: without the remainder, which has the sign of x, the quotient is whole.
    np.floor_divide(x - np.fmod(x, y), y, out=out)


def _squared_difference(x: Array, y: Array, out: Array) -> None:
    np.subtract(x, y, out=out)
    np.multiply(out, out.conj() if out.dtype.kind == "c" else out, out=out)


def _add_n(inputs: tuple[Array, ...]) -> Array:
    shape = ask(_sum_shape, {"inputs": inputs})
    total = fresh(shape, np.dtype(np.float32) if inputs[0].dtype in NARROW else inputs[0].dtype)
    np.copyto(total, inputs[0])
    with np.errstate(all="ignore"):
        for array in inputs[1:]:
            np.add(total, array, out=total)
        return total.astype(inputs[0].dtype, copy=False)


# Shapes


def _broadcasting(shapes: Known, _: Any, __: Any) -> Result:
    return {"z": broadcast(("x", "y"), shapes.get("x"), shapes.get("y"))}


def equal(left: str, right: str, *outputs: str) -> ShapeRule:
    """The rule of operators whose inputs and outputs all have one shape."""

    def rule(shapes: Known, _: Any, __: Any) -> Result:
        return dict.fromkeys(outputs, same((left, right), shapes.get(left), shapes.get(right)))

    return rule


def _sum_shape(shapes: Known, _: Any, __: Any) -> Result:
    return {"sum": same_as_all("inputs", shapes.get("inputs"))}


# Declarations

WRONG_TYPE = "DTypeError: a type that is not listed"
TOO_LARGE = "OutOfMemoryError: the result does not fit into memory"
REAL_ONLY = "The gradient is for real types."


class Unary(NamedTuple):
    """An operator of one input that keeps shape and type."""

    types: tuple[str, ...]
    compute: Callable[..., Any]
    summary: str
    formula: str
    example: tuple[list[float], list[float]]
    gradient: Rule | None = None
    notes: str = ""
    pins: tuple[str, str] = ("x", "y")


UNARY = {
    "Identity": Unary(
        (*PLAIN_NUMBERS, "string"), copied, "The same values.", "output = input",
        ([1.0, 2.0], [1.0, 2.0]), lambda op, d_output: d_output,
        "The result is a copy: it shares no memory with the input.",
        ("input", "output"),
    ),
    "Neg": Unary(SIGNED, partial(_map, np.negative), "Change the sign.", "y = −x", ([1.0, -2.0], [-1.0, 2.0]),
                 lambda op, d_y: op.Neg(d_y)),
    "Square": Unary(NUMBERS, partial(_map, np.square), "The square of each element.", "y = x · x",
                    ([3.0, -2.0], [9.0, 4.0]), lambda op, d_y, x: op.Mul(d_y, op.Mul(2.0, x))),
    "Sqrt": Unary(FLOATS + COMPLEX, partial(_map, np.sqrt), "The square root of each element.", "y = √x",
                  ([4.0, 9.0], [2.0, 3.0]), lambda op, d_y, y: op.Div(op.Mul(0.5, d_y), y),
                  "Of a negative number it is NaN."),
    "Exp": Unary(FLOATS + COMPLEX, partial(_map, np.exp), "The exponential of each element.", "y = exp(x)",
                 ([0.0, 1.0], [1.0, 2.718282]), lambda op, d_y, y: op.Mul(d_y, y)),
    "Log": Unary(FLOATS + COMPLEX, partial(_map, np.log), "The natural logarithm of each element.", "y = log(x)",
                 ([1.0, 2.0], [0.0, 0.693147]), lambda op, d_y, x: op.Div(d_y, x),
                 "Of 0 it is −∞, of a negative number NaN."),
    "Relu": Unary(REALS, partial(_map, _relu), "Keep positive elements; set the others to 0.",
                  "activations = max(features, 0)", ([-1.0, 2.0], [0.0, 2.0]),
                  lambda op, d_activations, features: op.ReluGrad(d_activations, features),
                  "At 0 the gradient is 0.", ("features", "activations")),
    "Sigmoid": Unary(FLOATS, partial(_map, _sigmoid), "The logistic function of each element.",
                     "y = 1 / (1 + exp(−x))", ([0.0, 2.0], [0.5, 0.880797]),
                     lambda op, d_y, y: op.Mul(d_y, op.Mul(y, op.Sub(1.0, y)))),
    "Tanh": Unary(FLOATS + COMPLEX, partial(_map, np.tanh), "The hyperbolic tangent of each element.", "y = tanh(x)",
                  ([0.0, 1.0], [0.0, 0.761594]), lambda op, d_y, y: op.Mul(d_y, op.Sub(1.0, op.Square(y)))),
    "ZerosLike": Unary(PLAIN_NUMBERS, partial(_like, 0), "Zeros of the shape and type of the input.", "y = 0",
                       ([5.0, 7.0], [0.0, 0.0])),
    "OnesLike": Unary(PLAIN_NUMBERS, partial(_like, 1), "Ones of the shape and type of the input.", "y = 1",
                      ([5.0, 7.0], [1.0, 1.0])),
}  # fmt: skip


def _declare_unary(name: str, row: Unary) -> None:
    source, target = row.pins
    notes = [row.notes] if row.notes else []
    if row.gradient and "complex64" in row.types and name not in ("Identity", "Neg"):
        notes.append(REAL_ONLY)
    declare(Operator(
        name=name,
        function=None,
        family="elementwise",
        summary=row.summary,
        inputs=(Pin(source, "T", "[...]", "Any shape."),),
        outputs=(Pin(target, "T", "[...]", "The shape and type of the input."),),
        types={"T": row.types},
        formula=row.formula,
        errors=(WRONG_TYPE, TOO_LARGE),
        cost="O(elements).",
        example=Example({source: row.example[0]}, {target: row.example[1]}),
        compute=row.compute,
        gradient={source: row.gradient} if row.gradient else {},
        notes=" ".join(notes),
    ))  # fmt: skip


class Binary(NamedTuple):
    """An operator of x and y, broadcast to each other."""

    compute: Callable[..., Any]
    summary: str
    formula: str
    example: list[float]
    gradient: tuple[Rule, Rule]  # to x and to y, of the shape of z
    types: tuple[str, ...] = NUMBERS
    errors: tuple[str, ...] = ()
    notes: str = "Whole numbers wrap around where the type ends, as in TensorFlow."


BINARY = {
    "Add": Binary(np.add, "Add, element by element.", "z = x + y", [3.0, 6.0],
                  (lambda op, d_z, x, y, z: d_z, lambda op, d_z, x, y, z: d_z)),
    "Sub": Binary(np.subtract, "Subtract, element by element.", "z = x − y", [-1.0, 2.0],
                  (lambda op, d_z, x, y, z: d_z, lambda op, d_z, x, y, z: op.Neg(d_z))),
    "Mul": Binary(np.multiply, "Multiply, element by element.", "z = x · y", [2.0, 8.0],
                  (lambda op, d_z, x, y, z: op.Mul(d_z, y), lambda op, d_z, x, y, z: op.Mul(d_z, x))),
    "Div": Binary(_divide, "Divide, element by element.", "z = x / y, for whole numbers rounded towards 0", [0.5, 2.0],
                  (lambda op, d_z, x, y, z: op.Div(d_z, y),
                   lambda op, d_z, x, y, z: op.Neg(op.Div(op.Mul(d_z, z), y))),
                  errors=("InvalidArgumentError: a whole number is divided by 0",),
                  notes="Division of floats by 0 follows IEEE 754: the result is ±∞ or NaN."),
    "SquaredDifference": Binary(_squared_difference, "The square of the difference, element by element.",
                                "z = (x − y)², for complex numbers |x − y|²", [1.0, 4.0],
                                (lambda op, d_z, x, y, z: op.Mul(d_z, op.Mul(2.0, op.Sub(x, y))),
                                 lambda op, d_z, x, y, z: op.Mul(d_z, op.Mul(2.0, op.Sub(y, x)))), SIGNED),
}  # fmt: skip


def _summed_back(rule: Rule, axes: str) -> Rule:
    """The gradient of an input that was broadcast: summed over the axes along which it had been repeated."""

    def summed(op: Any, d_z: Any, x: Any, y: Any, z: Any) -> Any:
        gradient = rule(op, d_z, x, y, z)
        repeated = getattr(op.BroadcastGradientArgs(op.Shape(x), op.Shape(y)), axes)
        return op.Reshape(op.ReduceSum(gradient, repeated), op.Shape(x if axes == "r0" else y))

    return summed


def _declare_binary(name: str, row: Binary) -> None:
    to_x, to_y = row.gradient
    declare(Operator(
        name=name,
        function=None,
        family="elementwise",
        summary=row.summary,
        inputs=(
            Pin("x", "T", "[...]", "Any shape."),
            Pin("y", "T", "[...]", "A shape that broadcasts with that of x."),
        ),
        outputs=(Pin("z", "T", "[...]", "The shape that x and y broadcast to."),),
        types={"T": row.types},
        formula=row.formula,
        errors=("InvalidArgumentError: the shapes do not broadcast", *row.errors, WRONG_TYPE, TOO_LARGE),
        cost="O(elements of the result).",
        example=Example({"x": [1.0, 4.0], "y": [2.0, 2.0]}, {"z": row.example}),
        compute=partial(_binary, row.compute),
        shape_rule=_broadcasting,
        gradient={"x": _summed_back(to_x, "r0"), "y": _summed_back(to_y, "r1")},
        notes=f"{row.notes} {REAL_ONLY}",
    ))  # fmt: skip


for _name, _unary in UNARY.items():
    _declare_unary(_name, _unary)
for _name, _two in BINARY.items():
    _declare_binary(_name, _two)

declare(Operator(
    name="ReluGrad",
    function=None,
    family="elementwise",
    summary="The gradient of Relu: the upstream gradient where the feature was positive.",
    inputs=(
        Pin("gradients", "T", "[...]", "The upstream gradient of the activations."),
        Pin("features", "T", "[...]", "The input of Relu, of the same shape."),
    ),
    outputs=(Pin("backprops", "T", "[...]", "The gradient of the features."),),
    types={"T": REALS},
    formula="backprops = gradients where features > 0, else 0",
    errors=("InvalidArgumentError: the shapes differ", WRONG_TYPE, TOO_LARGE),
    cost="O(elements).",
    example=Example({"gradients": [5.0, 7.0], "features": [-1.0, 2.0]}, {"backprops": [0.0, 7.0]}),
    compute=_relu_grad,
    shape_rule=equal("gradients", "features", "backprops"),
    gradient={"gradients": lambda op, d_backprops, features: op.ReluGrad(d_backprops, features)},
    notes="To the features it has no gradient: that is 0 wherever there is one. TensorFlow multiplies by 0 instead, so "
    "that an infinite gradient becomes NaN.",
))  # fmt: skip

declare(Operator(
    name="Cast",
    function=None,
    family="elementwise",
    summary="Convert values to another type.",
    inputs=(Pin("x", "SrcT", "[...]", "Any shape."),),
    outputs=(Pin("y", "DstT", "[...]", "The values of x in the type DstT."),),
    types={"SrcT": PLAIN_NUMBERS, "DstT": PLAIN_NUMBERS},
    formula="y = x, rounded to what DstT holds: towards 0 where that is whole numbers, else to nearest",
    errors=("InvalidArgumentError: DstT is missing, or is not a listed type", WRONG_TYPE, TOO_LARGE),
    cost="O(elements).",
    example=Example({"x": [1.9, -1.9]}, {"y": [1, -1]}, attributes={"DstT": "int32"}),
    compute=_cast,
    attributes=(
        Attribute("DstT", REQUIRED, "The type of the result.", kind="dtype"),
        Attribute("Truncate", False, "Whether floats are rounded towards 0, where the result has fewer digits."),
    ),
    gradient={"x": lambda op, d_y, SrcT: op.Cast(d_y, DstT=SrcT)},
    notes="Of a complex number the real part is taken; as a bool, all but 0 is true. What a type of whole numbers "
    "cannot hold (NaN, infinities, what lies past its range) becomes whatever the processor makes of it. float64 is "
    "rounded to half once; TensorFlow rounds it to float32 first.",
))  # fmt: skip

declare(Operator(
    name="AddN",
    function=None,
    family="elementwise",
    summary="The sum of any number of arrays of one shape.",
    inputs=(Pin("inputs", "T", "[...]", "One or more arrays of the same shape.", many=True),),
    outputs=(Pin("sum", "T", "[...]", "Their sum."),),
    types={"T": NUMBERS},
    formula="sum = inputs[0] + inputs[1] + …, in this order",
    errors=("InvalidArgumentError: there are no inputs, or their shapes differ", WRONG_TYPE, TOO_LARGE),
    cost="O(elements of all inputs).",
    example=Example({"inputs": [[1.0, 2.0], [10.0, 20.0]]}, {"sum": [11.0, 22.0]}),
    compute=_add_n,
    shape_rule=_sum_shape,
    gradient={"inputs": lambda op, d_sum: d_sum},
    notes="half and bfloat16 are added up in float32 and rounded once; TensorFlow rounds after every addition.",
))  # fmt: skip
