"""What a rank asks the others for, and what they ask it for: entries of bags, in the order of the concatenated batch.

A request is checked and counted before anything else travels; its ids may travel while another batch is computed.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rowgrad._runtime.dtypes import Array
from rowgrad.errors import InvalidArgumentError, RowgradError
from rowgrad.torch._bags import Bags
from rowgrad.torch.distributed._errors import PeerError
from rowgrad.torch.distributed._exchange import Exchange, Place, Work
from rowgrad.torch.distributed._ownership import Ownership
from rowgrad.torch.distributed._routing import Route, route, route_distinct, row_type

# What a rank says of its request, as bits of one number.
WEIGHTED, BACKWARD, WEIGHTS_LEARN, SIZED = 1, 2, 4, 8
ALIGNED = 8  # bytes; each part of a message begins at a multiple, so that it can be read where it lies


class Asked(NamedTuple):
    """What all ranks asked this one for, in the order of the ranks.

    `rows` are this rank's own; `runs` the number of the run of each entry; `lengths` how long each run is; `factors`
    what entries are multiplied by, or None; `scales` the same for runs, in the backward pass only, or None.
    """

    rows: Tensor
    runs: Tensor
    lengths: Array
    factors: Tensor | None
    scales: Tensor | None
    entries_of: list[int]
    runs_of: list[int]
    weights_learn: list[bool]


class Request:
    """A batch on its way: made by `ShardedEmbeddingBag.start`, finished by calling the layer with it."""

    def __init__(
        self, exchange: Exchange, ownership: Ownership, scale: Any, sums: torch.dtype, may_pool: bool = False
    ) -> None:
        self.exchange, self.ownership = exchange, ownership
        self._may_pool = may_pool  # here, rather than on the owners, where fewer rows than sums would travel
        self._scale = scale  # from sizes of bags to factors, where the owner multiplies by them
        self._sums = sums
        self.batch: Bags
        self.route: Route
        self.runs: Tensor | None = None  # of each entry, where each row is asked for once, and pooled here
        self.factors: Tensor | None = None
        self.backward = False
        self.call = 0  # of the layer: the first is 1
        self.early = False  # whether other things may happen before the rows are asked for
        self._flags: list[int] = []
        self._sizes: tuple[list[int], list[int]] = [], []
        self._work: Work | None = None
        self._asked: Asked | None = None

    def send(self, batch: Bags | None, factors: Tensor | None, backward: bool, error: RowgradError | None) -> "Request":
        """Check the batch, tell all ranks what comes, and begin to send it. With `error`, all ranks are told of it."""
        headers: list[list[int]] = []
        if batch is not None and error is None:
            try:
                self.batch, self.factors, self.backward = batch, factors, backward
                ids, bags = (x.detach().numpy() for x in (batch.ids, batch.segment_ids))
                distinct = route_distinct(ids, bags, batch.count, self.ownership) if self._may_pool else None
                flags = BACKWARD * backward
                if distinct is not None:
                    self.route, self.runs = distinct[0], torch.from_numpy(distinct[1])
                else:
                    self.route = route(ids, bags, batch.count, self.ownership)
                    flags |= WEIGHTED * (factors is not None)
                    flags |= WEIGHTS_LEARN * bool(factors is not None and factors.requires_grad and backward)
                    flags |= SIZED * bool(self._scale is not None and factors is None and backward)
                headers = [[*counts, flags] for counts in zip(self.route.entries, self.route.runs, strict=True)]
            except RowgradError as wrong:
                error = wrong
        found = self.exchange.headers(Place.FORWARD, self.exchange.calls + 1, headers, error)
        self.call = self.exchange.calls = self.exchange.calls + 1
        self._sizes = [header[0] for header in found], [header[1] for header in found]
        self._flags = [header[2] for header in found]
        self._agree()
        message, given = self._message(self._flags[self.exchange.rank])
        taken = [sum(self._lengths(*header)) for header in found]
        self._work = self.exchange.start(message, given, taken, "ids")
        return self

    @property
    def any_weights_learn(self) -> bool:
        """Whether a rank wants the gradient of its weights."""
        return any(flags & WEIGHTS_LEARN for flags in self._flags)

    @cached_property
    def bag_sizes(self) -> Array:
        """How many ids each bag has."""
        return np.bincount(self.batch.segment_ids.numpy(), minlength=self.batch.count)

    def asked(self) -> Asked:
        """What all ranks asked this one for; waits until it is here."""
        if self._asked is None:
            if self._work is None:
                raise InvalidArgumentError(
                    "the request was never sent. Make it with `start`.", code="bad-request", argument="input"
                )
            self._asked = self._read(self.exchange.finish(self._work).numpy())
            self._work = None
        return self._asked

    def _agree(self) -> None:
        back = [rank for rank, flags in enumerate(self._flags) if flags & BACKWARD]
        if back and len(back) < self.exchange.size:
            self.exchange.done()  # with what all ranks know now
            raise PeerError(
                f"the ranks do not agree on the backward pass: those with gradients enabled are {back}, of "
                f"{self.exchange.size}. Enable gradients on all ranks or on none, also where a batch is empty.",
                code="ranks-differ",
                value=back,
            )

    def _lengths(self, entries: int, runs: int, flags: int) -> tuple[int, int, int, int]:
        """The bytes of the parts of a message: rows, lengths of runs, factors, sizes of bags."""
        item = np.dtype(row_type(self.ownership)).itemsize
        parts = (entries * item, runs * 4, entries * self._sums.itemsize * bool(flags & WEIGHTED),
                 runs * 4 * bool(flags & SIZED))  # fmt: skip
        a, b, c, d = (-(-part // ALIGNED) * ALIGNED for part in parts)
        return a, b, c, d

    def _message(self, flags: int) -> tuple[Tensor, list[int]]:
        found = self.route
        factors = sizes = None
        if self.factors is not None and flags & WEIGHTED:
            factors = self.factors.detach().to(self._sums).numpy()
            factors = factors if found.order is None else factors[found.order]
        if flags & SIZED:
            sizes = self.bag_sizes[found.bags].astype(np.int32)
        parts = [self._lengths(n, m, flags) for n, m in zip(found.entries, found.runs, strict=True)]
        message = np.empty(sum(map(sum, parts)), np.uint8)
        at = entry = run = 0
        for n, m, lengths in zip(found.entries, found.runs, parts, strict=True):
            places = (found.local[entry : entry + n], found.lengths[run : run + m],
                      None if factors is None else factors[entry : entry + n],
                      None if sizes is None else sizes[run : run + m])  # fmt: skip
            for array, length in zip(places, lengths, strict=True):
                if array is not None:
                    message[at : at + array.nbytes] = array.view(np.uint8)
                    message[at + array.nbytes : at + length] = 0
                at += length
            entry, run = entry + n, run + m
        return torch.from_numpy(message), [sum(lengths) for lengths in parts]

    def _read(self, message: Array) -> Asked:
        entries, runs = self._sizes
        item, sums = row_type(self.ownership), np.dtype(str(self._sums).removeprefix("torch."))
        rows, lengths, factors, scales = [], [], [], []
        weighted = any(flags & WEIGHTED for flags in self._flags)
        sized = any(flags & SIZED for flags in self._flags)
        at = 0
        for n, m, flags in zip(entries, runs, self._flags, strict=True):
            a, b, c, d = self._lengths(n, m, flags)
            rows.append(message[at : at + a].view(item)[:n])
            lengths.append(message[at + a : at + a + b].view(np.int32)[:m])
            if weighted:
                there = message[at + a + b : at + a + b + c].view(sums)[:n]
                factors.append(there if flags & WEIGHTED else np.ones(n, sums))
            if sized:
                end = at + a + b + c
                there = self._scale(message[end : end + d].view(np.int32)[:m]) if flags & SIZED else np.ones(m, sums)
                scales.append(there)
            at += a + b + c + d
        length = _joined(lengths)
        run_of = np.repeat(np.arange(length.size, dtype=np.int32), length)
        learn = [bool(flags & WEIGHTS_LEARN) for flags in self._flags]
        return Asked(
            torch.from_numpy(_joined(rows)), torch.from_numpy(run_of), length,
            torch.from_numpy(_joined(factors)) if weighted else None,
            torch.from_numpy(_joined(scales)) if sized else None, entries, runs, learn,
        )  # fmt: skip


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
