"""Joining arrays and cutting them: Concat and Slice, Pad, and where each part of a concatenation begins.

These are each other's gradients: what Concat joins is sliced again, what Slice cut away is padded with zeros.
"""

from typing import Any

import numpy as np

from rowgrad._ops import checks
from rowgrad._ops.broadcasting import (
    Known,
    Result,
    ask,
    copied,
    fresh,
    known,
    listed,
    number,
    of_rank,
    one_axis,
    same_as_all,
    sizes,
)
from rowgrad._ops.catalogue import REQUIRED, Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._ops.shapes import Shape, Size, same_size
from rowgrad._runtime.dtypes import IDS, NUMBERS, PLAIN, Array
from rowgrad._runtime.memory import allocate
from rowgrad.blocks.operators.catalogue import DECLARED, declare
from rowgrad.blocks.operators.elementwise import TOO_LARGE, WRONG_TYPE
from rowgrad.errors import InvalidArgumentError, OutOfRangeError


def _concat(values: tuple[Array, ...], axis: Any) -> Array:
    shape = ask(_joined, {"values": values, "axis": axis})
    if any(array.dtype != values[0].dtype for array in values):  # texts of different widths
        return np.concatenate(values, axis=axis)
    result = fresh(shape, values[0].dtype, "values")
    np.concatenate(values, axis=axis, out=result)
    return result


def _joined(shapes: Known, values: Known, _: Any) -> Result:
    axis = number("axis", shapes, values)
    parts: list[Shape | None] = shapes.get("values") or [None]
    shape = next((part for part in parts if part is not None), None)
    if shape is None:
        return {"output": None}
    for i, part in enumerate(parts):
        if part is not None and (len(part) != len(shape) or not part):
            raise InvalidArgumentError(
                f"values[{i}] has shape {listed(part)}; all must have the same number of dimensions, and at least one. "
                "Reshape it, or use ExpandDims.",
                code="wrong-rank",
                argument="values",
                position=i,
                value=part,
            )
    if axis is None:
        return {"output": (None,) * len(shape)}
    place = one_axis("axis", axis, len(shape))
    # All but the axis must agree: with the axis set to 1 the shapes are the same.
    others = same_as_all("values", [part and (*part[:place], 1, *part[place + 1 :]) for part in parts])
    assert others is not None
    total: Size = 0
    for part in parts:
        size = None if part is None else part[place]
        total = total + size if isinstance(total, int) and isinstance(size, int) else None
    if len(parts) == 1:
        total = shape[place]
    return {"output": (*others[:place], total, *others[place + 1 :])}


def _concat_offset(axis: Any, shapes: tuple[Array, ...], *, position: int) -> Array:
    ask(_offset_shape, {"axis": axis, "shapes": shapes}, position=position)
    parts = [known(sizes("shapes", {}, {"shapes": shape})) or () for shape in shapes]
    _joined({"values": parts}, {"axis": axis}, {})
    place = one_axis("axis", axis, len(parts[0]))
    offset = sum(part[place] for part in parts[:position])
    if offset > np.iinfo(shapes[0].dtype).max:
        raise OutOfRangeError(
            f"part {position} begins at {offset}, outside the range of {shapes[0].dtype.name}. Use int64 shapes.",
            code="index-out-of-range",
            argument="shapes",
            position=position,
            value=offset,
        )
    result = np.zeros(len(parts[0]), shapes[0].dtype)
    result[place] = offset
    return result


def _offset_shape(shapes: Known, values: Known, attributes: Known) -> Result:
    axis, parts = number("axis", shapes, values), shapes.get("shapes")
    (length,) = of_rank("shapes", same_as_all("shapes", parts), 1)
    position = attributes.get("position")
    if parts is not None and position is not None and not 0 <= position < len(parts):
        raise OutOfRangeError(
            f"position is {position}; allowed: 0 to {len(parts) - 1} (there are {len(parts)} shapes). "
            "Name one of the parts.",
            code="index-out-of-range",
            argument="position",
            value=position,
        )
    if axis is not None and isinstance(length, int):
        one_axis("axis", axis, length)
    return {"offset": (length,)}


def _slice(input: Array, begin: Array, size: Array) -> Array:
    shape = ask(_sliced, {"input": input, "begin": begin, "size": size})
    window = tuple(slice(b, b + s) for b, s in zip(begin.tolist(), shape, strict=True))
    return copied(input[window])


def _sliced(shapes: Known, values: Known, _: Any) -> Result:
    before, begin, size = shapes.get("input"), sizes("begin", shapes, values), sizes("size", shapes, values, least=-1)
    for name, vector in (("begin", begin), ("size", size)):
        if before is not None and vector is not None:
            checks.same_length(name, len(vector), "the shape of input", len(before))
    if begin is not None and size is not None:
        checks.same_length("size", len(size), "begin", len(begin))
    rank = next((len(known) for known in (before, begin, size) if known is not None), None)
    if rank is None:
        return {"output": None}
    unknown: Shape = (None,) * rank
    dimensions = zip(before or unknown, begin or unknown, size or unknown, strict=True)
    return {"output": tuple(_sliced_size(d, *sizes) for d, sizes in enumerate(dimensions))}


