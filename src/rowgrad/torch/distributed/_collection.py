"""`ShardedEmbeddingBagCollection`: the tables of a collection spread over ranks, with one exchange for all of them."""

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rowgrad._ops import checks
from rowgrad._runtime.limits import available
from rowgrad.errors import DTypeError, InvalidArgumentError, RowgradError
from rowgrad.torch import _configs as configs
from rowgrad.torch import _features as features_of
from rowgrad.torch import _wrapping
from rowgrad.torch._bags import is_plain, segment_ids_of
from rowgrad.torch._collection import EmbeddingBagCollection
from rowgrad.torch._fused_optimizer import FusedOptimizer
from rowgrad.torch._keyed import KeyedTensor, keyed
from rowgrad.torch._settings import check_memory, readable, whole
from rowgrad.torch.distributed import _collection_state as collection_state
from rowgrad.torch.distributed._collection_pass import factors_for, look_up
from rowgrad.torch.distributed._collection_request import CollectionRequest
from rowgrad.torch.distributed._draws import draw
from rowgrad.torch.distributed._errors import refusal
from rowgrad.torch.distributed._exchange import Exchange
from rowgrad.torch.distributed._machinery import Machinery
from rowgrad.torch.distributed._message import Wrong
from rowgrad.torch.distributed._near import TableMemory, table_bytes
from rowgrad.torch.distributed._placement import REPLICATED, Plan, asked, check
from rowgrad.torch.distributed._planner import Planner
from rowgrad.torch.distributed._traffic import Traffic

SETTINGS = ("tables", "placement", "exact", "gradient_average", "seed", "sparse", "is_weighted", "fused_optimizer")
FREE = 0.8  # of the memory that is free, tables may use


