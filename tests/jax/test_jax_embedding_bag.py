"""`embedding_bag` against plain loops, in all its forms; and training on the rows that occur."""

from typing import Any

import numpy as np
import pytest
from jax_cases import PATHS, STOPPED, Array, jax, jnp, path, rj, wide

import rowgrad
from optional import framework

check_grads = framework("jax.test_util").check_grads
WHICH = pytest.mark.parametrize("which", PATHS)
RANDOM = np.random.default_rng(11)
TABLE = RANDOM.standard_normal((7, 3))
IDS = np.array([3, 0, 3, 6, 1, 1, 2, 5])
BAGS = np.array([0, 0, 0, 2, 2, 3, 3, 3])
OFFSETS = np.array([0, 3, 3, 5])
WEIGHTS = RANDOM.standard_normal(8)
COMBINERS = ["sum", "mean", "sqrtn", "max"]


def pooled(table: Array, ids: Any, bags: Any, number: int, combiner: str, weights: Any = None,
           padding: int | None = None) -> Array:  # fmt: skip
    """Bag by bag, as the docstring says it."""
    weights = np.ones(len(ids)) if weights is None else weights
    output = np.zeros((number, table.shape[1]))
    for bag in range(number):
        mine = [i for i in range(len(ids)) if bags[i] == bag and ids[i] != padding]
        if not mine:
            continue
        rows, w = table[ids[mine]], weights[mine][:, None]
        scale = {"sum": 1, "max": 1, "mean": w.sum(), "sqrtn": np.sqrt((w**2).sum())}[combiner]
        output[bag] = rows.max(0) if combiner == "max" else (w * rows).sum(0) / scale if scale else 0
    return output


@WHICH
@pytest.mark.parametrize("combiner", COMBINERS)
def test_every_form(combiner: str, which: str) -> None:
    order = RANDOM.permutation(8)
    expected = pooled(TABLE, IDS, BAGS, 4, combiner)
    matrix = IDS.reshape(4, 2)
    with wide(), path(which):
        forms = [
            rj.embedding_bag(TABLE, IDS, OFFSETS, combiner=combiner),
            rj.embedding_bag(TABLE, IDS, segment_ids=BAGS, combiner=combiner),
            rj.embedding_bag(TABLE, IDS[order], segment_ids=BAGS[order], num_bags=4, combiner=combiner),
            jax.jit(lambda t, i, o: rj.embedding_bag(t, i, o, combiner=combiner))(TABLE, IDS, OFFSETS),
        ]
        square = jax.jit(lambda t, i: rj.embedding_bag(t, i, combiner=combiner))(TABLE, matrix)
    for form in forms:
        np.testing.assert_allclose(form, expected, rtol=1e-12)
    np.testing.assert_allclose(square, pooled(TABLE, IDS, np.arange(8) // 2, 4, combiner), rtol=1e-12)


@WHICH
@pytest.mark.parametrize("combiner", COMBINERS)
def test_padding_is_neither_looked_up_nor_counted(combiner: str, which: str) -> None:
    with_nan = TABLE.copy()
    with_nan[1] = np.nan
    with wide(), path(which):
        found = [rj.embedding_bag(with_nan, IDS, OFFSETS, combiner=combiner, padding_idx=p) for p in (1, -6)]
    for one in found:
        np.testing.assert_allclose(one, pooled(TABLE, IDS, BAGS, 4, combiner, padding=1), rtol=1e-12)


@WHICH
@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_weights(combiner: str, padding: int | None, which: str) -> None:
    expected = pooled(TABLE, IDS, BAGS, 4, combiner, WEIGHTS, padding)

    def run(table: Any, weights: Any) -> Any:
        return rj.embedding_bag(table, IDS, OFFSETS, combiner=combiner, per_sample_weights=weights, padding_idx=padding)

    with wide(), path(which):
        np.testing.assert_allclose(jax.jit(run)(TABLE, WEIGHTS), expected, rtol=1e-10)
        if which == "kernels":
            check_grads(jax.jit(run), (TABLE, WEIGHTS), order=2, modes=["rev"])


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_weights_that_sum_to_0_give_0(combiner: str) -> None:
    weights = jnp.array([1.0, -1.0, 2.0]) if combiner == "mean" else jnp.array([0.0, 0.0, 2.0])

    def run(weights: Any) -> Any:
        return rj.embedding_bag(jnp.ones((2, 1)), [0, 1, 1], [0, 2], combiner=combiner, per_sample_weights=weights)

    assert run(weights).tolist() == [[0.0], [1.0]]
    assert np.isfinite(jax.grad(lambda w: run(w).sum())(weights)).all()


def test_half_precision_is_summed_in_float32() -> None:
    ids = np.zeros((1, 4096), np.int32)
    for combiner, weights in (("sum", None), ("sum", jnp.ones((1, 4096), jnp.bfloat16))):
        found = rj.embedding_bag(jnp.ones((1, 2), jnp.bfloat16), ids, combiner=combiner, per_sample_weights=weights)
        assert found.dtype == jnp.bfloat16 and found.tolist() == [[4096.0, 4096.0]]


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"combiner": "median"}, "combiner", "allowed: sum, mean, sqrtn, max"),
    ({"offsets": None}, "offsets", "pass either offsets or segment_ids"),
    ({"segment_ids": BAGS}, "offsets", "pass either"),
    ({"ids": IDS.reshape(4, 2)}, "ids", "leave out offsets"),
    ({"per_sample_weights": WEIGHTS[:3]}, "per_sample_weights", "each id has one weight"),
    ({"per_sample_weights": WEIGHTS, "combiner": "max"}, "per_sample_weights", "max"),
    ({"num_bags": 9}, "num_bags", "there are 4 bags"),
    ({"padding_idx": 7}, "padding_idx", "0 to 6"),
    ({"offsets": [0, 5, 3]}, "offsets", r"offsets\[2\] is 3, smaller than 5"),
    ({"ids": np.array([1, 2, 3, 4, 5, 6, 7, 0])}, "indices", r"indices\[6\] is 7"),
]


