"""The state of a sharded collection: whole tables gathered from ranks, and state dicts that stand for them.

In a state_dict, what a rank holds is a `ShardedTensor`, of which `torch.distributed.checkpoint` saves each part once
and which it loads into any other placement and number of ranks.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor import Shard as TorchShard
from torch.distributed._shard.sharded_tensor import ShardedTensor, ShardedTensorMetadata
from torch.distributed._shard.sharded_tensor.metadata import TensorProperties

from rowgrad.errors import InvalidArgumentError
from rowgrad.torch._embedding_bag import EmbeddingBag
from rowgrad.torch._fused_optimizer import FusedOptimizer
from rowgrad.torch.distributed._exchange import Place
from rowgrad.torch.distributed._placement import COLUMN, REPLICATED, Placed, Shard


def placed_of(collection: Any, name: str, argument: str) -> Placed:
    """Where a table lives; raises for names that no table has."""
    found: dict[str, Placed] = {placed.table.name: placed for placed in collection.plan().tables}
    if name not in found:
        raise InvalidArgumentError(
            f"{argument} has the table {name!r}; the tables are {', '.join(map(repr, found))}.",
            code="unknown-key",
            argument=argument,
            value=name,
        )
    return found[name]


def gathered(collection: Any, names: Sequence[str] | None, rank: int | None) -> dict[str, Tensor]:
    """Whole tables, on all ranks or on one."""
    exchange = collection.exchange
    if not (names is None or isinstance(names, Sequence)):
        raise InvalidArgumentError(
            f"names is {names!r}; it must be a list of tables.", code="wrong-argument", argument="names", value=names
        )
    exchange.check_rank(rank)
    names = list(collection.embedding_bags) if names is None else [names] if isinstance(names, str) else list(names)
    tables = [placed_of(collection, name, "names") for name in names]
    if exchange.size == 1:
        return {name: collection.embedding_bags[name].weight.detach().clone() for name in names}
    exchange.headers(Place.TABLE, exchange.calls)
    found = {}
    for name, placed in zip(names, tables, strict=True):
        weight = collection.embedding_bags[name].weight.detach()
        if placed.kind == REPLICATED:
            whole: Tensor | None = weight.clone()
        else:
            # Columns become rows on the way, so that the pieces of all ranks stand below one another.
            turned = placed.kind == COLUMN
            sizes = [0 if shard is None else shard.columns if turned else shard.rows
                     for shard in map(placed.on, range(exchange.size))]  # fmt: skip
            piece = weight.T if turned else weight
            if placed.on(exchange.rank) is None:
                piece = weight.new_empty(0, placed.table.num_embeddings if turned else placed.table.embedding_dim)
            whole = exchange.gather(piece, sizes, "rows", to=rank)
            if turned and whole is not None:
                order = sorted((shard for shard in placed.shards), key=lambda shard: shard.rank)
                pieces = dict(zip(order, whole.split([shard.columns for shard in order]), strict=True))
                whole = torch.cat([pieces[shard] for shard in placed.shards]).T.contiguous()
        if whole is not None and rank in (None, exchange.rank):
            found[name] = whole
    exchange.done()
    return found


def spread(collection: Any, name: str, local: Tensor) -> Any:
    """A tensor that stands for all ranks' parts of a table, or of what an optimizer keeps of each row or element."""
    placed = placed_of(collection, name, "names")
    if collection.exchange.size == 1 or placed.kind == REPLICATED or local.dim() == 0:
        return local
    rows, columns = placed.table.num_embeddings, placed.table.embedding_dim
    is_matrix = local.dim() == 2
    rank_of = torch.distributed.get_global_rank if collection.exchange.group is not None else None

    def described(shard: Shard) -> ShardMetadata:
        rank = shard.rank if rank_of is None else rank_of(collection.exchange.group, shard.rank)
        offsets, sizes = [shard.first_row, shard.first_column], [shard.rows, shard.columns]
        return ShardMetadata(offsets[: local.dim()], sizes[: local.dim()], placement=f"rank:{rank}/cpu")

    held = {shard.rank: shard for shard in placed.shards if shard.rows and shard.columns}
    # A rank that holds nothing has an empty part behind the last row: PyTorch leaves out tensors without a part when it
    # loads, takes the checkpoint for one of an older version, and then misses the groups of optimizers.
    parts = [held.get(rank, Shard(rank, rows, rows, 0, columns)) for rank in range(collection.exchange.size)]
    own = parts[collection.exchange.rank]
    here = local.detach() if own.rows else local.new_empty([0, columns][: local.dim()])
    shards, metadata = [TorchShard(here, described(own))], [described(part) for part in parts]
    size = torch.Size([rows, columns] if is_matrix else [rows])
    whole = ShardedTensorMetadata(metadata, size, TensorProperties(dtype=local.dtype))
    return ShardedTensor._init_from_local_shards_and_global_metadata(
        shards, whole, process_group=collection.exchange.process_group
    )


