"""A batch of a sharded layer on its way: what it asks the ranks for, and what is left to do with the rows that come."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rowgrad._ops import checks
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.memory import allocate
from rowgrad.errors import InvalidArgumentError, RowgradError
from rowgrad.torch._bags import Bags
from rowgrad.torch.distributed._collection_request import CollectionRequest
from rowgrad.torch.distributed._machinery import Given
from rowgrad.torch.distributed._message import distinct
from rowgrad.torch.distributed._ownership import Ownership, owners


@dataclass
class Request:
    """The result of `ShardedEmbeddingBag.start`; call the layer with it.

    `rows` is the position of each entry's row among the received rows, if each row is requested once and pooled here;
    otherwise it is None.
    """

    sent: CollectionRequest
    batch: Any
    factors: Tensor | None
    rows: Tensor | None


def needed(batch: Bags, factors: Tensor | None, ownership: Ownership, *, may_pool: bool) -> tuple[Given, Tensor | None]:
    """What a batch asks the ranks for, and `Request.rows`; raises for what is wrong in it.

    Where bags are many and rows are few, rows are asked for whole, each as a bag of its own, and pooled here: fewer of
    them travel than sums would.
    """
    ids, bags, count = batch.ids.detach().numpy(), batch.segment_ids.detach().numpy(), batch.count
    _check(ids, bags, ownership.rows, count)
    ids = ownership.positions(ids)
    if may_pool and 0 < ownership.rows <= ids.size:
        found = distinct(ids, 0, ids.size, ownership.rows, 1)
        if found.rows.size < count * owners(ownership.ranks, ids.size / count):
            offsets = torch.arange(found.rows.size + 1)
            return (torch.from_numpy(found.rows), offsets, None, found.rows.size), torch.from_numpy(found.places)
    offsets = allocate(count + 1, np.int64, argument="num_bags", zero=True)
    np.cumsum(np.bincount(bags, minlength=count), out=offsets[1:])
    return (torch.from_numpy(np.ascontiguousarray(ids)), torch.from_numpy(offsets), factors, count), None


def _check(ids: Array, bags: Array, rows: int, count: int) -> None:
    """Raise for ids that are no rows, and bags that decrease or do not exist."""
    if count < 0:
        raise InvalidArgumentError(
            f"num_bags is {count}; it must not be negative.", code="negative-size", argument="num_bags", value=count
        )
    if not ids.size:
        return
    if ids.min() < 0 or ids.max() >= rows:
        position = int(((ids < 0) | (ids >= rows)).argmax())
        raise checks.out_of_range("input", position, int(ids[position]), rows, "the number of rows of the table",
                                  "index-out-of-range", "Fix the id, or make a larger table.")  # fmt: skip
    if bags.min() < 0 or bags.max() >= count:
        position = int(((bags < 0) | (bags >= count)).argmax())
        raise checks.out_of_range("segment_ids", position, int(bags[position]), count, "the number of bags",
                                  "segment-id-out-of-range", "Fix the id, or raise num_bags.")  # fmt: skip
    down = bags[1:] < bags[:-1]
    if down.any():
        raise _unsorted(int(down.argmax()) + 1, bags)


def _unsorted(position: int, bags: Array) -> RowgradError:
    return InvalidArgumentError(
        f"segment_ids[{position}] is {int(bags[position])}, smaller than {int(bags[position - 1])} before it; they "
        "must not decrease. Sort the entries by bag.",
        code="unsorted-segment-ids",
        argument="segment_ids",
        position=position,
        value=int(bags[position]),
    )
