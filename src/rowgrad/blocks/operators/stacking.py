"""Arrays that lie side by side: Split, Unpack, Pack.

Split and Unpack give one part each, the one that `index` names: a block has a fixed number of outputs.
"""

from typing import Any

import numpy as np

from rowgrad._ops.broadcasting import (
    Known,
    Result,
    ask,
    copied,
    fresh,
    number,
    one_axis,
    same_as_all,
)
from rowgrad._ops.catalogue import REQUIRED, Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._ops.shapes import Shape
from rowgrad._runtime.dtypes import PLAIN, Array
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.elementwise import TOO_LARGE, WRONG_TYPE
from rowgrad.errors import InvalidArgumentError, OutOfRangeError


def _part(name: str, value: Array, axis: Any, count: int, index: int) -> tuple[int, int]:
    """The axis along which an array is cut, and the size of a part."""
    if count < 1:
        raise OutOfRangeError(f"{name} is {count}; it must be 1 or more.", code="out-of-range", argument=name,
                              value=count)  # fmt: skip
    if not 0 <= index < count:
        raise OutOfRangeError(f"index is {index}; allowed: 0 to {count - 1}.", code="index-out-of-range",
                              argument="index", value=index)  # fmt: skip
    place = one_axis("split_dim" if name == "num_split" else "axis", axis, value.ndim)
    if name == "num_split" and value.shape[place] % count:
        raise InvalidArgumentError(
            f"dimension {place} of value has size {value.shape[place]}, which {count} parts of equal size do not make.",
            code="shape-mismatch", argument="num_split", value=count,
        )  # fmt: skip
    if name == "num" and value.shape[place] != count:
        raise InvalidArgumentError(f"num is {count}, and dimension {place} of value has size {value.shape[place]}.",
                                   code="shape-mismatch", argument="num", value=count)  # fmt: skip
    return place, value.shape[place] // count


def _split(split_dim: Any, value: Array, *, num_split: int, index: int) -> Array:
    ask(_split_shape, {"split_dim": split_dim, "value": value}, num_split=num_split, index=index)
    place, size = _part("num_split", value, split_dim, num_split, index)
    return copied(np.take(value, np.arange(index * size, (index + 1) * size), axis=place))


def _split_shape(shapes: Known, values: Known, attributes: Known) -> Result:
    axis, before = number("split_dim", shapes, values), shapes.get("value")
    if before is None:
        return {"output": None}
    if axis is None:
        return {"output": (None,) * len(before)}
    place, count = one_axis("split_dim", axis, len(before)), attributes.get("num_split", 1)
    size = before[place]
    if isinstance(size, int):
        _part("num_split", np.broadcast_to(np.int8(0), [size if d == place else 1 for d in range(len(before))]), place,
              count, attributes.get("index", 0))  # fmt: skip
    part = size // count if isinstance(size, int) else None
    return {"output": (*before[:place], part, *before[place + 1 :])}


def _unpack(value: Array, *, num: int, axis: int = 0, index: int = 0) -> Array:
    place, _ = _part("num", value, axis, num, index)
    return copied(np.take(value, index, axis=place))


def _unpack_shape(shapes: Known, _: Known, attributes: Known) -> Result:
    before = shapes.get("value")
    if before is None:
        return {"output": None}
    place = one_axis("axis", attributes.get("axis", 0), len(before))
    if isinstance(before[place], int):
        shape = [before[place] if d == place else 1 for d in range(len(before))]
        _part("num", np.broadcast_to(np.int8(0), shape), place, attributes.get("num", 1), attributes.get("index", 0))
    return {"output": (*before[:place], *before[place + 1 :])}


def _pack(values: tuple[Array, ...], *, axis: int = 0) -> Array:
    shape = ask(_packed, {"values": values}, axis=axis)
    place = one_axis("axis", axis, len(shape))
    if any(array.dtype != values[0].dtype for array in values):  # texts of different widths
        return np.stack(values, axis=place)
    result = fresh(shape, values[0].dtype, "values")
    np.stack(values, axis=place, out=result)
    return result


def _packed(shapes: Known, _: Known, attributes: Known) -> Result:
    parts: list[Shape | None] = shapes.get("values") or []
    each = same_as_all("values", parts)
    if each is None:
        return {"output": None}
    place = one_axis("axis", attributes.get("axis", 0), len(each) + 1)
    return {"output": (*each[:place], len(parts), *each[place:])}


def _along(op: Any, axis: Any, whole: Any, offset: Any) -> Any:
    """A vector with `offset` at the place of `axis`, which may be counted from the end, and zeros elsewhere."""
    rank = op.Size(op.Shape(whole))
    ahead, behind = (op.OneHot(place, rank, offset, 0) for place in (axis, op.Add(axis, rank)))
    return op.Add(ahead, behind)


