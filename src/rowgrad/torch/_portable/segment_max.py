"""The largest of looked-up rows, column by column, and the gradients, made of scatter_reduce and gather."""

from collections.abc import Callable
from typing import Any

import torch

from rowgrad.torch._portable.common import complain, outside, per_row, wide, zeros


def segment_max(data: Any, indices: Any, segment_ids: Any, num_segments: int) -> Any:
    """Per column the largest of a segment's rows, and the table row that it came from."""
    given = (data, indices, segment_ids, num_segments)
    shaped = indices.dim() == segment_ids.dim() == 1 and len(indices) == len(segment_ids) and data.dim() > 0
    if not shaped or num_segments < 0:
        complain("SparseSegmentMax", *given)
    shape = (num_segments, *data.shape[1:])
    if len(indices) == 0:
        return data.new_zeros(shape), indices.new_full(shape, -1, dtype=torch.int64)
    if bool(outside(indices, len(data)) | outside(segment_ids, num_segments)):
        complain("SparseSegmentMax", *given)
    entries = data.index_select(0, indices).to(wide(data.dtype))
    places = per_row(segment_ids.long(), entries).expand_as(entries)
    largest = entries.new_full(shape, -torch.inf).scatter_reduce(0, places, entries, "amax")
    # The first entry that has the largest value; a NaN, which is larger than all, equals only NaNs.
    is_largest = (entries == largest.gather(0, places)) | entries.isnan()
    count = len(indices)
    numbers = per_row(torch.arange(count, device=data.device), entries).expand_as(entries)
    numbers = torch.where(is_largest, numbers, count)
    first = numbers.new_full(shape, count).scatter_reduce(0, places, numbers, "amin")
    chosen = torch.cat([indices.long(), indices.new_full((1,), -1, dtype=torch.int64)])[first]
    if len(data) == 0:
        return data.new_zeros(shape), chosen
    return torch.where(chosen < 0, 0, data.gather(0, chosen.clamp(min=0))), chosen


def _check(name: str, grad: Any, chosen: Any, rows: int, *given: Any) -> None:
    if grad.dim() == 0 or chosen.shape != grad.shape or rows < 0:
        complain(name, *given)
    if chosen.numel() and bool(((chosen < -1) | (chosen >= rows)).any()):
        complain(name, *given)


def max_grad(grad: Any, chosen: Any, output_dim0: int) -> Any:
    """Send each gradient to the row that was chosen."""
    _check("SparseSegmentMaxGrad", grad, chosen, output_dim0, grad, chosen, output_dim0)
    if output_dim0 == 0 or chosen.numel() == 0:
        return grad.new_zeros((output_dim0, *grad.shape[1:]))
    sent = grad.to(wide(grad.dtype)).masked_fill(chosen < 0, 0)
    return zeros(output_dim0, grad).scatter_add(0, chosen.clamp(min=0), sent).to(grad.dtype)


def max_grad_v2(grad: Any, chosen: Any, dense_output_dim0: int) -> Any:
    """The same, with rows only where one was chosen."""
    _check("SparseSegmentMaxGradV2", grad, chosen, dense_output_dim0, grad, chosen, dense_output_dim0)
    unique = torch.unique(chosen[chosen >= 0])
    if len(unique) == 0:
        return grad.new_zeros((0, *grad.shape[1:])), unique
    ranks = torch.searchsorted(unique, chosen.contiguous())
    sent = grad.to(wide(grad.dtype)).masked_fill(chosen < 0, 0)
    return zeros(len(unique), grad).scatter_add(0, ranks, sent).to(grad.dtype), unique


def max_grad_grad(grad: Any, chosen: Any) -> Any:
    """Take each segment's element from the row that was chosen."""
    if grad.dim() == 0 or chosen.dim() != grad.dim() or chosen.shape[1:] != grad.shape[1:]:
        complain("SparseSegmentMaxGradGrad", grad, chosen)
    if chosen.numel() and bool(((chosen < -1) | (chosen >= len(grad))).any()):
        complain("SparseSegmentMaxGradGrad", grad, chosen)
    if len(grad) == 0:
        return grad.new_zeros(chosen.shape)
    return grad.gather(0, chosen.clamp(min=0)).masked_fill(chosen < 0, 0)


def chosen_rank(sorted_unique_indices: Any, chosen: Any) -> Any:
    """Where each chosen row stands among the sorted distinct ones; −1 stays −1."""
    if sorted_unique_indices.dim() != 1:
        complain("ChosenRank", sorted_unique_indices, chosen)
    if len(sorted_unique_indices) == 0:
        if bool((chosen != -1).any()):
            complain("ChosenRank", sorted_unique_indices, chosen)
        return torch.full_like(chosen, -1)
    ranks = torch.searchsorted(sorted_unique_indices, chosen.contiguous()).clamp(max=len(sorted_unique_indices) - 1)
    found = (sorted_unique_indices[ranks] == chosen) | (chosen == -1)
    if not bool(found.all()):
        complain("ChosenRank", sorted_unique_indices, chosen)
    return ranks.masked_fill(chosen == -1, -1)


PATHS: dict[str, Callable[..., Any]] = {
    "SparseSegmentMax": segment_max,
    "SparseSegmentMaxGrad": max_grad,
    "SparseSegmentMaxGradV2": max_grad_v2,
    "SparseSegmentMaxGradGrad": max_grad_grad,
    "ChosenRank": chosen_rank,
}
