"""Rows and gradients as messages: what a rank answers to all others, what it takes from answers, and back.

Kernels pool and copy; here is where everything lies. All counts come from the ids that were exchanged before.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rowgrad import _kernels as kernels
from rowgrad._kernels.described import NUMBER
from rowgrad._kernels.kinds import LATE, SUM
from rowgrad._ops import checks
from rowgrad._runtime import arrays, dtypes, memory, team
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.threads import most_threads
from rowgrad.torch import _pooling as pooling
from rowgrad.torch._bags import IDS, segment_ids_of
from rowgrad.torch._tables import NUMPY, Batch, like
from rowgrad.torch._trained_tables import TrainedTables
from rowgrad.torch.distributed._layout import Layout
from rowgrad.torch.distributed._message import Bags, Received, Sent, distinct
from rowgrad.torch.distributed._shared_memory import SharedMemory

NOT_PLAIN = "the tables of a sharded collection must stay contiguous CPU tensors of one type"


class View:
    """A layer's table and state with another combiner."""

    def __init__(self, layer: Any, mode: str) -> None:
        self._parameters, self._buffers, self.mode = layer._parameters, layer._buffers, mode


class ServedTables(TrainedTables):
    """Tables whose pooled rows are written where they are asked for."""

    into: Callable[[int, int], Tensor] | None = None

    def result(self, rows: int, columns: int) -> Tensor:
        return super().result(rows, columns) if self.into is None else self.into(rows, columns)

    def pooled(self, batch: Batch, into: Callable[[int, int], Tensor] | None = None) -> Tensor:
        """The pooled rows of ids that have been checked before they were sent."""
        if not self.fit():
            raise TypeError(NOT_PLAIN)
        self.into = into
        try:
            found = self.pool(batch)
        finally:
            self.into = None
        if found is None:
            raise checks.changed("values")
        return found

    def pooled_to(self, batch: Batch, blocks: list[tuple[int, int, int, int]]) -> None:
        """Pool blocks of bags to addresses: the feature, from which of its bags on, how many, and where."""
        if not self.fit():
            raise TypeError(NOT_PLAIN)
        values, offsets, weights, bags, _ = batch
        given = np.array(blocks, np.int64).reshape(-1, 4)
        first = given[:, 0] * bags + given[:, 1]
        every = np.column_stack([self.described[given[:, 0]], first, first + given[:, 2], given[:, 3]])
        weighted, weights_at = (None, 0) if weights is None else (like(weights), weights.data_ptr())
        run, threads = team.team(values.shape[0] * (8 + self.widest * self.numpy.itemsize), most_threads())
        for group in self._groups:
            mine = np.ascontiguousarray(every[np.isin(given[:, 0], group.features[:, NUMBER])])
            status = kernels.exchanging.pool_blocks(
                run, threads, len(mine), IDS[values.dtype], group.lanes, group.scaled, weighted, self.stored,
                mine.ctypes.data, values.data_ptr(), values.shape[0], offsets.data_ptr(), weights_at,
            )  # fmt: skip
            if status > 0:
                raise checks.changed("values")
            if threads > 1:
                team.note(status == LATE)


