"""The ids of a batch as messages to the ranks that hold their rows, and the messages of all ranks as one batch.

A message has, for each part of its receiver: how many entries and runs there are; the lengths of all runs; the ids of
all entries, counted from the first row that the receiver holds; if ids have weights, their factors; and the sizes of
the bags that runs belong to, where the receiver divides gradients by them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._runtime import memory
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import RowgradError
from rowgrad.torch.distributed._layout import Layout
from rowgrad.torch.distributed._shared_memory import SharedMemory

ALIGNED = 8  # bytes; each section of a message begins at a multiple


class Bags(NamedTuple):
    """The bags of all features on this rank: ids, where bags begin, factors or None, and the bags of a feature."""

    values: Array
    offsets: Array
    factors: Array | None
    bags: int


class Distinct(NamedTuple):
    """The different rows of some entries: each entry's place among them, the owner's number of each, and their counts.

    They stand owner by owner, in the order in which the entries have them first.
    """

    places: Array
    rows: Array
    counts: Array


class Sent(NamedTuple):
    """What this rank asks for: a message for each rank; entries and runs of its parts; and the bags of spread runs.

    `answers` tells how many rows come back for each part; `run_bags` has the address of the bags of each feature's runs
    on each rank; `fetched` the rows of features whose rows travel, each once, and are pooled here.
    """

    blocks: list[Array]
    entries: list[Array]
    runs: list[Array]
    answers: list[Array]
    run_bags: Array
    kept: Array
    fetched: dict[int, Distinct]

    def bags_of(self, feature: int, rank: int, runs: int) -> Array:
        """The bags of a feature's runs on a rank, where its rows are spread."""
        begin = (int(self.run_bags[feature, rank]) - self.kept.ctypes.data) // self.kept.itemsize
        return self.kept[begin : begin + runs]


class Received(NamedTuple):
    """What all ranks ask this one for, with a row for each part and a column for each rank; and joined, as one batch.

    `starts` tells which of a feature's bags in the batch is the first of each rank, `sizes` how many ids the bags of
    runs have on all ranks, or 0 where that does not matter.
    """

    entries: Array
    runs: Array
    starts: Array
    values: Array
    offsets: Array
    factors: Array | None
    sizes: Array | None
    bags: int


class _Sections(NamedTuple):
    """The addresses of each part's lengths, ids, factors and sizes of bags, and the bytes of the message."""

    lengths: Array
    ids: Array
    factors: Array
    sizes: Array
    nbytes: int


def _sections(entries: Array, runs: Array, item: int, weight: int, sized: bool) -> _Sections:
    head = 16 * entries.size
    ids = head + _aligned(4 * int(runs.sum()))
    factors = ids + _aligned(item * int(entries.sum()))
    sizes = factors + _aligned(weight * int(entries.sum()))
    return _Sections(head + 4 * _begins(runs), ids + item * _begins(entries), factors + weight * _begins(entries),
                     sizes + 4 * _begins(runs), sizes + _aligned(4 * int(runs.sum())) * sized)  # fmt: skip


def write(
    layout: Layout, bags: Bags, ids: "np.dtype[Any]", space: SharedMemory, sized: bool = False
) -> Sent:  # fmt: skip
    """The messages to all ranks, checked; raises `Wrong` if an id or an offset is bad."""
    factors, count = bags.factors, bags.bags
    entries, runs = _measured(layout, bags)
    weight = 0 if factors is None else factors.itemsize
    of_rank = _of_parts(layout, entries, _sizes(layout, bags))
    of_runs = _of_parts(layout, runs, np.full(len(layout.features), count))
    sections = [_sections(*each, ids.itemsize, weight, sized) for each in zip(of_rank, of_runs, strict=True)]
    message = space.room(sum(each.nbytes for each in sections))
    ends = np.cumsum([each.nbytes for each in sections])
    blocks = [message[end - each.nbytes : end] for each, end in zip(sections, ends, strict=True)]
    bases = [block.ctypes.data for block in blocks]
    for rank, parts in enumerate(layout.parts):
        head = blocks[rank][: 16 * len(parts)].view(np.int64)
        head[: len(parts)], head[len(parts) :] = of_rank[rank], of_runs[rank]
    kept = np.empty(int(runs.sum()), np.int32)
    run_bags = kept.ctypes.data + 4 * _begins(runs.ravel()).reshape(runs.shape)
    if _write_runs(layout, bags, sections, bases, entries, runs, run_bags, np.empty(0, ids)):
        raise checks.changed("values")
    sent = Sent(blocks, of_rank, of_runs, [each.copy() for each in of_runs], run_bags, kept, {})
    if sized:
        _write_sizes(layout, bags, sent, sections)
    if layout.exact:
        fetch(layout, bags, sent)
    return sent


