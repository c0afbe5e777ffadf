"""The catalogue: each operator declared once, and what is derived from a declaration when it is called.

Families (`sparse_segment.py`, …) declare their operators with `declare`; `load` brings all of them together. Functions,
`raw_ops`, reference pages and the command line read the declarations and keep no list of their own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rowgrad import arrays
from rowgrad.errors import RowgradError
from rowgrad.ops.pins import Input, Pin, fit_out


@dataclass(frozen=True)
class Attribute:
    """A setting of an operator that is no array."""

    name: str
    default: Any
    doc: str


@dataclass(frozen=True)
class Example:
    """A worked example: plain lists, with the results as users would write them down."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    note: str = ""


@dataclass(frozen=True, eq=False)
class Operator:
    """One operator.

    `compute` takes ndarrays (lone whole numbers as ints), checks them, and gives ndarrays. `gradient` has one rule per
    differentiable input, written as a call of other operators (see `gradients`). `options` are keyword arguments that
    change how the result is made, not what it is: ``out`` and ``plan``.
    """

    name: str
    function: str
    family: str
    summary: str
    inputs: tuple[Pin, ...]
    outputs: tuple[Pin, ...]
    types: Mapping[str, tuple[str, ...]]
    formula: str
    errors: tuple[str, ...]
    cost: str
    example: Example
    compute: Callable[..., Any]
    gradient: Mapping[str, str] = field(default_factory=dict)
    compact_gradient: Mapping[str, str] = field(default_factory=dict)
    attributes: tuple[Attribute, ...] = ()
    options: tuple[str, ...] = ()
    result: type | None = None
    notes: str = ""
    in_tensorflow: bool = True
    fitters: tuple[Input, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        fitters = tuple(Input(pin, self.dtypes_of(pin)) for pin in self.inputs)
        object.__setattr__(self, "fitters", fitters)
        variables = [pin.dtype for pin in self.inputs if pin.dtype in self.types]
        repeated = tuple(pin.dtype if variables.count(pin.dtype) > 1 else None for pin in self.inputs)
        object.__setattr__(self, "_repeated", repeated if any(repeated) else None)

    def dtypes_of(self, pin: Pin) -> tuple[str, ...]:
        """The names of the types that `pin` may have."""
        return self.types.get(pin.dtype, (pin.dtype,))

    def __call__(self, *values: Any, **options: Any) -> Any:
        """Run on whatever arrays the caller holds, all inputs in order; results are of the kind of the first."""
        try:
            if options:
                return self._call_with_options(values, options)
            results = self.compute(*self._fit(values))
            kind = _first_kind(values)
            if kind is not arrays.NUMPY:
                if self.result is None:
                    return kind.hand_back(results)
                return self.result(*(kind.hand_back(result) for result in results))
            return results
        except RowgradError as error:
            error.op = error.op or self.name
            raise

    def _call_with_options(self, values: tuple[Any, ...], options: dict[str, Any]) -> Any:
        plan, out = options.get("plan"), options.get("out")
        settings: dict[str, Any] = {}
        if plan is not None:
            settings["plan"] = plan
            values = plan.complete(self, values)
        if out is None:
            kind = _first_kind(values)
            results = self.compute(*self._fit(values), **settings)
            if self.result is None:
                return kind.hand_back(results)
            return self.result(*map(kind.hand_back, results))
        results = self.compute(*self._fit(values), out=fit_out(out), **settings)
        if self.result is None:
            return out
        _, *others = results
        return self.result(out, *map(_first_kind((out,)).hand_back, others))

    def _fit(self, values: tuple[Any, ...]) -> list[Any]:
        repeated: tuple[str | None, ...] | None = self._repeated  # type: ignore[attr-defined]
        if repeated is None:
            return [fitter.fit(value) for fitter, value in zip(self.fitters, values, strict=True)]
        bound: dict[str, np.dtype[Any]] = {}
        fitted = []
        for fitter, value, variable in zip(self.fitters, values, repeated, strict=True):
            array = fitter.fit(value, bound.get(variable) if variable else None)
            if variable:
                bound.setdefault(variable, array.dtype)
            fitted.append(array)
        return fitted


def _first_kind(values: tuple[Any, ...]) -> arrays.Kind:
    for value in values:
        if type(value) is np.ndarray:
            return arrays.NUMPY
        kind = arrays.kind_of(value)
        if kind is not None:
            return kind
    return arrays.NUMPY


OPERATORS: dict[str, Operator] = {}


def declare(operator: Operator) -> Operator:
    """Add `operator` to the catalogue."""
    if operator.name in OPERATORS:
        raise ValueError(f"{operator.name} is declared twice")
    OPERATORS[operator.name] = operator
    return operator
