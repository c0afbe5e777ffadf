"""Over many steps, each optimizer is its dense formula: on touched rows, or on all; PyTorch's where that has it."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from dense_formulas import ENTRIES, EVERY, ROWS, batch, dense_step, only, scattered

import rowgrad
from optional import framework
from rowgrad import optim

STEPS = 100
PRECISION = {np.float32: 2e-4, np.float64: 1e-11}


def copies(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value.copy() for name, value in state.items()}


ADJUSTMENTS: dict[str, dict[str, Any]] = {
    "plain": {"weight_decay": 0.0},
    "decay": {"weight_decay": 0.02},
    "decoupled": {"weight_decay": 0.02, "weight_decay_mode": "decoupled"},
    "clipped": {"weight_decay": 0.0, "clip_value": 0.5},
    "clipped rows": {"weight_decay": 0.02, "clip_norm": 1.5},
    "clipped twice": {"weight_decay": 0.0, "clip_value": 1.5, "clip_norm": 2.0},
}


@pytest.mark.parametrize("tail, dtype", [((1,), np.float32), ((7,), np.float64), ((2, 11), np.float32)])
@pytest.mark.parametrize("adjustment", ADJUSTMENTS)
@pytest.mark.parametrize("untouched", [False, True])
@pytest.mark.parametrize("name", EVERY)
def test_a_hundred_steps(name: str, untouched: bool, adjustment: str, tail: tuple[int, ...], dtype: Any) -> None:
    optimizer = EVERY[name](decay_untouched=untouched)
    for setting, value in ADJUSTMENTS[adjustment].items():
        if setting in optimizer.settings():
            setattr(optimizer, setting, value)
    rng = np.random.default_rng(3)
    fused = rng.standard_normal((ROWS, *tail)).astype(dtype)
    stepped, expected = fused.copy(), fused.copy()
    state = optimizer.init(fused)
    stepped_state, wanted = copies(state), {key: value for key, value in copies(state).items() if key != "step"}
    for number in range(1, STEPS + 1):
        grad, indices, segments = batch(rng, tail, dtype)
        if number == 50:
            optimizer.lr = optimizer.lr / 2
        optimizer.step_pooled(fused, grad, indices, segments, state, combiner="sum")
        compact = rowgrad.sparse_segment_sum_grad_v2(grad, indices, segments, ROWS)
        optimizer.step(stepped, compact, stepped_state)
        new, new_state = dense_step(optimizer, expected, scattered(grad, indices, segments), wanted, number)
        touched = np.isin(np.arange(ROWS), indices) | untouched
        expected = only(touched, new, expected)
        wanted = {key: only(touched, new_state[key], wanted[key]) for key in wanted}
    np.testing.assert_array_equal(fused, stepped)
    for key, value in state.items():
        np.testing.assert_array_equal(value, stepped_state[key])
    np.testing.assert_allclose(fused, expected, rtol=PRECISION[dtype], atol=PRECISION[dtype])
    for key, value in wanted.items():
        np.testing.assert_allclose(state[key], value, rtol=PRECISION[dtype], atol=PRECISION[dtype])
    assert "step" not in state or state["step"] == STEPS


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("width", [1, 5, 16, 64, 130])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", EVERY)
def test_fused_and_not_give_the_same_bits(name: str, dtype: Any, width: int, combiner: str) -> None:
    optimizer = EVERY[name](weight_decay=0.1)
    rng = np.random.default_rng(width)
    fused = rng.standard_normal((300, width)).astype(dtype)
    grad, indices = rng.standard_normal((70, width)).astype(dtype), rng.zipf(1.3, 2000) % 300
    segments = rng.integers(0, 70, 2000)
    stepped = fused.copy()
    state = optimizer.init(fused)
    stepped_state = copies(state)
    backward = f"sparse_segment_{combiner.replace('sqrtn', 'sqrt_n')}_grad_v2"
    for _ in range(2):
        optimizer.step_pooled(fused, grad, indices, segments, state, combiner=combiner)
        optimizer.step(stepped, getattr(rowgrad, backward)(grad, indices, segments, 300), stepped_state)
    np.testing.assert_array_equal(fused, stepped)
    for key, value in state.items():
        np.testing.assert_array_equal(value, stepped_state[key])


@pytest.mark.parametrize("weights_dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["sgd", "row-wise adagrad", "adam"])
def test_entries_with_weights(name: str, dtype: Any, weights_dtype: Any) -> None:
    optimizer = EVERY[name]()
    rng = np.random.default_rng(5)
    fused = rng.standard_normal((ROWS, 9)).astype(dtype)
    expected, state = fused.copy(), optimizer.init(fused)
    wanted = {key: value for key, value in copies(state).items() if key != "step"}
    stepped, stepped_state = fused.copy(), copies(state)
    for number in range(1, 11):
        grad, indices, segments = batch(rng, (9,), dtype)
        weights = rng.standard_normal(ENTRIES).astype(weights_dtype)
        optimizer.step_pooled(fused, grad, indices, segments, state, combiner="sum", weights=weights)
        compact = rowgrad.sparse_segment_weighted_sum_grad_v2(grad, weights, indices, segments, ROWS)
        optimizer.step(stepped, compact, stepped_state)
        full = scattered(grad, indices, segments, weights)
        new, new_state = dense_step(optimizer, expected, full, wanted, number)
        touched = np.isin(np.arange(ROWS), indices)
        expected = only(touched, new, expected)
        wanted = {key: only(touched, new_state[key], wanted[key]) for key in wanted}
    np.testing.assert_array_equal(fused, stepped)
    np.testing.assert_allclose(fused, expected, rtol=PRECISION[dtype], atol=PRECISION[dtype])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", EVERY)
def test_16_bit_tables_are_computed_in_float32_and_rounded_once(name: str, dtype: Any) -> None:
    optimizer = EVERY[name](weight_decay=0.1)
    rng = np.random.default_rng(8)
    table = rng.standard_normal((ROWS, 37)).astype(dtype)
    wide, state = table.astype(np.float32), optimizer.init(table)
    wide_state = copies(state)
    assert all(value.dtype == np.float32 for key, value in state.items() if key != "step")
    grad, indices, segments = batch(rng, (37,), dtype)
    optimizer.step_pooled(table, grad, indices, segments, state, combiner="sum")
    optimizer.step_pooled(wide, grad.astype(np.float32), indices, segments, wide_state, combiner="sum")
    np.testing.assert_array_equal(table.view(np.uint16), wide.astype(dtype).view(np.uint16))
    for key, value in state.items():
        np.testing.assert_array_equal(value, wide_state[key])

    compact = rowgrad.sparse_segment_sum_grad_v2(grad, indices, segments, ROWS)
    wide = table.astype(np.float32)
    wide_compact = rowgrad.RowGradient(compact.output.astype(np.float32), compact.sorted_unique_indices)
    optimizer.step(table, compact, state)
    optimizer.step(wide, wide_compact, wide_state)
    np.testing.assert_array_equal(table.view(np.uint16), wide.astype(dtype).view(np.uint16))


@pytest.mark.parametrize("untouched", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", EVERY)
def test_the_same_bits_for_any_number_of_threads(
    name: str, weighted: bool, untouched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowgrad._runtime.threads.GRAIN", 1)
    optimizer = EVERY[name](weight_decay=0.1, decay_untouched=untouched)
    rng = np.random.default_rng(1)
    table = rng.standard_normal((500, 21)).astype(np.float32)
    grad, indices = rng.standard_normal((70, 21)).astype(np.float32), rng.zipf(1.3, 3000) % 500
    segments, weights = rng.integers(0, 70, 3000), rng.standard_normal(3000) if weighted else None
    results = []
    for threads in (1, 2, 3, 8):
        rowgrad.set_num_threads(threads)
        changed = table.copy()
        state = optimizer.init(changed)
        for _ in range(2):
            optimizer.step_pooled(changed, grad, indices, segments, state, combiner="sum", weights=weights)
        optimizer.step(changed, rowgrad.sparse_segment_sum_grad_v2(grad, indices, segments, 500), state)
        results.append([changed, *state.values()])
    assert not np.array_equal(results[0][0], table)
    for result in results[1:]:
        for one, other in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(
    "name", [name for name in EVERY if name not in ("row-wise adagrad", "partial row-wise adam", "lamb")]
)
def test_the_dense_optimizers_of_torch(name: str, decay: float) -> None:
    torch = framework("torch")
    optimizer = EVERY[name](weight_decay=decay, decay_untouched=True)
    own = ("name", "decay_untouched", "clip_value", "clip_norm", "weight_decay_mode")
    settings = {key: value for key, value in optimizer.as_dict().items() if key not in own}
    if "initial_accumulator" in settings:
        settings["initial_accumulator_value"] = settings.pop("initial_accumulator")
    rng = np.random.default_rng(2)
    table = rng.standard_normal((ROWS, 6))
    state = optimizer.init(table)
    parameter = torch.nn.Parameter(torch.tensor(table))
    peer = getattr(torch.optim, type(optimizer).__name__)([parameter], foreach=False, **settings)
    for _ in range(STEPS):
        grad, indices, segments = batch(rng, (6,), np.float64)
        parameter.grad = torch.tensor(scattered(grad, indices, segments))
        peer.step()
        optimizer.step_pooled(table, grad, indices, segments, state, combiner="sum")
    np.testing.assert_allclose(table, parameter.detach().numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("optimizer", "peer"),
    [
        (optim.SGD(0.1), "SGD"),
        (optim.Adagrad(0.1), "Adagrad"),
        # SparseAdam adds eps before the correction of v; with an eps this small they agree.
        (optim.Adam(0.1, eps=1e-30), "SparseAdam"),
    ],
)
def test_the_sparse_optimizers_of_torch(optimizer: Any, peer: str) -> None:
    torch = framework("torch")
    rng = np.random.default_rng(2)
    table = rng.standard_normal((ROWS, 6))
    state = optimizer.init(table)
    parameter = torch.nn.Parameter(torch.tensor(table))
    options = {"eps": optimizer.eps} if hasattr(optimizer, "eps") else {}
    other = getattr(torch.optim, peer)([parameter], lr=optimizer.lr, **options)
    for _ in range(STEPS):
        grad, indices, segments = batch(rng, (6,), np.float64)
        with torch.sparse.check_sparse_tensor_invariants(True):
            values = torch.tensor(grad[segments])
            parameter.grad = torch.sparse_coo_tensor(torch.tensor(indices)[None], values, table.shape)
            other.step()
        optimizer.step_pooled(table, grad, indices, segments, state, combiner="sum")
    np.testing.assert_allclose(table, parameter.detach().numpy(), rtol=1e-10, atol=1e-10)