@WHICH
@pytest.mark.parametrize(
    ("change", "argument", "words"), WRONG, ids=[next(iter(w[0])) + str(i) for i, w in enumerate(WRONG)]
)
def test_what_is_wrong_is_named(change: dict[str, Any], argument: str, words: str, which: str) -> None:
    with path(which), pytest.raises(rowgrad.InvalidArgumentError, match=words) as caught:
        rj.embedding_bag(**{"table": TABLE, "ids": IDS, "offsets": OFFSETS, **change})
    assert caught.value.argument == argument


def test_jit_must_know_the_number_of_bags() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match="Pass num_bags"):
        jax.jit(lambda bags: rj.embedding_bag(TABLE, IDS, segment_ids=bags))(BAGS)


# The rows that occur


@WHICH
@pytest.mark.parametrize("most", [None, 6, 9])
def test_rows_are_taken_once_and_put_back(most: int | None, which: str) -> None:
    table = jax.device_put(TABLE.astype(np.float32))
    with path(which):
        taken = rj.take_rows(table, IDS.reshape(2, 4), max_unique=most)
        padding = [7] * (0 if most is None else most - 6)
        assert taken.sorted_unique_indices.tolist() == [0, 1, 2, 3, 5, 6, *padding]
        assert np.array_equal(taken.rows[taken.positions], table[IDS.reshape(2, 4)])
        changed = taken.put_into(table, taken.rows + 1)
    expected = np.asarray(table).copy()
    expected[[0, 1, 2, 3, 5, 6]] += 1
    assert np.array_equal(changed, expected)


@WHICH
def test_compact_training_equals_dense_training(which: str) -> None:
    random = np.random.default_rng(2)
    batches = [random.integers(0, 50, (6, 4)) for _ in range(5)]
    start = jax.device_put(random.standard_normal((50, 3)).astype(np.float32))

    def loss(table: Any, ids: Any) -> Any:
        return (rj.embedding_bag(table, ids, combiner="mean") ** 2).sum()

    def compact(table: Any, ids: Any) -> Any:
        _, gradient = rj.value_and_row_grad(loss, max_unique=24)(table, ids)
        return table.at[gradient.sorted_unique_indices].add(-0.1 * gradient.output, mode="drop")

    with path(which):
        step = jax.jit(compact)
        dense = jax.jit(lambda table, ids: table - 0.1 * jax.grad(loss)(table, ids))
        one, other = start, start
        for ids in batches:
            one, other = step(one, ids), dense(other, ids)
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_too_many_rows_and_bad_ids_are_reported() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match="max_unique is 3, but 6 distinct"):
        rj.take_rows(TABLE, IDS, max_unique=3)
    with pytest.raises(STOPPED, match="max_unique is 3, but 6 distinct"):
        jax.block_until_ready(jax.jit(lambda ids: rj.take_rows(TABLE, ids, max_unique=3))(IDS))
    with pytest.raises(rowgrad.OutOfRangeError, match=r"indices\[1\] is 7"):
        rj.take_rows(TABLE, [0, 7])
