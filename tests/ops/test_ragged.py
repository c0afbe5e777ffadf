"""Ragged operators against plain loops, ragged tensors from and to everything, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rowgrad
from optional import framework
from rowgrad import RaggedTensor, raw_ops

ROWS = st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=5)


def split(rows: list[list[int]]) -> tuple[Any, Any]:
    return np.array([value for row in rows for value in row], np.int64), np.cumsum([0, *map(len, rows)])


@given(rows=ROWS)
def test_to_sparse_and_to_dense(rows: list[list[int]]) -> None:
    values, splits = split(rows)
    sparse = raw_ops.RaggedTensorToSparse([splits], values)
    longest = max(map(len, rows), default=0)
    assert sparse.sparse_indices.tolist() == [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
    assert sparse.sparse_values.tolist() == values.tolist()
    assert sparse.sparse_dense_shape.tolist() == [len(rows), longest]
    dense = RaggedTensor(values, splits).to_dense(-1)
    assert dense.tolist() == [row + [-1] * (longest - len(row)) for row in rows]
    cut = RaggedTensor(values, splits).to_dense(-1, shape=(None, 2))
    assert cut.tolist() == [[*row, -1, -1][:2] for row in rows]


def test_ranges() -> None:
    found = raw_ops.RaggedRange([0.0, 1.0], [1.0, 0.0], [0.25, -0.5])
    assert found.rt_nested_splits.tolist() == [0, 4, 6]
    assert found.rt_dense_values.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0, 0.5]
    steps = raw_ops.RaggedRange(np.float32(0), np.float32(3), np.float32(0.1)).rt_dense_values
    value = np.float32(0)
    for step in steps:  # added up, not multiplied
        assert step == value
        value += np.float32(0.1)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("rows", [7, 40_000])  # for one thread, and for several
def test_ranges_of_whole_numbers(dtype: Any, rows: int) -> None:
    random = np.random.default_rng(rows)
    starts = random.integers(-50, 50, rows).astype(dtype)
    limits = (starts + random.integers(-30, 40, rows)).astype(dtype)
    deltas = (random.integers(1, 5, rows) * random.choice([-1, 1], rows)).astype(dtype)
    starts[-1], limits[-1], deltas[-1] = np.iinfo(dtype).max - 20, np.iinfo(dtype).max, 3
    found = raw_ops.RaggedRange(starts, limits, deltas)
    wanted = [np.arange(*row, dtype=dtype) for row in zip(starts, limits, deltas, strict=True)]
    assert found.rt_nested_splits.tolist() == [0, *np.cumsum([row.size for row in wanted]).tolist()]
    assert found.rt_dense_values.dtype == dtype
    np.testing.assert_array_equal(found.rt_dense_values, np.concatenate(wanted))


def test_nested() -> None:
    rows = [[[1, 2], []], [], [[3]]]
    tensor = RaggedTensor.from_list(rows)
    assert tensor.to_list() == rows
    assert tensor.shape == (3, None, None)
    assert tensor.ragged_rank == 2
    assert tensor.gather([2, 0, 2]).to_list() == [rows[2], rows[0], rows[2]]
    assert tensor[1:].to_list() == rows[1:]
    assert tensor[-1].to_list() == rows[-1]
    assert [row.to_list() for row in tensor] == rows
    assert tensor.to_dense().tolist() == [[[1, 2], [0, 0]], [[0, 0], [0, 0]], [[3, 0], [0, 0]]]
    doubled = tensor.with_values(tensor.flat_values * 2)
    assert doubled.to_list() == [[[2, 4], []], [], [[6]]]
    assert doubled != tensor
    assert tensor == RaggedTensor.from_list(rows)


def test_lengths_offsets_and_ids() -> None:
    expected = RaggedTensor([1, 2, 3], [0, 2, 2, 3])
    assert RaggedTensor.from_row_lengths([1, 2, 3], [2, 0, 1]) == expected
    assert RaggedTensor.from_offsets([1, 2, 3], [0, 2, 2]) == expected
    assert RaggedTensor.from_value_rowids([1, 2, 3], [0, 0, 2]) == expected
    assert len(RaggedTensor.from_value_rowids([1, 2, 3], [0, 0, 2], nrows=9)) == 9
    assert expected.row_lengths().tolist() == [2, 0, 1]


def test_pyarrow_and_polars() -> None:
    pa = framework("pyarrow")
    rows = [[[1, 2], []], [], [[3]]]
    tensor = RaggedTensor.from_arrow(pa.array(rows))
    assert tensor.to_list() == rows
    assert tensor.to_arrow().to_pylist() == rows
    assert RaggedTensor.from_arrow(pa.array(rows)[1:]).to_list() == rows[1:]
    assert RaggedTensor.from_arrow(pa.chunked_array([pa.array(rows[:1]), pa.array(rows[1:])])).to_list() == rows
    with pytest.raises(rowgrad.InvalidArgumentError):
        RaggedTensor.from_arrow(pa.array([[1], None]))
    polars = framework("polars")
    assert RaggedTensor.from_polars(polars.Series([[1, 2], [3]])).to_list() == [[1, 2], [3]]
    assert tensor.to_polars().to_list() == rows


def test_torch() -> None:
    torch = framework("torch")
    values = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    tensor = RaggedTensor(values, torch.tensor([0, 2, 2, 3]))
    dense = tensor.to_dense(-1.0)
    assert dense.tolist() == [[1.0, 2.0], [-1.0, -1.0], [3.0, -1.0]]
    (dense * torch.arange(6.0).reshape(3, 2)).sum().backward()
    assert values.grad.tolist() == [0.0, 1.0, 4.0]
    jagged = tensor.to_torch()
    assert RaggedTensor.from_torch(jagged).to_list() == [[1.0, 2.0], [], [3.0]]
    import rowgrad.torch

    bag = rowgrad.torch.EmbeddingBag(5, 2, mode="sum")
    ids = RaggedTensor([1, 2, 4], [0, 2, 2, 3])
    expected = torch.stack([bag.weight[1] + bag.weight[2], torch.zeros(2), bag.weight[4]])
    torch.testing.assert_close(bag(ids.to_torch()), expected)


def test_jax() -> None:
    jax = framework("jax")
    tensor = RaggedTensor(jax.numpy.array([1.0, 2.0, 3.0]), [0, 2, 2, 3])
    assert tensor.gather([2, 0]).to_list() == [[3.0], [1.0, 2.0]]
    assert isinstance(tensor.to_dense(), jax.Array)


def test_repr_is_short() -> None:
    long = RaggedTensor(np.arange(1000), np.arange(1001))
    assert repr(long).endswith(", [9], ...], dtype=int64)")


@pytest.mark.parametrize(
    "call",
    [
        lambda: RaggedTensor([1, 2], []),
        lambda: RaggedTensor([1, 2], [1, 2]),
        lambda: RaggedTensor([1, 2], [0, 1]),
        lambda: RaggedTensor([1, 2], [0, 3, 2]),
        lambda: RaggedTensor([1, 2], [0.0, 2.0]),
        lambda: RaggedTensor([1, 2], [0, 2])[1],
        lambda: RaggedTensor([1, 2], [0, 2]).gather([1]),
        lambda: RaggedTensor([1, 2], [0, 2]).gather([-1]),
        lambda: RaggedTensor.from_row_lengths([1], [-1, 2]),
        lambda: rowgrad.segment_ids_to_row_splits([1, 0]),
        lambda: rowgrad.segment_ids_to_row_splits([1, 2], 2),
        lambda: raw_ops.RaggedTensorToSparse([], [1.0]),
        lambda: raw_ops.RaggedTensorToSparse([[0, 1], [0, 2, 1]], [1.0]),
        lambda: raw_ops.RaggedTensorToTensor([-1, -1], [1.0], 0.0, [[0, 2]], row_partition_types=["ROW_SPLITS"]),
        lambda: raw_ops.RaggedTensorToTensor([-1, -1], [1.0, 2.0], 0.0, [2, [1, 0]],
                                             row_partition_types=["FIRST_DIM_SIZE", "VALUE_ROWIDS"]),
        lambda: raw_ops.RaggedTensorToTensor([-1, -1], [1.0], 0.0, [[0, 1]], row_partition_types=["VALUE_ROWIDS"]),
        lambda: raw_ops.RaggedTensorToTensor([-1], [1.0], 0.0, [[0, 1]], row_partition_types=["ROW_SPLITS"]),
        lambda: raw_ops.RaggedTensorToTensor([-1, -1], [1.0], [0.0], [[0, 1]], row_partition_types=["ROW_SPLITS"]),
        lambda: raw_ops.RaggedRange([1], [2], [0]),
        lambda: raw_ops.RaggedRange([1, 2], [2], [1]),
        lambda: raw_ops.RaggedRange(0.0, float("inf"), 1.0),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(call: Any) -> None:
    with pytest.raises(rowgrad.RowgradError):
        call()
