"""Written by `make docs` from the catalogue; do not edit."""

from typing import Any, Generic, NamedTuple

from typing_extensions import TypeVar

A = TypeVar("A", default=Any)

class RowGradient(NamedTuple, Generic[A]):
    """A compact gradient, with only the rows that occur: row u belongs to row sorted_unique_indices[u] of the table."""

    output: A
    sorted_unique_indices: A

class FilledRows(NamedTuple, Generic[A]):
    """A sparse tensor in which every row has an entry, and the map from the original entries."""

    output_indices: A
    output_values: A
    empty_row_indicator: A
    reverse_index_map: A

class FilledRagged(NamedTuple, Generic[A]):
    """A ragged tensor in which every row has a value, and the map from the original values."""

    output_value_rowids: A
    output_values: A
    empty_row_indicator: A
    reverse_index_map: A

class FillGradient(NamedTuple, Generic[A]):
    """The gradients of the original values, and of the default value."""

    d_values: A
    d_default_value: A

class SegmentMax(NamedTuple, Generic[A]):
    """The largest of each segment, and the rows of the table that they came from, or -1."""

    output: A
    chosen: A

class OrderedEntries(NamedTuple, Generic[A]):
    """The entries of a sparse tensor in row-major order."""

    output_indices: A
    output_values: A

class ReshapedEntries(NamedTuple, Generic[A]):
    """The indices of the entries of a sparse tensor in another shape, and that shape."""

    output_indices: A
    output_shape: A

class RaggedEntries(NamedTuple, Generic[A]):
    """Convert a ragged tensor to a sparse one."""

    sparse_indices: A
    sparse_values: A
    sparse_dense_shape: A

class RaggedRows(NamedTuple, Generic[A]):
    """The row splits and the values of a ragged tensor."""

    rt_nested_splits: A
    rt_dense_values: A

class CrossedFeatures(NamedTuple, Generic[A]):
    """Crossed features as a sparse tensor."""

    output_indices: A
    output_values: A
    output_shape: A

class CrossedRows(NamedTuple, Generic[A]):
    """Crossed features as the values and row splits of a ragged tensor."""

    output_values: A
    output_row_splits: A

class SparseEntries(NamedTuple, Generic[A]):
    """The entries and the shape of a sparse tensor, as returned by an operator."""

    output_indices: A
    output_values: A
    output_shape: A

class SparseSum(NamedTuple, Generic[A]):
    """The sum of two sparse tensors."""

    sum_indices: A
    sum_values: A
    sum_shape: A

class SumGradient(NamedTuple, Generic[A]):
    """The gradients of the values of two sparse tensors that were added."""

    a_val_grad: A
    b_val_grad: A

class ChosenEntries(NamedTuple, Generic[A]):
    """Which values of two sparse tensors were chosen: 1 for these, 0 for the others."""

    a_chosen: A
    b_chosen: A

class CountedEntries(NamedTuple, Generic[A]):
    """How often numbers occur, as the entries of a sparse tensor."""

    output_indices: A
    output_values: A
    output_dense_shape: A

class StoredEntries(NamedTuple, Generic[A]):
    """A sparse tensor that was kept elsewhere: as text, or in a map of tensors."""

    sparse_indices: A
    sparse_values: A
    sparse_shape: A

class GatheredRows(NamedTuple, Generic[A]):
    """Rows of a ragged tensor: their row splits, the outermost first, and their values."""

    output_nested_splits: A
    output_dense_values: A

class GatheredValues(NamedTuple, Generic[A]):
    """The values of some rows of a ragged tensor, and where they came from."""

    output_dense_values: A
    positions: A
