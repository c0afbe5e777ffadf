"""The operators under their Python names: what `rowgrad.sparse_segment_mean` and the others are for tensors.

They take what is easy to write (lists, numbers, counts as tensors), and choose between two operators that share a name
by whether the last argument is given, as `rowgrad._ops.functions` does.
"""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import torch

from rowgrad._ops import Operator
from rowgrad._ops.callables import by_function, function_signature, raw_signature
from rowgrad._ops.docstrings import docstring
from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.torch._schema import DTYPES, Role, is_supported, roles, snake_case


def functions() -> dict[str, Callable[..., Any]]:
    """All of them, by name."""
    return {name: _function(name, operators) for name, operators in grouped().items()}


def grouped() -> dict[str, list[Operator]]:
    """The operators behind each function, those that tensors can have."""
    return {name: operators for name, operators in by_function().items() if all(map(is_supported, operators))}


def signature(operators: list[Operator]) -> Signature:
    """Inputs by position or by name, attributes by name; no `out` and `plan`, which gradients cannot go through."""
    inputs = [p for p in function_signature(operators).parameters.values() if p.kind is not Parameter.KEYWORD_ONLY]
    raw = raw_signature(operators[-1]).parameters.values()
    return Signature(inputs + [p for p in raw if p.kind is Parameter.KEYWORD_ONLY and p.name != "name"])


def _function(name: str, operators: list[Operator]) -> Callable[..., Any]:
    shortest, longest = operators[0], operators[-1]
    calls = {len(operator.inputs): _call(operator) for operator in operators}
    stated = signature(operators)
    names = tuple(pin.name for pin in longest.inputs)
    settings = tuple(attribute.name for attribute in longest.attributes)
    needed = len(shortest.inputs)

    def function(*args: Any, **kwargs: Any) -> Any:
        attributes = {}
        if kwargs or not needed <= len(args) <= len(names):
            bound = stated.bind(*args, **kwargs)
            attributes = {name: bound.arguments[name] for name in settings if name in bound.arguments}
            bound.apply_defaults()
            args = tuple(bound.arguments[name] for name in names)
        if len(args) > needed and args[-1] is None:
            args = args[:needed]
        return calls[len(args)](args, attributes)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "rowgrad.torch"
    function.__doc__ = _described(name, operators)
    function.__signature__ = stated  # type: ignore[attr-defined]
    return function


def _described(name: str, operators: list[Operator]) -> str:
    """The catalogue's docstring without its example, which is one of NumPy arrays."""
    text = docstring(operators, name).partition("    Examples\n")[0].partition("Examples\n--------")[0].rstrip()
    called = " or ".join(f"``torch.ops.rowgrad.{snake_case(operator.name)}``" for operator in operators)
    return f"{text}\n\nFor tensors, differentiable to any order: {called}."


def _call(operator: Operator) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    overload = getattr(torch.ops.rowgrad, snake_case(operator.name)).default
    tests = tuple((i, role) for i, role in enumerate(roles(operator)))
    result = operator.result

    def call(values: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        for i, role in tests:
            value = values[i]
            if role is Role.TENSOR:
                fits = isinstance(value, torch.Tensor)
            elif role is Role.COUNT:
                fits = isinstance(value, int | torch.SymInt)
            else:
                fits = isinstance(value, list)
            if not fits:
                values = fitted(operator, values)
                break
        if attributes:
            attributes = {name: DTYPES.get(value, value) if isinstance(value, str) else value
                          for name, value in attributes.items()}  # fmt: skip
            results = overload(*values, **attributes)
        else:
            results = overload(*values)
        return results if result is None else result(*results)

    return call


def fitted(operator: Operator, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments in the form that the operator's schema takes; lists become tensors on the device of the others."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    device = tensors[0].device if tensors else None
    like = {pin.dtype: value.dtype for pin, value in zip(operator.inputs, values, strict=True)
            if isinstance(value, torch.Tensor)}  # fmt: skip
    found = []
    for pin, role, value in zip(operator.inputs, roles(operator), values, strict=True):
        if role is Role.TENSOR and not isinstance(value, torch.Tensor):
            dtype = like.get(pin.dtype) if pin.dtype in operator.types else DTYPES[pin.dtype]
            value = _tensor(operator, pin.name, value, dtype, device)
        elif role is Role.COUNT and not isinstance(value, int | torch.SymInt):
            value = _count(operator, pin.name, value)
        elif role is Role.SIZES and not isinstance(value, list):
            value = value.tolist() if hasattr(value, "tolist") else list(value)
        found.append(value)
    return tuple(found)


def _tensor(operator: Operator, name: str, value: Any, dtype: Any, device: Any) -> Any:
    try:
        made = torch.as_tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DTypeError(
            f"{name} is a {type(value).__name__}, of which no tensor can be made ({error}). Pass a tensor.",
            code="not-an-array", argument=name, value=type(value).__name__, op=operator.name,
        ) from error  # fmt: skip
    if dtype is None or made.dtype == dtype or not torch.can_cast(made.dtype, dtype):
        return made  # what does not fit is refused, by name, where the operator looks at types
    return made.to(dtype)


def _count(operator: Operator, name: str, value: Any) -> Any:
    """A count given as a tensor or as NumPy's whole number."""
    whole = isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex())
    if not whole and not hasattr(value, "__index__"):
        raise DTypeError(
            f"{name} is {value!r}; it must be a whole number. Convert it first.",
            code="wrong-dtype", argument=name, value=str(getattr(value, "dtype", type(value).__name__)),
            op=operator.name,
        )  # fmt: skip
    if isinstance(value, torch.Tensor):
        if value.dim() != 0:
            raise InvalidArgumentError(
                f"{name} has shape {list(value.shape)}; it must be a scalar (0 dimensions). Reshape it.",
                code="wrong-rank", argument=name, value=tuple(value.shape), op=operator.name,
            )  # fmt: skip
        return value.item()
    return value.__index__()
