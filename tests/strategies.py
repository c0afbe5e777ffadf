"""Hypothesis strategies for good input to every operator.

Hypothesis draws what decides the structure: sizes, ranks, dtypes, how ragged, how special. A generator that
it seeds fills the arrays, so that a call of a few hundred numbers costs one draw. `calls(op, dtype)` gives
the arguments by name; `OPERATORS` says which dtypes each operator takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from strategies_segments import (
    max_share_grads,
    max_shares,
    prod_shares,
    segment_takes,
    sorted_means,
    sorted_products,
    sorted_rows,
    unsorted_products,
    unsorted_rows,
)
from strategy_values import (
    ANYTHING,
    FLOATS,
    INEXACT,
    INT64_MAX,
    NUMBERS,
    REALS,
    SLICED,
    Args,
    index_dtypes,
    randoms,
    scalars,
    specials,
    trailing_shapes,
    values,
)

# ---------------------------------------------------------------- segments


@st.composite
def segments(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random, special = draw(randoms()), draw(specials())
    n, rows = draw(st.integers(0, 40)), draw(st.integers(1, 6))
    data = values(random, dtype, (rows, *draw(trailing_shapes())), special)
    # Ids that rise seldom make long segments, ids that leap make gaps, also before the first.
    rises = random.random(n) < draw(st.sampled_from([0.0, 0.05, 0.2, 1.0]))
    steps = rises * random.integers(1, draw(st.integers(2, 4)), n)
    segment_ids = draw(st.integers(0, 2)) + np.cumsum(steps).astype(draw(index_dtypes()))
    indices = random.integers(0, rows, n).astype(draw(index_dtypes()))
    args = {"data": data, "indices": indices, "segment_ids": segment_ids.astype(draw(index_dtypes()))}
    if draw(st.booleans()):
        used = int(segment_ids[-1]) + 1 if n else 0
        args["num_segments"] = draw(scalars(used + draw(st.integers(0, 3))))
    return args


@st.composite
def segment_grads(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool, compact: bool) -> Args:
    random, special = draw(randoms()), draw(specials())
    n, segments, rows = draw(st.integers(0, 40)), draw(st.integers(1, 6)), draw(st.integers(0, 8))
    grad = values(random, dtype, (segments, *draw(trailing_shapes())), special)
    index_dtype = draw(index_dtypes())
    if rows == 0:  # then the ids are not looked at
        indices, segment_ids = random.integers(-9, 9, n), random.integers(-9, 9, n)
    else:
        indices, segment_ids = random.integers(0, rows, n), random.integers(0, segments, n)
    if draw(st.booleans()):
        segment_ids = np.sort(segment_ids)
    if compact and rows and draw(st.booleans()):  # the same in a table that no memory would hold
        last = 2**31 - 1 if tensorflow or index_dtype == np.int32 else 2**62
        indices, rows = indices * (last // 9), last
    if tensorflow and not compact and n == 0:
        rows = 0  # TensorFlow gives uninitialised memory
    size_name = "dense_output_dim0" if compact else "output_dim0"
    return {
        "grad": grad,
        "indices": indices.astype(index_dtype),
        "segment_ids": segment_ids.astype(draw(index_dtypes())),
        size_name: draw(scalars(rows)),
    }


def segment_grads_v1(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return segment_grads(dtype, tensorflow, compact=False)


def segment_grads_v2(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return segment_grads(dtype, tensorflow, compact=True)


@st.composite
def segment_grad_grads(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random, special = draw(randoms()), draw(specials())
    n, segments, rows = draw(st.integers(0, 40)), draw(st.integers(1, 6)), draw(st.integers(1, 8))
    return {
        "grad": values(random, dtype, (rows, *draw(trailing_shapes())), special),
        "indices": random.integers(0, rows, n).astype(draw(index_dtypes())),
        "segment_ids": random.integers(0, segments, n).astype(draw(index_dtypes())),
        "num_segments": draw(scalars(segments + draw(st.integers(0, 2)))),
    }


@st.composite
def index_ranks(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random, bits = draw(randoms()), draw(st.sampled_from([3, 8, 31 if dtype == np.int32 else 62]))
    indices = random.integers(0, 2**bits, draw(st.integers(0, 40)))
    if draw(st.booleans()):
        indices = np.repeat(indices, 3)
    random.shuffle(indices)
    return {
        "sorted_unique_indices": np.unique(indices).astype(dtype),
        "indices": indices.astype(dtype if bits > 31 else draw(index_dtypes())),
    }


# ---------------------------------------------------------------- weighted sums


@st.composite
def weighted_sums(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool, compact: bool = False) -> Args:
    """A weighted sum, or its compact gradient, which has rows and segments in each other's places."""
    random, special = draw(randoms()), draw(specials())
    n, targets, sources = draw(st.integers(0, 40)), draw(st.integers(1, 8)), draw(st.integers(1, 6))
    table = values(random, dtype, (sources, *draw(trailing_shapes())), special)
    weights = values(random, draw(st.sampled_from(FLOATS)), (n,), special)
    target_ids, source_ids = random.integers(0, targets, n), random.integers(0, sources, n)
    target_dtype, source_dtype = draw(index_dtypes()), draw(index_dtypes())
    if draw(st.booleans()):
        target_ids = np.sort(target_ids)
    if not compact:
        ids = {"indices": source_ids.astype(source_dtype), "segment_ids": target_ids.astype(target_dtype)}
        return {"data": table, "weights": weights, **ids, "num_segments": draw(scalars(targets))}
    if draw(st.booleans()):  # the same in a table that no memory would hold
        last = 2**31 - 1 if target_dtype == np.int32 else 2**63 - 1
        target_ids, targets = target_ids * (last // 9), last
    ids = {"indices": target_ids.astype(target_dtype), "segment_ids": source_ids.astype(source_dtype)}
    return {"grad": table, "weights": weights, **ids, "dense_output_dim0": draw(scalars(targets))}


def weighted_sum_grads(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return weighted_sums(dtype, tensorflow, compact=True)


@st.composite
def row_dots(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random, special = draw(randoms()), draw(specials())
    n, tail = draw(st.integers(0, 30)), draw(trailing_shapes())
    args: Args = {}
    for name in ("a", "b"):
        rows = draw(st.integers(1, 5))
        args[name] = values(random, dtype, (rows, *tail), special)
        args[f"{name}_rows"] = random.integers(0, rows, n).astype(draw(index_dtypes()))
    return args


# ---------------------------------------------------------------- the largest of a segment


@st.composite
def segment_maxima(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random, special = draw(randoms()), draw(specials())
    n, segments, rows = draw(st.integers(0, 40)), draw(st.integers(1, 6)), draw(st.integers(1, 8))
    data = values(random, dtype, (rows, *draw(trailing_shapes())), special)
    if draw(st.booleans()):  # many that are equal
        data = data[random.integers(0, 2, rows) % rows]
    segment_ids = random.integers(0, segments, n)
    if draw(st.booleans()):
        segment_ids = np.sort(segment_ids)
    return {
        "data": data,
        "indices": random.integers(0, rows, n).astype(draw(index_dtypes())),
        "segment_ids": segment_ids.astype(draw(index_dtypes())),
        "num_segments": draw(scalars(segments + draw(st.integers(0, 2)))),
    }


@st.composite
def max_grads(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool, size_name: str) -> Args:
    """A gradient and the rows that were chosen, -1 for none; the gradient of a gradient has no size but rows."""
    random, special = draw(randoms()), draw(specials())
    segments, rows, tail = draw(st.integers(0, 8)), draw(st.integers(1, 9)), draw(trailing_shapes())
    chosen = random.integers(0, rows, (segments, *tail))
    chosen[random.random(chosen.shape) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = -1
    if not size_name:
        return {"grad": values(random, dtype, (rows, *tail), special), "chosen": chosen}
    if size_name == "dense_output_dim0" and draw(st.booleans()):  # in a table that no memory would hold
        rows = draw(st.sampled_from([2**31 - 1, 2**40, 2**63 - 1]))
        chosen = np.where(chosen < 0, -1, chosen * (rows // 9))
    return {"grad": values(random, dtype, chosen.shape, special), "chosen": chosen, size_name: draw(scalars(rows))}


def max_grads_v1(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return max_grads(dtype, tensorflow, "output_dim0")


def max_grads_v2(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return max_grads(dtype, tensorflow, "dense_output_dim0")


def max_grad_grads(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return max_grads(dtype, tensorflow, "")


@st.composite
def chosen_ranks(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random, bits = draw(randoms()), draw(st.sampled_from([3, 8, 62]))
    chosen = random.integers(0, 2**bits, (draw(st.integers(0, 9)), *draw(trailing_shapes())))
    unique = np.unique(chosen)
    chosen[random.random(chosen.shape) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = -1
    return {"sorted_unique_indices": unique, "chosen": chosen}


# ---------------------------------------------------------------- offsets


@st.composite
def offset_lists(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    size = draw(st.integers(0, 40))
    rest = draw(st.lists(st.integers(0, size), max_size=12))
    offsets = np.array([0, *sorted(rest)] if size or rest or draw(st.booleans()) else [], dtype)
    return {"offsets": offsets, "size": draw(scalars(size))}


# ---------------------------------------------------------------- fill empty rows


@st.composite
def fills(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random, special = draw(randoms()), draw(specials())
    rows, rank = draw(st.integers(0, 12)), draw(st.integers(1, 4))
    n = draw(st.integers(0, 20)) if rows else 0
    row_ids = random.integers(0, max(rows, 1), n)
    if draw(st.booleans()):
        row_ids = np.sort(row_ids)
    # Only the rows are looked at; the columns and their sizes may be anything.
    columns = random.integers(-INT64_MAX, INT64_MAX, (n, rank - 1))
    sizes = random.integers(-3, 10, rank - 1)
    return {
        "indices": np.concatenate([row_ids[:, None], columns], axis=1),
        "values": values(random, dtype, (n,), special),
        "dense_shape": np.concatenate([[rows], sizes]).astype(np.int64),
        "default_value": values(random, dtype, (1,), special).reshape(()),
    }


@st.composite
def ragged_fills(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    args = draw(fills(dtype, tensorflow))
    nrows = int(args["dense_shape"][0])
    if tensorflow and nrows == 0:  # TensorFlow gives a result of the wrong shape
        nrows = 1
    return {
        "value_rowids": args["indices"][:, 0].copy(),
        "values": args["values"],
        "nrows": np.array(nrows, np.int64),
        "default_value": args["default_value"],
    }


@st.composite
def fill_grads(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random, special = draw(randoms()), draw(specials())
    full = draw(st.integers(0, 40))
    n = draw(st.integers(0, 50)) if full else 0
    return {
        "reverse_index_map": random.integers(0, max(full, 1), n),
        "grad_values": values(random, dtype, (full,), special),
    }


@st.composite
def fill_grad_grads(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random, special = draw(randoms()), draw(specials())
    full = draw(st.integers(0, 20))
    n = draw(st.integers(0, 40)) if full else 0
    return {
        "reverse_index_map": random.integers(0, max(full, 1), n),
        "d_values_grad": values(random, dtype, (n,), special),
        "d_default_value_grad": values(random, dtype, (1,), special).reshape(()),
        "full_size": draw(scalars(full)),
    }


# ---------------------------------------------------------------- order and shape


@st.composite
def entries_in_any_order(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool, name: str = "input_values") -> Args:
    random, special = draw(randoms()), draw(specials())
    n, rank = draw(st.integers(0, 40)), draw(st.integers(0 if not tensorflow else 1, 4))
    indices = random.integers(-2, draw(st.sampled_from([1, 6])), (n, rank))
    if rank and draw(st.booleans()):  # as far apart as can be
        indices[random.random(indices.shape) < 0.2] = random.choice([-(2**63), INT64_MAX])
    if draw(st.booleans()):
        indices = indices[np.lexsort(indices.T[::-1])] if rank else indices
    if tensorflow:  # of entries with the same index, TensorFlow keeps no order
        indices = random.permutation(np.unique(indices, axis=0))
    entries = values(random, dtype, (len(indices),), special)
    shape = random.integers(0, 9, rank)
    if name == "grad":
        return {"grad": entries, "input_indices": indices, "input_shape": shape}
    return {"input_indices": indices, "input_values": entries, "input_shape": shape}


def gradients_in_order(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return entries_in_any_order(dtype, tensorflow, name="grad")


@st.composite
def reshapes(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    """Two shapes with the same prime factors; a length may be left open, and a tensor may have no places."""
    random = draw(randoms())
    primes = draw(st.lists(st.sampled_from([2, 2, 3, 5, 2**20, 0]), max_size=3))
    before, after = (np.ones(draw(st.integers(1, 4)), np.int64) for _ in range(2))
    for prime in primes:
        before[random.integers(len(before))] *= prime
        after[random.integers(len(after))] *= prime
    count = draw(st.integers(0, 20)) if before.all() else 0
    indices = np.stack([random.integers(0, max(size, 1), count) for size in before], axis=1)
    if after.all() and draw(st.booleans()):
        after[random.integers(len(after))] = -1
    return {"input_indices": indices, "input_shape": before, "new_shape": after}


# ---------------------------------------------------------------- slice

FAR = [-(2**63), -(2**62), -5, 0, 3, 2**62, INT64_MAX - 1, INT64_MAX]


@st.composite
def slices(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random, special = draw(randoms()), draw(specials())
    n, rank = draw(st.integers(0, 20)), draw(st.integers(0, 4))
    near, far = st.integers(-4, 7), st.sampled_from(FAR)
    start = draw(st.lists(near if tensorflow else near | far, min_size=rank, max_size=rank))
    shape = draw(st.lists(st.integers(0, 6), min_size=rank, max_size=rank))
    sizes = st.integers(-2, 9) if tensorflow else st.integers(-2, 9) | st.sampled_from([2**62, INT64_MAX])
    size = draw(st.lists(sizes, min_size=rank, max_size=rank))
    # A negative size is an error where s < n - z, otherwise it selects nothing.
    size = [abs(z) if z < 0 and s < m - z else z for m, s, z in zip(shape, start, size, strict=True)]
    indices = random.integers(-5, 8, (n, rank))
    for d, s in enumerate(start):  # bring most entries near the window
        moved = np.array([min(max(s + int(x), -(2**63)), INT64_MAX) for x in indices[:, d]], np.int64)
        indices[:, d] = np.where(random.random(n) < 0.7, moved, indices[:, d])
    return {
        "indices": indices,
        "values": values(random, dtype, (n,), special),
        "shape": np.array(shape, np.int64),
        "start": np.array(start, np.int64),
        "size": np.array(size, np.int64),
    }


@st.composite
def slice_grads(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool, second: bool = False) -> Args:
    random, special = draw(randoms()), draw(specials())
    n, rank = draw(st.integers(0, 20)), draw(st.integers(0, 3))
    # Few distinct indices, so that some repeat; any subsequence of them may have been selected.
    inputs = random.integers(0, draw(st.integers(1, 4)), (n, rank))
    selected = np.flatnonzero(random.random(n) < draw(st.sampled_from([0.0, 0.3, 0.8, 1.0])))
    start = random.integers(-3, 4, rank)
    length = n if second else len(selected)
    return {
        "grad" if second else "backprop_val_grad": values(random, dtype, (length,), special),
        "input_indices": inputs,
        "input_start": start,
        "output_indices": inputs[selected] - start,
    }


def slice_grad_grads(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return slice_grads(dtype, tensorflow, second=True)


# ---------------------------------------------------------------- the operators

Strategy = Callable[[np.dtype[Any], bool], st.SearchStrategy[Args]]

OPERATORS: dict[str, tuple[Strategy, list[np.dtype[Any]]]] = {
    "sparse_segment_sum": (segments, REALS),
    "sparse_segment_mean": (segments, FLOATS),
    "sparse_segment_sqrt_n": (segments, FLOATS),
    "sparse_segment_sum_grad": (segment_grads_v1, FLOATS),
    "sparse_segment_mean_grad": (segment_grads_v1, FLOATS),
    "sparse_segment_sqrt_n_grad": (segment_grads_v1, FLOATS),
    "sparse_segment_sum_grad_v2": (segment_grads_v2, FLOATS),
    "sparse_segment_mean_grad_v2": (segment_grads_v2, FLOATS),
    "sparse_segment_sqrt_n_grad_v2": (segment_grads_v2, FLOATS),
    "sparse_segment_sum_grad_grad": (segment_grad_grads, FLOATS),
    "sparse_segment_mean_grad_grad": (segment_grad_grads, FLOATS),
    "sparse_segment_sqrt_n_grad_grad": (segment_grad_grads, FLOATS),
    "index_rank": (index_ranks, [np.dtype(np.int32), np.dtype(np.int64)]),
    "sparse_segment_weighted_sum": (weighted_sums, FLOATS),
    "sparse_segment_weighted_sum_grad_v2": (weighted_sum_grads, FLOATS),
    "row_dot": (row_dots, FLOATS),
    "sparse_segment_max": (segment_maxima, FLOATS),
    "sparse_segment_max_grad": (max_grads_v1, FLOATS),
    "sparse_segment_max_grad_v2": (max_grads_v2, FLOATS),
    "sparse_segment_max_grad_grad": (max_grad_grads, FLOATS),
    "chosen_rank": (chosen_ranks, [np.dtype(np.int64)]),
    "segment_sum": (sorted_rows, NUMBERS),
    "segment_mean": (sorted_means, NUMBERS),
    "segment_prod": (sorted_products, NUMBERS),
    "segment_max": (sorted_rows, REALS),
    "segment_min": (sorted_rows, REALS),
    "unsorted_segment_sum": (unsorted_rows, NUMBERS),
    "unsorted_segment_mean": (unsorted_rows, INEXACT),
    "unsorted_segment_sqrt_n": (unsorted_rows, INEXACT),
    "unsorted_segment_prod": (unsorted_products, NUMBERS),
    "unsorted_segment_max": (unsorted_rows, REALS),
    "unsorted_segment_min": (unsorted_rows, REALS),
    "segment_sum_grad": (segment_takes, INEXACT),
    "segment_mean_grad": (segment_takes, INEXACT),
    "segment_sqrt_n_grad": (segment_takes, INEXACT),
    "segment_max_grad": (max_shares, FLOATS),
    "segment_max_grad_grad": (max_share_grads, FLOATS),
    "segment_prod_grad": (prod_shares, FLOATS),
    "segment_ids_from_offsets": (offset_lists, [np.dtype(np.int32), np.dtype(np.int64)]),
    "sparse_fill_empty_rows": (fills, ANYTHING),
    "sparse_fill_empty_rows_grad": (fill_grads, NUMBERS),
    "sparse_fill_empty_rows_grad_grad": (fill_grad_grads, NUMBERS),
    "ragged_fill_empty_rows": (ragged_fills, ANYTHING),
    "ragged_fill_empty_rows_grad": (fill_grads, NUMBERS),
    "sparse_reorder": (entries_in_any_order, ANYTHING),
    "sparse_reorder_grad": (gradients_in_order, NUMBERS),
    "sparse_reshape": (reshapes, [np.dtype(np.int64)]),
    "sparse_slice": (slices, ANYTHING),
    "sparse_slice_grad": (slice_grads, SLICED),
    "sparse_slice_grad_grad": (slice_grad_grads, NUMBERS),
}


# They are made of what is above.
from strategies_sparse import SPARSE  # noqa: E402
from strategies_tensors import TENSORS  # noqa: E402

OPERATORS.update(SPARSE)
OPERATORS.update(TENSORS)


def calls(op: str, dtype: np.dtype[Any], tensorflow: bool = False) -> st.SearchStrategy[Args]:
    """Good arguments for `op`; with `tensorflow`, only those whose answer TensorFlow gets right."""
    strategy, _ = OPERATORS[op]
    return strategy(dtype, tensorflow)
