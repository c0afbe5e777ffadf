"""`from_ragged`: the ids and offsets of whatever people keep rows of different lengths in.

Libraries are recognised by the type of what is passed, and none is imported: what they are asked for, they have.
"""

import sys
from typing import Any, NamedTuple

import numpy as np

from rowgrad._ops.ragged_sources import arrow_rows, jagged_rows, nulls_of, shown
from rowgrad._ops.ragged_tensor import RaggedTensor
from rowgrad._runtime import arrays
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfRangeError


class RaggedIds(NamedTuple):
    """Ids row after row, and where each row begins: row i is ids[offsets[i]:offsets[i + 1]]."""

    ids: Any
    offsets: Any


def from_ragged(x: Any) -> RaggedIds:
    """Return the ids of all rows, one after the other, and the start of each row.

    Nothing is copied if the values are contiguous already: in one chunk of pyarrow, polars or an Arrow column of
    pandas, in a CSR matrix, a jagged tensor or a matrix. Offsets have the type of the ids.

    Parameters
    ----------
    x : rows of ids
        Lists of lists or of arrays; a list column of pyarrow (chunked, large, of fixed size, with nulls,
        dictionary-encoded), polars or pandas; a `RaggedTensor`, a `tf.RaggedTensor`, a jagged nested tensor of PyTorch,
        a CSR matrix of SciPy (its columns are the ids, and its `data` may be weights); or a matrix, whose rows have
        one length. A null in place of a row is an empty row.

    Returns
    -------
    ids : int32 or int64, shape [N]
        A tensor for PyTorch and TensorFlow tensors, otherwise a NumPy array; read-only if it shares memory with x.
        Smaller and unsigned integers become int64.
    offsets : of the same type, shape [rows + 1]
        The first is 0, the last N.

    Raises
    ------
    DTypeError
        The values are not whole numbers.
    InvalidArgumentError
        Ids are null, rows are nested deeper, or x has no rows.

    Examples
    --------
    >>> import rowgrad
    >>> ids, offsets = rowgrad.from_ragged([[5, 3], [], [8]])
    >>> ids.tolist(), offsets.tolist()
    ([5, 3, 8], [0, 2, 2, 3])
    """
    kind = arrays.kind_of(x)
    library = type(x).__module__.partition(".")[0]
    if isinstance(x, RaggedTensor):
        return _checked(_one_level(x.values), x.row_splits)
    if kind is arrays.TORCH:
        return _of_torch(x)
    if kind is arrays.TENSORFLOW and hasattr(x, "row_splits"):
        return _checked(_one_level(x.values), x.row_splits)
    if library == "polars" and hasattr(x, "to_arrow"):
        return _of_arrow(x.to_arrow())
    if library == "pandas" and hasattr(x, "array"):
        return _of_arrow(x.array.__arrow_array__()) if hasattr(x.array, "__arrow_array__") else _of_lists(x.tolist())
    if library == "pyarrow" and hasattr(x, "type"):
        return _of_arrow(x)
    if library == "scipy" and hasattr(x, "tocsr"):
        return _of_scipy(x)
    if isinstance(x, list | tuple) or (kind is arrays.NUMPY and x.dtype == object and x.ndim == 1):
        return _of_lists(list(x))
    if kind is not None and getattr(x, "ndim", 0) == 2:
        return _of_matrix(x)
    raise _no_rows(x)


def _of_lists(rows: list[Any]) -> RaggedIds:
    lengths, parts = [], []
    for position, row in enumerate(rows):
        if row is None or row is np.nan or type(row).__name__ == "NAType":
            lengths.append(0)
            continue
        part = np.asarray(row)
        if part.ndim != 1 or (part.dtype == object and part.size):
            raise InvalidArgumentError(
                f"x[{position}] is {shown(row)}; it must be a list of ids. Flatten it, or drop what is missing in it.",
                code="wrong-rank",
                argument="x",
                position=position,
            )
        lengths.append(part.size)
        if part.size:
            parts.append(part)
    ids = np.concatenate(parts) if parts else np.empty(0, np.int64)
    return _checked(ids, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))


def _of_matrix(x: Any) -> RaggedIds:
    rows, columns = x.shape
    ids = x.reshape(-1) if arrays.kind_of(x) is arrays.TORCH else arrays.adopt(x).reshape(-1)
    return _checked(ids, np.arange(rows + 1, dtype=np.int64) * columns)


