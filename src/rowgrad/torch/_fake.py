"""What an operator gives, before anything runs: tensors of the right shapes and types, without values.

Shapes come from the catalogue: the notation of pins, or the operator's shape rule. A size that only a run can tell (how
many rows are distinct) is a new symbol.
"""

import ast
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from rowgrad._ops import Operator, Pin
from rowgrad._ops.pins import Input
from rowgrad._ops.shapes import infer, parts_of
from rowgrad._runtime import dtypes
from rowgrad.torch._schema import DTYPES, NAMES, Role, roles, settings


def fake_kernel(operator: Operator) -> Callable[..., Any]:
    """The function that `torch.library.register_fake` takes."""

    def fake(*values: Any, **given: Any) -> Any:
        attributes = settings(operator, given)
        found = result_dtypes(operator, values, attributes)
        device = device_of(values)
        sizes = _by_notation if operator.shape_rule is None else _by_rule
        shapes = sizes(operator, values, attributes)
        results = tuple(
            torch.empty(shapes[pin.name], dtype=dtype, device=device)
            for pin, dtype in zip(operator.outputs, found, strict=True)
        )
        return results if operator.result is not None else results[0]

    return fake


def device_of(values: tuple[Any, ...]) -> torch.device:
    """The device of the first tensor."""
    for value in values:
        if isinstance(value, torch.Tensor):
            return value.device
        if isinstance(value, list | tuple) and value and isinstance(value[0], torch.Tensor):
            return value[0].device
    return torch.device("cpu")


def result_dtypes(operator: Operator, values: tuple[Any, ...], attributes: dict[str, Any]) -> list[torch.dtype]:
    """The types of the outputs; an input of a type that its pin does not take is refused here already."""
    known: dict[str, torch.dtype] = {}
    for fitter, value in zip(operator.fitters, values, strict=True):
        first = value[0] if fitter.pin.many else value
        if isinstance(first, torch.Tensor):
            known.setdefault(fitter.pin.dtype, settled(operator, fitter, first.dtype))
        else:
            known.setdefault(fitter.pin.dtype, torch.int64)
    return [_dtype(operator, pin, known, attributes) for pin in operator.outputs]


def _dtype(operator: Operator, pin: Pin, known: dict[str, torch.dtype], attributes: dict[str, Any]) -> torch.dtype:
    if attributes.get(pin.dtype) in DTYPES:  # an attribute may name the type of an output, as that of Cast does
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
                shapes[pin.name] = (len(value) // 2, 2) if pin.shape == "[rank, 2]" else (len(value),)
            case Role.COUNT:
                shapes[pin.name] = ()
    return shapes


def _by_notation(operator: Operator, values: tuple[Any, ...], _: Any) -> dict[str, Any]:
    """Shapes as the pins spell them; sizes stay symbols where they are."""
    inferred = infer(operator, _shapes(operator, values), {})
    numbers = {pin.name: value for pin, role, value in zip(operator.inputs, roles(operator), values, strict=True)
               if role in (Role.COUNT, Role.SIZES)}  # fmt: skip
    symbols: dict[str, Any] = {}
    shapes: dict[str, Any] = {}
    for pin in operator.outputs:
        stated, shape = parts_of(pin.shape), list(inferred[pin.name] or ())
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


def _by_rule(operator: Operator, values: tuple[Any, ...], attributes: dict[str, Any]) -> dict[str, Any]:
    """Shapes by the operator's rule; where it cannot follow symbols, the program is bound to the sizes it has now."""
    shapes = _shapes(operator, values)
    found = infer(operator, shapes, _numbers(operator, values), attributes)
    if any(shape is None or None in shape for shape in found.values()):
        bound = {name: [_bound(part) for part in shape] if isinstance(shape, list) else _bound(shape)
                 for name, shape in shapes.items()}  # fmt: skip
        found = infer(operator, bound, _numbers(operator, values), attributes)
    new = torch.library.get_ctx().new_dynamic_size
    return {name: [new() if size is None else size for size in _ranked(name, shape)] for name, shape in found.items()}


def _ranked(name: str, shape: Any) -> Any:
    if shape is None:
        raise NotImplementedError(f"the rank of {name} is not known before the run")
    return shape


def _bound(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(size if free_unbacked_symbols(size) else int(size) for size in shape)


def _numbers(operator: Operator, values: tuple[Any, ...]) -> dict[str, Any]:
    """The inputs whose values are known as numbers."""
    numbers: dict[str, Any] = {}
    for pin, role, value in zip(operator.inputs, roles(operator), values, strict=True):
        if role not in (Role.COUNT, Role.SIZES):
            continue
        items = [value] if role is Role.COUNT else value
        if any(free_unbacked_symbols(item) for item in items):
            continue
        array = np.array([int(item) for item in items], np.int64)
        numbers[pin.name] = int(array[0]) if role is Role.COUNT else (
            array.reshape(-1, 2) if pin.shape == "[rank, 2]" else array)  # fmt: skip
    return numbers
