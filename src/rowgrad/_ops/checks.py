"""The checks that several families share. Each raises the error with all it knows: argument, place, value, remedy."""

import operator
from contextlib import suppress
from typing import Any

from rowgrad._runtime.dtypes import Array
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfRangeError

RANK_NAMES = {0: "a scalar", 1: "a vector", 2: "a matrix"}


def rank(argument: str, array: Array, wanted: int) -> None:
    """`array` must have exactly `wanted` dimensions."""
    if array.ndim != wanted:
        raise InvalidArgumentError(
            f"{argument} has shape {list(array.shape)}; it must be {RANK_NAMES[wanted]} "
            f"({wanted} dimension{'s' * (wanted != 1)}). Reshape it.",
            code="wrong-rank",
            argument=argument,
            value=array.shape,
        )


def at_least_vector(argument: str, array: Array) -> None:
    """`array` must have rows."""
    if array.ndim == 0:
        raise InvalidArgumentError(
            f"{argument} is a scalar; it must have at least one dimension, its rows. Reshape it.",
            code="wrong-rank",
            argument=argument,
            value=(),
        )


def count(argument: str, value: Any, least: int | None = 0) -> int:
    """`value` must be a single whole number, and no smaller than `least`."""
    number = value if type(value) is int else _number(argument, value)
    if least is not None and number < least:
        raise InvalidArgumentError(
            f"{argument} is {number}; it must be {least} or more.",
            code="negative-size",
            argument=argument,
            value=number,
        )
    return number


def _number(argument: str, value: Any) -> int:
    if hasattr(value, "ndim"):
        rank(argument, value, 0)
        with suppress(TypeError):
            return operator.index(value)
    raise DTypeError(
        f"{argument} is {value!r}; it must be a whole number.",
        code="wrong-dtype",
        argument=argument,
        value=type(value).__name__,
    )


def same_length(argument: str, length: int, other: str, other_length: int) -> None:
    """`argument` must be as long as `other`."""
    if length != other_length:
        raise different_lengths(argument, length, other, other_length)


def different_lengths(argument: str, length: Any, other: str, other_length: Any) -> InvalidArgumentError:
    """The error for arrays that are not equally long."""
    return InvalidArgumentError(
        f"{argument} has length {length}, but {other} has {other_length}; they must be equally long.",
        code="length-mismatch",
        argument=argument,
        value=length,
    )


def same_width(argument: str, width: int, other: str, other_width: int) -> None:
    """The rows of `argument` must be as long as those of `other`."""
    if width != other_width:
        raise InvalidArgumentError(
            f"the rows of {argument} have {width} elements, but those of {other} have {other_width}; all indices must "
            "have the same rank.",
            code="length-mismatch",
            argument=argument,
            value=width,
        )


def not_negative(argument: str, sizes: Array, position: int) -> int:
    """The size at `position` must not be negative."""
    size = int(sizes[position])
    if size < 0:
        raise InvalidArgumentError(
            f"{argument}[{position}] is {size}; it must be 0 or more.",
            code="negative-size",
            argument=argument,
            position=position,
            value=size,
        )
    return size


def changed(argument: str) -> InvalidArgumentError:
    """The error for an element that was wrong when a kernel read it, and is right when it is looked at again."""
    return InvalidArgumentError(
        f"{argument} changed during the call: another thread writes to it. Pass a copy, or let the call end first.",
        code="changed-during-call",
        argument=argument,
    )


def out_of_range(
    argument: str, position: int | tuple[int, ...], value: int, limit: int, limit_name: str, code: str, remedy: str
) -> InvalidArgumentError:
    """The error for an element of `argument` that is not in [0, limit), or was not when a kernel read it."""
    if 0 <= value < limit:
        return changed(argument)
    place = ", ".join(map(str, position)) if isinstance(position, tuple) else str(position)
    allowed = f"allowed: 0 to {limit - 1}" if limit > 0 else "nothing is allowed"
    return OutOfRangeError(
        f"{argument}[{place}] is {value}; {allowed} ({limit_name} is {limit}). {remedy}",
        code=code,
        argument=argument,
        position=position,
        value=int(value),
    )
