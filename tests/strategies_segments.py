"""Strategies for reductions of rows by segment, and for their gradients: a part of `strategies`."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from strategy_values import Args, Array, Random, index_dtypes, randoms, scalars, specials, trailing_shapes, values


@st.composite
def rows_by_segment(
    draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool, counted: bool = True, product: bool = False
) -> Args:
    """Rows in sorted segments; long ones, in packets and beside them, have an order of their own."""
    random, special = draw(randoms()), draw(specials())
    n = draw(st.integers(0, 60))
    rises = random.random(n) < draw(st.sampled_from([0.0, 0.05, 0.2, 1.0]))
    steps = rises * random.integers(1, draw(st.integers(2, 4)), n)
    segment_ids = (draw(st.integers(0, 2)) + np.cumsum(steps)).astype(draw(index_dtypes()))
    shape = (n, *draw(trailing_shapes()))
    if tensorflow and dtype.kind == "c":
        special = 0.0
    data = factors(random, dtype, shape) if product and tensorflow else values(random, dtype, shape, special)
    args: Args = {"data": data, "segment_ids": segment_ids}
    if counted and not tensorflow and draw(st.booleans()):  # TensorFlow has that only where XLA compiles it
        used = int(segment_ids[-1]) + 1 if n else 0
        args["num_segments"] = draw(scalars(used + draw(st.integers(0, 3))))
    return args


def factors(random: Random, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Values whose products stay far from the subnormal numbers, which TensorFlow flushes to 0 in between.

    Its products of complex numbers with infinite parts depend on the column (docs/deviations.md).
    """
    if dtype.kind in "iu":
        return values(random, dtype, shape, 0.05)
    sizes = 1 + random.standard_normal(shape) / 8
    if dtype.kind == "c":
        return (sizes + 1j * random.standard_normal(shape) / 8).astype(dtype)
    corners = random.choice([0.0, np.inf, np.nan, -0.0], shape)
    found = np.where(random.random(shape) < 0.02, corners, sizes * random.choice([-1, 1], shape))
    return found.astype(dtype)


def sorted_rows(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return rows_by_segment(dtype, tensorflow)


def sorted_products(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return rows_by_segment(dtype, tensorflow, product=True)


def sorted_means(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return rows_by_segment(dtype, tensorflow, counted=False)


@st.composite
def unsorted_rows(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool, product: bool = False) -> Args:
    random, special = draw(randoms()), draw(specials())
    ranks = st.lists(st.integers(0, 5), max_size=3).map(tuple) | st.integers(0, 60).map(lambda n: (n,))
    shape, segments = draw(ranks), draw(st.integers(1, 6))
    ids = random.integers(draw(st.sampled_from([-2, 0])), segments, shape)
    full = (*shape, *draw(trailing_shapes()))
    return {
        "data": factors(random, dtype, full) if product and tensorflow else values(random, dtype, full, special),
        "segment_ids": np.asarray(ids, draw(index_dtypes())),
        "num_segments": draw(scalars(segments + draw(st.integers(0, 2)))),
    }


def unsorted_products(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return unsorted_rows(dtype, tensorflow, product=True)


@st.composite
def segment_takes(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool) -> Args:
    random, special = draw(randoms()), draw(specials())
    segments, n = draw(st.integers(1, 6)), draw(st.integers(0, 40))
    return {
        "grad": values(random, dtype, (segments, *draw(trailing_shapes())), special),
        "segment_ids": random.integers(-1, segments, n).astype(draw(index_dtypes())),
    }


@st.composite
def segment_shares(draw: st.DrawFn, dtype: np.dtype[Any], tensorflow: bool, backward: bool, product: bool) -> Args:
    """Gradients of largest and smallest rows, of which some are equal; of products, with and without zeros."""
    random, special = draw(randoms()), draw(specials())
    segments, n, tail = draw(st.integers(1, 5)), draw(st.integers(0, 30)), draw(trailing_shapes())
    pool = values(random, dtype, (draw(st.integers(1, 30)), *tail), special)
    if product and draw(st.booleans()):
        pool[random.random(pool.shape) < 0.2] = 0
    ids = random.integers(-1, segments, n).astype(draw(index_dtypes()))
    data = pool[random.integers(0, len(pool), n)]
    grad = values(random, dtype, (segments, *tail) if backward else data.shape, special)
    if product:
        return {"grad": grad, "data": data, "segment_ids": ids}
    output = np.zeros((segments, *tail), dtype)
    for i in range(n):
        if ids[i] >= 0 and random.random() < 0.5:
            output[ids[i]] = data[i]
    return {"grad": grad, "data": data, "output": output, "segment_ids": ids}


def max_shares(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return segment_shares(dtype, tensorflow, backward=True, product=False)


def max_share_grads(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return segment_shares(dtype, tensorflow, backward=False, product=False)


def prod_shares(dtype: np.dtype[Any], tensorflow: bool) -> st.SearchStrategy[Args]:
    return segment_shares(dtype, tensorflow, backward=True, product=True)