def whole(layout: Layout, bags: Bags) -> Sent:
    """What is asked for by a batch that was published: each bag has a run on each rank, empty or not. No messages."""
    entries, _ = _measured(layout, bags)
    of_rank = _of_parts(layout, entries, _sizes(layout, bags))
    of_runs = [np.full(each.size, bags.bags, np.int64) for each in of_rank]
    kept = np.arange(bags.bags, dtype=np.int32)
    run_bags = np.full(entries.shape, kept.ctypes.data)
    return Sent([], of_rank, of_runs, [each.copy() for each in of_runs], run_bags, kept, {})


def _measured(layout: Layout, bags: Bags) -> tuple[Array, Array]:
    """The entries and runs of each feature for each rank, where its rows are spread; all ids are checked."""
    shape = len(layout.features), layout.ranks
    entries, runs, last = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
    if kernels.exchanging.measure(bags.values, bags.offsets, bags.bags, layout.described, layout.ranks, entries, runs,
                                  last):  # fmt: skip
        raise Wrong("an id or an offset is bad")
    return entries, runs


def _sizes(layout: Layout, bags: Bags) -> Array:
    """How many ids each feature has."""
    if not bags.bags:
        return np.zeros(len(layout.features), np.int64)
    return np.diff(bags.offsets[:: bags.bags][: len(layout.features) + 1].astype(np.int64))


def _of_parts(layout: Layout, spread: Array, whole: Array) -> list[Array]:
    """For each rank's parts, what `spread` has for the rank where rows are spread, and else what `whole` has."""
    return [
        np.array([spread[part.feature, rank] if part.spread else whole[part.feature] for part in parts], np.int64)
        for rank, parts in enumerate(layout.parts)
    ]


def fetch(layout: Layout, bags: Bags, sent: Sent) -> None:
    """Note which rows of spread features are asked for, where rows travel instead of their sums."""
    values, offsets, _, count = bags
    for number in [number for number, feature in enumerate(layout.features) if feature.spread]:
        first, end = (int(offsets[number * count]), int(offsets[(number + 1) * count])) if count else (0, 0)
        found = sent.fetched[number] = distinct(values, first, end, layout.placed(number).chunk, layout.ranks)
        for rank, places_of in enumerate(layout.place_of):
            sent.answers[rank][places_of[number]] = found.counts[rank]


def _write_runs(layout: Layout, bags: Bags, sections: list[_Sections], bases: list[int], entries: Array, runs: Array,
                run_bags: Array, like: Array) -> int:  # fmt: skip
    """The same with the runs that have ids, where rows are spread."""
    values, offsets, factors, count = bags
    ranks, changed = layout.ranks, 0
    for rank, parts in enumerate(layout.parts):
        for i, part in enumerate(parts):
            if not part.spread:
                changed |= kernels.exchanging.write_all(
                    values, offsets, count, part.feature, factors, int(sections[rank].lengths[i]) + bases[rank],
                    int(sections[rank].ids[i]) + bases[rank], int(sections[rank].factors[i]) + bases[rank], like,
                )  # fmt: skip
    for number, feature in enumerate(layout.features):
        if feature.spread:
            places = [of_part[number] for of_part in layout.place_of]
            addresses = [
                np.array([getattr(sections[rank], name)[place] + bases[rank] for rank, place in enumerate(places)])
                for name in ("lengths", "ids", "factors")
            ]
            zeros = np.zeros(ranks, np.int64)
            changed |= kernels.exchanging.write_spread(
                values, offsets, count, number, layout.placed(number).chunk, factors, *addresses, run_bags[number],
                entries[number], runs[number], like, zeros, zeros.copy(), zeros - 1, zeros.copy(),
            )  # fmt: skip
    return changed


