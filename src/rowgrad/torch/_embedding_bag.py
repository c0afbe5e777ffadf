"""`EmbeddingBag`: a table whose rows are looked up and pooled, a `torch.nn.EmbeddingBag` that does more.

It takes what that one takes, and beside it: sqrtn, weights with mean and sqrtn, compact gradients that need no sorting,
gradients of gradients, an optimizer fused into the backward pass. What is refused, is refused with a reason.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from rowgrad._ops import checks
from rowgrad._ops.ragged_tensor import RaggedTensor
from rowgrad._ops.results import RowGradient
from rowgrad._runtime import arrays
from rowgrad.errors import InvalidArgumentError
from rowgrad.optim import Optimizer
from rowgrad.tables import Table
from rowgrad.torch import _bags as bags
from rowgrad.torch import _fused as fused
from rowgrad.torch import _wrapping
from rowgrad.torch._fused import STATE as STATE
from rowgrad.torch._fused_optimizer import FusedOptimizer, WithOptimizer
from rowgrad.torch._jagged import of_ragged
from rowgrad.torch._lookup import Bad, look_up, look_up_one
from rowgrad.torch._pooling import Owner, Way, factors_of, number_of, pool
from rowgrad.torch._settings import fitting, one_combiner, padding, size
from rowgrad.torch._tables import Batch
from rowgrad.torch._trained_tables import TrainedTables


class EmbeddingBag(WithOptimizer, nn.EmbeddingBag):
    """A table of embeddings; looks up bags of ids and pools the rows of each bag.

    It is a `torch.nn.EmbeddingBag`, with the same arguments in the same order; `combiner` and `fused_optimizer` are
    keyword-only.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        The rows and columns of the table.
    max_norm : float, optional
        Looked-up rows with a larger norm are scaled down to this norm, in the table.
    norm_type : float
        The p of the p-norm for `max_norm`.
    scale_grad_by_freq : bool
        Whether the gradient of a row is divided by how often the row occurs in the batch.
    mode : {"mean", "sum", "sqrtn", "max"}
        PyTorch's name for `combiner`.
    sparse : bool
        Whether the gradient of the table is a sparse tensor with only the rows that were looked up. It is coalesced, so
        `torch.optim.SGD`, `Adagrad` and `SparseAdam` do not sort it again. If False, the gradient is dense.
    _weight : tensor, optional
        The table, instead of a new one drawn from the normal distribution.
    include_last_offset : bool
        Whether offsets end with the number of ids. The last bag reaches to the last id in any case.
    padding_idx : int, optional
        The id used for padding: it is ignored and gets no gradient. Negative numbers count from the end.
    device, dtype
        Device and type of the new table.
    combiner : {"mean", "sum", "sqrtn", "max"}
        How the rows of a bag are reduced to one. sqrtn is their sum divided by the square root of their number.
    fused_optimizer : rowgrad.optim optimizer, optional
        Updates the rows of the table in the backward pass, without storing their gradient; the table then needs no
        other optimizer, and has no ``.grad``. Each backward pass is a step; `accumulate` combines several into one.
        Its state is saved with the layer, in the type that it is computed in: casting the layer does not change it.

    Attributes
    ----------
    grad_scaler : torch.amp.GradScaler, optional
        Assign the scaler that multiplies the loss: the fused optimizer then divides gradients by its scale, and skips
        the step if they are not finite. Without it, the table would be updated with scaled gradients.
    skipped_steps : int
        How many steps were skipped for that reason.

    Examples
    --------
    >>> import torch
    >>> from rowgrad.torch import EmbeddingBag
    >>> bag = EmbeddingBag(4, 2, combiner="sqrtn", _weight=torch.ones(4, 2))
    >>> pooled = bag(torch.tensor([[0, 1, 2, 2], [3, 3, 3, 3]]))
    >>> pooled.tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    >>> pooled.sum().backward()
    >>> bag.weight.grad.is_coalesced(), bag.weight.grad.values().tolist()
    (True, [[0.5, 0.5], [0.5, 0.5], [1.0, 1.0], [2.0, 2.0]])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str | None = None,
        sparse: bool = True,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        combiner: str | None = None,
        fused_optimizer: Optimizer | None = None,
    ) -> None:
        rows, columns = size("num_embeddings", num_embeddings), size("embedding_dim", embedding_dim)
        combiner = one_combiner(combiner, mode)
        if scale_grad_by_freq and (combiner == "max" or fused_optimizer is not None):
            other = "the combiner max" if combiner == "max" else "a fused optimizer"
            raise InvalidArgumentError(
                f"scale_grad_by_freq cannot be used with {other}. Leave one of them out.",
                code="wrong-argument",
                argument="scale_grad_by_freq",
            )
        super().__init__(
            rows,
            columns,
            max_norm=None if max_norm is None else float(max_norm),
            norm_type=float(norm_type),
            scale_grad_by_freq=scale_grad_by_freq,
            mode=combiner,
            sparse=sparse,
            _weight=None if _weight is None else fitting(_weight, rows, columns),
            include_last_offset=include_last_offset,
            padding_idx=padding(padding_idx, rows),
            device=device,
            dtype=dtype,
        )
        self._table: Table | None = None
        self._tables: TrainedTables | None = None
        self._held: list[fused.Pass] | None = None  # within `accumulate`: what is not in the table yet
        self._optimizer: FusedOptimizer | None = None
        self._number, self._updates = number_of(self), torch.zeros((), dtype=torch.int64)  # for compiled programs
        self.fused_optimizer = fused_optimizer
        if fused_optimizer is not None:
            for name, array in fused.new_state(fused_optimizer, self.weight).items():
                self.register_buffer(STATE + name, array)

    @classmethod
    def from_torch(cls, module: nn.EmbeddingBag, **changes: Any) -> "EmbeddingBag":
        """Return a layer with the settings and the table of a `torch.nn.EmbeddingBag`.

        The two share one `Parameter`, so that an optimizer made for `module` trains the new layer too. `changes`
        override settings, for example ``sparse=True`` or ``fused_optimizer=…``.

        Examples
        --------
        >>> import torch
        >>> from rowgrad.torch import EmbeddingBag
        >>> EmbeddingBag.from_torch(torch.nn.EmbeddingBag(10, 3, mode="sum"), sparse=True)
        EmbeddingBag(10, 3, combiner='sum')
        """
        if not isinstance(module, nn.EmbeddingBag):
            raise InvalidArgumentError(
                f"module is a {type(module).__name__}; from_torch takes a torch.nn.EmbeddingBag.",
                code="wrong-type",
                argument="module",
                value=type(module).__name__,
            )
        settings = {
            "combiner": module.mode,
            "sparse": module.sparse,
            "padding_idx": module.padding_idx,
            "max_norm": module.max_norm,
            "norm_type": module.norm_type,
            "scale_grad_by_freq": module.scale_grad_by_freq,
            "include_last_offset": module.include_last_offset,
        }
        layer = cls(
            module.num_embeddings, module.embedding_dim, _weight=module.weight.detach(), **{**settings, **changes}
        )
        layer.weight = module.weight
        layer.train(module.training)
        return layer

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str | None = None,
        sparse: bool = True,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        **settings: Any,
    ) -> "EmbeddingBag":
        """Return a layer with `embeddings` as its table, which is not trained unless `freeze` is False."""
        if not isinstance(embeddings, torch.Tensor) or embeddings.dim() != 2:
            raise InvalidArgumentError(
                "embeddings must be a tensor with two dimensions, rows and columns.",
                code="wrong-rank",
                argument="embeddings",
            )
        rows, columns = embeddings.shape
        layer = cls(
            rows,
            columns,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            mode=mode,
            sparse=sparse,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
            _weight=embeddings,
            **settings,
        )
        layer.weight.requires_grad_(not freeze)
        return layer

    @classmethod
    def from_table(cls, table: Table, **settings: Any) -> "EmbeddingBag":
        """Return a layer over a table on disk, without loading it: rows are read from the table and updated in it.

        If the table has an optimizer, it is fused into the backward pass, and its state is in the table, not in the
        state_dict. Without one, end each step that changes rows with ``table.end_step()``. A table that is open
        for reading only is not trained.

        Examples
        --------
        >>> import tempfile
        >>> import torch
        >>> import rowgrad
        >>> from rowgrad import optim
        >>> from rowgrad.torch import EmbeddingBag
        >>> folder = tempfile.mkdtemp()
        >>> with rowgrad.Table.create(f"{folder}/words", 1000, 2, optimizer=optim.SGD(lr=0.5)) as table:
        ...     bag = EmbeddingBag.from_table(table, combiner="sum")
        ...     bag(torch.tensor([[7, 7]])).sum().backward()
        ...     table.array[7].tolist(), table.steps
        ([-1.0, -1.0], 1)
        """
        if "fused_optimizer" in settings:
            raise InvalidArgumentError(
                "a table on disk has its own optimizer. Leave fused_optimizer out, and set table.optimizer.",
                code="wrong-argument",
                argument="fused_optimizer",
            )
        memory = arrays.TORCH.hand_back(arrays.settle(table.array))
        layer = cls(table.rows, table.width, _weight=memory, **settings)
        layer.weight.requires_grad_(table.array.flags.writeable)
        layer._table = table if table.optimizer is not None else None
        return layer

    @property
    def combiner(self) -> str:
        """How the rows of a bag are reduced to one; PyTorch calls it `mode`."""
        return str(self.mode)

    def reset_parameters(self) -> None:
        """Draw the table from the normal distribution; the padding row is 0, and a fused optimizer is reset."""
        super().reset_parameters()
        state = self.fused_state
        if state and self.fused_optimizer is not None:
            for name, array in fused.new_state(self.fused_optimizer, self.weight).items():
                state[name].copy_(array)

    def forward(
        self,
        input: Tensor | RaggedTensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | RaggedTensor | None = None,
        *,
        segment_ids: Tensor | None = None,
        num_bags: int | None = None,
    ) -> Tensor:
        """Look up and pool.

        Parameters
        ----------
        input : int32 or int64
            The ids: a matrix, a jagged nested tensor or a `rowgrad.RaggedTensor` with a bag a row; or a vector, with
            `offsets` or `segment_ids`.
        offsets : int32 or int64, shape [bags], optional
            Where each bag begins; two equal ones begin an empty bag.
        per_sample_weights : float, the shape of input, optional
            The weight of each id (jagged if input is), for sum, mean (Σ w·x / Σ w) and sqrtn (Σ w·x / sqrt(Σ w²)).
            Gradients flow to it.
        segment_ids : int32 or int64, shape [N], optional
            The bag of each id, not decreasing.
        num_bags : int, optional
            The number of bags, for `segment_ids`; by default the last id + 1.

        Returns
        -------
        tensor, shape [bags, embedding_dim]
            The pooled rows; an empty bag is 0.
        """
        if isinstance(input, RaggedTensor):
            input, offsets, per_sample_weights = self._of_ragged(input, offsets, per_sample_weights)
        if segment_ids is None and num_bags is None and not is_compiling():
            pooled = None
            if offsets is not None and per_sample_weights is None:
                pooled = look_up_one(self, input, offsets)
            if pooled is None and self._is_simple:
                pooled = self._look_up(input, offsets, per_sample_weights)
            if pooled is not None:
                return pooled
        if self._table is not None and not is_compiling():
            self._table.check()
        batch = bags.read(
            input, offsets, per_sample_weights, segment_ids, num_bags, include_last_offset=self.include_last_offset
        )
        if batch.weights is not None and self.mode == "max":
            raise InvalidArgumentError(
                "per_sample_weights cannot be used with the combiner max; allowed: sum, mean and sqrtn.",
                code="wrong-argument",
                argument="per_sample_weights",
            )
        if self.padding_idx is not None:
            batch = bags.without(batch, self.padding_idx)
        if self.max_norm is not None:
            with torch.no_grad():
                torch.embedding_renorm_(self.weight, batch.ids.contiguous(), self.max_norm, self.norm_type)
        factors = None
        if batch.weights is not None:
            factors = factors_of(batch.weights, batch.segment_ids, batch.count, self.mode)
        update = None if self.fused_optimizer is None and self._table is None else self._update
        if self.sparse or update is not None:
            _wrapping.check(self, sparse=self.sparse, fused=update is not None)
        owner = None if update is None else Owner(self._number, "weight", self._updates)
        way = Way(self.mode, self.sparse, self.scale_grad_by_freq, update, owner)
        return pool(self.weight, batch.ids, batch.segment_ids, batch.count, factors, way)

    def _of_ragged(self, input: RaggedTensor, offsets: Any, weights: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """The ids and offsets of a ragged tensor, and its weights, which may be ragged too."""
        if offsets is not None:
            raise InvalidArgumentError("input is a ragged tensor, which has row splits; leave out offsets.",
                                       code="wrong-argument", argument="offsets")  # fmt: skip
        ids, splits = of_ragged(input, "input")
        if isinstance(weights, RaggedTensor):
            weights, own = of_ragged(weights, "per_sample_weights")
            if not torch.equal(own, splits):
                raise InvalidArgumentError("per_sample_weights has other row splits than input; each id needs one.",
                                           code="wrong-shape", argument="per_sample_weights")  # fmt: skip
        return ids, splits if self.include_last_offset else splits[:-1], weights

    @property
    def _is_simple(self) -> bool:
        """Whether look-ups need nothing but the table and the bags."""
        return (
            self.mode != "max"
            and self.padding_idx is None
            and self.max_norm is None
            and not self.scale_grad_by_freq
            and self._table is None
        )

    def _look_up(self, input: Tensor, offsets: Tensor | None, weights: Tensor | None) -> Tensor | None:
        """From tensors to the kernel in one step; None for what only operators take, and for what is wrong."""
        is_fused = self.fused_optimizer is not None
        if _wrapping.is_wrapped(self) and (self.sparse or is_fused):
            _wrapping.check(self, sparse=self.sparse, fused=is_fused)
        try:
            if not (isinstance(input, torch.Tensor) and bags.is_plain(input)):
                return None
            found = bags.flat(input, offsets, weights, include_last_offset=self.include_last_offset)
            if found is None:
                return None
            if self._tables is None:
                self._tables = TrainedTables([self], [1])
            return look_up(
                self._tables, Batch(*found), sparse=self.sparse, update=self._update_bags if is_fused else None
            )
        except Bad:
            return None

    def extra_repr(self) -> str:
        """The settings that differ from the defaults."""
        text = f"{self.num_embeddings}, {self.embedding_dim}, combiner={self.mode!r}"
        usual = {"sparse": True, "padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False,
                 "include_last_offset": False, "fused_optimizer": None}  # fmt: skip
        changed = {name: getattr(self, name) for name, value in usual.items() if getattr(self, name) != value}
        return text + "".join(f", {name}={value!r}" for name, value in changed.items())

    @property
    def optimizer(self) -> FusedOptimizer | None:
        """The fused optimizer as a `torch.optim.Optimizer`, for schedulers, scalers and checkpoints; None without one.

        Examples
        --------
        >>> import torch
        >>> from rowgrad import optim
        >>> from rowgrad.torch import EmbeddingBag
        >>> bag = EmbeddingBag(100, 4, fused_optimizer=optim.Adagrad(lr=0.5))
        >>> scheduler = torch.optim.lr_scheduler.StepLR(bag.optimizer, step_size=1, gamma=0.1)
        >>> bag.optimizer.param_groups[0]["lr"]
        0.5
        """
        if self._optimizer is None and self.fused_optimizer is not None:
            self._optimizer = FusedOptimizer({"weight": self})
        return self._optimizer

    @property
    def fused_state(self) -> dict[str, Tensor]:
        """The state of the fused optimizer, by name."""
        return {name.removeprefix(STATE): array for name, array in self._buffers.items()
                if name.startswith(STATE) and array is not None}  # fmt: skip

    @contextmanager
    def accumulate(self) -> Iterator[None]:
        """Combine the backward passes within this block into one step of the fused optimizer, when the block ends.

        The step equals that of one pass over all their batches: bit for bit, for max up to rounding. Until then the
        gradients of the pooled rows are stored. After an exception there is no step. Without a fused optimizer the
        block has no effect, because ``.grad`` accumulates gradients anyway.

        Examples
        --------
        >>> import torch
        >>> from rowgrad import optim
        >>> from rowgrad.torch import EmbeddingBag
        >>> bag = EmbeddingBag(4, 1, combiner="sum", fused_optimizer=optim.SGD(lr=0.5), _weight=torch.ones(4, 1))
        >>> with bag.accumulate():
        ...     for ids in ([[0, 1]], [[1, 2]]):
        ...         bag(torch.tensor(ids)).sum().backward()
        >>> bag.weight.flatten().tolist()
        [0.5, 0.0, 0.5, 1.0]
        """
        if self._held is not None:
            raise InvalidArgumentError(
                "accumulate() is called within a block of accumulate() of the same layer. Leave the inner one out.",
                code="nested-accumulate",
            )
        held: list[fused.Pass] = []
        self._held = held
        try:
            yield
        finally:
            self._held = None
        if held:
            with torch.no_grad():
                self._change(fused.joined(held, self.mode))

    def _update_bags(self, batch: Batch, grad: Tensor) -> None:
        """Change the table by the gradient of the pooled rows; or keep that until later."""
        assert self._tables is not None
        weight, found = self.weight, None
        if self._held is None:
            assert self.optimizer is not None
            found = self.optimizer.unscaled(grad)
            if found is None:
                return
            done = self._tables.step(batch, found, [((0,), self.optimizer.optimizer_for("weight"))])
            if done is None:
                raise checks.changed("input")
            if done:
                return
        for part, *entries in self._tables.entries(batch, grad if found is None else found):
            one = fused.Pass(weight, part, *entries)
            if self._held is not None:
                self._held.append(one.kept())
            else:
                self._make_step(one)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy is another layer to compiled programs."""
        super().__setstate__(state)
        self._number, self._updates = number_of(self), torch.zeros((), dtype=torch.int64)

    def update_table(self, table: str, grad: Any, *entries: Tensor) -> None:
        """Update the table; compiled programs call this in their backward pass."""
        with torch.no_grad():
            self._update(self.weight, grad, *entries)

    def _update(self, weight: Tensor, grad: Any, *entries: Tensor) -> None:
        """Change the table by the gradient of the pooled rows, or by a compact one; or keep that until later."""
        one = fused.Pass(weight, grad, *entries) if entries else fused.Pass(weight, *grad)
        if self._held is not None:
            self._held.append(one.kept())
        else:
            self._change(one)

    def _change(self, one: fused.Pass) -> None:
        """Make the step of a pass, unless its gradient has overflowed."""
        found = one.grad if self.optimizer is None else self.optimizer.unscaled(one.grad)
        if found is not None:
            self._make_step(one._replace(grad=found))

    def _make_step(self, one: fused.Pass, optimizer: Optimizer | None = None) -> None:
        """Change the table by what a pass has; by another optimizer than the layer's own, if one is given."""
        weight, grad = one.weight, one.grad
        plain = self._table is not None or bags.is_plain(weight)

        def fit(tensor: Any) -> Any:
            return bags.array_of(tensor) if plain and tensor is not None else tensor

        grad, ids, segment_ids, factors = map(fit, (grad, one.ids, one.segment_ids, one.factors))
        if self._table is not None:
            step, step_pooled = self._table.step, self._table.step_pooled
        else:
            if optimizer is None:
                assert self.optimizer is not None
                optimizer = self.optimizer.optimizer_for("weight")
            table, state = fit(weight.detach()), {name: fit(array) for name, array in self.fused_state.items()}
            step = partial(optimizer.step, table, state=state)
            step_pooled = partial(optimizer.step_pooled, table, state=state)
        if segment_ids is None:
            step(RowGradient(grad, ids))
        else:
            combiner = "sum" if factors is not None or self.mode == "max" else self.mode
            step_pooled(grad, ids, segment_ids, combiner=combiner, weights=factors)
        torch.autograd.graph.increment_version(weight)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "EmbeddingBag":
        """Move the layer or cast its table; the state of the optimizer moves along, in the type that it is kept in."""
        before = self.fused_state
        super()._apply(fn, recurse)
        for name, array in before.items():
            self._buffers[STATE + name] = fused.moved(array, self.fused_state[name], self.weight.dtype)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """A table without the state of an optimizer, such as PyTorch's, is taken; the state stays as it is."""
        own = [prefix + name for name in self._buffers if name.startswith(STATE)]
        if own and not any(name in state_dict for name in own):
            state_dict = {**state_dict, **{name: self._buffers[name.removeprefix(prefix)] for name in own}}
        super()._load_from_state_dict(state_dict, prefix, *others)
