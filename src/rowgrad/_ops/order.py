"""Which entries meet in which row: the sort that the segment gradients and unsorted fills begin with."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.memory import allocate, scratch
from rowgrad._runtime.threads import Workers

WORD_BITS = 63
INT64 = np.dtype(np.int64)
LARGE_CALL = 1 << 15  # entries from which on ids of half the size are worth a kernel of their own
COUNT_PARTNERS, COUNT_ROWS = 1, 2


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


def one_id_type(*ids: Array) -> tuple[Array, ...]:
    """The ids in one type, so that kernels are compiled for few combinations: int64, or int32 where calls are large.

    Converting the ids of a small call costs less than reading its arguments.
    """
    for each in ids:
        if each.dtype is not INT64:
            break
    else:
        return ids
    if ids[0].size >= LARGE_CALL and all(each.dtype == np.int32 for each in ids):
        return ids
    return tuple(each.astype(np.int64, copy=False) for each in ids)


def order_ids(
    workers: Workers,
    rows: Array,
    partners: Array | None,
    row_limit: int,
    partner_limit: int,
    *,
    counted: int = 0,
    keep: bool = False,
) -> Order:
    """Sort entries by row; without `partners`, each entry's partner is its own position.

    `rows` must lie in [0, row_limit) and `partners` in [0, partner_limit). `counted` says whose occurrences `counts`
    tells: `COUNT_PARTNERS` or `COUNT_ROWS`. The result is for this call, unless it is to be kept.
    """
    if _bits(row_limit) + _bits(partner_limit) > WORD_BITS:
        return _order_large_ids(workers, rows, partners, row_limit, partner_limit, counted, keep)
    size = rows.size
    if size < LARGE_CALL:
        (rows,) = one_id_type(rows)
        partners = None if partners is None else one_id_type(partners)[0]
    shift = _bits(partner_limit)
    passes = -(-_bits(row_limit) // kernels.order.MOST_DIGIT_BITS)
    digit_bits = -(-_bits(row_limit) // passes) if passes else 0
    words = np.empty(2 * size, np.int64) if keep else scratch(2 * size, np.int64)
    buffers = words[:size], words[size:]
    starts, info = np.empty(workers.chunks, np.int64), np.array([-1, 0, 0, 0])
    # As few strips as there are threads: where two strips end in the same bucket, threads share a cache line.
    strips, limit = workers.threads, (0, partner_limit, row_limit)[counted]
    # Each strip has counts of its own, if these are few: threads that share some take turns at each.
    counts = allocate((strips * limit if strips * limit <= 2 * size else limit,), np.int64, zero=True)
    histogram = np.empty(strips << digit_bits, np.int64)
    workers.run(
        kernels.order.pack, strips, rows, partners, row_limit, partner_limit, shift, digit_bits, buffers[0], histogram,
        counted, counts, np.empty(strips + workers.chunks, np.int64), starts, info,
    )  # fmt: skip
    if info[kernels.order.BAD] < 0 and not info[kernels.order.ORDERED]:
        workers.run(kernels.order.sort, strips, shift, passes, digit_bits, *buffers, histogram, starts, info)
    bad, buffer, distinct, _ = info.tolist()
    if bad >= 0:
        bad += _first_bad(rows[bad:], None if partners is None else partners[bad:], row_limit, partner_limit)
    found = buffers[buffer].copy() if keep else buffers[buffer]
    return Order(found, shift, starts, distinct, workers.chunks, counts[:limit], bad)


def _first_bad(rows: Array, partners: Array | None, row_limit: int, partner_limit: int) -> int:
    """The first entry that is out of range; 0 if another thread has corrected it since."""
    wrong = (rows < 0) | (rows >= row_limit)
    if partners is not None:
        wrong |= (partners < 0) | (partners >= partner_limit)
    return int(wrong.argmax())


def _bits(limit: int) -> int:
    return max(limit - 1, 0).bit_length()


def _order_large_ids(
    workers: Workers, rows: Array, partners: Array | None, row_limit: int, partner_limit: int, counted: int, keep: bool
) -> Order:
    """The same for ids so large, such as 62-bit hashes, that a row and a partner do not fit into one word."""
    # Copies, for what is checked must be what is used, whatever other threads write to the caller's arrays.
    rows, partners = rows.copy(), np.arange(rows.size) if partners is None else partners.copy()
    wrong = (rows < 0) | (rows >= row_limit) | (partners < 0) | (partners >= partner_limit)
    if wrong.any():
        nothing: Any = np.empty(0, np.int64)
        return Order(nothing, 0, nothing, 0, 1, nothing, int(wrong.argmax()))
    row_names, row_ranks = np.unique(rows, return_inverse=True)
    partner_names, partner_ranks = np.unique(partners, return_inverse=True)
    order = order_ids(workers, row_ranks, partner_ranks, row_names.size, partner_names.size, counted=counted, keep=keep)
    return Order(
        order.words, order.shift, order.row_starts, order.distinct, order.chunks, order.counts,
        row_names=row_names, partner_names=partner_names,
    )  # fmt: skip
