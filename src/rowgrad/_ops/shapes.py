"""The shape rule: from the shapes of an operator's inputs to those of its outputs, before anything runs.

Shapes in declarations are read as in `pins`. A size that is not known yet may have a name (``"batch"``); one that
cannot be known without running (how many rows are distinct, say) is None. A shape of which not even the rank is known
is None as a whole.
"""

import ast
from collections.abc import Mapping
from functools import cache
from typing import Any

from rowgrad._ops.catalogue import Operator
from rowgrad._ops.pins import Pin
from rowgrad.errors import InvalidArgumentError

Size = int | str | None
Shape = tuple[Size, ...]


@cache
def parts_of(text: str) -> tuple[ast.expr, ...]:
    """The sizes in a shape such as ``[N, rank]``; ``...`` stands for any further ones."""
    tree = ast.parse(text, mode="eval").body
    assert isinstance(tree, ast.List)
    return tuple(tree.elts)


def infer(
    operator: Operator,
    shapes: Mapping[str, Any],
    values: Mapping[str, Any],
    attributes: Mapping[str, Any] | None = None,
) -> dict[str, Shape | None]:
    """The shapes of the outputs.

    `shapes` holds those of the inputs that are known (a list of them for a pin that takes many), `values` the inputs
    whose values are known already.
    """
    if operator.shape_rule is not None:
        return dict(operator.shape_rule(shapes, values, attributes or {}))
    sizes: dict[str, Size] = {}
    rest: Shape | None = None
    for pin in operator.inputs:
        if shapes.get(pin.name) is not None:
            rest = _match(pin, shapes[pin.name], sizes) or rest
    if rest is None and any(shapes.get(pin.name) is None for pin in operator.inputs if is_open(pin)):
        return {pin.name: None if is_open(pin) else _shape(pin, sizes, (), values) for pin in operator.outputs}
    return {pin.name: _shape(pin, sizes, rest or (), values) for pin in operator.outputs}


def is_open(pin: Pin) -> bool:
    """Whether `pin` takes or gives arrays of any further dimensions."""
    return pin.shape.endswith("...]")


def has_columns(pin: Pin) -> bool:
    """Whether `pin` takes or gives rows of any further dimensions."""
    return is_open(pin) and len(parts_of(pin.shape)) > 1


def size_names(pin: Pin, rank: int) -> tuple[str, ...]:
    """The letters by which `pin` calls its first sizes; the positions of those that have none."""
    return tuple(
        part.id if isinstance(part, ast.Name) else f"{pin.name}{axis}"
        for axis, part in enumerate(parts_of(pin.shape)[:rank])
        if not isinstance(part, ast.Constant)
    )


def same_size(left: Size, right: Size) -> bool | None:
    """Whether two sizes are equal; None where that is not known yet."""
    if left == right and left is not None:
        return True
    return False if isinstance(left, int) and isinstance(right, int) else None


def _match(pin: Pin, shape: Shape, sizes: dict[str, Size]) -> Shape:
    """Bind the sizes that `pin` names to those of `shape`; gives what ``...`` stands for."""
    parts = parts_of(pin.shape)
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
        if isinstance(known, int) and isinstance(size, int) and known != size:
            raise InvalidArgumentError(
                f"{pin.name} has shape {list(shape)}, but {name} is {known} by the inputs before it.",
                code="length-mismatch",
                argument=pin.name,
                value=shape,
            )
        sizes[name] = known if isinstance(known, int) or size is None else size
    return shape[len(named) :]


def _shape(pin: Pin, sizes: Mapping[str, Size], rest: Shape, values: Mapping[str, Any]) -> Shape:
    shape: list[Size] = []
    for part in parts_of(pin.shape):
        if isinstance(part, ast.Constant):
            shape.extend(rest)
        else:
            shape.append(_size(part, sizes, values))
    return tuple(shape)


def _size(part: ast.expr, sizes: Mapping[str, Size], values: Mapping[str, Any]) -> Size:
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
