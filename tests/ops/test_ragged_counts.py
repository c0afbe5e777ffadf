"""Counts in the rows of ragged tensors against plain loops, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rowgrad
from rowgrad import raw_ops

ROWS = st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=5)


@given(rows=ROWS, size=st.integers(0, 8), weighted=st.booleans())
def test_counts(rows: list[list[int]], size: int, weighted: bool) -> None:
    values = np.array([value for row in rows for value in row], np.int64)
    splits = np.cumsum([0, *map(len, rows)])
    weights = np.linspace(0.1, 3, values.size).astype(np.float32) if weighted else np.zeros(0, np.float32)
    expected = np.zeros((len(rows), 10), np.float32)
    for number, (row, value) in enumerate(zip(np.repeat(np.arange(len(rows)), np.diff(splits)), values, strict=True)):
        expected[row, value] += weights[number] if weighted else 1
    found = raw_ops.RaggedBincount(splits, values, size, weights)
    np.testing.assert_array_equal(found, expected[:, :size])
    if rows:
        sparse = raw_ops.RaggedCountSparseOutput(splits, values, weights, binary_output=False)
        dense = np.zeros((len(rows), 10), np.float32)
        dense[tuple(sparse.output_indices.T)] = sparse.output_values
        np.testing.assert_array_equal(dense, expected)
        order = [tuple(index) for index in sparse.output_indices.tolist()]
        assert order == sorted(set(order))


@pytest.mark.parametrize(
    "call",
    [
        lambda: raw_ops.RaggedBincount([0, 1], [-1], 3, np.zeros(0, np.float32)),
        lambda: raw_ops.RaggedBincount([0, 2], [1, 1], 3, np.ones(1, np.float32)),
        lambda: raw_ops.RaggedBincount([0, 1], [1], -1, np.zeros(0, np.float32)),
        lambda: raw_ops.RaggedCountSparseOutput([0], np.zeros(0, np.int64), np.zeros(0), binary_output=False),
        lambda: raw_ops.RaggedCountSparseOutput([0, 1], [1], np.zeros(0), binary_output=False, minlength=-2),
    ],
)
def test_what_is_wrong_is_refused(call: Any) -> None:
    with pytest.raises(rowgrad.RowgradError):
        call()
