"""What an operator gives, before anything runs: tensors of the right shapes and types, without values.

Shapes come from the catalogue, by the notation of pins. A size that only a run can tell (how many rows are distinct) is
a new symbol.
"""

import ast
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

from rowgrad._ops import Operator, Pin
from rowgrad._ops.pins import Input
from rowgrad._ops.shapes import infer, parts_of
from rowgrad._runtime import dtypes
from rowgrad.torch._kernels import device_of
from rowgrad.torch._schema import DTYPES, NAMES, Role, roles, settings


def fake_kernel(operator: Operator) -> Callable[..., Any]:
    """The function that `torch.library.register_fake` takes."""

    def fake(*values: Any, **given: Any) -> Any:
        attributes = settings(operator, given)
        found = result_dtypes(operator, values, attributes)
        device = device_of(values)
        shapes = _result_shapes(operator, values, attributes)
        results = tuple(
            torch.empty(shapes[pin.name], dtype=dtype, device=device)
            for pin, dtype in zip(operator.outputs, found, strict=True)
        )
        return results if operator.result is not None else results[0]

    return fake


def result_dtypes(operator: Operator, values: tuple[Any, ...], attributes: dict[str, Any]) -> list[torch.dtype]:
    """The types of the outputs; an input of a type that its pin does not take is refused here already."""
    known: dict[str, torch.dtype] = {}
    for fitter, value in zip(operator.fitters, values, strict=True):
        if fitter.pin.many:
            known.setdefault(fitter.pin.dtype, settled(operator, fitter, value[0].dtype))
        elif isinstance(value, torch.Tensor):
            known.setdefault(fitter.pin.dtype, settled(operator, fitter, value.dtype))
        else:
            known.setdefault(fitter.pin.dtype, torch.int64)
    return [_dtype(operator, pin, known, attributes) for pin in operator.outputs]


def _dtype(operator: Operator, pin: Pin, known: dict[str, torch.dtype], attributes: dict[str, Any]) -> torch.dtype:
    if attributes.get(pin.dtype) in DTYPES:  # an attribute may name the type of an output, as that of RowDot does
        return DTYPES[attributes[pin.dtype]]
    if pin.dtype in attributes:  # left open: it is that of the values
        return known["T"]
    return known[pin.dtype] if pin.dtype in known else DTYPES[pin.dtype]


@cache
def settled(operator: Operator, fitter: Input, dtype: torch.dtype) -> torch.dtype:
    """The type that a tensor of `dtype` has once it fits its pin: smaller integers may be ids, say."""
    name = NAMES.get(dtype)
    array = np.empty((0,) * (1 + fitter.is_count), dtypes.NUMPY[name] if name else np.dtype("V2"))
    try:
        fitted = Input.fit(fitter, array)
    except Exception as error:
        error.op = operator.name  # type: ignore[attr-defined]
        raise
    return DTYPES[dtypes.name_of(fitted.dtype)]


def _shapes(operator: Operator, values: tuple[Any, ...]) -> dict[str, Any]:
    shapes: dict[str, Any] = {}
    for pin, role, value in zip(operator.inputs, roles(operator), values, strict=True):
        match role:
            case Role.TENSOR:
                shapes[pin.name] = tuple(value.shape)
            case Role.TENSORS:
                shapes[pin.name] = [tuple(part.shape) for part in value]
            case Role.SIZES:
                shapes[pin.name] = (len(value),)
            case Role.COUNT:
                shapes[pin.name] = ()
    return shapes


def _numbers(operator: Operator, values: tuple[Any, ...]) -> dict[str, Any]:
    """The counts and lists of sizes among the inputs."""
    return {pin.name: value for pin, role, value in zip(operator.inputs, roles(operator), values, strict=True)
            if role in (Role.COUNT, Role.SIZES)}  # fmt: skip


def inferred(operator: Operator, values: tuple[Any, ...], attributes: dict[str, Any]) -> dict[str, Any]:
    """The shapes of the outputs, as far as they are known before a run."""
    numbers = _numbers(operator, values) if operator.shape_rule else {}
    return infer(operator, _shapes(operator, values), numbers, attributes)


def _result_shapes(operator: Operator, values: tuple[Any, ...], attributes: dict[str, Any]) -> dict[str, Any]:
    """Shapes as the pins spell them; sizes stay symbols where they are."""
    numbers = _numbers(operator, values)
    found = inferred(operator, values, attributes)
    symbols: dict[str, Any] = {}
    shapes: dict[str, Any] = {}
    for pin in operator.outputs:
        stated, shape = parts_of(pin.shape), list(found[pin.name] or ())
        for axis, size in enumerate(shape):
            if size is None:
                shape[axis] = _size(stated[axis], numbers, symbols)
        shapes[pin.name] = shape
    return shapes


def _size(part: ast.expr, numbers: dict[str, Any], symbols: dict[str, Any]) -> Any:
    match part:
        case ast.Name(id=name) if name in numbers:
            return numbers[name]
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int() as position)) if name in numbers:
            return numbers[name][position]
    letter = ast.unparse(part)
    if letter not in symbols:
        symbols[letter] = torch.library.get_ctx().new_dynamic_size()
    return symbols[letter]
