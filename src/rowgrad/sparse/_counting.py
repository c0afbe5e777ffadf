"""Counts of whole numbers, and crossed features: `bincount`, `cross` and `cross_hashed` of `tf.sparse`.

They take dense and sparse tensors in any mix, bring them into the form that the operators of `raw_ops` take, and give
sparse tensors of the caller's kind.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from rowgrad import raw_ops
from rowgrad._ops.cross import DEFAULT_HASH_KEY
from rowgrad._runtime import arrays
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.sparse._kinds import as_kind, kind_of, plain
from rowgrad.sparse._tensor import SparseTensor, as_sparse, is_sparse


def bincount(values: Any, weights: Any = None, axis: int | None = 0, minlength: int | None = None,
             maxlength: int | None = None, binary_output: bool = False) -> SparseTensor:  # fmt: skip
    """Count how often each integer occurs in a dense or sparse tensor; the result is sparse.

    With `axis` 0 all are counted together, with -1 row by row. If `weights`, of the shape of `values`, are given, they
    are summed instead; with `binary_output` each number that occurs counts 1. Numbers of `maxlength` or more are left
    out; the result has at least `minlength` columns.

    Examples
    --------
    >>> import rowgrad
    >>> counts = rowgrad.sparse.bincount([[1, 2, 1], [0, 5, 5]], axis=-1)
    >>> counts.indices.tolist(), counts.values.tolist(), counts.dense_shape
    ([[0, 1], [0, 2], [1, 0], [1, 5]], [2, 1, 1, 2], (2, 6))
    """
    if axis not in (0, -1, None):
        raise InvalidArgumentError(f"axis is {axis}; allowed: 0, for all together, and -1, for each row.",
                                   code="axis-out-of-range", argument="axis", value=axis)  # fmt: skip
    if weights is not None and binary_output:
        raise InvalidArgumentError("weights have no meaning with binary_output, where each number counts 1. Leave "
                                   "out one of them.", code="wrong-attribute", argument="weights")  # fmt: skip
    settings: dict[str, Any] = {"minlength": -1 if minlength is None else minlength,
                                "maxlength": -1 if maxlength is None else maxlength,
                                "binary_output": binary_output}  # fmt: skip
    if not is_sparse(values):
        counted = _numbers(values, "values")
        given = np.empty(0, counted.dtype) if weights is None else _numbers(weights, "weights")
        if axis != -1:
            counted, given = counted.reshape(-1), given.reshape(-1)
        found = raw_ops.DenseCountSparseOutput(counted, given, **settings)
        return _as_sparse(found, values)
    sp = as_sparse(values, "values")
    counted = plain(sp.values)
    given = np.empty(0, counted.dtype) if weights is None else _weights_of(sp, weights)
    if axis != -1:
        return _as_sparse(raw_ops.DenseCountSparseOutput(counted, given, **settings), sp.values)
    shape = np.array(sp.dense_shape, np.int64)
    return _as_sparse(raw_ops.SparseCountSparseOutput(plain(sp.indices), counted, shape, given, **settings), sp.values)


def _numbers(value: Any, name: str) -> Array:
    """Lists get the types that they have in TensorFlow."""
    found = plain(value)
    if arrays.kind_of(value) is None and found.dtype in (np.int64, np.float64):
        found = found.astype(np.int32 if found.dtype.kind == "i" else np.float32)
    if found.dtype.kind not in "iuf":
        raise DTypeError(f"{name} is {found.dtype}; it must be numbers.", code="wrong-dtype", argument=name,
                         value=str(found.dtype))  # fmt: skip
    return found


def _weights_of(sp: SparseTensor, weights: Any) -> Array:
    given = as_sparse(weights, "weights")
    if given.dense_shape != sp.dense_shape or not np.array_equal(plain(given.indices), plain(sp.indices)):
        raise InvalidArgumentError(
            "weights must have the shape and the indices of values. Use `values.with_values(…)`.",
            code="shape-mismatch", argument="weights", value=given.dense_shape,
        )  # fmt: skip
    return plain(given.values)


def _as_sparse(found: Any, like: Any) -> SparseTensor:
    indices, values, shape = found
    return SparseTensor(_handed(indices, like), _handed(values, like), np.asarray(shape).tolist())


def _handed(array: Array, like: Any) -> Any:
    """`array` as one of the kind of `like`; texts are NumPy's, unless they came from TensorFlow."""
    kind = kind_of(like)
    if kind is arrays.TENSORFLOW:
        return kind.hand_back(array)
    return array if array.dtype.kind in "USOT" else as_kind(array, like)


def cross(inputs: Any, separator: str | None = None) -> SparseTensor:
    """Cross features as text: for each row, every combination of one feature of each input, joined by `separator`.

    Inputs are sparse or dense matrices of text or whole numbers; the separator is ``_X_``, unless another is given.

    Examples
    --------
    >>> import numpy as np
    >>> import rowgrad
    >>> colours = rowgrad.SparseTensor([[0, 0], [0, 1], [1, 0]], np.array(["red", "blue", "red"]), [2, 2])
    >>> rowgrad.sparse.cross([colours, [[7], [8]]], separator="/").values.tolist()
    ['red/7', 'blue/7', 'red/8']
    """
    between = np.array("_X_" if separator is None else separator)
    return _crossed(
        inputs, lambda indices, values, shapes, dense: raw_ops.SparseCrossV2(indices, values, shapes, dense, between)
    )


def cross_hashed(inputs: Any, num_buckets: int = 0, hash_key: int | None = None) -> SparseTensor:
    """Cross features as hashes, in `num_buckets` buckets, or of 63 bits if it is 0 (see `cross`).

    Examples
    --------
    >>> import rowgrad
    >>> rowgrad.sparse.cross_hashed([[["red"], ["blue"]], [[7], [8]]], num_buckets=100).values.tolist()
    [60, 30]
    """

    def hashed(*columns: Any) -> Any:
        _, values, _, dense = columns
        is_text = all(array.dtype.kind in "USOT" for array in (*values, *dense))
        return raw_ops.SparseCross(
            *columns, hashed_output=True, num_buckets=num_buckets, hash_key=hash_key or DEFAULT_HASH_KEY,
            out_type="int64", internal_type="string" if is_text else "int64",
        )  # fmt: skip

    return _crossed(inputs, hashed)


def _crossed(inputs: Any, operator: Callable[..., Any]) -> SparseTensor:
    if not isinstance(inputs, list | tuple):
        raise InvalidArgumentError("inputs must be a list of sparse tensors and matrices.", code="not-a-list",
                                   argument="inputs", value=type(inputs).__name__)  # fmt: skip
    sparse, dense = [], []
    for position, value in enumerate(inputs):
        if is_sparse(value):
            sparse.append(as_sparse(value, f"inputs[{position}]"))
        else:
            dense.append(_features(plain(value)))
    values = [_features(plain(sp.values)) for sp in sparse]
    found = operator([plain(sp.indices) for sp in sparse], values,
                     [np.array(sp.dense_shape, np.int64) for sp in sparse], dense)  # fmt: skip
    like = [sp.values for sp in sparse] + [value for value in inputs if not is_sparse(value)]
    return _as_sparse(found, next((value for value in like if arrays.kind_of(value) is not None), None))


def _features(array: Array) -> Array:
    """Text as it is; numbers as int64, as TensorFlow casts them."""
    return array if array.dtype.kind in "USOT" else array.astype(np.int64)
