"""Tables that are looked up together: from tensors to one kernel call, forward and backward.

`Tables` keeps what the kernels have to know of the tables, and looks at each call only whether it still holds. What
it does not take (tensors that are traced or elsewhere, combiners and types that differ), the layers pool by operators.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rowgrad import _kernels as kernels
from rowgrad._kernels.kinds import MEAN, SQRT_N, SUM
from rowgrad._runtime import arrays, dtypes, memory
from rowgrad._runtime.dtypes import Array
from rowgrad.optim import Optimizer
from rowgrad.torch._bags import IDS, PLAIN, segment_ids_of
from rowgrad.torch._fused import STATE
from rowgrad.torch._team import team, was_in_time, was_late

KINDS = {"sum": SUM, "mean": MEAN, "sqrtn": SQRT_N}
NUMPY = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: dtypes.BFLOAT16,
}
CACHED = 1 << 16  # bytes of a table whose rows need not be fetched before they are used
AHEAD = 16  # entries; the rows of larger tables are fetched so long before
TILE = 1024  # bags that a thread pools before it looks for more work
NONTEMPORAL = 8 << 20  # bytes; larger results are written by non-temporal stores
MOST_ROWS = 1 << 31
MOST_PLACES = 1 << 32  # elements of a gradient that a word can tell apart
MOST_SCRATCH = 1 << 28
STEPS = STATE + "step"
ROOM = 8  # as in kernels.tables_grad


class Batch(NamedTuple):
    """The bags of all features: ids, where bags begin, weights or None, and the number of bags of a feature.

    Unless they are open, offsets end with the number of ids. Open ones are those of one feature.
    """

    values: Tensor
    offsets: Tensor
    weights: Tensor | None
    bags: int
    is_open: bool = False

    def bounds(self) -> list[int]:
        """Where the ids of each feature begin, and where those of the last one end."""
        if self.is_open:
            return [0, self.values.shape[0]]
        found: list[int] = self.offsets[:: self.bags].tolist()
        return found


class _Group(NamedTuple):
    """Features that one kernel pools: their descriptions, the vector width, and whether sums are divided."""

    features: Array
    address: int
    size: int
    lanes: Array
    scaled: Array | None
    is_aligned: bool


class _StepGroup(NamedTuple):
    """Tables that one kernel changes."""

    tables: Array
    address: int
    features: Array  # of all tables
    features_at: int
    members: list[int]
    lanes: Array
    wide: Array | None
    scaled: Array | None
    rows: int
    span: int


class _Call(NamedTuple):
    """What one kernel call of a step does: the numbers of the formula, for each table, are at `address`."""

    group: _StepGroup
    token: Array
    numbers: Array
    address: int
    reaches: bool


class _Kept(NamedTuple):
    """The calls of an optimizer, for as long as it, the addresses of its state and the count of steps stay."""

    optimizer: Optimizer
    names: list[str]
    known: list[int]
    steps: int
    calls: list[_Call]


class Tables:
    """The tables of some layers, each with a number of features; features are in the order of their tables."""

    def __init__(self, layers: Sequence[Any], features: Sequence[int]) -> None:
        self.layers, self._features = list(layers), list(features)
        self._parameters = [layer._parameters for layer in layers]
        self._buffers = [layer._buffers for layer in layers]
        self._known: list[int] = []  # addresses and sizes of the tables that are described
        self._rules: dict[tuple[int, ...], _Kept] = {}
        self._compact_groups: list[_StepGroup] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None  # a copy of a layer has tables of its own

    def __reduce__(self) -> Any:
        return type(None), ()

    def fit(self) -> bool:
        """Whether the kernels take these tables as they are now."""
        found = [weight["weight"] for weight in self._parameters]
        known = [weight.data_ptr() for weight in found]
        known += [weight.numel() for weight in found]
        if known != self._known:
            self._describe(found)
            self._known = known
        return self.is_plain

    def weights(self) -> list[Tensor]:
        """The tables."""
        return [weight["weight"] for weight in self._parameters]

    def modes(self) -> list[str]:
        """The combiner of each table."""
        return [str(layer.mode) for layer in self.layers]

    def _describe(self, weights: list[Tensor]) -> None:
        self.is_plain = all(map(_is_plain, weights)) and len({weight.dtype for weight in weights}) == 1
        self.is_plain = self.is_plain and all(layer.mode in KINDS for layer in self.layers)
        if not self.is_plain:
            return
        self.is_summed = all(layer.mode == "sum" for layer in self.layers)
        self.dtype = weights[0].dtype
        self.numpy = NUMPY[self.dtype]
        stored, self._sums, _ = dtypes.summing(self.numpy)
        self._stored = np.empty(0, stored)
        self.widest = max(weight.shape[1] for weight in weights)
        described: list[list[int]] = []
        grouped: dict[tuple[int, bool], tuple[Array, list[int]]] = {}
        column = 0
        for layer, weight, count in zip(self.layers, weights, self._features, strict=True):
            rows, width = weight.shape
            ahead = AHEAD if weight.nbytes > CACHED else 0
            for _ in range(count):
                number, kind = len(described), KINDS[layer.mode]
                described.append([weight.data_ptr(), rows, width, column, kind, ahead, number, 0])
                lanes = kernels.lanes.lanes_for(self._sums, width)
                grouped.setdefault((lanes.ndim, kind != SUM), (lanes, []))[1].append(number)
                column += width
        self.columns, self.features = column, len(described)
        self._described = np.array(described, np.int64)
        self._address = self._described.ctypes.data
        self._groups = []
        for (_, scaled), (lanes, numbers) in grouped.items():
            features = self._described[numbers]
            self._groups.append(_Group(features, features.ctypes.data, len(features), lanes,
                                       self._stored if scaled else None, self._is_aligned(numbers)))  # fmt: skip
        self._rules, self._compact_groups = {}, None

    def _is_aligned(self, numbers: list[int]) -> bool:
        """Whether non-temporal stores can write these features."""
        sizes = self._described[numbers][:, 2:4] * self.numpy.itemsize
        return bool((sizes % 32 == 0).all()) and self.columns * self.numpy.itemsize % 32 == 0

    # Forward

    def pool(self, batch: Batch) -> Tensor | None:
        """The pooled rows, or None if an id or an offset is bad."""
        values, offsets, weights, bags, is_open = batch
        size, itemsize = values.shape[0], self.numpy.itemsize
        output = self._result((bags, self.columns))
        work = size * (8 + self.widest * itemsize)
        like = IDS[values.dtype]
        nontemporal = output.nbytes >= NONTEMPORAL
        weighted, weights_at = (None, 0) if weights is None else (_like(weights), weights.data_ptr())
        for group in self._groups:
            run, threads = team(work)
            tiles = 1 if threads == 1 else max(bags // TILE, -(-4 * threads // group.size))
            status = kernels.tables.pool(
                run, threads, self.features, group.size, min(tiles, bags) or 1, like, group.lanes, group.scaled,
                weighted, self._stored, group.address, values.data_ptr(), size, offsets.data_ptr(), is_open, bags,
                weights_at, output.data_ptr(), self.columns, nontemporal and group.is_aligned,
            )  # fmt: skip
            if status > 0:
                return None
            if threads > 1:
                _note(status)
        return output

    def _result(self, shape: tuple[int, ...]) -> Tensor:
        """New memory; large results come from what earlier ones have left, since new pages are slow."""
        if shape[0] * shape[1] * self.numpy.itemsize < memory.POOLED:
            return torch.empty(shape, dtype=self.dtype)
        result: Tensor = arrays.TORCH.hand_back(memory.allocate(shape, self.numpy))
        return result

    # Backward

    def entries(self, batch: Batch, grad: Tensor) -> "Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]":
        """For each table, as operators take it: the gradient of its bags, its ids, the bag of each, and weights."""
        values, offsets, weights, bags, is_open = batch
        segment_ids = segment_ids_of(offsets if is_open else offsets[:-1], values.shape[0])
        bounds = batch.bounds() if bags else [0] * (self.features + 1)
        feature, column = 0, 0
        for weight, count in zip(self.weights(), self._features, strict=True):
            begin, end = bounds[feature], bounds[feature + count]
            width = weight.shape[1]
            part = grad[:, column : column + count * width]
            if count > 1:
                part = part.reshape(bags, count, width).transpose(0, 1).reshape(count * bags, width)
            yield (part.contiguous(), values[begin:end], segment_ids[begin:end] - feature * bags,
                   None if weights is None else weights[begin:end])  # fmt: skip
            feature, column = feature + count, column + count * width

    def step(self, batch: Batch, grad: Tensor, groups: Iterable[tuple[Sequence[int], Optimizer]]) -> bool | None:
        """Change the tables by the gradient of their pooled rows, each by its optimizer.

        Gives True; or False if this has to be done by operators; or None if an id or an offset is bad, and then
        nothing was changed.
        """
        calls = []
        for members, optimizer in groups:
            for call in self._rules_for(tuple(members), optimizer):
                if call.reaches and getattr(optimizer, "decay_untouched", False):
                    return False
                prepared = self._prepare(call.group, batch)
                if prepared is None:
                    return False
                calls.append((call, prepared))
        if (
            len(calls) > 1 and self.pool(batch) is None
        ):  # no table is changed before the ids of all are known to be good
            return None
        for call, prepared in calls:
            if not self._run(call.group, call.token, call.address, batch, grad, prepared):
                return None
        changed = self.weights()
        for buffers in self._buffers:
            if buffers:
                changed += [array for name, array in buffers.items() if array is not None and name.startswith(STATE)]
        torch.autograd.graph.increment_version(changed)
        return True

    def gradients(self, batch: Batch, grad: Tensor) -> "list[tuple[Tensor, Tensor]] | bool | None":
        """The compact gradient of each table: rows in ascending order, and their gradients. Else as `step`."""
        bounds = batch.bounds() if batch.bags else [0] * (self.features + 1)
        if self._compact_groups is None:
            self._compact_groups = self._step_groups(range(len(self.layers)), ())
        results: list[Any] = [None] * len(self.layers)
        calls = []
        for group in self._compact_groups:
            prepared = self._prepare(group, batch, splits=False)
            if prepared is None:
                return False
            tables = group.tables.tolist()
            for member, table in zip(group.members, tables, strict=True):
                _, rows, width, _, _, first, count, _ = table
                size = min(max(bounds[first + count] - bounds[first], 0), rows)
                made = torch.empty((1, size), dtype=torch.int64), self._result((size, width))
                results[member], table[3:5] = made, [made[0].data_ptr(), made[1].data_ptr()]
            described = np.array(tables, np.int64)
            calls.append((group._replace(tables=described, address=described.ctypes.data), prepared))
        for group, prepared in calls:
            counts = self._run(group, None, 0, batch, grad, prepared)
            if counts is None:
                return None
            for member, count in zip(group.members, counts, strict=True):
                rows, values = results[member]
                if count < values.shape[0]:
                    results[member] = rows.narrow(1, 0, count), values.narrow(0, 0, count)
        return results

    def _rules_for(self, members: tuple[int, ...], optimizer: Optimizer) -> list[_Call]:
        """What `optimizer` does: groups of tables, its rule for each, and the numbers of the rule for each table."""
        kept = self._rules.get(members)
        names = kept.names if kept is not None and kept.optimizer is optimizer else _state_names(optimizer)
        steps, known = 1, []
        if names:
            state = [self._buffers[member][name] for member in members for name in names]
            known = [array.data_ptr() for array in state]
            if names[-1] == STEPS:
                counts = {int(array) for array in state[len(names) - 1 :: len(names)]}
                if len(counts) > 1:
                    return [call for member in members for call in self._rules_for((member,), optimizer)]
                steps = counts.pop() + 1
        is_known = kept is not None and kept.optimizer is optimizer and kept.known == known
        if kept is not None and is_known and kept.steps == steps:
            return kept.calls
        groups = (
            [call.group for call in kept.calls] if kept is not None and is_known else self._step_groups(members, names)
        )
        rule = optimizer.rule(steps)
        calls = []
        for group in groups:
            numbers = np.array([rule.numbers] * len(group.members), np.float64)
            calls.append(_Call(group, rule.token, numbers, numbers.ctypes.data, rule.reaches))
        self._rules[members] = _Kept(optimizer, names, known, steps, calls)
        return calls

    def _step_groups(self, members: Iterable[int], names: Sequence[str]) -> list[_StepGroup]:
        grouped: dict[Any, tuple[Array, list[int]]] = {}
        weights = self.weights()
        for member in members:
            width = weights[member].shape[1]
            lanes = kernels.lanes.lanes_for(self._sums, width)
            lanes_count = 1 << (lanes.ndim - 1)
            key = lanes.ndim, width != lanes_count, KINDS[self.layers[member].mode] != SUM
            grouped.setdefault(key, (lanes, []))[1].append(member)
        begins = np.cumsum([0, *self._features])
        found = []
        for (_, wide, scaled), (lanes, numbers) in grouped.items():
            tables, lanes_count = [], 1 << (lanes.ndim - 1)
            for member in numbers:
                weight, buffers = weights[member], self._buffers[member]
                addresses = [buffers[name].data_ptr() for name in names if name != STEPS]
                steps = buffers[STEPS].data_ptr() if STEPS in names else 0
                tables.append([weight.data_ptr(), *weight.shape, *(*addresses, 0, 0)[:2], begins[member],
                               self._features[member], steps])  # fmt: skip
            widest = max(weights[member].shape[1] for member in numbers)
            described = np.array(tables, np.int64)
            most = max(weights[member].shape[0] for member in numbers)
            span = -(-widest // lanes_count) * lanes_count
            tokens = self._stored if wide else None, self._stored if scaled else None
            found.append(
                _StepGroup(described, described.ctypes.data, self._described, self._address, numbers, lanes, *tokens,
                           most, span)
            )  # fmt: skip
        return found

    def _prepare(
        self, group: _StepGroup, batch: Batch, *, splits: bool = True
    ) -> "tuple[int, int, int, int, int] | None":
        """How a step is shared, and how many entries a table has at most; None if it takes too much scratch."""
        size = batch.values.shape[0]
        if group.rows >= MOST_ROWS or batch.bags * self.columns >= MOST_PLACES:
            return None
        run, threads = team(size * (16 + self.widest * self.numpy.itemsize))
        per = size
        row = group.span * self._sums.itemsize + 12
        if min(per, group.rows) * row * threads > memory.LEAST_SCRATCH and batch.bags:
            bounds = batch.bounds()
            per = max(bounds[table[5] + table[6]] - bounds[table[5]] for table in group.tables.tolist())
            per = min(max(per, 0), size)
        if min(per, group.rows) * row * threads > MOST_SCRATCH:
            return None
        parts = 1
        while splits and len(group.members) == 1 and 2 * parts <= threads:
            parts *= 2
        return run, threads, parts, per, size

    def _run(self, group: _StepGroup, token: Any, numbers: int, batch: Batch, grad: Tensor,
             prepared: "tuple[int, int, int, int, int]") -> Any:  # fmt: skip
        """One call of the kernel: True, or the number of rows of each table without a `token`; None if an id is bad."""
        run, threads, parts, per, size = prepared
        values, offsets, weights, bags, is_open = batch
        items = len(group.members) * parts
        slots = min(per, group.rows) + 1
        sums = _lines(slots * group.span * self._sums.itemsize)
        others_at = sums + _lines(slots * 4)
        spread = others_at + (_lines(slots * 8) if token is None else 0)
        entries = size * parts + items * ROOM + 8
        scaled, weighted, weights_at = group.scaled, None, 0
        if weights is not None:
            scaled, weighted, weights_at = self._stored, _like(weights), weights.data_ptr()
        lists, words = _lines(3 * items * 8), _lines(entries * 8)
        factors = _lines(entries * self._sums.itemsize) if scaled is not None else 0
        map_size = _lines(group.rows * 4)
        scratch = memory.borrow(lists + words + factors + threads * spread)
        maps = memory.borrow(threads * map_size, zero=True)
        block, start = scratch
        status = kernels.tables_grad.step(
            run, threads, len(group.members), parts, IDS[values.dtype], group.lanes, group.wide, scaled, weighted,
            self._stored, token, group.address, group.features_at, numbers, values.data_ptr(), size, offsets.data_ptr(),
            is_open, bags, per, weights_at, grad.data_ptr(), self.columns, start + lists, start + lists + words, start,
            start + lists + words + factors, spread, sums, others_at, maps[1], map_size,
        )  # fmt: skip
        memory.give_back(maps, zero=True)
        found = True
        if token is None and status <= 0:
            begin = start - block.ctypes.data
            found = block[begin + 16 * items : begin + 24 * items].view(np.int64).tolist()
        memory.give_back(scratch)
        if threads > 1:
            _note(status)
        return None if status > 0 else found


def _state_names(optimizer: Optimizer) -> list[str]:
    """The names of the buffers that keep what an optimizer remembers, the count of steps last."""
    return [STATE + name for name in optimizer.layout()]


def _note(status: int) -> None:
    if status == kernels.team.LATE:
        was_late()
    else:
        was_in_time()


def _is_plain(weight: Tensor) -> bool:
    return (
        type(weight) in PLAIN
        and weight.is_cpu
        and weight.dtype in NUMPY
        and weight.is_contiguous()
        and weight.shape[1] > 0
        and (weight.data_ptr() != 0 or weight.shape[0] == 0)
    )


def _like(weights: Tensor) -> Array:
    return np.empty(0, NUMPY[weights.dtype])


def _lines(nbytes: int) -> int:
    """As many bytes in whole cache lines."""
    return -(-nbytes // 64) * 64