def _write_sizes(layout: Layout, bags: Bags, sent: Sent, sections: list[_Sections]) -> None:
    lengths = np.diff(bags.offsets).astype(np.int32)
    for rank, parts in enumerate(layout.parts):
        for part, at, runs in zip(parts, sections[rank].sizes, sent.runs[rank], strict=True):
            own = lengths[part.feature * bags.bags : (part.feature + 1) * bags.bags]
            if part.spread:
                own = own[sent.bags_of(part.feature, rank, int(runs))]
            sent.blocks[rank][at : at + own.nbytes].view(np.int32)[:] = own


def distinct(ids: Array, first: int, last: int, chunk: int, ranks: int) -> Distinct:
    """The different rows of the entries `first` to `last`."""
    slots = 1 << (2 * max(last - first, 1)).bit_length()
    places, rows = np.empty(last - first, np.int64), np.empty(last - first, np.int64)
    counts, begins = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
    keys, seats = np.full(slots, -1, np.int64), np.empty(slots, np.int64)
    kernels.exchanging.distinct(ids, first, last, chunk, keys, seats, counts, begins, places, rows)
    return Distinct(places, rows[: counts.sum()], counts)


def read(
    layout: Layout, came: list[Array], ids: "np.dtype[Any]", weighted: Sequence["np.dtype[Any] | None"],
    sized: Sequence[bool],
) -> Received:  # fmt: skip
    """The messages of all ranks as one batch, feature by feature, in the order of the ranks.

    `weighted` and `sized` tell what each rank's message has. Ids of ranks without weights count once.
    """
    parts = len(layout.parts[layout.rank])
    heads = np.stack([message[: 16 * parts].view(np.int64).reshape(2, parts) for message in came], -1)
    entries, runs = np.ascontiguousarray(heads[0]), np.ascontiguousarray(heads[1])
    weights = next((each for each in weighted if each is not None), None)
    addresses = np.empty((3, parts, layout.ranks), np.int64)
    ones = np.ones(0 if weights is None or None not in weighted else entries.max(initial=0), weights)
    bags = int(runs.sum(1).max(initial=0))
    starts = np.cumsum(runs, 1) - runs
    sizes = np.zeros((parts, bags), np.int32) if any(sized) else None
    for rank, (message, own) in enumerate(zip(came, weighted, strict=True)):
        weight = 0 if own is None else own.itemsize
        found = _sections(entries[:, rank], runs[:, rank], ids.itemsize, weight, sized[rank])
        if found.nbytes > message.size or entries.min(initial=0) < 0 or runs.min(initial=0) < 0:
            raise checks.changed("values")
        addresses[:, :, rank] = np.stack(found[:3]) + message.ctypes.data
        if own is None:
            addresses[2, :, rank] = ones.ctypes.data
        if sizes is not None and sized[rank]:
            for i, (at, size) in enumerate(zip(found.sizes, runs[:, rank], strict=True)):
                sizes[i, starts[i, rank] :][:size] = message[at : at + 4 * size].view(np.int32)
    values, offsets = memory.allocate((int(entries.sum()),), ids), memory.allocate((parts * bags + 1,), ids)
    factors = None if weights is None else memory.allocate((values.size,), weights)
    if kernels.exchanging.combine(entries, runs, *addresses, bags, values, offsets, factors):
        raise checks.changed("values")
    return Received(entries, runs, starts, values, offsets, factors, sizes, bags)


def message_size(parts: int, entries: int, runs: int, item: int, weight: int) -> int:
    """The bytes of a message with so many parts, entries and runs."""
    counts = np.array([entries] + [0] * (parts - 1)), np.array([runs] + [0] * (parts - 1))
    return _sections(*counts, item, weight, False).nbytes


class Wrong(RowgradError):
    """An id or an offset is bad; which one, is found out by whoever tells it."""


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNED) * ALIGNED


def _begins(counts: Array) -> Array:
    return np.cumsum(counts) - counts