class Answers:
    """How a collection's rows and gradients travel.

    Parameters
    ----------
    layout : Layout
    dtype : torch.dtype
        Of all tables.
    is_max : bool
        Whether the rows of bags become one by their maximum, which is found where rows were asked for.
    """

    def __init__(self, layout: Layout, dtype: torch.dtype, space: SharedMemory, is_max: bool = False) -> None:
        self.layout, self.space, self.dtype, self.is_max = layout, space, dtype, is_max
        self.numpy = NUMPY[dtype]
        self.item = self.numpy.itemsize
        stored, self.sums, _ = dtypes.summing(self.numpy)
        self.stored = np.empty(0, stored)
        self._spread = [i for i, feature in enumerate(layout.features) if feature.spread]

    def size(self, rank: int, counts: Array) -> int:
        """The bytes of so many rows of a rank's parts."""
        return int(self.layout.blocks(rank, counts)[2] * self.item)

    # Forward

    def answer(self, tables: ServedTables | None, batch: Batch, asked: Received) -> list[Array]:
        """The rows that all ranks have asked for, a message for each."""
        layout, rank = self.layout, self.layout.rank
        counts, rows = asked.runs.copy(), {}
        ends_of = np.cumsum(asked.entries.ravel()).reshape(asked.entries.shape)
        for i in [i for i, part in enumerate(layout.parts[rank]) if part.spread and layout.exact]:
            for s, last in enumerate(ends_of[i].tolist()):
                first, held = last - int(asked.entries[i, s]), layout.placed(layout.parts[rank][i].feature).chunk
                rows[i, s] = distinct(asked.values, first, last, held, 1).rows
                counts[i, s] = rows[i, s].size
        sizes = [self.size(rank, counts[:, s]) for s in range(layout.ranks)]
        ends = np.cumsum(sizes)
        room = self.space.room(int(ends[-1]))
        blocks = [room[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        if tables is None:
            return blocks
        if layout.is_matrix[rank]:
            tables.pooled(batch, lambda rows, columns: self.tensor(room, rows, columns))
            return blocks
        wanted = []
        for i, part in enumerate(layout.parts[rank]):
            for s, block in enumerate(blocks):
                base = int(layout.blocks(rank, counts[:, s])[0][i]) * self.item + block.ctypes.data
                if (i, s) not in rows:
                    wanted.append((i, int(asked.starts[i, s]), int(counts[i, s]), base))
                elif counts[i, s]:
                    weight = tables.weights()[self._table_of_part(i)]
                    kernels.exchanging.take_rows(
                        self.stored, weight.data_ptr(), weight.shape[0], part.width, rows[i, s], base
                    )
        tables.pooled_to(batch, wanted)
        return blocks

    def _table_of_part(self, place: int) -> int:
        """The place of a part's table among those that this rank serves."""
        feature = self.layout.parts[self.layout.rank][place].feature
        return self.layout.tables.index(self.layout.features[feature].table)

    def collect(self, came: list[Array], sent: Sent, bags: Bags, output: Tensor) -> Tensor | None:
        """Put what came from all ranks into the columns of the result.

        For the combiner max, gives which of the fetched rows each number of the result is of.
        """
        layout, copies, bases, chosen = self.layout, [], [], None
        for rank, parts in enumerate(layout.parts):
            begins, strides, _ = layout.blocks(rank, sent.answers[rank])
            address = came[rank].ctypes.data
            bases.append(address + begins * self.item)
            copies += [
                (address + int(begins[i]) * self.item, int(strides[i]),
                 output.data_ptr() + part.column * self.item, layout.columns, bags.bags, part.width)
                for i, part in enumerate(parts) if not part.spread
            ]  # fmt: skip
        self._copy(copies)
        for number in self._spread:
            feature = layout.features[number]
            places = [of_part[number] for of_part in layout.place_of]
            addresses = np.array([bases[rank][place] for rank, place in enumerate(places)])
            if layout.exact:
                chosen = self._pool_rows(number, addresses, bags, sent, output)
                continue
            runs = np.array([sent.runs[rank][place] for rank, place in enumerate(places)])
            kernels.exchanging.add_runs(
                kernels.lanes.lanes_for(self.sums, feature.width), self.stored,
                SUM if bags.factors is not None else feature.kind, addresses, runs, sent.run_bags[number], bags.offsets,
                number, bags.bags, feature.width, output.data_ptr() + feature.column * self.item, layout.columns,
                np.zeros(layout.ranks, np.int64),
            )  # fmt: skip
        return chosen

    def _pool_rows(self, number: int, addresses: Array, bags: Bags, sent: Sent, output: Tensor) -> Tensor | None:
        """Pool rows that came from all ranks, in the order of the batch, as one process would."""
        layout, feature, count, fetched = self.layout, self.layout.features[number], bags.bags, sent.fetched[number]
        rows = torch.empty(fetched.rows.size, feature.width, dtype=self.dtype)
        begins = rows.data_ptr() + (np.cumsum(fetched.counts) - fetched.counts) * feature.width * self.item
        self._copy([(int(there), feature.width, int(here), feature.width, int(size), feature.width)
                    for there, here, size in zip(addresses, begins, fetched.counts, strict=True)])  # fmt: skip
        places, chosen = torch.from_numpy(fetched.places), None
        offsets = torch.from_numpy(bags.offsets[number * count : (number + 1) * count + 1].astype(np.int64))
        offsets -= int(bags.offsets[number * count])
        if self.is_max:
            pooled, chosen = pooling.pooled(rows, places, segment_ids_of(offsets, len(places)), count, None, "max")
        else:
            mode = "sum" if bags.factors is not None else layout.placed(number).table.pooling
            layer: Any = type("Rows", (), {"_parameters": {"weight": rows}, "_buffers": {}, "mode": mode})
            first = int(bags.offsets[number * count])
            factors = None if bags.factors is None else torch.from_numpy(bags.factors[first:][: len(places)].copy())
            pooled = ServedTables([layer], [1]).pooled(Batch(places, offsets, factors, count))
        output[:, feature.column : feature.column + feature.width] = pooled
        return chosen

    # Backward

    def gradients(self, grad: Tensor, sent: Sent, bags: Bags, more: int, whole: bool = False) -> list[Array]:
        """The gradients of bags for the ranks that hold their rows, a message for each, with room for `more` bytes.

        `whole` ones are multiplied by the receiver.
        """
        layout, copies = self.layout, []
        sizes = [self.size(rank, sent.runs[rank]) for rank in range(layout.ranks)]
        padded = [-(-size // 64) * 64 + more for size in sizes]
        ends = np.cumsum(padded)
        room = self.space.room(int(ends[-1]))
        blocks = [room[end - size : end] for end, size in zip(ends, padded, strict=True)]
        for rank, parts in enumerate(layout.parts):
            begins, strides, _ = layout.blocks(rank, sent.runs[rank])
            address = blocks[rank].ctypes.data
            for i, part in enumerate(parts):
                source, target = grad.data_ptr() + part.column * self.item, address + int(begins[i]) * self.item
                if not part.spread:
                    copies.append((source, layout.columns, target, int(strides[i]), bags.bags, part.width))
                    continue
                kind = SUM if whole or bags.factors is not None else layout.features[part.feature].kind
                kernels.exchanging.take_runs(
                    kernels.lanes.lanes_for(self.sums, part.width), self.stored, kind, source, layout.columns,
                    int(sent.run_bags[part.feature, rank]), int(sent.runs[rank][i]), bags.offsets, part.feature,
                    bags.bags, part.width, target,
                )  # fmt: skip
        self._copy(copies)
        return blocks

    def joined(self, came: list[Array], asked: Received) -> Tensor:
        """The gradients of all ranks' runs as a matrix that fits the batch of all ranks."""
        layout, rank = self.layout, self.layout.rank
        widths = layout.widths[rank]
        columns, begins = int(widths.sum()), np.cumsum(widths) - widths
        grad = self.tensor(memory.allocate((asked.bags * columns * self.item,), np.uint8), asked.bags, columns)
        copies = []
        for s, message in enumerate(came):
            bases, strides, size = layout.blocks(rank, asked.runs[:, s])
            if layout.is_matrix[rank]:
                if size:
                    target = grad.data_ptr() + int(asked.starts[0, s]) * columns * self.item
                    copies.append((message.ctypes.data, size, target, size, 1, size))
                continue
            copies += [
                (message.ctypes.data + int(bases[i]) * self.item, int(strides[i]),
                 grad.data_ptr() + (int(asked.starts[i, s]) * columns + int(begins[i])) * self.item, columns,
                 int(asked.runs[i, s]), int(widths[i]))
                for i in range(widths.size)
            ]  # fmt: skip
        self._copy(copies)
        return grad

    def _copy(self, blocks: list[tuple[int, int, int, int, int, int]]) -> None:
        merged: list[tuple[int, int, int, int, int, int]] = []
        for source, stride, target, target_stride, rows, width in blocks:
            if merged:
                a, b, c, d, n, w = merged[-1]
                if (source, stride, target, target_stride, rows) == (a + w * self.item, b, c + w * self.item, d, n):
                    merged[-1] = a, b, c, d, n, w + width
                    continue
            merged.append((source, stride, target, target_stride, rows, width))
        if merged:
            kernels.exchanging.copy_blocks(self.item, np.array(merged, np.int64))

    def tensor(self, data: Array, rows: int, columns: int) -> Tensor:
        """Bytes as a matrix of the tables' type."""
        wanted = data[: rows * columns * self.item].view(self.numpy).reshape(rows, columns)
        found: Tensor = arrays.TORCH.hand_back(wanted)
        return found
