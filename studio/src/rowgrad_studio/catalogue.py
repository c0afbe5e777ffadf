"""The catalogue for the browser: every operator with its pins, attributes and documents, and how things look.

All of it is `rowgrad`'s own; the page in the browser keeps no list of operators.
"""

from functools import cache
from typing import Any

import rowgrad
from rowgrad._ops import Attribute, Operator, Pin
from rowgrad._ops.catalogue import REQUIRED
from rowgrad._ops.docstrings import page_inputs
from rowgrad._ops.rule_text import texts
from rowgrad._runtime import dtypes
from rowgrad.blocks import OPTIMIZERS, looks
from rowgrad.blocks.looks import PINS, UNKNOWN, Look
from rowgrad.blocks.operators import BLOCKS, FAMILIES

TYPES = (*dtypes.PLAIN, *dtypes.QUANTISED)


@cache
def catalogue() -> dict[str, Any]:
    """The `Catalogue`."""
    return {
        "version": rowgrad.__version__,
        "families": [{"name": name, "title": title, **looks.tint(name)._asdict()} for name, title in FAMILIES.items()],
        "operators": [_operator(operator) for operator in BLOCKS.values()],
        "looks": {"": _look(UNKNOWN), **{dtype: _look(look) for dtype, look in PINS.items()}},
        "dtypes": list(TYPES),
        "optimizers": [{"name": name, "settings": dict(optimizer.settings)} for name, optimizer in OPTIMIZERS.items()],
    }


def pins_of(operator: Operator) -> dict[str, Any]:
    """The pins of an operator that is not in the catalogue: of a group, or made by a block's attributes."""
    return {
        "role": operator.role,
        "inputs": [_pin(operator, pin) for pin in operator.inputs],
        "outputs": [_pin(operator, pin) for pin in operator.outputs],
    }


def _look(look: Look) -> dict[str, str]:
    return {"shape": look.shape, "colour": look.colour}


def _operator(operator: Operator) -> dict[str, Any]:
    return {
        "name": operator.name,
        "family": operator.family,
        "role": operator.role,
        "summary": operator.summary,
        "formula": operator.formula,
        "notes": operator.notes,
        "errors": list(operator.errors),
        "cost": operator.cost,
        "inputs": [_pin(operator, pin) for pin in operator.inputs],
        "outputs": [_pin(operator, pin) for pin in operator.outputs],
        "attributes": [_attribute(operator, attribute) for attribute in operator.attributes],
        "gradient": {name: texts(rule) for name, rule in operator.gradient.items()},
        "example": {"inputs": page_inputs(operator), "attrs": dict(operator.example.attributes)},
    }


def _pin(operator: Operator, pin: Pin) -> dict[str, Any]:
    return {
        "name": pin.name,
        "dtype": pin.dtype,
        "dtypes": list(operator.dtypes_of(pin)),
        "shape": pin.shape,
        "doc": pin.doc,
        "many": pin.many,
    }


def _attribute(operator: Operator, attribute: Attribute) -> dict[str, Any]:
    is_required = attribute.default is REQUIRED
    return {
        "name": attribute.name,
        "kind": attribute.kind,
        "default": None if is_required else attribute.default,
        "required": is_required,
        "dtypes": list(operator.types.get(attribute.name, TYPES)) if attribute.kind == "dtype" else [],
        "doc": attribute.doc,
    }
