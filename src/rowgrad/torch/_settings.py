"""The settings that the layers share, checked."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rowgrad._ops import combiners
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfMemoryError
from rowgrad.optim import Optimizer

WHOLE = (int, np.integer)  # the types of whole numbers; Python's booleans are of the first
MOST = 2**63 - 1


def size(argument: str, value: Any) -> int:
    """A number of rows or columns."""
    if isinstance(value, bool) or not isinstance(value, WHOLE) or not 0 <= value <= MOST:
        is_large = isinstance(value, WHOLE) and value > MOST
        raise InvalidArgumentError(
            f"{argument} is {value!r}; it must be a whole number, "
            + ("and at most 2**63 - 1." if is_large else "0 or more."),
            code="too-large" if is_large else "negative-size",
            argument=argument,
            value=value,
        )
    return int(value)


def one_combiner(combiner: str | None, mode: str | None) -> str:
    """What is chosen by either of the two names of the setting."""
    if combiner is not None and mode is not None and combiner != mode:
        raise InvalidArgumentError(
            f"combiner is {combiner!r} and mode {mode!r}; they are two names of one setting. Pass one.",
            code="bad-combiner",
            argument="mode",
            value=mode,
        )
    chosen = next(each for each in (combiner, mode, "mean") if each is not None)
    combiners.check(chosen, combiners.WITH_MAX)
    return chosen


def padding(padding_idx: int | None, rows: int) -> int | None:
    """The row that only fills bags up, counted from the front."""
    if padding_idx is None:
        return None
    if isinstance(padding_idx, bool) or not isinstance(padding_idx, WHOLE) or not -rows <= padding_idx < rows:
        raise InvalidArgumentError(
            f"padding_idx is {padding_idx!r}; allowed: {-rows} to {rows - 1}, rows of the table.",
            code="index-out-of-range",
            argument="padding_idx",
            value=padding_idx,
        )
    return int(padding_idx) % rows


def fitting(weight: Tensor, rows: int, columns: int) -> Tensor:
    """A table that is given must have the shape that is asked for."""
    if not isinstance(weight, Tensor):
        raise _no_tensor("_weight", weight)
    if tuple(weight.shape) != (rows, columns):
        raise InvalidArgumentError(
            f"_weight has shape {list(weight.shape)}; it must be [{rows}, {columns}].",
            code="wrong-shape",
            argument="_weight",
            value=tuple(weight.shape),
        )
    return weight


def readable(argument: str, table: Any) -> Tensor:
    """A whole table that rows are taken from: dense, with values."""
    if not isinstance(table, Tensor):
        raise _no_tensor(argument, table)
    if table.layout is not torch.strided or table.device.type == "meta" or not table.is_floating_point():
        raise InvalidArgumentError(
            f"{argument} is a tensor of {table.dtype} on {table.device} with the layout {table.layout}; it must be a "
            "dense one of floating-point numbers, on a device that has values.",
            code="wrong-layout",
            argument=argument,
            value=str(table.layout),
        )
    return table


def whole(argument: str, value: Any) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, WHOLE):
        raise InvalidArgumentError(
            f"{argument} is {value!r}; it must be a whole number.",
            code="wrong-argument",
            argument=argument,
            value=str(value),
        )
    return int(value)


def check_optimizer(given: Any) -> None:
    """A fused optimizer is one of rowgrad's."""
    if not (given is None or isinstance(given, Optimizer)):
        raise DTypeError(
            f"fused_optimizer is a {type(given).__name__}; pass one of rowgrad.optim, such as optim.Adagrad(lr=0.1).",
            code="wrong-dtype",
            argument="fused_optimizer",
            value=type(given).__name__,
        )


def check_memory(nbytes: int, free: int) -> None:
    """What a rank holds of tables must fit into its memory."""
    if nbytes > free:
        raise OutOfMemoryError(
            f"this rank would hold {nbytes:,} bytes of tables, and about {free:,} are free. Use more ranks, a smaller "
            "type, or tables on disk (rowgrad.Table).",
            code="out-of-memory",
            argument="num_embeddings",
            value=nbytes,
        )


def _no_tensor(argument: str, value: Any) -> DTypeError:
    return DTypeError(
        f"{argument} is a {type(value).__name__}; it must be a tensor. torch.from_numpy makes one of an array.",
        code="wrong-dtype",
        argument=argument,
        value=type(value).__name__,
    )