def own_part(collection: Any, name: str, value: Any, like: Tensor) -> Tensor:
    """The part of this rank, of a `ShardedTensor`, of a whole tensor, or of one that is the part already."""
    if isinstance(value, ShardedTensor):
        shards = [shard.tensor for shard in value.local_shards() if shard.tensor.numel()]
        return shards[0] if shards else like
    shard = placed_of(collection, name, "state_dict").on(collection.exchange.rank)
    if not isinstance(value, Tensor) or value.dim() == 0 or value.shape == like.shape:
        return value
    if shard is None:
        return like
    part = value[shard.first_row : shard.last_row]
    return part[:, shard.first_column : shard.last_column] if value.dim() == 2 else part


class ShardBag(EmbeddingBag):
    """What a rank holds of a table; its state_dict stands for the whole."""

    _of: tuple[Any, str]

    def attach(self, collection: Any, name: str) -> "ShardBag":
        """Tell which table of which collection this is."""
        self.__dict__["_of"] = collection, name  # not a child: the collection is the parent
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for key in [key for key in destination if key.startswith(prefix)]:
            if isinstance(destination[key], Tensor):
                destination[key] = spread(self._of[0], self._of[1], destination[key])

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        found = dict(state_dict)
        for key, like in [*self._parameters.items(), *self._buffers.items()]:
            if prefix + key in found and like is not None:
                found[prefix + key] = own_part(self._of[0], self._of[1], found[prefix + key], like.detach())
        super()._load_from_state_dict(found, prefix, *others)


class ShardedFusedOptimizer(FusedOptimizer):
    """The fused optimizers of a sharded collection, with the same groups and names on all ranks.

    `state_dict` stands for whole tables, and `load_state_dict` takes what any number of ranks has saved.
    """

    def __init__(self, collection: Any, names: list[str]) -> None:
        super().__init__({name: collection.embedding_bags[name] for name in names})
        self._collection = collection

    def state_dict(self) -> dict[str, Any]:
        """The settings of groups, and the state of whole tables."""
        found = super().state_dict()
        numbers = _numbers(found)
        state = {number: {key: spread(self._collection, numbers[number], value) for key, value in each.items()}
                 for number, each in found["state"].items()}  # fmt: skip
        return {**found, "state": state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave, here or with another number of ranks."""
        numbers = _numbers(state_dict)
        state = {}
        for number, each in state_dict["state"].items():
            name = numbers.get(number, "")
            own = self._tables[name].fused_state if name in self._tables else {}
            state[number] = {key: own_part(self._collection, name, value, own[key]) if key in own else value
                             for key, value in each.items()}  # fmt: skip
        super().load_state_dict({**state_dict, "state": state})


def _numbers(state_dict: dict[str, Any]) -> dict[Any, str]:
    """The names of tables by the numbers of their parameters."""
    return {number: name for group in state_dict["param_groups"]
            for number, name in zip(group["params"], group.get("param_names", ()), strict=False)}  # fmt: skip
