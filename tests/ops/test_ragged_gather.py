"""RaggedGather against plain lists, its gradient and that of the ragged conversions."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gradient_check import check
from hypothesis import given
from hypothesis import strategies as st

import rowgrad
from rowgrad import raw_ops
from rowgrad._ops import OPERATORS
from rowgrad._ops.ragged_tensor import RaggedTensor

ROWS = st.lists(st.lists(st.lists(st.integers(-9, 9), max_size=3), max_size=3), min_size=1, max_size=5)


@given(ROWS, st.data())
def test_rows_are_those_of_lists(rows: list[list[list[int]]], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6))
    outer = np.cumsum([0, *map(len, rows)])
    inner = np.cumsum([0, *(len(part) for row in rows for part in row)])
    values = np.array([item for row in rows for part in row for item in part], np.int64)
    found = raw_ops.RaggedGather([outer, inner], values, np.array(chosen, np.int32), OUTPUT_RAGGED_RANK=2)
    first, second = found.output_nested_splits
    parts = [found.output_dense_values[a:b].tolist() for a, b in pairwise(second)]
    assert [parts[a:b] for a, b in pairwise(first)] == [rows[row] for row in chosen]


def test_one_row_alone() -> None:
    found = raw_ops.RaggedGather([[0, 2, 2, 3]], [1.0, 2.0, 3.0], 0, OUTPUT_RAGGED_RANK=0)
    assert (found.output_nested_splits, found.output_dense_values.tolist()) == ([], [1.0, 2.0])


def test_the_blocks_give_its_parts() -> None:
    nested, indices = [np.array([0, 2, 3]), np.array([0, 1, 1, 4])], np.array([1, 0, 1])
    whole = raw_ops.RaggedGather(nested, np.arange(4.0), indices, OUTPUT_RAGGED_RANK=2)
    for level, splits in enumerate(whole.output_nested_splits):
        found = OPERATORS["RaggedGatherSplits"](nested, np.arange(4.0), indices, level=level)
        assert found.tolist() == splits.tolist()
    values, positions = OPERATORS["RaggedGatherValues"](nested, np.arange(4.0), indices)
    assert values.tolist() == whole.output_dense_values.tolist() == positions.tolist()
    with pytest.raises(rowgrad.OutOfRangeError, match="level"):
        OPERATORS["RaggedGatherSplits"](nested, np.arange(4.0), indices, level=2)


def test_indices_of_several_dimensions() -> None:
    found = raw_ops.RaggedGather([np.array([0, 2, 2, 3], np.int32)], ["a", "b", "c"], [[2, 0], [1, 2]],
                                 OUTPUT_RAGGED_RANK=2)  # fmt: skip
    assert [splits.tolist() for splits in found.output_nested_splits] == [[0, 2, 4], [0, 1, 3, 3, 4]]
    assert {splits.dtype.name for splits in found.output_nested_splits} == {"int32"}
    assert found.output_dense_values.tolist() == ["c", "a", "b", "c"]


@pytest.mark.parametrize(
    ("splits", "values", "indices", "rank", "argument"),
    [
        ([[0, 2]], [1.0, 2.0], [1], 1, "indices"),
        ([[0, 2]], [1.0, 2.0], [-1], 1, "indices"),
        ([[0, 2]], [1.0, 2.0], 2, 0, "indices"),
        ([[0, 2]], [1.0, 2.0], [0], 2, "OUTPUT_RAGGED_RANK"),
        ([[0, 3]], [1.0, 2.0], [0], 1, "params_nested_splits"),
        ([[0, 2, 1]], [1.0], [0], 1, "params_nested_splits"),
        ([], [1.0], [0], 0, "params_nested_splits"),
        ([[0, 1]], 1.0, [0], 1, "params_dense_values"),
    ],
)
def test_errors(splits: Any, values: Any, indices: Any, rank: int, argument: str) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as caught:
        raw_ops.RaggedGather(splits, values, indices, OUTPUT_RAGGED_RANK=rank)
    assert (caught.value.argument, caught.value.op) == (argument, "RaggedGather")


def test_ragged_tensors_agree() -> None:
    tensor = RaggedTensor.from_list([[1, 2], [], [3]])
    found = raw_ops.RaggedGather([tensor.row_splits], tensor.values, [2, 0, 0], OUTPUT_RAGGED_RANK=1)
    assert found.output_dense_values.tolist() == [3, 1, 2, 1, 2]


SPLITS = [np.array([0, 2, 2, 3])]
WIDE = np.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize(
    ("name", "inputs", "attributes"),
    [
        ("RaggedGatherValues", {"params_nested_splits": SPLITS, "params_dense_values": WIDE, "indices": [2, 0, 0]}, {}),
        ("RaggedTensorToSparse", {"rt_nested_splits": SPLITS, "rt_dense_values": WIDE}, {}),
        *(
            ("RaggedTensorToTensor", {"shape": shape, "values": values, "default_value": default,
                                      "row_partition_tensors": partitions}, {"row_partition_types": kinds})
            for partitions, kinds in ((SPLITS, ["ROW_SPLITS"]),
                                      ([np.array(3), np.array([0, 0, 2])], ["FIRST_DIM_SIZE", "VALUE_ROWIDS"]))
            for shape, values, default in (
                ([-1, -1], WIDE[:, 0], np.array(0.5)), ([-1, -1, 2], WIDE, np.array([0.5, 1.5])),
                ([4, 1, 2], WIDE, np.array(2.0)), ([2, 3, -1], WIDE, np.array([2.0])),
            )
        ),
    ],
)  # fmt: skip
def test_gradients(name: str, inputs: dict[str, Any], attributes: dict[str, Any]) -> None:
    check(name, inputs, attributes)
