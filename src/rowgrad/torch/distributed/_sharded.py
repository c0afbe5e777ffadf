"""`ShardedEmbeddingBag`: a table too large for one process, whose rows are spread over the ranks of a group."""

import json
import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rowgrad._ops import checks
from rowgrad._ops.results import RowGradient
from rowgrad._runtime.limits import available
from rowgrad.errors import InvalidArgumentError
from rowgrad.optim import Optimizer
from rowgrad.torch import _bags as bags
from rowgrad.torch import _fused as fused
from rowgrad.torch import _wrapping
from rowgrad.torch._configs import EmbeddingBagConfig
from rowgrad.torch._embedding_bag import STATE
from rowgrad.torch._fused_optimizer import FusedOptimizer
from rowgrad.torch._pooling import Way, factors_of, pool
from rowgrad.torch._settings import check_memory, check_optimizer, fitting, one_combiner, padding, readable, size, whole
from rowgrad.torch.distributed import _checkpoint as checkpoint
from rowgrad.torch.distributed import optimizer_state
from rowgrad.torch.distributed._collection_pass import look_up
from rowgrad.torch.distributed._draws import BLOCK, seed_of
from rowgrad.torch.distributed._errors import refusal
from rowgrad.torch.distributed._exchange import Exchange, Place
from rowgrad.torch.distributed._machinery import Machinery
from rowgrad.torch.distributed._message import Wrong
from rowgrad.torch.distributed._ownership import Ownership
from rowgrad.torch.distributed._placement import ROW, Plan, placed
from rowgrad.torch.distributed._request import Request, needed
from rowgrad.torch.distributed._traffic import Traffic

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# What must be the same on all ranks.
SETTINGS = ("num_embeddings", "embedding_dim", "dtype", "combiner", "sharding", "exact", "seed", "padding_idx",
            "gradient_average", "fused_optimizer")  # fmt: skip


