"""Weighted sums of looked-up rows, and dot products of rows, made of index_select and index_add."""

from collections.abc import Callable
from typing import Any

import torch

from rowgrad.torch._portable.common import complain, outside, per_row, wide, zeros
from rowgrad.torch._portable.sparse_segment import sum_rows
from rowgrad.torch._schema import DTYPES


def _shaped(values: Any, *entries: Any) -> bool:
    return values.dim() > 0 and all(x.dim() == 1 and len(x) == len(entries[0]) for x in entries)


def _weighted(values: Any, weights: Any, rows: Any) -> Any:
    """The rows of the entries times their weights, in the type that sums are made in."""
    chosen = values.to(wide(values.dtype)).index_select(0, rows)
    return chosen * per_row(weights.to(chosen.dtype), chosen)


def weighted_sum(data: Any, weights: Any, indices: Any, segment_ids: Any, num_segments: int) -> Any:
    """Look up rows and add them up by segment, each times its weight."""
    given = (data, weights, indices, segment_ids, num_segments)
    if not _shaped(data, weights, indices, segment_ids) or num_segments < 0:
        complain("SparseSegmentWeightedSum", *given)
    if len(indices) == 0:
        return data.new_zeros((num_segments, *data.shape[1:]))
    if bool(outside(indices, len(data)) | outside(segment_ids, num_segments)):
        complain("SparseSegmentWeightedSum", *given)
    return zeros(num_segments, data).index_add(0, segment_ids, _weighted(data, weights, indices)).to(data.dtype)


def weighted_sum_grad_v2(grad: Any, weights: Any, indices: Any, segment_ids: Any, dense_output_dim0: int) -> Any:
    """The gradient to the table, with rows only where there are any."""
    given = (grad, weights, indices, segment_ids, dense_output_dim0)
    if not _shaped(grad, weights, indices, segment_ids) or dense_output_dim0 < 0:
        complain("SparseSegmentWeightedSumGradV2", *given)
    if len(indices) == 0 or dense_output_dim0 == 0:
        return grad.new_zeros((0, *grad.shape[1:])), indices[:0]
    if bool(outside(indices, dense_output_dim0) | outside(segment_ids, len(grad))):
        complain("SparseSegmentWeightedSumGradV2", *given)
    return sum_rows(_weighted(grad, weights, segment_ids), indices, dense_output_dim0, True, grad.dtype)


def row_dot(a: Any, b: Any, a_rows: Any, b_rows: Any, *, out_type: str | None) -> Any:
    """The dot product of a row of each, pair by pair."""
    given = (a, b, a_rows, b_rows)
    if not _shaped(a, a_rows, b_rows) or b.dim() == 0 or a.shape[1:] != b.shape[1:]:
        complain("RowDot", *given)
    if len(a_rows) and bool(outside(a_rows, len(a)) | outside(b_rows, len(b))):
        complain("RowDot", *given)
    left, right = (x.to(wide(x.dtype)).index_select(0, rows) for x, rows in ((a, a_rows), (b, b_rows)))
    products = torch.mul(left, right).reshape(len(a_rows), a[:1].numel() if len(a) else 0)
    return products.sum(1).to(a.dtype if out_type is None else DTYPES[out_type])


PATHS: dict[str, Callable[..., Any]] = {
    "SparseSegmentWeightedSum": weighted_sum,
    "SparseSegmentWeightedSumGradV2": weighted_sum_grad_v2,
    "RowDot": row_dot,
}
