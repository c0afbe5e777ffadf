"""Tables in parts, bounded norms and ragged ids in the embedding look-ups."""

from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad import RaggedTensor

TABLE = np.arange(22, dtype=np.float32).reshape(11, 2)
SPARSE = ([[0, 0], [0, 1], [2, 0]], [3, 10, 0], [4, 2])


@pytest.mark.parametrize("count", [1, 2, 3, 11, 13])
def test_parts(count: int) -> None:
    ids = np.arange(11)
    div, mod = np.array_split(TABLE, count), [TABLE[part::count] for part in range(count)]
    np.testing.assert_array_equal(rowgrad.embedding_lookup(div, ids), TABLE)
    np.testing.assert_array_equal(rowgrad.embedding_lookup(mod, ids, partition_strategy="mod"), TABLE)
    whole = rowgrad.embedding_lookup_sparse(TABLE, SPARSE)
    np.testing.assert_array_equal(rowgrad.embedding_lookup_sparse(div, SPARSE), whole)
    safe = rowgrad.safe_embedding_lookup_sparse(TABLE, SPARSE, default_id=5)
    found = rowgrad.safe_embedding_lookup_sparse(mod, SPARSE, default_id=5, partition_strategy="mod")
    np.testing.assert_array_equal(found, safe)


def test_norms_are_bounded() -> None:
    table = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], np.float32)
    found = rowgrad.embedding_lookup(table, [0, 1, 2], max_norm=1.0)
    np.testing.assert_allclose(found, [[0.6, 0.8], [0.3, 0.4], [0, 0]], rtol=1e-6)
    pooled = rowgrad.embedding_lookup_sparse(table, ([[0, 0], [0, 1]], [0, 1], [1, 2]), combiner="sum", max_norm=1.0)
    np.testing.assert_allclose(pooled, [[0.9, 1.2]], rtol=1e-6)


def test_ragged_ids() -> None:
    ids = RaggedTensor([3, 10, 0], [0, 2, 2, 3, 3])
    np.testing.assert_array_equal(rowgrad.embedding_lookup_sparse(TABLE, ids),
                                  rowgrad.embedding_lookup_sparse(TABLE, SPARSE))  # fmt: skip
    assert rowgrad.safe_embedding_lookup_sparse(TABLE, ids).shape == (4, 2)
    rows = rowgrad.embedding_lookup(TABLE, ids)
    assert rows.to_list() == [[[6.0, 7.0], [20.0, 21.0]], [], [[0.0, 1.0]], []]
    weights = RaggedTensor(np.array([1.0, 2.0, 3.0], np.float32), ids.row_splits)
    pooled = rowgrad.embedding_lookup_sparse(TABLE, ids, weights, "sum")
    np.testing.assert_array_equal(pooled[0], TABLE[3] + 2 * TABLE[10])
    with pytest.raises(rowgrad.InvalidArgumentError):
        rowgrad.embedding_lookup_sparse(TABLE, RaggedTensor.from_list([[[1]]]))


def test_gradients_reach_every_part() -> None:
    torch = framework("torch")
    parts = [torch.tensor(part, dtype=torch.float64, requires_grad=True) for part in np.array_split(TABLE + 1.0, 3)]

    def pooled(*tables: Any) -> Any:
        return rowgrad.embedding_lookup_sparse(tables, SPARSE, max_norm=4.0)

    assert torch.autograd.gradcheck(pooled, parts)
    assert torch.autograd.gradcheck(lambda *tables: rowgrad.embedding_lookup(tables, [0, 5, 5], max_norm=4.0), parts)


def test_jax_tables() -> None:
    jax = framework("jax")
    table = jax.numpy.asarray(TABLE)
    found = jax.grad(lambda table: rowgrad.embedding_lookup(table, [1, 1, 4], max_norm=1e9).sum())(table)
    assert np.asarray(found)[:, 0].tolist() == [0, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: rowgrad.embedding_lookup(TABLE, [11]), "ids"),
        (lambda: rowgrad.embedding_lookup(TABLE, [-1]), "ids"),
        (lambda: rowgrad.embedding_lookup([TABLE, TABLE], [22]), "ids"),
        (lambda: rowgrad.embedding_lookup([TABLE, TABLE[:3]], [9], partition_strategy="mod"), "ids"),
        (lambda: rowgrad.embedding_lookup(TABLE, [1], partition_strategy="modulo"), "partition_strategy"),
        (lambda: rowgrad.embedding_lookup(TABLE, [1], max_norm=0), "max_norm"),
        (lambda: rowgrad.embedding_lookup_sparse(TABLE, ([[0, 0]], [11], [1, 1]), max_norm=1.0), "sp_ids.values"),
    ],
)
def test_what_is_wrong_is_named(call: Any, argument: str) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        call()
    assert info.value.argument == argument
