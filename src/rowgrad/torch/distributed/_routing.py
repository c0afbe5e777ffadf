"""Which entries of a batch go to which rank, in what order, and which bags they touch there.

Entries keep their order within a rank. A *run* is what a bag has on one rank: the rank gets the rows of its runs one
after another, and how long each run is. The kernels check ids and bags on the way.
"""

from typing import Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import InvalidArgumentError, RowgradError
from rowgrad.torch.distributed._ownership import Ownership


class Route(NamedTuple):
    """The entries of a batch by the rank that owns their rows.

    `local` has the owner's own number of each row; `order` the position in the batch of each entry, or None where they
    stay as they are (one rank); `bags` and `lengths` tell the bag and the length of each run; `entries` and `runs` how
    many of each belong to each rank.
    """

    local: Array
    order: Array | None
    bags: Array
    lengths: Array
    entries: list[int]
    runs: list[int]


def route(ids: Array, segment_ids: Array, bags: int, ownership: Ownership) -> Route:
    """Sort the entries of a batch by owner; raises for ids that are no rows and bags that decrease or do not exist."""
    ranks, size = ownership.ranks, ids.size
    owners, local = np.empty(size, np.uint16), np.empty(size, row_type(ownership))
    entries, runs = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
    last = np.full(ranks, -1, np.int64)
    bad = kernels.routing.locate(
        ids, segment_ids, ownership.rows, bags, ownership.factor, ownership.chunk, owners, local, entries, runs, last
    )
    if bad >= 0:
        raise _wrong(bad, ids, segment_ids, ownership.rows, bags)
    run_bags, lengths = np.empty(int(runs.sum()), np.int32), np.zeros(int(runs.sum()), np.int32)
    by_owner, order = np.empty_like(local), np.empty(size, np.int64)
    last[:] = -1
    kernels.routing.arrange(
        owners, local, segment_ids, _begins(entries), _begins(runs), runs.cumsum(), last, by_owner, order, run_bags,
        lengths,
    )  # fmt: skip
    return Route(by_owner, order if ranks > 1 else None, run_bags, lengths, entries.tolist(), runs.tolist())


def route_distinct(ids: Array, segment_ids: Array, bags: int, ownership: Ownership) -> tuple[Route, Array] | None:
    """Each row once, as a run of its own, and each entry's run; None where that would send no less, or is not worth it.

    Where bags are many and rows are few, rows are asked for whole and pooled here: fewer of them travel than sums
    would.
    """
    if not 0 < ownership.rows <= ids.size:
        return None
    places, entries = np.full(ownership.rows, -1, np.int32), np.empty(ids.size, np.int32)
    found = np.empty(ownership.rows, np.int64)
    count = kernels.routing.distinct(ids, segment_ids, ownership.rows, bags, places, entries, found)
    if not 0 <= count < bags * owners(ownership.ranks, ids.size / bags):
        return None
    made = route(found[:count], np.arange(count), count, ownership)
    runs = np.empty(count, np.int32)
    runs[made.bags] = np.arange(count, dtype=np.int32)
    return made, runs[entries]


def owners(ranks: int, ids_per_bag: float) -> float:
    """On how many ranks the ids of a bag live, where they are spread evenly.

    Examples
    --------
    >>> from rowgrad.torch.distributed import cost
    >>> cost.owners(2, 1), cost.owners(2, 2), round(cost.owners(1024, 30), 1)
    (1.0, 1.5, 29.6)
    """
    return float(ranks * (1 - (1 - 1 / ranks) ** ids_per_bag))


def row_type(ownership: Ownership) -> Any:
    """The type that rows travel in: 32 bits where a rank's rows can be counted by them."""
    return np.int32 if ownership.chunk <= np.iinfo(np.int32).max else np.int64


def _begins(counts: Array) -> Array:
    return np.cumsum(counts) - counts


def _wrong(position: int, ids: Array, segment_ids: Array, rows: int, bags: int) -> RowgradError:
    row, bag = int(ids[position]), int(segment_ids[position])
    if not 0 <= row < rows:
        return checks.out_of_range("input", position, row, rows, "the number of rows of the table",
                                   "index-out-of-range", "Fix the id, or make a larger table.")  # fmt: skip
    if not 0 <= bag < bags:
        return checks.out_of_range("segment_ids", position, bag, bags, "the number of bags",
                                   "segment-id-out-of-range", "Fix the id, or raise num_bags.")  # fmt: skip
    return InvalidArgumentError(
        f"segment_ids[{position}] is {bag}, smaller than {int(segment_ids[position - 1])} before it; they must not "
        "decrease. Sort the entries by bag.",
        code="unsorted-segment-ids",
        argument="segment_ids",
        position=position,
        value=bag,
    )
