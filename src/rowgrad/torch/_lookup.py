"""Look-ups in `Tables` with gradients: one autograd function for sparse gradients and one for fused optimizers.

Layers and collections come here first, with tensors as they got them. Whatever is not for the kernels is left to them:
`look_up` gives None then.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rowgrad._ops import checks
from rowgrad.torch._bags import PLAIN
from rowgrad.torch._pooling import compact_gradient, keep_coalesced, keep_rows, refuse_second_order
from rowgrad.torch._tables import Batch
from rowgrad.torch._trained_tables import TrainedTables

WEIGHTS = (torch.float32, torch.float64)


class Bad(Exception):
    """An id or an offset is bad; which one, is found out by operators."""


def look_up(
    tables: TrainedTables,
    batch: Batch,
    *,
    sparse: bool,
    update: Callable[[Batch, Tensor], None] | None,
) -> Tensor | None:
    """The pooled rows of all tables, or None if the kernels do not take what is given; `Bad` if an id is bad.

    Values and offsets are plain tensors (`is_plain`) of one type.

    With `update`, the backward pass calls it with the gradient of the pooled rows, and tables get no gradient.
    """
    values, offsets, weights, _, _ = batch
    if not (values.is_contiguous() and tables.fit()):
        return None
    if weights is not None and not (
        type(weights) in PLAIN and weights.is_cpu and weights.dtype in WEIGHTS and weights.is_contiguous()
        and not weights.requires_grad and tables.is_summed
    ):  # fmt: skip
        return None
    if not torch.is_grad_enabled():
        return _pooled(tables, batch)
    parameters = tables.weights()
    trained = [weight.requires_grad for weight in parameters]
    if not any(trained):
        return _pooled(tables, batch)
    if update is not None:
        return _Fused.apply(tables, batch, update, values, offsets, weights, *parameters) if all(trained) else None
    if not sparse:
        return None
    for weight in parameters:
        if weight.is_leaf and weight.requires_grad:
            keep_coalesced(weight)
    return _Sparse.apply(tables, batch, values, offsets, weights, *parameters)


def _pooled(tables: TrainedTables, batch: Batch) -> Tensor:
    output = tables.pool(batch)
    if output is None:
        raise Bad
    return output


class _Fused(torch.autograd.Function):
    """Pooling whose backward pass changes the tables."""

    @staticmethod
    def forward(ctx: Any, tables: TrainedTables, batch: Batch, update: Callable[[Batch, Tensor], None], values: Tensor,
                offsets: Tensor, weights: Tensor | None, *parameters: Tensor) -> Tensor:  # fmt: skip
        ctx.save_for_backward(values, offsets, weights)
        ctx.batch, ctx.update, ctx.inputs = batch[3:], update, 6 + len(parameters)
        return _pooled(tables, batch)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        refuse_second_order()
        ctx.update(Batch(*ctx.saved_tensors, *ctx.batch), grad if grad.is_contiguous() else grad.contiguous())
        return (None,) * ctx.inputs


class _Sparse(torch.autograd.Function):
    """Pooling whose gradients are sparse tensors, coalesced as they are."""

    @staticmethod
    def forward(ctx: Any, tables: TrainedTables, batch: Batch, values: Tensor, offsets: Tensor, weights: Tensor | None,
                *parameters: Tensor) -> Tensor:  # fmt: skip
        ctx.save_for_backward(values, offsets, weights)
        ctx.batch, ctx.tables, ctx.parameters = batch[3:], tables, parameters
        return _pooled(tables, batch)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        batch, tables = Batch(*ctx.saved_tensors, *ctx.batch), ctx.tables
        found: Any = False
        if not torch.is_grad_enabled() and tables.fit():
            found = tables.gradients(batch, grad if grad.is_contiguous() else grad.contiguous())
            if found is None:
                raise checks.changed("the ids")
        if found is False:
            found = _by_operators(tables, batch, grad)
        sparse = [
            _as_sparse(parameter, *each) if needed else None
            for parameter, each, needed in zip(ctx.parameters, found, ctx.needs_input_grad[5:], strict=True)
        ]
        return None, None, None, None, None, *sparse


def _by_operators(tables: TrainedTables, batch: Batch, grad: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The compact gradients of all tables, by operators that have gradients themselves."""
    found = []
    for mode, weight, (part, ids, segment_ids, weights) in zip(
        tables.modes(), tables.weights(), tables.entries(batch, grad), strict=True
    ):
        gradient = compact_gradient(mode, part, ids, segment_ids, weights, weight.shape[0])
        found.append((gradient.sorted_unique_indices.unsqueeze(0), gradient.output))
    return found


def _as_sparse(parameter: Tensor, places: Tensor, rows: Tensor) -> Tensor:
    keep_rows(parameter, places)
    return torch.sparse_coo_tensor(places, rows, parameter.shape, is_coalesced=True, check_invariants=False)
