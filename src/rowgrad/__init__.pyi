"""Written by `make docs` from the catalogue; do not edit."""

from typing import Any

from rowgrad import blocks as blocks
from rowgrad import errors as errors
from rowgrad import jax as jax
from rowgrad import optim as optim
from rowgrad import raw_ops as raw_ops
from rowgrad import tables as tables
from rowgrad import torch as torch
from rowgrad._ops.embedding_lookup import embedding_lookup_sparse as embedding_lookup_sparse
from rowgrad._ops.embedding_lookup import safe_embedding_lookup_sparse as safe_embedding_lookup_sparse
from rowgrad._ops.plan import Plan as Plan
from rowgrad._ops.plan import plan as plan
from rowgrad._ops.results import FilledRagged as FilledRagged
from rowgrad._ops.results import FilledRows as FilledRows
from rowgrad._ops.results import FillGradient as FillGradient
from rowgrad._ops.results import RowGradient as RowGradient
from rowgrad._ops.results import SegmentMax as SegmentMax
from rowgrad._ops.results import SparseTensor as SparseTensor
from rowgrad._runtime.threads import get_num_threads as get_num_threads
from rowgrad._runtime.threads import set_num_threads as set_num_threads
from rowgrad.errors import DTypeError as DTypeError
from rowgrad.errors import FileError as FileError
from rowgrad.errors import InvalidArgumentError as InvalidArgumentError
from rowgrad.errors import OutOfMemoryError as OutOfMemoryError
from rowgrad.errors import OutOfRangeError as OutOfRangeError
from rowgrad.errors import PageError as PageError
from rowgrad.errors import RowgradError as RowgradError
from rowgrad.tables import Table as Table

__version__: str
__all__ = [
    "DTypeError",
    "FileError",
    "FillGradient",
    "FilledRagged",
    "FilledRows",
    "InvalidArgumentError",
    "OutOfMemoryError",
    "OutOfRangeError",
    "PageError",
    "Plan",
    "RowGradient",
    "RowgradError",
    "SegmentMax",
    "SparseTensor",
    "Table",
    "blocks",
    "embedding_lookup_sparse",
    "errors",
    "get_num_threads",
    "optim",
    "plan",
    "ragged_fill_empty_rows",
    "ragged_fill_empty_rows_grad",
    "raw_ops",
    "row_dot",
    "safe_embedding_lookup_sparse",
    "segment_ids_from_offsets",
    "set_num_threads",
    "sparse_fill_empty_rows",
    "sparse_fill_empty_rows_grad",
    "sparse_segment_max",
    "sparse_segment_max_grad",
    "sparse_segment_max_grad_v2",
    "sparse_segment_mean",
    "sparse_segment_mean_grad",
    "sparse_segment_mean_grad_v2",
    "sparse_segment_sqrt_n",
    "sparse_segment_sqrt_n_grad",
    "sparse_segment_sqrt_n_grad_v2",
    "sparse_segment_sum",
    "sparse_segment_sum_grad",
    "sparse_segment_sum_grad_v2",
    "sparse_segment_weighted_sum",
    "sparse_segment_weighted_sum_grad_v2",
    "sparse_slice",
    "sparse_slice_grad",
    "tables",
]

def ragged_fill_empty_rows(value_rowids: Any, values: Any, nrows: Any, default_value: Any) -> FilledRagged: ...
def ragged_fill_empty_rows_grad(reverse_index_map: Any, grad_values: Any, *, out: Any = None) -> FillGradient: ...
def row_dot(a: Any, b: Any, a_rows: Any, b_rows: Any, *, out: Any = None) -> Any: ...
def segment_ids_from_offsets(offsets: Any, size: Any, *, out: Any = None) -> Any: ...
def sparse_fill_empty_rows(indices: Any, values: Any, dense_shape: Any, default_value: Any) -> FilledRows: ...
def sparse_fill_empty_rows_grad(reverse_index_map: Any, grad_values: Any, *, out: Any = None) -> FillGradient: ...
def sparse_segment_max(data: Any, indices: Any, segment_ids: Any, num_segments: Any, *, out: Any = None) -> SegmentMax: ...
def sparse_segment_max_grad(grad: Any, chosen: Any, output_dim0: Any, *, out: Any = None) -> Any: ...
def sparse_segment_max_grad_v2(grad: Any, chosen: Any, dense_output_dim0: Any) -> RowGradient: ...
def sparse_segment_mean(data: Any, indices: Any, segment_ids: Any, num_segments: Any = None, *, out: Any = None, plan: Any = None) -> Any: ...
def sparse_segment_mean_grad(grad: Any, indices: Any, segment_ids: Any, output_dim0: Any, *, out: Any = None, plan: Any = None) -> Any: ...
def sparse_segment_mean_grad_v2(grad: Any, indices: Any, segment_ids: Any, dense_output_dim0: Any, *, plan: Any = None) -> RowGradient: ...
def sparse_segment_sqrt_n(data: Any, indices: Any, segment_ids: Any, num_segments: Any = None, *, out: Any = None, plan: Any = None) -> Any: ...
def sparse_segment_sqrt_n_grad(grad: Any, indices: Any, segment_ids: Any, output_dim0: Any, *, out: Any = None, plan: Any = None) -> Any: ...
def sparse_segment_sqrt_n_grad_v2(grad: Any, indices: Any, segment_ids: Any, dense_output_dim0: Any, *, plan: Any = None) -> RowGradient: ...
def sparse_segment_sum(data: Any, indices: Any, segment_ids: Any, num_segments: Any = None, *, out: Any = None, plan: Any = None) -> Any: ...
def sparse_segment_sum_grad(grad: Any, indices: Any, segment_ids: Any, output_dim0: Any, *, out: Any = None, plan: Any = None) -> Any: ...
def sparse_segment_sum_grad_v2(grad: Any, indices: Any, segment_ids: Any, dense_output_dim0: Any, *, plan: Any = None) -> RowGradient: ...
def sparse_segment_weighted_sum(data: Any, weights: Any, indices: Any, segment_ids: Any, num_segments: Any, *, out: Any = None) -> Any: ...
def sparse_segment_weighted_sum_grad_v2(grad: Any, weights: Any, indices: Any, segment_ids: Any, dense_output_dim0: Any) -> RowGradient: ...
def sparse_slice(indices: Any, values: Any, shape: Any, start: Any, size: Any) -> SparseTensor: ...
def sparse_slice_grad(backprop_val_grad: Any, input_indices: Any, input_start: Any, output_indices: Any, *, out: Any = None) -> Any: ...
