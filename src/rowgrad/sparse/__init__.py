"""Sparse tensors, with the names of `tf.sparse`: `rowgrad.sparse.reduce_sum(sp, axis=1)`.

Functions take a `SparseTensor`, or a sparse tensor or matrix of another library: PyTorch's COO and CSR tensors,
JAX's BCOO, SciPy's matrices, TensorFlow's `SparseTensor`. Values are arrays of NumPy, PyTorch, JAX or TensorFlow, and
results are of the same kind. On PyTorch's and JAX's arrays everything is differentiable, to any order.
"""

from rowgrad.sparse._arithmetic import (
    add,
    maximum,
    minimum,
    reduce_max,
    reduce_sum,
    sampled_addmm,
    segment_mean,
    segment_sqrt_n,
    segment_sum,
    softmax,
    sparse_dense_matmul,
)
from rowgrad.sparse._convert import from_dense, to_dense, to_indicator
from rowgrad.sparse._counting import bincount, cross, cross_hashed
from rowgrad.sparse._entries import (
    concat,
    expand_dims,
    eye,
    fill_empty_rows,
    map_values,
    mask,
    reorder,
    reset_shape,
    reshape,
    retain,
    slice,
    split,
    transpose,
)
from rowgrad.sparse._tensor import SparseTensor

__all__ = [
    "SparseTensor",
    "add",
    "bincount",
    "concat",
    "cross",
    "cross_hashed",
    "expand_dims",
    "eye",
    "fill_empty_rows",
    "from_dense",
    "map_values",
    "mask",
    "maximum",
    "minimum",
    "reduce_max",
    "reduce_sum",
    "reorder",
    "reset_shape",
    "reshape",
    "retain",
    "sampled_addmm",
    "segment_mean",
    "segment_sqrt_n",
    "segment_sum",
    "slice",
    "softmax",
    "sparse_dense_matmul",
    "split",
    "to_dense",
    "to_indicator",
    "transpose",
]


def __dir__() -> list[str]:
    return __all__
