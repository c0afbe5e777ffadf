"""Pooled look-ups and their gradients, made of index_select and index_add."""

from collections.abc import Callable
from typing import Any

import torch

from rowgrad.torch._portable.common import complain, outside, per_row, signed, wide, zeros


def _scales(kind: str, segment_ids: Any, segments: int, dtype: torch.dtype) -> Any:
    """What each segment is scaled by: 1/n, or 1/sqrt(n), where n entries belong to it."""
    counts = torch.zeros(segments, dtype=torch.float64, device=_roomy(segment_ids))
    counts = counts.index_add(0, segment_ids.to(counts.device), torch.ones_like(segment_ids, dtype=torch.float64,
                                                                               device=counts.device))  # fmt: skip
    counts = counts.clamp(min=1)
    scales = counts.reciprocal() if kind == "Mean" else counts.sqrt().reciprocal()
    return scales.to(dtype).to(segment_ids.device)


def _roomy(tensor: Any) -> Any:
    """The tensor's device, or the CPU where the device has no float64 (MPS)."""
    return "cpu" if tensor.device.type == "mps" else tensor.device


def _forward(kind: str, counted: bool) -> Callable[..., Any]:
    name = f"SparseSegment{kind}" + "WithNumSegments" * counted

    def pool(data: Any, indices: Any, segment_ids: Any, num_segments: Any = None) -> Any:
        given = (data, indices, segment_ids, *((num_segments,) if counted else ()))
        shaped = indices.dim() == segment_ids.dim() == 1 and len(indices) == len(segment_ids) and data.dim() > 0
        if not shaped or (counted and num_segments < 0):
            complain(name, *given)
        if len(indices) == 0:
            return data.new_zeros((num_segments or 0, *data.shape[1:]))
        rows = num_segments if counted else max(int(segment_ids[-1]) + 1, 0)
        falls = (segment_ids[1:] < segment_ids[:-1]).any()
        if bool(falls | outside(segment_ids, rows) | outside(indices, len(data))):
            complain(name, *given)
        values = signed(data)
        rows_of_entries = values.index_select(0, indices).to(wide(values.dtype))
        sums = zeros(rows, values).index_add(0, segment_ids, rows_of_entries)
        if kind != "Sum":
            sums = sums * per_row(_scales(kind, segment_ids, rows, sums.dtype), sums)
        return sums.to(values.dtype).view(data.dtype)

    return pool


def check_pairs(name: str, values: Any, indices: Any, segment_ids: Any, count: int, given: tuple[Any, ...],
                rows: int, segments: int) -> bool:  # fmt: skip
    """Refuse what is wrong; gives whether there is anything to sum."""
    shaped = indices.dim() == segment_ids.dim() == 1 and len(indices) == len(segment_ids) and values.dim() > 0
    if not shaped or count < 0:
        complain(name, *given)
    if rows == 0 or len(indices) == 0:
        return False
    if bool(outside(indices, rows) | outside(segment_ids, segments)):
        complain(name, *given)
    return True


def _backward(kind: str, compact: bool) -> Callable[..., Any]:
    name = f"SparseSegment{kind}Grad" + "V2" * compact

    def gradient(grad: Any, indices: Any, segment_ids: Any, dim0: int) -> Any:
        given = (grad, indices, segment_ids, dim0)
        some = check_pairs(name, grad, indices, segment_ids, dim0, given, dim0, len(grad) if grad.dim() else 0)
        if not some:
            empty = grad.new_zeros((0 if compact else dim0, *grad.shape[1:]))
            return (empty, indices[:0]) if compact else empty
        values = grad.to(wide(grad.dtype)).index_select(0, segment_ids)
        if kind != "Sum":
            factors = _scales(kind, segment_ids, len(grad), values.dtype)
            values = values * per_row(factors.index_select(0, segment_ids), values)
        return sum_rows(values, indices, dim0, compact, grad.dtype)

    return gradient


def sum_rows(values: Any, rows: Any, limit: int, compact: bool, dtype: torch.dtype) -> Any:
    """Add each of `values` to its row: of all rows, or of those that occur."""
    if not compact:
        return zeros(limit, values).index_add(0, rows, values).to(dtype)
    unique, places = torch.unique(rows, sorted=True, return_inverse=True)
    return zeros(len(unique), values).index_add(0, places, values).to(dtype), unique


def _again(kind: str) -> Callable[..., Any]:
    name = f"SparseSegment{kind}GradGrad"

    def pool(grad: Any, indices: Any, segment_ids: Any, num_segments: int) -> Any:
        given = (grad, indices, segment_ids, num_segments)
        limit = len(grad) if grad.dim() else 0
        shaped = indices.dim() == segment_ids.dim() == 1 and len(indices) == len(segment_ids) and grad.dim() > 0
        if not shaped or num_segments < 0:
            complain(name, *given)
        if len(indices) == 0:
            return grad.new_zeros((num_segments, *grad.shape[1:]))
        if bool(outside(indices, limit) | outside(segment_ids, num_segments)):
            complain(name, *given)
        sums = zeros(num_segments, grad).index_add(0, segment_ids, grad.to(wide(grad.dtype)).index_select(0, indices))
        if kind != "Sum":
            sums = sums * per_row(_scales(kind, segment_ids, num_segments, sums.dtype), sums)
        return sums.to(grad.dtype)

    return pool


def index_rank(sorted_unique_indices: Any, indices: Any) -> Any:
    """Where each index stands among the sorted distinct ones."""
    given = (sorted_unique_indices, indices)
    if sorted_unique_indices.dim() != 1 or indices.dim() != 1:
        complain("IndexRank", *given)
    if len(indices) and not len(sorted_unique_indices):
        complain("IndexRank", *given)
    ranks = torch.searchsorted(sorted_unique_indices.long(), indices.long())
    if len(indices):
        found = sorted_unique_indices.index_select(0, ranks.clamp(max=len(sorted_unique_indices) - 1))
        if bool((found != indices).any()):
            complain("IndexRank", *given)
    return ranks


PATHS: dict[str, Callable[..., Any]] = {"IndexRank": index_rank}
for _kind in ("Sum", "Mean", "SqrtN"):
    PATHS[f"SparseSegment{_kind}"] = _forward(_kind, False)
    PATHS[f"SparseSegment{_kind}WithNumSegments"] = _forward(_kind, True)
    PATHS[f"SparseSegment{_kind}Grad"] = _backward(_kind, False)
    PATHS[f"SparseSegment{_kind}GradV2"] = _backward(_kind, True)
    PATHS[f"SparseSegment{_kind}GradGrad"] = _again(_kind)
