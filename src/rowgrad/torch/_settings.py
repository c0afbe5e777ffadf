"""The settings that the layers share, checked."""

from typing import Any

from torch import Tensor

from rowgrad._ops import combiners
from rowgrad.errors import InvalidArgumentError


def size(argument: str, value: Any) -> int:
    """A number of rows or columns."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgumentError(
            f"{argument} is {value!r}; it must be a whole number, 0 or more.",
            code="negative-size",
            argument=argument,
            value=value,
        )
    return value


def one_combiner(combiner: str | None, mode: str | None) -> str:
    """What is chosen by either of the two names of the setting."""
    if combiner is not None and mode is not None and combiner != mode:
        raise InvalidArgumentError(
            f"combiner is {combiner!r} and mode {mode!r}; they are two names of one setting. Pass one.",
            code="bad-combiner",
            argument="mode",
            value=mode,
        )
    chosen = combiner or mode or "mean"
    combiners.check(chosen, combiners.WITH_MAX)
    return chosen


def padding(padding_idx: int | None, rows: int) -> int | None:
    """The row that only fills bags up, counted from the front."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise InvalidArgumentError(
            f"padding_idx is {padding_idx}; allowed: {-rows} to {rows - 1}, rows of the table.",
            code="index-out-of-range",
            argument="padding_idx",
            value=padding_idx,
        )
    return padding_idx % rows


def fitting(weight: Tensor, rows: int, columns: int) -> Tensor:
    """A table that is given must have the shape that is asked for."""
    if tuple(weight.shape) != (rows, columns):
        raise InvalidArgumentError(
            f"_weight has shape {list(weight.shape)}; it must be [{rows}, {columns}].",
            code="wrong-shape",
            argument="_weight",
            value=tuple(weight.shape),
        )
    return weight
