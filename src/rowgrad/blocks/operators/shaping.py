"""Shapes and what changes them: reshape, transpose, expand, broadcast; and the sizes and axes that gradients need.

No operator here looks at values, so most take every type, text too. Results are fresh arrays, never views: a caller may
change what it holds, and results, independently.
"""

from math import prod
from typing import Any

import numpy as np

from rowgrad._ops import checks
from rowgrad._ops.broadcasting import (
    Known,
    Result,
    ask,
    broadcast,
    copied,
    distinct_axes,
    fresh,
    known,
    listed,
    number,
    of_rank,
    one_axis,
    sizes,
)
from rowgrad._ops.catalogue import Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._ops.shapes import Shape
from rowgrad._runtime.dtypes import IDS, PLAIN, Array
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.elementwise import TOO_LARGE, WRONG_TYPE
from rowgrad.blocks.operators.results import BroadcastAxes
from rowgrad.errors import InvalidArgumentError, OutOfRangeError


def _shape(input: Array, *, out_type: str = "int32") -> Array:
    for axis, size in enumerate(input.shape):
        _fits(f"dimension {axis} of input", size, out_type)
    return np.array(input.shape, out_type)


def _size(input: Array, *, out_type: str = "int32") -> Array:
    _fits("the number of elements of input", input.size, out_type)
    return np.array(input.size, out_type)


def _fits(what: str, size: int, out_type: str) -> None:
    if size > np.iinfo(out_type).max:
        raise OutOfRangeError(
            f"{what} is {size}, outside the range of {out_type}. Choose out_type='int64'.",
            code="index-out-of-range",
            argument="out_type",
            value=size,
        )


def _reshape(tensor: Array, shape: Array) -> Array:
    return copied(tensor).reshape(ask(_reshaped, {"tensor": tensor, "shape": shape}))


def _reshaped(shapes: Known, values: Known, _: Any) -> Result:
    wanted = sizes("shape", shapes, values, least=-1)
    if wanted is None:
        return {"output": None}
    if wanted.count(-1) > 1:
        raise _wrong_shape(shapes.get("tensor"), wanted, "only one size may be −1")
    before, others = known(shapes.get("tensor")), known(tuple(size for size in wanted if size != -1))
    if before is None or others is None:
        return {"output": tuple(None if size == -1 else size for size in wanted)}
    # Where a size is stated to be 0, any other would do for −1; TensorFlow then leaves sizes of 0 out of the account.
    ignored = 0 if 0 in others else -1
    missing = prod(n for n in before if n != ignored) // prod(n for n in others if n != ignored)
    result = tuple(missing if size == -1 else size for size in wanted)
    elements, made = prod(before), prod(others) * (missing if -1 in wanted else 1)
    if elements != made:
        raise _wrong_shape(before, wanted, f"{elements} elements do not make that")
    return {"output": result}


def _wrong_shape(before: Shape | None, wanted: Shape, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"tensor has shape {listed(before)} and shape is {listed(wanted)}: {why}. Choose a shape of as many elements.",
        code="shape-mismatch",
        argument="shape",
        value=wanted,
    )


def _transpose(x: Array, perm: Array) -> Array:
    ask(_transposed, {"x": x, "perm": perm})
    return copied(x.transpose(distinct_axes("perm", perm, x.ndim)))


def _transposed(shapes: Known, values: Known, _: Any) -> Result:
    (length,) = of_rank("perm", shapes.get("perm"), 1)
    before = shapes.get("x")
    if before is not None and isinstance(length, int):
        checks.same_length("perm", length, "the shape of x", len(before))
    if "perm" in values:
        perm = distinct_axes("perm", values["perm"], len(values["perm"]))
        if before is not None:
            return {"y": tuple(before[axis] for axis in perm)}
    rank = len(before) if before is not None else length
    return {"y": (None,) * rank if isinstance(rank, int) else None}


def _invert(x: Array) -> Array:
    checks.rank("x", x, 1)
    result = fresh(x.shape, x.dtype)
    result[list(distinct_axes("x", x, x.size))] = np.arange(x.size)
    return result


def _expand(input: Array, axis: Any) -> Array:
    return copied(input).reshape(ask(_expanded, {"input": input, "axis": axis}))


def _expanded(shapes: Known, values: Known, _: Any) -> Result:
    axis, before = number("axis", shapes, values), shapes.get("input")
    if before is None:
        return {"output": None}
    if axis is None:
        return {"output": (None,) * (len(before) + 1)}
    place = one_axis("axis", axis, len(before) + 1)
    return {"output": (*before[:place], 1, *before[place:])}


def _broadcast_to(input: Array, shape: Array) -> Array:
    wanted = ask(_broadcasted, {"input": input, "shape": shape})
    result = fresh(wanted, input.dtype, "shape")
    np.copyto(result, input)
    return result


