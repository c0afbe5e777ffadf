"""What the catalogue's operators are in PyTorch: their names, and their schemas, read from pins and attributes.

As everywhere in PyTorch, what says how large a result is (a count, a shape, axes) is no tensor but whole numbers, so
that compiled programs know it: see `Role`. Everything else is a tensor, or a list of them.
"""

import re
from enum import Enum
from functools import cache
from typing import Any

import torch

from rowgrad._ops import OPERATORS, Attribute, Operator, Pin
from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.catalogue import REQUIRED
from rowgrad._runtime import dtypes

NAMESPACE = "rowgrad"
_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in dtypes.NUMPY if name not in dtypes.QUANTISED and hasattr(torch, name)
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Role(Enum):
    """What a pin is in PyTorch; the value is its type in a schema."""

    TENSOR = "Tensor"
    COUNT = "SymInt"
    SIZES = "SymInt[]"
    TENSORS = "Tensor[]"


def snake_case(name: str) -> str:
    """``SparseSegmentSqrtNGradV2`` as ``sparse_segment_sqrt_n_grad_v2``."""
    return _BORDER.sub("_", name).lower()


def supported() -> list[Operator]:
    """The operators that are operators of PyTorch too: those that are functions of rowgrad."""
    return [operator for operator in OPERATORS.values() if operator.function is not None]


@cache
def roles(operator: Operator) -> tuple[Role, ...]:
    """The role of each input, in order."""
    return tuple(_role(operator, pin) for pin in operator.inputs)


def _role(operator: Operator, pin: Pin) -> Role:
    if pin.many:
        return Role.TENSORS
    if not set(operator.dtypes_of(pin)) <= set(dtypes.IDS):
        return Role.TENSOR
    return {"[]": Role.COUNT, "[rank]": Role.SIZES, "[axes]": Role.SIZES}.get(pin.shape, Role.TENSOR)


def schema(operator: Operator) -> str:
    """The schema of `operator`, as `torch.library` takes it."""
    inputs = [f"{role.value} {pin.name}" for pin, role in zip(operator.inputs, roles(operator), strict=True)]
    settings = [_attribute(attribute) for attribute in operator.attributes]
    results = ", ".join(f"Tensor {pin.name}" for pin in operator.outputs)
    arguments = ", ".join([*inputs, *(["*", *settings] if settings else [])])
    return f"{snake_case(operator.name)}({arguments}) -> ({results})"


def _attribute(attribute: Attribute) -> str:
    if attribute.kind == "dtype":
        return f"ScalarType? {attribute.name}=None"
    default = "" if attribute.default is REQUIRED else f"={attribute.default!r}"
    return f"{attribute.kind} {attribute.name}{default}"


def settings(operator: Operator, given: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a call as the catalogue knows them: types by name, defaults in their place."""
    plain = {name: NAMES.get(value, value) for name, value in given.items() if value is not None}
    return check_attributes(operator, plain)
