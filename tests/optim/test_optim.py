"""Rows change as the dense formula says, fused or not, and nothing changes when something is wrong."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad.optim import SGD

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
KINDS = {"sum": "sum", "mean": "mean", "sqrtn": "sqrt_n"}


def problem(dtype: Any, width: int, seed: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((300, width)).astype(dtype)
    grad = rng.standard_normal((70, width)).astype(dtype)
    return table, grad, rng.zipf(1.3, 5000) % 300, rng.integers(0, 70, 5000)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", [1, 5, 64, 130])
@pytest.mark.parametrize("combiner", KINDS)
def test_one_step(dtype: Any, width: int, combiner: str) -> None:
    table, grad, indices, segments = problem(dtype, width)
    before = table.copy()
    compact = getattr(rowgrad, f"sparse_segment_{KINDS[combiner]}_grad_v2")(grad, indices, segments, len(table))
    expected = table.astype(np.float64)
    expected[compact.sorted_unique_indices] -= 0.1 * compact.output.astype(np.float64)

    fused, stepped = table.copy(), table.copy()
    SGD(lr=0.1).step_pooled(fused, grad, indices, segments, combiner=combiner)
    SGD(lr=0.1).step(stepped, compact)
    precision = {2: 2e-2, 4: 1e-5, 8: 1e-13}[np.dtype(dtype).itemsize]
    scale = 1 + np.abs(expected)
    assert (np.abs(stepped.astype(np.float64) - expected) <= precision * scale).all()
    assert (np.abs(fused.astype(np.float64) - expected) <= precision * scale).all()
    if np.dtype(dtype).itemsize > 2:
        np.testing.assert_array_equal(fused, stepped)
    np.testing.assert_array_equal(table, before)


def test_the_same_bits_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowgrad._runtime.threads.GRAIN", 1)
    table, grad, indices, segments = problem(np.float32, 37)
    results = []
    for threads in (1, 2, 3, 8):
        rowgrad.set_num_threads(threads)
        results.append(table.copy())
        SGD(lr=0.3).step_pooled(results[-1], grad, indices, segments)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_with_a_plan() -> None:
    table, grad, indices, segments = problem(np.float32, 16)
    made = rowgrad.plan(indices, segments, len(table), len(grad))
    planned, plain = table.copy(), table.copy()
    SGD(lr=0.1).step_pooled(planned, grad, None, None, plan=made)
    SGD(lr=0.1).step_pooled(plain, grad, indices, segments)
    np.testing.assert_array_equal(planned, plain)


def test_torch_tables_change_in_place() -> None:
    torch = framework("torch")
    table, grad, indices, segments = problem(np.float32, 8)
    tensor = torch.from_numpy(table.copy())
    SGD(lr=0.1).step_pooled(tensor, torch.from_numpy(grad), indices, segments)
    SGD(lr=0.1).step_pooled(table, grad, indices, segments)
    np.testing.assert_array_equal(tensor.numpy(), table)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"indices": [0, 300]}, "indices"),
        ({"indices": [0, -1]}, "indices"),
        ({"segments": [0, 70]}, "segment_ids"),
        ({"segments": [0]}, "segment_ids"),
        ({"grad": np.ones((70, 3), np.float32)}, "grad"),
        ({"grad": np.ones((70, 8), np.float64)}, "grad"),
        ({"table": [[0.0] * 8]}, "table"),
        ({"combiner": "max"}, "combiner"),
    ],
)
def test_nothing_changes_when_something_is_wrong(change: dict[str, Any], argument: str) -> None:
    table, grad, _, _ = problem(np.float32, 8)
    given: dict[str, Any] = {"table": table, "grad": grad, "indices": [0, 1], "segments": [0, 1], "combiner": "sum"}
    given |= change
    before = table.copy()
    with pytest.raises(rowgrad.RowgradError) as info:
        SGD(lr=0.1).step_pooled(given["table"], given["grad"], given["indices"], given["segments"],
                                combiner=given["combiner"])  # fmt: skip
    assert info.value.argument == argument
    np.testing.assert_array_equal(table, before)


@pytest.mark.parametrize("rows", [[0, 0], [5, 4], [0, 300], [-1, 0]])
def test_rows_must_ascend_and_fit(rows: list[int]) -> None:
    table, *_ = problem(np.float32, 8)
    before = table.copy()
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        SGD(lr=0.1).step(table, rowgrad.RowGradient(np.ones((2, 8), np.float32), rows))
    assert info.value.argument == "sorted_unique_indices"
    np.testing.assert_array_equal(table, before)


@pytest.mark.parametrize("lr", [float("nan"), float("inf"), "0.1", None, True, 10**400])
def test_bad_learning_rates(lr: Any) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError):
        SGD(lr=lr)
