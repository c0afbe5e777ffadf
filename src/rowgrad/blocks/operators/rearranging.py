"""Fewer dimensions, more copies, running sums: Squeeze, Tile, Cumsum.

Operators of pages only. Each has a rule for the shape of its result, which also checks the arguments.
"""

from typing import Any

import numpy as np

from rowgrad._ops.broadcasting import (
    Known,
    Result,
    ask,
    copied,
    distinct_axes,
    fresh,
    known,
    number,
    one_axis,
    sizes,
)
from rowgrad._ops.catalogue import Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._runtime.dtypes import IDS, NUMBERS, PLAIN, Array
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.elementwise import TOO_LARGE, WRONG_TYPE, wide
from rowgrad.errors import InvalidArgumentError


def _squeeze(input: Array, *, axis: Any = ()) -> Array:
    return copied(input).reshape(ask(_squeezed, {"input": input}, axis=axis))


def _squeezed(shapes: Known, _: Known, attributes: Known) -> Result:
    before = shapes.get("input")
    if before is None:
        return {"output": None}
    wanted = attributes.get("axis") or ()
    if not wanted:
        if known(before) is None:
            return {"output": None}
        return {"output": tuple(size for size in before if size != 1)}
    axes = distinct_axes("axis", np.array(wanted), len(before))
    for axis in axes:
        if isinstance(before[axis], int) and before[axis] != 1:
            raise InvalidArgumentError(f"dimension {axis} of input has size {before[axis]}; it has to be 1.",
                                       code="shape-mismatch", argument="axis", value=axis)  # fmt: skip
    return {"output": tuple(size for d, size in enumerate(before) if d not in axes)}


def _tile(input: Array, multiples: Array) -> Array:
    shape = ask(_tiled, {"input": input, "multiples": multiples})
    result = fresh(shape, input.dtype, "multiples")
    if result.size:
        both = [size for pair in zip(multiples.tolist(), input.shape, strict=True) for size in pair]
        once = [size for pair in zip([1] * input.ndim, input.shape, strict=True) for size in pair]
        np.copyto(result.reshape(both), input.reshape(once))
    return result


def _tiled(shapes: Known, values: Known, _: Known) -> Result:
    before, times = shapes.get("input"), sizes("multiples", shapes, values)
    if before is None:
        return {"output": None if times is None else (None,) * len(times)}
    if times is None:
        return {"output": (None,) * len(before)}
    if len(times) != len(before):
        raise InvalidArgumentError(f"multiples has {len(times)} elements, and input has {len(before)} dimensions.",
                                   code="length-mismatch", argument="multiples", value=len(times))  # fmt: skip
    return {"output": tuple(size * n if isinstance(size, int) and isinstance(n, int) else None
                            for size, n in zip(before, times, strict=True))}  # fmt: skip


def _tile_gradient(op: Any, d_output: Any, input: Any, multiples: Any, Tmultiples: Any) -> Any:
    """The sum over the copies: of shape [times, size, times, size, …], all times are summed over."""
    both = [op.ExpandDims(multiples, 1), op.ExpandDims(op.Shape(input, out_type=Tmultiples), 1)]
    split = op.Reshape(op.Concat(both, 1), [-1])
    copies = op.Range(0, op.Size(split), 2)
    return op.Reshape(op.ReduceSum(op.Reshape(d_output, split), copies), op.Shape(input))


def _cumsum(x: Array, axis: Any, *, exclusive: bool = False, reverse: bool = False) -> Array:
    ask(_same_shape, {"x": x, "axis": axis})
    place = one_axis("axis", axis, x.ndim)
    result = fresh(x.shape, x.dtype)
    source = np.flip(x, place) if reverse else x
    with np.errstate(all="ignore"):
        total = np.cumsum(wide(source), axis=place, dtype=wide(source).dtype)
    if exclusive:
        total = np.roll(total, 1, place)
        total[(slice(None),) * place + (slice(0, 1),)] = 0
    with np.errstate(all="ignore"):
        result[...] = (np.flip(total, place) if reverse else total).astype(x.dtype)
    return result


