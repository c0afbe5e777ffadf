"""How users of PyTorch call rowgrad. `test_types.py` has it checked; nobody runs it."""

from typing import Any, assert_type

import numpy as np
import torch

import rowgrad
from rowgrad import RowGradient

table = torch.ones(10, 4)
ids, segments = torch.tensor([0, 3, 5]), torch.tensor([0, 0, 1])

# Functions of arrays give what the first argument is.
assert_type(rowgrad.sparse_segment_mean(table, ids, segments), torch.Tensor)
assert_type(rowgrad.sparse_segment_mean(torch.nn.Parameter(table, requires_grad=False), [0], [0]), torch.Tensor)
assert_type(rowgrad.sparse_segment_mean_grad_v2(table, ids, segments, 10), RowGradient[torch.Tensor])
assert_type(rowgrad.raw_ops.SparseSegmentSum(table, ids, segments), torch.Tensor)
assert_type(rowgrad.safe_embedding_lookup_sparse(table, (ids, segments, ids), default_id=0), torch.Tensor)

# Behind lists, it depends.
assert_type(rowgrad.sparse_segment_mean([[1.0]], ids, segments), Any)

# Those of the front end give tensors, whatever goes in.
assert_type(rowgrad.torch.sparse_segment_mean(table, [0, 1], [0, 0], 2), torch.Tensor)
assert_type(rowgrad.torch.sparse_segment_mean(np.ones((2, 2)), ids, segments), torch.Tensor)
assert_type(rowgrad.torch.row_dot(table, table, ids, ids, out_type=torch.float64), torch.Tensor)
compact = rowgrad.torch.sparse_segment_mean_grad_v2(table, ids, segments, 10)
assert_type(compact.sorted_unique_indices, torch.Tensor)

layer = rowgrad.torch.EmbeddingBag(10, 4, mode="mean")
assert_type(layer.weight, torch.Tensor)
with rowgrad.torch.portable():
    pass
assert_type(rowgrad.torch.distributed.ShardedEmbeddingBag, type[rowgrad.torch.distributed.ShardedEmbeddingBag])
