"""How users of NumPy call rowgrad. `test_types.py` has it checked; nobody runs it."""

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import rowgrad
from rowgrad import RowGradient, raw_ops

NumPy = npt.NDArray[Any]

table = np.ones((10, 4), np.float32)
ids, segments = np.array([0, 3, 5]), np.array([0, 0, 1])

# Arrays, lists and numbers give arrays.
assert_type(rowgrad.sparse_segment_mean(table, ids, segments), NumPy)
assert_type(rowgrad.sparse_segment_mean(table, [0, 3], [0, 1], num_segments=2), NumPy)
assert_type(rowgrad.sparse_segment_sum([[1.0], [2.0]], [0, 1], [0, 0]), NumPy)
assert_type(rowgrad.sparse_segment_sum(table, ids, segments, out=np.empty((2, 4), np.float32)), NumPy)
assert_type(rowgrad.sparse_segment_sum(table, None, None, plan=rowgrad.plan(ids, segments, 10)), NumPy)
assert_type(raw_ops.SparseSegmentSum(data=table, indices=ids, segment_ids=segments, name="pooled"), NumPy)
assert_type(raw_ops.SparseSegmentSumGradGrad(table, ids, segments, 3), NumPy)

# Several results are named tuples of arrays.
compact = rowgrad.sparse_segment_mean_grad_v2(table, ids, segments, 10)
assert_type(compact, RowGradient[NumPy])
assert_type(compact.output, NumPy)
rows, unique = compact
assert_type(unique, NumPy)
filled = rowgrad.sparse_fill_empty_rows([[0, 0]], ["a"], [2, 1], "none")
assert_type(filled.empty_row_indicator, NumPy)

# Look-ups give the kind of the table.
assert_type(rowgrad.embedding_lookup_sparse(table, ([[0, 0]], [1], [1, 1]), combiner="sum"), NumPy)

# Submodules need no import of their own.
optimizer = rowgrad.optim.Adagrad(lr=0.1)
state = optimizer.init(table)
optimizer.step(table, compact, state)
page = rowgrad.blocks.Page("one")
assert_type(page.to_json(), str)
try:
    rowgrad.Table.open("rows").close()
except rowgrad.errors.RowgradError as error:
    assert_type(error.code, str)
