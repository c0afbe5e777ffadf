"""Compile the kernels that traced programs call, for float32 in every width: `rowgrad doctor --warm`.

Kernels are made ready when a program is traced, so nothing is run.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from rowgrad import jax as rowgrad_jax

POOLED = ("sum", "mean", "sqrt_n")


def tasks(widths: Iterable[int]) -> list[tuple[str, Callable[[], Any]]]:
    """Look-ups and their gradients under jit, with a label for each."""
    return [(f"JAX float32, {width} wide", partial(_trace, width)) for width in widths]


def _trace(width: int) -> None:
    table, ids, weights = jnp.zeros((4, width)), jnp.zeros(2, jnp.int32), jnp.ones(2)

    def program(table: Any, weights: Any, ids: Any) -> Any:
        found = []
        for name in POOLED:
            found.append(getattr(rowgrad_jax, f"sparse_segment_{name}")(table, ids, ids, 2))
            found.append(getattr(rowgrad_jax, f"sparse_segment_{name}_grad")(table, ids, ids, 4))
            grad = getattr(rowgrad_jax, f"sparse_segment_{name}_grad_v2")(table, ids, ids, 4, max_unique=2)
            found.append(grad.output)
        found.append(rowgrad_jax.sparse_segment_weighted_sum(table, weights, ids, ids, 2))
        found.append(rowgrad_jax.sparse_segment_weighted_sum_grad_v2(table, weights, ids, ids, 4, max_unique=2).output)
        found.append(rowgrad_jax.sparse_segment_max(table, ids, ids, 2).output)
        rows = jnp.zeros(4, jnp.int32)
        found += [rowgrad_jax.segment_sum(table, rows, 4), rowgrad_jax.unsorted_segment_mean(table, rows, 4)]
        found.append(rowgrad_jax.sparse_fill_empty_rows_grad(ids, weights).d_values)
        found.append(rowgrad_jax.sparse_slice_grad(weights, ids[:, None], ids[:1], ids[:, None]))
        return sum(each.sum() for each in found) + rowgrad_jax.row_dot(table, table, ids, ids).sum()

    jax.jit(program).lower(table, weights, ids)
    jax.jit(jax.grad(program, (0, 1))).lower(table, weights, ids)
