"""Pooling with gradients: one autograd function for all layers, with dense, compact or fused gradients.

The gradient of the table is a dense tensor, or a sparse one that is coalesced as it is, or none at all: then the
table is changed in the backward pass, row by row, and its gradient is never in memory.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rowgrad._ops import OPERATORS
from rowgrad._ops.combiners import COMBINERS
from rowgrad._ops.results import RowGradient
from rowgrad.errors import InvalidArgumentError
from rowgrad.torch._bags import is_plain, on_arrays
from rowgrad.torch._schema import snake_case

MADE = "_rowgrad_rows"  # on a table: the row numbers of its last gradient, until that is accumulated


class Way(NamedTuple):
    """How rows are pooled and what their gradient is.

    `by_frequency` divides a row's gradient by how often the row occurs; `update` changes the table at once.
    """

    combiner: str
    sparse: bool = False
    by_frequency: bool = False
    update: Callable[..., None] | None = None


def pool(weight: Tensor, ids: Tensor, segment_ids: Tensor, bags: int, factors: Tensor | None, way: Way) -> Tensor:
    """The pooled rows; `factors` multiply the entries, whose sums are taken then."""
    # The transforms of torch.func know no sparse gradients.
    transformed = torch._C._are_functorch_transforms_active() and way.update is None
    if transformed or not (way.sparse or way.by_frequency or way.update is not None):
        return _differentiable(weight, ids, segment_ids, bags, factors, way.combiner)
    if way.sparse and way.update is None and weight.is_leaf and weight.requires_grad:
        keep_coalesced(weight)
    return _Pool.apply(weight, ids, segment_ids, bags, factors, way)


def factors_of(weights: Tensor, segment_ids: Tensor, bags: int, combiner: str) -> Tensor:
    """What entries are multiplied by so that their sum is the weighted sum, mean or sqrtn; Σ w = 0 gives 0."""
    if weights.dtype in (torch.float16, torch.bfloat16):
        weights = weights.float()
    if combiner == "sum":
        return weights
    squares = weights * weights if combiner == "sqrtn" else weights
    total = torch.zeros(bags, dtype=weights.dtype, device=weights.device).index_add(0, segment_ids, squares)
    known = total != 0
    total = torch.where(known, total, 1)
    scale = torch.where(known, total.rsqrt() if combiner == "sqrtn" else 1 / total, 0)
    return weights * scale[segment_ids]


def _differentiable(
    weight: Tensor, ids: Tensor, segment_ids: Tensor, bags: int, factors: Tensor | None, combiner: str
) -> Tensor:
    """By the operators alone, whose gradients are dense and have gradients of any order."""
    ops = torch.ops.rowgrad
    if factors is not None:
        return ops.sparse_segment_weighted_sum(weight, factors, ids, segment_ids, bags)
    if combiner == "max":
        return ops.sparse_segment_max(weight, ids, segment_ids, bags)[0]
    operator = getattr(ops, f"{COMBINERS[combiner].function}_with_num_segments")
    return operator(weight, ids, segment_ids, bags)


class _Pool(torch.autograd.Function):
    """Pooling whose gradient to the table is compact, or used up at once."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, segment_ids: Tensor, bags: int, factors: Tensor | None,
                way: Way) -> Tensor:  # fmt: skip
        ctx.way, ctx.shape, ctx.weight = way, weight.shape, weight
        if way.combiner == "max":
            output, chosen = _run("SparseSegmentMax", weight, ids, segment_ids, bags)
            ctx.save_for_backward(chosen)
            return output
        if factors is None:
            ctx.save_for_backward(ids, segment_ids)
            name = f"SparseSegment{COMBINERS[way.combiner].name}WithNumSegments"
            return _run(name, weight, ids, segment_ids, bags)
        ctx.save_for_backward(ids, segment_ids, factors, weight if factors.requires_grad else None)
        return _run("SparseSegmentWeightedSum", weight, factors, ids, segment_ids, bags)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        way: Way = ctx.way
        if way.combiner == "max":
            (chosen,) = ctx.saved_tensors
            gradient = _compact("SparseSegmentMaxGradV2", grad, chosen, ctx.shape[0])
            return _settled(ctx, gradient), None, None, None, None, None
        ids, segment_ids, factors, weight = (*ctx.saved_tensors, None, None)[:4]
        d_factors = None
        if ctx.needs_input_grad[4]:
            d_factors = _dot(grad, weight, segment_ids, ids, factors.dtype)
        d_weight = None
        if way.update is not None:
            refuse_second_order()
            if ctx.needs_input_grad[0]:
                way.update(ctx.weight, grad, ids, segment_ids, factors)
        elif ctx.needs_input_grad[0]:
            gradient = compact_gradient(way.combiner, grad, ids, segment_ids, factors, ctx.shape[0])
            if way.by_frequency:
                ones = grad.new_ones(grad.shape[0], 1)
                counts, _ = _compact("SparseSegmentSumGradV2", ones, ids, segment_ids, ctx.shape[0])
                gradient = RowGradient(gradient.output / counts, gradient.sorted_unique_indices)
            d_weight = _settled(ctx, gradient)
        return d_weight, None, None, None, d_factors, None


