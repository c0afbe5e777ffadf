"""Pooled look-ups and their gradients in compiled JAX programs: kernels by handler, by callback, and jnp's operations.

    python benchmarks/jax_programs.py

Prints microseconds a call, the best of several rounds, and how many times as long the others take.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rowgrad.jax as rj
from rowgrad.jax import _targets

SIZES = [(8, 4), (256, 8), (4096, 20)]
ROWS, WIDTH = 100_000, 16


def best(program: Callable[..., Any], args: tuple[Any, ...], seconds: float = 0.5) -> float:
    jax.block_until_ready(program(*args))
    begin = time.perf_counter()
    jax.block_until_ready(program(*args))
    number = max(3, int(0.05 / max(time.perf_counter() - begin, 1e-6)))
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not found:
        begin = time.perf_counter()
        for _ in range(number):
            result = program(*args)
        jax.block_until_ready(result)
        found.append((time.perf_counter() - begin) / number)
    return min(found) * 1e6


def _pool(bags: int, table: Any, ids: Any, segments: Any) -> Any:
    return rj.sparse_segment_sum(table, ids, segments, bags)


def _gradient(rows: int, grad: Any, ids: Any, segments: Any) -> Any:
    return rj.sparse_segment_sum_grad(grad, ids, segments, rows)


def _jnp_pool(bags: int, table: Any, ids: Any, segments: Any) -> Any:
    return jax.ops.segment_sum(table[ids], segments, bags, indices_are_sorted=True)


def _jnp_gradient(rows: int, grad: Any, ids: Any, segments: Any) -> Any:
    return jnp.zeros((rows, WIDTH), grad.dtype).at[ids].add(grad[segments])


def main() -> None:
    random = np.random.default_rng(0)
    print(f"{'':24}{'handler':>10}{'callback':>10}{'jnp':>10}{'callback/':>11}{'jnp/':>7}")
    for bags, each in SIZES:
        table = jax.device_put(random.standard_normal((ROWS, WIDTH)).astype(np.float32))
        ids = jax.device_put(random.integers(0, ROWS, bags * each).astype(np.int32))
        segments = jax.device_put(np.repeat(np.arange(bags, dtype=np.int32), each))
        grad = jax.device_put(random.standard_normal((bags, WIDTH)).astype(np.float32))
        rows = ROWS // 10
        own = {
            "forward": (partial(_pool, bags), (table, ids, segments)),
            "dense gradient": (partial(_gradient, rows), (grad, ids // 10, segments)),
        }
        plain = {"forward": partial(_jnp_pool, bags), "dense gradient": partial(_jnp_gradient, rows)}
        for name, (function, args) in own.items():
            handler = best(jax.jit(function), args)
            registered, _targets._entry = _targets._entry, None
            try:
                callback = best(jax.jit(lambda *given, f=function: f(*given)), args)
            finally:
                _targets._entry = registered
            theirs = best(jax.jit(plain[name]), args)
            print(f"{bags:>5} × {each:<3}{name:<14}{handler:>10.1f}{callback:>10.1f}{theirs:>10.1f}"
                  f"{callback / handler:>11.2f}{theirs / handler:>7.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