class ShardedEmbeddingBagCollection(EmbeddingBagCollection):
    """Embedding tables for many features, sharded over the ranks of a group.

    Each rank passes its part of the batch and gets its pooled rows. A step exchanges counts, ids, rows, counts again,
    and gradients: five messages between two ranks, for any number of tables. Ranks of one machine share memory, and
    meet three times. All ranks must call the collection, and its backward pass, equally often and in the same order,
    also with empty batches.

    Parameters
    ----------
    tables : list of EmbeddingBagConfig
        The tables, of one type, pooled by sum, mean or sqrtn.
    is_weighted : bool
        Whether ids have weights. If False, weights of `features` are ignored.
    group : process group, optional
        The ranks that hold the tables; by default all.
    placement : str, dict or Planner
        Where tables are stored: ``"row"`` (each rank holds some of the rows), ``"table"`` (one rank holds the table, or
        ``("table", rank)``), ``"column"`` (ranks hold some of the columns), ``"replicated"`` (each rank holds all), or
        ``"auto"``: the cheapest by the cost model, within the memory of the ranks. A dict has a placement for each
        table by name; those that are left out are planned. `plan` returns what was chosen, and why.
    exact : bool
        Whether results are bit for bit those of one process with the whole batch also for replicated tables and tables
        placed by row, which then send rows instead of sums. Tables placed by table or by column are always exact.
    fused_optimizer : rowgrad.optim optimizer, or dict of table name to optimizer, optional
        Updates the rows of the tables on their owner in the backward pass.
    gradient_average : bool
        By default gradients of tables are the sum over ranks of the gradients of their losses. With True they are
        divided by the number of ranks, as `DistributedDataParallel` does for the dense part of a model.
    seed : int
        The random seed of new tables, which are the same for any number of ranks and placement.
    sparse : bool
        Whether gradients of tables that have no fused optimizer are sparse.
    timeout : float, optional
        Seconds after which an exchange fails, for the group of all ranks; by default the group's own timeout.

    Attributes
    ----------
    embedding_bags : torch.nn.ModuleDict
        This rank's part of each table, by name: its `weight` has the rows and columns that this rank holds, or no rows.
    traffic : Traffic
        Bytes that this rank sent to others, and the number of exchanges.

    Raises
    ------
    PeerError
        Another rank has other settings, rejected its batch, or is at another place of a step: then all ranks raise, and
        the collection can be used again.
    CommunicationError
        A rank does not answer.

    Examples
    --------
    >>> import torch
    >>> import torch.distributed as dist
    >>> from rowgrad import optim
    >>> from rowgrad.torch import EmbeddingBagConfig
    >>> from rowgrad.torch.distributed import ShardedEmbeddingBagCollection
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> collection = ShardedEmbeddingBagCollection(
    ...     [EmbeddingBagConfig("users", 100, 4), EmbeddingBagConfig("products", 1000, 8, pooling="mean")],
    ...     fused_optimizer=optim.Adagrad(0.1),
    ... )
    >>> collection({"users": torch.tensor([[7]]), "products": torch.tensor([[8, 500]])}).values().shape
    torch.Size([1, 12])
    >>> collection.plan().kinds()
    {'users': 'table', 'products': 'table'}
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        tables: Sequence[configs.EmbeddingBagConfig],
        is_weighted: bool = False,
        *,
        group: Any = None,
        placement: Any = "auto",
        exact: bool = False,
        fused_optimizer: Any = None,
        gradient_average: bool = False,
        seed: int = 0,
        sparse: bool = True,
        timeout: float | None = None,
    ) -> None:
        exchange = Exchange(group, timeout=timeout)
        error = None
        try:
            super().__init__(tables, is_weighted, "meta", fused_optimizer=fused_optimizer, sparse=sparse)
            _check_tables(self._configs)
        except Exception as wrong:
            error = refusal(wrong)
            torch.nn.Module.__init__(self)
        self.exchange = exchange
        self._plan = Plan((), exchange.size)
        room = exchange.share_memory(available() * FREE)
        optimizers, settings = [], dict.fromkeys(SETTINGS, 0)
        if error is None:
            try:
                self.seed, self.exact, self.gradient_average = whole("seed", seed), bool(exact), bool(gradient_average)
                optimizers = configs.optimizers_of(fused_optimizer, self._configs)
                self._plan = _planned(placement, self._configs, optimizers, exchange.size, room)
                check(self._plan, optimizers)
                held = [shard.rows * shard.columns * placed.table.data_type.itemsize
                        for placed in self._plan.tables if (shard := placed.on(exchange.rank)) is not None]  # fmt: skip
                check_memory(sum(held), available())
                settings = self._settings(is_weighted, optimizers)
            except Exception as wrong:
                error = refusal(wrong)
        exchange.compare(settings, error)
        memory = exchange.table_memory(table_bytes(self._plan))
        shared = None if memory is None else TableMemory(self._plan, memory)
        for placed, optimizer in zip(self._plan.tables, optimizers, strict=True):
            shard, table = placed.on(exchange.rank), placed.table
            rows, columns = (0, table.embedding_dim) if shard is None else (shard.rows, shard.columns)
            if shared is None or shard is None or placed.kind == REPLICATED:
                weight = torch.empty(rows, columns, dtype=table.data_type)
            else:
                weight = shared.weight(placed, shard)
            bag = collection_state.ShardBag(
                rows, columns, combiner=table.pooling, sparse=sparse, include_last_offset=True,
                fused_optimizer=optimizer, _weight=weight,
            )  # fmt: skip
            self.embedding_bags[table.name] = bag.attach(self, table.name)
        self._poolings = [table.pooling for table in self._configs for _ in table.feature_names]
        self._machinery = Machinery(
            self._plan, exchange, list(self.embedding_bags.values()), lambda: self.optimizer, exact=self.exact,
            sparse=sparse, gradient_average=self.gradient_average, tables=shared,
        )  # fmt: skip
        self.reset_parameters()

    @property
    def traffic(self) -> Traffic:
        """The bytes that this rank sent to others."""
        return self.exchange.traffic

    @property
    def optimizer(self) -> FusedOptimizer | None:
        """The fused optimizers as one `torch.optim.Optimizer`, for schedulers, scalers and checkpoints, or None.

        Its settings must be the same on all ranks in each step. Its `state_dict` describes whole tables.
        """
        if self._optimizer is None:
            names = [name for name, bag in self.embedding_bags.items() if bag.fused_optimizer is not None]
            self._optimizer = collection_state.ShardedFusedOptimizer(self, names) if names else None
        return self._optimizer

    def plan(self) -> Plan:
        """The placement of the tables, with reasons; print it."""
        return self._plan

    def reset_parameters(self) -> None:
        """Reinitialize all tables with `seed`, and reset fused optimizers."""
        for number, placed in enumerate(self._plan.tables):
            shard, bag = placed.on(self.exchange.rank), self.embedding_bags[placed.table.name]
            if shard is not None:
                draw(bag.weight, placed.table, shard, (self.seed, number))
            if bag.fused_optimizer is not None:
                for name, array in bag.fused_optimizer.init(bag.weight.detach()).items():
                    bag.fused_state[name].copy_(array)

    # Look-ups

    def forward(self, features: Any) -> KeyedTensor:
        """Look up and pool the bags of all features of this rank's part of the batch.

        Parameters
        ----------
        features : KeyedJaggedTensor, dict of feature name to ids, or the result of `prefetch`
            As for `EmbeddingBagCollection`.

        Returns
        -------
        KeyedTensor, shape [batch, Σ widths]
        """
        if isinstance(features, CollectionRequest):
            return keyed(self._names, self._widths, self._finished(features))
        if self.exchange.size == 1:
            return super().forward(features)
        return keyed(self._names, self._widths, self._finished(self._request(features)))

    def pool(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Look up and pool bags given as plain tensors, as `EmbeddingBagCollection.pool`."""
        if self.exchange.size == 1:
            return super().pool(values, offsets, weights)
        return self._finished(self._request((values, offsets, weights)))

    def prefetch(self, features: Any) -> CollectionRequest:
        """Begin to exchange the ids of the next batch, while this one is computed.

        The arguments are those of a call, or (values, offsets) or (values, offsets, weights) as for `pool`; call the
        collection with the result. All ranks must prefetch and finish in the same order. It costs one more small
        exchange.
        """
        request = self._request(features)
        request.early = True
        self.exchange.done()
        return request

    def _request(self, features: Any) -> CollectionRequest:
        error, given = None, None
        try:
            given = self._read(features)
        except Exception as wrong:
            error = refusal(wrong)
        try:
            return self._machinery.request(given, error)
        except Wrong:
            assert given is not None
            raise self._told(given[0], given[1], given[3]) from None

    def _read(self, features: Any) -> tuple[Tensor, Tensor, Tensor | None, int]:
        """Ids, offsets, factors and the number of bags of a feature; types and shapes are checked."""
        if _wrapping.is_wrapped(self):
            for bag in self.embedding_bags.values():
                _wrapping.check_outside(bag)
        if isinstance(features, tuple) and len(features) in (2, 3):
            values, offsets, weights = (*features, None)[:3]
        else:
            values, offsets, weights = features_of.read(features, self._features, self._is_weighted)
        bags = self._batch_of(values, offsets, weights)
        for name, tensor in (("values", values), ("offsets", offsets), ("weights", weights)):
            if tensor is not None and not is_plain(tensor.detach()):
                raise InvalidArgumentError(
                    f"{name} is on the device {tensor.device}, or traced or transformed; a sharded collection takes "
                    "plain CPU tensors. Call it outside compiled code.",
                    code="not-on-cpu",
                    argument=name,
                )
        values, offsets = values.contiguous(), offsets.contiguous()
        if weights is None:
            return values, offsets, None, bags
        segment_ids_of(offsets[:-1], values.shape[0])  # offsets that are wrong are told
        return values, offsets, factors_for(values, offsets, weights, bags, self._poolings), bags

    def _told(self, values: Tensor, offsets: Tensor, bags: int) -> RowgradError:
        """The error for a bad id or offset."""
        try:
            segment_ids_of(offsets, values.shape[0])
            bounds = self._bounds(values, offsets, bags)
        except RowgradError as wrong:
            return wrong
        for table, begin, end in zip(self._configs, bounds, bounds[1:], strict=False):
            ids = values[begin:end]
            bad = ((ids < 0) | (ids >= table.num_embeddings)).nonzero()
            if len(bad):
                return self._bad_id(values, offsets, bags, begin + int(bad[0]))
        return checks.changed("values")

    def _finished(self, request: CollectionRequest) -> Tensor:
        if request.exchange is not self.exchange:
            raise InvalidArgumentError(
                "the request was made by another collection. Finish it with the one whose prefetch made it.",
                code="bad-request",
                argument="features",
            )
        return look_up(self._machinery, request)

    # Whole tables

    def load_tables(self, tables: Mapping[str, Tensor]) -> None:
        """Load this rank's rows and columns from whole tables, by name; other tables do not change."""
        if not isinstance(tables, Mapping):
            raise DTypeError(
                f"tables is a {type(tables).__name__}; pass a dict of table name to tensor.",
                code="wrong-dtype",
                argument="tables",
                value=type(tables).__name__,
            )
        for name, table in tables.items():
            placed = collection_state.placed_of(self, name, "tables")
            config = placed.table
            readable(f"tables[{name!r}]", table)
            if tuple(table.shape) != (config.num_embeddings, config.embedding_dim):
                raise InvalidArgumentError(
                    f"tables[{name!r}] has shape {list(table.shape)}; the table has "
                    f"[{config.num_embeddings}, {config.embedding_dim}].",
                    code="wrong-shape",
                    argument="tables",
                    value=tuple(table.shape),
                )
            shard = placed.on(self.exchange.rank)
            if shard is not None:
                part = table.detach()[shard.first_row : shard.last_row, shard.first_column : shard.last_column]
                with torch.no_grad():
                    self.embedding_bags[name].weight.copy_(part)

    def gather_tables(self, names: Sequence[str] | None = None, *, rank: int | None = None) -> dict[str, Tensor]:
        """Whole tables by name, on all ranks, or on one only ({} on the others); all must call it.

        ``EmbeddingBagCollection`` continues with them in one process.
        """
        return collection_state.gathered(self, names, rank)

    def extra_repr(self) -> str:
        """The placement of tables, and the rank."""
        kinds = list(self._plan.kinds().values())
        told = ", ".join(f"{kinds.count(kind)} by {kind}" for kind in dict.fromkeys(kinds))
        return f"{told}, exact={self.exact}, rank {self.exchange.rank} of {self.exchange.size}"

    def _settings(self, is_weighted: bool, optimizers: list[Any]) -> dict[str, int]:
        """What must be the same on all ranks, as numbers."""
        told = {
            "tables": [(t.name, t.num_embeddings, t.embedding_dim, t.feature_names, t.pooling, str(t.data_type))
                       for t in self._configs],
            "placement": [placed.shards for placed in self._plan.tables],
            "exact": self.exact, "gradient_average": self.gradient_average, "seed": self.seed, "sparse": self.sparse,
            "is_weighted": bool(is_weighted),
            "fused_optimizer": [None if each is None else json.dumps(each.as_dict(), sort_keys=True)
                                for each in optimizers],
        }  # fmt: skip
        return {name: zlib.crc32(repr(told[name]).encode()) for name in SETTINGS}

    def accumulate(self) -> Any:
        """As `EmbeddingBagCollection.accumulate`, for one rank; with several ranks each backward pass is a step."""
        if self.exchange.size > 1:
            raise InvalidArgumentError(
                "accumulate() is for collections in one process. With several ranks, each backward pass is a step: "
                "join the batches, or leave fused_optimizer out and use torch.optim.",
                code="wrong-argument",
            )
        return super().accumulate()


