"""What the passes of tables that are spread over ranks need: the exchange, the layout, and the tables held here.

A sharded collection has one for all its tables, and a sharded layer one for its only table.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rowgrad._kernels.kinds import SUM
from rowgrad._runtime import arrays, memory
from rowgrad.errors import InvalidArgumentError, RowgradError
from rowgrad.torch._fused_optimizer import FusedOptimizer
from rowgrad.torch.distributed._answers import Answers, ServedTables, View
from rowgrad.torch.distributed._collection_request import CollectionRequest
from rowgrad.torch.distributed._copies import Copies
from rowgrad.torch.distributed._exchange import Exchange
from rowgrad.torch.distributed._layout import Layout
from rowgrad.torch.distributed._near import Near, TableMemory
from rowgrad.torch.distributed._placement import ROW, Plan
from rowgrad.torch.distributed._published import Board

Given = tuple[Tensor, Tensor, Tensor | None, int]  # ids, offsets, factors, and the bags of a feature


class Machinery:
    """Tables as their plan has placed them.

    Parameters
    ----------
    plan : Plan
    exchange : Exchange
    bags : list of layers
        What this rank holds of each table: `weight`, `fused_optimizer` and `fused_state`.
    optimizer : callable
        Gives the fused optimizers of all tables as one, or None.
    exact : bool
        Whether rows travel instead of their sums.
    is_max : bool
        Whether the only table, whose rows are spread, is pooled by the maximum.
    sparse, gradient_average : bool
        As in the layers.
    tables : TableMemory, optional
        Where the tables are, if all ranks see them.
    """

    def __init__(
        self, plan: Plan, exchange: Exchange, bags: Sequence[Any], optimizer: Callable[[], FusedOptimizer | None], *,
        exact: bool, sparse: bool, gradient_average: bool, is_max: bool = False, tables: TableMemory | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.exchange, self.bags, self._optimizer = plan, exchange, list(bags), optimizer
        self.sparse, self.gradient_average, self.is_max = sparse, gradient_average, is_max
        self.names = [placed.table.name for placed in plan.tables]
        layout = self.layout = Layout(plan, exchange.rank, exact or is_max)
        self.dtype = plan.tables[0].table.data_type
        self.answers = Answers(layout, self.dtype, exchange.memory, is_max)
        counts = [plan.tables[i].table.num_features() for i in layout.tables]
        placed = [plan.tables[i] for i in layout.tables]
        self.served = self.summed = self.copies = None
        if layout.tables:
            held = [self.bags[i] for i in layout.tables]
            modes = ["sum" if each.kind == ROW else each.table.pooling for each in placed]
            self.served = ServedTables([View(bag, mode) for bag, mode in zip(held, modes, strict=True)], counts)
            self.summed = ServedTables([View(bag, "sum") for bag in held], counts)
        if layout.copies:
            self.copies = Copies(layout, [self.bags[i] for i in layout.copies], self.answers)
        large = max(each.table.num_embeddings for each in plan.tables) > np.iinfo(np.int32).max
        self.id_type = np.dtype(np.int64 if large else np.int32)
        self.near = self._board = None
        if tables is not None:
            self.near = Near(layout, tables, self.bags, exchange.memory, self.dtype)
            self._board = Board(layout, exchange.memory, self.id_type, self.answers.sums)
        self._is_near_everywhere = True  # as all ranks were told at the last request
        # Gradients of half and bfloat16 would be rounded once more than in one process if they were divided here.
        divided = any(feature.spread and feature.kind != SUM for feature in layout.features)
        self._sized = divided and self.dtype.itemsize == 2

    @property
    def optimizer(self) -> FusedOptimizer | None:
        """The fused optimizers of all tables."""
        return self._optimizer()

    def request(self, given: Given | None, error: RowgradError | None) -> CollectionRequest:
        """Begin to send a batch; with `error`, all ranks are told of it."""
        values, offsets, factors, bags = given or (None, None, None, 0)
        learning = [*(bag.weight for bag in self.bags), *(() if factors is None else (factors,))]
        learn = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in learning)
        near = self.near is not None and self.near.is_here()
        board = self._board if self._is_near_everywhere else None
        request = CollectionRequest(
            self.exchange, self.layout, self.id_type, self.answers.sums, self._sized, board, near
        )
        request.send(values, offsets, factors, bags, learn, error)
        self._is_near_everywhere = request.is_near_everywhere
        return request

    def replaced(self, request: CollectionRequest) -> RowgradError | None:
        """The error for a request that was sent before this rank's tables were replaced by others."""
        if not request.is_near or self.near is None or self.near.is_here():
            return None
        return InvalidArgumentError(
            "the tables of this rank were replaced after the request was sent. Change tables in place, or before "
            "prefetch is called.",
            code="bad-request",
            argument="features",
        )

    def near_for(self, request: CollectionRequest) -> Near | None:
        """What makes a backward pass in shared memory, if all ranks can."""
        if self.near is None or not request.is_near or any(request.weights_learn):
            return None
        return self.near if self.near.fits(request.all_bags) else None

    def served_for(self, weighted: bool) -> ServedTables | None:
        """The tables held here, for ids with weights or without."""
        return self.summed if weighted else self.served

    def result(self, rows: int) -> Tensor:
        """Memory for pooled rows."""
        kind, columns = self.answers.numpy, self.layout.columns
        if rows * columns * kind.itemsize < memory.POOLED:
            return torch.empty(rows, columns, dtype=self.dtype)
        found: Tensor = arrays.TORCH.hand_back(memory.allocate((rows, columns), kind))
        return found
