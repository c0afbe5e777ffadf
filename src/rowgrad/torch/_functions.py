"""The operators under their Python names: what `rowgrad.sparse_segment_mean` and the others are for tensors.

They take what is easy to write: lists, numbers, counts as tensors.
"""

from collections.abc import Callable
from typing import Any

import torch

from rowgrad._ops import Operator
from rowgrad._ops.callables import FrontEnd, attribute_options, make_functions
from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.torch._schema import DTYPES, Role, roles, settings, snake_case

WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64)


def functions() -> dict[str, Callable[..., Any]]:
    """All of them, by name. There is no `out` and no `plan`, through which gradients could not flow."""
    front_end = FrontEnd(
        "rowgrad.torch", bind=_bound, options=attribute_options, example=lambda operator, call: (), closing=_closing
    )
    return make_functions(front_end)


def _closing(operators: list[Operator]) -> str:
    called = " or ".join(f"``torch.ops.rowgrad.{snake_case(operator.name)}``" for operator in operators)
    return f"For tensors, differentiable to any order: {called}."


def _bound(operator: Operator) -> Callable[..., Any]:
    overload = getattr(torch.ops.rowgrad, snake_case(operator.name)).default
    tests = tuple((i, role) for i, role in enumerate(roles(operator)))
    result = operator.result

    def call(*values: Any, **attributes: Any) -> Any:
        for i, role in tests:
            value = values[i]
            if role is Role.TENSOR:
                fits = isinstance(value, torch.Tensor)
            elif role is Role.COUNT:
                fits = _is_count(value)
            elif role is Role.TENSORS:
                fits = _are_tensors(value)
            else:
                fits = _are_sizes(value)
            if not fits:
                values = fitted(operator, values)
                break
        if operator.is_unsettled:
            settings(operator, attributes)  # PyTorch's own error names neither the operator nor the attribute
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
    tensors = [(pin.dtype, tensor) for pin, value in zip(operator.inputs, values, strict=True)
               for tensor in (value if pin.many and isinstance(value, list | tuple) else (value,))
               if isinstance(tensor, torch.Tensor)]  # fmt: skip
    device = tensors[0][1].device if tensors else None
    like = {variable: tensor.dtype for variable, tensor in tensors}
    found = []
    for pin, role, value in zip(operator.inputs, roles(operator), values, strict=True):
        if role is Role.TENSOR and not isinstance(value, torch.Tensor):
            dtype = like.get(pin.dtype) if pin.dtype in operator.types else DTYPES[pin.dtype]
            value = _tensor(operator, pin.name, value, dtype, device)
        elif role is Role.TENSORS and not _are_tensors(value):
            dtype = like.get(pin.dtype) if pin.dtype in operator.types else DTYPES[pin.dtype]
            value = _tensors(operator, pin.name, value, dtype, device)
        elif role is Role.COUNT and not _is_count(value):
            value = _count(operator, pin.name, value)
        elif role is Role.SIZES and not _are_sizes(value):
            value = _sizes(operator, pin.name, value)
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


def _tensors(operator: Operator, name: str, values: Any, dtype: Any, device: Any) -> list[Any]:
    if not isinstance(values, list | tuple) or not values:
        raise InvalidArgumentError(
            f"{name} must be a list of one or more tensors.",
            code="not-a-list", argument=name, value=type(values).__name__, op=operator.name,
        )  # fmt: skip
    return [value if isinstance(value, torch.Tensor) else _tensor(operator, name, value, dtype, device)
            for value in values]  # fmt: skip


def _are_tensors(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(part, torch.Tensor) for part in value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | torch.SymInt) and not isinstance(value, bool)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and bool not in map(type, value)


def _count(operator: Operator, name: str, value: Any) -> Any:
    """A count given as a tensor or as NumPy's whole number."""
    if isinstance(value, torch.Tensor) and value.dtype in WHOLE:
        if value.dim() != 0:
            raise InvalidArgumentError(
                f"{name} has shape {list(value.shape)}; it must be a scalar (0 dimensions). Reshape it.",
                code="wrong-rank", argument=name, value=tuple(value.shape), op=operator.name,
            )  # fmt: skip
        return value.item()
    if not isinstance(value, torch.Tensor | bool):
        try:
            return value.__index__()
        except (AttributeError, TypeError):
            pass  # it is no whole number
    raise _not_whole(operator, name, value, "a whole number")


def _sizes(operator: Operator, name: str, value: Any) -> list[Any]:
    listed = value.tolist() if hasattr(value, "tolist") else value
    listed = list(listed) if isinstance(listed, list | tuple) else [listed]
    if not _are_sizes(listed):
        raise _not_whole(operator, name, value, "whole numbers")
    return listed


def _not_whole(operator: Operator, name: str, value: Any, what: str) -> DTypeError:
    return DTypeError(
        f"{name} is {value!r}; it must be {what}. Convert it first.",
        code="wrong-dtype", argument=name, value=str(getattr(value, "dtype", type(value).__name__)),
        op=operator.name,
    )  # fmt: skip
