"""Kernels around the exchange of a sharded collection: bags become messages for ranks, and messages become bags.

A *part* is what a rank has for one feature of another rank: a list of *runs* with their lengths, and the ids of all
runs. Where a rank holds all rows of a table, each bag is a run, empty or not; where rows are spread, a run is what a
bag has on that rank, and bags without ids there have none. Memory is told by addresses, as messages of other ranks are
anywhere.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, kernel
from rowgrad._kernels.described import FEATURE_FIELDS, TABLE, WIDTH
from rowgrad._kernels.kinds import LATE, SUM
from rowgrad._kernels.lanes import block_start, count, fill, load, store, store_nontemporal, zeros, zeros64
from rowgrad._kernels.raw import peek, poke, prefetch
from rowgrad._kernels.sharing import atomic_add, share
from rowgrad._kernels.sparse_segment import scale_segment
from rowgrad._kernels.sparse_segment_grad import scale_of
from rowgrad._kernels.tables import BAGS, LOCAL, WORDS, WRONG, any_outside, pool_bags
from rowgrad._kernels.team import COUNTERS, at, at_if, has_waited, leave_team, on_team, room

LENGTHS = np.empty(0, np.int32)
GIVEN_AHEAD = 128  # words; what is copied of a gradient is fetched so long before
TILE = 8  # rows that are copied of one matrix before those of the next
EXACT = 1 << 32  # rows of a rank below which owners are found by multiplication, for up to 2¹⁶ ranks
FIRST, LAST, OUTPUT, BLOCK_FIELDS = range(FEATURE_FIELDS, FEATURE_FIELDS + 4)  # of bags that are pooled to a place
MIX = -7046029254386353131  # an odd number that spreads neighbours: 2⁶⁴ over the golden section, as a signed one
SPREAD, ROWS, CHUNK = range(3)  # of a feature: whether its rows are spread, how many there are, and on a rank
# Of a feature that a rank wants: which of its rows, if they are spread, and its combiner. Of what a rank has published:
# addresses, the last one 0 where ids have no weights, and how many bags of a feature and ids in all there are.
PART_FEATURE, PART_FIRST, PART_ROWS, PART_SPREAD, PART_KIND = range(5)
RANK_IDS, RANK_OFFSETS, RANK_FACTORS, RANK_BAGS, RANK_SIZE = range(5)


@inline
def _inverse(chunk):
    """What `_owner` multiplies by; 0 for chunks so large that it has to divide."""
    return 1.0 / np.float64(chunk) if chunk < EXACT else 0.0


@inline
def _owner(row, chunk, inverse):
    """row // chunk, which a processor takes long for: half a row more is never so near to a whole number of chunks that
    rounding matters.
    """
    return np.int64((np.float64(row) + 0.5) * inverse) if inverse > 0 else row // chunk


@kernel
def measure(ids, offsets, bags, features, ranks, entries, runs, last):
    """Count the entries and runs of each feature for each rank; gives 0, or 1 if an id or an offset is bad.

    Features whose rows are not spread are only checked.
    """
    if bags > 0 and offsets[0] != 0:
        return 1
    if offsets[features.shape[0] * bags] != ids.size:
        return 1
    for f in range(features.shape[0]):
        rows, chunk, begin = features[f, ROWS], features[f, CHUNK], np.int64(offsets[f * bags])
        first, inverse = begin, _inverse(chunk)
        for bag in range(bags):
            end = np.int64(offsets[f * bags + bag + 1])
            if begin < 0 or end < begin or end > ids.size:
                return 1
            if features[f, SPREAD] != 0:
                for i in range(begin, end):
                    row = peek(ids, i)
                    if row < 0 or row >= rows:
                        return 1
                    # Counted without branches: nobody can tell which rank the next id is for.
                    place = f * ranks + _owner(row, chunk, inverse)
                    poke(entries, place, peek(entries, place) + 1)
                    poke(runs, place, peek(runs, place) + np.int64(peek(last, place) != bag))
                    poke(last, place, bag)
            begin = end
        if features[f, SPREAD] == 0 and any_outside(ids, first, begin, rows):
            return 1
    return 0


@kernel
def write_all(ids, offsets, bags, feature, factors, lengths_at, ids_at, factors_at, like):
    """Write the part of a feature whose bags all go to one rank; gives 0, or 1 if offsets have changed meanwhile."""
    lengths, out = at(LENGTHS, lengths_at), at(like, ids_at)
    first, last = np.int64(offsets[feature * bags]), np.int64(offsets[(feature + 1) * bags])
    begin = first
    for bag in range(bags):
        end = np.int64(offsets[feature * bags + bag + 1])
        if end < begin or end > last:
            return 1
        poke(lengths, bag, np.int32(end - begin))
        begin = end
    if begin != last:
        return 1
    for i in range(first, last):
        poke(out, i - first, ids[i])
    if factors is not None:
        weights = at(factors, factors_at)
        for i in range(first, last):
            poke(weights, i - first, factors[i])
    return 0


@kernel
def write_spread(ids, offsets, bags, feature, chunk, factors, lengths_at, ids_at, factors_at, bags_at, entries, runs,
                 like, done, begun, last, length_of):  # fmt: skip
    """Write the parts of a feature whose rows are spread over ranks; gives 0, or 1 if ids have changed meanwhile.

    All that is counted by rank is an array with an element for each; `bags_at` gets the bag of each run.
    """
    ranks, inverse = entries.size, _inverse(chunk)
    rows = ranks * chunk
    for bag in range(bags):
        for i in range(np.int64(offsets[feature * bags + bag]), np.int64(offsets[feature * bags + bag + 1])):
            row = peek(ids, i)
            if row < 0 or row >= rows:
                return 1
            owner = _owner(row, chunk, inverse)
            place, is_new = peek(done, owner), np.int64(peek(last, owner) != bag)
            run = peek(begun, owner) + is_new
            if place >= peek(entries, owner) or run > peek(runs, owner):
                return 1
            # A run's bag and length are written anew with each of its entries, without a branch.
            length = peek(length_of, owner) * (1 - is_new) + 1
            poke(at(LENGTHS, bags_at[owner]), run - 1, np.int32(bag))
            poke(at(LENGTHS, lengths_at[owner]), run - 1, np.int32(length))
            poke(at(like, ids_at[owner]), place, row - owner * chunk)
            if factors is not None:
                poke(at(factors, factors_at[owner]), place, factors[i])
            poke(length_of, owner, length)
            poke(last, owner, bag)
            poke(begun, owner, run)
            poke(done, owner, place + 1)
    for owner in range(ranks):
        if done[owner] != entries[owner] or begun[owner] != runs[owner]:
            return 1
    return 0


@kernel
def combine(entries, runs, lengths_at, ids_at, factors_at, bags, values, offsets, factors):
    """Join the parts of all ranks, feature by feature, in the order of the ranks; gives 0, or 1 if lengths do not fit.

    `entries` and the like have a row for each feature and a column for each rank. Each feature gets `bags` bags: its
    runs, and empty ones behind them.
    """
    at_entry = np.int64(0)
    offsets[0] = 0
    for f in range(entries.shape[0]):
        place = f * bags
        for rank in range(entries.shape[1]):
            lengths, ids = at(LENGTHS, lengths_at[f, rank]), at(values, ids_at[f, rank])
            end = at_entry + entries[f, rank]
            for i in range(entries[f, rank]):
                values[at_entry + i] = peek(ids, i)
            if factors is not None:
                weights = at(factors, factors_at[f, rank])
                for i in range(entries[f, rank]):
                    factors[at_entry + i] = peek(weights, i)
            for run in range(runs[f, rank]):
                length = peek(lengths, run)
                if length < 0 or at_entry + length > end:
                    return 1
                at_entry += length
                place += 1
                offsets[place] = at_entry
            if at_entry != end:
                return 1
        while place < (f + 1) * bags:
            place += 1
            offsets[place] = at_entry
    return 0


@inline
def _pool_share(counters, number_of, like, lanes_for, scaled, weights_like, stored, blocks, ids, size, offsets,
                weights):  # fmt: skip
    """The part of a thread: block by block."""
    shared = at(WORDS, counters)
    entry_weights = at_if(weights_like, weights_like, weights)
    local = room(LOCAL)
    for number in share((shared, shared), 0, number_of):
        block = at(WORDS, blocks + 8 * BLOCK_FIELDS * number)
        begin, stop, place, wrong = peek(block, FIRST), peek(block, LAST), np.int64(0), False
        while begin < stop:
            end = min(begin + BAGS, stop)
            wrong |= pool_bags(
                zeros(lanes_for), scaled, entry_weights, block, at(like, ids), size, at(like, offsets), begin, end,
                peek(at(like, offsets), end), place, at(stored, peek(block, TABLE)), at(stored, peek(block, OUTPUT)),
                peek(block, WIDTH), False, local,
            )  # fmt: skip
            place += (end - begin) * peek(block, WIDTH)
            begin = end
        if wrong:
            atomic_add(shared, WRONG, 1)
    leave_team(shared)


@kernel
def pool_blocks(run_parallel, threads, number_of, like, lanes_for, scaled, weights_like, stored, blocks, ids, size,
                offsets, weights):  # fmt: skip
    """Pool bags to the places where messages have them; gives what `tables.pool` gives.

    A block is a `Feature`, from which to before which bag it goes, and the address of its first sum; sums follow one
    another.
    """
    counters = room(COUNTERS)
    on_team(run_parallel, threads, _pool_share,
            (counters, number_of, like, lanes_for, scaled, weights_like, stored, blocks, ids, size, offsets,
             weights))  # fmt: skip
    shared = at(WORDS, counters)
    wrong = peek(shared, WRONG)
    return wrong if wrong != 0 or not has_waited(shared) else np.int64(LATE)


@intrinsic
def _copy_bytes(typingctx: Any, target: Any, source: Any, nbytes: Any) -> Any:
    """Copy bytes from one address to another; they do not overlap."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, of = (builder.inttoptr(each, ir.IntType(8).as_pointer()) for each in args[:2])
        cgutils.raw_memcpy(builder, to, of, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@kernel
def publish(ids, offsets, bags, features, rank, factors, ids_at, offsets_at, factors_at, like, foreign):
    """Check ids and offsets, and copy them and the factors to addresses; gives 0, or 1 if an id or an offset is bad.

    `foreign` gets for each bag of a feature whose rows are spread, whether a row of it is on another rank.
    """
    out, begins = at(like, ids_at), at(like, offsets_at)
    if bags > 0 and peek(offsets, 0) != 0:
        return 1
    if peek(offsets, features.shape[0] * bags) != ids.size:
        return 1
    begin = np.int64(0)
    for f in range(features.shape[0]):
        first, chunk = begin, features[f, CHUNK]
        for bag in range(f * bags, (f + 1) * bags):
            end = peek(offsets, bag + 1)
            if end < begin or end > ids.size:
                return 1
            poke(begins, bag, begin)
            if features[f, SPREAD] != 0:
                elsewhere = False
                for i in range(begin, end):
                    elsewhere |= bool(np.uint64(peek(ids, i) - rank * chunk) >= np.uint64(chunk))
                poke(foreign, bag, np.uint8(elsewhere))
            begin = end
        if any_outside(ids, first, begin, features[f, ROWS]):
            return 1
    poke(begins, features.shape[0] * bags, begin)
    for i in range(begin):
        poke(out, i, peek(ids, i))
    if factors is not None:
        weights = at(factors, factors_at)
        for i in range(begin):
            poke(weights, i, peek(factors, i))
    return 0


@inline
def _join_spread(ids, begins, base, bags, size, first, rows, values, offsets, place, at_bag):
    """The entries of a feature that are in some rows; gives the place behind them, or -1 if they do not fit.

    Nobody can tell where the next row is, so each entry is written, and the next one over it where it is not wanted.
    """
    begin = max(peek(begins, base), 0)
    for bag in range(bags):
        end = peek(begins, base + bag + 1)
        if end < begin or end > size or place + (end - begin) > values.size:
            return np.int64(-1)
        for i in range(begin, end):
            row = peek(ids, i) - first
            poke(values, place, row)
            place += np.int64(np.uint64(row) < np.uint64(rows))
        begin = end
        poke(offsets, at_bag + bag + 1, place)
    return place


@inline
def _join_all(ids, begins, base, bags, size, values, offsets, place, at_bag):
    """The same with all entries of a feature."""
    first = begin = max(peek(begins, base), 0)
    for bag in range(bags):
        end = peek(begins, base + bag + 1)
        if end < begin or end > size:
            return np.int64(-1)
        begin = end
        poke(offsets, at_bag + bag + 1, place + (end - first))
    if place + (begin - first) > values.size:
        return np.int64(-1)
    for i in range(first, begin):
        poke(values, place + i - first, peek(ids, i))
    return place + (begin - first)


@inline
def _join_factors(ids, begins, base, bags, size, first, rows, spread, kind, weights, factors, place):
    """The factors of these entries: their weights, or what the combiner makes of the size of the whole bag."""
    begin = max(peek(begins, base), 0)
    for bag in range(bags):
        end = min(max(peek(begins, base + bag + 1), begin), size)
        factor = scale_of(kind, max(end - begin, 1)) if kind != SUM else 1.0
        for i in range(begin, end):
            if place < factors.size:
                poke(factors, place, factor if weights is None else peek(weights, i))
                row = peek(ids, i) - first
                place += np.int64((spread == 0) | (np.uint64(row) < np.uint64(rows)))
        begin = end


@kernel
def join(like, parts, blocks, values, offsets, factors, entries):
    """Join what all ranks have published, feature by feature, in the order of the ranks; gives 0, or 1 if it is bad.

    `parts` has a row for each feature that is wanted: `PART_…`; `blocks` one for each rank: `RANK_…`.
    """
    place, at_bag = np.int64(0), np.int64(0)
    poke(offsets, 0, 0)
    for p in range(parts.shape[0]):
        feature, first, rows = parts[p, PART_FEATURE], parts[p, PART_FIRST], parts[p, PART_ROWS]
        for rank in range(blocks.shape[0]):
            ids, begins = at(like, blocks[rank, RANK_IDS]), at(like, blocks[rank, RANK_OFFSETS])
            bags, size, before = blocks[rank, RANK_BAGS], blocks[rank, RANK_SIZE], place
            if parts[p, PART_SPREAD] != 0:
                place = _join_spread(ids, begins, feature * bags, bags, size, first, rows, values, offsets, place,
                                     at_bag)  # fmt: skip
            else:
                place = _join_all(ids, begins, feature * bags, bags, size, values, offsets, place, at_bag)
            if place < 0:
                return 1
            if factors is not None:
                if blocks[rank, RANK_FACTORS] == 0:
                    _join_factors(ids, begins, feature * bags, bags, size, first, rows, parts[p, PART_SPREAD],
                                  parts[p, PART_KIND], None, factors, before)  # fmt: skip
                else:
                    _join_factors(ids, begins, feature * bags, bags, size, first, rows, parts[p, PART_SPREAD],
                                  parts[p, PART_KIND], at(factors, blocks[rank, RANK_FACTORS]), factors,
                                  before)  # fmt: skip
            at_bag += bags
            entries[p, rank] = place - before
    return 0


@kernel
def give(grad, target, stride, bags, runs, foreign, nontemporal):
    """Copy of the gradient of each bag what other ranks need to `target`, where it lies as in `grad`.

    `runs` are columns, in bytes: where they begin, how many they are, and of which feature whose rows are spread, or
    -1. Of such a feature, others need what `publish` found to be foreign. Where all is whole cache lines, non-temporal
    stores save twice: lines that another processor has read last are not fetched from it before they are written.
    """
    source, out = at(WORDS, grad), at(WORDS, target)
    line = zeros64(source)
    for bag in range(bags):
        here = bag * stride
        for r in range(runs.shape[0]):
            if runs[r, 2] < 0 or peek(foreign, runs[r, 2] * bags + bag) != 0:
                first, nbytes = here + runs[r, 0], runs[r, 1]
                if nontemporal:
                    for k in range(first // 8, (first + nbytes) // 8, count(line)):
                        prefetch(source, k + GIVEN_AHEAD)
                        store_nontemporal(out, k, load(line, source, k))
                else:
                    _copy_bytes(target + first, grad + first, nbytes)


@kernel
def copy_blocks(item, blocks):
    """Copy matrices: for each, where it lies, how far its rows are apart, the same for the copy; rows and columns.

    Blocks of equally many rows are often columns of one matrix, so they are copied together, some rows at a time.
    """
    first = 0
    while first < blocks.shape[0]:
        rows, last = blocks[first, 4], first + 1
        while last < blocks.shape[0] and blocks[last, 4] == rows:
            last += 1
        for begin in range(0, rows, TILE):
            for b in range(first, last):
                nbytes = blocks[b, 5] * item
                for row in range(begin, min(begin + TILE, rows)):
                    _copy_bytes(blocks[b, 2] + row * blocks[b, 3] * item, blocks[b, 0] + row * blocks[b, 1] * item,
                                nbytes)  # fmt: skip
        first = last


@kernel
def add_runs(lanes_for, stored, kind, sums_at, runs, bags_at, offsets, feature, bags, width, output, stride, cursors):
    """Add up the sums of the runs of each bag, in the order of the ranks, and divide them as the combiner says.

    `sums_at` and `bags_at` tell for each rank where its sums and the bags of its runs lie, `runs` how many there are.
    """
    nothing, out = zeros(lanes_for), at(stored, output)
    for bag in range(bags):
        length = np.int64(offsets[feature * bags + bag + 1]) - np.int64(offsets[feature * bags + bag])
        for column in range(0, width, count(nothing)):
            here = block_start(nothing, column, width)
            total = nothing
            for rank in range(runs.size):
                run = cursors[rank]
                if run < runs[rank] and peek(at(LENGTHS, bags_at[rank]), run) == bag:
                    total = total + load(nothing, at(stored, sums_at[rank]), run * width + here)
            if kind != SUM:
                total = scale_segment(total, length, kind)
            store(out, bag * stride + here, total)
        for rank in range(runs.size):
            run = cursors[rank]
            if run < runs[rank] and peek(at(LENGTHS, bags_at[rank]), run) == bag:
                cursors[rank] += 1


@kernel
def take_runs(lanes_for, stored, kind, grads, stride, bags_at, runs, offsets, feature, bags, width, output):
    """The gradient of each run's bag, multiplied as the combiner says."""
    nothing, data, out, bag_of = zeros(lanes_for), at(stored, grads), at(stored, output), at(LENGTHS, bags_at)
    for run in range(runs):
        bag = min(max(peek(bag_of, run), 0), bags - 1)
        length = np.int64(offsets[feature * bags + bag + 1]) - np.int64(offsets[feature * bags + bag])
        for column in range(0, width, count(nothing)):
            here = block_start(nothing, column, width)
            row = load(nothing, data, bag * stride + here)
            if kind != SUM:
                row = row * fill(nothing, scale_of(kind, max(length, 1)))
            store(out, run * width + here, row)


@kernel
def take_rows(stored, table, rows, width, ids, output):
    """Rows of a table, one below the other; ids are bounded after they were read."""
    data, out = at(stored, table), at(stored, output)
    for i in range(ids.size):
        row = min(max(np.int64(ids[i]), 0), rows - 1)
        for k in range(width):
            poke(out, i * width + k, peek(data, row * width + k))


@kernel
def distinct(ids, first, last, chunk, keys, seats, counts, begins, places, rows):
    """Give each different id of the entries `first` to `last` a place, owner by owner in the order of the entries.

    `places` gets the place of each entry, `rows` the owner's number of the row at each place, and `counts` how many
    places each owner has. `keys` is a hash table, filled with −1, whose size is a power of 2 above that of the entries.
    """
    mask, inverse, most = keys.size - 1, _inverse(chunk), counts.size * chunk - 1
    for i in range(first, last):
        row = min(max(np.int64(peek(ids, i)), 0), most)
        slot = ((row * MIX) >> 32) & mask
        while peek(keys, slot) != row and peek(keys, slot) >= 0:
            slot = (slot + 1) & mask
        if peek(keys, slot) < 0:
            owner = _owner(row, chunk, inverse)
            poke(keys, slot, row)
            poke(seats, slot, counts[owner])
            counts[owner] += 1
        places[i - first] = slot
    for owner in range(1, counts.size):
        begins[owner] = begins[owner - 1] + counts[owner - 1]
    for i in range(last - first):
        row, owner = peek(keys, places[i]), _owner(peek(keys, places[i]), chunk, inverse)
        places[i] = begins[owner] + peek(seats, places[i])
        rows[places[i]] = row - owner * chunk
