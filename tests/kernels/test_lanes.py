"""Half and bfloat16 through the kernels: every one of the 65536 bit patterns there and back, and rounding to even."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rowgrad

PATTERNS = np.arange(2**16, dtype=np.uint16)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("width", [1, 3, 4, 16, 64, 93])
def test_every_pattern_survives_a_copy(dtype: Any, width: int) -> None:
    padded = np.resize(PATTERNS, (-(-PATTERNS.size // width), width)).view(dtype)
    every = np.arange(len(padded))
    result = rowgrad.sparse_segment_sum(padded, every, every)
    nan = np.isnan(padded.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(result.astype(np.float32)), nan)
    np.testing.assert_array_equal(result.view(np.uint16)[~nan], padded.view(np.uint16)[~nan])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sums_round_once_to_nearest_even(dtype: Any) -> None:
    rng = np.random.default_rng(7)
    pairs = rng.integers(0, 2**16, (20_000, 2), np.uint16).view(dtype)
    pairs = pairs[np.isfinite(pairs.astype(np.float32)).all(1)]
    table, count = pairs.reshape(-1, 1), len(pairs)
    result = rowgrad.sparse_segment_sum(table, np.arange(2 * count), np.repeat(np.arange(count), 2))
    with np.errstate(over="ignore"):
        wide = pairs.astype(np.float32)
        expected = (wide[:, 0] + wide[:, 1]).astype(dtype)
    np.testing.assert_array_equal(result[:, 0].view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["sparse_segment_sum_grad", "sparse_segment_mean_grad", "sparse_segment_sqrt_n_grad"])
def test_4096_unit_gradients_in_one_row_are_4096(dtype: Any, name: str) -> None:
    ones = np.ones((4096, 2), dtype)
    result = getattr(rowgrad, name)(ones, np.zeros(4096, np.int64), np.arange(4096), 1)
    assert result.astype(float).tolist() == [[4096, 4096]]
