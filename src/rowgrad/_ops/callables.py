"""Operators as functions: arguments by position and by name, with a signature and a docstring.

All functions are made here, those of `rowgrad`, `raw_ops`, `rowgrad.torch`, `rowgrad.jax` and `rowgrad.tensorflow`; a
`FrontEnd` says in what they differ. Two operators that share a function's name differ in their last input, which is
then optional.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from operator import itemgetter
from typing import Any

from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.catalogue import OPERATORS, REQUIRED, Operator
from rowgrad._ops.docstrings import Option, default_of, docstring, example_lines


@dataclass(frozen=True)
class FrontEnd:
    """How the functions of one module are made.

    `bind` gives what runs an operator, with all inputs by position and options by name; `options` are those that an
    operator has here, by name. `example` gives the lines of the worked example of an operator that is called by a name;
    `closing` is the last paragraph of the docstring.
    """

    module: str
    bind: Callable[[Operator], Callable[..., Any]]
    options: Callable[[Operator], Mapping[str, Option]]
    example: Callable[[Operator, str], Iterable[str]] = example_lines
    closing: Callable[[list[Operator]], str] = lambda operators: ""


def make_functions(front_end: FrontEnd) -> dict[str, Callable[..., Any]]:
    """The functions of `front_end`, by name."""
    return {name: make_function(name, operators, front_end) for name, operators in by_function().items()}


def make_function(name: str, operators: list[Operator], front_end: FrontEnd) -> Callable[..., Any]:
    """The function `name` for `operators`, the one with the fewest inputs first."""
    inputs = _inputs(operators)
    options = front_end.options(operators[-1])
    names, option_names = tuple(inputs.parameters), tuple(options)
    shorter, longer = front_end.bind(operators[0]), front_end.bind(operators[-1])
    known = frozenset(names)
    needed = len(operators[0].inputs)
    by_names: Callable[..., Any] = itemgetter(*names) if len(names) > 1 else lambda given: (*map(given.get, names),)

    def function(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and len(args) == needed:
            return shorter(*args)
        given = {}
        if kwargs or not needed <= len(args) <= len(names):
            if option_names and kwargs.keys() != known:
                given = {name: kwargs.pop(name) for name in option_names if name in kwargs}
            args = by_names(kwargs) if not args and kwargs.keys() == known else _bind(inputs, names, args, kwargs)
        if len(args) == needed:
            return shorter(*args, **given)
        if args[-1] is None:
            return shorter(*args[:needed], **given)
        return longer(*args, **given)

    call = f"{front_end.module}.{name}"
    function.__name__ = function.__qualname__ = name
    function.__module__ = front_end.module
    function.__doc__ = docstring(
        operators, options, front_end.example(operators[0], call), front_end.closing(operators)
    )
    function.__signature__ = signature(operators, front_end)  # type: ignore[attr-defined]
    return function


def by_function() -> dict[str, list[Operator]]:
    """The operators behind each function, the one with the fewest inputs first."""
    groups: dict[str, list[Operator]] = {}
    for operator in sorted(OPERATORS.values(), key=lambda operator: len(operator.inputs)):
        if operator.function is not None:
            groups.setdefault(operator.function, []).append(operator)
    return groups


def top_level() -> list[str]:
    """The names of the functions that are at the top level of the package and of the front ends."""
    return sorted({operator.top_level for operator in OPERATORS.values() if operator.top_level})


def signature(operators: list[Operator], front_end: FrontEnd) -> Signature:
    """The signature of the function for `operators`."""
    options = [
        Parameter(
            name, Parameter.KEYWORD_ONLY, default=Parameter.empty if option.default is REQUIRED else option.default
        )
        for name, option in front_end.options(operators[-1]).items()
    ]
    return Signature([*_inputs(operators).parameters.values(), *options])


def _inputs(operators: list[Operator]) -> Signature:
    required = {pin.name for pin in operators[0].inputs}
    return Signature([
        Parameter(pin.name, Parameter.POSITIONAL_OR_KEYWORD, default=Parameter.empty if pin.name in required else None)
        for pin in operators[-1].inputs
    ])  # fmt: skip


def _bind(inputs: Signature, names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Arguments by position and by name, in order. (`Signature.bind` alone takes as long as a small operator.)"""
    given = len(args)
    if len(kwargs) + given == len(names):
        try:
            return (*args, *(kwargs[name] for name in names[given:]))
        except KeyError:
            pass
    bound = inputs.bind(*args, **kwargs)
    bound.apply_defaults()
    return tuple(bound.arguments[name] for name in names)


# On arrays

OPTIONS = {
    "out": Option(
        None,
        "array, optional",
        "An array for the (first) result: of its shape and type, contiguous, not overlapping the inputs.",
    ),
    "plan": Option(
        None,
        "Plan, optional",
        "The result of `rowgrad.plan` for the same ids; then `indices` and `segment_ids` may be None.",
    ),
}


def attribute_options(operator: Operator) -> dict[str, Option]:
    """The attributes of `operator` as options."""
    return {a.name: Option(a.default, f"{a.kind}, {default_of(a)}", a.doc) for a in operator.attributes}


def _with_attributes(operator: Operator) -> Callable[..., Any]:
    if not operator.attributes:
        return lambda *values, name=None: operator(*values)
    defaults: dict[str, Any] = {} if operator.is_unsettled else check_attributes(operator, {})

    def call(*values: Any, name: Any = None, **given: Any) -> Any:
        return operator(*values, **(check_attributes(operator, given) if given or not defaults else defaults))

    return call


def function_attributes(operator: Operator) -> dict[str, Option]:
    """The attributes that functions take; types of results are those of the arguments there."""
    kinds = {a.name: a.kind for a in operator.attributes if a.passed}
    return {
        name: option for name, option in attribute_options(operator).items() if kinds.get(name) not in (None, "dtype")
    }


def _bound(operator: Operator) -> Callable[..., Any]:
    """What runs an operator whose attributes were not checked."""
    names = tuple(function_attributes(operator))
    if not names:
        return operator.__call__

    def call(*values: Any, **given: Any) -> Any:
        if not given and not operator.is_unsettled:
            return operator(*values)
        settings = check_attributes(operator, {name: given.pop(name) for name in names if name in given})
        return operator(*values, **settings, **given)

    return call


ON_ARRAYS = FrontEnd(
    "rowgrad",
    bind=_bound,
    options=lambda operator: {**function_attributes(operator), **{name: OPTIONS[name] for name in operator.options}},
)


def make_raw_op(operator: Operator) -> Callable[..., Any]:
    """The function with TensorFlow's name and attributes; `name` is taken, and changes nothing."""
    return make_function(operator.raw_name, [operator], _raw(operator))


def _raw(operator: Operator) -> FrontEnd:
    options = {**attribute_options(operator), "name": Option(None)}
    return FrontEnd(f"rowgrad.{operator.module}", _with_attributes, lambda _: options)


def function_signature(operators: list[Operator]) -> Signature:
    """The signature of the function of `rowgrad` for `operators`."""
    return signature(operators, ON_ARRAYS)


def raw_signature(operator: Operator) -> Signature:
    """Inputs, then attributes, then `name`, as in TensorFlow."""
    return signature([operator], _raw(operator))
