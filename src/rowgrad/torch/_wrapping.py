"""Layers inside PyTorch's wrappers that spread a model over ranks, `DistributedDataParallel` and `fully_shard`.

Where such a wrapper would let the copies of a table diverge, or lose what a fused optimizer changed, the layer says so
at its first call.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rowgrad.errors import InvalidArgumentError

REPLICATED, FULLY_SHARDED = "DistributedDataParallel", "fully_shard"
TOLD = {
    REPLICATED: "waits for gradients to average. A fused optimizer leaves none; the tables of ranks would diverge",
    FULLY_SHARDED: "gathers the table for each pass and frees it. What a fused optimizer changed would be lost",
}


def check(layer: Any, *, sparse: bool, fused: bool) -> None:
    """Refuse what a wrapper around the layer cannot do: sparse gradients in `fully_shard`, fused optimizers in both."""
    if not (layer.weight.requires_grad and torch.is_grad_enabled()):
        return
    wrapper = _fully_sharded(layer) or (fused and _replicated(layer))
    if wrapper and fused:
        raise InvalidArgumentError(
            f"the layer has a fused optimizer and is inside {wrapper}, which {TOLD[wrapper]}. Use "
            "rowgrad.torch.distributed.ShardedEmbeddingBag beside the wrapped part of the model, or leave "
            "fused_optimizer out.",
            code="fused-in-wrapper",
            argument="fused_optimizer",
            value=wrapper,
        )
    if wrapper and sparse:
        raise InvalidArgumentError(
            f"the layer is inside {wrapper}, which takes no sparse gradients. Make the layer with sparse=False, or use "
            "rowgrad.torch.distributed.ShardedEmbeddingBag beside the wrapped part of the model.",
            code="sparse-in-wrapper",
            argument="sparse",
            value=wrapper,
        )


def is_wrapped(layer: nn.Module) -> bool:
    """Whether a wrapper may be around the layer; costs nothing to ask."""
    return DistributedDataParallel._active_ddp_module is not None or "_is_fsdp_managed_module" in layer.__dict__


def check_outside(layer: Any) -> None:
    """Refuse wrappers around a layer that spreads its table itself."""
    wrapper = _fully_sharded(layer) or _replicated(layer)
    if wrapper:
        raise InvalidArgumentError(
            f"the layer is inside {wrapper}, which mixes up the rows that the ranks hold. Make a new table, and "
            "wrap the dense part of the model only.",
            code="sharded-in-wrapper",
            value=wrapper,
        )


def _replicated(layer: Any) -> str | None:
    wrapper = DistributedDataParallel._active_ddp_module  # the one whose forward pass this is
    if wrapper is None or (wrapper.process_group.size() == 1 and not layer.sparse):
        return None  # one rank cannot diverge, but the wrapper would wait for a sparse gradient
    synced = [*wrapper._module_parameters, *(wrapper.modules_buffers if wrapper.broadcast_buffers else ())]
    own: list[Tensor] = [layer.weight, *layer.fused_state.values()]
    return REPLICATED if any(tensor is each for each in synced for tensor in own) else None


def _fully_sharded(layer: nn.Module) -> str | None:
    return FULLY_SHARDED if getattr(layer, "_is_fsdp_managed_module", False) else None
