"""Entries moved, joined, cut and chosen: what changes indices and keeps values."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rowgrad import raw_ops
from rowgrad._ops import checks
from rowgrad._ops.broadcasting import one_axis
from rowgrad._ops.results import RowGradient
from rowgrad._ops.sparse_join import _joined
from rowgrad._runtime import arrays
from rowgrad._runtime.dtypes import NUMPY
from rowgrad._runtime.memory import allocate
from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.sparse._kinds import as_kind, functions, ids, kind_of, module, plain, take, whole_numbers
from rowgrad.sparse._tensor import SparseTensor, as_sparse, sizes_for


def reorder(sp_input: Any) -> SparseTensor:
    """Sort entries in row-major order; those with the same index stay in their order."""
    sp = as_sparse(sp_input)
    found = functions(sp.values).sparse_reorder(sp.indices, sp.values, sizes_for(sp))
    return SparseTensor(found.output_indices, found.output_values, sp.dense_shape)


def reshape(sp_input: Any, shape: Any) -> SparseTensor:
    """Reshape to a shape with the same number of elements; one length may be -1."""
    sp = as_sparse(sp_input)
    wanted = whole_numbers("shape", shape)
    found = raw_ops.SparseReshape(plain(sp.indices), np.array(sp.dense_shape, np.int64), wanted)
    return SparseTensor(_handed(found.output_indices, sp.values), sp.values, found.output_shape)


def _handed(array: Any, like: Any) -> Any:
    return as_kind(array, like) if kind_of(like) is not arrays.TENSORFLOW else arrays.TENSORFLOW.hand_back(array)


def transpose(sp_input: Any, perm: Sequence[int] | None = None) -> SparseTensor:
    """Permute the dimensions, reversed by default; entries are sorted.

    Examples
    --------
    >>> import rowgrad
    >>> rowgrad.sparse.transpose(rowgrad.SparseTensor([[0, 1], [2, 0]], [5.0, 7.0], [3, 2])).indices.tolist()
    [[0, 2], [1, 0]]
    """
    sp = as_sparse(sp_input)
    order = list(range(sp.ndim))[::-1] if perm is None else whole_numbers("perm", perm).tolist()
    if sorted(order) != list(range(sp.ndim)):
        raise InvalidArgumentError(
            f"perm is {order}; it must have each of the {sp.ndim} dimensions once.",
            code="repeated-axis",
            argument="perm",
            value=tuple(order),
        )
    shape = [sp.dense_shape[axis] for axis in order]
    if kind_of(sp.values) is arrays.JAX:  # whose indices may be traced
        return reorder(SparseTensor(sp.indices[:, np.array(order, int)], sp.values, shape))
    moved = SparseTensor(_handed(np.ascontiguousarray(plain(sp.indices)[:, order]), sp.values), sp.values, shape)
    return reorder(moved)


def expand_dims(sp_input: Any, axis: int | None = None) -> SparseTensor:
    """Insert a dimension of length 1 before `axis`; at the end by default."""
    sp = as_sparse(sp_input)
    at = one_axis("axis", -1 if axis is None else axis, sp.ndim + 1)
    indices = np.insert(plain(sp.indices), at, 0, axis=1)
    shape = [*sp.dense_shape[:at], 1, *sp.dense_shape[at:]]
    return SparseTensor(_handed(indices, sp.values), sp.values, shape)


def reset_shape(sp_input: Any, new_shape: Any = None) -> SparseTensor:
    """Change the shape to the smallest that holds all entries, or to `new_shape`, which must not be smaller."""
    sp = as_sparse(sp_input)
    if new_shape is None:
        indices = plain(sp.indices)
        return SparseTensor(sp.indices, sp.values, (indices.max(axis=0) + 1 if len(indices) else
                                                    np.zeros(sp.ndim, np.int64)).tolist())  # fmt: skip
    wanted = whole_numbers("new_shape", new_shape).tolist()
    checks.same_length("new_shape", len(wanted), "dense_shape", sp.ndim)
    if any(size < before for size, before in zip(wanted, sp.dense_shape, strict=True)):
        raise InvalidArgumentError(
            f"new_shape is {wanted}, smaller than {list(sp.dense_shape)} in a dimension. Pass one that is not.",
            code="shape-mismatch",
            argument="new_shape",
            value=tuple(wanted),
        )
    return SparseTensor(sp.indices, sp.values, wanted)


def retain(sp_input: Any, to_retain: Any) -> SparseTensor:
    """Keep the entries for which `to_retain`, a vector of booleans, is true.

    Examples
    --------
    >>> import rowgrad
    >>> sp = rowgrad.SparseTensor([[0, 1], [2, 0]], [5.0, 7.0], [3, 2])
    >>> rowgrad.sparse.retain(sp, sp.values > 6).values.tolist()
    [7.0]
    """
    sp = as_sparse(sp_input)
    chosen = plain(to_retain)
    checks.rank("to_retain", chosen, 1)
    checks.same_length("to_retain", chosen.size, "values", len(sp))
    positions = np.flatnonzero(chosen)
    return SparseTensor(take(sp.indices, positions), take(sp.values, positions), sp.dense_shape)


def slice(sp_input: Any, start: Any, size: Any) -> SparseTensor:
    """Cut out the window that begins at `start` and has the shape `size`."""
    sp = as_sparse(sp_input)
    begin, length = whole_numbers("start", start), whole_numbers("size", size)
    as_given = list if functions(sp.values).__name__ != "rowgrad" else np.array
    found = functions(sp.values).sparse_slice(sp.indices, sp.values, sizes_for(sp), as_given(begin.tolist()),
                                              as_given(length.tolist()))  # fmt: skip
    return SparseTensor(found.output_indices, found.output_values, plain(found.output_shape))


def split(sp_input: Any, num_split: int, axis: int) -> list[SparseTensor]:
    """Split into `num_split` parts along `axis`; if there is a remainder, the first parts are longer by one."""
    sp = as_sparse(sp_input)
    if kind_of(sp.values) not in (arrays.TORCH, arrays.JAX):
        parts = raw_ops.SparseSplit(axis, sp.indices, sp.values, np.array(sp.dense_shape), num_split=num_split)
        return [SparseTensor(*part) for part in zip(*parts, strict=True)]
    shape = np.array(sp.dense_shape)
    indices = plain(sp.indices)
    shapes = raw_ops.SparseSplit(
        axis, indices, np.zeros(len(indices), np.int8), shape, num_split=num_split
    ).output_shape
    starts = [raw_ops.SparseSplitOffset(axis, shape, num_split=num_split, index=part) for part in range(num_split)]
    return [slice(sp, start, size) for start, size in zip(starts, shapes, strict=True)]


def concat(axis: int, sp_inputs: Sequence[Any], expand_nonconcat_dims: bool = False) -> SparseTensor:
    """Concatenate tensors along `axis`, with entries in row-major order.

    With `expand_nonconcat_dims`, other dimensions may differ in length; the result has the longest.

    Examples
    --------
    >>> import rowgrad
    >>> sp = rowgrad.SparseTensor([[0, 1]], [5.0], [1, 2])
    >>> rowgrad.sparse.concat(1, [sp, sp]).indices.tolist()
    [[0, 1], [0, 3]]
    """
    if not isinstance(sp_inputs, list | tuple) or not sp_inputs:
        raise InvalidArgumentError(
            f"sp_inputs is {'empty' if isinstance(sp_inputs, list | tuple) else f'a {type(sp_inputs).__name__}'}; pass "
            "a list of one tensor or more.",
            code="not-a-list",
            argument="sp_inputs",
            value=type(sp_inputs).__name__,
        )
    tensors = [as_sparse(item, f"sp_inputs[{i}]") for i, item in enumerate(sp_inputs)]
    shapes = [np.array(sp.dense_shape, np.int64) for sp in tensors]
    if expand_nonconcat_dims:
        longest = np.max(shapes, axis=0)
        at = one_axis("axis", axis, len(longest))
        shapes = [np.where(np.arange(len(longest)) == at, shape, longest) for shape in shapes]
    if len(tensors) == 1:
        return SparseTensor(tensors[0].indices, tensors[0].values, shapes[0])
    first = tensors[0].values
    if kind_of(first) not in (arrays.TORCH, arrays.JAX):
        found = raw_ops.SparseConcat(
            [sp.indices for sp in tensors], [sp.values for sp in tensors], shapes, concat_dim=axis
        )
        return SparseTensor(found.output_indices, found.output_values, plain(found.output_shape))
    # Joined by the framework, and put in order by an operator, so that gradients pass.
    indices = tuple(plain(sp.indices).astype(np.int64) for sp in tensors)
    shape, offsets = _joined(indices, tuple(np.zeros(len(part), np.int8) for part in indices), tuple(shapes), axis)
    moved = []
    for part, offset in zip(indices, offsets, strict=True):
        part[:, axis] += offset
        moved.append(part)
    xp = module(first)
    values = xp.concatenate([sp.values for sp in tensors])
    return reorder(SparseTensor(as_kind(np.concatenate(moved), first), values, shape))


def fill_empty_rows(sp_input: Any, default_value: Any) -> tuple[SparseTensor, Any]:
    """Add an entry with `default_value` to every empty row, and return which rows were empty."""
    sp = as_sparse(sp_input)
    default: Any = default_value
    if kind_of(sp.values) is arrays.TORCH and arrays.kind_of(default) is not arrays.TORCH:
        default = module(sp.values).as_tensor(default, dtype=sp.values.dtype, device=sp.values.device)
    found = functions(sp.values).sparse_fill_empty_rows(sp.indices, sp.values, sizes_for(sp), default)
    return SparseTensor(found.output_indices, found.output_values, sp.dense_shape), found.empty_row_indicator


def eye(num_rows: int, num_columns: int | None = None, dtype: Any = "float32") -> SparseTensor:
    """A matrix with ones along its diagonal.

    Examples
    --------
    >>> import rowgrad
    >>> rowgrad.sparse.eye(2, 3).to_dense().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    rows = checks.count("num_rows", num_rows)
    columns = rows if num_columns is None else checks.count("num_columns", num_columns)
    entries = allocate((min(rows, columns), 2), np.int64, argument="num_rows")
    entries[:] = np.arange(len(entries))[:, None]
    kind = NUMPY[dtype] if isinstance(dtype, str) else np.dtype(dtype)
    return SparseTensor(entries, np.ones(len(entries), kind), (rows, columns))


