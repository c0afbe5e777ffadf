"""SparseConcat and SparseSplit: against plain loops, gradients, text, threads, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_check import check

import rowgrad
from golden import assert_same
from rowgrad import raw_ops
from rowgrad.errors import RowgradError
from shared_texts import different_lengths, out_of_range

RNG = np.random.default_rng(3)


def tensor(shape: tuple[int, ...], count: int, dtype: Any = np.float64) -> tuple[Any, Any, Any]:
    indices = np.stack([RNG.integers(0, size, count) for size in shape], axis=1)
    return indices, (RNG.standard_normal(count) * 9).astype(dtype), np.array(shape)


def joined(parts: list[tuple[Any, Any, Any]], axis: int) -> tuple[list[Any], list[Any], list[int]]:
    entries, offset = [], 0
    for indices, values, shape in parts:
        for index, value in zip(indices.tolist(), values.tolist(), strict=True):
            index[axis] += offset
            entries.append((index, value))
        offset += int(shape[axis])
    entries.sort(key=lambda entry: entry[0])
    after = parts[0][2].tolist()
    after[axis] = offset
    return [index for index, _ in entries], [value for _, value in entries], after


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("count", [0, 7, 20_000])
def test_concat(axis: int, count: int) -> None:
    shapes = [(3, 5, 4), (3, 5, 4), (3, 5, 4)]
    shapes[1] = tuple(size + (d == axis % 3) for d, size in enumerate(shapes[1]))
    parts = [tensor(shape, count) for shape in shapes]
    for threads in (1, 2, 8):
        rowgrad.set_num_threads(threads)
        found = raw_ops.SparseConcat(*zip(*parts, strict=True), concat_dim=axis)
        indices, values, shape = joined(parts, axis % 3)
        assert_same(np.array(indices, np.int64).reshape(-1, 3), found.output_indices)
        assert_same(np.array(values), found.output_values)
        assert found.output_shape.tolist() == shape


@pytest.mark.parametrize(("axis", "parts"), [(0, 1), (0, 3), (1, 2), (1, 3), (-1, 7)])
@pytest.mark.parametrize("count", [0, 7, 20_000])
def test_split_is_the_inverse_of_concat(axis: int, parts: int, count: int) -> None:
    indices, values, shape = tensor((3, 7), count)
    found = raw_ops.SparseSplit(axis, indices, values, shape, num_split=parts)
    assert [len(part) for part in found] == [parts] * 3
    assert sum(int(part[axis]) for part in found.output_shape) == shape[axis]
    for part, (i, v, s) in enumerate(zip(*found, strict=True)):
        start = raw_ops.SparseSplitOffset(axis, shape, num_split=parts, index=part)
        window = rowgrad.sparse_slice(indices, values, shape, start, s)
        assert_same(window.output_indices, i)
        assert_same(window.output_values, v)
    again = raw_ops.SparseConcat(*found, concat_dim=axis)
    ordered = rowgrad.sparse_reorder(indices, values, shape)
    assert_same(ordered.output_indices, again.output_indices)
    assert_same(ordered.output_values, again.output_values)


def test_text() -> None:
    found = raw_ops.SparseSplit(0, [[0], [3], [1]], ["a", "b", "c"], [4], num_split=2)
    assert [part.tolist() for part in found.output_values] == [["a", "c"], ["b"]]
    joined = raw_ops.SparseConcat(*found, concat_dim=0)
    assert joined.output_values.tolist() == ["a", "c", "b"]


@pytest.mark.parametrize("axis", [0, 1])
def test_gradients(axis: int) -> None:
    parts = [tensor((3, 4), count) for count in (5, 0, 4)]
    indices, values, shapes = (list(column) for column in zip(*parts, strict=True))
    check("SparseConcat", {"indices": indices, "values": values, "shapes": shapes}, {"concat_dim": axis})
    whole = dict(zip(("indices", "values", "shape"), parts[0], strict=True))
    check("SparseSplitPart", {"split_dim": axis, **whole}, {"num_split": 3, "index": 1})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: raw_ops.SparseConcat([[[0, 1]], [[0, 1]]], [[1.0], [2.0]], [[2, 3], [3, 3]], concat_dim=1),
         "SparseConcat: shapes[1] is [3, 3], but shapes[0] is [2, 3]; they may differ in dimension 1 only, along which "
         "they are joined."),
        (lambda: raw_ops.SparseConcat([[[0, 1]], [[0, 1]]], [[1.0], [2.0, 3.0]], [[2, 3], [2, 3]], concat_dim=1),
         "SparseConcat: tensor 1: " + different_lengths("values", 2, "indices", 1)),
        (lambda: raw_ops.SparseConcat([[[0, 1]], [[0, 1]]], [[1.0], [2.0]], [[2, 3], [2, 3]], concat_dim=2),
         "SparseConcat: concat_dim is 2; allowed: -2 to 1. Choose one of the 2 dimensions."),
        (lambda: raw_ops.SparseSplit(1, [[0, 1]], [1.0], [2, 3], num_split=4),
         "SparseSplit: num_split is 4; allowed: 1 to 3 (shape[1]). Choose fewer parts."),
        (lambda: raw_ops.SparseSplit(1, [[0, 3]], [1.0], [2, 3], num_split=3),
         "SparseSplit: " + out_of_range("indices", (0, 1), 3, 3, "shape[1]", "Drop the entry, or raise shape.")),
    ],
)  # fmt: skip
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(RowgradError) as info:
        call()
    assert str(info.value) == message