def _of_torch(x: Any) -> RaggedIds:
    if not x.is_nested:
        if x.dim() != 2:
            raise _no_rows(x)
        return _of_matrix(x)
    values, offsets = jagged_rows("x", x)
    if values.dim() != 1:
        raise InvalidArgumentError(
            "x is a jagged tensor with further dimensions. Flatten it.", code="bad-layout", argument="x"
        )
    return _checked(values, offsets)


def _of_scipy(x: Any) -> RaggedIds:
    if x.format != "csr":
        raise InvalidArgumentError(
            f"x is a sparse matrix of the format {x.format}. Pass x.tocsr().", code="bad-layout", argument="x"
        )
    return _checked(x.indices, x.indptr)


# Arrow


def _of_arrow(x: Any) -> RaggedIds:
    return _arrow_ids(*arrow_rows("x", x))


def _arrow_ids(values: Any, splits: Array) -> RaggedIds:
    if values.null_count:
        position = int(nulls_of(values).argmax())
        raise InvalidArgumentError(
            f"{values.null_count} ids are null, the first at {position}. Drop them, or fill them with an id.",
            code="has-nulls",
            argument="x",
            position=position,
        )
    if hasattr(values, "dictionary_decode"):
        values = values.dictionary_decode()
    if hasattr(values, "flatten") and hasattr(values, "values"):
        raise _too_deep()
    text = str(values.type)
    if "string" in text or "binary" in text:
        raise DTypeError(
            f"the values of x are {text}; ids are whole numbers. Hash them, with "
            "rowgrad.features.string_to_hash_bucket_fast, or look them up, with rowgrad.features.vocabulary_lookup.",
            code="wrong-dtype",
            argument="x",
            value=text,
        )
    return _checked(values.to_numpy(zero_copy_only=False), splits)


# What all have to be


def _one_level(values: Any) -> Any:
    if isinstance(values, RaggedTensor) or hasattr(values, "row_splits"):
        raise _too_deep()
    return values


def _checked(ids: Any, splits: Any) -> RaggedIds:
    ids = _whole(ids)
    kind = arrays.kind_of(ids)
    if kind is not None and kind is not arrays.NUMPY:
        if not str(ids.dtype).strip("<>'").endswith(("int32", "int64")) or "uint" in str(ids.dtype):
            ids = ids.long() if kind is arrays.TORCH else sys.modules["tensorflow"].cast(ids, "int64")
        return RaggedIds(ids, _offsets_like(ids, splits))
    if ids.dtype not in (np.int32, np.int64):
        if ids.dtype == np.uint64 and ids.size and ids.max() > np.iinfo(np.int64).max:
            raise OutOfRangeError(
                f"an id is {ids.max()}, more than int64 holds.", code="index-out-of-range", argument="x"
            )
        ids = ids.astype(np.int64)
    if splits[-1] > np.iinfo(ids.dtype).max:
        ids = ids.astype(np.int64)  # more of them than their type can count
    return RaggedIds(ids, np.asarray(splits).astype(ids.dtype, copy=False))


def _whole(ids: Any) -> Any:
    name = str(ids.dtype)
    if "int" not in name or getattr(ids, "ndim", 1) != 1:
        raise DTypeError(
            f"the values of x are {name}; ids are whole numbers. Convert them first.",
            code="wrong-dtype",
            argument="x",
            value=name,
        )
    return ids


def _offsets_like(ids: Any, splits: Any) -> Any:
    """Offsets in the kind and type of the ids of a framework."""
    kind = arrays.kind_of(ids)
    if kind is arrays.TORCH:
        return sys.modules["torch"].as_tensor(splits, dtype=ids.dtype, device=ids.device)
    if kind is arrays.TENSORFLOW:
        return sys.modules["tensorflow"].cast(splits, ids.dtype)
    return splits


def _too_deep() -> InvalidArgumentError:
    return InvalidArgumentError(
        "x has rows inside rows; ids and offsets have one level. Flatten the inner rows first.",
        code="wrong-rank",
        argument="x",
    )


def _no_rows(x: Any) -> InvalidArgumentError:
    shape = f" of shape {list(x.shape)}" if hasattr(x, "shape") else ""
    return InvalidArgumentError(
        f"x is a {type(x).__name__}{shape}, which has no rows. Pass lists of ids, a list column, a ragged or jagged "
        "tensor, a CSR matrix or a matrix of ids.",
        code="not-ragged",
        argument="x",
        value=type(x).__name__,
    )
