"""Programs that ask the kernels, many at a time and with large arrays: none waits for another for ever.

JAX's own callbacks copy their arguments on the threads that run programs, and can wait there for one another.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jax_cases import jax, jnp, rj

import rowgrad

PATIENCE = 240  # seconds after which what hangs, hangs


def run_together(work: Callable[[int], None], number: int) -> None:
    failures: list[BaseException] = []

    def guarded(which: int) -> None:
        try:
            work(which)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=guarded, args=(which,), daemon=True) for which in range(number)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE)
    assert not any(worker.is_alive() for worker in workers), "a program hangs"
    assert failures == []


def test_many_programs_from_several_threads() -> None:
    random = np.random.default_rng(0)
    ids, segments = random.integers(0, 50, 300), np.sort(random.integers(0, 40, 300))
    tables = [random.standard_normal((50, 8)).astype(np.float32) for _ in range(3)]
    expected = [rowgrad.sparse_segment_mean(table, ids, segments, 40) for table in tables]
    program = jax.jit(lambda table: rj.sparse_segment_mean(table, ids, segments, 40))

    def work(which: int) -> None:
        for _ in range(60):
            assert np.array_equal(program(tables[which]), expected[which])

    run_together(work, 3)


def test_large_arrays_from_several_threads() -> None:
    rows, width = 60_000, 64  # 15 MB
    table = jnp.ones((rows, width), jnp.float32)
    ids = np.random.default_rng(0).integers(0, rows, 20_000)
    segments = np.arange(20_000)

    def loss(table: Any) -> Any:
        pooled = rj.sparse_segment_sum(table, ids, segments, 20_000)
        other = rj.sparse_segment_mean(table, ids[::-1].copy(), segments // 2, 10_000)  # two that may run side by side
        return pooled.sum() + other.sum()

    program = jax.jit(jax.value_and_grad(loss))

    def work(which: int) -> None:
        for _ in range(3):
            value, gradient = program(table)
            assert float(value) == 30_000 * width
            assert gradient.shape == (rows, width)
            assert float(gradient.sum()) == 30_000 * width

    run_together(work, 2)


def test_results_that_wait_for_one_another() -> None:
    """JAX returns before a program has run: each of these starts while the one before it may still be at work."""
    ids = np.arange(2000)[::-1].copy()
    program = jax.jit(lambda table: rj.sparse_segment_sum_grad(table, ids, np.arange(2000), 2000))
    table = start = jnp.arange(2000.0 * 512).reshape(2000, 512)
    for _ in range(20):
        table = program(table)
    assert np.array_equal(table, start)


def test_64_bits_in_threads_that_do_not_know_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """`jax.enable_x64` is a setting of a thread; a program that waits for its arguments is run by another one."""
    indices, values, shape = np.array([[0], [2]]), np.array([1 << 40, -1]), np.array([3])
    dense, far = np.array([1, 1 << 50, 3]), np.array([0, 1 << 40])
    expected = rowgrad.raw_ops.SparseTensorDenseAdd(a_indices=indices, a_values=values, a_shape=shape, b=dense)
    blamed: list[Any] = []
    monkeypatch.setattr("rowgrad.jax._host.blame", lambda call, ok, *ids: blamed.append(ids))

    def nothing(square: Any) -> Any:
        return (square @ square)[0, 0].astype(int) * 0

    with jax.enable_x64(True), rj.portable():
        square = jnp.ones((1200, 1200))
        late = jax.jit(lambda square: (square @ square)[:2, :2] * 0)
        add = jax.jit(lambda b, square: rj.sparse_tensor_dense_add(indices, values, shape, b + nothing(square)))
        fetch = jax.jit(lambda ids, square: rj.sparse_segment_sum(np.ones((3, 2)), ids + nothing(square), far * 0, 1))
        for _ in range(2):  # the first time, compiling them takes longer than what they wait for
            assert np.array_equal(add(dense, late(square)), expected)
            jax.block_until_ready(fetch(far, late(square)))
            jax.effects_barrier()
    assert [ids[0].tolist() for ids in blamed] == [far.tolist()] * 2
