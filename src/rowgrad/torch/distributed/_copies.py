"""Tables that each rank holds whole: looked up here, and changed on all ranks by the gradients of all.

By default each rank sums the gradients of its rows and sends the sums, which all ranks add in the order of the ranks.
For the bits of one process (`exact`), the gradients of bags travel with their ids.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rowgrad._ops import checks
from rowgrad._runtime.dtypes import Array
from rowgrad.torch._pooling import compact_gradient
from rowgrad.torch._tables import Batch
from rowgrad.torch.distributed._answers import Answers, ServedTables, View
from rowgrad.torch.distributed._layout import Layout
from rowgrad.torch.distributed._message import Bags


class Change(NamedTuple):
    """What a step is made from: tables, the bags of all ranks, and the gradients of these."""

    tables: ServedTables
    batch: Batch
    grad: Tensor


class Copies:
    """The replicated tables of a collection."""

    def __init__(self, layout: Layout, layers: Sequence[Any], answers: Answers) -> None:
        self.layout, self.answers = layout, answers
        self.numbers = [i for i, feature in enumerate(layout.features) if feature.replicated]
        tables = [layout.plan.tables[i].table for i in layout.copies]
        counts = [table.num_features() for table in tables]
        self._tables = ServedTables([View(layer, table.pooling) for layer, table in zip(layers, tables, strict=True)],
                                    counts)  # fmt: skip
        self._summed = ServedTables([View(layer, "sum") for layer in layers], counts)
        self._rows = ServedTables([View(layer, "sum") for layer in layers], [1] * len(layers))
        self._widths = [layout.features[i].width for i in self.numbers]
        self._table_widths = np.array([table.embedding_dim for table in tables])
        self.columns = sum(self._widths)

    def batch(self, bags: Bags) -> Batch:
        """The bags of the replicated tables' features."""
        count, offsets = bags.bags, bags.offsets
        bounds = offsets[:: max(count, 1)].astype(np.int64) if count else np.zeros(len(self.layout.features) + 1, int)
        pieces = [slice(bounds[i], bounds[i + 1]) for i in self.numbers]
        begins = np.cumsum([0] + [piece.stop - piece.start for piece in pieces])
        found = [offsets[i * count : (i + 1) * count].astype(np.int64) + (begins[k] - bounds[i])
                 for k, i in enumerate(self.numbers)]  # fmt: skip
        values = np.concatenate([bags.values[piece] for piece in pieces]).astype(np.int64)
        factors = None
        if bags.factors is not None:
            factors = torch.from_numpy(np.concatenate([bags.factors[piece] for piece in pieces]))
        return Batch(torch.from_numpy(values), torch.from_numpy(np.concatenate([*found, begins[-1:]])), factors, count)

    def _of(self, batch: Batch) -> ServedTables:
        return self._tables if batch.weights is None else self._summed

    def pool(self, batch: Batch, output: Tensor) -> None:
        """Pool this rank's bags into their columns of the result."""
        pooled, column = self._of(batch).pooled(batch), 0
        for number, width in zip(self.numbers, self._widths, strict=True):
            place = self.layout.features[number].column
            output[:, place : place + width] = pooled[:, column : column + width]
            column += width

    def own_grad(self, grad: Tensor) -> Tensor:
        """The columns of a gradient that belong to these tables."""
        return torch.cat([grad[:, self.layout.features[i].column :][:, :width]
                          for i, width in zip(self.numbers, self._widths, strict=True)], 1)  # fmt: skip

    # What travels

    def message(self, batch: Batch, grad: Tensor) -> Array:
        """What other ranks have to know of this rank's bags and their gradients."""
        if self.layout.exact:
            weights = () if batch.weights is None else (batch.weights.numpy(),)
            sizes = np.array([batch.bags, batch.values.shape[0], len(weights)])
            return _bytes(sizes, batch.offsets.numpy(), batch.values.numpy(), *weights, _raw(grad))
        tables = self._of(batch)
        found = tables.gradients(batch, grad) if tables.fit() else False
        if found is None:
            raise checks.changed("values")
        if isinstance(found, bool):
            gradients = [
                compact_gradient(mode, part, ids, segments, weights, weight.shape[0])
                for mode, weight, (part, ids, segments, weights) in zip(
                    tables.modes(), tables.weights(), tables.entries(batch, grad), strict=True
                )
            ]
            found = [(each.sorted_unique_indices.long()[None], each.output) for each in gradients]
        sizes = np.array([places.shape[1] for places, _ in found], np.int64)
        return _bytes(sizes, *(places.numpy() for places, _ in found), *(_raw(rows) for _, rows in found))

    def change(self, came: list[Array]) -> Change:
        """The step that the messages of all ranks make."""
        return self._by_bags(came) if self.layout.exact else self._by_rows(came)

    def _by_rows(self, came: list[Array]) -> Change:
        tables, widths = self._table_widths.size, self._table_widths
        sizes = np.stack([message[: 8 * tables].view(np.int64) for message in came])
        bags = int(sizes.sum(0).max(initial=0))
        values, offsets = [], [np.zeros(1, np.int64)]
        grad = torch.zeros(bags, int(widths.sum()), dtype=self.answers.dtype)
        firsts = np.cumsum(widths) - widths
        item, end = self.answers.item, 0
        for table in range(tables):
            first = 0
            for rank, message in enumerate(came):
                ids = message[8 * tables : 8 * (tables + int(sizes[rank].sum()))].view(np.int64)
                begin, count = int(sizes[rank, :table].sum()), int(sizes[rank, table])
                values.append(ids[begin : begin + count])
                rows_at = 8 * tables + 8 * int(sizes[rank].sum()) + int((sizes[rank] * widths)[:table].sum()) * item
                rows = message[rows_at : rows_at + count * int(widths[table]) * item]
                column = int(firsts[table])
                grad[first : first + count, column : column + int(widths[table])] = self.answers.tensor(
                    rows.copy(), count, int(widths[table])
                )
                first += count
            offsets.append(end + np.minimum(np.arange(1, bags + 1), first))
            end += first
        batch = Batch(torch.from_numpy(np.concatenate(values)), torch.from_numpy(np.concatenate(offsets)), None, bags)
        return Change(self._rows, batch, grad)

    def _by_bags(self, came: list[Array]) -> Change:
        features, read = len(self.numbers), []
        for message in came:
            bags, size, weighted = message[:24].view(np.int64).tolist()
            at = 24 + 8 * (features * bags + 1)
            offsets, values = message[24:at].view(np.int64), message[at : at + 8 * size].view(np.int64)
            at += 8 * size
            factors = message[at : at + self.answers.sums.itemsize * size * weighted].view(self.answers.sums)
            at += -(-factors.nbytes // 8) * 8
            rows = self.answers.tensor(message[at:].copy(), bags, self.columns)
            read.append((bags, offsets, values, factors, rows))
        weighted = any(factors.size for _, _, _, factors, _ in read)
        every, begins, scales, end = list[Array](), [np.zeros(1, np.int64)], list[Array](), 0
        for feature in range(features):
            for bags, own_offsets, own_values, own_factors, _ in read:
                bounds = own_offsets[feature * bags : (feature + 1) * bags + 1]
                every.append(own_values[bounds[0] : bounds[-1]])
                begins.append(bounds[1:] + (end - bounds[0]))
                if weighted:
                    scales.append(own_factors[bounds[0] : bounds[-1]])
                end += int(bounds[-1] - bounds[0])
        weights = torch.from_numpy(np.concatenate(scales)) if weighted else None
        batch = Batch(torch.from_numpy(np.concatenate(every)), torch.from_numpy(np.concatenate(begins)), weights,
                      sum(bags for bags, *_ in read))  # fmt: skip
        return Change(self._of(batch), batch, torch.cat([rows for *_, rows in read]))


def _raw(tensor: Tensor) -> Array:
    found: Array = tensor.contiguous().view(-1).view(torch.uint8).numpy() if tensor.numel() else np.empty(0, np.uint8)
    return found


def _bytes(*parts: Array) -> Array:
    """Arrays one after the other, each from a multiple of 8 bytes on, except that rows follow one another."""
    made = []
    for part in parts:
        data = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
        made.append(data)
        if part.dtype != np.uint8 and data.size % 8:
            made.append(np.zeros(-data.size % 8, np.uint8))
    return np.concatenate(made)