def compact_gradient(
    combiner: str, grad: Tensor, ids: Tensor, segment_ids: Tensor, factors: Tensor | None, rows: int
) -> RowGradient:
    """The gradient of the rows that were looked up."""
    if factors is None:
        return _compact(f"SparseSegment{COMBINERS[combiner].name}GradV2", grad, ids, segment_ids, rows)
    return _compact("SparseSegmentWeightedSumGradV2", grad, factors, ids, segment_ids, rows)


def _settled(ctx: Any, gradient: RowGradient) -> Tensor | None:
    """A compact gradient as autograd takes it; where there is an update, it is made, and nothing is left."""
    rows, ids = gradient
    if ctx.way.update is not None:
        refuse_second_order()
        ctx.way.update(ctx.weight, gradient)
        return None
    if not ctx.way.sparse:
        return rows.new_zeros(ctx.shape).index_copy(0, ids.long(), rows)
    places = ids.unsqueeze(0)
    keep_rows(ctx.weight, places)
    return torch.sparse_coo_tensor(places, rows, ctx.shape, is_coalesced=True, check_invariants=False)


def keep_rows(weight: Tensor, places: Tensor) -> None:
    """Keep the row numbers of a gradient until it is accumulated."""
    setattr(weight, MADE, places)


def keep_coalesced(weight: Tensor) -> None:
    """Have the next gradient of a table marked as coalesced, which it is."""
    if _mark not in (weight._post_accumulate_grad_hooks or {}).values():
        weight.register_post_accumulate_grad_hook(_mark)


def _mark(weight: Tensor) -> None:
    """PyTorch forgets that a gradient is coalesced when it becomes ``.grad``, though it takes it as it is.

    The row numbers were kept until now, so that no other gradient can lie where they are.
    """
    grad, made = weight.grad, weight.__dict__.pop(MADE, None)
    if made is not None and grad is not None and grad.is_sparse and grad._indices().data_ptr() == made.data_ptr():
        grad._coalesced_(True)


def refuse_second_order() -> None:
    """Raise an error if the backward pass is to be differentiated."""
    if torch.is_grad_enabled():
        raise InvalidArgumentError(
            "a fused optimizer changes the table in the backward pass, so there is no gradient to differentiate again. "
            "Leave create_graph out, or use the layer without fused_optimizer.",
            code="fused-second-order",
        )


def _run(name: str, *values: Any) -> Any:
    """One operator, without gradients: CPU tensors go to the kernels straight away."""
    if is_plain(values[0]) and not torch.is_grad_enabled():
        return on_arrays(OPERATORS[name], *values)
    return getattr(torch.ops.rowgrad, snake_case(name))(*values)


def _compact(name: str, *values: Any) -> RowGradient:
    return RowGradient(*_run(name, *values))


def _dot(a: Tensor, b: Tensor, a_rows: Tensor, b_rows: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.ops.rowgrad.row_dot(a, b, a_rows, b_rows, out_type=dtype)
