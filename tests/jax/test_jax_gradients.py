"""Gradients of any order, by the rules of the catalogue; and `vmap`, which asks the kernels once where it can."""

from typing import Any

import numpy as np
import pytest
from jax_cases import AT_ONCE, DIFFERENTIABLE, PATHS, differentiated, example, jax, jnp, path, rj, wide

import rowgrad
from optional import framework
from rowgrad._ops import OPERATORS, Operator
from rowgrad._ops.gradients import backward
from rowgrad.blocks.operators import OPERATORS as BLOCKS

check_grads = framework("jax.test_util").check_grads
EACH = pytest.mark.parametrize("operator", DIFFERENTIABLE, ids=[operator.name for operator in DIFFERENTIABLE])
TRACEABLE = [operator for operator in DIFFERENTIABLE if operator.function not in AT_ONCE]
WHICH = pytest.mark.parametrize("which", PATHS)


@EACH
def test_first_and_second_order(operator: Operator) -> None:
    with wide():
        run, values = differentiated(operator, example(operator))
        check_grads(run, values, order=2, modes=["rev"])


@pytest.mark.parametrize("operator", TRACEABLE, ids=[operator.name for operator in TRACEABLE])
def test_first_and_second_order_traced(operator: Operator) -> None:
    with wide():
        run, values = differentiated(operator, example(operator), most=6)
        check_grads(jax.jit(run), values, order=2, modes=["rev"])


# The rules are the same, and their operators have portable tests of their own: a few must do, for each is compiled.
@pytest.mark.parametrize("name", ["SparseSegmentMean", "SparseSegmentMeanGradV2", "SparseSegmentWeightedSumGradV2",
                                  "SparseSegmentMax", "SparseFillEmptyRowsGrad", "SparseSliceGrad"])  # fmt: skip
def test_first_and_second_order_portable(name: str) -> None:
    operator = OPERATORS[name]
    with wide(), rj.portable():
        run, values = differentiated(operator, example(operator), most=6)
        check_grads(jax.jit(run), values, order=2, modes=["rev"])


@EACH
def test_gradients_are_those_of_numpy(operator: Operator) -> None:
    args = example(operator)
    with wide():
        run, values = differentiated(operator, args)
        results, pull = jax.vjp(run, *values)
        random = np.random.default_rng(7)
        flowing = [random.standard_normal(result.shape) for result in results]
        found = pull([jax.device_put(part) for part in flowing])
    floats = [pin.name for pin in operator.outputs if not set(operator.dtypes_of(pin)) <= {"int32", "int64", "bool"}]
    settings = {attribute.name: args.pop(attribute.name) for attribute in operator.attributes if attribute.name in args}
    expected = backward(operator, args, dict(zip(floats, flowing, strict=True)), operators=BLOCKS, attributes=settings)
    for name, gradient in zip(operator.gradient, found, strict=True):
        for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected[name]), strict=True):
            assert np.array_equal(np.asarray(one), other), name


def test_third_order() -> None:
    ids, segments = jnp.array([0, 2, 2, 1]), jnp.array([1, 0, 1, 1])

    def loss(weights: Any, data: Any) -> Any:
        return (rj.sparse_segment_weighted_sum(data, weights, ids, segments, 2) ** 3).sum()

    def plain(weights: Any, data: Any) -> Any:
        return (jax.ops.segment_sum(weights[:, None] * data[ids], segments, 2) ** 3).sum()

    with wide():
        random = np.random.default_rng(3)
        weights, data = jax.device_put(random.standard_normal(4)), jax.device_put(random.standard_normal((3, 2)))
        third = [jax.jit(jax.jacrev(jax.jacrev(jax.jacrev(f, 1), 0), 1))(weights, data) for f in (loss, plain)]
    np.testing.assert_allclose(*third, rtol=1e-12)


def test_half_precision_gradients_keep_their_type() -> None:
    table, weights = jnp.ones((3, 2), jnp.bfloat16), jnp.ones(2, jnp.float32)
    gradients = jax.grad(lambda t, w: rj.sparse_segment_weighted_sum(t, w, [0, 1], [0, 0], 1).sum(), (0, 1))(
        table, weights
    )
    assert [gradient.dtype for gradient in gradients] == [jnp.bfloat16, jnp.float32]


def test_the_table_is_not_kept_for_the_way_back() -> None:
    table, ids = jnp.ones((1000, 4)), jnp.array([1, 5])
    _, pull = jax.vjp(lambda t: rj.sparse_segment_mean(t, ids, ids * 0, 1), table)
    kept = [leaf for leaf in jax.tree.leaves(pull) if getattr(leaf, "size", 0) >= 1000]
    assert kept == []


# vmap

IDS, SEGMENTS = np.array([2, 0, 2, 1]), np.array([0, 0, 1, 2])


def loops(program: Any, *args: Any) -> tuple[int, int]:
    """How often the kernels are asked in the text of a program, and how many loops it has."""
    text = str(jax.make_jaxpr(program)(*args))
    written = jax.jit(program).lower(*args).as_text()
    return written.count("@rowgrad("), text.count("scan[") + text.count("while[")


