"""Every operator and dtype against the plain loops of `naive`, bit for bit, on input that Hypothesis draws.

On the way: whatever the layout of the input, it is never changed, and the number of threads never shows in
the result. The last part repeats that at a size where the threads really share the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import golden
import naive
import rowgrad
import strategies
from golden import assert_same
from rowgrad._ops import functions

Array = np.ndarray[Any, Any]
Args = dict[str, Any]
THREADS = [1, 2, 3, 8]

# These move values and make none, so that even the bits of a NaN must arrive.
COPIES = (
    *("sparse_fill_empty_rows", "ragged_fill_empty_rows"),
    *("sparse_reorder", "sparse_reorder_grad", "sparse_reshape"),
    *("sparse_slice", "sparse_slice_grad", "sparse_slice_grad_grad", "sparse_segment_max_grad_grad"),
    "sparse_add_grad",
    *("sparse_to_dense", "sparse_concat", "sparse_split_part"),
)
# These take ids and no values.
ON_IDS = ("index_rank", "chosen_rank", "segment_ids_from_offsets", "sparse_reshape", "sparse_reduce_segments",
          "sparse_concat_places", "dense_count_sparse_output", "sparse_count_sparse_output",
          "ragged_count_sparse_output")  # fmt: skip


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    before = rowgrad.get_num_threads()
    yield
    rowgrad.set_num_threads(before)


def as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


def call(op: str, args: Args, threads: int) -> tuple[Any, ...]:
    rowgrad.set_num_threads(threads)
    return as_tuple(getattr(functions, op)(**args))


@contextmanager
def treated_as_large() -> Iterator[None]:
    """Even the smallest call is cut into chunks for all threads, and has no kernel of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rowgrad._runtime.threads.GRAIN", 1)
        for module in ("row_sums", "weighted_sum", "segment_max"):
            patch.setattr(f"rowgrad._ops.{module}.SMALL", -1)
        yield


def contents(args: Args) -> dict[str, Any]:
    return {
        name: [contents({"part": part}) for part in arg] if isinstance(arg, list)
        else np.asarray(arg).tolist() if is_text(arg) else np.asarray(arg).tobytes()
        for name, arg in args.items()
    }  # fmt: skip


def is_text(arg: Any) -> bool:
    return np.asarray(arg).dtype.kind == "O"


# ---------------------------------------------------------------- layouts


def read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


def every_second(array: Array) -> Array:
    wide = np.repeat(array, 2, axis=0)
    return wide[::2]


def backwards(array: Array) -> Array:
    return array[::-1].copy()[::-1]


def last_axis_first(array: Array) -> Array:
    return np.asfortranarray(array)


