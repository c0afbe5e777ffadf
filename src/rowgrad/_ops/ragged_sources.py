"""What rows of different lengths come from: nested lists, columns of Arrow, jagged tensors, vectors of lengths.

Each is checked and taken apart into values and row splits; `RaggedTensor` and `from_ragged` put them together.
Libraries are recognised by what an object has, and none is imported.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rowgrad._ops import checks
from rowgrad._runtime import arrays
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfRangeError


def whole_vector(argument: str, given: Any) -> Array:
    """A vector of whole numbers, as int64."""
    kind = arrays.kind_of(given)
    array = arrays.adopt_as(argument, given.detach().cpu() if kind is arrays.TORCH else given)
    if array.dtype.kind not in "iu" and (array.size or array.ndim == 0):
        raise DTypeError(
            f"{argument} is {array.dtype.name}; it must be int32 or int64.",
            code="wrong-dtype",
            argument=argument,
            value=array.dtype.name,
        )
    checks.rank(argument, array, 1)
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        position = int(array.argmax())
        raise OutOfRangeError(
            f"{argument}[{position}] is {array[position]}, more than int64 holds.",
            code="index-out-of-range",
            argument=argument,
            position=position,
            value=int(array[position]),
        )
    return array.astype(np.int64, copy=False)


def splits_of_lengths(argument: str, row_lengths: Any, values: int) -> Array:
    """The row splits of rows of these lengths, which `values` values fill."""
    lengths = whole_vector(argument, row_lengths)
    wrong = lengths < 0
    if wrong.any():
        position = int(wrong.argmax())
        raise OutOfRangeError(
            f"{argument}[{position}] is {lengths[position]}; lengths are 0 or more.",
            code="negative-size",
            argument=argument,
            position=position,
            value=int(lengths[position]),
        )
    splits = np.concatenate([[0], np.cumsum(lengths)])
    total = int(splits[-1]) if (splits[1:] >= splits[:-1]).all() else "more than int64 holds"
    if total != values:
        raise InvalidArgumentError(
            f"{argument} adds up to {total}, but there are {values} values; both must be the same. Pass the length of "
            "each row of these values.",
            code="bad-offsets",
            argument=argument,
            value=total,
        )
    return splits


def nested_lists(rows: Any, dtype: Any) -> tuple[Array, list[Array]]:
    """The innermost values of nested lists, and the row splits of each level, outermost first."""
    nested: list[Array] = []
    items = list(_listed(rows))
    while not nested or any(isinstance(item, list | tuple) for item in items):
        for position, row in enumerate(items):
            if not isinstance(row, list | tuple | np.ndarray) or (isinstance(row, np.ndarray) and row.ndim == 0):
                raise _not_a_row(len(nested), position, row)
        nested.append(np.cumsum([0, *map(len, items)]))
        items = [item for row in items for item in row]
    return _innermost(items, dtype), nested


def _listed(rows: Any) -> Sequence[Any]:
    if isinstance(rows, str | bytes | dict) or not hasattr(rows, "__iter__"):
        raise InvalidArgumentError(
            f"rows is {shown(rows)}; it must be a list of rows.", code="wrong-type", argument="rows"
        )
    return rows  # type: ignore[no-any-return]


def _not_a_row(level: int, position: int, row: Any) -> InvalidArgumentError:
    where = f"rows[{position}]" if level == 0 else f"item {position} of level {level + 1} of rows"
    return InvalidArgumentError(
        f"{where} is {shown(row)}; it must be a list, as others of its level are. Lists must be nested equally deep.",
        code="wrong-rank",
        argument="rows",
        position=position,
        value=type(row).__name__,
    )


def _innermost(items: list[Any], dtype: Any) -> Array:
    if not items and dtype is None:
        return np.empty(0, np.float32)
    try:
        found = np.array(items)
        typed = found if dtype is None else np.array(items, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"the values of rows cannot be read as an array ({error}). Pass values of one type that dtype can hold.",
            code="not-an-array",
            argument="rows",
        ) from error
    if found.dtype.kind in "fc" and typed.dtype.kind in "iub":
        raise DTypeError(
            f"the values of rows are {found.dtype.name}, which {typed.dtype.name} cannot hold exactly. "
            "Leave out dtype, or convert them.",
            code="wrong-dtype",
            argument="rows",
            value=found.dtype.name,
        )
    if dtype is None and found.dtype == object and not all(isinstance(item, str | bytes) for item in items):
        raise DTypeError(
            f"the values of rows are of no type of arrays ({type(items[0]).__name__}). Pass numbers or text, without "
            "missing ones.",
            code="wrong-dtype",
            argument="rows",
            value=type(items[0]).__name__,
        )
    return typed


def arrow_rows(argument: str, column: Any) -> tuple[Any, Array]:
    """The values of all rows of a list column of pyarrow, and their row splits. A row that is null is empty.

    Values are not copied if the column is in one piece, without nulls.
    """
    if not hasattr(column, "validate") or not hasattr(column, "type"):
        raise InvalidArgumentError(
            f"{argument} is a {type(column).__name__}. Pass a list column.",
            code="wrong-type",
            argument=argument,
            value=type(column).__name__,
        )
    if hasattr(column, "combine_chunks"):  # a column in chunks: one is taken as it is
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if hasattr(column, "dictionary_decode"):  # rows that occur often are stored once
        column = column.dictionary_decode()
    _check_buffers(argument, column)
    if not hasattr(column, "flatten") or not hasattr(column, "values"):
        raise InvalidArgumentError(
            f"{argument} is a column of {column.type}, which has no rows. Pass a list column.",
            code="not-ragged",
            argument=argument,
        )
    if hasattr(column.type, "list_size"):
        lengths = np.full(len(column), column.type.list_size, np.int64)
    elif column.null_count or hasattr(column, "sizes"):
        # `flatten` leaves out what lies under nulls, and what a view does not show.
        sizes = column.sizes if hasattr(column, "sizes") else column.value_lengths().fill_null(0)
        lengths = np.array(sizes.to_numpy(zero_copy_only=False), np.int64)
    else:
        splits = column.offsets.to_numpy()
        first, last = int(splits[0]), int(splits[-1])
        return column.values.slice(first, last - first), splits - first if first else splits
    if column.null_count:
        lengths[nulls_of(column)] = 0
    return column.flatten(), np.concatenate([[0], np.cumsum(lengths)])


def _check_buffers(argument: str, column: Any) -> None:
    """Offsets that came from a damaged file would lead out of the values: pyarrow believes them."""
    try:
        column.validate(full=True)
    except ValueError as error:
        raise InvalidArgumentError(
            f"{argument} is damaged: {error}. Write it again.", code="bad-offset", argument=argument
        ) from error


def nulls_of(column: Any) -> Array:
    """Which values of a column of pyarrow are null."""
    found: Array = column.is_null().to_numpy(zero_copy_only=False)
    return found


def jagged_rows(argument: str, tensor: Any) -> tuple[Any, Any]:
    """The values and offsets of a nested tensor of PyTorch."""
    if not getattr(tensor, "is_nested", False):
        raise InvalidArgumentError(
            f"{argument} is a {type(tensor).__name__} that is not nested. Pass a jagged nested tensor.",
            code="wrong-type",
            argument=argument,
            value=type(tensor).__name__,
        )
    if "jagged" not in str(tensor.layout):
        raise InvalidArgumentError(
            f"{argument} is a nested tensor of the strided layout. Make it with layout=torch.jagged.",
            code="bad-layout",
            argument=argument,
        )
    if tensor.lengths() is not None:
        raise InvalidArgumentError(
            f"{argument} is a jagged tensor with gaps. Call .contiguous().", code="bad-layout", argument=argument
        )
    return tensor.values(), tensor.offsets()


def shown(value: Any) -> str:
    """A value for an error: not all of it if it is long."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
