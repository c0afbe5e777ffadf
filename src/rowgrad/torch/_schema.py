"""What the catalogue's operators are in PyTorch: their names, and their schemas, read from pins and attributes.

As everywhere in PyTorch, what says how large a result is (a count, a shape, axes) is no tensor but whole numbers, so
that compiled programs know it: see `role`. Everything else is a tensor, or a list of tensors.
"""

import re
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
import torch

from rowgrad._ops import OPERATORS, Attribute, Operator, Pin
from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.catalogue import REQUIRED
from rowgrad._ops.gradients import typed
from rowgrad._ops.shapes import infer
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
    TENSORS = "Tensor[]"
    COUNT = "SymInt"
    SIZES = "SymInt[]"


def snake_case(name: str) -> str:
    """``SparseSegmentSqrtNGradV2`` as ``sparse_segment_sqrt_n_grad_v2``."""
    return _BORDER.sub("_", name).lower()


def is_supported(operator: Operator) -> bool:
    """Whether each pin of `operator` can be a tensor: one that takes nothing but text cannot."""
    return all(any(name in DTYPES for name in operator.dtypes_of(pin)) or pin.dtype in _settings(operator)
               for pin in (*operator.inputs, *operator.outputs))  # fmt: skip


def supported() -> list[Operator]:
    """The operators of the catalogue that are operators of PyTorch too."""
    return [operator for operator in OPERATORS.values() if is_supported(operator)]


def _settings(operator: Operator) -> set[str]:
    return {attribute.name for attribute in operator.attributes}


@cache
def roles(operator: Operator) -> tuple[Role, ...]:
    """The role of each input, in order."""
    found = tuple(_role(operator, pin) for pin in operator.inputs)
    if Role.TENSOR in found or Role.TENSORS in found:
        return found
    # PyTorch finds a kernel by the tensors of a call, so one there must be.
    return tuple(Role.TENSOR if role is Role.SIZES else role for role in found)


def _role(operator: Operator, pin: Pin) -> Role:
    if pin.many:
        return Role.TENSORS
    if not set(operator.dtypes_of(pin)) <= set(dtypes.IDS):
        return Role.TENSOR
    if pin.shape == "[]":
        return Role.COUNT
    if pin.shape.startswith("[rank") or _decides_shapes(operator, pin):
        return Role.SIZES
    return Role.TENSOR


def _decides_shapes(operator: Operator, pin: Pin) -> bool:
    """Whether a shape rule looks at the values of `pin`, as that of a sum does at its axes."""
    if operator.shape_rule is None:
        return False
    values = typed(operator, operator.example.inputs)
    many = {pin.name for pin in operator.inputs if pin.many}
    shapes = {name: [np.shape(x) for x in v] if name in many else np.shape(v) for name, v in values.items()}
    attributes = check_attributes(operator, operator.example.attributes)
    without = {name: value for name, value in values.items() if name != pin.name}
    return infer(operator, shapes, values, attributes) != infer(operator, shapes, without, attributes)


_ATTRIBUTE_TYPES = {"bool": "bool", "int": "int", "float": "float", "text": "str", "dtype": "ScalarType"}


def schema(operator: Operator) -> str:
    """The schema of `operator`, as `torch.library` takes it."""
    inputs = [f"{role.value} {pin.name}" for pin, role in zip(operator.inputs, roles(operator), strict=True)]
    settings = [_attribute(attribute) for attribute in operator.attributes]
    results = ", ".join(f"Tensor {pin.name}" for pin in operator.outputs)
    arguments = ", ".join([*inputs, *(["*", *settings] if settings else [])])
    return f"{snake_case(operator.name)}({arguments}) -> ({results})"


def _attribute(attribute: Attribute) -> str:
    kind = _ATTRIBUTE_TYPES[attribute.kind]
    if attribute.default is REQUIRED:
        return f"{kind} {attribute.name}"
    if attribute.kind == "dtype" or attribute.default is None:
        return f"{kind}? {attribute.name}=None"
    return f"{kind} {attribute.name}={attribute.default!r}"


def settings(operator: Operator, given: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a call as the catalogue knows them: types by name, defaults in their place."""
    plain = {name: NAMES.get(value, value) for name, value in given.items() if value is not None}
    return check_attributes(operator, plain)
