"""The named results of operators that give more than one array."""

from typing import Any, NamedTuple


class RowGradient(NamedTuple):
    """A compact gradient, with only the rows that occur: row u belongs to row sorted_unique_indices[u] of the table."""

    output: Any
    sorted_unique_indices: Any


class FilledRows(NamedTuple):
    """A sparse tensor in which every row has an entry, and the map from the original entries."""

    output_indices: Any
    output_values: Any
    empty_row_indicator: Any
    reverse_index_map: Any


class FilledRagged(NamedTuple):
    """A ragged tensor in which every row has a value, and the map from the original values."""

    output_value_rowids: Any
    output_values: Any
    empty_row_indicator: Any
    reverse_index_map: Any


class FillGradient(NamedTuple):
    """The gradients of the original values, and of the default value."""

    d_values: Any
    d_default_value: Any


class SegmentMax(NamedTuple):
    """The largest of each segment, and the rows of the table that they came from, or -1."""

    output: Any
    chosen: Any


class OrderedEntries(NamedTuple):
    """The entries of a sparse tensor in row-major order."""

    output_indices: Any
    output_values: Any


class ReshapedEntries(NamedTuple):
    """The indices of the entries of a sparse tensor in another shape, and that shape."""

    output_indices: Any
    output_shape: Any


class RaggedEntries(NamedTuple):
    """Convert a ragged tensor to a sparse one."""

    sparse_indices: Any
    sparse_values: Any
    sparse_dense_shape: Any


class RaggedRows(NamedTuple):
    """The row splits and the values of a ragged tensor."""

    rt_nested_splits: Any
    rt_dense_values: Any


class CrossedFeatures(NamedTuple):
    """Crossed features as a sparse tensor."""

    output_indices: Any
    output_values: Any
    output_shape: Any


class CrossedRows(NamedTuple):
    """Crossed features as the values and row splits of a ragged tensor."""

    output_values: Any
    output_row_splits: Any


class SparseEntries(NamedTuple):
    """The entries and the shape of a sparse tensor, as returned by an operator."""

    output_indices: Any
    output_values: Any
    output_shape: Any


class SparseSum(NamedTuple):
    """The sum of two sparse tensors."""

    sum_indices: Any
    sum_values: Any
    sum_shape: Any


class SumGradient(NamedTuple):
    """The gradients of the values of two sparse tensors that were added."""

    a_val_grad: Any
    b_val_grad: Any


class ChosenEntries(NamedTuple):
    """Which values of two sparse tensors were chosen: 1 for these, 0 for the others."""

    a_chosen: Any
    b_chosen: Any


class CountedEntries(NamedTuple):
    """How often numbers occur, as the entries of a sparse tensor."""

    output_indices: Any
    output_values: Any
    output_dense_shape: Any


class StoredEntries(NamedTuple):
    """A sparse tensor that was kept elsewhere: as text, or in a map of tensors."""

    sparse_indices: Any
    sparse_values: Any
    sparse_shape: Any


class GatheredRows(NamedTuple):
    """Rows of a ragged tensor: their row splits, the outermost first, and their values."""

    output_nested_splits: Any
    output_dense_values: Any


class GatheredValues(NamedTuple):
    """The values of some rows of a ragged tensor, and where they came from."""

    output_dense_values: Any
    positions: Any