def _sliced_size(d: int, before: Size, begin: Size, size: Size) -> Size:
    if not isinstance(before, int):
        return before if (size, begin) == (-1, 0) else None if size == -1 else size
    if isinstance(begin, int) and begin > before:
        raise _past_the_end("begin", d, begin, f"allowed: 0 to {before}", before)
    if size == -1:
        return before - begin if isinstance(begin, int) else None
    first = begin if isinstance(begin, int) else 0
    if isinstance(size, int) and first + size > before:
        raise _past_the_end("size", d, size, f"from {first}, allowed: −1 to {before - first}", before)
    return size


def _past_the_end(name: str, d: int, value: int, allowed: str, before: int) -> OutOfRangeError:
    return OutOfRangeError(
        f"{name}[{d}] is {value}; {allowed} (dimension {d} of input is {before}). Stay within the input.",
        code="index-out-of-range",
        argument=name,
        position=d,
        value=value,
    )


def _pad(input: Array, paddings: Array) -> Array:
    result = allocate(ask(_padded, {"input": input, "paddings": paddings}), input.dtype, argument="paddings", zero=True)
    middle = tuple(slice(first, first + n) for first, n in zip(paddings[:, 0].tolist(), input.shape, strict=True))
    result[middle] = input
    return result


def _padded(shapes: Known, values: Known, _: Any) -> Result:
    before = shapes.get("input")
    rows, columns = of_rank("paddings", shapes.get("paddings"), 2)
    if same_size(columns, 2) is False:
        checks.same_length("a row of paddings", int(columns or 0), "before and after", 2)
    if before is not None and isinstance(rows, int):
        checks.same_length("paddings", rows, "the shape of input", len(before))
    rank = len(before) if before is not None else rows
    if not isinstance(rank, int):
        return {"output": None}
    if "paddings" not in values:
        return {"output": (None,) * rank}
    result: list[Size] = []
    for d, pair in enumerate(np.asarray(values["paddings"]).tolist()):
        for side, count in enumerate(pair):
            if count < 0:
                raise InvalidArgumentError(
                    f"paddings[{d}, {side}] is {count}; it must be 0 or more. Use Slice to cut.",
                    code="negative-size",
                    argument="paddings",
                    position=(d, side),
                    value=count,
                )
        size = before[d] if before is not None else None
        result.append(size + sum(pair) if isinstance(size, int) else size if sum(pair) == 0 else None)
    return {"output": tuple(result)}


def _in_zeros(op: Any, d_output: Any, input: Any, output: Any, begin: Any, Index: Any) -> Any:
    """The gradient of a window, with zeros for what was cut off."""
    before = op.ExpandDims(begin, 1)
    cut = op.Sub(op.Shape(input, out_type=Index), op.Shape(output, out_type=Index))
    return op.Pad(d_output, op.Concat([before, op.ExpandDims(op.Sub(cut, begin), 1)], 1))


# Declarations

declare(Operator(
    name="Concat",
    raw_name="ConcatV2",
    function=None,
    family="joining",
    summary="Join arrays along one dimension.",
    inputs=(
        Pin("values", "T", "[...]", "The arrays, of equal shapes except along the axis.", many=True),
        Pin("axis", "Tidx", "[]", "The dimension along which they are joined; negative ones count from the end."),
    ),
    outputs=(Pin("output", "T", "[...]", "The concatenated array."),),
    types={"T": PLAIN, "Tidx": IDS},
    formula="output = values[0], values[1], … one after the other along axis",
    errors=(
        "InvalidArgumentError: axis is not a scalar, the arrays have no dimension, or their shapes differ off the axis",
        "OutOfRangeError: axis is not in [−rank, rank)",
        WRONG_TYPE,
        TOO_LARGE,
    ),
    cost="O(elements).",
    example=Example({"values": [[1.0, 2.0], [3.0]], "axis": 0}, {"output": [1.0, 2.0, 3.0]}),
    compute=_concat,
    shape_rule=_joined,
    gradient={
        "values": lambda op, d_output, axis, values, part, position: op.Slice(
            d_output, op.ConcatOffset(axis, [op.Shape(value) for value in values], position=position), op.Shape(part)
        )
    },
    notes="TensorFlow's ConcatV2 requires at least two arrays; here one is allowed. `raw_ops.Concat` takes "
    "concat_dim first, as TensorFlow's.",
))  # fmt: skip

