"""Look-ups in `Tables` with gradients: one autograd function for sparse gradients and one for fused optimizers.

Layers and collections come here first, with tensors as they got them. Whatever is not for the kernels is left to them:
`look_up` gives None then.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from rowgrad._ops import checks
from rowgrad.torch._bags import IDS, PLAIN, is_untransformed
from rowgrad.torch._one_table import OneTable, one_table
from rowgrad.torch._pooling import compact_gradient, keep_coalesced, keep_rows, refuse_second_order
from rowgrad.torch._tables import Batch
from rowgrad.torch._trained_tables import MOST_PLACES, TrainedTables
from rowgrad.torch._wrapping import is_wrapped

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
    values, offsets, weights, bags, is_open = batch
    if not (values.is_contiguous() and tables.fit()):
        return None
    table = tables.alone
    if table is None:
        table = tables.alone = one_table(tables)
    if table and weights is None and update is None:
        return _of_one(table, table.parameters["weight"], (values, offsets, bags, is_open), sparse)
    if weights is not None and not (
        type(weights) in PLAIN and weights.is_cpu and weights.dtype in WEIGHTS and weights.is_contiguous()
        and not weights.requires_grad and tables.is_summed
    ):  # fmt: skip
        return None
    if not torch.is_grad_enabled():
        return _pooled(tables, batch)
    parameters, trained = tables.weights(), 0
    for weight in parameters:
        if weight.requires_grad:
            trained += 1
    if trained == 0:
        return _pooled(tables, batch)
    if update is not None:
        found: Tensor | None = _fused(tables, batch, update, *parameters) if trained == len(parameters) else None
        return found
    if not sparse:
        return None
    for weight in parameters:
        if weight.is_leaf and weight.requires_grad:
            keep_coalesced(weight)
    found = _sparse(tables, batch, *parameters)
    return found


def look_up_one(layer: Any, ids: Tensor, offsets: Tensor) -> Tensor | None:
    """`look_up` for one layer whose sparse gradients go to `torch.optim`, or None if it has to take the long way.

    What the layer, `is_plain`, `flat` and `look_up` ask is asked here at once: in a small step the calls from one to
    the next take longer than the kernels.
    """
    tables = layer._tables
    table = None if tables is None else tables.alone
    if not table or layer.mode != table.mode or layer.padding_idx is not None or layer.max_norm is not None or (
        layer.scale_grad_by_freq or layer._table is not None or layer.fused_optimizer is not None or is_wrapped(layer)
    ):  # fmt: skip
        return None
    weight = table.parameters.get("weight")  # none if it is computed, or within a transform
    try:
        if not (
            weight is not None and type(ids) in PLAIN and type(offsets) in PLAIN and ids.dtype is offsets.dtype
            and ids.dtype in IDS and ids.is_cpu and offsets.is_cpu and ids.dim() == 1 and offsets.dim() == 1
            and ids.is_contiguous() and offsets.is_contiguous() and weight.data_ptr() == table.at
            and weight.dtype is table.dtype and weight.numel() == table.size and weight.dim() == 2
            and weight.stride(0) == table.stride and not is_functorch_wrapped_tensor(ids) and is_untransformed()
        ):  # fmt: skip
            return None
        bags = offsets.numel()
        is_open = not layer.include_last_offset
        batch = ids, offsets, bags if is_open else bags - 1, is_open
        return _of_one(table, weight, batch, layer.sparse) if bags else None
    except (Bad, RuntimeError):  # an error of PyTorch's: a tensor without memory
        return None


def _of_one(table: OneTable, weight: Tensor, batch: tuple[Tensor, Tensor, int, bool], sparse: bool) -> Tensor | None:
    if not (torch.is_grad_enabled() and weight.requires_grad):
        return _good(table.pool(*batch))
    if not sparse:
        return None
    if weight is not table.marked and weight.is_leaf:
        table.marked, table.mark = weight, keep_coalesced(weight)
    output: Tensor = _alone(table, batch, weight)
    return output


def _pooled(tables: TrainedTables, batch: Batch) -> Tensor:
    return _good(tables.pool(batch))


def _good(output: Tensor | None) -> Tensor:
    if output is None:
        raise Bad
    return output


# A step of a small batch is mostly Python, and one of a larger batch has flushed the caches, so that each line and each
# call takes twice as long: the two functions below do what has to be done and no more.


class _Fused(torch.autograd.Function):
    """Pooling whose backward pass changes the tables."""

    @staticmethod
    def forward(ctx: Any, tables: TrainedTables, batch: Batch, update: Callable[[Batch, Tensor], None],
                *parameters: Tensor) -> Tensor:  # fmt: skip
        values, offsets, weights, bags, is_open = batch
        ctx.save_for_backward(values, offsets, weights)
        ctx.kept = bags, is_open, update, (None,) * (3 + len(parameters))
        return _pooled(tables, batch)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        refuse_second_order()
        values, offsets, weights = ctx.saved_tensors
        bags, is_open, update, nothing = ctx.kept
        update(Batch(values, offsets, weights, bags, is_open), _readable(grad))
        return nothing


class _Sparse(torch.autograd.Function):
    """Pooling whose gradients are sparse tensors, coalesced as they are."""

    @staticmethod
    def forward(ctx: Any, tables: TrainedTables, batch: Batch, *parameters: Tensor) -> Tensor:
        values, offsets, weights, bags, is_open = batch
        ctx.save_for_backward(values, offsets, weights)
        ctx.kept = bags, is_open, tables, tables.combiners, parameters
        return _pooled(tables, batch)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        values, offsets, weights = ctx.saved_tensors
        bags, is_open, tables, combiners, parameters = ctx.kept
        found = _gradients(tables, combiners, Batch(values, offsets, weights, bags, is_open), grad)
        sparse = [
            _as_sparse(parameter, *each) if needed else None
            for parameter, each, needed in zip(parameters, found, ctx.needs_input_grad[2:], strict=True)
        ]
        return None, None, *sparse


class _Alone(torch.autograd.Function):
    """The same as `_Sparse`, for one table."""

    @staticmethod
    def forward(ctx: Any, table: OneTable, batch: Any, weight: Tensor) -> Tensor:
        values, offsets, bags, is_open = batch
        ctx.save_for_backward(values, offsets)
        ctx.kept = table, bags, is_open, table.mark if weight is table.marked else None
        output = table.pool(values, offsets, bags, is_open)
        if output is None:
            raise Bad
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        values, offsets = ctx.saved_tensors
        table, bags, is_open, mark = ctx.kept
        if torch.is_grad_enabled() or bags * table.width >= MOST_PLACES:
            (found,) = _gradients(table.tables, table.combiners, Batch(values, offsets, None, bags, is_open), grad)
            if mark is not None:
                mark.rows = found[0]
            return None, None, _coalesced(found, table.shape)
        found = table.gradient(values, offsets, bags, is_open, _readable(grad), mark)
        if found is None:
            raise checks.changed("the ids")
        return None, None, found


def _readable(grad: Tensor) -> Tensor:
    """The gradient as kernels read it: rows may be apart, as in a part of a concatenation, elements of a row not."""
    return grad if grad.stride(1) == 1 and grad.stride(0) >= grad.shape[1] else grad.contiguous()


def _gradients(tables: TrainedTables, combiners: list[str], batch: Batch, grad: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The compact gradients of all tables, which had these combiners in the forward pass."""
    found: Any = False
    if not torch.is_grad_enabled() and tables.fit() and tables.combiners is combiners:
        found = tables.gradients(batch, _readable(grad))
        if found is None:
            raise checks.changed("the ids")
    return _by_operators(tables, combiners, batch, grad) if found is False else found


