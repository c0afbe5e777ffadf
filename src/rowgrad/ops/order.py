"""Which entries meet in which row: the sort that the segment gradients and unsorted fills begin with."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rowgrad import kernels
from rowgrad.dtypes import Array
from rowgrad.memory import allocate
from rowgrad.threads import Crew

WORD_BITS = 63


@dataclass(frozen=True)
class Order:
    """Entries sorted by row, in input order within a row.

    A word of `words` is a row, shifted left by `shift`, then its partner; `row_starts` counts the distinct rows before
    each chunk. `bad` is the first position that is out of range, or -1. Where the ids were too large to share a word,
    rows and partners are numbered anew, and `row_names` and `partner_names` tell what they were.
    """

    words: Array
    shift: int
    row_starts: Array
    distinct: int
    chunks: int
    counts: Array
    bad: int = -1
    row_names: Array | None = None
    partner_names: Array | None = None


def order_ids(
    crew: Crew, rows: Array, partners: Array | None, row_limit: int, partner_limit: int, *, count: bool = False
) -> Order:
    """Sort entries by row; without `partners`, each entry's partner is its own position.

    `rows` must lie in [0, row_limit) and `partners` in [0, partner_limit). With `count`, `counts` tells how often each
    partner occurs.
    """
    if _bits(row_limit) + _bits(partner_limit) > WORD_BITS:
        return _order_large_ids(crew, rows, partners, row_limit, partner_limit, count)
    size = rows.size
    shift = _bits(partner_limit)
    passes = -(-_bits(row_limit) // 8)
    digit_bits = -(-_bits(row_limit) // passes) if passes else 0
    words = allocate((2, size), np.int64)
    counts = np.zeros(partner_limit if count else 0, np.int64)
    row_starts = np.empty(crew.chunks, np.int64)
    info = np.array([-1, 0, 0, 0])
    ids = kernels.ids
    partner_halves = (words[0].view(np.int32)[:0], 0) if partners is None else ids.halves(partners)
    crew.run(
        kernels.order.sort, *ids.halves(rows), *partner_halves, row_limit, partner_limit, shift, passes, digit_bits,
        words[0], words[1], np.zeros(crew.chunks * kernels.order.BUCKETS, np.int64), counts,
        np.empty(crew.chunks, np.int64), np.empty(crew.chunks, np.int64), row_starts, info,
    )  # fmt: skip
    bad, buffer, distinct, _ = info.tolist()
    return Order(words[buffer], shift, row_starts, distinct, crew.chunks, counts, bad)


def _bits(limit: int) -> int:
    return max(limit - 1, 0).bit_length()


def _order_large_ids(
    crew: Crew, rows: Array, partners: Array | None, row_limit: int, partner_limit: int, count: bool
) -> Order:
    """The same for ids so large, such as 62-bit hashes, that a row and a partner do not fit into one word."""
    if partners is None:
        partners = np.arange(rows.size)
    wrong = (rows < 0) | (rows >= row_limit) | (partners < 0) | (partners >= partner_limit)
    if wrong.any():
        nothing: Any = np.empty(0, np.int64)
        return Order(nothing, 0, nothing, 0, 1, nothing, int(wrong.argmax()))
    row_names, row_ranks = np.unique(rows, return_inverse=True)
    partner_names, partner_ranks = np.unique(partners, return_inverse=True)
    order = order_ids(crew, row_ranks, partner_ranks, row_names.size, partner_names.size, count=count)
    return Order(
        order.words, order.shift, order.row_starts, order.distinct, order.chunks, order.counts,
        row_names=row_names, partner_names=partner_names,
    )  # fmt: skip
