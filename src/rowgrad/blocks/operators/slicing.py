"""Windows with steps: StridedSlice, with all of TensorFlow's masks, and its gradient."""

from typing import Any

import numpy as np

from rowgrad._ops.broadcasting import (
    Known,
    Result,
    ask,
    copied,
    fresh,
    known,
    listed,
    of_rank,
    sizes,
)
from rowgrad._ops.catalogue import Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._runtime.dtypes import IDS, NUMBERS, PLAIN, Array
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.elementwise import TOO_LARGE, WRONG_TYPE
from rowgrad.errors import InvalidArgumentError, OutOfRangeError

MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
Key = tuple[Any, ...]


def _key(rank: int, begin: list[int], end: list[int], strides: list[int], masks: Known) -> Key:
    """The masks of TensorFlow as what NumPy takes in square brackets."""
    key: list[Any] = []
    bits = {name: int(masks.get(name, 0)) for name in MASKS}
    if bin(bits["ellipsis_mask"]).count("1") > 1:
        raise _wrong("ellipsis_mask", bits["ellipsis_mask"], "only one position may be an ellipsis")
    for i in range(len(begin)):
        if bits["ellipsis_mask"] >> i & 1:
            key.append(Ellipsis)
        elif bits["new_axis_mask"] >> i & 1:
            key.append(None)
        elif bits["shrink_axis_mask"] >> i & 1:
            key.append(begin[i])
        else:
            if strides[i] == 0:
                raise _wrong("strides", 0, f"strides[{i}] is 0; it must be another number")
            first = None if bits["begin_mask"] >> i & 1 else begin[i]
            last = None if bits["end_mask"] >> i & 1 else end[i]
            key.append(slice(first, last, strides[i]))
    used = sum(item is not None and item is not Ellipsis for item in key)
    if used > rank:
        raise _wrong("begin", len(begin), f"there are {used} places for the {rank} dimensions of input")
    return tuple(key)


