"""Ragged tensors as people hold them: rows of different lengths, nested to any depth, of any framework's arrays.

What is computed here is worked out from the row splits in NumPy; values of PyTorch and JAX are only taken by position,
so that gradients flow to them.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rowgrad._ops import checks
from rowgrad._ops.catalogue import OPERATORS
from rowgrad._ops.ragged_sources import arrow_rows, jagged_rows, nested_lists, splits_of_lengths, whole_vector
from rowgrad._ops.ragged_splits import check_splits, row_ids
from rowgrad._ops.results import RaggedEntries
from rowgrad._runtime import arrays
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.memory import check_fits
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfRangeError


class RaggedTensor:
    """Rows of different lengths: row i is values[row_splits[i]:row_splits[i + 1]].

    Parameters
    ----------
    values : array or RaggedTensor
        The values, row after row: a NumPy, PyTorch, JAX or TensorFlow array; or a ragged tensor, for nested rows.
    row_splits : int32 or int64, shape [rows + 1]
        Where each row begins, and where the last one ends.

    Raises
    ------
    InvalidArgumentError
        The row splits do not begin with 0, decrease, or do not end with the number of values.

    Examples
    --------
    >>> import rowgrad
    >>> words = rowgrad.RaggedTensor([5, 3, 8], [0, 2, 2, 3])
    >>> words
    RaggedTensor([[5, 3], [], [8]], dtype=int64)
    >>> words.to_dense(default_value=-1).tolist()
    [[5, 3], [-1, -1], [8, -1]]
    >>> words[0].tolist(), len(words)
    ([5, 3], 3)
    """

    __slots__ = ("row_splits", "values")

    values: Any
    row_splits: Array

    def __init__(self, values: Any, row_splits: Any) -> None:
        self.values = _with_rows(values)
        self.row_splits = check_splits("row_splits", whole_vector("row_splits", row_splits), len(self.values))

    # Other ways to make one

    @classmethod
    def from_list(cls, rows: Sequence[Any], *, dtype: Any = None) -> "RaggedTensor":
        """Make one from nested lists; the innermost lists are the rows of values, and may be arrays.

        Examples
        --------
        >>> import rowgrad
        >>> rowgrad.RaggedTensor.from_list([[[1], [2, 3]], []]).nested_row_splits
        (array([0, 2, 2]), array([0, 1, 3]))
        """
        values, (*outer, innermost) = nested_lists(rows, dtype)
        found = cls(values, innermost)
        for splits in reversed(outer):
            found = cls(found, splits)
        return found

    @classmethod
    def from_row_lengths(cls, values: Any, row_lengths: Any) -> "RaggedTensor":
        """Make one from the length of each row.

        Examples
        --------
        >>> import rowgrad
        >>> rowgrad.RaggedTensor.from_row_lengths([1, 2, 3], [2, 0, 1]).to_list()
        [[1, 2], [], [3]]
        """
        values = _with_rows(values)
        return cls(values, splits_of_lengths("row_lengths", row_lengths, len(values)))

    @classmethod
    def from_offsets(cls, values: Any, offsets: Any) -> "RaggedTensor":
        """Make one from the start of each row, as for PyTorch's EmbeddingBag; the last row ends with the values."""
        values = _with_rows(values)
        starts = np.append(whole_vector("offsets", offsets), len(values))
        return cls(values, check_splits("offsets", starts, len(values)))

    @classmethod
    def from_value_rowids(cls, values: Any, value_rowids: Any, nrows: int | None = None) -> "RaggedTensor":
        """Make one from the row of each value; rows must not decrease.

        Examples
        --------
        >>> import rowgrad
        >>> rowgrad.RaggedTensor.from_value_rowids([1, 2, 3], [0, 0, 2]).to_list()
        [[1, 2], [], [3]]
        """
        return cls(values, _splits_of_ids("value_rowids", value_rowids, "nrows", nrows))

    @classmethod
    def from_arrow(cls, array: Any) -> "RaggedTensor":
        """Make one from a pyarrow list array, without copying its values if there are no nulls."""
        if getattr(array, "null_count", 0):
            raise InvalidArgumentError(
                f"the array has {array.null_count} nulls, which are not rows. Fill them with empty lists first.",
                code="has-nulls",
                argument="array",
            )
        inner, splits = arrow_rows("array", array)
        if hasattr(inner, "dictionary_decode"):
            inner = inner.dictionary_decode()
        if hasattr(inner, "flatten") and hasattr(inner, "values"):
            return cls(cls.from_arrow(inner), splits)
        values = inner.to_numpy(zero_copy_only=False)
        if values.dtype == object and not ("string" in str(inner.type) or "binary" in str(inner.type)):
            raise DTypeError(
                f"the values of the array are {inner.type}, of which there are no arrays. Pass numbers or text.",
                code="wrong-dtype",
                argument="array",
                value=str(inner.type),
            )
        return cls(values, splits)

    @classmethod
    def from_polars(cls, series: Any) -> "RaggedTensor":
        """Make one from a polars list column."""
        return cls.from_arrow(series.to_arrow() if hasattr(series, "to_arrow") else series)

    @classmethod
    def from_tensorflow(cls, tensor: Any) -> "RaggedTensor":
        """Make one from a `tf.RaggedTensor`."""
        if not hasattr(tensor, "row_splits") or not hasattr(tensor, "values"):
            raise InvalidArgumentError(
                f"tensor is a {type(tensor).__name__}. Pass a tf.RaggedTensor.",
                code="wrong-type",
                argument="tensor",
                value=type(tensor).__name__,
            )
        values = tensor.values
        return cls(cls.from_tensorflow(values) if hasattr(values, "row_splits") else values, tensor.row_splits.numpy())

    @classmethod
    def from_torch(cls, tensor: Any) -> "RaggedTensor":
        """Make one from a PyTorch nested tensor in the jagged layout."""
        return cls(*jagged_rows("tensor", tensor))

    # What it is

    def __len__(self) -> int:
        return self.row_splits.size - 1

    @property
    def nested_row_splits(self) -> tuple[Array, ...]:
        """The row splits of each ragged dimension, outermost first."""
        inner = self.values.nested_row_splits if isinstance(self.values, RaggedTensor) else ()
        return (self.row_splits, *inner)

    @property
    def flat_values(self) -> Any:
        """The innermost values."""
        return self.values.flat_values if isinstance(self.values, RaggedTensor) else self.values

    @property
    def ragged_rank(self) -> int:
        """The number of ragged dimensions."""
        return len(self.nested_row_splits)

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return self.flat_values.dtype

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape, with None for each ragged dimension."""
        return (len(self), *[None] * self.ragged_rank, *map(int, self.flat_values.shape[1:]))

    def row_lengths(self) -> Array:
        """The length of each row."""
        return np.diff(self.row_splits)

    def value_rowids(self) -> Array:
        """The row of each value."""
        return row_ids(self.row_splits)

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: Any) -> Any:
        """A row; or, for a slice or an array of rows, a ragged tensor of them."""
        if isinstance(row, slice):
            return self.gather(np.arange(len(self))[row])
        if not isinstance(row, int | np.integer):
            return self.gather(row)
        at = int(row) + (len(self) if row < 0 else 0)
        if not 0 <= at < len(self):
            raise OutOfRangeError(
                f"row {row} is out of range; there are {len(self)} rows.", code="index-out-of-range", value=int(row)
            )
        return self.values[int(self.row_splits[at]) : int(self.row_splits[at + 1])]

    def gather(self, rows: Any) -> "RaggedTensor":
        """Select rows by number, in this order: TensorFlow's RaggedGather.

        Examples
        --------
        >>> import rowgrad
        >>> rowgrad.RaggedTensor([5, 3, 8], [0, 2, 2, 3]).gather([2, 0, 2]).to_list()
        [[8], [5, 3], [8]]
        """
        indices = whole_vector("rows", rows)
        wrong = (indices < 0) | (indices >= len(self))
        if wrong.any():
            position = int(wrong.argmax())
            raise OutOfRangeError(
                f"rows[{position}] is {int(indices[position])}; "
                + (f"allowed: 0 to {len(self) - 1}." if len(self) else "there are no rows."),
                code="index-out-of-range",
                argument="rows",
                position=position,
                value=int(indices[position]),
            )
        lengths = self.row_lengths()[indices]
        splits = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(int(splits[-1])) + np.repeat(self.row_splits[:-1][indices] - splits[:-1], lengths)
        if isinstance(self.values, RaggedTensor):
            return RaggedTensor(self.values.gather(places), splits)
        return RaggedTensor(_taken(self.values, places), splits)

    def with_values(self, values: Any) -> "RaggedTensor":
        """Return a tensor with the same row splits and other innermost values."""
        if isinstance(self.values, RaggedTensor):
            return RaggedTensor(self.values.with_values(values), self.row_splits)
        return RaggedTensor(values, self.row_splits)

    # What it becomes

    def to_list(self) -> list[Any]:
        """Convert to nested lists."""
        items = self.values.to_list() if isinstance(self.values, RaggedTensor) else _plain(self.values).tolist()
        stops = self.row_splits.tolist()
        return [items[begin:end] for begin, end in pairwise(stops)]

    def to_dense(self, default_value: Any = 0, shape: Sequence[int | None] | None = None) -> Any:
        """Convert to a dense array, with rows padded with `default_value`, or truncated if `shape` is smaller.

        It is differentiable if the values are PyTorch's.
        """
        sizes = [] if shape is None else [-1 if size is None else checks.count("shape", size, -1) for size in shape]
        wanted = np.array(-1 if shape is None else sizes, np.int64)
        nested = self.nested_row_splits
        kinds = ["ROW_SPLITS"] * len(nested)
        operator, flat = OPERATORS["RaggedTensorToTensor"], self.flat_values
        if arrays.kind_of(flat) is not arrays.TORCH:
            default = np.asarray(default_value)
            typed = default if default.dtype.kind in "USO" else default.astype(_plain(flat).dtype)
            found = operator(wanted, _plain(flat), typed, list(nested), row_partition_types=kinds)
            return arrays.kind_of(flat).hand_back(found)  # type: ignore[union-attr]
        positions = self._positions(wanted, kinds)
        torch = sys.modules["torch"]
        filled = torch.cat([flat.new_full((1, *flat.shape[1:]), default_value), flat])
        return filled[torch.from_numpy(positions).to(flat.device)]

    def _positions(self, shape: Array, kinds: list[str]) -> Array:
        """Which value stands where, from 1, with 0 for none; inner dimensions are not looked at."""
        ragged_sizes = shape if shape.ndim == 0 else shape[: self.ragged_rank + 1]
        numbers = np.arange(1, len(self.flat_values) + 1)
        found: Array = OPERATORS["RaggedTensorToTensor"](
            ragged_sizes, numbers, np.int64(0), list(self.nested_row_splits), row_partition_types=kinds
        )
        return found

    def to_sparse(self) -> RaggedEntries:
        """Convert to a sparse tensor: indices, values and shape."""
        found: RaggedEntries = OPERATORS["RaggedTensorToSparse"](list(self.nested_row_splits), _plain(self.flat_values))
        return found

    def to_arrow(self) -> Any:
        """Convert to a pyarrow list array."""
        import pyarrow as pa  # type: ignore[import-not-found, unused-ignore]

        inner = self.values.to_arrow() if isinstance(self.values, RaggedTensor) else pa.array(_plain(self.values))
        return pa.LargeListArray.from_arrays(pa.array(self.row_splits), inner)

    def to_polars(self) -> Any:
        """Convert to a polars list column."""
        import polars  # type: ignore[import-not-found, unused-ignore]

        return polars.from_arrow(self.to_arrow())

    def to_tensorflow(self) -> Any:
        """Convert to a `tf.RaggedTensor`; TensorFlow must be imported first."""
        tf = _module("tensorflow")
        values = self.values.to_tensorflow() if isinstance(self.values, RaggedTensor) else self.values
        return tf.RaggedTensor.from_row_splits(values, self.row_splits)

    def to_torch(self) -> Any:
        """Convert to a PyTorch nested tensor in the jagged layout; PyTorch must be imported first."""
        torch = _module("torch")
        if isinstance(self.values, RaggedTensor):
            raise InvalidArgumentError(
                "PyTorch's jagged layout has one ragged dimension, and this tensor more.", code="wrong-rank"
            )
        values = (
            self.values if arrays.kind_of(self.values) is arrays.TORCH else torch.from_numpy(_plain(self.values).copy())
        )
        return torch.nested.nested_tensor_from_jagged(values, torch.from_numpy(self.row_splits))

    def __eq__(self, other: object) -> bool:
        """Whether both have the same rows of the same values."""
        if not isinstance(other, RaggedTensor):
            return NotImplemented
        mine, others = self.nested_row_splits, other.nested_row_splits
        return (
            len(mine) == len(others)
            and all(map(np.array_equal, mine, others))
            and bool(np.array_equal(_plain(self.flat_values), _plain(other.flat_values)))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = self if len(self) <= 10 else self[:10]
        rows = str(shown.to_list())
        rows = rows if shown is self else f"{rows[:-1]}, ...]"
        return f"RaggedTensor({rows}, dtype={str(self.dtype).removeprefix('torch.')})"


def row_splits_to_segment_ids(splits: Any) -> Array:
    """The row of each value, as int64: `tf.ragged.row_splits_to_segment_ids`.

    Examples
    --------
    >>> import rowgrad
    >>> rowgrad.row_splits_to_segment_ids([0, 2, 2, 3]).tolist()
    [0, 0, 2]
    """
    return row_ids(check_splits("splits", whole_vector("splits", splits), None), "splits")


def segment_ids_to_row_splits(segment_ids: Any, num_segments: int | None = None) -> Array:
    """Where each row begins and ends, as int64, from the row of each value: `tf.ragged.segment_ids_to_row_splits`.

    Examples
    --------
    >>> import rowgrad
    >>> rowgrad.segment_ids_to_row_splits([0, 0, 2], 4).tolist()
    [0, 2, 2, 3, 3]
    """
    return _splits_of_ids("segment_ids", segment_ids, "num_segments", num_segments)


def _splits_of_ids(argument: str, segment_ids: Any, size_name: str, size: int | None) -> Array:
    ids = whole_vector(argument, segment_ids)
    rows = (int(ids[-1]) + 1 if ids.size else 0) if size is None else checks.count(size_name, size)
    falls = ids[1:] < ids[:-1]
    wrong = int(falls.argmax()) + 1 if falls.any() else 0 if ids.size and ids[0] < 0 else None
    if wrong is not None:
        raise InvalidArgumentError(
            f"{argument}[{wrong}] is {ids[wrong]}; the rows of values are 0 or more, and do not decrease. "
            "Sort the values by row.",
            code="unsorted-segment-ids",
            argument=argument,
            position=wrong,
            value=int(ids[wrong]),
        )
    if ids.size and ids[-1] >= rows:
        at = int(np.searchsorted(ids, rows))
        raise checks.out_of_range(argument, at, int(ids[at]), rows, size_name, "index-out-of-range",
                                  f"Drop the value, or raise {size_name}.")  # fmt: skip
    check_fits((rows + 1,), ids.dtype, argument if size is None else size_name)
    starts = np.flatnonzero(np.diff(ids, prepend=-1))  # where the values of a row begin
    return np.repeat(np.append(starts, ids.size), np.diff(ids[starts], prepend=-1, append=rows))


def _with_rows(values: Any) -> Any:
    """The values as an array of any framework, or as the ragged tensor that they are; a single one has no rows."""
    if isinstance(values, RaggedTensor):
        return values
    if arrays.kind_of(values) is None:
        values = arrays.adopt_as("values", values)
    checks.at_least_vector("values", values)
    return values


def _module(name: str) -> Any:
    if name not in sys.modules:
        raise InvalidArgumentError(f"{name} has not been imported. Import it first.", code="not-imported")
    return sys.modules[name]


def _plain(values: Any) -> Any:
    """The values in NumPy; lists stay as they are."""
    kind = arrays.kind_of(values)
    if kind is None:
        return values
    return kind.adopt(values.detach().cpu() if kind is arrays.TORCH else values)


def _taken(values: Any, places: Array) -> Any:
    kind = arrays.kind_of(values)
    if kind is arrays.TORCH:
        return values[sys.modules["torch"].from_numpy(places).to(values.device)]
    if kind is arrays.TENSORFLOW:
        return kind.hand_back(_plain(values)[places])
    return values[places]
