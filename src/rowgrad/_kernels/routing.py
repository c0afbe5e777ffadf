"""Kernels that sort the entries of a batch by the rank that owns their rows."""

import numpy as np

from rowgrad._kernels.compile import kernel


@kernel
def locate(ids, segment_ids, rows, bags, factor, chunk, owners, local, entries, runs, last):
    """Find owner and local row of each entry, and count entries and runs; returns the first bad entry, or -1."""
    before = np.int64(0)
    for i in range(ids.size):
        row, bag = np.int64(ids[i]), np.int64(segment_ids[i])
        if row < 0 or row >= rows or bag < before or bag >= bags:
            return i
        before = bag
        if factor != 1:
            row = row * factor % rows
        owner = row // chunk
        owners[i] = owner
        local[i] = row - owner * chunk
        entries[owner] += 1
        if last[owner] != bag:
            last[owner] = bag
            runs[owner] += 1
    return -1


@kernel
def arrange(owners, local, segment_ids, at, at_run, run_ends, last, by_owner, order, run_bags, lengths):
    """Put entries and runs in the order of their owners; `at` and `at_run` tell where those of each begin.

    Bags are read a second time here, so each owner's runs are kept within the `run_ends` that were counted.
    """
    for i in range(owners.size):
        owner, bag = owners[i], np.int64(segment_ids[i])
        if last[owner] != bag and at_run[owner] < run_ends[owner]:
            last[owner] = bag
            run_bags[at_run[owner]] = bag
            at_run[owner] += 1
        lengths[at_run[owner] - 1] += 1
        by_owner[at[owner]] = local[i]
        order[at[owner]] = i
        at[owner] += 1


@kernel
def distinct(ids, segment_ids, rows, bags, places, entries, found):
    """Number the different rows in the order they come in; returns how many there are, or -1 if an entry is bad.

    `places` has a place for each row of the table, all -1; `entries` gets the number of each entry's row.
    """
    before, count = np.int64(0), np.int64(0)
    for i in range(ids.size):
        row, bag = np.int64(ids[i]), np.int64(segment_ids[i])
        if row < 0 or row >= rows or bag < before or bag >= bags:
            return np.int64(-1)
        before = bag
        place = np.int64(places[row])
        if place < 0:
            place = count
            places[row] = place
            found[place] = row
            count += 1
        entries[i] = place
    return count
