"""Tables in memory that all ranks of one machine share: each rank looks up its bags in all of them, and only ids and
gradients are exchanged.

A rank changes only the rows and columns that are its own. It does so in the backward pass, which all ranks begin after
the look-ups of all have ended; and the next look-ups begin after all ranks have come to them.

The gradients of all ranks' bags have places below one another, where all ranks see them. A rank writes there only what
others need of its own, and reads the rest where PyTorch has it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rowgrad import _kernels as kernels
from rowgrad._kernels.described import Feature
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.memory import LINE
from rowgrad.torch._tables import NUMPY, Batch
from rowgrad.torch._trained_tables import TOGETHER
from rowgrad.torch.distributed._answers import ServedTables, View
from rowgrad.torch.distributed._collection_request import CollectionRequest
from rowgrad.torch.distributed._layout import Layout
from rowgrad.torch.distributed._placement import REPLICATED, ROW, Placed, Plan, Shard
from rowgrad.torch.distributed._shared_memory import SharedMemory

PAGE = 4096  # bytes; each table begins with a page


class Held:
    """A tensor in the place of a layer."""

    def __init__(self, weight: Tensor, mode: str) -> None:
        self._parameters, self._buffers, self.mode = {"weight": weight}, dict[str, Tensor](), mode


class PlacedTables(ServedTables):
    """Tables whose pooled rows, and the gradients of these, are columns of a wider matrix.

    `places` has the number of each feature in the batch and its first column; `columns` and `features` count all.
    """

    def __init__(self, layers: Sequence[Any], counts: Sequence[int], places: list[tuple[int, int]], columns: int,
                 features: int) -> None:  # fmt: skip
        super().__init__(layers, counts)
        self._places, self._all_columns, self._all_features = places, columns, features

    def listed(self, weights: list[Tensor]) -> tuple[list[Feature], int, int]:
        found, _, _ = super().listed(weights)
        placed = [each._replace(number=number, column=column)
                  for each, (number, column) in zip(found, self._places, strict=True)]  # fmt: skip
        return placed, self._all_columns, self._all_features

    def entries(self, batch: Batch, grad: Tensor) -> Any:
        widths = [weight.shape[1] for weight, count in zip(self.weights(), self.features_of, strict=True)
                  for _ in range(count)]  # fmt: skip
        parts = [grad[:, column : column + width] for (_, column), width in zip(self._places, widths, strict=True)]
        return super().entries(batch, torch.cat(parts, 1))


class TableMemory:
    """The tables of a plan in shared memory, but for replicated ones; `weight` gives what a rank holds of one."""

    def __init__(self, plan: Plan, memory: Array) -> None:
        self._memory, self._begins = memory, _begins(plan)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None  # a copy of a collection has tables of its own

    def whole(self, placed: Placed, shard: Shard) -> Tensor:
        """The rows of a table in the columns of a shard, also those that other ranks hold."""
        return self._rows(placed, shard, 0, placed.table.num_embeddings)

    def weight(self, placed: Placed, shard: Shard) -> Tensor:
        """The rows and columns of a shard, with a storage of its own: what is saved has no rows of other ranks."""
        return self._rows(placed, shard, shard.first_row, shard.last_row)

    def _rows(self, placed: Placed, shard: Shard, first: int, last: int) -> Tensor:
        table, item = placed.table, NUMPY[placed.table.data_type].itemsize
        begin = self._begins[table.name] + (table.num_embeddings * shard.first_column + first * shard.columns) * item
        data = self._memory[begin : begin + (last - first) * shard.columns * item]
        return torch.from_numpy(data).view(table.data_type).view(last - first, shard.columns)


def _begins(plan: Plan) -> dict[str, int]:
    """Where each table begins; behind the last one, named "", the memory ends."""
    found, end = {}, 0
    for placed in plan.tables:
        if placed.kind != REPLICATED:
            found[placed.table.name] = end
            table = placed.table
            nbytes = table.num_embeddings * table.embedding_dim * NUMPY[table.data_type].itemsize
            end += -(-nbytes // PAGE) * PAGE
    return {**found, "": end}


def table_bytes(plan: Plan) -> int:
    """The memory that the tables of a plan need."""
    return _begins(plan)[""]


class Near:
    """The passes of a collection whose tables lie in shared memory.

    Parameters
    ----------
    layout : Layout
    tables : TableMemory
    bags : list of layers
        What this rank holds of each table.
    space : SharedMemory
        Where the gradients of all ranks meet.
    dtype : torch.dtype
        Of all tables.
    """

    def __init__(self, layout: Layout, tables: TableMemory, bags: Sequence[Any], space: SharedMemory,
                 dtype: torch.dtype) -> None:  # fmt: skip
        self.layout, self.space, self.dtype = layout, space, dtype
        rank, features = layout.rank, len(layout.features)
        held, counts, places = list[tuple[Any, str]](), list[int](), list[tuple[int, int]]()
        self._own: list[tuple[Any, Tensor]] = []
        first = 0
        for placed, bag in zip(layout.plan.tables, bags, strict=True):
            config = placed.table
            numbers = range(first, first + config.num_features())
            first = numbers.stop
            if placed.kind == REPLICATED:
                pieces: list[tuple[Any, int]] = [(bag, 0)]
            else:
                shards = placed.shards[:1] if placed.kind == ROW else placed.shards
                pieces = [(Held(tables.whole(placed, shard), "sum"), shard.first_column) for shard in shards]
                own = placed.on(rank)
                if own is not None:
                    self._own.append((bag._parameters, tables.weight(placed, own)))
            for piece, column in pieces:
                held.append((piece, config.pooling))
                counts.append(len(numbers))
                places += [(number, layout.features[number].column + column) for number in numbers]
        self._pooled, self._summed = (
            PlacedTables([View(piece, "sum" if weighted else mode) for piece, mode in held], counts, places,
                         layout.columns, features)
            for weighted in (False, True)
        )  # fmt: skip
        mine = [layout.plan.tables[i] for i in layout.tables]
        parts = [(i, part.column) for i, part in enumerate(layout.parts[rank])]
        self._served = [
            PlacedTables([View(bags[i], "sum" if weighted or placed.kind == ROW else placed.table.pooling)
                          for i, placed in zip(layout.tables, mine, strict=True)],
                         [placed.table.num_features() for placed in mine], parts, layout.columns, len(parts))
            for weighted in (False, True)
        ]  # fmt: skip
        self._runs = runs_of(layout, dtype)
        self._fills_lines = bool((self._runs[:, :2] % LINE == 0).all())

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None

    def is_here(self) -> bool:
        """Whether this rank's tables are still those in shared memory, and not others that were put in their place."""
        return all(
            held["weight"].data_ptr() == weight.data_ptr() and held["weight"].shape == weight.shape
            and held["weight"].dtype == weight.dtype and held["weight"].is_contiguous()
            for held, weight in self._own
        )  # fmt: skip

    def served_for(self, weighted: bool) -> ServedTables:
        """The tables held here, for ids with weights or without."""
        return self._served[weighted]

    def fits(self, bags: Sequence[int]) -> bool:
        """Whether there is room for the gradients of so many bags of all ranks."""
        common = self.space.common
        return common is not None and sum(bags) * self.layout.columns * self.dtype.itemsize <= common.size

    def pool(self, request: CollectionRequest, output: Tensor) -> None:
        """Pool this rank's bags from the tables of all ranks."""
        values, offsets, factors, bags = request.bags
        weights = None if factors is None else torch.from_numpy(factors)
        if values.dtype != offsets.dtype:  # kernels take one type, which must count the ids
            kind = values.dtype if values.size <= np.iinfo(np.int32).max else np.dtype(np.int64)
            values, offsets = values.astype(kind, copy=False), offsets.astype(kind, copy=False)
        batch = Batch(torch.from_numpy(values), torch.from_numpy(offsets), weights, bags)
        (self._pooled if weights is None else self._summed).pooled(batch, lambda *_: output)

    def gradients(self, bags: Sequence[int]) -> Tensor:
        """The gradients of all ranks' bags, below one another, where all ranks see them."""
        rows, columns = sum(bags), self.layout.columns
        assert self.space.common is not None
        data = self.space.common[: rows * columns * self.dtype.itemsize]
        return torch.from_numpy(data).view(self.dtype).view(rows, columns)

    @property
    def is_free(self) -> bool:
        """Whether all ranks have read the last gradients, of any collection: they have met since."""
        mail = self.space.mail
        return mail is not None and mail.heard > self.space.read_since

    def give(self, grad: Tensor, request: CollectionRequest) -> tuple[int, int, int]:
        """Write what other ranks need of the gradient of this rank's bags; where the rest of it is.

        That is told by elements of the gradients of all ranks: the first of this rank, how many it has, and how much
        further they are in `grad`.
        """
        rank, columns, item = self.layout.rank, self.layout.columns, self.dtype.itemsize
        assert self.space.common is not None
        common, first = self.space.common.ctypes.data, sum(request.all_bags[:rank]) * columns
        if grad.data_ptr() % item:
            self.complete(grad, request)
            return TOGETHER
        target, stride = common + first * item, columns * item
        is_whole = self._fills_lines and target % LINE == 0 and stride % LINE == 0
        kernels.exchanging.give(
            grad.data_ptr(), target, stride, request.bags.bags, self._runs, request.foreign, is_whole
        )
        return first, grad.numel(), (grad.data_ptr() - common) // item - first

    def complete(self, grad: Tensor, request: CollectionRequest) -> None:
        """Write all of it: what is not a step of these tables reads it in one place."""
        first = sum(request.all_bags[: self.layout.rank])
        self.gradients(request.all_bags)[first : first + grad.shape[0]] = grad

    def begin_to_read(self) -> None:
        """All ranks have written their gradients, and must not write others before all have met again."""
        assert self.space.mail is not None
        self.space.read_since = self.space.mail.posted

    def given_bytes(self, bags: int) -> int:
        """The bytes of these gradients that are read by other ranks."""
        others = sum(int(widths.sum()) for rank, widths in enumerate(self.layout.widths) if rank != self.layout.rank)
        return int(bags * others * self.dtype.itemsize)


def runs_of(layout: Layout, dtype: torch.dtype) -> Array:
    """What `kernels.exchanging.give` copies of the gradient of a bag."""
    runs: list[list[int]] = []
    others = [part for rank, parts in enumerate(layout.parts) if rank != layout.rank for part in parts]
    for feature, column, width, spread in sorted({(p.feature, p.column, p.width, p.spread) for p in others}):
        number = feature if spread else -1
        if runs and number < 0 and runs[-1][2] < 0 and sum(runs[-1][:2]) == column:
            runs[-1][1] += width
        else:
            runs.append([column, width, number])
    found: Array = np.array(runs, np.int64).reshape(-1, 3)
    found[:, :2] *= dtype.itemsize
    return found
