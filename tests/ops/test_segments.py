"""Segments of rows: gradients against finite differences, errors, large calls, and orders that decide on bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gradient_check import check

import naive
import rowgrad
from golden import assert_same
from rowgrad._ops import functions
from rowgrad.errors import InvalidArgumentError, OutOfRangeError
from shared_texts import different_lengths, out_of_range

RNG = np.random.default_rng(3)
KINDS = ["sum", "mean", "prod", "max", "min"]
UNSORTED = ["sum", "mean", "sqrt_n", "prod", "max", "min"]
THREADS = [1, 2, 3, 8]
NAMES = {"sqrt_n": "SqrtN"}


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_sorted_segments(kind: str) -> None:
    data = RNG.standard_normal((7, 3)) + 2
    check(f"Segment{kind.title()}", {"data": data, "segment_ids": np.array([0, 0, 0, 2, 3, 3, 3])})


@pytest.mark.parametrize("kind", UNSORTED)
def test_gradients_of_unsorted_segments(kind: str) -> None:
    ids = np.array([1, 0, 1, -1, 2, 0, 0])
    inputs = {"data": RNG.standard_normal((7, 2, 2)) - 2, "segment_ids": ids, "num_segments": 3}
    check(f"UnsortedSegment{NAMES.get(kind, kind.title())}", inputs)


def test_rows_that_are_equal_share_the_gradient() -> None:
    data, ids = np.array([[1.0], [3.0], [3.0], [2.0]]), np.array([0, 0, 0, 1])
    found = functions.segment_max_grad(np.array([[8.0], [5.0]]), data, rowgrad.segment_max(data, ids), ids)
    assert found.tolist() == [[0.0], [4.0], [4.0], [5.0]]


@pytest.mark.parametrize(
    ("column", "expected"),
    [([2.0, 0.0, 5.0], [0.0, 10.0, 0.0]), ([0.0, 0.0, 5.0], [0.0, 0.0, 0.0]), ([2.0, 4.0, 5.0], [20.0, 10.0, 8.0])],
)
def test_gradients_of_products_with_zeros(column: list[float], expected: list[float]) -> None:
    found = functions.segment_prod_grad(np.array([1.0]), np.array(column), np.zeros(3, int))
    assert found.tolist() == expected


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_several_dimensions(kind: str) -> None:
    data = RNG.standard_normal((6, 2, 5)).astype(np.float32)
    ids = np.array([0, 0, 1, 1, 1, 4])
    flat = getattr(rowgrad, f"segment_{kind}")(data.reshape(6, 10), ids)
    assert_same(flat.reshape(5, 2, 5), getattr(rowgrad, f"segment_{kind}")(data, ids))


def test_ids_for_rows_of_several_dimensions() -> None:
    data = RNG.standard_normal((2, 3, 4))
    ids = np.array([[0, 1, 0], [2, -1, 1]])
    expected = rowgrad.unsorted_segment_sum(data.reshape(6, 4), ids.reshape(6), 3)
    assert_same(expected, rowgrad.unsorted_segment_sum(data, ids, 3))
    assert_same(data[1, 1], rowgrad.unsorted_segment_sum(data[1, 1], np.array(1), 2)[1])
    assert functions.segment_sum_grad(np.ones((3, 4)), ids).shape == (2, 3, 4)


# Large calls


def same_for_all_threads(function: Any, *args: Any) -> Any:
    before = rowgrad.get_num_threads()
    try:
        results = []
        for threads in THREADS:
            rowgrad.set_num_threads(threads)
            results.append(function(*args))
    finally:
        rowgrad.set_num_threads(before)
    for result in results[1:]:
        assert_same(results[0], result)
    return results[0]


@pytest.mark.parametrize("width", [1, 3, 9, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_large_sorted_segments(kind: str, width: int) -> None:
    """Long segments, short ones and gaps, in calls that threads share."""
    n = 60_000
    steps = RNG.random(n) < np.repeat([0.001, 0.9], n // 2)
    ids = np.cumsum(steps * RNG.integers(1, 3, n))
    data = (1 + RNG.standard_normal((n, width)) / 64).astype(np.float32)
    output = same_for_all_threads(getattr(rowgrad, f"segment_{kind}"), data, ids)
    occurring, first = np.unique(ids, return_index=True)
    wide = data.astype(np.float64)
    exact = {"sum": np.add, "mean": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[kind].reduceat(
        wide, first
    )
    if kind == "mean":
        exact /= np.diff([*first, n])[:, None]
    np.testing.assert_allclose(output[occurring], exact, rtol=3e-3 if kind == "prod" else 1e-4)
    empty = np.setdiff1d(np.arange(len(output)), occurring)
    assert (output[empty] == (1 if kind == "prod" else 0)).all()
    some = slice(int(first[-40]), n)
    expected = getattr(naive, f"segment_{kind}")(data[some], ids[some] - ids[some][0])
    assert_same(expected, output[ids[some][0] :])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("kind", UNSORTED)
def test_large_unsorted_segments(kind: str, dtype: Any) -> None:
    n, segments = 60_000, 500
    ids = (segments * RNG.random(n) ** 3).astype(np.int32)
    ids[::7] = -1
    data = (1 + RNG.standard_normal((n, 5)) / 64).astype(dtype)
    output = same_for_all_threads(getattr(rowgrad, f"unsorted_segment_{kind}"), data, ids, segments)
    last = np.unique(ids)[-3:]
    kept = np.isin(ids, last)
    renamed = np.searchsorted(last, ids[kept])
    assert_same(getattr(naive, f"unsorted_segment_{kind}")(data[kept], renamed, 3), output[last])


def test_out_is_not_written_when_ids_are_wrong() -> None:
    out = np.full((3, 2), 7.0)
    with pytest.raises(InvalidArgumentError):
        rowgrad.segment_sum(np.ones((4, 2)), [0, 2, 1, 2], out=out)
    with pytest.raises(OutOfRangeError):
        rowgrad.unsorted_segment_sum(np.ones((4, 2)), [0, 2, 3, 2], 3, out=out)
    assert (out == 7).all()


# Errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rowgrad.segment_sum([[1.0], [2.0]], [1, 0]),
         "SegmentSum: segment_ids[1] is 0, smaller than 1 before it; the ids must not decrease. Sort the rows by "
         "segment, or use an unsorted operator."),
        (lambda: rowgrad.segment_max([[1.0], [2.0], [3.0]], [-4, 0, 1]),
         "SegmentMax: " + out_of_range("segment_ids", 0, -4, 2, "the last id + 1", "Number the segments from 0.")),
        (lambda: rowgrad.segment_prod([[1.0]], [3], 3),
         "SegmentProdV2: " + out_of_range("segment_ids", 0, 3, 3, "num_segments",
                                          "Number the segments from 0, or raise num_segments.")),
        (lambda: rowgrad.segment_mean([[1.0], [2.0]], [0]),
         "SegmentMean: " + different_lengths("segment_ids", 1, "the rows of data", 2)),
        (lambda: rowgrad.unsorted_segment_min([[1.0], [2.0]], [0, 5], 3),
         "UnsortedSegmentMin: " + out_of_range("segment_ids", 1, 5, 3, "num_segments", "Fix the id, make it negative "
                                               "to leave the row out, or raise num_segments.")),
        (lambda: rowgrad.unsorted_segment_sum([[1.0, 2.0]], [[0, 1, 2]], 3),
         "UnsortedSegmentSum: segment_ids has shape [1, 3], but data has [1, 2], which must begin with it: an id for "
         "each row. Pass as many ids as there are rows."),
        (lambda: functions.segment_sum_grad([[1.0]], [[0, 0], [0, 4]]),
         "SegmentSumGrad: " + out_of_range(
             "segment_ids", (1, 1), 4, 1, "the number of rows of grad",
             "Fix the id, make it negative to leave the row out, or raise the number of rows of grad.")),
    ],
)  # fmt: skip
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as info:
        call()
    assert str(info.value) == message


# Bits


def test_one_row_is_copied_and_several_are_added_to_zero() -> None:
    zeros = -np.zeros((3, 1), np.float32)
    assert np.signbit(rowgrad.segment_sum(zeros, [0, 1, 1])).tolist() == [[True], [False]]
    assert np.signbit(rowgrad.unsorted_segment_sum(zeros, [0, 1, 1], 2)).tolist() == [[False], [False]]


def test_half_is_rounded_once() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16):
        rows = np.ones((4096, 1), dtype)
        assert float(rowgrad.segment_sum(rows, np.zeros(4096, int))[0, 0]) == 4096
        assert float(rowgrad.unsorted_segment_sum(rows, np.zeros(4096, int), 1)[0, 0]) == 4096


def test_means_of_integers() -> None:
    rows = np.array([[-7], [2], [0], [9]], np.int32)
    assert rowgrad.segment_mean(rows, [0, 0, 0, 1]).tolist() == [[-1], [9]]
    assert rowgrad.segment_mean(np.full((256, 1), 1, np.uint8), np.zeros(256, int)).tolist() == [[0]]
