"""Filling empty rows, sparse and ragged, and the gradients, made of sort, cumsum and indexing."""

from collections.abc import Callable
from typing import Any

import torch

from rowgrad.torch._portable.common import complain, outside, signed, wide


def _fill(indices: Any, values: Any, rows: int, default_value: Any) -> tuple[Any, Any, Any, Any]:
    row_of, size = indices[:, 0], len(indices)
    counts = torch.zeros(rows, dtype=torch.int64, device=indices.device).index_add(0, row_of, torch.ones_like(row_of))
    empty, room = counts == 0, counts.clamp(min=1)
    first = room.cumsum(0) - room
    row_sorted, order = torch.sort(row_of, stable=True)
    within = torch.arange(size, device=indices.device) - (counts.cumsum(0) - counts)[row_sorted]
    reverse = torch.empty_like(row_of)
    reverse[order] = first[row_sorted] + within
    full = int(room.sum())
    output_indices = indices.new_zeros((full, indices.shape[1]))
    output_indices[reverse] = indices
    output_indices[first[empty], 0] = torch.nonzero(empty).reshape(-1)
    plain = signed(values)
    output_values = signed(default_value).expand(full).clone()
    output_values[reverse] = plain
    return output_indices, output_values.view(values.dtype), empty, reverse


def fill_sparse(indices: Any, values: Any, dense_shape: list[int], default_value: Any) -> Any:
    """Give each empty row of a sparse tensor one entry."""
    given = (indices, values, dense_shape, default_value)
    shaped = indices.dim() == 2 and values.dim() == 1 and len(values) == len(indices) and default_value.dim() == 0
    if not shaped or not dense_shape or len(dense_shape) != indices.shape[1] or dense_shape[0] < 0:
        complain("SparseFillEmptyRows", *given)
    if len(indices) and bool(outside(indices[:, 0], dense_shape[0])):
        complain("SparseFillEmptyRows", *given)
    return _fill(indices.long(), values, dense_shape[0], _alike(default_value, values))


def fill_ragged(value_rowids: Any, values: Any, nrows: int, default_value: Any) -> Any:
    """Give each empty row of a ragged tensor one value."""
    given = (value_rowids, values, nrows, default_value)
    shaped = value_rowids.dim() == values.dim() == 1 and len(values) == len(value_rowids) and default_value.dim() == 0
    if not shaped or nrows < 0 or (len(values) and bool(outside(value_rowids, nrows))):
        complain("RaggedFillEmptyRows", *given)
    rowids, *others = _fill(value_rowids.long().reshape(-1, 1), values, nrows, _alike(default_value, values))
    return (rowids.reshape(-1), *others)


def _alike(default_value: Any, values: Any) -> Any:
    return default_value.to(values.dtype)


def _backward(name: str) -> Callable[..., Any]:
    def gradient(reverse_index_map: Any, grad_values: Any) -> Any:
        if reverse_index_map.dim() != 1 or grad_values.dim() != 1:
            complain(name, reverse_index_map, grad_values)
        if len(reverse_index_map) and bool(outside(reverse_index_map, len(grad_values))):
            complain(name, reverse_index_map, grad_values)
        plain = signed(grad_values)
        kept = plain.index_select(0, reverse_index_map)
        filled = plain.to(wide(plain.dtype)).masked_fill(_reached(reverse_index_map, len(plain)), 0)
        default = filled.sum().to(plain.dtype)
        return kept.view(grad_values.dtype), default.view(grad_values.dtype)

    return gradient


def _reached(reverse_index_map: Any, full: int) -> Any:
    reached = torch.zeros(full, dtype=torch.bool, device=reverse_index_map.device)
    reached[reverse_index_map] = True
    return reached


def fill_grad_grad(reverse_index_map: Any, d_values_grad: Any, d_default_value_grad: Any, full_size: int) -> Any:
    """Send the gradients of both results of a fill gradient where they came from."""
    given = (reverse_index_map, d_values_grad, d_default_value_grad, full_size)
    shaped = reverse_index_map.dim() == d_values_grad.dim() == 1 and d_default_value_grad.dim() == 0
    if not shaped or len(reverse_index_map) != len(d_values_grad) or full_size < 0:
        complain("SparseFillEmptyRowsGradGrad", *given)
    if len(reverse_index_map) and bool(outside(reverse_index_map, full_size)):
        complain("SparseFillEmptyRowsGradGrad", *given)
    plain, default = signed(d_values_grad), signed(_alike(d_default_value_grad, d_values_grad))
    sums = plain.new_zeros(full_size, dtype=wide(plain.dtype))
    sums = sums.index_add(0, reverse_index_map, plain.to(sums.dtype)).to(plain.dtype)
    return torch.where(_reached(reverse_index_map, full_size), sums, default).view(d_values_grad.dtype)


PATHS: dict[str, Callable[..., Any]] = {
    "SparseFillEmptyRows": fill_sparse,
    "RaggedFillEmptyRows": fill_ragged,
    "SparseFillEmptyRowsGrad": _backward("SparseFillEmptyRowsGrad"),
    "RaggedFillEmptyRowsGrad": _backward("RaggedFillEmptyRowsGrad"),
    "SparseFillEmptyRowsGradGrad": fill_grad_grad,
}
