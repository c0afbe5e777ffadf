"""How users of JAX call rowgrad. `test_types.py` has it checked; nobody runs it."""

from typing import assert_type

import jax
import jax.numpy as jnp

import rowgrad
from rowgrad import RowGradient

table = jnp.ones((10, 4))
ids, segments = jnp.array([0, 3, 5]), jnp.array([0, 0, 1])

assert_type(rowgrad.sparse_segment_mean(table, ids, segments), jax.Array)
assert_type(rowgrad.jax.sparse_segment_mean(table, [0, 1], [0, 0], 2), jax.Array)
compact = rowgrad.jax.sparse_segment_mean_grad_v2(table, ids, segments, 10, max_unique=3)
assert_type(compact, RowGradient[jax.Array])
assert_type(compact.output, jax.Array)