def _in_zeros(op: Any, part: Any, whole: Any, begin: Any) -> Any:
    """A part at its place in zeros of the shape of the whole."""
    rest = op.Sub(op.Sub(op.Shape(whole), op.Shape(part)), begin)
    return op.Pad(part, op.Concat([op.ExpandDims(begin, 1), op.ExpandDims(rest, 1)], 1))


def _split_gradient(op: Any, d_output: Any, split_dim: Any, value: Any, index: Any) -> Any:
    begin = op.Mul(_along(op, op.Cast(split_dim, DstT="int32"), value, 1), op.Shape(d_output))
    return _in_zeros(op, d_output, value, op.Mul(begin, index))


def _unpack_gradient(op: Any, d_output: Any, value: Any, axis: Any, index: Any) -> Any:
    return _in_zeros(op, op.ExpandDims(d_output, axis), value, _along(op, axis, value, index))


def _pack_gradient(op: Any, d_output: Any, part: Any, position: Any, axis: Any) -> Any:
    begin = _along(op, axis, d_output, position)
    return op.Reshape(op.Slice(d_output, begin, op.Shape(op.ExpandDims(part, axis))), op.Shape(part))


# Declarations


def _declare(**fields: Any) -> None:
    declare(Operator(function=None, **{"cost": "O(elements).", **fields}))


_INDEX = "Which part this block returns, counted from 0."
_declare(
    name="Split",
    raw_name="SplitPart",
    family="joining",
    summary="One of the parts of equal size that an array is cut into along a dimension.",
    inputs=(
        Pin("split_dim", "int32", "[]", "The dimension; negative ones count from the end."),
        Pin("value", "T", "[...]", "Any array."),
    ),
    outputs=(Pin("output", "T", "[...]", "The part."),),
    types={"T": PLAIN},
    formula="output = the elements index · size … (index + 1) · size − 1 along split_dim",
    errors=("InvalidArgumentError: the dimension cannot be cut into so many equal parts",
            "OutOfRangeError: there is no such dimension or part", WRONG_TYPE, TOO_LARGE),
    cost="O(elements of the part).",
    example=Example({"split_dim": 0, "value": [1.0, 2.0, 3.0, 4.0]}, {"output": [3.0, 4.0]},
                    attributes={"num_split": 2, "index": 1}),
    compute=_split,
    attributes=(Attribute("num_split", REQUIRED, "Into how many parts.", "int"),
                Attribute("index", REQUIRED, _INDEX, "int")),
    shape_rule=_split_shape,
    gradient={"value": _split_gradient},
    notes="TensorFlow's Split returns all parts.",
)  # fmt: skip
_declare(
    name="Unpack",
    raw_name="UnpackPart",
    family="joining",
    summary="One of the arrays that lie side by side along a dimension (tf.unstack).",
    inputs=(Pin("value", "T", "[...]", "Any array."),),
    outputs=(Pin("output", "T", "[...]", "The array at index, without the dimension."),),
    types={"T": PLAIN},
    formula="output[…] = value[…, index along axis, …]",
    errors=("InvalidArgumentError: num is not the size of the dimension",
            "OutOfRangeError: there is no such dimension or part", WRONG_TYPE, TOO_LARGE),
    cost="O(elements of the part).",
    example=Example({"value": [[1.0, 2.0], [3.0, 4.0]]}, {"output": [3.0, 4.0]}, attributes={"num": 2, "index": 1}),
    compute=_unpack,
    attributes=(Attribute("num", REQUIRED, "How many there are: the size of the dimension.", "int"),
                Attribute("axis", 0, "The dimension; negative ones count from the end.", "int"),
                Attribute("index", REQUIRED, _INDEX, "int")),
    shape_rule=_unpack_shape,
    gradient={"value": _unpack_gradient},
    notes="TensorFlow's Unpack returns all parts.",
)  # fmt: skip
_declare(
    name="Pack",
    family="joining",
    summary="Arrays of one shape side by side, along a new dimension (tf.stack).",
    inputs=(Pin("values", "T", "[...]", "The arrays.", many=True),),
    outputs=(Pin("output", "T", "[...]", "All of them."),),
    types={"T": PLAIN},
    formula="output[…, i along axis, …] = values[i][…]",
    errors=("InvalidArgumentError: the shapes differ", "OutOfRangeError: axis is not in [−rank − 1, rank]", WRONG_TYPE,
            TOO_LARGE),
    example=Example({"values": [[1.0, 2.0], [3.0, 4.0]]}, {"output": [[1.0, 3.0], [2.0, 4.0]]}, attributes={"axis": 1}),
    compute=_pack,
    attributes=(Attribute("axis", 0, "The position of the new dimension; negative ones count from the end.", "int"),),
    shape_rule=_packed,
    gradient={"values": _pack_gradient},
)  # fmt: skip
