"""Hypothesis strategies for the operators on whole sparse tensors; `strategies` has them under their names."""

from __future__ import annotations

from typing import Any

import ml_dtypes
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


@st.composite
def two_tensors(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    """Two tensors of one shape, some of whose entries meet; now and then they are not in order, or repeat indices."""
    random, special = draw(base.randoms()), draw(base.specials())
    rank, is_neat = draw(st.integers(1, 3)), draw(st.integers(0, 3)) > 0
    shape = random.integers(1, draw(st.sampled_from([3, 7])), rank)
    args: Args = {}
    for name in "ab":
        n = draw(st.integers(0, 50))
        indices = np.stack([random.integers(0, size, n) for size in shape], axis=1)
        if is_neat:
            indices = np.unique(indices, axis=0)
        found = base.values(random, dtype, (len(indices),), special)
        if dtype.kind == "f" and len(found):
            found = np.where(
                random.random(len(found)) < 0.3, random.choice(np.array([0.0, -0.0, 1.0, -1.0], dtype)), found
            )
        args |= {f"{name}_indices": indices, f"{name}_values": found.astype(dtype), f"{name}_shape": shape}
    return args


@st.composite
def sums(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    args = draw(two_tensors(dtype, tensorflow))
    real = np.zeros(1, dtype).real.dtype if dtype.kind == "c" else dtype
    return {**args, "thresh": np.array(draw(st.sampled_from([0, 0, 1, 100])), real)}


@st.composite
def sum_gradients(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool, second: bool = False) -> Args:
    random, special = draw(base.randoms()), draw(base.specials())
    both = draw(two_tensors(dtype, tensorflow))
    a, b = both["a_indices"], both["b_indices"]
    union = np.unique(np.concatenate([a, b]), axis=0)
    found = union[random.random(len(union)) < draw(st.sampled_from([0.3, 1.0]))]
    where = {"a_indices": a, "b_indices": b, "sum_indices": found}
    if second:
        return {"a_grad": both["a_values"], "b_grad": both["b_values"], **where}
    return {"backprop_val_grad": base.values(random, dtype, (len(found),), special), **where}


def sum_gradient_gradients(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return sum_gradients(dtype, tensorflow, second=True)


@st.composite
def choices(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    args = draw(two_tensors(dtype, tensorflow))
    return {name: value for name, value in args.items() if not name.endswith("shape")}


@st.composite
def beside_dense(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool, divides: bool = False) -> Args:
    """A sparse tensor, and a dense one that broadcasts to its shape."""
    random, special = draw(base.randoms()), draw(base.specials())
    indices, values, shape = draw(tensors(dtype, rank=draw(st.integers(1, 4)), least=1))
    kept = shape[draw(st.integers(0, len(shape))) :]
    sizes = tuple(int(1 if random.random() < 0.2 else size) for size in kept)
    dense = base.values(random, dtype, sizes, special)
    if tensorflow and dtype in base.FLOATS:  # TensorFlow takes subnormal numbers for 0
        values, dense = (_normal(array) for array in (values, dense))
    if divides:
        dense = _normal(dense) if dtype in base.FLOATS else dense
        dense = np.where(dense == 0, np.array(1, dtype), dense).astype(dtype)
        if tensorflow and dtype.kind == "i":  # the lowest number over -1 ends TensorFlow's process
            dense = np.abs(np.where(dense == np.iinfo(dtype).min, np.array(1, dtype), dense)).astype(dtype)
    return {"sp_indices": indices, "sp_values": values, "sp_shape": shape, "dense": dense}


def _normal(array: Array) -> Array:
    tiny = float(ml_dtypes.finfo(array.dtype).tiny)
    return np.where(np.abs(array.astype(np.float64)) < tiny, np.array(0, array.dtype), array).astype(array.dtype)


def divided(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return beside_dense(dtype, tensorflow, divides=True)


def taken(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return beside_dense(dtype, tensorflow).map(lambda args: {k: v for k, v in args.items() if k != "sp_values"})


def scattered(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return beside_dense(dtype, tensorflow).map(
        lambda args: {"grad": args["sp_values"], **{k: v for k, v in args.items() if k != "sp_values"}}
    )


@st.composite
def dense_sums(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random, special = draw(base.randoms()), draw(base.specials())
    indices, values, shape = draw(tensors(dtype, rank=draw(st.integers(1, 4)), least=1))
    if draw(st.booleans()):
        indices, shape = indices.astype(np.int32), shape.astype(np.int32)
    b = base.values(random, dtype, tuple(shape.tolist()), special)
    return {"a_indices": indices, "a_values": values, "a_shape": shape, "b": b}


@st.composite
def softmaxes(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    indices, values, shape = draw(tensors(dtype, rank=draw(st.integers(2, 4)), least=1, unique=tensorflow))
    return {"sp_indices": indices, "sp_values": values, "sp_shape": shape}


SPARSE: dict[str, Any] = {
    "sparse_reduce_sum": (reductions, base.NUMBERS),
    "sparse_reduce_sum_sparse": (reductions, base.NUMBERS),
    "sparse_reduce_max": (reductions, base.REALS),
    "sparse_reduce_max_sparse": (reductions, base.REALS),
    "sparse_add": (sums, base.NUMBERS),
    "sparse_add_grad": (sum_gradients, base.NUMBERS),
    "sparse_add_grad_grad": (sum_gradient_gradients, base.NUMBERS),
    "sparse_sparse_maximum": (two_tensors, base.REALS),
    "sparse_sparse_minimum": (two_tensors, base.REALS),
    "sparse_sparse_chosen": (choices, base.FLOATS),
    "sparse_dense_cwise_add": (beside_dense, base.REALS),
    "sparse_dense_cwise_mul": (beside_dense, base.REALS),
    "sparse_dense_cwise_div": (divided, base.REALS),
    "sparse_dense_gather": (taken, base.NUMBERS),
    "sparse_dense_scatter": (scattered, base.INEXACT),
    "sparse_tensor_dense_add": (dense_sums, base.NUMBERS),
    "sparse_softmax": (softmaxes, [np.dtype(t) for t in ("float16", "float32", "float64")]),
    "sparse_reduce_segments": (reduction_segments, [np.dtype(np.int64)]),
}
