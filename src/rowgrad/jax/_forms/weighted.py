"""Weighted sums and the largest of each segment, and their gradients, in JAX's own operations."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from rowgrad.jax._forms.common import Sizes, all_in, per_row, rounded, rows_at, sum_into, widened
from rowgrad.jax._forms.segments import ranks_of


def _weighed(values: Any, weights: Any, ids: Any) -> Any:
    wide = widened(values)
    picked = rows_at(wide, ids)
    return picked * per_row(weights.astype(wide.dtype), picked)


def weighted_sum(data: Any, weights: Any, indices: Any, segment_ids: Any, segments: int, sizes: Sizes) -> Any:
    """Σ weight · row by segment, in any order."""
    ok = all_in(indices, data.shape[0]) & all_in(segment_ids, segments)
    return rounded(sum_into(_weighed(data, weights, indices), segment_ids, segments), data), ok


def weighted_compact(grad: Any, weights: Any, indices: Any, segment_ids: Any, rows: int, sizes: Sizes) -> Any:
    """The compact gradient of a weighted sum to its table."""
    if rows == 0 or indices.size == 0:
        size = sizes.most or 0
        return (jnp.zeros((size, *grad.shape[1:]), grad.dtype), jnp.full(size, rows, indices.dtype)), True
    ok = all_in(indices, rows) & all_in(segment_ids, grad.shape[0])
    unique, has_room = sizes.distinct(indices, rows)
    sums = sum_into(_weighed(grad, weights, segment_ids), jnp.searchsorted(unique, indices), unique.size)
    return (rounded(sums, grad), unique), ok & has_room


def row_dot(a: Any, b: Any, a_rows: Any, b_rows: Any, sizes: Sizes) -> Any:
    """The dot product of each pair of rows."""
    products = rows_at(widened(a), a_rows) * rows_at(widened(b), b_rows)
    dots = jnp.sum(products, axis=tuple(range(1, products.ndim)))
    ok = all_in(a_rows, a.shape[0]) & all_in(b_rows, b.shape[0])
    return dots.astype(sizes.dtypes[0]), ok


def largest(data: Any, indices: Any, segment_ids: Any, segments: int, sizes: Sizes) -> Any:
    """The largest of each column, and the table row that it came from; the first entry among equals, NaN before all."""
    ok = all_in(indices, data.shape[0]) & all_in(segment_ids, segments)
    rows = rows_at(data, indices)
    is_nan = jnp.isnan(rows)
    number = rows.shape[0]
    places = jnp.where(segment_ids < 0, segments, segment_ids)
    lowest = jnp.full((segments, *data.shape[1:]), -jnp.inf, data.dtype)
    tops = lowest.at[places].max(jnp.where(is_nan, jnp.inf, rows), mode="drop")
    has_nan = jnp.zeros(tops.shape, bool).at[places].max(is_nan, mode="drop")
    is_top = jnp.where(rows_at(has_nan, segment_ids), is_nan, rows == rows_at(tops, segment_ids))
    entries = jnp.where(is_top, per_row(jnp.arange(number), rows), number)
    first = jnp.full(tops.shape, number).at[places].min(entries, mode="drop")
    chosen = indices.at[first].get(mode="fill", fill_value=-1) if number else jnp.full(tops.shape, -1)
    return (_picked(data, chosen), chosen), ok


def _by_row(array: Any) -> Any:
    """As a matrix. (Where there are no rows, -1 would not tell how many columns there are.)"""
    return array.reshape(array.shape[0], math.prod(array.shape[1:]))


def _picked(table: Any, chosen: Any) -> Any:
    """table[chosen[s, c], c]; 0 where nothing was chosen."""
    flat, ids = _by_row(table), _by_row(chosen)
    if table.shape[0] == 0:
        return jnp.zeros(chosen.shape, table.dtype)
    columns = jnp.arange(ids.shape[1])[None, :]
    return flat.at[jnp.where(ids < 0, len(flat), ids), columns].get(mode="fill", fill_value=0).reshape(chosen.shape)


def _scattered(grad: Any, places: Any, rows: int) -> Any:
    """The sum, column by column, of what was chosen from each row."""
    values, ids = _by_row(widened(grad)), _by_row(places)
    columns = jnp.arange(ids.shape[1])[None, :]
    sums = jnp.zeros((rows, ids.shape[1]), values.dtype).at[jnp.where(ids < 0, rows, ids), columns]
    return rounded(sums.add(values, mode="drop").reshape(rows, *grad.shape[1:]), grad)


def largest_gradient(grad: Any, chosen: Any, rows: int, sizes: Sizes) -> Any:
    """The gradient, sent to the rows that were chosen."""
    return _scattered(grad, chosen, rows), all_in(chosen, rows, -1)


def largest_compact(grad: Any, chosen: Any, rows: int, sizes: Sizes) -> Any:
    """The same of the rows that were chosen at least once."""
    ids = jnp.where(chosen < 0, rows, chosen)
    unique, has_room = sizes.distinct(ids.reshape(-1), rows)
    places = jnp.searchsorted(unique, chosen) if unique.size else -1  # JAX does not search in nothing
    ranks = jnp.where(chosen < 0, -1, places)
    return (_scattered(grad, ranks, unique.size), unique), all_in(chosen, rows, -1) & has_room


def largest_gradient_gradient(grad: Any, chosen: Any, sizes: Sizes) -> Any:
    """What flows into each chosen place, picked."""
    return _picked(grad, chosen), all_in(chosen, grad.shape[0], -1)


def chosen_rank(unique: Any, chosen: Any, sizes: Sizes) -> Any:
    """Where each chosen row stands among the distinct ones; -1 stays -1."""
    ranks, is_known = ranks_of(unique, chosen)
    return jnp.where(chosen == -1, -1, ranks), jnp.all(is_known | (chosen == -1))


FORMS: dict[str, Callable[..., Any]] = {
    "SparseSegmentWeightedSum": weighted_sum,
    "SparseSegmentWeightedSumGradV2": weighted_compact,
    "RowDot": row_dot,
    "SparseSegmentMax": largest,
    "SparseSegmentMaxGrad": largest_gradient,
    "SparseSegmentMaxGradV2": largest_compact,
    "SparseSegmentMaxGradGrad": largest_gradient_gradient,
    "ChosenRank": chosen_rank,
}
