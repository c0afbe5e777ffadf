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


class Batch(NamedTuple):
    """The bags of all features: ids, where bags begin and the last one ends, weights or None, bags of a feature."""

    values: Tensor
    offsets: Tensor
    weights: Tensor | None
    bags: int


class _Group(NamedTuple):
    """Features that one kernel pools: their descriptions, the vector width, and whether sums are divided."""

    features: Array
    lanes: Array
    scaled: Array | None
    is_aligned: bool


class _StepGroup(NamedTuple):
    """Tables that one kernel changes."""

    tables: Array
    members: list[int]
    lanes: Array
    wide: Array | None
    scaled: Array | None
    rows: int
    span: int


class Tables:
    """The tables of some layers, each with a number of features; features are in the order of their tables."""

    def __init__(self, layers: Sequence[Any], features: Sequence[int]) -> None:
        self._layers, self._features = list(layers), list(features)
        self._parameters = [layer._parameters for layer in layers]
        self._buffers = [layer._buffers for layer in layers]
        self._known: list[int] = []  # addresses and sizes of the tables that are described
        self._rules: dict[int, tuple[Any, ...]] = {}

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
        return [str(layer.mode) for layer in self._layers]

    def _describe(self, weights: list[Tensor]) -> None:
        self.is_plain = all(map(_is_plain, weights)) and len({weight.dtype for weight in weights}) == 1
        self.is_plain = self.is_plain and all(layer.mode in KINDS for layer in self._layers)
        if not self.is_plain:
            return
        self.is_summed = all(layer.mode == "sum" for layer in self._layers)
        self.dtype = weights[0].dtype
        self.numpy = NUMPY[self.dtype]
        stored, self._sums, _ = dtypes.summing(self.numpy)
        self._stored = np.empty(0, stored)
        self.widest = max(weight.shape[1] for weight in weights)
        described, grouped, column = [], {}, 0
        for layer, weight, count in zip(self._layers, weights, self._features, strict=True):
            rows, width = weight.shape
            ahead = AHEAD if weight.nbytes > CACHED else 0
            for _ in range(count):
                number, kind = len(described), KINDS[layer.mode]
                described.append([weight.data_ptr(), rows, width, column, kind, ahead, number, 0])
                lanes = kernels.lanes.lanes_for(self._sums, width)
                grouped.setdefault((lanes.ndim, kind != SUM), (lanes, []))[1].append(number)
                column += width
        self.columns = column
        self._described = np.array(described, np.int64)
        self._groups = [
            _Group(self._described[numbers], lanes, self._stored if scaled else None, self._is_aligned(numbers))
            for (_, scaled), (lanes, numbers) in grouped.items()
        ]
        self._rules = {}

    def _is_aligned(self, numbers: list[int]) -> bool:
        """Whether non-temporal stores can write these features."""
        sizes = self._described[numbers][:, 2:4] * self.numpy.itemsize
        return bool((sizes % 32 == 0).all()) and self.columns * self.numpy.itemsize % 32 == 0

    # Forward

    def pool(self, batch: Batch) -> Tensor | None:
        """The pooled rows, or None if an id or an offset is bad."""
        values, offsets, weights, bags = batch
        size, itemsize = values.shape[0], self.numpy.itemsize
        output = self._result((bags, self.columns))
        work = size * (8 + self.widest * itemsize)
        like = IDS[values.dtype]
        nontemporal = output.nbytes >= NONTEMPORAL
        weighted, weights_at = (None, 0) if weights is None else (_like(weights), weights.data_ptr())
        for group in self._groups:
            run, threads = team(work)
            tiles = 1 if threads == 1 else max(bags // TILE, -(-4 * threads // len(group.features)))
            status = kernels.tables.pool(
                run, threads, len(self._described), len(group.features), min(tiles, bags) or 1, like, group.lanes, group.scaled, weighted,
                self._stored, group.features.ctypes.data, values.data_ptr(), size, offsets.data_ptr(), bags, weights_at,
                output.data_ptr(), self.columns, nontemporal and group.is_aligned,
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
        values, offsets, weights, bags = batch
        segment_ids = segment_ids_of(offsets[:-1], values.shape[0])
        bounds = offsets[::bags].tolist() if bags else [0] * (len(self._described) + 1)
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
            for group, rule, numbers in self._rules_for(tuple(members), optimizer):
                if rule.reaches and getattr(optimizer, "decay_untouched", False):
                    return False
                prepared = self._prepare(group, batch)
                if prepared is None:
                    return False
                calls.append((group, rule.token, numbers, prepared))
        if len(calls) > 1 and self._first_bad(batch):
            return None
        for group, token, numbers, prepared in calls:
            if not self._run(group, token, numbers.ctypes.data, batch, grad, prepared):
                return None
        torch.autograd.graph.increment_version(self._changed)
        return True

    def gradients(self, batch: Batch, grad: Tensor) -> "list[tuple[Tensor, Tensor]] | None | bool":
        """The compact gradient of each table: rows in ascending order, and their gradients. Else as `step`."""
        bounds = batch.offsets[:: batch.bags].tolist() if batch.bags else [0] * (len(self._described) + 1)
        results: list[Any] = [None] * len(self._layers)
        weights = self.weights()
        calls = []
        for group in self._step_groups(range(len(self._layers)), ()):
            tables = group.tables.copy()
            for i, member in enumerate(group.members):
                first = int(tables[i, 5])
                size = min(max(bounds[first + int(tables[i, 6])] - bounds[first], 0), weights[member].shape[0])
                rows = torch.empty((1, size), dtype=torch.int64)
                values = torch.empty((size, weights[member].shape[1]), dtype=self.dtype)
                results[member] = rows, values
                tables[i, 3:5] = rows.data_ptr(), values.data_ptr()
            prepared = self._prepare(group, batch)
            if prepared is None:
                return False
            calls.append((group._replace(tables=tables), prepared))
        for group, prepared in calls:
            counts = self._run(group, None, 0, batch, grad, prepared)
            if counts is None:
                return None
            for member, count in zip(group.members, counts, strict=True):
                rows, values = results[member]
                results[member] = rows[:, :count], values[:count]
        return results

    def _first_bad(self, batch: Batch) -> bool:
        """Whether an id or an offset is bad: asked before several kernels change tables, one after the other."""
        return self.pool(batch) is None

    def _rules_for(self, members: tuple[int, ...], optimizer: Optimizer) -> list[tuple[_StepGroup, Any, Array]]:
        """The groups that `optimizer` changes, its rule for each, and the numbers of the rule for each table."""
        names = [STATE + name for name in optimizer.layout()]
        state = [self._buffers[member][name] for member in members for name in names]
        known = [array.data_ptr() for array in state]  # type: ignore[union-attr]
        steps = 1
        if names and names[-1] == STATE + "step":
            counts = {int(array) for array in state[len(names) - 1 :: len(names)]}  # type: ignore[arg-type]
            if len(counts) > 1:
                return [found for member in members for found in self._rules_for((member,), optimizer)]
            steps = counts.pop() + 1
        kept = self._rules.get(members[0])
        if kept is not None and kept[0] == members and kept[1] is optimizer and kept[2] == known:
            if kept[3] == steps:
                return kept[4]  # type: ignore[no-any-return]
            groups = [group for group, _, _ in kept[4]]
        else:
            groups = self._step_groups(members, [name for name in names if name != STATE + "step"])
        rule = optimizer.rule(steps)
        found = [(group, rule, np.array([rule.numbers] * len(group.members), np.float64)) for group in groups]
        self._rules[members[0]] = members, optimizer, known, steps, found
        self._changed = [*self.weights(), *state]
        return found

    def _step_groups(self, members: Iterable[int], names: Sequence[str]) -> list[_StepGroup]:
        grouped: dict[Any, tuple[Array, list[int]]] = {}
        weights = self.weights()
        for member in members:
            width = weights[member].shape[1]
            lanes = kernels.lanes.lanes_for(self._sums, width)
            lanes_count = 1 << (lanes.ndim - 1)
            key = lanes.ndim, width != lanes_count, KINDS[self._layers[member].mode] != SUM
            grouped.setdefault(key, (lanes, []))[1].append(member)
        begins = np.cumsum([0, *self._features])
        found = []
        for (_, wide, scaled), (lanes, numbers) in grouped.items():
            tables, lanes_count = [], 1 << (lanes.ndim - 1)
            for member in numbers:
                weight, buffers = weights[member], self._buffers[member]
                addresses = [buffers[name].data_ptr() for name in names]  # type: ignore[union-attr]
                steps = buffers[STATE + "step"].data_ptr() if names and STATE + "step" in buffers else 0  # type: ignore[union-attr]
                tables.append([weight.data_ptr(), *weight.shape, *(*addresses, 0, 0)[:2], begins[member],
                               self._features[member], steps])  # fmt: skip
            widest = max(weights[member].shape[1] for member in numbers)
            found.append(
                _StepGroup(np.array(tables, np.int64), numbers, lanes, self._stored if wide else None,
                           self._stored if scaled else None, max(weights[member].shape[0] for member in numbers),
                           -(-widest // lanes_count) * lanes_count)  # fmt: skip
            )
        return found

    def _prepare(self, group: _StepGroup, batch: Batch) -> "tuple[int, int, int, int, int] | None":
        """How a step is shared, and how many entries a table has at most; None if it takes too much scratch."""
        size = batch.values.shape[0]
        if group.rows >= MOST_ROWS or batch.bags * self.columns >= MOST_PLACES:
            return None
        run, threads = team(size * (16 + self.widest * self.numpy.itemsize))
        per = size
        row = group.span * self._sums.itemsize + 12
        if min(per, group.rows) * row * threads > memory.LEAST_SCRATCH and batch.bags:
            bounds = batch.offsets[:: batch.bags].tolist()
            per = max(bounds[table[5] + table[6]] - bounds[table[5]] for table in group.tables.tolist())
            per = min(max(per, 0), size)
        if min(per, group.rows) * row * threads > MOST_SCRATCH:
            return None
        parts = 1
        while len(group.members) == 1 and 2 * parts <= threads:
            parts *= 2
        return run, threads, parts, per, size

    def _run(self, group: _StepGroup, token: Any, numbers: int, batch: Batch, grad: Tensor,
             prepared: "tuple[int, int, int, int, int]") -> Any:  # fmt: skip
        run, threads, parts, per, size = prepared
        values, offsets, weights, bags = batch
        items = len(group.members) * parts
        slots = min(per, group.rows) + 1
        sums = _lines(slots * group.span * self._sums.itemsize)
        others_at = sums + _lines(slots * 4)
        spread = others_at + (_lines(slots * 8) if token is None else 0)
        entries = size * parts + items * kernels.tables_grad.ROOM + 8
        scaled = group.scaled if weights is None else self._stored
        factors = _lines(entries * self._sums.itemsize) if scaled is not None else 0
        lists_size = _lines(3 * items * 8)
        words = _lines(entries * 8)
        room = memory.scratch(lists_size + words + factors + threads * spread + 64, np.uint8)
        start = -(-room.ctypes.data // 64) * 64
        map_size = _lines(group.rows * 4)
        maps = memory.borrow_zeros(threads * map_size + 64)
        like, weighted, weights_at = IDS[values.dtype], None, 0
        if weights is not None:
            weighted, weights_at = _like(weights), weights.data_ptr()
        status = kernels.tables_grad.step(
            run, threads, len(group.members), parts, like, group.lanes, group.wide, scaled, weighted, self._stored,
            token, group.tables.ctypes.data, self._described.ctypes.data, numbers, values.data_ptr(), size,
            offsets.data_ptr(), bags, per, weights_at, grad.data_ptr(), self.columns, start + lists_size,
            start + lists_size + words, start, start + lists_size + words + factors, spread, sums, others_at,
            -(-maps.ctypes.data // 64) * 64, map_size,
        )  # fmt: skip
        memory.return_zeros(maps)
        if threads > 1:
            _note(status)
        if status > 0:
            return None
        begin = start - room.ctypes.data
        return room[begin : begin + 24 * items].view(np.int64)[2 * items :].tolist() if token is None else True


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
