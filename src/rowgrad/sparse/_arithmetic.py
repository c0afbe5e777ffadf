"""Sums, products, reductions and softmax of sparse tensors, under the names of `tf.sparse`.

Where values are of PyTorch or JAX, the operators of that front end are called, so that gradients flow.
"""

from typing import Any

import numpy as np

from rowgrad import raw_ops
from rowgrad._ops.broadcasting import one_axis
from rowgrad._runtime import arrays
from rowgrad._runtime.dtypes import FLOATS
from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.sparse._kinds import as_kind, functions, kind_of, module, plain, whole_numbers
from rowgrad.sparse._tensor import SparseTensor, as_sparse, is_sparse, sizes_for


def add(a: Any, b: Any, threshold: float = 0) -> Any:
    """Add two tensors, at least one of them sparse; the sum is dense if the other is dense.

    A sum of two entries whose absolute value is below `threshold` is left out.

    Examples
    --------
    >>> import rowgrad
    >>> a = rowgrad.SparseTensor([[0, 1], [2, 0]], [5.0, 7.0], [3, 2])
    >>> rowgrad.sparse.add(a, a).values.tolist()
    [10.0, 14.0]
    """
    if not is_sparse(a):
        a, b = b, a
    left = as_sparse(a, "a")
    if not is_sparse(b):
        dense = b if arrays.kind_of(b) is not None else _like(b, left.values)
        return functions(left.values).sparse_tensor_dense_add(left.indices, left.values, sizes_for(left), dense)
    right = as_sparse(b, "b")
    limit: Any = _like(threshold, left.values, real=True)
    found = functions(left.values).sparse_add(
        left.indices, left.values, sizes_for(left), right.indices, right.values, sizes_for(right), limit
    )
    return SparseTensor(found.sum_indices, found.sum_values, left.dense_shape)


def _like(value: Any, values: Any, real: bool = False) -> Any:
    """`value` in the type, or the real type, of `values`."""
    try:
        return _converted(value, values, real)
    except (TypeError, ValueError, RuntimeError) as error:
        name = str(values.dtype).removeprefix("torch.")
        raise DTypeError(
            f"a {type(value).__name__} cannot be made an array of {name}, the type of the sparse tensor's values: "
            f"{str(error).splitlines()[0]}.",
            code="wrong-dtype",
            argument="b",
            value=type(value).__name__,
        ) from error


def _converted(value: Any, values: Any, real: bool) -> Any:
    if kind_of(values) is arrays.TORCH:
        like = values.detach().real if real and values.is_complex() else values
        return module(values).as_tensor(value, dtype=like.dtype, device=values.device)
    if kind_of(values) is arrays.JAX:
        like = values.real if real else values
        return module(values).asarray(value, like.dtype)
    found = plain(values)
    return np.asarray(value).astype(found.real.dtype if real and found.dtype.kind == "c" else found.dtype)


def _of_two(name: str, sp_a: Any, sp_b: Any) -> SparseTensor:
    left, right = as_sparse(sp_a, "sp_a"), as_sparse(sp_b, "sp_b")
    found = getattr(functions(left.values), name)(
        left.indices, left.values, sizes_for(left), right.indices, right.values, sizes_for(right)
    )
    return SparseTensor(found.output_indices, found.output_values, left.dense_shape)


def maximum(sp_a: Any, sp_b: Any) -> SparseTensor:
    """The elementwise maximum of two sparse tensors; missing entries are 0."""
    return _of_two("sparse_sparse_maximum", sp_a, sp_b)


def minimum(sp_a: Any, sp_b: Any) -> SparseTensor:
    """The elementwise minimum of two sparse tensors; missing entries are 0."""
    return _of_two("sparse_sparse_minimum", sp_a, sp_b)


def _reduce(name: str, sp_input: Any, axis: Any, keepdims: bool, output_is_sparse: bool) -> Any:
    sp = as_sparse(sp_input)
    axes = list(range(sp.ndim)) if axis is None else whole_numbers("axis", axis).tolist()
    axes = [one_axis("axis", each, sp.ndim) for each in axes]
    module_of = functions(sp.values)
    given = axes if module_of.__name__ != "rowgrad" else np.array(axes, np.int32)
    full = f"sparse_reduce_{name}{'_sparse' * output_is_sparse}"
    found = getattr(module_of, full)(sp.indices, sp.values, sizes_for(sp), given, keep_dims=bool(keepdims))
    if not output_is_sparse:
        return found
    return SparseTensor(found.output_indices, found.output_values, plain(found.output_shape))


def reduce_sum(sp_input: Any, axis: Any = None, keepdims: bool = False, output_is_sparse: bool = False) -> Any:
    """The sum along `axis`: one dimension, several, or all; dense, or sparse with `output_is_sparse`.

    Examples
    --------
    >>> import rowgrad
    >>> sp = rowgrad.SparseTensor([[0, 1], [2, 0]], [5.0, 7.0], [3, 2])
    >>> rowgrad.sparse.reduce_sum(sp, axis=1).tolist()
    [5.0, 0.0, 7.0]
    """
    return _reduce("sum", sp_input, axis, keepdims, output_is_sparse)


def reduce_max(sp_input: Any, axis: Any = None, keepdims: bool = False, output_is_sparse: bool = False) -> Any:
    """The largest entry along `axis`; 0 where there are no entries."""
    return _reduce("max", sp_input, axis, keepdims, output_is_sparse)


def softmax(sp_input: Any) -> SparseTensor:
    """Softmax of the entries along the last dimension; indices must ascend."""
    sp = as_sparse(sp_input)
    return sp.with_values(functions(sp.values).sparse_softmax(sp.indices, sp.values, sizes_for(sp)))


