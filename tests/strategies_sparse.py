"""Hypothesis strategies for the operators on whole sparse tensors; `strategies` has them under their names."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import strategies as base

Array = np.ndarray[Any, Any]
Args = dict[str, Any]


@st.composite
def tensors(
    draw: st.DrawFn,
    dtype: np.dtype[Any],
    rank: int | None = None,
    is_sorted: bool | None = None,
    unique: bool = False,
    least: int = 0,
) -> tuple[Array, Array, Array]:
    """Indices, values and shape; indices are within the shape."""
    random, special = draw(base.randoms()), draw(base.specials())
    rank = draw(st.integers(0, 4)) if rank is None else rank
    shape = random.integers(least, draw(st.sampled_from([2, 5, 90])), rank) if rank else np.zeros(0, np.int64)
    n = draw(st.integers(0, 60)) if shape.all() else 0
    indices = np.stack([random.integers(0, size, n) for size in shape], axis=1) if rank and n else (
        np.zeros((n, rank), np.int64))  # fmt: skip
    if unique:
        indices = np.unique(indices, axis=0) if rank else indices[:1]
    if draw(st.booleans()) if is_sorted is None else is_sorted:
        indices = indices[np.lexsort(indices.T[::-1])] if rank else indices
    elif unique:
        indices = random.permutation(indices)
    return indices.astype(np.int64), base.values(random, dtype, (len(indices),), special), shape.astype(np.int64)


@st.composite
def reductions(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    # In which order entries with the same index are added, TensorFlow leaves open.
    indices, values, shape = draw(tensors(dtype, unique=tensorflow))
    rank = len(shape)
    axes = draw(st.lists(st.integers(-rank, rank - 1), max_size=rank) if rank else st.just([]))
    found = np.array(axes, np.int32)
    return {
        "input_indices": indices,
        "input_values": values,
        "input_shape": shape,
        "reduction_axes": found.reshape(()) if len(axes) == 1 and draw(st.booleans()) else found,
    }


@st.composite
def reduction_segments(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    args = draw(reductions(np.dtype(np.float32), tensorflow))
    return {name: value for name, value in args.items() if name != "input_values"}


SPARSE: dict[str, Any] = {
    "sparse_reduce_sum": (reductions, base.NUMBERS),
    "sparse_reduce_sum_sparse": (reductions, base.NUMBERS),
    "sparse_reduce_max": (reductions, base.REALS),
    "sparse_reduce_max_sparse": (reductions, base.REALS),
    "sparse_reduce_segments": (reduction_segments, [np.dtype(np.int64)]),
}
