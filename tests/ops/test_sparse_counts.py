"""Counts of whole numbers: against plain loops, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from golden import assert_same
from rowgrad import raw_ops
from rowgrad.errors import RowgradError
from shared_texts import out_of_range

RNG = np.random.default_rng(6)


def counted(rows: Any, values: Any, weights: Any, dtype: Any, is_binary: bool) -> dict[tuple[int, int], Any]:
    """By row and number, summed in their order."""
    found: dict[tuple[int, int], Any] = {}
    for i, (row, value) in enumerate(zip(rows, values, strict=True)):
        key = (int(row), int(value))
        weight = dtype(1) if not len(weights) else weights[i]
        found[key] = dtype(1) if is_binary else found.get(key, dtype(0)) + weight
    return dict(sorted(found.items()))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("count", [0, 9, 5000])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("is_binary", [False, True])
def test_counts(dtype: Any, count: int, weighted: bool, is_binary: bool) -> None:
    indices = np.stack([RNG.integers(0, 4, count), RNG.integers(0, 50, count)], axis=1)
    values = RNG.integers(0, 12, count).astype(np.int32)
    weights = (RNG.standard_normal(count) * 9).astype(dtype) if weighted else np.empty(0, dtype)
    found = raw_ops.SparseBincount(indices, values, [4, 50], 10, weights, binary_output=is_binary)
    expected = np.zeros((4, 10), dtype)
    for (row, value), total in counted(indices[:, 0], values, weights, dtype, is_binary).items():
        if value < 10:
            expected[row, value] = total
    assert_same(expected, found)

    kept = values < 10
    totals = counted(indices[kept, 0], values[kept], weights[kept] if weighted else weights, dtype, is_binary)
    entries = raw_ops.SparseCountSparseOutput(indices, values, [4, 50], weights, maxlength=10, binary_output=is_binary)
    assert_same(np.array(list(totals), np.int64).reshape(-1, 2), entries.output_indices)
    assert_same(np.array(list(totals.values()), dtype), entries.output_values)
    assert entries.output_dense_shape.tolist() == [4, 10]

    alone = counted(np.zeros(count), values, weights, dtype, is_binary)
    dense = raw_ops.DenseCountSparseOutput(values, weights, minlength=20, binary_output=is_binary)
    assert dense.output_indices[:, 0].tolist() == [value for _, value in alone]
    assert_same(np.array(list(alone.values()), dtype), dense.output_values)
    assert dense.output_dense_shape.tolist() == [20]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: raw_ops.SparseBincount([[0]], [1], [1], -1, []), "SparseBincount: size is -1; it must be 0 or more."),
        (lambda: raw_ops.SparseBincount([[0], [1]], [1, -2], [3], 4, []),
         "SparseBincount: values[1] is -2; it must be 0 or more. Drop it."),
        (lambda: raw_ops.DenseCountSparseOutput([1, 2], [1.0], binary_output=False),
         "DenseCountSparseOutput: weights has shape [1], but values has [2]; there must be one for each value, or none "
         "at all."),
        (lambda: raw_ops.SparseCountSparseOutput([[5, 0]], [1], [3, 2], [], binary_output=False),
         "SparseCountSparseOutput: " + out_of_range("indices", (0, 0), 5, 3, "dense_shape[0]",
                                                    "Drop the entry, or raise dense_shape.")),
    ],
)  # fmt: skip
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(RowgradError) as info:
        call()
    assert str(info.value) == message


def test_no_weights_may_have_any_shape() -> None:
    none = np.empty((2, 0), np.int64)
    found = raw_ops.SparseBincount([[0, 0], [0, 1]], [1, 1], [1, 2], 3, none)
    assert found.tolist() == raw_ops.RaggedBincount([0, 2], [1, 1], 3, none).tolist() == [[0, 2, 0]]