class ShardedEmbeddingBag(nn.Module):
    """An embedding table of which each rank holds a part; looks up bags of ids and pools the rows of each bag.

    Each rank passes its part of the batch and gets its pooled rows. Ids are sent to the ranks that own their rows,
    which return sums of rows. In the backward pass the gradients of bags are sent to the owners, which add them in the
    order of ranks. All ranks must call the layer, and its backward pass, equally often and in the same order, also with
    empty batches.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        The rows and columns of the whole table.
    combiner : {"mean", "sum", "sqrtn", "max"}
        How the rows of a bag are reduced to one; as in `rowgrad.torch.EmbeddingBag`.
    sharding : {"range", "hash"}
        "range" gives each rank consecutive ids; "hash" spreads them, which balances the work if small ids are frequent.
    group : process group, optional
        The ranks that hold the table; by default all.
    exact : bool
        Whether results are bit for bit those of one process with the whole batch, for any number of ranks: ranks then
        send rows instead of sums of rows, and the requesting rank sums them. Otherwise sums are rounded in another
        order, which is the same in each run with the same number of ranks. Either way, for the same gradients of the
        output, the gradients of rows are those of one process, bit for bit.
    seed : int
        The random seed of the new table, which is the same for any number of ranks.
    sparse : bool
        Whether the gradient of this rank's rows is a coalesced sparse tensor with only the rows that were looked up.
    padding_idx : int, optional
        The id used for padding: it is ignored and gets no gradient.
    include_last_offset : bool
        Whether offsets end with the number of ids.
    fused_optimizer : rowgrad.optim optimizer, optional
        Updates the rows on their owner in the backward pass; there is no ``.grad`` then. Its state is sharded like the
        table and saved with the layer.
    gradient_average : bool
        By default the gradient of the table is the sum over ranks of the gradients of their losses. With True it is
        divided by the number of ranks, as `DistributedDataParallel` does for the dense part of a model: use it if each
        rank's loss is a mean over its part of the batch.
    timeout : float, optional
        Seconds after which an exchange fails, for the group of all ranks; by default, and for another group, the
        group's own timeout (30 minutes for Gloo).
    mode : str, optional
        PyTorch's name for `combiner`.
    _weight : tensor, optional
        The whole table in the order of ids, of which each rank takes its part, instead of a new one.
    dtype : torch.dtype, optional
        The type of the new table.

    Attributes
    ----------
    weight : Parameter, shape [rows held here, embedding_dim]
        This rank's rows.
    traffic : Traffic
        Bytes that this rank sent to others.
    ownership : Ownership
        Which rank holds which row.

    Raises
    ------
    PeerError
        Another rank has other settings, rejected its batch, or is at another place of a step: then all ranks raise, and
        the layer can be used again.
    CommunicationError
        A rank does not answer.

    Notes
    -----
    Beside `DistributedDataParallel`: wrap the dense part only, and give the layer ``gradient_average=True``::

        table = ShardedEmbeddingBag(10**8, 64, fused_optimizer=optim.RowWiseAdagrad(0.05), gradient_average=True)
        dense = DistributedDataParallel(tower)
        loss = criterion(dense(table(ids, offsets)), labels)      # a mean over this rank's part
        loss.backward()                                           # changes the table, averages the dense gradients
        optimizer.step()                                          # of the dense part

    Examples
    --------
    >>> import os, tempfile
    >>> import torch
    >>> import torch.distributed as dist
    >>> from rowgrad.torch.distributed import ShardedEmbeddingBag
    >>> path = os.path.join(tempfile.mkdtemp(), "meeting")
    >>> dist.init_process_group("gloo", init_method=f"file://{path}", rank=0, world_size=1)
    >>> bag = ShardedEmbeddingBag(4, 2, combiner="sum", _weight=torch.ones(4, 2))
    >>> bag(torch.tensor([[0, 1], [3, 3]])).tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        combiner: str | None = None,
        sharding: str = "range",
        group: Any = None,
        exact: bool = False,
        seed: int = 0,
        sparse: bool = True,
        padding_idx: int | None = None,
        include_last_offset: bool = False,
        fused_optimizer: Optimizer | None = None,
        gradient_average: bool = False,
        timeout: float | None = None,
        mode: str | None = None,
        _weight: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.exchange = Exchange(group, timeout=timeout)
        self.exchange.share_memory(available(), 0)
        self._mesh: Any = None  # made when the layer is first saved
        error = None
        try:
            self.sharding, self.seed, self.fused_optimizer = sharding, whole("seed", seed), fused_optimizer
            self.exact, self.sparse, self.gradient_average = bool(exact), bool(sparse), bool(gradient_average)
            self.include_last_offset = bool(include_last_offset)
            self.num_embeddings = size("num_embeddings", num_embeddings)
            self.embedding_dim = size("embedding_dim", embedding_dim)
            if self.embedding_dim == 0:
                raise InvalidArgumentError(
                    "embedding_dim is 0; a sharded table has at least one column.",
                    code="wrong-argument",
                    argument="embedding_dim",
                    value=0,
                )
            self.combiner = one_combiner(combiner, mode)
            self.padding_idx = padding(padding_idx, num_embeddings)
            self.ownership = Ownership(num_embeddings, self.exchange.size, sharding)
            if _weight is not None:
                fitting(readable("_weight", _weight), num_embeddings, embedding_dim)
            kind = _float_type(dtype, _weight)
            check_optimizer(fused_optimizer)
            first, last = self.ownership.piece(self.exchange.rank)
            check_memory((last - first) * embedding_dim * kind.itemsize, available())
            settings = self._settings(kind)
        except Exception as wrong:
            error, settings = refusal(wrong), dict.fromkeys(SETTINGS, 0)
        self.exchange.compare(settings, error)
        self.weight = nn.Parameter(torch.empty(last - first, embedding_dim, dtype=kind))
        if _weight is None:
            self.reset_parameters()
        else:
            self.load_full_table(_weight)
        for name, array in checkpoint.layout(self).items():
            self.register_buffer(name, array)
        if fused_optimizer is not None:
            for name, array in fused_optimizer.init(self.weight.detach()).items():
                self.register_buffer(STATE + name, array)
        optimizer_state.watch(self)
        is_max, optimizer = self.combiner == "max", FusedOptimizer({"weight": self}) if fused_optimizer else None
        table = EmbeddingBagConfig("weight", num_embeddings, embedding_dim, pooling="sum" if is_max else self.combiner,
                                   data_type=kind)  # fmt: skip
        plan = Plan((placed(table, ROW, self.exchange.size, 0, "as asked"),), self.exchange.size)
        self._machinery = Machinery(
            plan, self.exchange, [self], lambda: optimizer, exact=self.exact, sparse=self.sparse,
            gradient_average=self.gradient_average, is_max=is_max,
        )  # fmt: skip

    @property
    def traffic(self) -> Traffic:
        """The bytes that this rank sent to others."""
        return self.exchange.traffic

    def reset_parameters(self) -> None:
        """Reinitialize the table from the normal distribution, with `seed`; the padding row is 0."""
        first, last = self.ownership.piece(self.exchange.rank)
        with torch.no_grad():
            for block in range(first // BLOCK, -(-last // BLOCK)):
                begin, end = block * BLOCK, min((block + 1) * BLOCK, self.num_embeddings)
                generator = torch.Generator().manual_seed(seed_of(self.seed, block))
                drawn = torch.randn(end - begin, self.embedding_dim, generator=generator)
                a, b = max(begin, first), min(end, last)
                self.weight[a - first : b - first] = drawn[a - begin : b - begin].to(self.weight.dtype)
            if self.padding_idx is not None:
                place = int(self.ownership.positions(np.array(self.padding_idx)))
                if first <= place < last:
                    self.weight[place - first].fill_(0)

    def start(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
        *,
        segment_ids: Tensor | None = None,
        num_bags: int | None = None,
    ) -> Request:
        """Begin to send the ids of a batch; call the layer with the result to finish.

        The arguments are those of a call. The batch is checked here; ids are sent while another batch is computed.
        All ranks must start and finish in the same order.
        """
        request = self._request(input, offsets, per_sample_weights, segment_ids, num_bags)
        request.sent.early = True
        self.exchange.done()
        return request

    def _request(self, input: Tensor, offsets: Tensor | None, per_sample_weights: Tensor | None,
                 segment_ids: Tensor | None, num_bags: int | None) -> Request:  # fmt: skip
        error = batch = factors = given = here = None
        try:
            batch, factors = self._read(input, offsets, per_sample_weights, segment_ids, num_bags)
            # Half and bfloat16 would be rounded twice; and where the table is frozen, others may wait for gradients.
            plain = not self._machinery.layout.exact and self.weight.dtype.itemsize > 2 and self.weight.requires_grad
            given, here = needed(batch, factors, self.ownership, may_pool=plain)
        except Exception as wrong:
            error = refusal(wrong)
        try:
            sent = self._machinery.request(given, error)
        except Wrong:
            raise checks.changed("input") from None
        return Request(sent, batch, factors, here)

    def forward(
        self,
        input: Tensor | Request,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
        *,
        segment_ids: Tensor | None = None,
        num_bags: int | None = None,
    ) -> Tensor:
        """Look up and pool this rank's part of the batch.

        Parameters
        ----------
        input : int32 or int64, or Request
            The ids: a matrix with a bag a row; or a vector, with `offsets` or `segment_ids`; or the result of `start`.
        offsets, per_sample_weights, segment_ids, num_bags
            As for `rowgrad.torch.EmbeddingBag`; `segment_ids` must not decrease.

        Returns
        -------
        tensor, shape [bags, embedding_dim]
            The pooled rows; an empty bag is 0.
        """
        if not isinstance(input, Request):
            input = self._request(input, offsets, per_sample_weights, segment_ids, num_bags)
        elif input.sent.exchange is not self.exchange:
            raise InvalidArgumentError(
                "the request was started by another layer. Finish it with the layer that started it.",
                code="bad-request",
                argument="input",
            )
        rows = look_up(self._machinery, input.sent)
        if input.rows is None:
            return rows
        batch = input.batch
        return pool(rows, input.rows, batch.segment_ids, batch.count, input.factors, Way(self.combiner))

    def full_table(self, rank: int | None = None) -> Tensor | None:
        """The whole table in the order of ids, on all ranks, or on one only (None on the others); all must call it.

        ``EmbeddingBag(rows, columns, _weight=bag.full_table())`` continues with it in one process.
        """
        return self._gathered(self.weight.detach(), rank)

    def full_state(self, rank: int | None = None) -> dict[str, Tensor] | None:
        """The state of the fused optimizer for the whole table, by name, like `full_table`."""
        state = {name: self._gathered(array, rank) if array.dim() else array.clone()
                 for name, array in self.fused_state.items()}  # fmt: skip
        return state if rank in (None, self.exchange.rank) else None

    def load_full_table(self, table: Tensor) -> None:
        """Take this rank's rows from a whole table in the order of ids."""
        fitting(readable("table", table), self.num_embeddings, self.embedding_dim)
        ids = torch.from_numpy(self.ownership.ids(self.exchange.rank))
        with torch.no_grad():
            self.weight.copy_(table.detach()[ids])

    def extra_repr(self) -> str:
        """The settings, and the part of this rank."""
        return (
            f"{self.num_embeddings}, {self.embedding_dim}, combiner={self.combiner!r}, sharding={self.sharding!r}, "
            f"exact={self.exact}, rank {self.exchange.rank} of {self.exchange.size}"
        )

    @property
    def fused_state(self) -> dict[str, Tensor]:
        """The state of the fused optimizer for this rank's rows, by name."""
        return {name.removeprefix(STATE): array for name, array in self._buffers.items()
                if name.startswith(STATE) and array is not None}  # fmt: skip

    def _read(self, input: Tensor, offsets: Tensor | None, weights: Tensor | None, segment_ids: Tensor | None,
              num_bags: int | None) -> tuple[bags.Bags, Tensor | None]:  # fmt: skip
        _wrapping.check_outside(self)
        batch = bags.read(input, offsets, weights, segment_ids, num_bags, include_last_offset=self.include_last_offset)
        if not batch.ids.is_cpu:
            raise InvalidArgumentError(
                f"input is on the device {batch.ids.device}; tables are spread over the memory of processes. "
                "Pass `.cpu()`.",
                code="not-on-cpu",
                argument="input",
            )
        if batch.weights is not None and self.combiner == "max":
            raise InvalidArgumentError(
                "per_sample_weights cannot be used with the combiner max; allowed: sum, mean and sqrtn.",
                code="wrong-argument",
                argument="per_sample_weights",
            )
        if self.padding_idx is not None:
            batch = bags.without(batch, self.padding_idx)
        if batch.weights is None:
            return batch, None
        return batch, factors_of(batch.weights, batch.segment_ids, batch.count, self.combiner)

    def _make_step(self, one: fused.Pass, optimizer: Optimizer) -> None:
        """Change the rows held here by what a pass has, where kernels for all tables do not take it."""
        table, state = one.weight.detach(), self.fused_state
        if one.segment_ids is None:
            optimizer.step(table, RowGradient(one.grad, one.ids), state)
        else:
            entries = one.ids, one.segment_ids, state
            optimizer.step_pooled(table, one.grad, *entries, combiner="sum", weights=one.factors)
        torch.autograd.graph.increment_version(one.weight)

    def _gathered(self, local: Tensor, rank: int | None) -> Tensor | None:
        """The pieces of all ranks in the order of ids."""
        self.exchange.check_rank(rank)
        sizes = [last - first for first, last in self.ownership.pieces]
        self.exchange.headers(Place.TABLE, self.exchange.calls)
        whole = self.exchange.gather(local, sizes, "rows", to=rank)
        self.exchange.done()
        if whole is None or self.ownership.factor == 1:
            return whole
        return whole[torch.from_numpy(self.ownership.positions(np.arange(self.num_embeddings)))]

    def _settings(self, kind: torch.dtype) -> dict[str, int]:
        """What must be the same on all ranks, as numbers."""
        optimizer = self.fused_optimizer
        described = None if optimizer is None else json.dumps(optimizer.as_dict(), sort_keys=True)
        found = {name: getattr(self, name, None) for name in SETTINGS} | {
            "dtype": str(kind),
            "fused_optimizer": described,
        }
        return {
            name: value if type(value) is int else zlib.crc32(repr(value).encode()) for name, value in found.items()
        }

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        checkpoint.spread(self, destination, prefix)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        super()._load_from_state_dict(checkpoint.gathered(self, state_dict, prefix), prefix, *others)


def _float_type(dtype: torch.dtype | None, weight: Tensor | None) -> torch.dtype:
    kind = dtype or (weight.dtype if weight is not None else torch.get_default_dtype())
    if kind not in FLOATS:
        raise InvalidArgumentError(
            f"dtype is {kind}; allowed: {', '.join(map(str, FLOATS))}.",
            code="wrong-dtype",
            argument="dtype",
            value=str(kind),
        )
    return kind
