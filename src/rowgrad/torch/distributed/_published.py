"""The ids of a batch where all ranks of one machine see them: written once, whole, and read by those that hold rows.

A batch lies in its rank's shared memory: how many ids there are, the ids, where bags begin, and the factors of the ids.
"""

from typing import Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._kernels.kinds import SUM
from rowgrad._ops import checks
from rowgrad._runtime import memory
from rowgrad._runtime.dtypes import Array
from rowgrad.torch.distributed._layout import Layout
from rowgrad.torch.distributed._message import ALIGNED, Bags, Received, Wrong
from rowgrad.torch.distributed._shared_memory import SharedMemory

HEAD = 8  # bytes before the ids: how many these are


class Told(NamedTuple):
    """What a rank says of the batch that it has published: where it lies, how many bags a feature has, and whether ids
    have factors."""

    place: int
    bags: int
    weighted: bool


class Board:
    """Where the ranks of one machine publish their batches.

    Parameters
    ----------
    layout : Layout
    space : SharedMemory
    ids, sums : dtype
        Of ids as they are published, and of factors.
    """

    def __init__(self, layout: Layout, space: SharedMemory, ids: "np.dtype[Any]", sums: "np.dtype[Any]") -> None:
        self.layout, self.space, self.ids, self.sums = layout, space, ids, sums
        self._like, mine = np.empty(0, ids), layout.parts[layout.rank]
        wanted = []
        for part in mine:
            held = layout.placed(part.feature).on(layout.rank)
            assert held is not None
            kind = layout.features[part.feature].kind
            wanted.append((part.feature, held.first_row * part.spread, held.rows, part.spread, kind))
        self._wanted = np.array(wanted, np.int64).reshape(-1, 5)
        self._features = np.array([part.feature for part in mine], np.int64)
        self._is_spread = any(feature.spread for feature in layout.features)
        # Owners of rows that are spread divide by the size of the whole bag, of which they do not have all rows.
        self.is_divided = any(feature.spread and feature.kind != SUM for feature in layout.features)
        others = [part.feature for rank, parts in enumerate(layout.parts) if rank != layout.rank for part in parts]
        self._readers = np.bincount(others, minlength=len(layout.features))

    def publish(self, bags: Bags) -> tuple[Array, Array]:
        """Write a batch for all ranks; its block, and which bags have rows elsewhere. Raises `Wrong` for a bad id."""
        values, offsets, factors, count = bags
        item = self.ids.itemsize
        offsets_at = HEAD + _aligned(values.size * item)
        factors_at = offsets_at + _aligned(offsets.size * item)
        block = self.space.room(factors_at + (0 if factors is None else factors.nbytes))
        block[:HEAD].view(np.int64)[0] = values.size
        at = block.ctypes.data
        foreign = np.empty(offsets.size if self._is_spread else 0, np.uint8)
        if kernels.exchanging.publish(
            values, offsets, count, self.layout.described, self.layout.rank, factors, at + HEAD, at + offsets_at,
            at + factors_at, self._like, foreign,
        ):  # fmt: skip
            raise Wrong("an id or an offset is bad")
        return block, foreign

    def read_bytes(self, bags: Bags) -> int:
        """The bytes of a published batch that other ranks read."""
        offsets, count = bags.offsets, bags.bags
        if not count:
            return 0
        sizes = np.diff(offsets[::count])
        weight = 0 if bags.factors is None else bags.factors.itemsize
        each = (self.ids.itemsize + weight) * sizes + self.ids.itemsize * count + 2 * HEAD
        return int((each * self._readers).sum())

    def join(self, own: Array, told: list[Told]) -> Received:
        """What all ranks want of this one, as one batch. Factors have been divided as combiners say, where needed."""
        ranks, item = len(told), self.ids.itemsize
        is_weighted = self.is_divided or any(each.weighted for each in told)
        features = len(self.layout.features)
        blocks, capacity = np.zeros((ranks, 5), np.int64), 0
        for rank, (place, bags, weighted) in enumerate(told):
            is_own = rank == self.layout.rank
            size = int((own[:HEAD] if is_own else self.space.read(rank, place, HEAD)).view(np.int64)[0])
            offsets_at = HEAD + _aligned(size * item)
            factors_at = offsets_at + _aligned((features * bags + 1) * item)
            nbytes = factors_at + size * self.sums.itemsize * weighted
            block = own if is_own else self.space.read(rank, place, nbytes)
            at = block.ctypes.data
            blocks[rank] = at + HEAD, at + offsets_at, (at + factors_at) * weighted, bags, size
            bounds = block[offsets_at : offsets_at + (features * bags + 1) * item].view(self.ids)[:: max(bags, 1)]
            if bags:
                capacity += int((bounds[self._features + 1] - bounds[self._features]).sum())
        total = int(blocks[:, 3].sum())
        if capacity < 0 or min(each.bags for each in told) < 0:
            raise checks.changed("values")
        values = memory.allocate((capacity,), self.ids)
        offsets = memory.allocate((len(self._wanted) * total + 1,), self.ids)
        factors = memory.allocate((capacity,), self.sums) if is_weighted else None
        entries = np.zeros((len(self._wanted), ranks), np.int64)
        if kernels.exchanging.join(self._like, self._wanted, blocks, values, offsets, factors, entries):
            raise checks.changed("values")
        count = int(offsets[-1])
        runs = np.repeat(blocks[None, :, 3], len(self._wanted), 0)
        return Received(entries, runs, np.cumsum(runs, 1) - runs, values[:count], offsets,
                        None if factors is None else factors[:count], None, total)  # fmt: skip


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNED) * ALIGNED