def sparse_dense_matmul(sp_a: Any, b: Any, adjoint_a: bool = False, adjoint_b: bool = False) -> Any:
    """The product of a sparse and a dense matrix, in either order; each may be transposed first.

    Examples
    --------
    >>> import rowgrad
    >>> sp = rowgrad.SparseTensor([[0, 1], [2, 0]], [5.0, 7.0], [3, 2])
    >>> rowgrad.sparse.sparse_dense_matmul(sp, [[1.0], [2.0]]).tolist()
    [[10.0], [0.0], [7.0]]
    """
    if not is_sparse(sp_a) and is_sparse(b):
        return _transposed(sparse_dense_matmul(b, sp_a, not adjoint_b, not adjoint_a))
    sp = as_sparse(sp_a, "sp_a")
    dense = b if arrays.kind_of(b) is not None else _like(b, sp.values)
    if kind_of(sp.values) not in (arrays.TORCH, arrays.JAX):
        return raw_ops.SparseTensorDenseMatMul(sp.indices, sp.values, np.array(sp.dense_shape), dense,
                                               adjoint_a=adjoint_a, adjoint_b=adjoint_b)  # fmt: skip
    name = str(sp.values.dtype).removeprefix("torch.")
    if name not in FLOATS:
        raise DTypeError(
            f"values are {name}; products of PyTorch's and JAX's arrays need {', '.join(FLOATS)}. Convert them.",
            code="wrong-dtype", argument="sp_a", value=name,
        )  # fmt: skip
    rows, inner = sp.dense_shape[::-1] if adjoint_a else sp.dense_shape
    table = _transposed(dense) if adjoint_b else dense
    if len(table.shape) != 2 or int(table.shape[0]) != inner:
        raise InvalidArgumentError(
            f"b has shape {list(dense.shape)}, but sp_a has {inner} columns, and b must have as many rows. Transpose "
            "one of them, with adjoint_a or adjoint_b.",
            code="shape-mismatch",
            argument="b",
            value=tuple(dense.shape),
        )
    targets, sources = sp.indices[:, int(adjoint_a)], sp.indices[:, int(not adjoint_a)]
    return functions(sp.values).sparse_segment_weighted_sum(table, sp.values, sources, targets, rows)


def _transposed(matrix: Any) -> Any:
    if kind_of(matrix) is arrays.TORCH:
        return matrix.t().contiguous()
    if kind_of(matrix) is arrays.JAX:
        return matrix.T
    return kind_of(matrix).hand_back(np.ascontiguousarray(plain(matrix).T))


def sampled_addmm(indices: Any, values: Any, dense_shape: Any, mat1: Any, mat2: Any, beta: float = 1.0,
                  alpha: float = 1.0) -> SparseTensor:  # fmt: skip
    """alpha · (mat1 @ mat2) at the given indices, plus beta · values; other elements of the product are not computed.

    Examples
    --------
    >>> import rowgrad
    >>> a, b = [[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]
    >>> rowgrad.sparse.sampled_addmm([[0, 1], [1, 0]], [10.0, 20.0], [2, 2], a, b).values.tolist()
    [12.0, 23.0]
    """
    sp = SparseTensor(indices, values, dense_shape)
    left, right = (
        m if arrays.kind_of(m) is not None else as_kind(_like(m, sp.values), sp.values) for m in (mat1, mat2)
    )
    are_matrices = len(left.shape) == len(right.shape) == 2
    wanted = (int(left.shape[-2]), int(right.shape[-1])) if are_matrices else ()
    if not are_matrices or sp.dense_shape != wanted:
        raise InvalidArgumentError(
            f"dense_shape is {list(sp.dense_shape)}, but the product has shape {list(wanted)}; both must be "
            "matrices of that shape.",
            code="shape-mismatch",
            argument="dense_shape",
            value=sp.dense_shape,
        )
    dots = functions(sp.values).row_dot(left, _transposed(right), sp.indices[:, 0], sp.indices[:, 1])
    if kind_of(sp.values) is arrays.TENSORFLOW:
        return sp.with_values(arrays.TENSORFLOW.hand_back(plain(dots) * alpha + plain(sp.values) * beta))
    return sp.with_values(dots * alpha + sp.values * beta)


def _pool(name: str, data: Any, indices: Any, segment_ids: Any, num_segments: Any, sparse_gradient: bool) -> Any:
    given = (data, indices, segment_ids) if num_segments is None else (data, indices, segment_ids, num_segments)
    options = {"sparse_gradient": True} if sparse_gradient and kind_of(data) is arrays.TORCH else {}
    return getattr(functions(data), name)(*given, **options)


def segment_sum(data: Any, indices: Any, segment_ids: Any, num_segments: Any = None,
                sparse_gradient: bool = False) -> Any:  # fmt: skip
    """The sum of the rows of each segment (see `rowgrad.sparse_segment_sum`).

    With `sparse_gradient`, PyTorch's gradient to `data` is a sparse tensor.
    """
    return _pool("sparse_segment_sum", data, indices, segment_ids, num_segments, sparse_gradient)


def segment_mean(data: Any, indices: Any, segment_ids: Any, num_segments: Any = None,
                sparse_gradient: bool = False) -> Any:  # fmt: skip
    """The mean of the rows of each segment (see `rowgrad.sparse_segment_mean`)."""
    return _pool("sparse_segment_mean", data, indices, segment_ids, num_segments, sparse_gradient)


def segment_sqrt_n(data: Any, indices: Any, segment_ids: Any, num_segments: Any = None,
                sparse_gradient: bool = False) -> Any:  # fmt: skip
    """The sum of the rows of each segment divided by the square root of their number."""
    return _pool("sparse_segment_sqrt_n", data, indices, segment_ids, num_segments, sparse_gradient)
