"""Written by `make docs` from the catalogue; do not edit."""

from typing import Any

import torch

from rowgrad._ops.results import FillGradient
from rowgrad._ops.results import FilledRagged
from rowgrad._ops.results import FilledRows
from rowgrad._ops.results import RowGradient
from rowgrad._ops.results import SegmentMax
from rowgrad._ops.results import SparseTensor
from rowgrad._runtime.types import ArrayLike
from rowgrad.torch import distributed as distributed
from rowgrad.torch._collection import EmbeddingBagCollection as EmbeddingBagCollection
from rowgrad.torch._configs import EmbeddingBagConfig as EmbeddingBagConfig
from rowgrad.torch._embedding_bag import EmbeddingBag as EmbeddingBag
from rowgrad.torch._jagged import JaggedTensor as JaggedTensor
from rowgrad.torch._kernels import portable as portable
from rowgrad.torch._keyed import KeyedTensor as KeyedTensor
from rowgrad.torch._keyed_jagged import KeyedJaggedTensor as KeyedJaggedTensor
from rowgrad.torch._optim import RowOptimizer as RowOptimizer

__all__ = [
    "EmbeddingBag",
    "EmbeddingBagCollection",
    "EmbeddingBagConfig",
    "JaggedTensor",
    "KeyedJaggedTensor",
    "KeyedTensor",
    "RowOptimizer",
    "distributed",
    "portable",
    "ragged_fill_empty_rows",
    "ragged_fill_empty_rows_grad",
    "row_dot",
    "segment_ids_from_offsets",
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
]

def ragged_fill_empty_rows(value_rowids: ArrayLike, values: ArrayLike, nrows: ArrayLike, default_value: ArrayLike) -> FilledRagged[torch.Tensor]: ...
def ragged_fill_empty_rows_grad(reverse_index_map: ArrayLike, grad_values: ArrayLike) -> FillGradient[torch.Tensor]: ...
def row_dot(a: ArrayLike, b: ArrayLike, a_rows: ArrayLike, b_rows: ArrayLike, *, out_type: torch.dtype | str | None = None) -> torch.Tensor: ...
def segment_ids_from_offsets(offsets: ArrayLike, size: ArrayLike) -> torch.Tensor: ...
def sparse_fill_empty_rows(indices: ArrayLike, values: ArrayLike, dense_shape: ArrayLike, default_value: ArrayLike) -> FilledRows[torch.Tensor]: ...
def sparse_fill_empty_rows_grad(reverse_index_map: ArrayLike, grad_values: ArrayLike) -> FillGradient[torch.Tensor]: ...
def sparse_segment_max(data: ArrayLike, indices: ArrayLike, segment_ids: ArrayLike, num_segments: ArrayLike) -> SegmentMax[torch.Tensor]: ...
def sparse_segment_max_grad(grad: ArrayLike, chosen: ArrayLike, output_dim0: ArrayLike) -> torch.Tensor: ...
def sparse_segment_max_grad_v2(grad: ArrayLike, chosen: ArrayLike, dense_output_dim0: ArrayLike) -> RowGradient[torch.Tensor]: ...
def sparse_segment_mean(data: ArrayLike, indices: ArrayLike, segment_ids: ArrayLike, num_segments: ArrayLike | None = None, *, sparse_gradient: bool = False) -> torch.Tensor: ...
def sparse_segment_mean_grad(grad: ArrayLike, indices: ArrayLike, segment_ids: ArrayLike, output_dim0: ArrayLike) -> torch.Tensor: ...
def sparse_segment_mean_grad_v2(grad: ArrayLike, indices: ArrayLike, segment_ids: ArrayLike, dense_output_dim0: ArrayLike) -> RowGradient[torch.Tensor]: ...
def sparse_segment_sqrt_n(data: ArrayLike, indices: ArrayLike, segment_ids: ArrayLike, num_segments: ArrayLike | None = None, *, sparse_gradient: bool = False) -> torch.Tensor: ...
def sparse_segment_sqrt_n_grad(grad: ArrayLike, indices: ArrayLike, segment_ids: ArrayLike, output_dim0: ArrayLike) -> torch.Tensor: ...
def sparse_segment_sqrt_n_grad_v2(grad: ArrayLike, indices: ArrayLike, segment_ids: ArrayLike, dense_output_dim0: ArrayLike) -> RowGradient[torch.Tensor]: ...
def sparse_segment_sum(data: ArrayLike, indices: ArrayLike, segment_ids: ArrayLike, num_segments: ArrayLike | None = None, *, sparse_gradient: bool = False) -> torch.Tensor: ...
def sparse_segment_sum_grad(grad: ArrayLike, indices: ArrayLike, segment_ids: ArrayLike, output_dim0: ArrayLike) -> torch.Tensor: ...
def sparse_segment_sum_grad_v2(grad: ArrayLike, indices: ArrayLike, segment_ids: ArrayLike, dense_output_dim0: ArrayLike) -> RowGradient[torch.Tensor]: ...
def sparse_segment_weighted_sum(data: ArrayLike, weights: ArrayLike, indices: ArrayLike, segment_ids: ArrayLike, num_segments: ArrayLike) -> torch.Tensor: ...
def sparse_segment_weighted_sum_grad_v2(grad: ArrayLike, weights: ArrayLike, indices: ArrayLike, segment_ids: ArrayLike, dense_output_dim0: ArrayLike) -> RowGradient[torch.Tensor]: ...
def sparse_slice(indices: ArrayLike, values: ArrayLike, shape: ArrayLike, start: ArrayLike, size: ArrayLike) -> SparseTensor[torch.Tensor]: ...
def sparse_slice_grad(backprop_val_grad: ArrayLike, input_indices: ArrayLike, input_start: ArrayLike, output_indices: ArrayLike) -> torch.Tensor: ...
