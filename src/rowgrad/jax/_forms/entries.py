"""Filling empty rows, slicing, their gradients, and bags by offsets, in JAX's own operations.

How many entries there will be is found first: filling and slicing run only on arrays that are there.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rowgrad.jax._forms.common import Sizes, all_in, rounded, rows_at, sum_into, widened


def _fill(indices: Any, values: Any, rows: int, default_value: Any) -> Any:
    """Entries grouped by row, each empty row with one; `indices` [N, rank]."""
    of_row = indices[:, 0]
    ok = all_in(of_row, rows)
    if not bool(ok):
        full = jnp.zeros((0,), values.dtype)
        return (indices[:0], full, jnp.zeros(rows, bool), of_row), ok
    counts = sum_into(jnp.ones_like(of_row), of_row, rows)
    spans = jnp.maximum(counts, 1)
    firsts = jnp.cumsum(spans) - spans
    full = int(jnp.sum(spans))
    order = jnp.argsort(of_row, stable=True)
    earlier = jnp.arange(of_row.size) - rows_at(jnp.cumsum(counts) - counts, of_row[order])
    places = rows_at(firsts, of_row[order]) + earlier
    reverse = jnp.zeros_like(of_row).at[order].set(places.astype(of_row.dtype))
    is_empty = counts == 0
    where_empty = jnp.where(is_empty, firsts, full)
    starts = jnp.zeros((rows, indices.shape[1]), indices.dtype).at[:, 0].set(jnp.arange(rows, dtype=indices.dtype))
    output_indices = jnp.zeros((full, indices.shape[1]), indices.dtype).at[where_empty].set(starts, mode="drop")
    output_values = jnp.full(full, default_value, values.dtype)
    return (output_indices.at[reverse].set(indices), output_values.at[reverse].set(values), is_empty, reverse), ok


def fill_sparse(indices: Any, values: Any, dense_shape: Any, default_value: Any, sizes: Sizes) -> Any:
    """Give each empty row one entry."""
    return _fill(indices, values, max(int(dense_shape[0]), 0), default_value)


def fill_ragged(value_rowids: Any, values: Any, nrows: int, default_value: Any, sizes: Sizes) -> Any:
    """The same of rows alone."""
    (rowids, *others), ok = _fill(value_rowids[:, None], values, nrows, default_value)
    return (rowids[:, 0], *others), ok


def fill_gradient(reverse_index_map: Any, grad_values: Any, sizes: Sizes) -> Any:
    """Each entry's own gradient, and the sum over the defaults."""
    full = grad_values.shape[0]
    is_default = sum_into(jnp.ones(reverse_index_map.shape, jnp.int32), reverse_index_map, full) == 0
    sums = jnp.sum(jnp.where(is_default, widened(grad_values), 0), dtype=widened(grad_values).dtype)
    results = (rows_at(grad_values, reverse_index_map), rounded(sums, grad_values))
    return results, all_in(reverse_index_map, full)


def fill_gradient_gradient(reverse_index_map: Any, d_values: Any, d_default: Any, full: int, sizes: Sizes) -> Any:
    """Both results' gradients, sent where they came from."""
    is_default = sum_into(jnp.ones(reverse_index_map.shape, jnp.int32), reverse_index_map, full) == 0
    sums = rounded(sum_into(widened(d_values), reverse_index_map, full), d_values)
    return jnp.where(is_default, d_default, sums), all_in(reverse_index_map, full)


def cut(indices: Any, values: Any, shape: Any, start: Any, size: Any, sizes: Sizes) -> Any:
    """The entries in a window."""
    ok = jnp.all(shape >= 0) & jnp.all((size >= 0) | (start >= shape - size))
    ahead = indices - start  # negative behind the start, and where it is past 64 bits, which no size is
    is_kept = jnp.all((indices >= start) & (ahead >= 0) & (ahead < size), axis=1)
    places = jnp.nonzero(is_kept, size=int(jnp.sum(is_kept)))[0]
    output_shape = jnp.where(start < shape - size, size, jnp.maximum(shape - start, 0))
    return (indices[places] - start, values[places], output_shape), ok


def _matches(inputs: Any, start: Any, outputs: Any) -> Any:
    """The input that each output was cut from: one pass, the next output takes the first input that equals it."""
    wanted, last = outputs + start, outputs.shape[0]

    def step(j: Any, entry: Any) -> tuple[Any, Any]:
        is_match = (j < last) & jnp.all(wanted[jnp.minimum(j, last - 1)] == entry)
        return j + is_match, jnp.where(is_match, j, last)

    matched, taken = jax.lax.scan(step, jnp.int32(0), inputs)
    return taken, matched == last


def cut_gradient(grad: Any, inputs: Any, start: Any, outputs: Any, sizes: Sizes) -> Any:
    """The gradient of each entry that was kept, and 0 for the others."""
    if outputs.shape[0] == 0:
        return jnp.zeros(inputs.shape[0], grad.dtype), True
    taken, ok = _matches(inputs, start, outputs)
    return rows_at(grad, taken), ok


def cut_gradient_gradient(grad: Any, inputs: Any, start: Any, outputs: Any, sizes: Sizes) -> Any:
    """The entries that were kept."""
    if outputs.shape[0] == 0:
        return jnp.zeros(0, grad.dtype), True
    taken, ok = _matches(inputs, start, outputs)
    return jnp.zeros(outputs.shape[0], grad.dtype).at[taken].set(grad, mode="drop"), ok


def spread(offsets: Any, size: int, sizes: Sizes) -> Any:
    """The segment of each entry, from where each segment begins."""
    ok = jnp.all(offsets[:1] == 0) & all_in(offsets, size + 1) & jnp.all(offsets[1:] >= offsets[:-1])
    return jnp.searchsorted(offsets, jnp.arange(size), side="right") - 1, ok & (offsets.size > 0 or size == 0)


FORMS: dict[str, Callable[..., Any]] = {
    "SegmentIdsFromOffsets": spread,
    "SparseFillEmptyRows": fill_sparse,
    "RaggedFillEmptyRows": fill_ragged,
    "SparseFillEmptyRowsGrad": fill_gradient,
    "RaggedFillEmptyRowsGrad": fill_gradient,
    "SparseFillEmptyRowsGradGrad": fill_gradient_gradient,
    "SparseSlice": cut,
    "SparseSliceGrad": cut_gradient,
    "SparseSliceGradGrad": cut_gradient_gradient,
}
