"""The entries of a sparse tensor in groups: those that have the same index in some of the dimensions.

Reductions, softmax and their gradients begin with this. Entries are put in order by the dimensions that tell the
groups apart, then by the others, with the sort of `order`.
"""

from math import prod
from typing import Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.order import WORD_BITS, order_ids
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.memory import allocate
from rowgrad._runtime.threads import Workers

SMALL = 4096  # entries up to which one kernel does it all


class Groups(NamedTuple):
    """Groups of entries: `starts` tells where each begins among the entries in order, and where the last ends.

    `indices` has the index of each group in the dimensions that tell them apart. `words` and `mask` tell which entry
    came to which place; there are none if the entries were in order.
    """

    workers: Workers
    starts: Array
    indices: Array
    words: Array | None
    mask: int

    def in_order(self, values: Array) -> Array:
        """`values`, one for each entry, in the order of groups."""
        if self.words is None:
            return values
        words, width = dtypes.as_words(values)
        output = allocate(values.shape, values.dtype)
        self.workers.run(
            kernels.sparse_reduce.take_values, self.words, self.mask, words, width, dtypes.as_words(output)[0]
        )
        return output

    def number(self) -> Array:
        """The group of each entry, as the entries came."""
        output = allocate((int(self.starts[-1]),), np.int64)
        self.workers.run(kernels.sparse_reduce.number_entries, self.starts, self.words, self.mask, output)
        return output


def group(indices: Array, axes: tuple[int, ...]) -> Groups:
    """The entries that have the same index in all dimensions but `axes`, which ascend."""
    entries, rank = indices.shape
    kept = [axis for axis in range(rank) if axis not in axes]
    workers = Workers(entries * (8 * rank + 32))
    if 0 < entries <= SMALL and rank and workers.chunks == 1:
        small = _group_small(workers, indices, [*kept, *axes], len(kept))
        if small is not None:
            return small
    if entries == 0:
        return Groups(workers, np.zeros(1, np.int64), np.empty((0, len(kept)), np.int64), None, -1)
    if kept != list(range(len(kept))):
        indices = np.ascontiguousarray(indices[:, [*kept, *axes]])
    if rank == 0:
        return Groups(workers, np.array([0, entries]), np.empty((1, 0), np.int64), None, -1)
    flat, chunks = indices.reshape(-1), workers.chunks
    lows, highs = np.empty((2, chunks, rank), np.int64)
    falls = np.empty(chunks, np.int64)
    workers.run(kernels.reorder.survey, flat, entries, rank, lows.reshape(-1), highs.reshape(-1), falls)
    low = lows.min(axis=0)
    spans = [int(high) - int(lowest) + 1 for high, lowest in zip(highs.max(axis=0), low, strict=True)]
    bits = [(span - 1).bit_length() for span in spans[len(kept) :]]  # whole bits, so that groups are cut off by a shift
    wide = prod(spans[: len(kept)]) << sum(bits)
    is_sorted = not falls.any()
    if (wide - 1).bit_length() + (0 if is_sorted else (entries - 1).bit_length()) > WORD_BITS:
        return _group_far(workers, indices.copy(), len(kept))
    keys = allocate((entries,), np.int64)
    spans[len(kept) :] = [1 << width for width in bits]
    workers.run(kernels.reorder.make_keys, flat, entries, rank, low, np.array(spans), keys)
    words, mask, shift = keys, -1, sum(bits)
    if not is_sorted:
        order = order_ids(workers, keys, None, wide, entries)
        words, mask, shift = order.words, (1 << order.shift) - 1, shift + order.shift
    counts = np.empty(chunks + 1, np.int64)
    workers.run(kernels.sparse_reduce.count_groups, words, shift, counts)
    starts = allocate((int(counts[-1]) + 1,), np.int64)
    workers.run(kernels.sparse_reduce.find_groups, words, shift, counts, starts)
    found = _indices_of(words[starts[:-1]] >> shift, low, spans[: len(kept)])
    return Groups(workers, starts, found, None if is_sorted else words, mask)


def _group_small(workers: Workers, indices: Array, order: list[int], kept: int) -> Groups | None:
    """The same by one kernel: for a few entries, calling several takes longer than the work."""
    entries, rank = indices.shape
    work = np.empty(3 * entries + kernels.sparse_reduce.BUCKETS + 1, np.int64)
    words, starts, spare = work[:entries], work[entries : 2 * entries + 1], work[2 * entries + 1 :]
    found = np.empty((entries, kept), np.int64)
    groups = kernels.sparse_reduce.group_small(
        indices.reshape(-1), entries, rank, np.array(order), kept, np.empty(2 * rank, np.int64), words, spare, starts,
        found.reshape(-1),
    )  # fmt: skip
    if groups == 0:
        return None
    mask = (1 << (entries - 1).bit_length()) - 1
    count = abs(groups)
    return Groups(workers, starts[: count + 1], found[:count].copy(), words if groups > 0 else None, mask)


def _indices_of(keys: Array, low: Array, spans: list[int]) -> Array:
    indices = np.empty((keys.size, len(spans)), np.int64)
    for axis in range(len(spans) - 1, 0, -1):
        keys, indices[:, axis] = np.divmod(keys, spans[axis])
    if spans:
        indices[:, 0] = keys
    indices += low[: len(spans)]
    return indices


def _group_far(workers: Workers, indices: Array, kept: int) -> Groups:
    """The same for indices that are too far apart for one word."""
    order = np.lexsort(indices.T[::-1])
    found = indices[order][:, :kept]
    begins = np.flatnonzero(np.concatenate([[True], (found[1:] != found[:-1]).any(axis=1)]))
    return Groups(workers, np.append(begins, len(order)), found[begins], order, -1)


def check_entries(values_name: str, values: Array, indices: Array, shape: Array, prefix: str = "input_") -> None:
    """Indices, values and shape must be those of one sparse tensor; whether indices are in range is not looked at."""
    if values.ndim == shape.ndim == 1 and indices.shape == (values.size, shape.size):
        return
    checks.rank(f"{prefix}indices", indices, 2)
    checks.rank(values_name, values, 1)
    checks.rank(f"{prefix}shape", shape, 1)
    checks.same_length(values_name, values.size, f"{prefix}indices", indices.shape[0])
    checks.same_length(f"{prefix}shape", shape.size, f"a row of {prefix}indices", indices.shape[1])


def sizes_of(name: str, shape: Array) -> tuple[int, ...]:
    """The sizes of a sparse tensor, none of which may be negative."""
    sizes: list[int] = shape.tolist()
    for axis, size in enumerate(sizes):
        if size < 0:
            checks.not_negative(name, shape, axis)
    return tuple(sizes)


def outside(name: str, indices: Array, shape: Any, axes: Any, shape_name: str) -> Exception:
    """The error for the first index that is not within `shape` in one of `axes`."""
    for entry, index in enumerate(indices.tolist()):
        for axis in axes:
            if not 0 <= index[axis] < shape[axis]:
                return checks.out_of_range(
                    name, (entry, axis), index[axis], shape[axis], f"{shape_name}[{axis}]", "index-out-of-range",
                    f"Drop the entry, or raise {shape_name}.",
                )  # fmt: skip
    return checks.changed(name)
