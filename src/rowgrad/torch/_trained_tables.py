"""The backward passes of `Tables`: steps of fused optimizers, and compact gradients, each by one kernel call."""

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rowgrad import _kernels as kernels
from rowgrad._kernels.described import ITEM_FIELDS, ROOM, UNIQUE, Table
from rowgrad._kernels.kinds import LATE, SUM
from rowgrad._runtime import memory, team
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.threads import most_threads
from rowgrad.optim import Optimizer
from rowgrad.torch._bags import IDS
from rowgrad.torch._fused import STATE
from rowgrad.torch._tables import KINDS, Batch, Tables, like

MOST_ROWS = 1 << 31
MOST_PLACES = 1 << 32  # elements of a gradient that a word can tell apart
MOST_SCRATCH = 1 << 28
ANY = 1 << 62
STEPS = STATE + "step"
TOGETHER = (0, 0, 0)  # all elements of a gradient are in one tensor

Gradient = tuple[Tensor, Tensor]  # the rows, as a matrix with one row, and the gradient of each


class _Group(NamedTuple):
    """Tables that one kernel takes: those with one vector width, and with or without factors."""

    tables: list[Table]
    members: list[int]
    lanes: Array
    wide: Array | None
    scaled: Array | None
    rows: int  # of the largest table
    span: int  # of the widest sums


class _Call(NamedTuple):
    """What one kernel call of a step does: the numbers of the formula, for each table, are at `numbers_at`."""

    group: _Group
    described: Array
    tables_at: int
    token: Array
    numbers: Array
    numbers_at: int
    reaches: bool


class _Kept(NamedTuple):
    """The calls of an optimizer, for as long as it, the addresses of its state and the count of steps stay."""

    optimizer: Optimizer
    names: list[str]
    known: list[int]
    steps: int
    calls: list[_Call]


class _Shares(NamedTuple):
    """How a kernel call is shared: what runs it, by how many threads, in how many parts of a table.

    A table has at most `per` entries.
    """

    run: int
    threads: int
    parts: int
    per: int