def _broadcasted(shapes: Known, values: Known, _: Any) -> Result:
    wanted, before = sizes("shape", shapes, values), shapes.get("input")
    if before is None or wanted is None:
        return {"output": wanted}
    result = broadcast(("input", "shape"), before, wanted) or ()
    pairs = zip(wanted[::-1], before[::-1], strict=False)
    if len(before) > len(wanted) or any(size == 1 and isinstance(was, int) and was != 1 for size, was in pairs):
        raise InvalidArgumentError(
            f"input has shape {listed(before)}, and shape is {listed(wanted)}, which is smaller; broadcasting only "
            "repeats. Choose a shape that the input fits into.",
            code="shape-mismatch",
            argument="shape",
            value=wanted,
        )
    return {"output": tuple(size if size == 1 else found for size, found in zip(wanted, result, strict=True))}


def _gradient_axes(s0: Array, s1: Array) -> BroadcastAxes:
    shapes = {"s0": s0.shape, "s1": s1.shape}
    left, right = (sizes(name, shapes, {name: array}) for name, array in (("s0", s0), ("s1", s1)))
    assert left is not None and right is not None
    broadcast(("s0", "s1"), left, right)
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(shape)) + shape for shape in (left, right)]
    if left == right:
        return BroadcastAxes(np.empty(0, s0.dtype), np.empty(0, s0.dtype))
    # Where both are 1, both are summed over, which changes nothing; missing dimensions count as 1.
    return BroadcastAxes(*(np.array([i for i in range(rank) if shape[i] == 1], s0.dtype) for shape in padded))


def _gradient_axes_shape(shapes: Known, values: Known, _: Any) -> Result:
    left, right = (sizes(name, shapes, values) for name in ("s0", "s1"))
    broadcast(("s0", "s1"), left, right)
    if left is None or right is None or known(left + right) is None:
        return {"r0": (None,), "r1": (None,)}
    if left == right:
        return {"r0": (0,), "r1": (0,)}
    rank = max(len(left), len(right))
    return {"r0": (rank - len(left) + left.count(1),), "r1": (rank - len(right) + right.count(1),)}


# Declarations

OUT_TYPE = Attribute("out_type", "int32", "The type of the result: int32 or int64.", kind="dtype")
TOO_WIDE = "OutOfRangeError: a size that out_type cannot hold"


def _output(shape: str, doc: str, dtype: str = "T", name: str = "output") -> tuple[Pin, ...]:
    return (Pin(name, dtype, shape, doc),)


declare(Operator(
    name="Shape",
    function=None,
    family="shaping",
    summary="The shape of an array.",
    inputs=(Pin("input", "T", "[...]", "Any array."),),
    outputs=_output("[rank]", "The size of each dimension.", "out_type"),
    types={"T": PLAIN, "out_type": IDS},
    formula="output[d] = the size of dimension d of input",
    errors=(TOO_WIDE, WRONG_TYPE),
    cost="O(rank).",
    example=Example({"input": [[1.0, 2.0, 3.0]]}, {"output": [1, 3]}),
    compute=_shape,
    attributes=(OUT_TYPE,),
    shape_rule=lambda shapes, _, __: {"output": (None if shapes.get("input") is None else len(shapes["input"]),)},
))  # fmt: skip

declare(Operator(
    name="Size",
    function=None,
    family="shaping",
    summary="The number of elements of an array.",
    inputs=(Pin("input", "T", "[...]", "Any array."),),
    outputs=_output("[]", "How many elements it has.", "out_type"),
    types={"T": PLAIN, "out_type": IDS},
    formula="output = the product of the sizes of input",
    errors=(TOO_WIDE, WRONG_TYPE),
    cost="O(rank).",
    example=Example({"input": [[1.0, 2.0, 3.0]]}, {"output": 3}),
    compute=_size,
    attributes=(OUT_TYPE,),
    shape_rule=lambda *_: {"output": ()},
))  # fmt: skip

declare(Operator(
    name="Reshape",
    function=None,
    family="shaping",
    summary="Change the shape, with the same elements in the same order.",
    inputs=(
        Pin("tensor", "T", "[...]", "Any array."),
        Pin("shape", "Tshape", "[rank]", "The new shape; one size may be −1, which is inferred."),
    ),
    outputs=_output("[...]", "The elements of tensor, row by row."),
    types={"T": PLAIN, "Tshape": IDS},
    formula="output, read row by row, = tensor, read row by row",
    errors=(
        "InvalidArgumentError: shape is not a vector, has a size below −1 or more than one −1",
        "InvalidArgumentError: the numbers of elements differ",
        WRONG_TYPE,
        TOO_LARGE,
    ),
    cost="O(elements): the result is a copy.",
    example=Example({"tensor": [1.0, 2.0, 3.0, 4.0], "shape": [2, -1]}, {"output": [[1.0, 2.0], [3.0, 4.0]]}),
    compute=_reshape,
    shape_rule=_reshaped,
    gradient={"tensor": lambda op, d_output, tensor: op.Reshape(d_output, op.Shape(tensor))},
))  # fmt: skip

