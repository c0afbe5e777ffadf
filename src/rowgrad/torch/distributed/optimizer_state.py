"""State of PyTorch's optimizers for the tables of sharded layers: in a state_dict it stands for all ranks' rows.

`torch.distributed.checkpoint` takes plain tensors for copies that all ranks have, and saves one of them. An optimizer
keeps plain tensors of this rank's rows: its `state_dict()` gives them as `DTensor`s, and before a step those that were
loaded become plain again. PyTorch tells when an optimizer makes a step, not when it is made, so it is found then.
"""

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from rowgrad.torch.distributed import _checkpoint as checkpoint

if TYPE_CHECKING:
    from rowgrad.torch.distributed._sharded import ShardedEmbeddingBag


class _Tables(NamedTuple):
    """The tables among the parameters of an optimizer, with their numbers, when it had so many groups."""

    groups: int
    tables: "list[tuple[int, Tensor, ShardedEmbeddingBag]]"


_layers: "WeakSet[ShardedEmbeddingBag]" = WeakSet()
_found: "WeakKeyDictionary[Optimizer, _Tables]" = WeakKeyDictionary()
_hooks: list[Any] = []  # the one for all optimizers, once there is a layer


def watch(layer: "ShardedEmbeddingBag") -> None:
    """Look for optimizers of this layer's table from now on."""
    if not _hooks:
        _hooks.append(register_optimizer_step_pre_hook(_before_step))
    _layers.add(layer)


def shard_state(optimizer: Optimizer) -> None:
    """Make the `state_dict()` of an optimizer describe whole tables, before its first step.

    After its first step, the `state_dict()` of every optimizer of a `ShardedEmbeddingBag` does. Only an optimizer that
    has state from the start, such as `torch.optim.Adagrad`, needs this, before a checkpoint is loaded into it.

    Examples
    --------
    >>> import os, tempfile
    >>> import torch
    >>> import torch.distributed as dist
    >>> from rowgrad.torch.distributed import ShardedEmbeddingBag, shard_state
    >>> path = os.path.join(tempfile.mkdtemp(), "meeting")
    >>> dist.init_process_group("gloo", init_method=f"file://{path}", rank=0, world_size=1)
    >>> bag = ShardedEmbeddingBag(1000, 4)
    >>> optimizer = torch.optim.Adagrad(bag.parameters())
    >>> shard_state(optimizer)
    >>> type(optimizer.state_dict()["state"][0]["sum"]).__name__
    'DTensor'
    >>> dist.destroy_process_group()
    """
    _tables(optimizer)


def _tables(optimizer: Optimizer) -> "list[tuple[int, Tensor, ShardedEmbeddingBag]]":
    known = _found.get(optimizer)
    if known is not None and known.groups == len(optimizer.param_groups):
        return known.tables
    owners = {id(layer.weight): layer for layer in _layers}
    parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    tables = [(number, each, owners[id(each)]) for number, each in enumerate(parameters) if id(each) in owners]
    if tables and not (known and known.tables):
        optimizer.register_state_dict_post_hook(_spread)
    _found[optimizer] = _Tables(len(optimizer.param_groups), tables)
    return tables


def _spread(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """The state_dict, with tensors that stand for all ranks' rows."""
    state = dict(state_dict["state"])
    for number, _, layer in _tables(optimizer):
        if number in state:
            state[number] = {name: _whole(layer, value) for name, value in state[number].items()}
    return {**state_dict, "state": state}


def _whole(layer: "ShardedEmbeddingBag", value: Any) -> Any:
    if type(value) is not Tensor or value.dim() == 0 or value.shape[0] != layer.weight.shape[0]:
        return value
    return checkpoint.whole(layer, value.to_dense() if value.is_sparse else value)  # such as the momentum of SGD


def _before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    """Give the optimizer plain tensors of this rank's rows, whatever was loaded into it."""
    for _, parameter, layer in _tables(optimizer):
        state = optimizer.state.get(parameter, {})
        for name, value in state.items():
            if isinstance(value, Tensor) and value.dim():
                state[name] = checkpoint.own_rows(layer, value)