class TrainedTables(Tables):
    """Tables with backward passes."""

    def _describe(self, weights: list[Tensor]) -> None:
        super()._describe(weights)
        self._rules: dict[tuple[int, ...], _Kept] = {}
        self._compact_groups: list[_Group] | None = None
        self.alone: Any = None  # an `OneTable` when there is one, or False if there cannot be one
        if self.is_plain:
            self._one = np.ones(1, self.sums)
            self.one_at = self._one.ctypes.data

    # Steps of fused optimizers

    def step(
        self, batch: Batch, grad: Tensor, groups: Iterable[tuple[Sequence[int], Optimizer]],
        apart: tuple[int, int, int] = TOGETHER,
    ) -> bool | None:  # fmt: skip
        """Change the tables by the gradient of their pooled rows, each by its optimizer.

        `apart` tells which elements of the gradient are not in `grad`: the first, how many, and how much further.
        Gives True; or False if this has to be done by operators; or None if an id or an offset is bad, and then
        nothing was changed.
        """
        calls, stride = [], self._stride(batch, grad)
        for members, optimizer in groups:
            for call in self._calls_of(tuple(members), optimizer):
                if call.reaches and getattr(optimizer, "decay_untouched", False):
                    return False
                shares = self._shares(call.group, batch, stride, call.group.span * self.sums.itemsize + 12)
                if shares is None:
                    return False
                calls.append((call, shares))
        # No table is changed before the ids of all are known to be good; a call for one table checks them itself.
        if len(calls) > 1 and self.pool(batch) is None:
            return None
        if not all(self._run_step(call, shares, batch, grad, stride, apart) for call, shares in calls):
            return None
        changed = self.weights()
        for buffers in self.buffers:
            if buffers:
                changed += [array for name, array in buffers.items() if array is not None and name.startswith(STATE)]
        torch.autograd.graph.increment_version(changed)
        return True

    def _calls_of(self, members: tuple[int, ...], optimizer: Optimizer) -> list[_Call]:
        """What `optimizer` does with these tables."""
        kept = self._rules.get(members)
        if kept is not None and kept.optimizer is not optimizer:
            kept = None
        names = [STATE + name for name in optimizer.layout()] if kept is None else kept.names  # the count of steps last
        steps, known = 1, []
        if names:
            state = [self.buffers[member][name] for member in members for name in names]
            known = [array.data_ptr() for array in state]
            if names[-1] == STEPS:
                counts = {int(array) for array in state[len(names) - 1 :: len(names)]}
                if len(counts) > 1:
                    return [call for member in members for call in self._calls_of((member,), optimizer)]
                steps = counts.pop() + 1
        if kept is not None and kept.known == known and kept.steps == steps:
            return kept.calls
        if kept is not None and kept.known == known:
            groups = [call.group for call in kept.calls]
        else:
            groups = self._groups_of(members, names)
        rule = optimizer.rule(steps)
        calls = []
        for group in groups:
            numbers = np.array([rule.numbers] * len(group.members), np.float64)
            described = np.array(group.tables, np.int64)
            calls.append(_Call(group, described, described.ctypes.data, rule.token, numbers, numbers.ctypes.data,
                               rule.reaches))  # fmt: skip
        self._rules[members] = _Kept(optimizer, names, known, steps, calls)
        return calls

    def _run_step(
        self, call: _Call, shares: _Shares, batch: Batch, grad: Tensor, stride: int, apart: tuple[int, int, int]
    ) -> bool:
        """One call of the kernel; tells whether all ids and offsets were good."""
        group, (run, threads, parts, per) = call.group, shares
        values, offsets, weights, bags, is_open = batch
        size, items = values.shape[0], len(group.members) * parts
        scaled, weighted, weights_at = self._factors(group, weights)
        entries = size * parts + items * ROOM
        words_at = _lines(items * ITEM_FIELDS * 8)
        factors_at = words_at + _lines(entries * 8)
        sums_at = factors_at + (_lines(entries * self.sums.itemsize) if scaled is not None else 0)
        slots = min(per, group.rows) + 1
        slots_at = _lines(slots * group.span * self.sums.itemsize)
        spread = slots_at + _lines(slots * 4)
        map_size = _lines(group.rows * 4)
        scratch = memory.borrow(sums_at + threads * spread)
        maps = memory.borrow(threads * map_size, zero=True)
        at = scratch[1]
        status = kernels.tables_step.step(
            run, threads, len(group.members), parts, IDS[values.dtype], group.lanes, group.wide, scaled, weighted,
            self.stored, call.token, call.tables_at, self.address, call.numbers_at, values.data_ptr(), size,
            offsets.data_ptr(), is_open, bags, per, weights_at, grad.data_ptr(), stride, apart, at,
            at + words_at, at + factors_at, at + sums_at, spread, slots_at, maps[1], map_size,
        )  # fmt: skip
        memory.give_back(maps, zero=True)
        memory.give_back(scratch)
        if threads > 1:
            team.note(status == LATE)
        return bool(status <= 0)

    # Compact gradients

    def gradients(self, batch: Batch, grad: Tensor) -> list[Gradient] | bool | None:
        """The compact gradient of each table: rows in ascending order, and their gradients. Else as `step`."""
        if self._compact_groups is None:
            self._compact_groups = self._groups_of(range(len(self.layers)), ())
        calls, stride = [], self._stride(batch, grad)
        for group in self._compact_groups:
            shares = self._shares(group, batch, stride, 0)
            if shares is None:
                return False
            calls.append((group, shares))
        results: list[Any] = [None] * len(self.layers)
        for group, shares in calls:
            if not self._run_gradients(group, shares, batch, grad, stride, results):
                return None
        return results

    def _run_gradients(
        self, group: _Group, shares: _Shares, batch: Batch, grad: Tensor, stride: int, results: list[Any]
    ) -> bool:
        """One call of the kernel, whose `results` are noted; tells whether all ids and offsets were good."""
        run, threads, parts, per = shares
        values, offsets, weights, bags, is_open = batch
        size, items = values.shape[0], len(group.members) * parts
        scaled, weighted, weights_at = self._factors(group, weights)
        bounds = [0, size] if self.features == 1 else batch.bounds() if bags else [0] * (self.features + 1)
        made, described = [], array("q")
        for _, rows, width, _, _, feature, features, _, _ in group.tables:
            most = max(bounds[feature + features] - bounds[feature], 0)
            places = torch.empty(1, min(most, rows), dtype=torch.int64)
            sums = self.result(min(most, rows), width)
            made.append((places, sums))
            described.extend((0, rows, width, places.data_ptr(), sums.data_ptr(), feature, features, most, 0))
        entries = size * parts + items * ROOM
        words_at = _lines(items * ITEM_FIELDS * 8)
        others_at = words_at + _lines(entries * 8)
        factors_at = places_at = others_at + _lines(entries * 8)
        if scaled is not None:
            places_at = factors_at + _lines(entries * self.sums.itemsize)
        scratch = memory.borrow(places_at + (_lines(entries * 8) if scaled is not None else 0))
        at = scratch[1]
        status = kernels.tables_grad.gradients(
            run, threads, len(group.members), parts, IDS[values.dtype], group.lanes, scaled, weighted, self.stored,
            described.buffer_info()[0], self.address, values.data_ptr(), size, offsets.data_ptr(), is_open, bags, per,
            weights_at, grad.data_ptr(), stride, at, at + words_at, at + others_at,
            self.one_at if scaled is None else at + factors_at, at + places_at,
        )  # fmt: skip
        if status <= 0:
            unique = at + 8 * UNIQUE
            for member, (places, sums) in zip(group.members, made, strict=True):
                count = 0
                for _ in range(parts):
                    count += ctypes.c_int64.from_address(unique).value
                    unique += 8 * ITEM_FIELDS
                if count < places.numel():  # views would keep as much memory, and take longer to make
                    places.resize_(1, count)
                    sums.resize_(count, sums.shape[1])
                results[member] = places, sums
        memory.give_back(scratch)
        if threads > 1:
            team.note(status == LATE)
        return bool(status <= 0)

    # What both need

    def _groups_of(self, members: Iterable[int], names: Sequence[str]) -> list[_Group]:
        """Tables that one kernel takes, with the state that `names` tell."""
        grouped: dict[Any, list[int]] = {}
        weights = self.weights()
        for member in members:
            width = weights[member].shape[1]
            lanes = kernels.lanes.lanes_for(self.sums, width)
            key = lanes.ndim, width != kernels.lanes.lane_count(lanes), KINDS[self.layers[member].mode] != SUM
            grouped.setdefault(key, []).append(member)
        begins = np.cumsum([0, *self.features_of]).tolist()
        found = []
        for (_, wide, scaled), numbers in grouped.items():
            tables = []
            for member in numbers:
                weight, buffers = weights[member], self.buffers[member]
                (rows, width), feature = weight.shape, begins[member]
                first, second = ([buffers[name].data_ptr() for name in names if name != STEPS] + [0, 0])[:2]
                steps = buffers[STEPS].data_ptr() if STEPS in names else 0
                tables.append(Table(weight.data_ptr(), rows, width, first, second, feature, self.features_of[member],
                                    ANY, steps))  # fmt: skip
            lanes = kernels.lanes.lanes_for(self.sums, tables[0].width)
            lane_count, widest = kernels.lanes.lane_count(lanes), max(table.width for table in tables)
            tokens = self.stored if wide else None, self.stored if scaled else None
            most, span = max(table.rows for table in tables), -(-widest // lane_count) * lane_count
            found.append(_Group(tables, numbers, lanes, *tokens, most, span))
        return found

    def _stride(self, batch: Batch, grad: Tensor) -> int:
        """How many elements the gradients of two bags are apart: more than they are long, in a part of a wider one."""
        return grad.stride(0) if grad.shape == (batch.bags, self.columns) and batch.bags > 1 else self.columns

    def _shares(self, group: _Group, batch: Batch, stride: int, row_bytes: int) -> _Shares | None:
        """How a call is shared; None if kernels do not take so much.

        For each row that occurs, a thread needs `row_bytes` of scratch.
        """
        size = batch.values.shape[0]
        if group.rows >= MOST_ROWS or batch.bags * max(stride, self.columns) >= MOST_PLACES:
            return None
        run, threads = team.team(size * (16 + self.widest * self.numpy.itemsize), most_threads())
        per, row_bytes = size, row_bytes * threads
        if min(per, group.rows) * row_bytes > memory.LEAST_SCRATCH and batch.bags:
            bounds = batch.bounds()
            per = max(bounds[table.feature + table.features] - bounds[table.feature] for table in group.tables)
            per = min(max(per, 0), size)
        if min(per, group.rows) * row_bytes > MOST_SCRATCH:
            return None
        parts = 1
        while len(group.members) == 1 and 2 * parts <= threads:
            parts *= 2
        return _Shares(run, threads, parts, per)

    def _factors(self, group: _Group, weights: Tensor | None) -> tuple[Array | None, Array | None, int]:
        """What tells the kernels whether entries have factors, and whether these are weights, which are somewhere."""
        return (group.scaled, None, 0) if weights is None else (self.stored, like(weights), weights.data_ptr())


def _lines(nbytes: int) -> int:
    """As many bytes in whole cache lines."""
    return -(-nbytes // 64) * 64
