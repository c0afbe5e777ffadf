"""What can be wrong with one argument: each function gives faults of a kind, with a name for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Fault = tuple[str, Any]


def no_array_at_all(good: Array) -> Iterator[Fault]:
    """What is neither an array nor becomes one; wrong for every argument, whatever the others are."""
    recursive: list[Any] = []
    recursive.append(recursive)
    deep: Any = 0
    for _ in range(100):
        deep = [deep]
    record = np.dtype([("a", np.int32), ("b", np.float32)])
    yield from [
        ("an object", object()),
        ("a function", len),
        ("a dictionary", {"a": 1}),
        ("a set", {0, 1}),
        ("an iterator", iter([0, 1])),
        ("an ellipsis", ...),
        ("a ragged list", [[0], [1, 2]]),
        ("a more ragged list", [0, [1, [2]]]),
        ("a recursive list", recursive),
        ("a list a hundred deep", deep),
        ("a list of None", [None] * 3),
        ("a list of dictionaries", [{}] * 3),
        ("an array of objects", np.array([object()] * 3)),
        ("dates", np.full(good.shape, np.datetime64("2020-01-01"))),
        ("durations", np.full(good.shape, np.timedelta64(1, "s"))),
        ("records", np.zeros(good.shape, record)),
        ("raw bytes", np.zeros(good.shape, "V4")),
    ]


def no_whole_numbers(good: Array) -> Iterator[Fault]:
    """What cannot be ids or sizes."""
    yield from [
        ("a string", "abc"),
        ("bytes", b"abc"),
        ("strings", np.full(good.shape, "1")),
        ("floats", good.astype(np.float32)),
        ("doubles", good.astype(np.float64)),
        ("half", good.astype(np.float16)),
        ("NaN", np.full(good.shape, np.nan)),
        ("infinity", np.full(good.shape, np.inf)),
        ("fractions in a list", np.full(good.shape, 0.5).tolist()),
        ("float8", good.astype(ml_dtypes.float8_e5m2)),
        ("complex", good.astype(np.complex64)),
        ("past uint64", np.full(good.shape, 2**70, object).tolist()),
        ("past int64", np.full(good.shape, 2**64 - 1, np.uint64)),
    ]


def wrong_types(good: Array, not_taken: tuple[Any, ...]) -> Iterator[Fault]:
    """Value types that the operator does not take. A scalar default follows the values, and is left alone."""
    if good.ndim:
        yield "int4", np.zeros(good.shape, ml_dtypes.int4)
        yield "float8", np.zeros(good.shape, ml_dtypes.float8_e5m2)
        yield from ((f"{np.dtype(dtype)}", np.zeros(good.shape, dtype)) for dtype in not_taken)


def wrong_ranks(good: Array, any_rank: bool) -> Iterator[Fault]:
    if good.ndim:
        yield "a scalar", good.reshape(-1)[0]
        yield "a Python number", good.reshape(-1)[0].item()
    if not any_rank:
        yield "one rank more", good[None]
        yield "two ranks more", good[None, None]
        yield "a trailing rank more", good[..., None]
        yield "a list of one rank more", [good.tolist()]
        yield "thirty ranks more", good.reshape((1,) * 30 + good.shape)
        if good.ndim == 2:
            yield "flat", good.reshape(-1)


def wrong_lengths(good: Array) -> Iterator[Fault]:
    yield "one shorter", good[:-1]
    yield "one longer", np.concatenate([good, good[:1]])
    yield "empty", good[:0]
    yield "twice", np.concatenate([good, good])
    yield "endless", np.broadcast_to(good[:1], (2**40, *good.shape[1:]))
    yield "more endless", np.broadcast_to(good[:1], (2**58, *good.shape[1:]))
    if good.ndim == 2:
        yield "one column less", good[:, :-1]
        yield "one column more", np.concatenate([good, good[:, :1]], axis=1)
        yield "no columns", good[:, :0]


def wrong_numbers(good: Array, numbers: list[int]) -> Iterator[Fault]:
    for number in numbers:
        if good.ndim == 0:
            yield str(number), number
            yield f"{number} in an array", np.array(number)
            continue
        for position in range(len(good)):
            bad = good.copy()
            bad[(position, 0) if good.ndim == 2 else position] = number
            yield f"{number} at {position}", bad


def wrong_sizes(good: Array, sizes: list[int]) -> Iterator[Fault]:
    for size in sizes:
        if good.ndim:
            yield f"{size} rows", np.array([size, *good[1:]])
        else:
            yield f"{size} rows", size
