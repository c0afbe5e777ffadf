"""What is wrong, and must be found: every line that says so, and no other. Nobody runs it."""

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import rowgrad

table = np.ones((10, 4), np.float32)

assert_type(rowgrad.sparse_segment_mean(table, [0], [0]), npt.NDArray[Any])
assert_type(rowgrad.sparse_segment_mean(table, [0], [0]), float)  # wrong: an array comes back
rowgrad.sparse_segment_mean(table, [0])  # wrong: a missing argument
rowgrad.sparse_segment_mean(object(), [0], [0])  # wrong: no array
rowgrad.sparse_segment_mean(table, [0], [0], 1, None)  # wrong: options are given by name
rowgrad.sparse_segment_mean(table, [0], [0], plan=3)  # wrong: no plan
rowgrad.sparse_segment_mean_grad_v2(table, [0], [0], 10).indices  # wrong: no such result  # noqa: B018
rowgrad.sparse_segment_men(table, [0], [0])  # wrong: no such function
rowgrad.index_rank([0], [0])  # wrong: in raw_ops only
rowgrad.raw_ops.IndexRank([0], [0])
rowgrad.raw_ops.SparseSegmentSum(table, [0], [0], name=3)  # wrong: names are texts
