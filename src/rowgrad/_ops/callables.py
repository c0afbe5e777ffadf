"""Operators as functions: arguments by position and by name, with a signature and a docstring.

Two operators that share a function's name differ in their last input, which is then optional.
"""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.catalogue import OPERATORS, REQUIRED, Operator
from rowgrad._ops.docstrings import docstring


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


def function_signature(operators: list[Operator]) -> Signature:
    """The signature of the function for `operators`."""
    required = {pin.name for pin in operators[0].inputs}
    return Signature([
        Parameter(pin.name, Parameter.POSITIONAL_OR_KEYWORD, default=Parameter.empty if pin.name in required else None)
        for pin in operators[-1].inputs
    ] + _options(operators[-1]))  # fmt: skip


def _options(operator: Operator) -> list[Parameter]:
    return [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in operator.options]


def raw_signature(operator: Operator) -> Signature:
    """Inputs, then attributes, then `name`, as in TensorFlow."""
    inputs = [p for p in function_signature([operator]).parameters.values() if p.kind is not Parameter.KEYWORD_ONLY]
    attributes = [
        Parameter(a.name, Parameter.KEYWORD_ONLY, default=Parameter.empty if a.default is REQUIRED else a.default)
        for a in operator.attributes
    ]
    return Signature([*inputs, *attributes, Parameter("name", Parameter.KEYWORD_ONLY, default=None)])


def make_function(name: str, operators: list[Operator]) -> Callable[..., Any]:
    """The snake-case function `name`."""
    signature = function_signature(operators)
    shortest, longest = operators[0], operators[-1]
    names = tuple(pin.name for pin in longest.inputs)
    needed = len(shortest.inputs)

    def function(*args: Any, **kwargs: Any) -> Any:
        options = {}
        if kwargs or not needed <= len(args) <= len(names):
            options = {name: kwargs.pop(name) for name in longest.options if name in kwargs}
            args = _bind(signature, names, args, kwargs)
        if len(args) == needed:
            return shortest(*args, **options)
        if args[-1] is None:
            return shortest(*args[:needed], **options)
        return longest(*args, **options)

    return _dressed(function, name, "rowgrad", docstring(operators, name), signature)


def make_raw_op(operator: Operator) -> Callable[..., Any]:
    """The function with TensorFlow's name and attributes; `name` is taken, and changes nothing."""
    signature = function_signature([operator])
    names = tuple(pin.name for pin in operator.inputs)

    def function(*args: Any, name: str | None = None, **kwargs: Any) -> Any:
        if not operator.attributes:
            return operator(*_bind(signature, names, args, kwargs))
        given = {a.name: kwargs.pop(a.name) for a in operator.attributes if a.name in kwargs}
        inputs = _bind(signature, names, args, kwargs)
        return operator(*inputs, **check_attributes(operator, given))

    text = docstring([operator], f"raw_ops.{operator.name}", raw=True)
    return _dressed(function, operator.name, "rowgrad.raw_ops", text, raw_signature(operator))


def _dressed(
    function: Callable[..., Any], name: str, module: str, text: str, signature: Signature
) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    function.__doc__ = text
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _bind(
    signature: Signature, names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """Arguments by position and by name, in order. (`Signature.bind` alone takes as long as a small operator.)"""
    given = len(args)
    if len(kwargs) + given == len(names):
        try:
            return (*args, *(kwargs[name] for name in names[given:]))
        except KeyError:
            pass
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return tuple(bound.arguments[name] for name in names)
