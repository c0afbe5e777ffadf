"""The shape rule: from the shapes of an operator's inputs to those of its outputs, before anything runs.

Shapes in declarations are read as in `pins`. A size that cannot be known without running (how many rows are distinct,
say) is None.
"""

import ast
from collections.abc import Mapping
from functools import cache
from typing import Any

from rowgrad.errors import InvalidArgumentError
from rowgrad.ops.catalogue import Operator
from rowgrad.ops.pins import Pin

Shape = tuple[int | None, ...]


@cache
def _parts(text: str) -> tuple[ast.expr, ...]:
    """The sizes in a shape such as ``[N, rank]``; ``...`` stands for any further ones."""
    tree = ast.parse(text, mode="eval").body
    assert isinstance(tree, ast.List)
    return tuple(tree.elts)


def infer(operator: Operator, shapes: Mapping[str, Shape], values: Mapping[str, Any]) -> dict[str, Shape]:
    """The shapes of the outputs; `values` holds the inputs whose values are known already."""
    sizes: dict[str, int | None] = {}
    rest: Shape = ()
    for pin in operator.inputs:
        if pin.name in shapes:
            rest = _match(pin, shapes[pin.name], sizes) or rest
    return {pin.name: _shape(pin, sizes, rest, values) for pin in operator.outputs}


def _match(pin: Pin, shape: Shape, sizes: dict[str, int | None]) -> Shape:
    """Bind the sizes that `pin` names to those of `shape`; gives what ``...`` stands for."""
    parts = _parts(pin.shape)
    open_ended = bool(parts) and isinstance(parts[-1], ast.Constant)
    named = parts[:-1] if open_ended else parts
    if len(shape) < len(named) or (len(shape) > len(named) and not open_ended):
        raise InvalidArgumentError(
            f"{pin.name} has shape {list(shape)}; it must be {pin.shape}.",
            code="wrong-rank",
            argument=pin.name,
            value=shape,
        )
    for part, size in zip(named, shape, strict=False):
        name = ast.unparse(part)
        known = sizes.get(name)
        if known is not None and size is not None and known != size:
            raise InvalidArgumentError(
                f"{pin.name} has shape {list(shape)}, but {name} is {known} by the inputs before it.",
                code="length-mismatch",
                argument=pin.name,
                value=shape,
            )
        sizes[name] = size if known is None else known
    return shape[len(named) :]


def _shape(pin: Pin, sizes: Mapping[str, int | None], rest: Shape, values: Mapping[str, Any]) -> Shape:
    shape: list[int | None] = []
    for part in _parts(pin.shape):
        if isinstance(part, ast.Constant):
            shape.extend(rest)
        else:
            shape.append(_size(part, sizes, values))
    return tuple(shape)


def _size(part: ast.expr, sizes: Mapping[str, int | None], values: Mapping[str, Any]) -> int | None:
    match part:
        case ast.Name(id=name) if name in values:
            return int(values[name])
        case ast.Name(id=name):
            return sizes.get(name)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int() as position)):
            return int(values[name][position]) if name in values else None
        case ast.BinOp(left=ast.Call(func=ast.Name(id="last"), args=[ast.Name(id=name)])):  # last(x) + 1
            if name not in values:
                return None
            return int(values[name][-1]) + 1 if len(values[name]) else 0
    raise ValueError(f"a shape cannot contain {ast.unparse(part)}")
