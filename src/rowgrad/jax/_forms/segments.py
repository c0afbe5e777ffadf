"""The segment operators and their gradients in JAX's own operations.

For devices without kernels. Each form gives its results, and whether all ids were in range.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp

from rowgrad.jax._forms.common import Sizes, all_in, per_row, rounded, rows_at, sum_into, widened


def _factors(kind: str, segment_ids: Any, segments: int, dtype: Any) -> Any:
    """What a segment's rows are scaled by: 1/n or 1/√n."""
    counts = jnp.maximum(sum_into(jnp.ones(segment_ids.shape, dtype), segment_ids, segments), 1)
    return 1 / counts if kind == "Mean" else 1 / jnp.sqrt(counts)


def _pooled(kind: str, data: Any, indices: Any, segment_ids: Any, segments: int) -> Any:
    values = widened(data)
    sums = sum_into(rows_at(values, indices), segment_ids, segments)
    if kind != "Sum":
        sums = sums * per_row(_factors(kind, segment_ids, segments, sums.dtype), sums)
    return rounded(sums, data)


def pool(kind: str, data: Any, indices: Any, segment_ids: Any, *given: Any) -> Any:
    """The forward operator, with a number of segments or without."""
    *_, sizes = given
    ok = all_in(indices, data.shape[0]) & all_in(segment_ids, sizes.rows)
    ok &= jnp.all(segment_ids[1:] >= segment_ids[:-1])
    return _pooled(kind, data, indices, segment_ids, sizes.rows), ok


def _sent(kind: str, grad: Any, segment_ids: Any) -> Any:
    """What each entry gets of its segment's gradient."""
    values = widened(grad)
    sent = rows_at(values, segment_ids)
    if kind == "Sum":
        return sent
    factors = _factors(kind, segment_ids, grad.shape[0], values.dtype)
    return sent * per_row(rows_at(factors, segment_ids), sent)


def gradient(kind: str, grad: Any, indices: Any, segment_ids: Any, rows: int, sizes: Sizes) -> Any:
    """The dense gradient."""
    if rows == 0 or indices.size == 0:  # the ids are not looked at
        return jnp.zeros((rows, *grad.shape[1:]), grad.dtype), True
    ok = all_in(indices, rows) & all_in(segment_ids, grad.shape[0])
    return rounded(sum_into(_sent(kind, grad, segment_ids), indices, rows), grad), ok


def compact_gradient(kind: str, grad: Any, indices: Any, segment_ids: Any, rows: int, sizes: Sizes) -> Any:
    """The gradient of the rows that occur."""
    if rows == 0 or indices.size == 0:
        size = sizes.most or 0
        return (jnp.zeros((size, *grad.shape[1:]), grad.dtype), jnp.full(size, rows, indices.dtype)), True
    ok = all_in(indices, rows) & all_in(segment_ids, grad.shape[0])
    unique, has_room = sizes.distinct(indices, rows)
    ranks = jnp.searchsorted(unique, indices)
    output = sum_into(_sent(kind, grad, segment_ids), ranks, unique.size)
    return (rounded(output, grad), unique), ok & has_room


def pool_again(kind: str, grad: Any, indices: Any, segment_ids: Any, segments: int, sizes: Sizes) -> Any:
    """The gradient of a gradient: pool, segments in any order."""
    if segments == 0 or indices.size == 0:
        return jnp.zeros((segments, *grad.shape[1:]), grad.dtype), True
    ok = all_in(indices, grad.shape[0]) & all_in(segment_ids, segments)
    return _pooled(kind, grad, indices, segment_ids, segments), ok


def index_rank(unique: Any, indices: Any, sizes: Sizes) -> Any:
    """Where each index stands among the distinct ones."""
    ranks, is_known = ranks_of(unique, indices)
    return ranks, jnp.all(is_known)


def ranks_of(unique: Any, ids: Any) -> tuple[Any, Any]:
    """Where ids stand among the distinct ones, and whether they do."""
    ranks = jnp.searchsorted(unique, ids)
    found = unique.at[ranks].get(mode="fill", fill_value=-1) if unique.size else jnp.full(ids.shape, -1)
    return ranks, (found == ids) & (ids >= 0)


_KINDS: dict[str, Callable[..., Any]] = {
    "": pool,
    "WithNumSegments": pool,
    "Grad": gradient,
    "GradV2": compact_gradient,
    "GradGrad": pool_again,
}
FORMS: dict[str, Callable[..., Any]] = {"IndexRank": index_rank} | {
    f"SparseSegment{kind}{suffix}": partial(form, kind)
    for kind in ("Sum", "Mean", "SqrtN")
    for suffix, form in _KINDS.items()
}