def _wrong(argument: str, value: Any, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{why}.", code="wrong-slice", argument=argument, value=value)


def _checked_key(shape: tuple[int, ...], begin: Any, end: Any, strides: Any, masks: Known) -> Key:
    first, last, steps = (np.asarray(limit).reshape(-1).tolist() for limit in (begin, end, strides))
    key = _key(len(shape), first, last, steps, masks)
    # What comes behind the ellipsis is counted from the last dimension.
    places = [item for item in key if item is not None]
    tail = len(places) - 1 - places.index(Ellipsis) if Ellipsis in places else 0
    axis = 0
    for item in places:
        if item is Ellipsis:
            axis = len(shape) - tail
            continue
        if isinstance(item, int) and not -shape[axis] <= item < shape[axis]:
            raise OutOfRangeError(f"begin has {item} for dimension {axis}, which has size {shape[axis]}.",
                                  code="index-out-of-range", argument="begin", value=item)  # fmt: skip
        axis += 1
    return key


def _strided_slice(input: Array, begin: Array, end: Array, strides: Array, **masks: int) -> Array:
    _same_lengths({"begin": begin.shape, "end": end.shape, "strides": strides.shape})
    return copied(np.asarray(input[_checked_key(input.shape, begin, end, strides, masks)]))


def _same_lengths(shapes: Known) -> None:
    lengths = {name: of_rank(name, shapes.get(name), 1)[0] for name in ("begin", "end", "strides")}
    whole = {name: size for name, size in lengths.items() if isinstance(size, int)}
    for name, size in whole.items():
        first = next(iter(whole))
        if size != whole[first]:
            raise InvalidArgumentError(f"{name} has {size} elements, and {first} {whole[first]}; they must be equal.",
                                       code="length-mismatch", argument=name, value=size)  # fmt: skip


def _sliced(shapes: Known, values: Known, attributes: Known) -> Result:
    _same_lengths(shapes)
    before = known(shapes.get("input"))
    if before is None or any(name not in values for name in ("begin", "end", "strides")):
        return {"output": None}
    begin, end, strides = (values[name] for name in ("begin", "end", "strides"))
    if any(not isinstance(value, np.ndarray) for value in (begin, end, strides)):
        return {"output": None}
    key = _checked_key(before, begin, end, strides, attributes)
    return {"output": np.empty(before, np.int8)[key].shape if np.prod(before) < 2**20 else _shape_of(before, key)}


def _shape_of(before: tuple[int, ...], key: Key) -> tuple[int, ...]:
    """The shape of a window on an array that is too large to be made: of one without memory of its own."""
    return np.broadcast_to(np.int8(0), before)[key].shape


def _strided_slice_grad(shape: Array, begin: Array, end: Array, strides: Array, dy: Array, **masks: int) -> Array:
    whole = ask(_grad_shape, {"shape": shape})
    _same_lengths({"begin": begin.shape, "end": end.shape, "strides": strides.shape})
    result = fresh(whole, dy.dtype, "shape")
    result[...] = 0
    key = _checked_key(whole, begin, end, strides, masks)
    window = result[key]
    if window.shape != dy.shape:
        raise InvalidArgumentError(f"dy has shape {listed(dy.shape)}, and the slice has {listed(window.shape)}.",
                                   code="shape-mismatch", argument="dy", value=dy.shape)  # fmt: skip
    result[key] = dy
    return result


def _grad_shape(shapes: Known, values: Known, _: Any) -> Result:
    return {"output": sizes("shape", shapes, values)}


# Declarations


def _declare(**fields: Any) -> None:
    declare(Operator(function=None, **{"cost": "O(elements).", **fields}))


_MASK_DOCS = {
    "begin_mask": "Bits: where one is set, the slice begins at the first element.",
    "end_mask": "Bits: where one is set, the slice ends at the last element.",
    "ellipsis_mask": "A bit: that position is an ellipsis, for all remaining dimensions.",
    "new_axis_mask": "Bits: where one is set, a dimension of size 1 is inserted.",
    "shrink_axis_mask": "Bits: where one is set, the element at begin is taken, and the dimension is removed.",
}
_MASKS = tuple(Attribute(name, 0, doc, "int") for name, doc in _MASK_DOCS.items())
_LIMITS = (
    Pin("begin", "Index", "[n]", "Where the slice begins in each dimension; negative ones count from the end."),
    Pin("end", "Index", "[n]", "Where it ends, not included."),
    Pin("strides", "Index", "[n]", "The steps from one element to the next; negative ones go backwards."),
)
_WRONG_SLICE = (
    "InvalidArgumentError: begin, end and strides are not vectors of one length, or longer than the shape",
    "InvalidArgumentError: a stride is 0",
    "OutOfRangeError: an element that is to be taken is not there",
)
_declare(
    name="StridedSlice",
    family="joining",
    summary="A window with steps, as Python's input[begin:end:strides, …].",
    inputs=(Pin("input", "T", "[...]", "Any array."), *_LIMITS),
    outputs=(Pin("output", "T", "[...]", "The elements of the window."),),
    types={"T": PLAIN, "Index": IDS},
    formula="output = input[begin[0]:end[0]:strides[0], begin[1]:end[1]:strides[1], …]",
    errors=(*_WRONG_SLICE, WRONG_TYPE, TOO_LARGE),
    cost="O(elements of the result).",
    example=Example({"input": [1.0, 2.0, 3.0, 4.0], "begin": [3], "end": [0], "strides": [-2]}, {"output": [4.0, 2.0]}),
    compute=_strided_slice,
    attributes=_MASKS,
    shape_rule=_sliced,
    gradient={
        "input": lambda op, d_output, input, begin, end, strides, Index, begin_mask, end_mask, ellipsis_mask,
        new_axis_mask, shrink_axis_mask: op.StridedSliceGrad(
            op.Shape(input, out_type=Index), begin, end, strides, d_output, begin_mask=begin_mask, end_mask=end_mask,
            ellipsis_mask=ellipsis_mask, new_axis_mask=new_axis_mask, shrink_axis_mask=shrink_axis_mask,
        )
    },
)  # fmt: skip
_declare(
    name="StridedSliceGrad",
    family="joining",
    summary="The gradient of StridedSlice: what flows back at its places, and zeros elsewhere.",
    inputs=(
        Pin("shape", "Index", "[rank]", "The shape of what was sliced."),
        *_LIMITS,
        Pin("dy", "T", "[...]", "What flows into the slice."),
    ),
    outputs=(Pin("output", "T", "[...]", "The gradient of what was sliced."),),
    types={"T": (*NUMBERS, "bool"), "Index": IDS},
    formula="output[begin[0]:end[0]:strides[0], …] = dy, and 0 elsewhere",
    errors=(*_WRONG_SLICE, "InvalidArgumentError: dy has another shape than the slice", WRONG_TYPE, TOO_LARGE),
    cost="O(elements of the result).",
    example=Example({"shape": [4], "begin": [3], "end": [0], "strides": [-2], "dy": [5.0, 7.0]},
                    {"output": [0.0, 7.0, 0.0, 5.0]}),
    compute=_strided_slice_grad,
    attributes=_MASKS,
    shape_rule=_grad_shape,
    gradient={
        "dy": lambda op, d_output, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask,
        shrink_axis_mask: op.StridedSlice(
            d_output, begin, end, strides, begin_mask=begin_mask, end_mask=end_mask, ellipsis_mask=ellipsis_mask,
            new_axis_mask=new_axis_mask, shrink_axis_mask=shrink_axis_mask,
        )
    },
)  # fmt: skip