def _applied(function: Any) -> Callable[..., Any]:
    """`function.apply`, which outside of transforms looks for tensors of ended ones first: `is_plain` has done so."""
    is_transforming = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
    direct, usual = super(torch.autograd.Function, function).apply, function.apply
    return lambda *args: usual(*args) if is_transforming() else direct(*args)


_fused, _sparse = _applied(_Fused), _applied(_Sparse)
_alone = super(torch.autograd.Function, _Alone).apply  # values are plain, so that no transform is active
_Alone._backward_cls.apply = _Alone.backward  # what is there finds out at each call that it is this


def _by_operators(tables: TrainedTables, combiners: list[str], batch: Batch,
                  grad: Tensor) -> list[tuple[Tensor, Tensor]]:  # fmt: skip
    """The compact gradients of all tables, by operators that have gradients themselves."""
    found = []
    for mode, weight, (part, ids, segment_ids, weights) in zip(
        combiners, tables.weights(), tables.entries(batch, grad), strict=True
    ):
        gradient = compact_gradient(mode, part, ids, segment_ids, weights, weight.shape[0])
        found.append((gradient.sorted_unique_indices.unsqueeze(0), gradient.output))
    return found


def _as_sparse(parameter: Tensor, places: Tensor, rows: Tensor) -> Tensor:
    keep_rows(parameter, places)
    return _coalesced((places, rows), parameter.shape)


def _coalesced(found: tuple[Tensor, Tensor], shape: Any) -> Tensor:
    return torch.sparse_coo_tensor(*found, shape, is_coalesced=True, check_invariants=False)