declare(Operator(
    name="Transpose",
    function=None,
    family="shaping",
    summary="Put the dimensions into another order.",
    inputs=(
        Pin("x", "T", "[...]", "Any array."),
        Pin("perm", "Tperm", "[rank]", "For each dimension of y, which of x it was; negative ones count from the end."),
    ),
    outputs=_output("[...]", "x with its dimensions in the new order.", name="y"),
    types={"T": PLAIN, "Tperm": IDS},
    formula="y[i_perm[0], i_perm[1], …] = x[i_0, i_1, …]",
    errors=(
        "InvalidArgumentError: perm is not a vector, not as long as x has dimensions, or names a dimension twice",
        "OutOfRangeError: perm names a dimension that x does not have",
        WRONG_TYPE,
        TOO_LARGE,
    ),
    cost="O(elements): the result is a copy.",
    example=Example({"x": [[1.0, 2.0, 3.0]], "perm": [1, 0]}, {"y": [[1.0], [2.0], [3.0]]}),
    compute=_transpose,
    shape_rule=_transposed,
    gradient={"x": lambda op, d_y, perm: op.Transpose(d_y, op.InvertPermutation(perm))},
))  # fmt: skip

declare(Operator(
    name="InvertPermutation",
    function=None,
    family="shaping",
    summary="The permutation that undoes another.",
    inputs=(Pin("x", "T", "[rank]", "A permutation of 0 … rank − 1; negative numbers count from the end."),),
    outputs=_output("[rank]", "The permutation that undoes it.", name="y"),
    types={"T": IDS},
    formula="y[x[i]] = i",
    errors=(
        "InvalidArgumentError: x is not a vector, or a number occurs twice",
        "OutOfRangeError: a number is not in [−rank, rank)",
        WRONG_TYPE,
    ),
    cost="O(rank).",
    example=Example({"x": [2, 0, 1]}, {"y": [1, 2, 0]}),
    compute=_invert,
))  # fmt: skip

declare(Operator(
    name="ExpandDims",
    function=None,
    family="shaping",
    summary="Insert a dimension of size 1.",
    inputs=(
        Pin("input", "T", "[...]", "Any array."),
        Pin("axis", "Tdim", "[]", "The position of the new dimension; negative ones are counted from the end."),
    ),
    outputs=_output("[...]", "The input with one dimension more."),
    types={"T": PLAIN, "Tdim": IDS},
    formula="output's shape is that of input with 1 inserted before axis",
    errors=(
        "InvalidArgumentError: axis is not a scalar",
        "OutOfRangeError: axis is not in [−rank − 1, rank]",
        WRONG_TYPE,
        TOO_LARGE,
    ),
    cost="O(elements): the result is a copy.",
    example=Example({"input": [1.0, 2.0], "axis": -1}, {"output": [[1.0], [2.0]]}),
    compute=_expand,
    shape_rule=_expanded,
    gradient={"input": lambda op, d_output, input: op.Reshape(d_output, op.Shape(input))},
))  # fmt: skip

declare(Operator(
    name="BroadcastTo",
    function=None,
    family="shaping",
    summary="Repeat an array along dimensions of size 1, and along new ones, until it has a shape.",
    inputs=(
        Pin("input", "T", "[...]", "Any array."),
        Pin("shape", "Tidx", "[rank]", "The shape of the result."),
    ),
    outputs=_output("[...]", "The input, repeated to that shape."),
    types={"T": PLAIN, "Tidx": IDS},
    formula="output[…, i, …] = input[…, 0 where input has size 1, else i, …]",
    errors=(
        "InvalidArgumentError: shape is not a vector, has a negative size, or the input does not fit into it",
        WRONG_TYPE,
        TOO_LARGE,
    ),
    cost="O(elements of the result).",
    example=Example({"input": [1.0, 2.0], "shape": [2, 2]}, {"output": [[1.0, 2.0], [1.0, 2.0]]}),
    compute=_broadcast_to,
    shape_rule=_broadcasted,
    gradient={
        "input": lambda op, d_output, input, output: op.Reshape(
            op.ReduceSum(d_output, op.BroadcastGradientArgs(op.Shape(input), op.Shape(output)).r0), op.Shape(input)
        )
    },
))  # fmt: skip

declare(Operator(
    name="BroadcastGradientArgs",
    function=None,
    family="shaping",
    summary="The axes over which the gradients of two arrays that were broadcast have to be summed.",
    inputs=(
        Pin("s0", "T", "[rank0]", "The shape of the first."),
        Pin("s1", "T", "[rank1]", "The shape of the second."),
    ),
    outputs=(
        Pin("r0", "T", "[n0]", "The axes of the result along which the first has size 1 or none."),
        Pin("r1", "T", "[n1]", "The same for the second."),
    ),
    types={"T": IDS},
    formula="r0 = the d where s0, filled up with 1 from the left, is 1; r1 likewise; none if the two are equal",
    errors=(
        "InvalidArgumentError: a shape is not a vector, has a negative size, or the two do not broadcast",
        WRONG_TYPE,
    ),
    cost="O(rank).",
    example=Example({"s0": [4, 1, 3], "s1": [5, 3]}, {"r0": [1], "r1": [0]}),
    compute=_gradient_axes,
    shape_rule=_gradient_axes_shape,
    result=BroadcastAxes,
))  # fmt: skip