def map_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> SparseTensor:
    """Apply `op` to the values of sparse tensors that have the same indices.

    Examples
    --------
    >>> import rowgrad
    >>> sp = rowgrad.SparseTensor([[0, 1], [2, 0]], [5.0, 7.0], [3, 2])
    >>> rowgrad.sparse.map_values(lambda x: x * 2, sp).values.tolist()
    [10.0, 14.0]
    """
    if not callable(op):
        raise DTypeError(
            f"op is a {type(op).__name__}; it must be a function of values.", code="wrong-dtype", argument="op",
            value=type(op).__name__,
        )  # fmt: skip
    tensors = [item for item in (*args, *kwargs.values()) if isinstance(item, SparseTensor)]
    if not tensors:
        raise InvalidArgumentError("there is no SparseTensor among the arguments.", code="not-sparse", argument="args")
    first = tensors[0]
    for other in tensors[1:]:
        if other.dense_shape != first.dense_shape or not np.array_equal(plain(other.indices), plain(first.indices)):
            raise InvalidArgumentError(
                "the tensors have different indices or shapes. Use `rowgrad.sparse.reorder`, or functions like add.",
                code="shape-mismatch",
                argument="args",
            )

    def values(item: Any) -> Any:
        return item.values if isinstance(item, SparseTensor) else item

    return first.with_values(op(*map(values, args), **{name: values(item) for name, item in kwargs.items()}))


def mask(a: Any, mask_indices: Any) -> RowGradient:
    """Remove the rows `mask_indices` from a compact gradient; `a` is a `RowGradient`, or rows and their ids."""
    if not isinstance(a, tuple) or len(a) != 2:
        raise DTypeError(
            f"a is a {type(a).__name__}; it must be a RowGradient, or rows and their ids.", code="wrong-dtype",
            argument="a", value=type(a).__name__,
        )  # fmt: skip
    rows, row_ids = a
    positions = np.flatnonzero(~np.isin(plain(row_ids), plain(mask_indices)))
    return RowGradient(take(rows, positions), take(ids(row_ids, rows), positions))
