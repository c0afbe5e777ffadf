"""Worked examples of the catalogue as calls of PyTorch's operators: the inputs that the tests here share."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rowgrad._ops import OPERATORS, Operator
from rowgrad._ops.attributes import check_attributes
from rowgrad.torch._schema import DTYPES, Role, roles, snake_case, supported

NAMES = [operator.name for operator in supported()]
DIFFERENTIABLE = [operator.name for operator in supported() if operator.gradient]
SPARSE = [operator.name for operator in supported() if operator.function]


def overload(name: str) -> Any:
    """The operator `name` of the catalogue, as PyTorch knows it."""
    return getattr(torch.ops.rowgrad, snake_case(name)).default


def example(
    name: str, *, floats: torch.dtype | None = None, grad: bool = True
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments and attributes of the worked example; `floats` is the type of its fractions."""
    operator = OPERATORS[name]
    inputs = dict(operator.example.inputs)
    if any(isinstance(value, str) for value in _leaves(inputs)):  # text is not for tensors
        inputs |= {key: _numbered(value) for key, value in inputs.items() if isinstance(next(_leaves(value), 0), str)}
    fitted = operator._fit(tuple(inputs.values()))
    found = []
    for pin, role, value in zip(operator.inputs, roles(operator), fitted, strict=True):
        wanted = grad and pin.name in operator.gradient
        match role:
            case Role.TENSOR:
                found.append(_tensor(value, floats, wanted))
            case Role.TENSORS:
                found.append([_tensor(part, floats, wanted) for part in value])
            case Role.SIZES:
                found.append(np.asarray(value).reshape(-1).tolist())
            case Role.COUNT:
                found.append(int(value))
    return tuple(found), attributes(operator, floats)


def attributes(operator: Operator, floats: torch.dtype | None) -> dict[str, Any]:
    plain = dict(operator.example.attributes)
    for attribute in operator.attributes:  # results of a type that loses nothing, where it can be chosen
        if floats is not None and attribute.kind == "dtype" and "float64" in operator.types[attribute.name]:
            plain[attribute.name] = str(floats).removeprefix("torch.")
    return {name: DTYPES.get(value, value) if isinstance(value, str) else value for name, value in plain.items()}


def numpy_results(name: str, values: tuple[Any, ...], given: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """The same call by the catalogue, on NumPy arrays."""
    operator = OPERATORS[name]
    arrays = []
    for value in values:
        if isinstance(value, torch.Tensor):
            arrays.append(to_numpy(value))
        elif isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
            arrays.append(list(map(to_numpy, value)))
        else:
            arrays.append(value)
    plain = {key: str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else value
             for key, value in given.items()}  # fmt: skip
    results = operator(*arrays, **check_attributes(operator, plain))
    return list(results) if operator.result else [results]


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    from rowgrad._runtime import arrays

    return arrays.adopt(tensor.detach())


def flat(values: tuple[Any, ...]) -> list[Any]:
    """All tensors among the arguments."""
    parts = [part for value in values for part in (value if isinstance(value, list) else [value])]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def wanted(values: tuple[Any, ...]) -> tuple[list[Any], Callable[..., tuple[Any, ...]]]:
    """The tensors that require a gradient, and a function that puts others in their place."""
    leaves = [x for x in flat(values) if x.requires_grad]
    places = {id(x): i for i, x in enumerate(leaves)}

    def replaced(*tensors: Any) -> tuple[Any, ...]:
        def at(value: Any) -> Any:
            if isinstance(value, list):
                return list(map(at, value))
            return tensors[places[id(value)]] if id(value) in places else value

        return tuple(at(value) for value in values)

    return leaves, replaced


def _tensor(array: Any, floats: torch.dtype | None, grad: bool) -> Any:
    array = np.array(array)
    made = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if array.dtype.name == "bfloat16" else (
        torch.from_numpy(array))  # fmt: skip
    if floats is not None and (made.is_floating_point() or grad):
        made = made.to(floats)
    return made.requires_grad_(grad and made.is_floating_point())


def _leaves(value: Any) -> Any:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _numbered(value: Any) -> Any:
    return [float(i) for i, _ in enumerate(value)] if isinstance(value, list) else -1.0
