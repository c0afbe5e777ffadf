"""Hypothesis strategies for sparse tensors made dense, multiplied, joined, cut and counted."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import strategies as base
from strategies_sparse import tensors

Array = np.ndarray[Any, Any]
Args = dict[str, Any]
COUNTS = [np.dtype(t) for t in ("int32", "int64", "float32", "float64")]
IDS = [np.dtype(t) for t in ("int32", "int64")]


@st.composite
def to_dense(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random, special = draw(base.randoms()), draw(base.specials())
    rank = draw(st.integers(1, 3))
    indices, values, shape = draw(tensors(dtype, rank=rank, is_sorted=True, unique=True, least=1))
    shape = np.minimum(shape, 30)
    indices = np.unique(indices % shape, axis=0)
    values = values[: len(indices)]
    if rank == 1 and draw(st.booleans()):
        indices = indices[:, 0]
    if draw(st.booleans()):
        indices, shape = indices.astype(np.int32), shape.astype(np.int32)
    if len(values) and draw(st.booleans()):
        values = values[:1].reshape(())
    default = base.values(random, dtype, (1,), special).reshape(())
    return {"sparse_indices": indices, "output_shape": shape, "sparse_values": values, "default_value": default}


@st.composite
def products(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random, special = draw(base.randoms()), draw(base.specials())
    indices, values, shape = draw(tensors(dtype, rank=2, least=1))
    shape = np.minimum(shape, 20)
    adjoint_a, adjoint_b = draw(st.booleans()), draw(st.booleans())
    sizes = (int(shape[0 if adjoint_a else 1]), draw(st.sampled_from([0, 1, 2, 5, 17])))
    b = base.values(random, dtype, sizes[::-1] if adjoint_b else sizes, special)
    if draw(st.booleans()):
        indices = indices.astype(np.int32)
    return {"a_indices": indices % shape.astype(indices.dtype), "a_values": values, "a_shape": shape, "b": b,
            "adjoint_a": adjoint_a, "adjoint_b": adjoint_b}  # fmt: skip


@st.composite
def parts(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    """Several tensors that can be joined."""
    random, special = draw(base.randoms()), draw(base.specials())
    rank = draw(st.integers(1, 3))
    shape, axis = random.integers(1, 6, rank), draw(st.integers(-rank, rank - 1))
    args: Args = {"indices": [], "values": [], "shapes": []}
    for _ in range(draw(st.integers(2 if tensorflow else 1, 4))):
        sizes, n = shape.copy(), draw(st.integers(0, 20))
        sizes[axis] = random.integers(1, 9)
        args["indices"].append(np.stack([random.integers(0, size, n) for size in sizes], axis=1))
        args["values"].append(base.values(random, dtype, (n,), special))
        args["shapes"].append(sizes)
    return {**args, "concat_dim": axis}


@st.composite
def places(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    args = draw(parts(np.dtype(np.float32), tensorflow))
    del args["values"]
    return {**args, "index": draw(st.integers(0, len(args["indices"]) - 1))}


@st.composite
def cuts(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    rank = draw(st.integers(1, 4))
    indices, values, shape = draw(tensors(dtype, rank=rank, least=1))
    axis = draw(st.integers(-rank, rank - 1))
    count = draw(st.integers(1, min(int(shape[axis]), 7)))
    return {"split_dim": axis, "indices": indices, "values": values, "shape": shape, "num_split": count,
            "index": draw(st.integers(0, count - 1))}  # fmt: skip


def weights_for(draw: st.DrawFn, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """One for each value, or none."""
    random = draw(base.randoms())
    return (random.standard_normal(shape if draw(st.booleans()) else 0) * 9).astype(dtype)


def counts(draw: st.DrawFn) -> Args:
    """The attributes of counts whose result is sparse."""
    lengths = {name: draw(st.integers(0, 15)) for name in ("minlength", "maxlength") if draw(st.booleans())}
    return {"binary_output": draw(st.booleans()), **lengths}


@st.composite
def sparse_bins(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool, dense: bool = True) -> Args:
    kind = draw(st.sampled_from(IDS)) if dense else dtype
    indices, values, shape = draw(tensors(np.dtype(np.int64), rank=draw(st.integers(1, 3)), least=1))
    args: Args = {"indices": indices, "values": (np.abs(values) % 12).astype(kind), "dense_shape": shape}
    if dense:
        weights = weights_for(draw, dtype, values.shape)
        size = np.array(draw(st.integers(0, 15)), kind)
        return {**args, "size": size, "weights": weights, "binary_output": draw(st.booleans())}
    return {**args, "weights": weights_for(draw, draw(st.sampled_from(COUNTS)), values.shape), **counts(draw)}


def sparse_counts(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return sparse_bins(dtype, tensorflow, dense=False)


@st.composite
def dense_counts(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random = draw(base.randoms())
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=2)))
    weights = weights_for(draw, draw(st.sampled_from(COUNTS)), shape)
    return {"values": random.integers(0, 12, shape).astype(dtype), "weights": weights, **counts(draw)}


@st.composite
def ragged_bins(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool, dense: bool = True) -> Args:
    random = draw(base.randoms())
    kind = draw(st.sampled_from(IDS)) if dense else dtype
    lengths = random.integers(0, 9, draw(st.integers(1, 6)))
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    args: Args = {"splits": splits, "values": random.integers(0, 12, splits[-1]).astype(kind)}
    if dense:
        weights = weights_for(draw, dtype, args["values"].shape)
        size = np.array(draw(st.integers(0, 15)), kind)
        return {**args, "size": size, "weights": weights, "binary_output": draw(st.booleans())}
    weights = weights_for(draw, draw(st.sampled_from(COUNTS)), args["values"].shape)
    return {**args, "weights": weights, **counts(draw)}


def ragged_counts(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return ragged_bins(dtype, tensorflow, dense=False)


MULTIPLIED = [dtype for dtype in base.NUMBERS if dtype in base.INEXACT or dtype.name in ("int32", "int64")]
TENSORS: dict[str, Any] = {
    "sparse_to_dense": (to_dense, base.ANYTHING),
    "sparse_tensor_dense_mat_mul": (products, MULTIPLIED),
    "sparse_concat": (parts, base.ANYTHING),
    "sparse_concat_places": (places, [np.dtype(np.int64)]),
    "sparse_split_part": (cuts, base.ANYTHING),
    "sparse_bincount": (sparse_bins, COUNTS),
    "dense_count_sparse_output": (dense_counts, IDS),
    "sparse_count_sparse_output": (sparse_counts, IDS),
    "ragged_bincount": (ragged_bins, COUNTS),
    "ragged_count_sparse_output": (ragged_counts, IDS),
}
