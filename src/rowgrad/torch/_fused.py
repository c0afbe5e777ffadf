"""An optimizer in the backward pass of a layer: its state beside the table, and how several passes are combined.

`EmbeddingBag` calls this; the formulas of optimizers are in `rowgrad.optim`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rowgrad.errors import InvalidArgumentError
from rowgrad.optim import Optimizer
from rowgrad.torch._pooling import factors_of
from rowgrad.torch._portable.common import wide

STATE = "fused_"  # in front of the names of the buffers that a fused optimizer keeps


class Pass(NamedTuple):
    """What a backward pass has for a table: the gradients of bags, and the entries of the bags.

    Without segment_ids, `grad` is the compact gradient of the table, and `ids` are its rows.
    """

    weight: Tensor
    grad: Tensor
    ids: Tensor
    segment_ids: Tensor | None = None
    factors: Tensor | None = None

    def kept(self) -> "Pass":
        """With memory of its own, as callers fill theirs with the next batch."""
        return Pass(self.weight, *(None if each is None else each.clone() for each in self[1:]))


def new_state(optimizer: Optimizer, weight: Tensor) -> dict[str, Tensor]:
    """The state for a new table; that of a table without memory has none either."""
    if not weight.is_meta:
        return optimizer.init(weight.detach())
    shapes = optimizer.init(weight.new_empty((0, *weight.shape[1:]), device="cpu"))
    return {
        name: torch.empty((*weight.shape[:1], *array.shape[1:]) if array.dim() else (), dtype=array.dtype,
                          device=weight.device)
        for name, array in shapes.items()
    }  # fmt: skip


def moved(before: Tensor, after: Tensor, table: torch.dtype) -> Tensor:
    """State after its layer was moved or cast: where `after` is, in the type that goes with the type of the table."""
    dtype = wide(table) if before.is_floating_point() else before.dtype
    if after.dtype == dtype:
        return after
    if before.is_meta:
        return torch.empty_like(after, dtype=dtype)
    return before.to(after.device, dtype)  # from what it was before, so that nothing is rounded


def joined(passes: list[Pass], combiner: str) -> Pass:
    """Several passes as one, as if their batches had been one batch."""
    if len(passes) == 1:
        return passes[0]
    grad, ids = torch.cat([each.grad for each in passes]), torch.cat([each.ids for each in passes])
    if passes[0].segment_ids is None:  # several compact gradients: each row is a bag of its own
        return Pass(passes[0].weight, grad, ids, torch.arange(ids.shape[0]))
    segments, factors, bags = [], [], 0
    weighted = any(each.factors is not None for each in passes)
    for each in passes:
        assert each.segment_ids is not None
        segments.append(each.segment_ids.long() + bags)
        bags += each.grad.shape[0]
        if weighted:
            ones = torch.ones(each.ids.shape[0], dtype=wide(grad.dtype))
            given = each.factors
            factors.append(factors_of(ones, each.segment_ids, each.grad.shape[0], combiner) if given is None else given)
    return Pass(passes[0].weight, grad, ids, torch.cat(segments), torch.cat(factors) if weighted else None)


def unscaled(grad: Tensor, scaler: torch.amp.GradScaler) -> Tensor | None:
    """The gradient without the scale of the loss, or None if it has overflowed."""
    if grad.dtype == torch.float16:
        raise InvalidArgumentError(
            "the table is float16, whose gradients underflow when the scale of the loss is taken out of them. Keep "
            "the table in float32, under autocast, or leave grad_scaler out.",
            code="wrong-dtype",
            argument="grad_scaler",
            value=str(grad.dtype),
        )
    grad = grad * (1 / scaler.get_scale())
    return grad if bool(grad.isfinite().all()) else None