declare(Operator(
    name="ConcatOffset",
    raw_name="ConcatOffsetPart",
    function=None,
    family="joining",
    summary="Where one part of a concatenation begins.",
    inputs=(
        Pin("axis", "Taxis", "[]", "The dimension along which the parts are joined; negative ones count from the end."),
        Pin("shapes", "shape_type", "[rank]", "The shapes of the parts.", many=True),
    ),
    outputs=(Pin("offset", "shape_type", "[rank]", "Where part `position` begins in each dimension."),),
    types={"Taxis": IDS, "shape_type": IDS},
    formula="offset[axis] = Σ over i < position of shapes[i][axis]; 0 elsewhere",
    errors=(
        "InvalidArgumentError: axis is not a scalar, a shape is negative or not a vector, or they differ off the axis",
        "OutOfRangeError: axis is not in [−rank, rank), or position is not in [0, parts)",
        "OutOfRangeError: the offset is too large for the type of the shapes",
        WRONG_TYPE,
    ),
    cost="O(parts · rank).",
    example=Example(
        {"axis": 1, "shapes": [[2, 3], [2, 5], [2, 1]]}, {"offset": [0, 8]}, attributes={"position": 2}
    ),
    compute=_concat_offset,
    attributes=(Attribute("position", REQUIRED, "Which of the parts, counted from 0.", kind="int"),),
    shape_rule=_offset_shape,
    notes="TensorFlow's operator returns the offsets of all parts, as `raw_ops.ConcatOffset` does; its axis is int32.",
))  # fmt: skip

declare(Operator(
    name="Slice",
    function=None,
    family="joining",
    summary="Cut a window out of an array.",
    inputs=(
        Pin("input", "T", "[...]", "Any array."),
        Pin("begin", "Index", "[rank]", "Where the window begins in each dimension."),
        Pin("size", "Index", "[rank]", "How large it is; −1 is up to the end."),
    ),
    outputs=(Pin("output", "T", "[...]", "The window."),),
    types={"T": PLAIN, "Index": IDS},
    formula="output[i, j, …] = input[begin[0] + i, begin[1] + j, …], for i < size[0], j < size[1], …",
    errors=(
        "InvalidArgumentError: begin or size is not a vector, or not as long as input has dimensions",
        "InvalidArgumentError: a begin below 0, or a size below −1",
        "OutOfRangeError: the window extends beyond the input",
        WRONG_TYPE,
        TOO_LARGE,
    ),
    cost="O(elements of the window).",
    example=Example({"input": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "begin": [0, 1], "size": [-1, 2]},
                    {"output": [[2.0, 3.0], [5.0, 6.0]]}),
    compute=_slice,
    shape_rule=_sliced,
    gradient={"input": _in_zeros},
))  # fmt: skip

declare(Operator(
    name="Pad",
    function=None,
    family="joining",
    summary="Put zeros around an array.",
    inputs=(
        Pin("input", "T", "[...]", "Any array."),
        Pin("paddings", "Tpaddings", "[rank, 2]", "How many zeros go before and after it, for each dimension."),
    ),
    outputs=(Pin("output", "T", "[...]", "The input within zeros."),),
    types={"T": (*NUMBERS, "bool"), "Tpaddings": IDS},
    formula="output[paddings[0, 0] + i, paddings[1, 0] + j, …] = input[i, j, …]; 0 elsewhere",
    errors=(
        "InvalidArgumentError: paddings is not a matrix with a row for each dimension of input and two columns",
        "InvalidArgumentError: a padding is negative",
        WRONG_TYPE,
        TOO_LARGE,
    ),
    cost="O(elements of the result).",
    example=Example({"input": [1.0, 2.0], "paddings": [[1, 2]]}, {"output": [0.0, 1.0, 2.0, 0.0, 0.0]}),
    compute=_pad,
    shape_rule=_padded,
    gradient={
        "input": lambda op, d_output, paddings, input, Tpaddings: op.Slice(
            d_output, op.Reshape(op.Slice(paddings, [0, 0], [-1, 1]), [-1]), op.Shape(input, out_type=Tpaddings)
        )
    },
))  # fmt: skip

# Under TensorFlow's names, with its arguments


def concat(concat_dim: Any, values: Any, *, name: Any = None) -> Any:
    """Join arrays along one dimension, as TensorFlow's Concat: the dimension comes first.

    Parameters
    ----------
    concat_dim : scalar
        The dimension along which they are joined; negative ones count from the end.
    values : list of arrays
        The arrays, of equal shapes but for that dimension.

    Examples
    --------
    >>> from rowgrad.blocks import raw_ops
    >>> raw_ops.Concat(0, [[1.0, 2.0], [3.0]]).tolist()
    [1.0, 2.0, 3.0]
    """
    return DECLARED["Concat"](values, concat_dim)


def concat_offset(concat_dim: Any, shape: Any, *, name: Any = None) -> list[Any]:
    """Where each part of a concatenation begins, as TensorFlow's ConcatOffset.

    Parameters
    ----------
    concat_dim : scalar
        The dimension along which the parts are joined; negative ones count from the end.
    shape : list of vectors
        The shapes of the parts.

    Returns
    -------
    list of arrays
        The offset of each part in every dimension.

    Examples
    --------
    >>> from rowgrad.blocks import raw_ops
    >>> [offset.tolist() for offset in raw_ops.ConcatOffset(1, [[2, 3], [2, 5], [2, 1]])]
    [[0, 0], [0, 3], [0, 8]]
    """
    operator = DECLARED["ConcatOffset"]
    return [operator(concat_dim, shape, position=position) for position in range(max(1, len(shape)))]
