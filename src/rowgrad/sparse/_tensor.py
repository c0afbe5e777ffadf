"""`SparseTensor`: indices, values and a shape; made of those of other libraries, checked, printed, converted."""

from typing import Any

import numpy as np

from rowgrad._ops import checks
from rowgrad._ops.sparse_groups import outside, sizes_of
from rowgrad._runtime import arrays, dtypes, notebooks
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.sparse._kinds import LARGEST, as_kind, functions, ids, kind_of, module, plain

SHOWN = 8  # entries that are printed before some are left out


class SparseTensor:
    """A tensor that stores only some entries; the others are 0.

    Parameters
    ----------
    indices : array of int64, [N, rank]
        The index of each entry. Most operators need unique indices in ascending order (see `reorder`).
    values : array, [N]
        The value of each entry: an array of NumPy, PyTorch, JAX or TensorFlow.
    dense_shape : sequence of int
        The shape of the tensor.

    Examples
    --------
    >>> import rowgrad
    >>> print(rowgrad.SparseTensor([[0, 1], [2, 0]], [5.0, 7.0], [3, 2]))
    SparseTensor of shape [3, 2], 2 entries of float32
    index   | value
    [0, 1]  | 5.0
    [2, 0]  | 7.0
    """

    __slots__ = ("dense_shape", "indices", "values")

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        if arrays.kind_of(values) is None:
            values = _listed(values)
        self.values = values
        self.indices = ids(indices, values)
        self.dense_shape = _sizes(dense_shape)
        found = tuple(self.indices.shape)
        if len(found) == 1 and found[0] == 0:
            self.indices = self.indices.reshape(0, len(self.dense_shape))
            found = tuple(self.indices.shape)
        if len(found) != 2:
            raise InvalidArgumentError(
                f"indices has shape {list(found)}; it must be a matrix (2 dimensions). Reshape it.",
                code="wrong-rank", argument="indices", value=found,
            )  # fmt: skip
        if len(values.shape) != 1:
            raise InvalidArgumentError(
                f"values has shape {list(values.shape)}; it must be a vector (1 dimension). Reshape it.",
                code="wrong-rank", argument="values", value=tuple(values.shape),
            )  # fmt: skip
        checks.same_length("values", int(values.shape[0]), "indices", int(found[0]))
        checks.same_length("dense_shape", len(self.dense_shape), "a row of indices", int(found[1]))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return self.dense_shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.dense_shape)

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return self.values.dtype

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def with_values(self, values: Any) -> "SparseTensor":
        """Return a tensor with the same indices and other values."""
        return SparseTensor(self.indices, values, self.dense_shape)

    def check(self) -> "SparseTensor":
        """Raise an error unless every index is within the shape, indices ascend and none occurs twice.

        Examples
        --------
        >>> import rowgrad
        >>> rowgrad.SparseTensor([[1], [0]], [5.0, 7.0], [2]).check()
        Traceback (most recent call last):
            ...
        rowgrad.errors.InvalidArgumentError: indices[1] is [0], which belongs before [1]; indices must ascend, and none
        may occur twice. Use `rowgrad.sparse.reorder`.
        """
        indices = plain(self.indices).astype(np.int64, copy=False)
        shape = sizes_of("dense_shape", np.array(self.dense_shape, np.int64))
        if ((indices < 0) | (indices >= np.array(shape, np.int64).reshape(1, -1))).any():
            raise outside("indices", indices, shape, range(len(shape)), "dense_shape")
        for entry in range(1, len(indices)):
            before, here = indices[entry - 1].tolist(), indices[entry].tolist()
            if here <= before:
                what = "the same as the one before it" if here == before else f"which belongs before {before}"
                raise InvalidArgumentError(
                    f"indices[{entry}] is {here}, {what}; indices must ascend, and none\nmay occur twice. Use "
                    "`rowgrad.sparse.reorder`.",
                    code="repeated-index" if here == before else "unsorted-indices",
                    argument="indices",
                    position=entry,
                    value=tuple(here),
                )
        return self

    # Conversions

    def to_dense(self, default_value: Any = 0, *, validate_indices: bool = True) -> Any:
        """Convert to a dense tensor, of the kind of the values (see `rowgrad.sparse.to_dense`)."""
        from rowgrad.sparse._convert import to_dense

        return to_dense(self, default_value, validate_indices=validate_indices)

    @classmethod
    def from_dense(cls, tensor: Any) -> "SparseTensor":
        """Convert the nonzero elements of a dense tensor (see `rowgrad.sparse.from_dense`)."""
        from rowgrad.sparse._convert import from_dense

        return from_dense(tensor)

    def to_scipy(self, format: str = "coo") -> Any:
        """Convert to a SciPy matrix of two dimensions: ``coo``, ``csr`` or another of its formats."""
        import scipy.sparse  # type: ignore[import-untyped, unused-ignore]

        if self.ndim != 2:
            raise InvalidArgumentError(
                f"dense_shape is {list(self.dense_shape)}; SciPy's matrices have 2 dimensions. Reshape the tensor.",
                code="wrong-rank",
                argument="dense_shape",
                value=self.dense_shape,
            )
        indices = plain(self.indices)
        made = scipy.sparse.coo_matrix((plain(self.values), (indices[:, 0], indices[:, 1])), shape=self.dense_shape)
        return made.asformat(format)

    def to_torch(self, layout: str = "coo") -> Any:
        """Convert to a sparse tensor of PyTorch, ``coo`` or ``csr``; differentiable if the values are PyTorch's."""
        import torch

        try:
            values = self.values if kind_of(self.values) is arrays.TORCH else torch.as_tensor(plain(self.values))
            indices = as_kind(plain(self.indices), values)
            made = torch.sparse_coo_tensor(indices.t(), values, self.dense_shape, check_invariants=True)
        except (RuntimeError, TypeError) as error:
            raise InvalidArgumentError(
                f"PyTorch makes no sparse tensor of these entries: {str(error).splitlines()[0]}.",
                code="bad-entries", argument="dense_shape", value=self.dense_shape,
            ) from error  # fmt: skip
        return made if layout == "coo" else made.coalesce().to_sparse_csr()

    def to_jax(self) -> Any:
        """Convert to a `jax.experimental.sparse.BCOO`."""
        from jax.experimental import sparse

        values = self.values if kind_of(self.values) is arrays.JAX else module_of_jax().asarray(plain(self.values))
        return sparse.BCOO((values, module_of_jax().asarray(self.indices if kind_of(self.indices) is arrays.JAX
                                                            else plain(self.indices))),
                           shape=self.dense_shape)  # fmt: skip

    # Printing

    def __repr__(self) -> str:
        return (
            f"SparseTensor(dense_shape={list(self.dense_shape)}, entries={len(self)}, dtype={_type_name(self.values)})"
        )

    def _repr_html_(self) -> str:
        title, *lines = str(self).splitlines()
        return notebooks.table(title, ["index", "value"], [line.split(" | ", 1) for line in lines[1:]])

    def __str__(self) -> str:
        count = len(self)
        lines = [f"SparseTensor of shape {list(self.dense_shape)}, {count} entr{'y' if count == 1 else 'ies'} of "
                 f"{_type_name(self.values)}"]  # fmt: skip
        try:
            indices, values = plain(self.indices).tolist(), plain(self.values).tolist()
        except Exception:  # traced arrays have no values yet
            return lines[0]
        rows = [(str(index), str(value)) for index, value in zip(indices, values, strict=True)]
        if count > SHOWN:
            rows = [*rows[: SHOWN // 2], ("…", "…"), *rows[count - SHOWN // 2 :]]
        width = max([7, *(len(index) + 1 for index, _ in rows)])
        return "\n".join(
            [*lines, f"{'index':{width}} | value", *(f"{index:{width}} | {value}" for index, value in rows)]
        )


def module_of_jax() -> Any:
    """`jax.numpy`."""
    import jax.numpy

    return jax.numpy


def _type_name(values: Any) -> str:
    name = str(values.dtype).removeprefix("torch.")
    return dtypes.name_of(values.dtype) if isinstance(values, np.ndarray) else name


def _listed(values: Any) -> Array:
    """A list gets the type that it has in TensorFlow: whole numbers int32, others float32."""
    array = arrays.adopt(values)
    if array.dtype == np.float64 or array.size == 0:
        return array.astype(np.float32)
    return array.astype(np.int32) if array.dtype == np.int64 and _is_small(array) else array


def _is_small(array: Array) -> bool:
    limits = np.iinfo(np.int32)
    return bool(limits.min <= array.min() and array.max() <= limits.max)


# What other libraries have


def as_sparse(value: Any, name: str = "sp_input") -> SparseTensor:
    """`value` as a `SparseTensor`, without a copy of its values where none is needed."""
    if isinstance(value, SparseTensor):
        return value
    if hasattr(value, "indices") and hasattr(value, "values") and hasattr(value, "dense_shape"):
        return SparseTensor(value.indices, value.values, plain(value.dense_shape))  # TensorFlow's
    kind = type(value).__module__.partition(".")[0]
    if kind == "torch" and value.layout is not _layout("strided"):
        return _of_torch(value)
    if hasattr(value, "tocoo"):
        entries = value.tocoo()
        indices = np.stack([entries.row, entries.col], axis=1).astype(np.int64)
        return SparseTensor(indices, entries.data, entries.shape)
    if hasattr(value, "data") and hasattr(value, "indices") and kind == "jax":
        if value.n_batch or value.n_dense:
            raise InvalidArgumentError(
                f"{name} has dimensions that are dense or batched, which this does not take. Use `bcoo_update_layout`.",
                code="wrong-rank",
                argument=name,
            )
        return SparseTensor(value.indices, value.data, value.shape)
    if isinstance(value, tuple) and len(value) == 3:
        return SparseTensor(*value)
    raise DTypeError(
        f"{name} is a {type(value).__name__}; it must be a sparse tensor. Use `rowgrad.sparse.from_dense`.",
        code="not-sparse",
        argument=name,
        value=type(value).__name__,
    )


def _sizes(dense_shape: Any) -> tuple[int, ...]:
    """The lengths of the dimensions, as Python's numbers."""
    shape = dense_shape if isinstance(dense_shape, tuple | list) else plain(dense_shape).tolist()
    try:
        found = tuple(int(size) for size in shape)
    except (TypeError, ValueError, OverflowError):
        found = (-1,)
    if not all(0 <= size <= LARGEST for size in found):
        raise InvalidArgumentError(
            f"dense_shape is {dense_shape!r}; it must have a whole number from 0 to 2**63 - 1 for each dimension.",
            code="bad-shape", argument="dense_shape", value=str(dense_shape),
        )  # fmt: skip
    return found


def is_sparse(value: Any) -> bool:
    """Whether `as_sparse` takes it."""
    try:
        as_sparse(value)
    except (DTypeError, InvalidArgumentError):
        return False
    return True


def _layout(name: str) -> Any:
    import torch

    return getattr(torch, name)


def _of_torch(value: Any) -> SparseTensor:
    if value.layout is _layout("sparse_coo"):
        indices, values = (
            (value.indices(), value.values()) if value.is_coalesced() else (value._indices(), value._values())
        )
        return SparseTensor(indices.t().contiguous(), values, value.shape)
    if value.layout is _layout("sparse_csr"):
        torch = module(value)
        crow = value.crow_indices()
        rows = torch.repeat_interleave(torch.arange(crow.numel() - 1, device=crow.device), crow[1:] - crow[:-1])
        return SparseTensor(torch.stack([rows, value.col_indices()], dim=1), value.values(), value.shape)
    return _of_torch(value.to_sparse_coo())


def sizes_for(tensor: SparseTensor) -> Any:
    """The shape as operators take it."""
    return list(tensor.dense_shape) if functions(tensor.values).__name__ != "rowgrad" else np.array(tensor.dense_shape)
