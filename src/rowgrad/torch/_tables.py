"""Tables that are looked up together: from tensors to one kernel call.

`Tables` keeps what the kernels have to know of the tables, and looks at each call only whether it still holds. What
it does not take (tensors that are traced or elsewhere, combiners and types that differ), the layers pool by operators.
Their backward passes are in `_trained_tables.py`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rowgrad import _kernels as kernels
from rowgrad._kernels.described import COLUMN, WIDTH, Feature
from rowgrad._kernels.kinds import LATE, MEAN, SQRT_N, SUM
from rowgrad._runtime import arrays, dtypes, memory, team
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.memory import LINE
from rowgrad._runtime.threads import most_threads
from rowgrad.torch._bags import IDS, PLAIN, segment_ids_of

KINDS = {"sum": SUM, "mean": MEAN, "sqrtn": SQRT_N}
NUMPY = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: dtypes.BFLOAT16,
}
CACHED = 1 << 20  # bytes of a table whose rows are near enough: they need not be fetched before they are used
AHEAD = 32  # entries; the rows of larger tables are fetched so long before
TILE = 2048  # bags of a feature that a thread pools at once
NONTEMPORAL = 8 << 20  # bytes; larger results are written by non-temporal stores
KEPT = 4 << 20  # bytes; from here on memory is that of earlier results, in huge pages: the system would give new pages


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


class Tables:
    """The tables of some layers, each with a number of features; features are in the order of their tables."""

    def __init__(self, layers: Sequence[Any], features: Sequence[int]) -> None:
        self.layers, self.features_of = list(layers), list(features)
        self.is_plain = False
        self.buffers = [layer._buffers for layer in layers]
        self._parameters = [layer._parameters for layer in layers]
        self._known: list[Any] = []  # of the tables that are described: combiners, addresses, types and shapes
        self.only = self._parameters[0] if len(layers) == 1 else None
        self._at, self._size, self._mode, self.dtype, self.widest = -1, 0, "", torch.float32, 0

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None  # a copy of a layer has tables of its own

    def __reduce__(self) -> Any:
        return type(None), ()

    def fit(self) -> bool:
        """Whether the kernels take these tables as they are now."""
        if self.only is not None:  # what holds for one layer is looked at without a list
            weight = self.only.get("weight")
            if (
                weight is not None
                and weight.data_ptr() == self._at
                and weight.dtype is self.dtype
                and weight.numel() == self._size
                and weight.dim() == 2
                and weight.stride(0) == self.widest
                and self.layers[0].mode == self._mode
            ):
                return self.is_plain
        if not all("weight" in parameters for parameters in self._parameters):
            return False  # a table that is computed (`torch.nn.utils.parametrize`) is no parameter
        found = self.weights()
        known: list[Any] = [layer.mode for layer in self.layers]
        for weight in found:
            known += (weight.data_ptr(), weight.dtype, weight.shape, weight.stride())
        if known != self._known:
            self._at = -1
            self._describe(found)
            self._known = known
            if self.is_plain:
                self._at, self._size, self._mode = found[0].data_ptr(), found[0].numel(), self.layers[0].mode
        return self.is_plain

    def weights(self) -> list[Tensor]:
        """The tables."""
        return [weight["weight"] for weight in self._parameters]

    def modes(self) -> list[str]:
        """The combiner of each table."""
        return [str(layer.mode) for layer in self.layers]

    def _describe(self, weights: list[Tensor]) -> None:
        """Note what kernels have to know of the tables."""
        self.is_plain = all(map(_is_plain, weights)) and len({weight.dtype for weight in weights}) == 1
        self.is_plain = self.is_plain and all(layer.mode in KINDS for layer in self.layers)
        if not self.is_plain:
            return
        self.combiners = self.modes()  # a new list each time, by which a backward pass sees whether they have changed
        self.is_summed = all(layer.mode == "sum" for layer in self.layers)
        self.dtype = weights[0].dtype
        self.numpy = NUMPY[self.dtype]
        stored, self.sums, _ = dtypes.summing(self.numpy)
        self.stored = np.empty(0, stored)
        self.widest = max(weight.shape[1] for weight in weights)
        described, self.columns, self.features = self.listed(weights)
        grouped: dict[tuple[int, bool], tuple[Array, list[int]]] = {}
        # Tables that differ in their vector widths are several calls; one table alone has the width that suits it best.
        vectors = kernels.lanes.lanes_for if self.only is None else kernels.lanes.lanes_for_rows
        for place, feature in enumerate(described):
            lanes = vectors(self.sums, feature.width)
            grouped.setdefault((lanes.ndim, feature.kind != SUM), (lanes, []))[1].append(place)
        self.described = np.array(described, np.int64)
        self.address = self.described.ctypes.data
        self._groups = []
        for (_, scaled), (lanes, numbers) in grouped.items():
            features = self.described[numbers]
            self._groups.append(_Group(features, features.ctypes.data, len(features), lanes,
                                       self.stored if scaled else None, self._is_aligned(numbers)))  # fmt: skip

    def listed(self, weights: list[Tensor]) -> tuple[list[Feature], int, int]:
        """What kernels have to know of each feature, the columns of the result, and how many features a batch has."""
        found: list[Feature] = []
        column = 0
        for layer, weight, count in zip(self.layers, weights, self.features_of, strict=True):
            rows, width = weight.shape
            ahead = AHEAD if weight.nbytes > CACHED else 0
            for _ in range(count):
                kind = KINDS[layer.mode]
                found.append(Feature(weight.data_ptr(), rows, width, column, kind, ahead, len(found)))
                column += width
        return found, column, len(found)

    def _is_aligned(self, numbers: list[int]) -> bool:
        """Whether non-temporal stores can write these features: they are slow where they do not fill cache lines."""
        sizes = self.described[numbers][:, [WIDTH, COLUMN]] * self.numpy.itemsize
        return bool((sizes % LINE == 0).all()) and self.columns * self.numpy.itemsize % LINE == 0

    @property
    def first(self) -> _Group:
        """The first group, which is the only one of one table."""
        return self._groups[0]

    # Forward

    def pool(self, batch: Batch) -> Tensor | None:
        """The pooled rows, or None if an id or an offset is bad."""
        values, offsets, weights, bags, is_open = batch
        size, itemsize = values.numel(), self.numpy.itemsize
        output = self.result(bags, self.columns)
        work = size * (8 + self.widest * itemsize)
        ids = IDS[values.dtype]
        weighted, weights_at = (None, 0) if weights is None else (like(weights), weights.data_ptr())
        for group in self._groups:
            run, threads = team.team(work, most_threads())
            tiles = max(bags // TILE, threads if threads == 1 or group.size == 1 else -(-4 * threads // group.size))
            status = kernels.tables.pool(
                run, threads, self.features, group.size, min(tiles, bags) or 1, ids, group.lanes, group.scaled,
                weighted, self.stored, group.address, values.data_ptr(), size, offsets.data_ptr(), is_open, bags,
                weights_at, output.data_ptr(), self.columns, self.is_nontemporal(output, group),
            )  # fmt: skip
            if status > 0:
                return None
            if threads > 1:
                team.note(status == LATE)
        return output

    def is_nontemporal(self, output: Tensor, group: _Group) -> bool:
        """Whether to write results by non-temporal stores, which fault elsewhere than at the start of a line."""
        is_large = output.numel() * self.numpy.itemsize >= NONTEMPORAL
        return is_large and group.is_aligned and output.data_ptr() % LINE == 0

    def result(self, rows: int, columns: int) -> Tensor:
        """New memory; large results come from what earlier ones have left, since new pages are slow."""
        if rows * columns * self.numpy.itemsize < KEPT:
            return torch.empty(rows, columns, dtype=self.dtype)
        result: Tensor = arrays.TORCH.hand_back(memory.allocate((rows, columns), self.numpy))
        return result

    def entries(self, batch: Batch, grad: Tensor) -> "Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]":
        """For each table, as operators take it: the gradient of its bags, its ids, the bag of each, and weights."""
        values, offsets, weights, bags, is_open = batch
        segment_ids = segment_ids_of(offsets if is_open else offsets[:-1], values.shape[0])
        bounds = batch.bounds() if bags else [0] * (self.features + 1)
        feature, column = 0, 0
        for weight, count in zip(self.weights(), self.features_of, strict=True):
            begin, end = bounds[feature], bounds[feature + count]
            width = weight.shape[1]
            part = grad[:, column : column + count * width]
            if count > 1:
                part = part.reshape(bags, count, width).transpose(0, 1).reshape(count * bags, width)
            yield (part.contiguous(), values[begin:end], segment_ids[begin:end] - feature * bags,
                   None if weights is None else weights[begin:end])  # fmt: skip
            feature, column = feature + count, column + count * width


def _is_plain(weight: Tensor) -> bool:
    return (
        type(weight) in PLAIN
        and weight.is_cpu
        and weight.dtype in NUMPY
        and weight.is_contiguous()
        and weight.shape[1] > 0
        and (weight.data_ptr() != 0 or weight.shape[0] == 0)
    )


def like(weights: Tensor) -> Array:
    """An array by which kernels know the type of weights."""
    return np.empty(0, NUMPY[weights.dtype])
