"""What optimizers take: tables, their state and gradients, checked before anything is written."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from rowgrad._ops import checks
from rowgrad._ops.pins import fit_out
from rowgrad._runtime import arrays, dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfRangeError, RowgradError

# The shapes of what an optimizer remembers: like the table, two rows or one number for each row, the number of steps.
LIKE_TABLE, PER_ROW, STEPS = "like the table", "one for each row", "the number of steps"
TWO_ROWS = "two rows for each row"

State = dict[str, Any]
Layout = dict[str, str]


class Target(NamedTuple):
    """A table to change: its memory as an ndarray, and as the caller holds it."""

    array: Array
    value: Any
    kind: arrays.Kind

    @property
    def width(self) -> int:
        """How many elements a row has."""
        return self.array.size // self.array.shape[0] if self.array.shape[0] else 0

    def wanted(self, shape: str) -> tuple[tuple[int, ...], "np.dtype[Any]"]:
        """The shape and type of a state array: state has the type that is computed in."""
        if shape == STEPS:
            return (), np.dtype(np.int64)
        sums = dtypes.summing(self.array.dtype).sums
        if shape == TWO_ROWS:
            return (self.array.shape[0], 2, *self.array.shape[1:]), sums
        return self.array.shape[: 1 if shape == PER_ROW else None], sums


def shared(value: Any, argument: str) -> tuple[Array, arrays.Kind]:
    """The ndarray that shares memory with `value`, which will be written to, and what kind of array it is."""
    kind = arrays.kind_of(value)
    if kind is arrays.TORCH:
        value = value.detach()  # a parameter may be changed by its optimizer
    try:
        array = fit_out(value)
    except RowgradError as error:
        error.argument = argument
        error.message = error.message.replace("out", argument, 1)
        raise
    assert kind is not None  # `fit_out` takes no lists
    if kind is arrays.TORCH and array.size and array.ctypes.data != value.data_ptr():
        raise InvalidArgumentError(
            f"{argument} is not contiguous, or a negated view; results are written row after row. Pass a new tensor.",
            code="bad-out",
            argument=argument,
        )
    return array, kind


def fit_table(table: Any) -> Target:
    """The table that will be changed."""
    array, kind = shared(table, "table")
    checks.at_least_vector("table", array)
    if dtypes.name_of(array.dtype) not in dtypes.FLOATS:
        raise DTypeError(
            f"the table is {dtypes.name_of(array.dtype)}; allowed: {', '.join(dtypes.FLOATS)}. Convert it first.",
            code="wrong-dtype",
            argument="table",
            value=dtypes.name_of(array.dtype),
        )
    if not array.dtype.isnative:
        raise DTypeError(
            "the table is in the byte order of another machine. Pass table.astype(table.dtype.newbyteorder('='))",
            code="wrong-dtype",
            argument="table",
            value=array.dtype.str,
        )
    return Target(array, table, kind)


def fit_state(owner: str, layout: Layout, state: Any, target: Target) -> dict[str, Array]:
    """The state that `owner` keeps for the table, as ndarrays that share memory with it."""
    if state is None and not layout:
        return {}
    kept = " and ".join(f"'{name}'" for name in layout) or "nothing"
    remedy = "Pass state=optimizer.init(table), and the same state with each later step."
    if state is None:
        raise InvalidArgumentError(
            f"{owner} needs the state {kept}, but state is None. {remedy}", code="missing-state", argument="state"
        )
    if not isinstance(state, Mapping):
        raise DTypeError(
            f"state is a {type(state).__name__}; it must be a dict. {remedy}",
            code="wrong-dtype",
            argument="state",
            value=type(state).__name__,
        )
    if set(state) != set(layout):
        raise InvalidArgumentError(
            f"state has {sorted(map(str, state))}, but {owner} needs {kept}: it is of another optimizer, or of other "
            f"settings. {remedy}",
            code="wrong-state",
            argument="state",
            value=sorted(map(str, state)),
        )
    found = {name: _fit_part(name, state[name], shape, target) for name, shape in layout.items()}
    steps = found.get("step")
    if steps is not None and not 0 <= steps < np.iinfo(np.int64).max:
        raise OutOfRangeError(
            f"state['step'] is {steps}; it must be 0 or more. {remedy}",
            code="wrong-state",
            argument="state",
            value=int(steps),
        )
    return found


def _fit_part(name: str, value: Any, shape: str, target: Target) -> Array:
    array, kind = shared(value, f"state['{name}']")
    wanted, dtype = target.wanted(shape)
    if kind is not target.kind:
        raise DTypeError(
            f"state['{name}'] is an array of {kind.name}, and the table one of {target.kind.name}; they must be of the "
            "same kind. Convert it.",
            code="wrong-kind",
            argument=f"state['{name}']",
            value=kind.name,
        )
    if array.dtype != dtype or array.shape != wanted:
        raise (DTypeError if array.dtype != dtype else InvalidArgumentError)(
            f"state['{name}'] has shape {list(array.shape)} and type {dtypes.name_of(array.dtype)}; for this table it "
            f"must have shape {list(wanted)} and type {dtype.name}. Make it with optimizer.init(table).",
            code="wrong-state",
            argument=f"state['{name}']",
            value=array.shape,
        )
    return array


def check_gradient(target: Target, grad: Array) -> None:
    """The gradient must be of the table's type and width."""
    table = target.array
    if table.dtype != grad.dtype:
        raise DTypeError(
            f"the table is {dtypes.name_of(table.dtype)} and the gradient {dtypes.name_of(grad.dtype)}; they must be "
            "of the same type. Convert the gradient.",
            code="wrong-dtype",
            argument="grad",
            value=dtypes.name_of(grad.dtype),
        )
    if table.shape[1:] != grad.shape[1:]:
        raise InvalidArgumentError(
            f"a row of the table has shape {list(table.shape[1:])}, a row of the gradient {list(grad.shape[1:])}; they "
            "must be the same.",
            code="wrong-shape",
            argument="grad",
            value=grad.shape,
        )


def check_apart(target: Target, state: dict[str, Array], inputs: dict[str, Array]) -> None:
    """What is written must not share memory with anything else."""
    if not state and not any(np.may_share_memory(target.array, read) for read in inputs.values()):
        return
    written = {"the table": target.array, **{f"state['{name}']": array for name, array in state.items()}}
    pairs = [*combinations(written.items(), 2), *((one, other) for one in written.items() for other in inputs.items())]
    for (name, array), (other, read) in pairs:
        if np.may_share_memory(array, read):
            raise InvalidArgumentError(
                f"{name} shares memory with {other}, which would change while it is read. Pass a copy.",
                code="bad-out",
                argument="table" if name == "the table" else name,
            )


def bad_row(rows: Array, position: int, limit: int) -> RowgradError:
    """The error for a compact gradient whose rows do not ascend or do not fit."""
    row = int(rows[position])
    if 0 <= row < limit and (position == 0 or row > int(rows[position - 1])):
        return checks.changed("sorted_unique_indices")
    if 0 <= row < limit:
        return InvalidArgumentError(
            f"sorted_unique_indices[{position}] is {row}, not larger than {int(rows[position - 1])} before it; rows "
            "must ascend. Pass the result of a compact gradient.",
            code="unsorted-rows",
            argument="sorted_unique_indices",
            position=position,
            value=row,
        )
    return checks.out_of_range("sorted_unique_indices", position, row, limit, "the number of rows of the table",
                               "index-out-of-range", "Pass the gradient of this table.")  # fmt: skip