def _check_tables(tables: list[configs.EmbeddingBagConfig]) -> None:
    kinds = list(dict.fromkeys(table.data_type for table in tables))
    if len(kinds) > 1:
        raise InvalidArgumentError(
            f"the tables have the types {', '.join(map(str, kinds))}; a sharded collection has one type. Make a "
            "collection for each.",
            code="wrong-dtype",
            argument="tables",
            value=[str(kind) for kind in kinds],
        )
    for table in tables:
        if table.embedding_dim == 0 or table.pooling not in ("sum", "mean", "sqrtn"):
            raise InvalidArgumentError(
                f"the table {table.name!r} has {table.embedding_dim} columns and pooling {table.pooling!r}; allowed: "
                "at least one column, and sum, mean or sqrtn. ShardedEmbeddingBag has max.",
                code="wrong-argument",
                argument="tables",
                value=table.name,
            )


def _planned(
    placement: Any, tables: list[configs.EmbeddingBagConfig], optimizers: list[Any], ranks: int, room: float
) -> Plan:
    planner = placement if isinstance(placement, Planner) else Planner(memory=room)
    if planner.memory is None:
        planner = Planner(planner.bags, planner.ids_per_bag, room, planner.placement)
    fixed = asked((planner.placement or "auto") if isinstance(placement, Planner) else placement, tables, ranks)
    return planner.plan(tables, optimizers, ranks, fixed)