def _same_shape(shapes: Known, values: Known, _: Known) -> Result:
    axis = number("axis", shapes, values)
    if axis is not None and shapes.get("x") is not None:
        one_axis("axis", axis, len(shapes["x"]))
    return {"out": shapes.get("x")}


# Declarations


def _declare(**fields: Any) -> None:
    declare(Operator(function=None, **{"cost": "O(elements).", **fields}))


_declare(
    name="Squeeze",
    family="shaping",
    summary="Remove dimensions of size 1.",
    inputs=(Pin("input", "T", "[...]", "Any array."),),
    outputs=(Pin("output", "T", "[...]", "The same elements in fewer dimensions."),),
    types={"T": PLAIN},
    formula="output's shape is that of input without the dimensions of size 1 in axis, or without all of them",
    errors=("InvalidArgumentError: a dimension in axis has another size than 1, or is named twice",
            "OutOfRangeError: there is no such dimension", WRONG_TYPE, TOO_LARGE),
    cost="O(elements): the result is a copy.",
    example=Example({"input": [[[1.0], [2.0]]]}, {"output": [[1.0], [2.0]]}, attributes={"axis": [0]}),
    compute=_squeeze,
    attributes=(Attribute("axis", [], "The dimensions to remove; empty for all of size 1.", "list"),),
    shape_rule=_squeezed,
    gradient={"input": lambda op, d_output, input: op.Reshape(d_output, op.Shape(input))},
)  # fmt: skip
_declare(
    name="Tile",
    family="shaping",
    summary="Copies of an array, side by side along each dimension.",
    inputs=(
        Pin("input", "T", "[...]", "Any array."),
        Pin("multiples", "Tmultiples", "[rank]", "How many copies along each dimension."),
    ),
    outputs=(Pin("output", "T", "[...]", "The copies."),),
    types={"T": PLAIN, "Tmultiples": IDS},
    formula="output[i, j, …] = input[i mod size 0, j mod size 1, …]",
    errors=("InvalidArgumentError: multiples is not a vector with a number of 0 or more for each dimension", WRONG_TYPE,
            TOO_LARGE),
    cost="O(elements of the result).",
    example=Example({"input": [1.0, 2.0], "multiples": [2]}, {"output": [1.0, 2.0, 1.0, 2.0]}),
    compute=_tile,
    shape_rule=_tiled,
    gradient={"input": _tile_gradient},
)  # fmt: skip
_declare(
    name="Cumsum",
    family="reductions",
    summary="Running sums along a dimension.",
    inputs=(
        Pin("x", "T", "[...]", "The numbers."),
        Pin("axis", "Tidx", "[]", "The dimension; negative ones count from the end."),
    ),
    outputs=(Pin("out", "T", "[...]", "The sums, in the shape of x."),),
    types={"T": NUMBERS, "Tidx": IDS},
    formula="out[i] = x[0] + x[1] + … + x[i]; exclusive: … + x[i − 1]; reverse: from the end",
    errors=("InvalidArgumentError: axis is not a scalar", "OutOfRangeError: there is no such dimension", WRONG_TYPE,
            TOO_LARGE),
    example=Example({"x": [1.0, 2.0, 3.0], "axis": 0}, {"out": [1.0, 3.0, 6.0]}),
    compute=_cumsum,
    attributes=(Attribute("exclusive", False, "Whether each sum leaves its own element out."),
                Attribute("reverse", False, "Whether sums begin at the end.")),
    shape_rule=_same_shape,
    gradient={"x": (lambda op, d_out, axis, exclusive, reverse:
                    op.Cumsum(d_out, axis, exclusive=exclusive, reverse=not reverse))},
    notes="half and bfloat16 are summed in float32, and each sum is rounded once; TensorFlow rounds after every "
    "addition.",
)  # fmt: skip
