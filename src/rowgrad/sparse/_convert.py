"""From dense tensors to sparse ones, and back: `from_dense`, `to_dense` and `to_indicator` of `tf.sparse`.

Results are of the caller's kind of array, and gradients flow through `to_dense`.
"""

from typing import Any

import numpy as np

from rowgrad import raw_ops
from rowgrad._ops import checks
from rowgrad._runtime import arrays
from rowgrad.errors import DTypeError, OutOfRangeError
from rowgrad.sparse._kinds import as_kind, is_traced, kind_of, module, plain
from rowgrad.sparse._tensor import SparseTensor, as_sparse


def from_dense(tensor: Any) -> SparseTensor:
    """Convert the nonzero elements of `tensor`, in row-major order.

    Examples
    --------
    >>> import rowgrad
    >>> rowgrad.sparse.from_dense([[0, 5], [7, 0]]).indices.tolist()
    [[0, 1], [1, 0]]
    """
    if isinstance(tensor, SparseTensor):
        raise DTypeError("tensor is sparse already; pass a dense one.", code="wrong-dtype", argument="tensor",
                         value=type(tensor).__name__)  # fmt: skip
    if arrays.kind_of(tensor) is None:
        whole = plain(tensor)
        tensor = whole.astype(np.float32) if whole.dtype == np.float64 else whole
        tensor = tensor.astype(np.int32) if tensor.dtype == np.int64 else tensor
    found = plain(tensor)
    indices = np.argwhere(
        found != np.zeros((), found.dtype) if found.dtype.kind not in "OUST" else found != type(found.flat[0])()
    )
    if kind_of(tensor) in (arrays.TORCH, arrays.JAX):
        places = tuple(as_kind(np.ascontiguousarray(column), tensor) for column in indices.T)
        return SparseTensor(as_kind(indices, tensor), tensor[places] if places else tensor.reshape(-1), found.shape)
    values = found[tuple(indices.T)] if found.ndim else found.reshape(-1)[: len(indices)]
    return SparseTensor(kind_of(tensor).hand_back(indices), kind_of(tensor).hand_back(values), found.shape)


def to_dense(sp_input: Any, default_value: Any = 0, *, validate_indices: bool = True) -> Any:
    """Convert to a dense tensor: the values at their indices, `default_value` elsewhere.

    With `validate_indices`, indices must ascend without duplicates; otherwise the last value of an index is used.

    Examples
    --------
    >>> import rowgrad
    >>> rowgrad.sparse.to_dense(rowgrad.SparseTensor([[0, 1], [2, 0]], [5.0, 7.0], [3, 2])).tolist()
    [[0.0, 5.0], [0.0, 0.0], [7.0, 0.0]]
    """
    sp = as_sparse(sp_input)
    kind = kind_of(sp.values)
    shape = np.array(sp.dense_shape, np.int64)
    if kind not in (arrays.TORCH, arrays.JAX):
        if default_value is None or (isinstance(default_value, int) and default_value == 0):
            found = plain(sp.values)
            default_value = np.zeros((), found.dtype) if found.dtype.kind not in "OUST" else ""
        return raw_ops.SparseToDense(sp.indices, shape, sp.values, default_value, validate_indices=validate_indices)
    # The checks are those of the operator; the framework itself writes, and so has the gradient.
    if not is_traced(sp.indices):
        raw_ops.SparseToDense(plain(sp.indices).astype(np.int64), shape, np.zeros(len(sp), np.int8), np.int8(0),
                              validate_indices=validate_indices)  # fmt: skip
    xp = module(sp.values)
    places = tuple(sp.indices[:, axis] for axis in range(sp.ndim))
    if kind is arrays.TORCH:
        dense = xp.full(sp.dense_shape, 0, dtype=sp.values.dtype, device=sp.values.device) + default_value
        dense = dense.to(sp.values.dtype)
        return dense.index_put(places, sp.values) if places else sp.values.reshape(())
    dense = xp.full(sp.dense_shape, default_value, sp.values.dtype)
    return dense.at[places].set(sp.values) if places else sp.values.reshape(())


def to_indicator(sp_input: Any, vocab_size: int) -> Any:
    """Whether each id below `vocab_size` is among the values of a row; the last dimension becomes that of ids.

    Examples
    --------
    >>> import rowgrad
    >>> sp = rowgrad.SparseTensor([[0, 0], [0, 1], [1, 0]], [2, 0, 1], [2, 2])
    >>> rowgrad.sparse.to_indicator(sp, 3).tolist()
    [[True, False, True], [False, True, False]]
    """
    sp = as_sparse(sp_input)
    ids, indices = plain(sp.values), plain(sp.indices)
    limit = checks.count("vocab_size", vocab_size)
    if ids.dtype.kind not in "iu":
        raise DTypeError(
            f"the values are {ids.dtype}; they must be ids, whole numbers.", code="wrong-dtype", argument="sp_input",
            value=str(ids.dtype),
        )  # fmt: skip
    wrong = np.flatnonzero((ids < 0) | (ids >= limit))
    if wrong.size:
        at = int(wrong[0])
        raise OutOfRangeError(
            f"values[{at}] is {int(ids[at])}; allowed: 0 to {limit - 1} (vocab_size is {limit}). Drop the entry, or "
            "raise vocab_size.",
            code="index-out-of-range",
            argument="sp_input",
            position=at,
            value=int(ids[at]),
        )
    places = np.concatenate([indices[:, :-1], ids.astype(np.int64)[:, None]], axis=1)
    shape = np.array([*sp.dense_shape[:-1], limit])
    dense = raw_ops.SparseToDense(places, shape, np.ones(len(ids), bool), np.False_, validate_indices=False)
    return kind_of(sp.values).hand_back(dense)