def unaligned(array: Array) -> Array:
    if array.dtype.kind == "O":
        return array
    room = np.empty(array.nbytes + 1, np.uint8)
    moved = room[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


LAYOUTS: list[Callable[[Array], Array]] = [read_only, every_second, backwards, last_axis_first, unaligned]


def laid_out(args: Args, layout: Callable[[Array], Array]) -> Args:
    return {
        name: [layout(part) for part in arg] if isinstance(arg, list) else layout(arg) if np.ndim(arg) else arg
        for name, arg in args.items()
    }


# ---------------------------------------------------------------- small calls

TYPED = [
    pytest.param(op, dtype, id=f"{op}-{golden.dtype_name(dtype)}")
    for op, (_, dtypes) in strategies.OPERATORS.items()
    for dtype in dtypes
]


@pytest.mark.parametrize(("op", "dtype"), TYPED)
def test_same_as_naive(op: str, dtype: np.dtype[Any]) -> None:
    @settings(max_examples=min(40, settings.default.max_examples))
    @given(strategies.calls(op, dtype), st.sampled_from(THREADS), st.sampled_from(LAYOUTS), st.booleans())
    def check(args: Args, threads: int, layout: Callable[[Array], Array], as_if_large: bool) -> None:
        expected = as_tuple(getattr(naive, op)(**args))
        given_args = laid_out(args, layout)
        before = contents(given_args)
        with treated_as_large() if as_if_large else nullcontext():
            actual = call(op, given_args, threads)
        assert contents(given_args) == before
        assert len(actual) == len(expected)
        for want, got in zip(expected, actual, strict=True):
            assert_same(want, got, "bits" if op in COPIES else "nan")

    check()


@pytest.mark.parametrize("op", strategies.OPERATORS)
def test_results_are_fresh(op: str) -> None:
    """Writing to a result changes neither the input nor another result."""

    @settings(max_examples=min(10, settings.default.max_examples))
    @given(strategies.calls(op, np.dtype(np.int64 if op in ON_IDS else np.float32)))
    def check(args: Args) -> None:
        results = as_tuple(getattr(functions, op)(**args))
        for i, result in enumerate(results):
            given = [part for arg in args.values() for part in (arg if isinstance(arg, list) else [arg])]
            others = [*results[:i], *results[i + 1 :], *given]
            assert not any(np.may_share_memory(result, other) for other in others)

    check()


# ---------------------------------------------------------------- large calls

N, TABLE = 60_000, 5_000
WIDTHS = [1, 3, 8, 17, 70]
KINDS = ["sum", "mean", "sqrt_n"]
LARGE_DTYPES = [np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]
# Each type meets each width and each kind, and each kind each width; all three together are not needed.
LARGE = pytest.mark.parametrize(
    ("kind", "dtype", "width"),
    [(KINDS[(i + j) % 3], dtype, width) for i, dtype in enumerate(LARGE_DTYPES) for j, width in enumerate(WIDTHS)],
    ids=str,
)


def skewed(random: np.random.Generator, size: int, n: int = N) -> Array:
    """Ids of which a few are met very often and most seldom."""
    return (size * random.random(n) ** 4).astype(np.int64)


def same_for_all_threads(op: str, args: Args) -> tuple[Array, ...]:
    first = call(op, args, THREADS[0])
    for threads in THREADS[1:]:
        for want, got in zip(first, call(op, args, threads), strict=True):
            assert_same(want, got)
    return first


def assert_close(exact: Array, absolute: Array, actual: Array) -> None:
    """`absolute` is the same sum over absolute values: what rounding errors are measured by."""
    info = ml_dtypes.finfo(actual.dtype)
    sums = (1e-12 if actual.dtype == np.float64 else 1e-4) * absolute
    last_rounding = float(info.eps) * np.abs(exact) + float(info.smallest_subnormal)
    wrong = np.abs(actual.astype(np.float64) - exact) > sums + last_rounding
    assert not wrong.any()


def scattered(rows: int, targets: Array, terms: Array) -> tuple[Array, Array]:
    exact, absolute = np.zeros((2, rows, *terms.shape[1:]))
    np.add.at(exact, targets, terms)
    np.add.at(absolute, targets, np.abs(terms))
    return exact, absolute


def scales(kind: str, counts: Array) -> Array:
    counts = np.maximum(counts, 1)
    return {"sum": np.ones(len(counts)), "mean": 1 / counts, "sqrt_n": 1 / np.sqrt(counts)}[kind]


@LARGE
@pytest.mark.slow
def test_large_segments(kind: str, dtype: np.dtype[Any], width: int) -> None:
    random = np.random.default_rng(width)
    rows = 700
    indices, ids = skewed(random, TABLE), np.sort(skewed(random, rows)).astype(np.int32)
    counts = np.bincount(ids, minlength=rows)
    data = random.standard_normal((TABLE, width)).astype(dtype)
    args = {"data": data, "indices": indices, "segment_ids": ids, "num_segments": rows}
    (output,) = same_for_all_threads(f"sparse_segment_{kind}", args)
    terms = data.astype(np.float64)[indices] * scales(kind, counts)[ids][:, None]
    assert_close(*scattered(rows, ids, terms), output)


@LARGE
@pytest.mark.slow
def test_large_segment_gradients(kind: str, dtype: np.dtype[Any], width: int) -> None:
    """The gradients of a kind: dense and compact, and the way back through both."""
    random = np.random.default_rng(width)
    segments = 3_000
    ids = {"indices": skewed(random, TABLE).astype(np.int32), "segment_ids": skewed(random, segments)}
    indices, segment_ids = ids["indices"], ids["segment_ids"]
    scale = scales(kind, np.bincount(segment_ids, minlength=segments))[segment_ids][:, None]
    op, unique = f"sparse_segment_{kind}_grad", np.unique(indices)

    grad = random.standard_normal((segments, width)).astype(dtype)
    (dense,) = same_for_all_threads(op, {"grad": grad, **ids, "output_dim0": TABLE})
    compact, found = same_for_all_threads(f"{op}_v2", {"grad": grad, **ids, "dense_output_dim0": TABLE})
    assert_close(*scattered(TABLE, indices, grad.astype(np.float64)[segment_ids] * scale), dense)
    assert_same(unique, found)
    assert_same(dense[unique], compact)

    upstream = random.standard_normal((TABLE, width)).astype(dtype)
    (back,) = same_for_all_threads(f"{op}_grad", {"grad": upstream, **ids, "num_segments": segments})
    (ranks,) = same_for_all_threads("index_rank", {"sorted_unique_indices": unique, "indices": indices})
    compact_ids = {"indices": ranks, "segment_ids": segment_ids}
    args = {"grad": upstream[unique], **compact_ids, "num_segments": segments}
    (compact_back,) = same_for_all_threads(f"{op}_grad", args)
    assert_close(*scattered(segments, segment_ids, upstream.astype(np.float64)[indices] * scale), back)
    assert_same(back, compact_back)


def test_large_integer_segments() -> None:
    random = np.random.default_rng(0)
    data = strategies.values(random, np.dtype(np.int16), (TABLE, 5), special=0.2)
    indices, ids = skewed(random, TABLE), np.sort(skewed(random, 700))
    (output,) = same_for_all_threads("sparse_segment_sum", {"data": data, "indices": indices, "segment_ids": ids})
    expected = np.zeros((ids[-1] + 1, 5), np.int16)
    np.add.at(expected, ids, data[indices])
    assert_same(expected, output)


@pytest.mark.parametrize("order", ["sorted", "unsorted"])
def test_large_fills(order: str) -> None:
    random = np.random.default_rng(0)
    rows = skewed(random, 2 * N)
    rows = np.sort(rows) if order == "sorted" else rows
    indices = np.stack([rows, random.integers(0, 9, N)], axis=1)
    values = random.standard_normal(N).astype(np.float32)
    filled = same_for_all_threads(
        "sparse_fill_empty_rows",
        {"indices": indices, "values": values, "dense_shape": [2 * N, 9], "default_value": np.float32(7)},
    )
    output_indices, output_values, empty, reverse = filled
    assert_same(np.bincount(rows, minlength=2 * N) == 0, empty)
    assert_same(np.concatenate([rows, np.flatnonzero(empty)])[stable(rows, empty)], output_indices[:, 0])
    assert_same(indices, output_indices[reverse])
    assert_same(values, output_values[reverse])
    blank = np.setdiff1d(np.arange(len(output_values)), reverse)
    assert_same(np.full(len(blank), 7, np.float32), output_values[blank])
    assert (np.diff(reverse[np.argsort(rows, kind="stable")]) > 0).all()

    ragged = same_for_all_threads(
        "ragged_fill_empty_rows",
        {"value_rowids": rows, "values": values, "nrows": 2 * N, "default_value": np.float32(7)},
    )
    for want, got in zip([output_indices[:, 0], *filled[1:]], ragged, strict=True):
        assert_same(np.ascontiguousarray(want), got)

    grad = random.standard_normal(len(output_values)).astype(np.float32)
    d_values, d_default = same_for_all_threads(
        "sparse_fill_empty_rows_grad", {"reverse_index_map": reverse, "grad_values": grad}
    )
    assert_same(grad[reverse], d_values)
    assert_same(np.cumsum(grad[blank])[-1].reshape(()), d_default)  # cumsum adds one after the other


def stable(rows: Array, empty: Array) -> Array:
    """Where the rows and the empty rows stand after a stable sort of both."""
    return np.argsort(np.concatenate([rows, np.flatnonzero(empty)]), kind="stable")


def test_large_slices() -> None:
    random = np.random.default_rng(0)
    indices = random.integers(0, 100, (N, 3))
    values = random.standard_normal(N).astype(np.float32)
    start, size = np.array([10, 0, 30]), np.array([60, 90, 50])
    kept = ((indices >= start) & (indices < start + size)).all(axis=1)
    args = {"indices": indices, "values": values, "shape": [100, 100, 100], "start": start, "size": size}
    output_indices, output_values, output_shape = same_for_all_threads("sparse_slice", args)
    assert_same(indices[kept] - start, output_indices)
    assert_same(values[kept], output_values)
    assert_same(size, output_shape)

    where = {"input_indices": indices, "input_start": start, "output_indices": output_indices}
    upstream = random.standard_normal(len(output_values)).astype(np.float32)
    (val_grad,) = same_for_all_threads("sparse_slice_grad", {"backprop_val_grad": upstream, **where})
    expected = np.zeros(N, np.float32)
    expected[kept] = upstream
    assert_same(expected, val_grad)
    (back,) = same_for_all_threads("sparse_slice_grad_grad", {"grad": values, **where})
    assert_same(values[kept], back)
