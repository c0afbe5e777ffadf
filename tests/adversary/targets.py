"""What the adversary attacks: every operator of the catalogue and every optimizer.

Arguments are made from the catalogue: an operator's worked example is enlarged, by repeating each element along a named
dimension (``[N]``, ``[S, …]``). Repeats keep ids in range and in order, so a new operator is attacked without a line
written for it. Where a dimension has to stay as it is (the rows of a matrix that is multiplied), only those of the ids
are enlarged.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from rowgrad import optim
from rowgrad._ops import Operator
from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.pins import Input
from rowgrad._ops.results import RowGradient
from rowgrad._runtime import dtypes
from rowgrad.blocks.operators import OPERATORS
from rowgrad.errors import InvalidArgumentError

Array = np.ndarray[Any, Any]

# A small call, one that sorts, and one that several threads share.
REPEATS = (1, 40, 8000)
NAMED = re.compile(r"\[([A-Z])[\],]")


@dataclass(frozen=True)
class Target:
    """A call: `run` takes the arguments by name. `ids` are those that kernels use as addresses."""

    name: str
    args: Mapping[str, Any]
    ids: tuple[str, ...]
    run: Callable[..., Any]
    takes_out: bool = False

    def fresh(self) -> dict[str, Any]:
        """The arguments, each array in memory of its own."""
        return {name: np.array(value) if isinstance(value, np.ndarray) else value for name, value in self.args.items()}

    def results(self, args: Mapping[str, Any] | None = None, **options: Any) -> list[Array]:
        """All that the call gives, as arrays."""
        found = self.run(**(self.fresh() if args is None else args), **options)
        return [np.asarray(part) for part in found] if isinstance(found, tuple) else [np.asarray(found)]


def targets(pattern: str = "", id_dtype: Any = np.int64) -> list[Target]:
    """All calls whose name contains `pattern`."""
    found = [
        of_operator(operator, repeats, id_dtype)
        for operator in OPERATORS.values()
        if operator.role == "operator"
        for repeats in (REPEATS if operator.function else REPEATS[:2])
    ]
    found += [_of_optimizer(name, pooled, repeats) for name in OPTIMIZERS for pooled in (False, True)
              for repeats in REPEATS]  # fmt: skip
    return [target for target in found if pattern.casefold() in target.name.casefold()]


def of_operator(operator: Operator, repeats: int, id_dtype: Any = np.int64) -> Target:
    """The worked example, each element so many times."""
    arrays = {fitter.pin.name: _example(operator, fitter, np.dtype(id_dtype)) for fitter in operator.fitters}
    ids = tuple(
        fitter.pin.name
        for fitter in operator.fitters
        if fitter.is_ids and not fitter.pin.many and np.ndim(arrays[fitter.pin.name])
    )
    attributes = check_attributes(operator, dict(operator.example.attributes))

    def run(out: Any = None, **given: Any) -> Any:
        options = attributes if out is None else attributes | {"out": out}
        return operator(*(given[pin.name] for pin in operator.inputs), **options)

    letters = {pin.name: found[1] for pin in operator.inputs if (found := NAMED.match(pin.shape)) and not pin.many}
    for grown in (set(letters.values()), {letters[name] for name in ids if name in letters}):
        args = {
            name: np.repeat(array, repeats, axis=0) if letters.get(name) in grown else array
            for name, array in arrays.items()
        }
        target = Target(f"{operator.name} x{repeats}", args, ids, run, "out" in operator.options)
        with suppress(InvalidArgumentError):
            target.results()
            return target
    raise AssertionError(f"the example of {operator.name} cannot be enlarged {repeats} times")


def _example(operator: Operator, fitter: Input, id_dtype: "np.dtype[Any]") -> Any:
    fitted = fitter.fit(operator.example.inputs[fitter.pin.name])
    if fitter.pin.many:
        return list(fitted)
    if type(fitted) is int:  # a count has no type, so that ids of any type go with it
        return fitted
    takes = fitter.is_ids and not fitter.is_count and dtypes.name_of(id_dtype) in fitter.names
    return np.array(fitted, id_dtype if takes else None)


OPTIMIZERS = [name for name in optim.__all__ if isinstance(getattr(optim, name), type)
              and issubclass(getattr(optim, name), optim.Optimizer) and name != "Optimizer"]  # fmt: skip


def _of_optimizer(name: str, pooled: bool, repeats: int) -> Target:
    """A step on a new table, by a compact gradient, or by the gradient of pooled rows."""
    optimizer = getattr(optim, name)(lr=0.1)
    rows = 7 * repeats
    grad = np.ones((rows, 3), np.float32)

    def step(indices: Array) -> Array:
        table = np.ones((rows, 3), np.float32)
        optimizer.step(table, RowGradient(grad, indices), optimizer.init(table))
        return table

    def step_pooled(indices: Array, segment_ids: Array) -> Array:
        table = np.ones((rows, 3), np.float32)
        optimizer.step_pooled(table, grad, indices, segment_ids, optimizer.init(table), combiner="mean")
        return table

    if not pooled:
        return Target(f"{name}.step x{repeats}", {"indices": np.arange(rows)}, ("indices",), step)
    ids = {"indices": np.arange(rows) // 2, "segment_ids": np.arange(rows) // 3}
    return Target(f"{name}.step_pooled x{repeats}", ids, tuple(ids), step_pooled)
