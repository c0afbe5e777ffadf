"""JAX: a mean over segments, and its dense gradient, both jitted.

Ids are int32, JAX's own choice, which serves it best. The gradient does not depend on the table, so XLA leaves the
forward pass out of it.
"""

import os
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bench import data
from bench.contest import Entry
from bench.work import Work
from rowgrad._runtime.dtypes import Array

jax: Any = None


def start(threads: int) -> None:
    """Load JAX on the CPU; it takes as many threads as the process may use cores, which `machine` has limited."""
    global jax
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    jax = import_module("jax")


def entry(work: Work) -> Entry:
    """JAX's way to do `work`."""
    shape = work.bags
    inputs = data.batch(shape)
    ids, bags = (jax.numpy.asarray(array.astype(np.int32)) for array in (inputs.ids, inputs.bags))
    grad = jax.numpy.asarray(inputs.grad)
    table = jax.numpy.asarray(data.table(shape.rows, shape.width, shape.dtype))
    counts = jax.numpy.full((shape.bags, 1), shape.ids_per_bag, grad.dtype)

    def mean(table: Any, ids: Any, bags: Any) -> Any:
        sums = jax.ops.segment_sum(table[ids], bags, shape.bags, indices_are_sorted=not shape.shuffled)
        return sums / counts

    def gradient(table: Any, ids: Any, bags: Any, grad: Any) -> Any:
        return jax.vjp(lambda rows: mean(rows, ids, bags), table)[1](grad)[0]

    if work.operation == "mean":
        run = partial(jax.jit(mean), table, ids, bags)
    else:
        run = partial(jax.jit(gradient), table, ids, bags, grad)
    return Entry("jax", lambda: run().block_until_ready(), _arrays)


def _arrays(result: Any) -> list[Array]:
    return [np.asarray(result)]
