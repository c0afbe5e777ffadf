"""Operators: each declared once, and what is derived from a declaration when it is called.

Families (`sparse_segment.py`, …) declare the sparse operators with `declare`; those of pages have a catalogue of their
own in `rowgrad.blocks.operators`. Functions, `raw_ops`, reference pages and the command line read the declarations and
keep no list of their own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops.pins import INT64_MAX, SEQUENCES, Input, ManyInputs, MixedInputs, Pin, fit_out, is_untyped
from rowgrad._runtime import arrays
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.memory import check_apart
from rowgrad.errors import RowgradError

NDARRAY = np.ndarray
NOTHING: frozenset[Any] = frozenset()
OBJECTS = frozenset({np.dtype(object)})
Rule = Callable[..., Any]  # a gradient rule, see `gradients`
REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()


@dataclass(frozen=True)
class Attribute:
    """A setting of an operator that is no array.

    `kind` says what it holds: ``bool``, ``int``, ``float``, ``text``, ``dtype``, ``shape``, ``list`` or ``value`` (any
    literal). One whose default is `REQUIRED` must be given. `passed` tells whether `compute` takes it.
    """

    name: str
    default: Any
    doc: str
    kind: str = "bool"
    passed: bool = True


@dataclass(frozen=True)
class Example:
    """A worked example: plain lists, with the results as users would write them down."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    note: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Operator:
    """One operator.

    `compute` takes ndarrays (lone whole numbers as ints) and, by name, attributes; it checks them, and gives ndarrays.
    `gradient` has one rule per differentiable input, or several that are added up, each a function that calls other
    operators (see `gradients`). `options` are keyword arguments that change how the result is made, not what it is:
    ``out`` and ``plan``. `function` is the name in snake case, for those that have one; it stands at the top level of
    the package and of the front ends, unless the operator is `raw_only`: there only to differentiate others. `module`
    is where it is under TensorFlow's name, or under `raw_name`, where TensorFlow's operator of its name takes other
    arguments.

    `shape_rule` gives the shapes of the outputs where the notation of pins does not (see `shapes`). `updates` names,
    for each input that is a variable, the output that is its new value. `role` is ``"operator"``, or what the block
    means to a page: those blocks hold or move data, and are no functions. `bounds_ids` tells whether `compute` bounds
    each id after it was read; families with kernels of their own do. `quick` is tried before anything else: it gives
    the results for arguments that it can take as they are, else None.
    """

    name: str
    function: str | None
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
    gradient: Mapping[str, Rule | tuple[Rule, ...]] = field(default_factory=dict)
    compact_gradient: Mapping[str, Rule] = field(default_factory=dict)
    attributes: tuple[Attribute, ...] = ()
    options: tuple[str, ...] = ()
    result: type | None = None
    notes: str = ""
    in_tensorflow: bool = True
    shape_rule: Callable[..., Mapping[str, Any]] | None = None
    updates: Mapping[str, str] = field(default_factory=dict)
    role: str = "operator"
    module: str = "raw_ops"
    raw_name: str = ""
    raw_only: bool = False
    bounds_ids: bool | None = None
    quick: Callable[..., Any] | None = None
    fitters: tuple[Input, ...] = field(init=False, repr=False)
    is_unsettled: bool = field(init=False, repr=False)  # whether there is an attribute that must be given

    def __post_init__(self) -> None:
        kinds = (MixedInputs if pin.mixed else ManyInputs if pin.many else Input for pin in self.inputs)
        fitters = tuple(kind(pin, self.dtypes_of(pin)) for kind, pin in zip(kinds, self.inputs, strict=True))
        object.__setattr__(self, "fitters", fitters)
        object.__setattr__(self, "raw_name", self.raw_name or self.name)
        object.__setattr__(self, "is_unsettled", any(a.default is REQUIRED for a in self.attributes))
        object.__setattr__(self, "_passed", tuple(a.name for a in self.attributes if a.passed))
        object.__setattr__(self, "_unpassed", tuple(a.name for a in self.attributes if not a.passed))
        # NumPy checks ids and then reads them again, so operators that are made of it get copies: another thread may
        # write to a caller's ids in between. Kernels bound what they use themselves.
        bounded = self.family in kernels.MODULES if self.bounds_ids is None else self.bounds_ids
        copied = not bounded and any(fitter.is_ids for fitter in fitters)
        object.__setattr__(self, "_copies_ids", copied)
        variables = [pin.dtype for pin in self.inputs if pin.dtype in self.types and not pin.mixed
                     for _ in range(1 + pin.many)]  # fmt: skip
        repeated = tuple(pin.dtype if variables.count(pin.dtype) > 1 else None for pin in self.inputs)
        object.__setattr__(self, "_repeated", repeated if any(repeated) else None)
        alike = [positions for name in set(repeated) - {None}
                 if len(positions := [at for at, variable in enumerate(repeated) if variable == name]) > 1]  # fmt: skip
        # A count may come after an array whose type it has to have.
        odd = copied or any(fitters[positions[0]].is_count or any(fitters[at].pin.many for at in positions)
                            for positions in alike)  # fmt: skip
        like = {at: positions[0] for positions in alike for at in positions[1:] if fitters[at].is_count}
        object.__setattr__(self, "_like", like)
        alike = [[at for at in positions if not fitters[at].is_count] for positions in alike if not odd]
        # The types of arrays that each input takes as they are; None for one that takes a number.
        fits = tuple(() if odd else NOTHING if fitter.pin.many else None if fitter.is_count
                     else fitter.allowed | OBJECTS if fitter.pin.unread else fitter.allowed
                     for fitter in fitters)  # fmt: skip
        object.__setattr__(self, "_fits", fits)
        object.__setattr__(self, "_alike", tuple((first, other) for first, *others in alike for other in others))

    def dtypes_of(self, pin: Pin) -> tuple[str, ...]:
        """The names of the types that `pin` may have."""
        return self.types.get(pin.dtype, (pin.dtype,))

    @property
    def top_level(self) -> str | None:
        """Its name at the top level of the package, if it is there."""
        return None if self.raw_only else self.function

    @property
    def call_name(self) -> str:
        """How users call it: ``sparse_slice``, or ``raw_ops.SparseToDense``."""
        return self.top_level or f"{self.module}.{self.raw_name}"

    def __call__(self, *values: Any, **options: Any) -> Any:
        """Run on whatever arrays the caller holds, all inputs in order; results are of the kind of the first.

        Attributes and options are given by name; attributes must have been checked.
        """
        try:
            if options:
                if "out" in options or "plan" in options:
                    return self._call_with_options(values, options)
                for name in self._unpassed:  # type: ignore[attr-defined]
                    options.pop(name, None)
            elif self.quick is not None and (found := self.quick(*values)) is not None:
                return found
            # Most calls pass arrays and numbers just as `compute` takes them, which one look at each tells.
            pairs = zip(self._fits, values, strict=True)  # type: ignore[attr-defined]
            allowed = value = None
            for allowed, value in pairs:
                if allowed is None:
                    if type(value) is not int or not -INT64_MAX <= value <= INT64_MAX:
                        break
                elif type(value) is not NDARRAY or value.dtype not in allowed or not value.flags.carray:
                    break
            else:
                if not self._alike or self._are_alike(values):  # type: ignore[attr-defined]
                    return self.compute(*values, **options)
            fitted = self._settle(values, [(allowed, value), *pairs]) or self._fit(values)
            return self._handed_back(values, self.compute(*fitted, **options))
        except RowgradError as error:
            error.op = error.op or self.name
            raise

    def _call_with_options(self, values: tuple[Any, ...], options: dict[str, Any]) -> Any:
        plan, out = options.get("plan"), options.get("out")
        settings = {name: options[name] for name in self._passed if name in options}  # type: ignore[attr-defined]
        if plan is not None:
            settings["plan"] = plan
            values = plan.complete(self, values)
        if out is None:
            return self._handed_back(values, self.compute(*self._fit(values), **settings))
        fitted, target = self._fit(values), fit_out(out)
        check_apart(target, self._arrays(fitted))
        results = self.compute(*fitted, out=target, **settings)
        if self.result is None:
            return out
        _, *others = results
        return self.result(out, *map(first_kind((out,)).hand_back, others))

    def _handed_back(self, values: tuple[Any, ...], results: Any) -> Any:
        """The results as arrays of the kind of the first argument that is one."""
        kind = first_kind(values)
        if kind is arrays.NUMPY:
            return results
        if self.result is None:
            return kind.hand_back(results)
        return self.result(*map(kind.hand_back, results))

    def _arrays(self, fitted: list[Any]) -> Iterator[tuple[str, Array]]:
        """The arrays among the arguments, with the names of their pins."""
        for pin, value in zip(self.inputs, fitted, strict=True):
            for array in value if pin.many else (value,):
                if isinstance(array, np.ndarray):
                    yield pin.name, array

    def _are_alike(self, values: Sequence[Any]) -> bool:
        """Whether arrays of the same type variable have the same type."""
        for first, other in self._alike:  # type: ignore[attr-defined]  # noqa: SIM110 (a generator takes longer)
            if values[first].dtype is not values[other].dtype:
                return False
        return True

    def _settle(self, values: tuple[Any, ...], rest: list[tuple[Any, Any]]) -> list[Any] | None:
        """The arguments, if some of the `rest` are read-only or scalars of NumPy's; None if more is to be done.

        `rest` are those that do not fit as they are, and all behind, each with what `_fits` says.
        """
        settled = list(values[: -len(rest)])
        for allowed, value in rest:
            if type(value) is NDARRAY and allowed and value.dtype in allowed and (flags := value.flags).c_contiguous:
                settled.append(value if flags.carray else arrays.settle(value))
            elif allowed is None:
                if type(value) is int and -INT64_MAX <= value <= INT64_MAX:
                    settled.append(value)
                    continue
                if type(value) is not NDARRAY or value.ndim or value.dtype.kind != "i":
                    return None
                like = self._like.get(len(settled))  # type: ignore[attr-defined]
                if like is not None and value.dtype != settled[like].dtype:
                    return None
                settled.append(int(value))
            elif isinstance(value, np.generic) and allowed and value.dtype in allowed:
                settled.append(np.array(value))
            elif allowed is NOTHING and self.fitters[len(settled)].fits_as_they_are(value):
                settled.append(tuple(value))
            else:
                return None
        return settled if not self._alike or self._are_alike(settled) else None  # type: ignore[attr-defined]

    def fitted(self, values: tuple[Any, ...]) -> list[Any]:
        """The arguments as `compute` takes them."""
        pairs = list(zip(self._fits, values, strict=True))  # type: ignore[attr-defined]
        return self._settle(values, pairs) or self._fit(values)

    def _fit(self, values: tuple[Any, ...]) -> list[Any]:
        fitted = self._fit_each(values)
        if self._copies_ids:  # type: ignore[attr-defined]
            for position, fitter in enumerate(self.fitters):
                if fitter.is_ids and isinstance(fitted[position], np.ndarray):
                    fitted[position] = fitted[position].copy()
        return fitted

    def _fit_each(self, values: tuple[Any, ...]) -> list[Any]:
        repeated: tuple[str | None, ...] | None = self._repeated  # type: ignore[attr-defined]
        if repeated is None:
            return [fitter.fit(value) for fitter, value in zip(self.fitters, values, strict=True)]
        bound: dict[str, np.dtype[Any]] = {}
        fitted = []
        for position, (fitter, value, variable) in enumerate(zip(self.fitters, values, repeated, strict=True)):
            if variable is None:
                fitted.append(fitter.fit(value))
                continue
            if variable not in bound and is_untyped(value):
                self._bind_by_later(variable, position, values, bound)
            array = fitter.fit(value, bound.get(variable))
            first = array[0] if fitter.pin.many else array
            bound.setdefault(variable, np.asarray(first).dtype)
            fitted.append(array)
        return fitted

    def _bind_by_later(
        self, variable: str, position: int, values: tuple[Any, ...], bound: dict[str, "np.dtype[Any]"]
    ) -> None:
        """A number written in Python takes the type of an array that comes after it."""
        for fitter, value in zip(self.fitters[position + 1 :], values[position + 1 :], strict=True):
            if fitter.pin.dtype == variable and not fitter.pin.many and not is_untyped(value):
                bound[variable] = np.asarray(fitter.fit(value)).dtype
                return


def first_kind(values: tuple[Any, ...]) -> arrays.Kind:
    """The kind of the first array among the arguments, which results are made of."""
    for value in values:
        if type(value) is np.ndarray:
            return arrays.NUMPY
        if isinstance(value, SEQUENCES) and value and not is_untyped(value):
            return first_kind(tuple(value))
        kind = arrays.kind_of(value)
        if kind is not None:
            return kind
    return arrays.NUMPY


OPERATORS: dict[str, Operator] = {}


def declare(operator: Operator) -> Operator:
    """Add `operator` to the catalogue of sparse operators."""
    return add(operator, OPERATORS)


def add(operator: Operator, catalogue: dict[str, Operator]) -> Operator:
    """Add `operator` to `catalogue`."""
    if operator.name in catalogue:
        raise ValueError(f"{operator.name} is declared twice")
    catalogue[operator.name] = operator
    return operator