@WHICH
def test_a_batch_of_tables_is_one_call(which: str) -> None:
    tables = jax.device_put(np.random.default_rng(1).standard_normal((5, 3, 2)).astype(np.float32))
    program = jax.vmap(lambda t: rj.sparse_segment_mean(t, IDS, SEGMENTS, 3))
    with path(which):
        assert loops(program, tables) == (int(which == "kernels"), 0)
        found = jax.jit(program)(tables)
    for table, rows in zip(tables, found, strict=True):
        expected = rowgrad.sparse_segment_mean(np.asarray(table), IDS, SEGMENTS)
        np.testing.assert_allclose(rows, expected, rtol=0 if which == "kernels" else 1e-6)


def test_a_batch_of_compact_gradients_shares_its_ids() -> None:
    grads = jax.device_put(np.random.default_rng(1).standard_normal((5, 3, 2)).astype(np.float32))
    batch = jax.vmap(
        lambda g: rj.sparse_segment_sum_grad_v2(g, IDS, SEGMENTS, 9, max_unique=4),
        out_axes=rowgrad.RowGradient(0, None),
    )
    output, ids = batch(grads)
    assert ids.tolist() == [0, 1, 2, 9]
    for grad, rows in zip(grads, output, strict=True):
        expected = rowgrad.sparse_segment_sum_grad_v2(np.asarray(grad), IDS, SEGMENTS, 9)
        assert np.array_equal(rows[:3], expected.output) and not rows[3].any()


@WHICH
def test_a_batch_of_ids_goes_in_turn(which: str) -> None:
    table = jax.device_put(np.random.default_rng(1).standard_normal((3, 2)).astype(np.float32))
    ids = jax.device_put(np.random.default_rng(2).integers(0, 3, (6, 4)))
    program = jax.vmap(lambda t, i: rj.sparse_segment_sum(t, i, SEGMENTS, 3), in_axes=(None, 0))
    with path(which):
        assert loops(program, table, ids) == (int(which == "kernels"), 1)
        found = jax.jit(program)(table, ids)
    for row, rows in zip(ids, found, strict=True):
        np.testing.assert_allclose(
            rows, rowgrad.sparse_segment_sum(np.asarray(table), np.asarray(row), SEGMENTS), rtol=1e-6
        )


def test_batches_in_batches_and_their_gradients() -> None:
    tables = jax.device_put(np.random.default_rng(1).standard_normal((2, 5, 3, 2)).astype(np.float32))
    weights = jax.device_put(np.random.default_rng(2).standard_normal((5, 4)).astype(np.float32))

    def loss(table: Any, weight: Any) -> Any:
        return (rj.sparse_segment_weighted_sum(table, weight, IDS, SEGMENTS, 3) ** 2).sum()

    def plain(table: Any, weight: Any) -> Any:
        return (jax.ops.segment_sum(weight[:, None] * table[IDS], SEGMENTS, 3) ** 2).sum()

    def total(f: Any) -> Any:
        return lambda t, w: jax.vmap(jax.vmap(f), in_axes=(0, None))(t, w).sum()

    for argument in (0, 1):
        found = jax.jit(jax.grad(total(loss), argument))(tables, weights)
        expected = jax.grad(total(plain), argument)(tables, weights)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    each = jax.vmap(jax.grad(loss), in_axes=(0, None))(tables[0], weights[0])
    np.testing.assert_allclose(
        each, jax.vmap(jax.grad(plain), in_axes=(0, None))(tables[0], weights[0]), rtol=2e-5, atol=2e-5
    )


def test_in_a_loop_and_under_a_condition() -> None:
    def step(table: Any, _: Any) -> Any:
        return jax.lax.cond(
            table.sum() > 0, lambda t: t - rj.sparse_segment_sum_grad(t, IDS, SEGMENTS, 3), lambda t: t, table
        ), None

    table = jnp.ones((3, 2))
    found = jax.jit(lambda t: jax.lax.scan(step, t, None, length=2)[0])(table)
    expected = np.ones((3, 2), np.float32)
    for _ in range(2):
        if expected.sum() > 0:
            expected = expected - rowgrad.sparse_segment_sum_grad(expected, IDS, SEGMENTS, 3)
    assert found.tolist() == expected.tolist()


def test_portable_forms_of_what_cannot_be_traced_have_gradients() -> None:
    def loss(values: Any) -> Any:
        return (rj.sparse_slice([[0], [2], [3]], values, [4], [1], [2]).output_values ** 3).sum()

    with rj.portable():
        assert jax.grad(loss)(jnp.array([1.0, 2.0, 3.0])).tolist() == [0.0, 12.0, 0.0]


def test_batches_of_what_is_no_row() -> None:
    """One value for all entries, or a tensor of a list, for each element of a batch."""
    dense = jax.vmap(lambda value: rj.sparse_to_dense([[0, 1], [2, 0]], [3, 2], value, 0.5))(jnp.array([1.0, 2.0]))
    assert dense.tolist() == [[[0.5, v], [0.5, 0.5], [v, 0.5]] for v in (1.0, 2.0)]

    def joined(values: Any) -> Any:
        return rj.sparse_concat([[[0]], [[0]]], [values, [9.0]], [[1], [1]], concat_dim=0).output_values

    assert jax.vmap(joined)(jnp.array([[1.0], [2.0]])).tolist() == [[1.0, 9.0], [2.0, 9.0]]
