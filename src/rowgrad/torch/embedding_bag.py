"""`EmbeddingBag`: a table whose rows are looked up and pooled, in place of `torch.nn.EmbeddingBag`.

It takes what that one takes, and more: sqrtn, weights with mean and sqrtn, compact gradients that need no sorting,
gradients of gradients, an optimizer fused into the backward pass. What is refused, is refused with a reason.
"""

from typing import Any

import torch
from torch import Tensor, nn

from rowgrad import arrays
from rowgrad.errors import InvalidArgumentError
from rowgrad.ops.results import RowGradient
from rowgrad.optim import Optimizer
from rowgrad.tables import Table
from rowgrad.torch import bags, wrapping
from rowgrad.torch.pooling import Way, factors_of, pool
from rowgrad.torch.settings import fitting, one_combiner, padding, size

STATE = "fused_"  # in front of the names of the buffers that a fused optimizer keeps


class EmbeddingBag(nn.Module):
    """A table of embeddings; looks up bags of ids and pools the rows of each bag.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        The rows and columns of the table.
    combiner : {"mean", "sum", "sqrtn", "max"}
        How the rows of a bag become one. sqrtn is their sum divided by the square root of their number.
    sparse : bool
        Whether the gradient of the table is a sparse tensor, of the rows that were looked up only: it is coalesced, and
        `torch.optim.SGD`, `Adagrad` and `SparseAdam` take it without another sort. Else it is dense.
    padding_idx : int, optional
        A row that only fills bags up: it counts nowhere and gets no gradient. Negative numbers count from the end.
    max_norm : float, optional
        Rows that are looked up and longer than this are shortened to it, in the table.
    norm_type : float
        Which norm that is.
    scale_grad_by_freq : bool
        Whether the gradient of a row is divided by how often the row occurs in the batch.
    include_last_offset : bool
        Whether offsets end with the number of ids.
    fused_optimizer : rowgrad.optim optimizer, optional
        Changes the rows of the table in the backward pass, without their gradient ever being in memory; the table then
        needs no other optimizer, and has no ``.grad``. Its state is saved with the layer.
    mode : str, optional
        PyTorch's name for `combiner`.
    _weight : tensor, optional
        The table, instead of a new one drawn from the normal distribution.
    device, dtype
        Of the new table.

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

    __constants__ = ("num_embeddings", "embedding_dim", "combiner")

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        combiner: str | None = None,
        sparse: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        include_last_offset: bool = False,
        fused_optimizer: Optimizer | None = None,
        mode: str | None = None,
        _weight: Tensor | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = size("num_embeddings", num_embeddings)
        self.embedding_dim = size("embedding_dim", embedding_dim)
        self.combiner = one_combiner(combiner, mode)
        self.sparse = sparse
        self.padding_idx = padding(padding_idx, num_embeddings)
        self.max_norm = None if max_norm is None else float(max_norm)
        self.norm_type = float(norm_type)
        self.scale_grad_by_freq = scale_grad_by_freq
        self.include_last_offset = include_last_offset
        if scale_grad_by_freq and (self.combiner == "max" or fused_optimizer is not None):
            other = "the combiner max" if self.combiner == "max" else "a fused optimizer"
            raise InvalidArgumentError(
                f"scale_grad_by_freq does not go with {other}. Leave one of them out.",
                code="wrong-argument",
                argument="scale_grad_by_freq",
            )
        if _weight is None:
            self.weight = nn.Parameter(torch.empty(num_embeddings, embedding_dim, device=device, dtype=dtype))
            self.reset_parameters()
        else:
            self.weight = nn.Parameter(fitting(_weight, num_embeddings, embedding_dim))
        self._table: Table | None = None
        self.fused_optimizer = fused_optimizer
        if fused_optimizer is not None:
            for name, array in fused_optimizer.init(self.weight.detach()).items():
                self.register_buffer(STATE + name, array)

    @classmethod
    def from_torch(cls, module: nn.EmbeddingBag, **changes: Any) -> "EmbeddingBag":
        """A layer with the settings and the table of a `torch.nn.EmbeddingBag`; the table is shared, not copied.

        `changes` are settings that shall be different, such as ``sparse=True`` or ``fused_optimizer=…``.

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
        layer.weight.requires_grad_(module.weight.requires_grad)
        layer.train(module.training)
        return layer

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **settings: Any) -> "EmbeddingBag":
        """A layer with `embeddings` as its table, which is not trained unless `freeze` is False."""
        if not isinstance(embeddings, torch.Tensor) or embeddings.dim() != 2:
            raise InvalidArgumentError(
                "embeddings must be a tensor with two dimensions, rows and columns.",
                code="wrong-rank",
                argument="embeddings",
            )
        layer = cls(*embeddings.shape, _weight=embeddings, **settings)
        layer.weight.requires_grad_(not freeze)
        return layer

    @classmethod
    def from_table(cls, table: Table, **settings: Any) -> "EmbeddingBag":
        """A layer over a table on disk, which stays where it is: rows are read from it, and changed in it.

        Where the table has an optimizer, it is fused into the backward pass, and its state is in the table, not in the
        state_dict. Without one, whoever changes the rows ends each step with ``table.end_step()``. A table that is open
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
                "a table on disk has its optimizer with it. Leave fused_optimizer out, and set table.optimizer.",
                code="wrong-argument",
                argument="fused_optimizer",
            )
        memory = arrays.TORCH.hand_back(arrays.settle(table.array))
        layer = cls(table.rows, table.width, _weight=memory, **settings)
        layer.weight.requires_grad_(table.array.flags.writeable)
        layer._table = table if table.optimizer is not None else None
        return layer

    def reset_parameters(self) -> None:
        """Draw the table anew from the normal distribution; the padding row is 0."""
        nn.init.normal_(self.weight)
        if self.padding_idx is not None:
            with torch.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
        *,
        segment_ids: Tensor | None = None,
        num_bags: int | None = None,
    ) -> Tensor:
        """Look up and pool.

        Parameters
        ----------
        input : int32 or int64
            The ids: a matrix with a bag a row; or a vector, with `offsets` or `segment_ids`.
        offsets : int32 or int64, shape [bags], optional
            Where each bag begins; two equal ones begin an empty bag.
        per_sample_weights : float, the shape of input, optional
            The weight of each id, for sum, mean (Σ w·x / Σ w) and sqrtn (Σ w·x / sqrt(Σ w²)). Gradients flow to it.
        segment_ids : int32 or int64, shape [N], optional
            The bag of each id, not decreasing.
        num_bags : int, optional
            How many bags `segment_ids` means; by default the last id + 1.

        Returns
        -------
        tensor, shape [bags, embedding_dim]
            The pooled rows; an empty bag is 0.
        """
        batch = bags.read(
            input, offsets, per_sample_weights, segment_ids, num_bags, include_last_offset=self.include_last_offset
        )
        if batch.weights is not None and self.combiner == "max":
            raise InvalidArgumentError(
                "per_sample_weights goes with the combiners sum, mean and sqrtn, not with max.",
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
            factors = factors_of(batch.weights, batch.segment_ids, batch.count, self.combiner)
        update = None if self.fused_optimizer is None and self._table is None else self._update
        if self.sparse or update is not None:
            wrapping.check(self, sparse=self.sparse, fused=update is not None)
        way = Way(self.combiner, self.sparse, self.scale_grad_by_freq, update)
        return pool(self.weight, batch.ids, batch.segment_ids, batch.count, factors, way)

    def extra_repr(self) -> str:
        """The settings that are not the usual ones."""
        text = f"{self.num_embeddings}, {self.embedding_dim}, combiner={self.combiner!r}"
        usual = {"sparse": True, "padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False,
                 "include_last_offset": False, "fused_optimizer": None}  # fmt: skip
        changed = {name: getattr(self, name) for name, value in usual.items() if getattr(self, name) != value}
        return text + "".join(f", {name}={value!r}" for name, value in changed.items())

    @property
    def fused_state(self) -> dict[str, Tensor]:
        """The state of the fused optimizer, by name."""
        return {name.removeprefix(STATE): array for name, array in self._buffers.items() if name.startswith(STATE)}

    def _update(self, weight: Tensor, grad: Any, *entries: Tensor) -> None:
        """Change the table by the gradient of the pooled rows, or by a compact one."""
        if self._table is not None:
            self._update_table(self._table, grad, entries)
            torch.autograd.graph.increment_version(weight)
            return
        assert self.fused_optimizer is not None
        table, state = weight.detach(), self.fused_state
        if not entries:
            self.fused_optimizer.step(table, grad, state)
        else:
            if bags.is_plain(weight):
                table, grad, *found = (
                    each if each is None else bags.array_of(each) for each in (table, grad, *entries)
                )
                entries = tuple(found)
                state = {name: bags.array_of(array) for name, array in state.items()}
            ids, segment_ids, factors = entries
            combiner = self.combiner if factors is None else "sum"
            self.fused_optimizer.step_pooled(table, grad, ids, segment_ids, state, combiner=combiner, weights=factors)
        torch.autograd.graph.increment_version(weight)

    def _update_table(self, table: Table, grad: Any, entries: tuple[Any, ...]) -> None:
        if not entries:
            table.step(RowGradient(*map(bags.array_of, grad)))
            return
        ids, segment_ids, factors = (each if each is None else bags.array_of(each) for each in entries)
        combiner = self.combiner if factors is None else "sum"
        table.step_pooled(bags.array_of(grad), ids, segment_ids, combiner=combiner, weights=factors)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """A table without the state of an optimizer, such as PyTorch's, is taken; the state stays as it is."""
        own = [prefix + name for name in self._buffers if name.startswith(STATE)]
        if own and not any(name in state_dict for name in own):
            state_dict = {**state_dict, **{name: self._buffers[name.removeprefix(prefix)] for name in own}}
        super()._load_from_state_dict(state_dict, prefix, *others)
