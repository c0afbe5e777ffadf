"""A batch of a sharded collection on its way: its ids are sent, and what all ranks asked for is read when needed."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rowgrad._kernels.kinds import SQRT_N, SUM
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import RowgradError
from rowgrad.torch._tables import Batch
from rowgrad.torch.distributed import _message as message
from rowgrad.torch.distributed._errors import PeerError
from rowgrad.torch.distributed._exchange import Exchange, Place, Trade
from rowgrad.torch.distributed._layout import Layout

BACKWARD, WEIGHTED, WEIGHTS_LEARN, SIZED, NEAR = 1, 2, 4, 8, 16  # what a rank tells of its batch, as bits of one number


class CollectionRequest:
    """The result of `ShardedEmbeddingBagCollection.prefetch`; call the collection with it."""

    def __init__(
        self, exchange: Exchange, layout: Layout, ids: "np.dtype[Any]", sums: "np.dtype[Any]", sized: bool, near: bool
    ) -> None:
        self.exchange, self.layout = exchange, layout
        self._ids, self._sums, self._sized, self._near = ids, sums, sized, near
        self.bags: message.Bags
        self.sent: message.Sent
        self.factors: Tensor | None = None  # with the graph of their gradients
        self.chosen: Tensor | None = None  # for the combiner max: which of the fetched rows each number is of
        self.call = 0
        self.early = False
        self.flags: list[int] = []
        self.all_bags: list[int] = []  # of a feature on each rank
        self._trade: Trade | None = None
        self._received: message.Received | None = None

    def send(
        self, values: Tensor | None, offsets: Tensor | None, factors: Tensor | None, bags: int, backward: bool,
        error: RowgradError | None,
    ) -> "CollectionRequest":  # fmt: skip
        """Write the messages, announce them to all ranks, and begin to send. With `error`, announce that instead."""
        headers: list[tuple[int, int, int]] | None = None
        exchange = self.exchange
        if error is None and values is not None and offsets is not None:
            try:
                given = None if factors is None else factors.detach().numpy().astype(self._sums, copy=False)
                self.factors = factors
                self.bags = message.Bags(values.numpy(), offsets.numpy(), given, bags)
                sized = self._sized and backward and factors is None
                self.sent = message.write(self.layout, self.bags, self._ids, exchange.memory, sized, self._near)
                flags = BACKWARD * backward + WEIGHTED * (factors is not None) + SIZED * sized + NEAR * self._near
                flags += WEIGHTS_LEARN * bool(factors is not None and factors.requires_grad and backward)
                headers = [(block.size, bags, flags) for block in self.sent.blocks]
            except RowgradError as wrong:
                error = wrong
        found = exchange.headers(Place.FORWARD, exchange.calls + 1, headers, error)
        self.call = exchange.calls = exchange.calls + 1
        sizes = [header[0] for header in found]
        self.all_bags, self.flags = [header[1] for header in found], [header[2] for header in found]
        self._agree()
        if self._near and not self.is_near and self.layout.exact:
            message.fetch(self.layout, self.bags, self.sent)
        self._trade = exchange.trade(self.sent.blocks, sizes, "ids")
        return self

    @property
    def is_trained(self) -> bool:
        """Whether there is a backward pass, on all ranks."""
        return bool(self.flags[0] & BACKWARD)

    @property
    def is_near(self) -> bool:
        """Whether the tables of all ranks lie in memory that they share."""
        return all(flags & NEAR for flags in self.flags)

    @property
    def is_sized(self) -> bool:
        """Whether the sizes of bags travel, so that the gradient is not multiplied before."""
        return bool(self.flags[self.exchange.rank] & SIZED)

    @property
    def has_sizes(self) -> bool:
        """Whether a rank tells the sizes of its bags."""
        return any(flags & SIZED for flags in self.flags)

    @property
    def weights_learn(self) -> list[bool]:
        """Which ranks want the gradient of their weights."""
        return [bool(flags & WEIGHTS_LEARN) for flags in self.flags]

    @property
    def received(self) -> message.Received:
        """Wait for the requests of all ranks to this one, and return them."""
        if self._received is None:
            assert self._trade is not None
            came: list[Array] = self.exchange.received(self._trade)
            weighted = [self._sums if flags & WEIGHTED else None for flags in self.flags]
            sized = [bool(flags & SIZED) for flags in self.flags]
            self._received = message.read(self.layout, came, self._ids, weighted, sized)
            self._trade = None
        return self._received

    def leave(self) -> None:
        """What was asked for is not needed."""
        if self._trade is not None:
            self.exchange.received(self._trade)
            self._trade = None

    def batch(self, *, backward: bool = False) -> Batch:
        """The requests as a batch of look-ups; in the backward pass, gradients are scaled by the sizes of bags."""
        found = self.received
        factors = found.factors
        if backward and found.sizes is not None:
            kinds = [self.layout.features[part.feature].kind for part in self.layout.parts[self.layout.rank]]
            of_runs = np.stack(
                [scales(kind, sizes, self._sums) for kind, sizes in zip(kinds, found.sizes, strict=True)]
            )
            made = np.repeat(of_runs.ravel(), np.diff(found.offsets))
            factors = made if factors is None else factors * made  # one of the two is 1
        weights = None if factors is None else torch.from_numpy(factors)
        return Batch(torch.from_numpy(found.values), torch.from_numpy(found.offsets), weights, found.bags)

    def _agree(self) -> None:
        for bit, what, fix in (
            (BACKWARD, "the backward pass: those with gradients enabled are", "Enable gradients on all ranks or none"),
            (WEIGHTED, "weights: those that have them are", "Pass weights on all ranks or on none"),
        ):
            having = [rank for rank, flags in enumerate(self.flags) if flags & bit]
            # Where all rows are spread, tables are not asked to divide sums, and entries without weights count once.
            if bit == WEIGHTED and all(feature.spread for feature in self.layout.features):
                continue
            if having and len(having) < self.exchange.size:
                self.exchange.done()  # with what all ranks know now
                raise PeerError(
                    f"the ranks do not agree on {what} {having}, of {self.exchange.size}. {fix}, also where a batch is "
                    "empty.",
                    code="ranks-differ",
                    value=having,
                )


def scales(kind: int, sizes: Array, sums: "np.dtype[Any]") -> Array:
    """What the gradients of bags of these sizes are multiplied by, rounded as the operators do."""
    counts = np.maximum(sizes, 1).astype(np.float64)
    if kind == SQRT_N:
        counts = np.sqrt(counts)
    found: Array = (np.ones_like(counts) if kind == SUM else 1.0 / counts).astype(sums)
    return found
