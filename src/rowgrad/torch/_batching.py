"""`torch.func.vmap` of the operators.

Where only tables and gradients are batched (pins such as ``data [V, ...]``), the batch becomes one more column: a
single call. Otherwise the operator is called once for each element of the batch, and the results are stacked; where
their sizes depend on values, that cannot be, and is refused.
"""

import ast
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from rowgrad._ops import Operator
from rowgrad._ops.shapes import has_columns, is_open, parts_of
from rowgrad.errors import InvalidArgumentError
from rowgrad.torch._fake import inferred
from rowgrad.torch._schema import snake_case


@cache
def _takes_columns(operator: Operator) -> frozenset[int]:
    """The inputs whose batch can become a column: rows of any further dimensions, each column computed on its own."""
    columns = {i for i, pin in enumerate(operator.inputs) if has_columns(pin)}
    values = {operator.inputs[i].dtype for i in columns if operator.inputs[i].dtype in operator.types}
    # A result of values that has no columns (a dot product) has summed over them.
    if any(not is_open(pin) and (pin.dtype in values or pin.dtype not in _whole(operator)) for pin in operator.outputs):
        return frozenset()
    return frozenset(columns)


def _whole(operator: Operator) -> set[str]:
    """The types and type variables that stand for whole numbers or truth values only."""
    plain = {"int32", "int64", "bool"}
    return plain | {variable for variable, names in operator.types.items() if set(names) <= plain}


def vmap_rule(operator: Operator) -> Callable[..., Any]:
    """The function that `torch.library.register_vmap` takes."""
    overload = getattr(torch.ops.rowgrad, snake_case(operator.name)).default

    def rule(info: Any, in_dims: tuple[Any, ...], *values: Any, **attributes: Any) -> Any:
        # For a list there is a list of dimensions; those of sizes are all None.
        in_dims = tuple(None if isinstance(dim, list | tuple) and set(dim) == {None} else dim for dim in in_dims)
        batched = frozenset(i for i, dim in enumerate(in_dims) if dim is not None)
        columns = _takes_columns(operator)
        if batched and batched <= columns and not _decides_rows(operator, batched):
            return _as_columns(operator, overload, columns, info.batch_size, in_dims, values, attributes)
        elements = [tuple(_element(value, dim, i) for value, dim in zip(values, in_dims, strict=True))
                    for i in range(info.batch_size)]  # fmt: skip
        if elements:
            _refuse_unknown_sizes(operator, batched, elements[0], attributes)
        results = [overload(*element, **attributes) for element in elements]
        if operator.result is None:
            return torch.stack(results), 0
        return tuple(map(torch.stack, zip(*results, strict=True))), (0,) * len(operator.outputs)

    return rule


def _element(value: Any, dim: Any, position: int) -> Any:
    """What one call of a batch takes."""
    if isinstance(dim, list | tuple):
        return [_element(part, of_part, position) for part, of_part in zip(value, dim, strict=True)]
    return value if dim is None else value.select(dim, position)


def _decides_rows(operator: Operator, batched: frozenset[int]) -> bool:
    """Whether ids are batched (the rows that a maximum chose) while a result lists the rows of all columns."""
    ids = any(operator.inputs[i].dtype in _whole(operator) for i in batched)
    return ids and not all(map(is_open, operator.outputs))


def _as_columns(operator: Operator, overload: Any, columns: frozenset[int], size: int, in_dims: tuple[Any, ...],
                values: tuple[Any, ...], attributes: dict[str, Any]) -> Any:  # fmt: skip
    moved = list(values)
    for i in columns:
        dim = in_dims[i]
        if dim is not None:
            moved[i] = values[i].movedim(dim, -1)
        else:
            moved[i] = values[i].unsqueeze(-1).expand(*values[i].shape, size)
    results = overload(*moved, **attributes)
    if operator.result is None:
        return results, results.dim() - 1
    dims = tuple(result.dim() - 1 if is_open(pin) else None
                 for pin, result in zip(operator.outputs, results, strict=True))  # fmt: skip
    return results, dims


def _refuse_unknown_sizes(
    operator: Operator, batched: frozenset[int], values: tuple[Any, ...], attributes: dict[str, Any]
) -> None:
    """An output whose size depends on values of a batched input has as many sizes as the batch has elements."""
    known = inferred(operator, values, attributes) if operator.shape_rule else {}
    for pin in operator.outputs:
        if None not in (known.get(pin.name) or (None,)):
            continue
        for part in parts_of(pin.shape):
            if _depends_on_values(part, operator):
                raise InvalidArgumentError(
                    f"the size of {pin.name} depends on values, so the results of a batch cannot be stacked. "
                    f"{_way_out(part)}",
                    code="not-batchable",
                    argument=operator.inputs[min(batched)].name if batched else None,
                    op=operator.name,
                )


def _depends_on_values(part: ast.expr, operator: Operator) -> bool:
    if isinstance(part, ast.Constant | ast.Subscript):
        return False
    if not isinstance(part, ast.Name):
        return True
    sizes = {node.id for pin in operator.inputs for p in parts_of(pin.shape) for node in ast.walk(p)
             if isinstance(node, ast.Name)}  # fmt: skip
    return part.id not in sizes | {pin.name for pin in operator.inputs}


def _way_out(part: ast.expr) -> str:
    if isinstance(part, ast.Name):
        return "Batch only the values, or call once for each element."
    return "Pass num_segments, which says how many rows there are."
