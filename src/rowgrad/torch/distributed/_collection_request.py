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
from rowgrad.torch.distributed._published import Board, Told

BACKWARD, WEIGHTED, WEIGHTS_LEARN, SIZED, NEAR = 1, 2, 4, 8, 16  # what a rank tells of its batch, as bits of one number


class CollectionRequest:
    """The result of `ShardedEmbeddingBagCollection.prefetch`; call the collection with it."""

    def __init__(
        self, exchange: Exchange, layout: Layout, ids: "np.dtype[Any]", sums: "np.dtype[Any]", sized: bool,
        board: Board | None, near: bool,
    ) -> None:  # fmt: skip
        """On `board`, if any, all ranks publish; `near` tells whether this one's tables are where all see them."""
        self.exchange, self.layout = exchange, layout
        self._ids, self._sums, self._sized, self._board, self._near = ids, sums, sized, board, near
        self.bags: message.Bags
        self.factors: Tensor | None = None  # with the graph of their gradients
        self.chosen: Tensor | None = None  # for the combiner max: which of the fetched rows each number is of
        self.foreign = np.empty(0, np.uint8)  # bags with rows elsewhere, of published features whose rows are spread
        self.call = 0
        self.early = False
        self.is_near = False  # whether ranks look rows up in each other's tables
        self.flags: list[int] = []
        self.all_bags: list[int] = []  # of a feature on each rank
        self._own = np.empty(0, np.uint8)  # what was published, and where that of all ranks lies
        self._told: list[Told] = []
        self._sent: message.Sent | None = None
        self._trade: Trade | None = None
        self._received: message.Received | None = None

    def send(
        self, values: Tensor | None, offsets: Tensor | None, factors: Tensor | None, bags: int, backward: bool,
        error: RowgradError | None,
    ) -> "CollectionRequest":  # fmt: skip
        """Publish the batch to all ranks, or announce messages and begin to send. With `error`, announce that."""
        exchange, flags = self.exchange, 0
        if error is None and values is not None and offsets is not None:
            given = None if factors is None else factors.detach().numpy().astype(self._sums, copy=False)
            self.factors = factors
            self.bags = message.Bags(values.numpy(), offsets.numpy(), given, bags)
            flags = BACKWARD * backward + WEIGHTED * (factors is not None) + NEAR * self._near
            flags += WEIGHTS_LEARN * bool(factors is not None and factors.requires_grad and backward)
        self.call = exchange.calls + 1
        if self._board is not None:
            place, error = self._publish(self._board, error)
            found = exchange.headers(Place.FORWARD, self.call, [(place, bags, flags)] * exchange.size, error)
            self._note(found)
            if self.is_near_everywhere:
                self.is_near = True
                self._told = [Told(where, count, bool(bits & WEIGHTED)) for where, count, bits in found]
                exchange.traffic.sent["ids"] += self._board.read_bytes(self.bags)
                exchange.hold(self)
                return self
            exchange.done()  # and again, with messages
        headers: list[tuple[int, int, int]] | None = None
        if error is None and values is not None:
            sized = self._sized and backward and factors is None
            try:
                self._sent = message.write(self.layout, self.bags, self._ids, exchange.memory, sized)
                headers = [(block.size, bags, flags + SIZED * sized) for block in self._sent.blocks]
            except RowgradError as wrong:
                error = wrong
        found = exchange.headers(Place.FORWARD, self.call, headers, error)
        self._note(found)
        self._trade = exchange.trade(self.sent.blocks, [header[0] for header in found], "ids")
        return self

    def _publish(self, board: Board, error: RowgradError | None) -> tuple[int, RowgradError | None]:
        """Publish the batch, if this rank's tables are near; where it lies, and the error of this rank."""
        if error is not None or not self._near:
            return 0, error
        try:
            self._own, self.foreign = board.publish(self.bags)
        except RowgradError as wrong:
            return 0, wrong
        return self.exchange.memory.place_of(self._own), None

    def _note(self, found: list[list[int]]) -> None:
        """Note what all ranks have told."""
        self.exchange.calls = self.call
        self.all_bags, self.flags = [header[1] for header in found], [header[2] for header in found]
        self._agree()

    @property
    def is_near_everywhere(self) -> bool:
        """Whether the tables of all ranks are where all see them."""
        return all(flags & NEAR for flags in self.flags)

    @property
    def sent(self) -> message.Sent:
        """What this rank asks for."""
        if self._sent is None:
            self._sent = message.whole(self.layout, self.bags)
        return self._sent

    @property
    def is_trained(self) -> bool:
        """Whether there is a backward pass, on all ranks."""
        return bool(self.flags[0] & BACKWARD)

    @property
    def has_sizes(self) -> bool:
        """Whether owners know the sizes of bags, so that gradients are not multiplied before."""
        return self.is_near or any(flags & SIZED for flags in self.flags)

    @property
    def weights_learn(self) -> list[bool]:
        """Which ranks want the gradient of their weights."""
        return [bool(flags & WEIGHTS_LEARN) for flags in self.flags]

    @property
    def received(self) -> message.Received:
        """Wait for the requests of all ranks to this one, and return them."""
        if self._received is None and self.is_near:
            assert self._board is not None
            self.exchange.release(self)
            self._received = self._board.join(self._own, self._told)
        if self._received is None:
            assert self._trade is not None
            came: list[Array] = self.exchange.received(self._trade)
            weighted = [self._sums if flags & WEIGHTED else None for flags in self.flags]
            sized = [bool(flags & SIZED) for flags in self.flags]
            self._received = message.read(self.layout, came, self._ids, weighted, sized)
            self._trade = None
        return self._received

    def keep(self) -> None:
        """Read what all ranks have published, before their memory changes."""
        if self.is_trained:
            _ = self.received

    def leave(self) -> None:
        """What was asked for is not needed."""
        self.exchange.release(self)
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
