"""`EmbeddingBagCollection`: many tables behind one call, with TorchRec's names.

Each table is an `EmbeddingBag`, which holds its rows and the state of its fused optimizer. Here the bags of all
features are told apart and pooled, and the gradients of all tables are used up in one backward pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rowgrad._ops import checks
from rowgrad.errors import InvalidArgumentError, OutOfRangeError
from rowgrad.torch import _configs as configs
from rowgrad.torch import _features as features_of
from rowgrad.torch import _fused as fused
from rowgrad.torch import _wrapping
from rowgrad.torch._bags import is_plain, segment_ids_of
from rowgrad.torch._embedding_bag import EmbeddingBag
from rowgrad.torch._fused_optimizer import FusedOptimizer, WithOptimizer
from rowgrad.torch._jagged import INTEGERS, check_vector
from rowgrad.torch._keyed import KeyedTensor, keyed
from rowgrad.torch._lookup import Bad, look_up
from rowgrad.torch._passes import Held, Pass, change
from rowgrad.torch._pooling import Owner, Way, factors_of, number_of, pool
from rowgrad.torch._tables import Batch
from rowgrad.torch._trained_tables import TrainedTables


class EmbeddingBagCollection(WithOptimizer, nn.Module):
    """Embedding tables for many features: looks up the bags of all features and pools each, in one call.

    Parameters
    ----------
    tables : list of EmbeddingBagConfig
        The tables. They may differ in width, type and pooling, and have several features each.
    is_weighted : bool
        Whether ids have weights. If False, weights of `features` are ignored.
    device : optional
        The device of new tables.
    fused_optimizer : rowgrad.optim optimizer, or dict of table name to optimizer, optional
        Updates the rows of the tables in the backward pass, as in `EmbeddingBag`. In a dict, None means that
        `torch.optim` trains the table.
    sparse : bool
        Whether gradients of tables without a fused optimizer are sparse, with only the rows that were looked up.

    Attributes
    ----------
    embedding_bags : torch.nn.ModuleDict
        The tables by name, each an `EmbeddingBag`; the state_dict has ``embedding_bags.<table>.weight``.

    Examples
    --------
    >>> import torch
    >>> from rowgrad.torch import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
    >>> collection = EmbeddingBagCollection(tables=[
    ...     EmbeddingBagConfig("users", 100, 4, ["user"]),
    ...     EmbeddingBagConfig("products", 1000, 8, ["clicked", "bought"], pooling="mean"),
    ... ])
    >>> features = KeyedJaggedTensor(
    ...     keys=["user", "clicked", "bought"],
    ...     values=torch.tensor([7, 8, 500, 500, 3, 4]),
    ...     lengths=torch.tensor([1, 1, 2, 0, 1, 1]),
    ... )
    >>> pooled = collection(features)
    >>> pooled.values().shape, pooled["bought"].shape
    (torch.Size([2, 20]), torch.Size([2, 8]))
    """

    def __init__(
        self,
        tables: Sequence[configs.EmbeddingBagConfig],
        is_weighted: bool = False,
        device: Any = None,
        *,
        fused_optimizer: Any = None,
        sparse: bool = True,
    ) -> None:
        super().__init__()
        self._configs = configs.checked(tables)
        self._is_weighted = is_weighted
        self.fused_optimizer = fused_optimizer
        self.sparse = sparse
        self._optimizer: FusedOptimizer | None = None
        self._number = number_of(self)
        self._tables: TrainedTables | None = None
        self._places: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._held: Held | None = None  # within `accumulate`: what is not in the tables yet
        self.embedding_bags = nn.ModuleDict()
        for table, optimizer in zip(self._configs, configs.optimizers_of(fused_optimizer, self._configs), strict=True):
            weight = torch.empty(table.num_embeddings, table.embedding_dim, dtype=table.data_type, device=device)
            if not weight.is_meta:
                table.fill(weight)
            self.embedding_bags[table.name] = EmbeddingBag(
                table.num_embeddings, table.embedding_dim, combiner=table.pooling, sparse=sparse,
                include_last_offset=True, fused_optimizer=optimizer, _weight=weight,
            )  # fmt: skip
        self._features = [name for table in self._configs for name in table.feature_names]
        self._names = configs.names_of(self._configs)
        self._widths = [table.embedding_dim for table in self._configs for _ in table.feature_names]

    @classmethod
    def from_torch(
        cls,
        modules: Sequence[nn.EmbeddingBag] | Mapping[str, nn.EmbeddingBag] | nn.ModuleList | nn.ModuleDict,
        *,
        feature_names: Mapping[str, Sequence[str]] | None = None,
        sparse: bool | None = None,
        **settings: Any,
    ) -> "EmbeddingBagCollection":
        """Return a collection of the tables of PyTorch layers, given as a list or as a dict by name.

        These may be a `torch.nn.ModuleList` or `ModuleDict`. The collection shares the `Parameter` of each module, so
        that an optimizer made for `modules` trains it too.
        Tables of a list are named t0, t1, …; each has one feature, named as the table, unless `feature_names` lists
        others for it. By default `sparse` is that of the modules.

        Examples
        --------
        >>> import torch
        >>> from rowgrad.torch import EmbeddingBagCollection
        >>> layers = [torch.nn.EmbeddingBag(10, 3, mode="sum"), torch.nn.EmbeddingBag(20, 4, mode="mean")]
        >>> collection = EmbeddingBagCollection.from_torch(layers, sparse=True)
        >>> collection({"t0": torch.tensor([[1, 2]]), "t1": torch.tensor([[3, 4]])}).values().shape
        torch.Size([1, 7])
        """
        tables, layers = configs.from_modules(modules, feature_names)
        if sparse is None:
            given = {layer.sparse for layer in layers}
            if len(given) > 1:
                raise InvalidArgumentError(
                    "some of the modules are sparse and others are not; a collection needs one setting. Pass sparse=….",
                    code="wrong-argument",
                    argument="sparse",
                )
            sparse = given.pop() if given else True
        collection = cls(tables, device="meta", sparse=sparse, **settings)
        for table, layer in zip(tables, layers, strict=True):
            bag = EmbeddingBag.from_torch(
                layer, sparse=sparse, include_last_offset=True,
                fused_optimizer=collection.embedding_bags[table.name].fused_optimizer,
            )  # fmt: skip
            collection.embedding_bags[table.name] = bag
        collection.train(all(layer.training for layer in layers))
        return collection

    @property
    def optimizer(self) -> FusedOptimizer | None:
        """The fused optimizers as one `torch.optim.Optimizer`, for schedulers, scalers and checkpoints, or None.

        Its parameter groups have the settings that the next backward pass uses; `step` and `zero_grad` do nothing.
        """
        if self._optimizer is None:
            tables = {name: bag for name, bag in self.embedding_bags.items() if bag.fused_optimizer is not None}
            self._optimizer = FusedOptimizer(tables) if tables else None
        return self._optimizer

    def embedding_bag_configs(self) -> list[configs.EmbeddingBagConfig]:
        """The configurations of the tables."""
        return self._configs

    def is_weighted(self) -> bool:
        """Whether ids have weights."""
        return self._is_weighted

    def feature_names(self) -> list[str]:
        """The features in the order that `pool` expects: table by table."""
        return list(self._features)

    @property
    def device(self) -> torch.device:
        """The device of the tables."""
        return next(self.parameters()).device

    def reset_parameters(self) -> None:
        """Reinitialize all tables and reset fused optimizers."""
        for table in self._configs:
            bag = self.embedding_bags[table.name]
            if bag.weight.is_meta:
                continue
            table.fill(bag.weight)
            if bag.fused_optimizer is not None:
                for name, array in fused.new_state(bag.fused_optimizer, bag.weight).items():
                    bag.fused_state[name].copy_(array)

    def forward(self, features: Any) -> KeyedTensor:
        """Look up and pool the bags of all features.

        Parameters
        ----------
        features : KeyedJaggedTensor, or dict of feature name to ids
            Keys in any order; features that no table has are ignored. The ids in a dict are a matrix with one bag per
            row, (ids, offsets) or (ids, offsets, weights) with offsets that begin with 0 and end with the number of
            ids, a `JaggedTensor`, or a jagged nested tensor.

        Returns
        -------
        KeyedTensor, shape [batch, Σ widths]
            The pooled rows of each feature, table by table; if several tables have a feature, its keys are
            ``feature@table``. An empty bag is 0. Tables of different types give the type that they promote to.
        """
        with _scalars():
            found = features_of.read(features, self._features, self._is_weighted)
        return keyed(self._names, self._widths, self.pool(*found))

    def pool(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Look up and pool bags given as plain tensors.

        Parameters
        ----------
        values : int32 or int64, shape [N]
            The ids, feature by feature in the order of `feature_names()`.
        offsets : int32 or int64, shape [features · batch + 1]
            Where each bag begins: all bags of the first feature, then all of the second; and N at the end.
        weights : float, shape [N], optional
            The weight of each id, for sum, mean (Σ w·x / Σ w) and sqrtn (Σ w·x / sqrt(Σ w²)). Gradients flow to it.

        Returns
        -------
        tensor, shape [batch, Σ widths]

        Raises
        ------
        OutOfRangeError
            An id is not in its table; the message names the feature, the table and the position. No table has changed.
        InvalidArgumentError, DTypeError
            Shapes, offsets or types are wrong.
        """
        batch = self._batch_of(values, offsets, weights)
        if DistributedDataParallel._active_ddp_module is not None or "_is_fsdp_managed_module" in self.__dict__:
            self._check_wrapping()
        if is_plain(values) and is_plain(offsets):
            pooled = self._look_up(values, offsets, weights, batch)
            if pooled is not None:
                return pooled
        return self._pool_tables(values, offsets, weights, batch)

    def _look_up(self, values: Tensor, offsets: Tensor, weights: Tensor | None, batch: int) -> Tensor | None:
        """All tables by one kernel; None for what only operators take, and for what is wrong, which they tell."""
        layers = list(self.embedding_bags._modules.values())
        if self._tables is None or self._tables.layers != layers:
            self._tables = TrainedTables(layers, [table.num_features() for table in self._configs])
            fused_layers = [layer for layer in layers if getattr(layer, "fused_optimizer", None) is not None]
            self._is_fused = len(fused_layers) == len(layers)
            self._is_mixed = bool(fused_layers) and not self._is_fused
        if self._is_mixed:
            return None
        if offsets.dtype != values.dtype or not offsets.is_contiguous():
            offsets = offsets.to(values.dtype).contiguous()
        found = Batch(values, offsets, weights, batch)
        try:
            return look_up(self._tables, found, sparse=self.sparse, update=self._update if self._is_fused else None)
        except Bad:
            return None

    def _update(self, batch: Batch, grad: Tensor) -> None:
        """Change all tables by the gradient of the pooled rows; or keep that until later."""
        assert self._tables is not None and self.optimizer is not None
        one, is_held = Pass(self), self._held is not None
        found = one.begin(grad)
        if found is None:
            return
        if not is_held:
            groups = [(self._members(names), optimizer) for names, optimizer in self.optimizer.groups()]
            done = self._tables.step(batch, found, groups)
            if done is None:
                raise checks.changed("values")
            if done:
                return
        for table, weight, entries in zip(
            self._configs, self._tables.weights(), self._tables.entries(batch, found), strict=True
        ):
            one.settle(table.name, fused.Pass(weight, *entries))

    def _members(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """The places of tables among all."""
        if names not in self._places:
            places = {table.name: place for place, table in enumerate(self._configs)}
            self._places[names] = tuple(places[name] for name in names)
        return self._places[names]

    def _pool_tables(self, values: Tensor, offsets: Tensor, weights: Tensor | None, batch: int) -> Tensor:
        """Table by table: in compiled and transformed code, on other devices, and for gradients of gradients."""
        self._check_wrapping()
        one = Pass(self)
        segments = segment_ids_of(offsets, values.shape[0])
        bounds = self._bounds(values, offsets, batch)
        parts, first = [], 0
        for i, table in enumerate(self._configs):
            bag, count = self.embedding_bags[table.name], table.num_features()
            begin, size = bounds[i], bounds[i + 1] - bounds[i]
            ids = values.narrow(0, begin, size)
            bags = segments.narrow(0, begin, size) - first * batch
            factors = None
            if weights is not None:
                factors = factors_of(weights.narrow(0, begin, size), bags, count * batch, bag.mode)
            update = None if bag.fused_optimizer is None else partial(one.update, table.name)
            try:
                owner = None if update is None else Owner(self._number, table.name, bag._updates)
                way = Way(bag.mode, self.sparse, update=update, owner=owner)
                pooled = pool(bag.weight, ids, bags, count * batch, factors, way)
            except OutOfRangeError as error:
                if error.argument != "indices" or not isinstance(error.position, int):
                    raise
                raise self._bad_id(values, offsets, batch, begin + error.position) from None
            if count > 1:
                width = table.embedding_dim
                pooled = pooled.view(count, batch, width).transpose(0, 1).reshape(batch, count * width)
            parts.append(pooled)
            first += count
        output = torch.cat(parts, 1) if len(parts) > 1 else parts[0]
        scaler = None if self._optimizer is None else self._optimizer.grad_scaler
        if scaler is not None and torch.compiler.is_compiling():
            raise InvalidArgumentError(
                "a compiled collection cannot tell whether the gradients of all tables are finite before it changes "
                "the first. Leave grad_scaler out, or call the collection outside the compiled part of the model.",
                code="compiled-scaler",
                argument="grad_scaler",
            )
        if scaler is not None and output.requires_grad:
            output.register_hook(one.look)
        return output

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy is another collection to compiled programs."""
        super().__setstate__(state)
        self._number = number_of(self)

    def update_table(self, table: str, grad: Any, *entries: Tensor) -> None:
        """Update a table; compiled programs call this in their backward pass."""
        with torch.no_grad():
            Pass(self).update(table, self.embedding_bags[table].weight, grad, *entries)

    def _batch_of(self, values: Tensor, offsets: Tensor, weights: Tensor | None) -> int:
        """The number of examples; types and shapes are checked, at no cost."""
        check_vector("values", values, INTEGERS)
        check_vector("offsets", offsets, INTEGERS)
        if weights is not None:
            check_vector("weights", weights, configs.FLOATS)
        if weights is not None and weights.shape != values.shape:
            raise InvalidArgumentError(
                f"weights has shape {list(weights.shape)}, but values has {list(values.shape)}; each id needs one "
                "weight.",
                code="wrong-shape",
                argument="weights",
                value=tuple(weights.shape),
            )
        count, bags = len(self._features), offsets.shape[0] - 1
        if bags < 0 or bags % count:
            raise InvalidArgumentError(
                f"offsets has length {bags + 1}; it must be a multiple of the {count} features, and 1: where each bag "
                "begins, and the number of values at the end.",
                code="length-mismatch",
                argument="offsets",
                value=bags + 1,
            )
        batch: int = bags // count
        return batch

    def _bounds(self, values: Tensor, offsets: Tensor, batch: int) -> list[int]:
        """Where the ids of each table begin, and where those of the last one end; offsets have been checked."""
        size, compiling = values.shape[0], torch.compiler.is_compiling()
        if not compiling:
            end = int(offsets[-1])
            if end != size:
                raise InvalidArgumentError(
                    f"offsets[{offsets.shape[0] - 1}] is {end}; the last offset must be {size}, the number of values.",
                    code="bad-offset",
                    argument="offsets",
                    position=offsets.shape[0] - 1,
                    value=end,
                )
        if batch == 0:
            return [0] * (len(self._configs) + 1)
        with _scalars():
            begins = offsets[:-1].reshape(len(self._features), batch)[:, 0].tolist()
        found, first = [], 0
        for table in self._configs:
            found.append(begins[first])
            first += table.num_features()
        found.append(size)
        if not compiling and not all(0 <= before <= after <= size for before, after in pairwise(found)):
            raise checks.changed("offsets")
        if compiling:
            found[0] = 0
            for before, after in pairwise(found):
                torch._check(before >= 0)
                torch._check(after >= before)
                torch._check(after <= size)
        return found

    def _bad_id(self, values: Tensor, offsets: Tensor, batch: int, position: int) -> InvalidArgumentError:
        """The error for an id that is not in its table."""
        bag = int(torch.searchsorted(offsets.contiguous(), position, right=True)) - 1
        feature = bag // batch
        table = [each for each in self._configs for _ in each.feature_names][feature]
        return checks.out_of_range(
            "values",
            position,
            int(values[position]),
            table.num_embeddings,
            f"num_embeddings of the table {table.name!r}",
            "index-out-of-range",
            f"It is entry {position - int(offsets[bag])} of bag {bag % batch} of the feature "
            f"{self._features[feature]!r}. Check the ids, or make the table larger.",
        )

    def _check_wrapping(self) -> None:
        for bag in self.embedding_bags.values():
            is_fused = bag.fused_optimizer is not None
            if self.sparse or is_fused:
                _wrapping.check(bag, sparse=self.sparse, fused=is_fused)

    @contextmanager
    def accumulate(self) -> Iterator[None]:
        """Combine the backward passes within this block into one step of the fused optimizers, when the block ends.

        The step equals that of one pass over all their batches: bit for bit for tables of one feature, for others up to
        rounding. Until then the gradients of the pooled rows are stored. After an exception there is no step.
        """
        if self._held is not None:
            raise InvalidArgumentError(
                "accumulate() is called within a block of accumulate() of the same collection. Leave the inner one "
                "out.",
                code="nested-accumulate",
            )
        held = self._held = Held()
        try:
            yield
        finally:
            self._held = None
        if held.spoiled:
            return
        with torch.no_grad():
            for name, passes in held.passes.items():
                change(self, name, fused.joined(passes, self.embedding_bags[name].mode))


def _scalars() -> AbstractContextManager[Any]:
    """Where sizes are read from tensors, compiled code has to keep them as numbers."""
    patch = getattr(torch._dynamo, "patch_dynamo_config", None) if torch.compiler.is_compiling() else None
    return nullcontext() if patch is None else patch(capture_scalar_outputs=True)
