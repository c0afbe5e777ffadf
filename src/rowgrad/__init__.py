"""rowgrad: TensorFlow's sparse-segment, fill-empty-rows and slice operators and their gradients, without TensorFlow.

Give the functions NumPy, PyTorch, JAX or TensorFlow arrays, or lists; results come back as the kind that went in.
`rowgrad.raw_ops` has the same operators under TensorFlow's names.
"""

from rowgrad import raw_ops
from rowgrad._ops.embedding_lookup import embedding_lookup_sparse, safe_embedding_lookup_sparse
from rowgrad._ops.functions import (
    chosen_rank,
    index_rank,
    ragged_fill_empty_rows,
    ragged_fill_empty_rows_grad,
    row_dot,
    segment_ids_from_offsets,
    sparse_fill_empty_rows,
    sparse_fill_empty_rows_grad,
    sparse_fill_empty_rows_grad_grad,
    sparse_segment_max,
    sparse_segment_max_grad,
    sparse_segment_max_grad_grad,
    sparse_segment_max_grad_v2,
    sparse_segment_mean,
    sparse_segment_mean_grad,
    sparse_segment_mean_grad_grad,
    sparse_segment_mean_grad_v2,
    sparse_segment_sqrt_n,
    sparse_segment_sqrt_n_grad,
    sparse_segment_sqrt_n_grad_grad,
    sparse_segment_sqrt_n_grad_v2,
    sparse_segment_sum,
    sparse_segment_sum_grad,
    sparse_segment_sum_grad_grad,
    sparse_segment_sum_grad_v2,
    sparse_segment_weighted_sum,
    sparse_segment_weighted_sum_grad_v2,
    sparse_slice,
    sparse_slice_grad,
    sparse_slice_grad_grad,
)
from rowgrad._ops.plan import Plan, plan
from rowgrad._ops.results import FilledRagged, FilledRows, FillGradient, RowGradient, SegmentMax, SparseTensor
from rowgrad._runtime.threads import get_num_threads, set_num_threads
from rowgrad.errors import (
    DTypeError,
    FileError,
    InvalidArgumentError,
    OutOfMemoryError,
    OutOfRangeError,
    PageError,
    RowgradError,
)
from rowgrad.tables import Table

__version__ = "0.1.0"

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
    "chosen_rank",
    "embedding_lookup_sparse",
    "get_num_threads",
    "index_rank",
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
    "sparse_fill_empty_rows_grad_grad",
    "sparse_segment_max",
    "sparse_segment_max_grad",
    "sparse_segment_max_grad_grad",
    "sparse_segment_max_grad_v2",
    "sparse_segment_mean",
    "sparse_segment_mean_grad",
    "sparse_segment_mean_grad_grad",
    "sparse_segment_mean_grad_v2",
    "sparse_segment_sqrt_n",
    "sparse_segment_sqrt_n_grad",
    "sparse_segment_sqrt_n_grad_grad",
    "sparse_segment_sqrt_n_grad_v2",
    "sparse_segment_sum",
    "sparse_segment_sum_grad",
    "sparse_segment_sum_grad_grad",
    "sparse_segment_sum_grad_v2",
    "sparse_segment_weighted_sum",
    "sparse_segment_weighted_sum_grad_v2",
    "sparse_slice",
    "sparse_slice_grad",
    "sparse_slice_grad_grad",
]
