"""The arithmetic of shapes that the dense families share: broadcasting, axes, lists of sizes, room for results.

It serves twice: shape rules use it while sizes may still be unknown (a name, or None; see `shapes`), and computes call
their own shape rule with everything known. So what is checked before a run and during it is the same code.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from rowgrad._ops import checks
from rowgrad._ops.shapes import Shape, Size, same_size
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.memory import allocate, check_room
from rowgrad.errors import InvalidArgumentError, OutOfRangeError

# What shape rules are given (shapes, values or attributes, by name), and what they give.
Known = Mapping[str, Any]
Result = dict[str, Shape | None]
ShapeRule = Callable[[Known, Known, Known], Result]

MOST_DIMENSIONS = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32  # NumPy's own limit


def ask(rule: ShapeRule, inputs: Mapping[str, Any], **attributes: Any) -> Any:
    """The shape of the (first) output, checked, by the shape rule of an operator whose inputs are all there."""
    shapes = {name: [x.shape for x in v] if isinstance(v, tuple) else np.shape(v) for name, v in inputs.items()}
    return next(iter(rule(shapes, inputs, attributes).values()))


def fresh(shape: tuple[int, ...], dtype: "np.dtype[Any]", argument: str | None = None) -> Array:
    """A new array for a result; an `OutOfMemoryError` blames `argument`. Text lives outside the pool of memory."""
    if dtype.kind not in "USOT":
        return allocate(shape, dtype, argument=argument)
    check_room(prod(shape) * dtype.itemsize, argument or "the result")
    return np.empty(shape, dtype)


def copied(view: Array, argument: str | None = None) -> Array:
    """A fresh, contiguous array with the values of `view`: results never share memory with what a caller holds."""
    result = fresh(view.shape, view.dtype, argument)
    np.copyto(result, view)
    return result


# Two shapes


def broadcast(names: tuple[str, str], left: Shape | None, right: Shape | None) -> Shape | None:
    """The shape that two shapes broadcast to."""
    if left is None or right is None:
        return None
    rank = max(len(left), len(right))
    pairs = zip((1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right, strict=True)
    result = []
    for one, other in pairs:
        if one != 1 != other and same_size(one, other) is False:
            raise InvalidArgumentError(
                f"{names[0]} has shape {listed(left)} and {names[1]} has {listed(right)}, which do not broadcast: "
                f"{one} and {other} differ, and neither is 1. Reshape one of them.",
                code="shape-mismatch",
                argument=names[1],
                value=right,
            )
        result.append(_broadcast_size(one, other))
    return tuple(result)


def _broadcast_size(one: Size, other: Size) -> Size:
    if one == 1 or same_size(one, other):
        return other
    if other == 1:
        return one
    # Against a number other than 1, whatever is unknown can only be that number, or 1.
    return one if isinstance(one, int) else other if isinstance(other, int) else None


def same(names: tuple[str, str], left: Shape | None, right: Shape | None) -> Shape | None:
    """What is known of a shape that two inputs must share."""
    if left is None or right is None:
        return right if left is None else left
    if len(left) != len(right) or any(same_size(a, b) is False for a, b in zip(left, right, strict=True)):
        raise InvalidArgumentError(
            f"{names[1]} has shape {listed(right)}, but {names[0]} has {listed(left)}; they must be equal. "
            "Reshape or slice one of them.",
            code="shape-mismatch",
            argument=names[1].partition("[")[0],
            value=right,
        )
    return tuple(merged(a, b) for a, b in zip(left, right, strict=True))


def merged(one: Size, other: Size) -> Size:
    """The better known of two sizes that are equal: a number, else a name."""
    if isinstance(one, int) or other is None:
        return one
    return other if isinstance(other, int) or one is None else one


def same_as_all(name: str, shapes: list[Shape | None] | None) -> Shape | None:
    """What is known of the shape that all the arrays of one pin share."""
    result: Shape | None = None
    for i, shape in enumerate(shapes or ()):
        result = same((f"{name}[0]", f"{name}[{i}]"), result, shape)
    return result


def known(shape: Shape | None) -> tuple[int, ...] | None:
    """The sizes, if all of them are known."""
    if shape is None:
        return None
    numbers = tuple(size for size in shape if isinstance(size, int))
    return numbers if len(numbers) == len(shape) else None


def listed(shape: Shape | None) -> str:
    """A shape as messages spell it: ``[batch, 3, ?]``."""
    return "unknown" if shape is None else f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


# Ranks, axes and sizes


def of_rank(name: str, shape: Shape | None, rank: int) -> Shape:
    """`shape`, which must have `rank` dimensions, with unknown sizes where nothing is known."""
    if shape is None:
        return (None,) * rank
    if len(shape) != rank:
        raise InvalidArgumentError(
            f"{name} has shape {listed(shape)}; it must be {checks.RANK_NAMES[rank]} "
            f"({rank} dimension{'s' * (rank != 1)}). Reshape it.",
            code="wrong-rank",
            argument=name,
            value=shape,
        )
    return shape


def one_axis(name: str, value: Any, rank: int, position: int | tuple[int, ...] | None = None) -> int:
    """The axis `value` of an array of `rank` dimensions, counted from the front."""
    axis = checks.count(name, value, least=None)
    if not -rank <= axis < rank:
        where = name if position is None else f"{name}[{position}]"
        allowed = f"allowed: {-rank} to {rank - 1}" if rank else "a scalar has none"
        raise OutOfRangeError(
            f"{where} is {axis}; {allowed}. Choose one of the {rank} dimension{'s' * (rank != 1)}.",
            code="axis-out-of-range",
            argument=name,
            position=position,
            value=axis,
        )
    return axis % rank


def distinct_axes(name: str, value: Any, rank: int) -> tuple[int, ...]:
    """The axes in `value`, a scalar or a vector, counted from the front; none may occur twice."""
    array = np.asarray(value)
    if array.ndim > 1:
        of_rank(name, array.shape, 1)
    positions = range(array.size) if array.ndim else (None,)
    axes: list[int] = []
    for position, axis in zip(positions, array.reshape(-1).tolist(), strict=True):
        axes.append(one_axis(name, axis, rank, position))
        if axes[-1] in axes[:-1]:
            raise InvalidArgumentError(
                f"{name}[{position}] is {axis}, the same dimension as {name}[{axes.index(axes[-1])}]. Name each once.",
                code="repeated-axis",
                argument=name,
                position=position,
                value=axis,
            )
    return tuple(axes)


def number(name: str, shapes: Known, values: Known) -> int | None:
    """The value of a scalar input, where it is known."""
    of_rank(name, shapes.get(name), 0)
    return checks.count(name, np.asarray(values[name]), least=None) if name in values else None


def sizes(name: str, shapes: Known, values: Known, least: int = 0) -> Shape | None:
    """The sizes that the vector `name` holds, as far as they are known; None if not even their number is.

    The values of a vector may be known in part: then it is given as a tuple with names or None among the numbers.
    """
    (length,) = of_rank(name, shapes.get(name), 1)
    if name not in values:
        if not isinstance(length, int):
            return None
        _at_most_dimensions(name, length)
        return (None,) * length
    value = values[name]
    if isinstance(value, np.ndarray):
        of_rank(name, value.shape, 1)
        value = value.tolist()
    _at_most_dimensions(name, len(value))
    for position, size in enumerate(value):
        if isinstance(size, int) and size < least:
            raise InvalidArgumentError(
                f"{name}[{position}] is {size}; it must be {least} or more.",
                code="negative-size",
                argument=name,
                position=position,
                value=size,
            )
    return tuple(value)


def _at_most_dimensions(name: str, count: int) -> None:
    if count > MOST_DIMENSIONS:
        raise InvalidArgumentError(
            f"{name} has {count} elements, one for each dimension; at most {MOST_DIMENSIONS} are supported.",
            code="wrong-rank",
            argument=name,
            value=count,
        )


def first_true(mask: Array) -> int | tuple[int, ...] | None:
    """Where a mask that is true somewhere first is so, as errors tell positions: a scalar has none."""
    place = tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))
    return place if len(place) > 1 else place[0] if place else None


def at(name: str, position: int | tuple[int, ...] | None) -> str:
    """An element of an argument as messages spell it: ``indices[2, 0]``."""
    if position is None:
        return name
    return f"{name}[{', '.join(map(str, position)) if isinstance(position, tuple) else position}]"
