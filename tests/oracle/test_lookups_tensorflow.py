"""The embedding look-ups beside TensorFlow's: tables in parts, bounded norms, ragged ids."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import rowgrad
from rowgrad import RaggedTensor

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")

RNG = np.random.default_rng(4)
TABLE = RNG.standard_normal((11, 3)).astype(np.float32)
SPARSE = ([[0, 0], [0, 1], [2, 0], [2, 1], [2, 4]], [3, 10, 0, 3, 7], [4, 5])
WEIGHTS = np.array([0.5, 2.0, 1.0, -1.0, 3.0], np.float32)
LOOKUPS = tf.compat.v1.nn


def in_parts(count: int, strategy: str) -> list[np.ndarray]:
    if strategy == "mod":
        return [TABLE[part::count] for part in range(count)]
    return np.array_split(TABLE, count)


@pytest.mark.parametrize("strategy", ["div", "mod"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_plain(strategy: str, count: int, max_norm: float | None) -> None:
    ids = np.array([[0, 10, 5], [7, 7, 1]])
    parts = in_parts(count, strategy)
    expected = LOOKUPS.embedding_lookup(list(map(tf.constant, parts)), ids, strategy, max_norm=max_norm)
    found = rowgrad.embedding_lookup(parts, ids, max_norm=max_norm, partition_strategy=strategy)
    (np.testing.assert_array_equal if max_norm is None else np.testing.assert_allclose)(
        found, expected, **({} if max_norm is None else {"rtol": 1e-6})
    )


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("strategy, count", [("div", 1), ("div", 3), ("mod", 4)])
@pytest.mark.parametrize("max_norm", [None, 1.5])
def test_sparse(safe: bool, weighted: bool, combiner: str, strategy: str, count: int, max_norm: float | None) -> None:
    parts = in_parts(count, strategy)
    name = "safe_embedding_lookup_sparse" if safe else "embedding_lookup_sparse"
    weights = (SPARSE[0], WEIGHTS, SPARSE[2]) if weighted else None
    expected = getattr(LOOKUPS, name)(
        list(map(tf.constant, parts)), tf.SparseTensor(*SPARSE), tf.SparseTensor(*weights) if weighted else None,
        partition_strategy=strategy, combiner=combiner, max_norm=max_norm,
    )  # fmt: skip
    found = getattr(rowgrad, name)(parts, SPARSE, weights, combiner, max_norm=max_norm, partition_strategy=strategy)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    if not weighted and max_norm is None:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("safe", [True, False])
def test_ragged(weighted: bool, combiner: str, safe: bool) -> None:
    values, splits = np.array([3, 10, 0, 3, 7]), np.array([0, 2, 2, 5, 5])
    name = "safe_embedding_lookup_sparse" if safe else "embedding_lookup_sparse"
    weights = np.abs(WEIGHTS) if weighted else None
    expected = getattr(tf.nn, name)(
        TABLE, tf.RaggedTensor.from_row_splits(values, splits),
        tf.RaggedTensor.from_row_splits(weights, splits) if weighted else None, combiner=combiner,
    )  # fmt: skip
    ragged_weights = RaggedTensor(weights, splits) if weighted else None
    found = getattr(rowgrad, name)(TABLE, RaggedTensor(values, splits), ragged_weights, combiner)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    theirs = getattr(rowgrad, name)(TABLE, tf.RaggedTensor.from_row_splits(values, splits), ragged_weights, combiner)
    np.testing.assert_array_equal(found, theirs)


def test_ragged_ids_of_a_plain_look_up() -> None:
    ids = tf.ragged.constant([[1, 2], [], [3]])
    found = rowgrad.embedding_lookup(TABLE, RaggedTensor.from_tensorflow(ids))
    assert found.to_list() == tf.nn.embedding_lookup(TABLE, ids).to_list()


@pytest.mark.parametrize("ids", [[11], [-1]])
def test_the_same_ids_are_refused(ids: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.nn.embedding_lookup(TABLE, ids)
    with pytest.raises(rowgrad.OutOfRangeError):
        rowgrad.embedding_lookup(TABLE, ids)
