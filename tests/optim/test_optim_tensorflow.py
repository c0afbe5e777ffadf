"""The optimizers of TensorFlow: tables end as after its operators on pages, to the bit, by every way to a step.

`tests/oracle/test_optimizers_tensorflow.py` compares both with TensorFlow itself.
"""

from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad import optim
from rowgrad._ops.results import RowGradient
from rowgrad.blocks import raw_ops

# Each with the operator that makes the same step, its scalars, and the names of its states there.
CASES: dict[str, tuple[Any, str, dict[str, float], dict[str, bool], dict[str, str]]] = {
    "ftrl": (optim.FTRL(0.3, l1=0.4, l2=0.2, l2_shrinkage=0.1), "FtrlV2",
             {"lr": 0.3, "l1": 0.4, "l2": 0.2, "l2_shrinkage": 0.1, "lr_power": -0.5}, {},
             {"accum": "sum", "linear": "linear"}),
    "ftrl, beta": (optim.FTRL(0.5, l2=0.25, beta=1.0), "Ftrl", {"lr": 0.5, "l1": 0.0, "l2": 1.25, "lr_power": -0.5}, {},
                   {"accum": "sum", "linear": "linear"}),
    "momentum": (optim.Momentum(0.3), "Momentum", {"lr": 0.3, "momentum": 0.9}, {}, {"accum": "momentum"}),
    "nesterov": (optim.Momentum(0.3, nesterov=True), "Momentum", {"lr": 0.3, "momentum": 0.9}, {"use_nesterov": True},
                 {"accum": "momentum"}),
    "rmsprop": (optim.RMSprop(0.3, eps=1e-3, momentum=0.8), "RMSProp",
                {"lr": 0.3, "rho": 0.9, "momentum": 0.8, "epsilon": 1e-3}, {}, {"ms": "ms", "mom": "momentum"}),
    "adadelta": (optim.Adadelta(0.3, rho=0.9, eps=1e-3), "Adadelta", {"lr": 0.3, "rho": 0.9, "epsilon": 1e-3}, {},
                 {"accum": "squares", "accum_update": "steps"}),
    "adagrad da": (optim.AdagradDA(0.3, l1=0.1, l2=0.2), "AdagradDA",
                   {"lr": 0.3, "l1": 0.1, "l2": 0.2, "global_step": 1}, {},
                   {"gradient_accumulator": "sum", "gradient_squared_accumulator": "squares"}),
    "proximal adagrad": (optim.ProximalAdagrad(0.3, l1=0.1, l2=0.2), "ProximalAdagrad",
                         {"lr": 0.3, "l1": 0.1, "l2": 0.2}, {}, {"accum": "sum"}),
    "proximal sgd": (optim.ProximalSGD(0.3, l1=0.1, l2=0.2), "ProximalGradientDescent",
                     {"alpha": 0.3, "l1": 0.1, "l2": 0.2}, {}, {}),
}  # fmt: skip


def same_bits(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(np.asarray(found).view(np.uint8), np.asarray(expected).view(np.uint8))


@pytest.mark.parametrize("width, dtype", [(1, np.float32), (21, np.float32), (5, np.float64)])
@pytest.mark.parametrize("case", CASES)
def test_steps(case: str, width: int, dtype: Any) -> None:
    optimizer, operator, scalars, attributes, slots = CASES[case]
    rng = np.random.default_rng(width)
    table = rng.standard_normal((12, width)).astype(dtype)
    pooled, state = table.copy(), optimizer.init(table)
    pooled_state = {name: value.copy() for name, value in state.items()}
    arrays = {"var": table.copy(), **{slot: state[own].copy() for slot, own in slots.items()}}
    for number in range(1, 4):
        grad, indices = rng.standard_normal((4, width)).astype(dtype), rng.integers(0, 9, 7)
        segments = rng.integers(0, 4, 7)
        compact = rowgrad.sparse_segment_mean_grad_v2(grad, indices, segments, 12)
        optimizer.step(table, compact, state)
        optimizer.step_pooled(pooled, grad, indices, segments, pooled_state)
        if "global_step" in scalars:
            scalars = scalars | {"global_step": number}
        given = {key: number if key == "global_step" else dtype(value) for key, value in scalars.items()}
        results = getattr(raw_ops, f"SparseApply{operator}")(
            **arrays, **given, **attributes, grad=compact.output, indices=compact.sorted_unique_indices
        )
        arrays = dict(zip(arrays, results if isinstance(results, tuple) else (results,), strict=True))
    same_bits(table, arrays["var"])
    same_bits(pooled, table)
    for slot, own in slots.items():
        same_bits(state[own], arrays[slot])
        same_bits(pooled_state[own], arrays[slot])


def test_centred_rmsprop_keeps_three_states() -> None:
    rng = np.random.default_rng(2)
    table = rng.standard_normal((6, 5)).astype(np.float32)
    optimizer = optim.RMSprop(0.3, eps=5.0, momentum=0.8, centered=True)
    state = optimizer.init(table)
    arrays = [table.copy(), *(np.zeros_like(table) for _ in range(3))]
    for _ in range(3):
        grad, rows = rng.standard_normal((3, 5)).astype(np.float32), np.array([1, 2, 5])
        optimizer.step(table, RowGradient(grad, rows), state)
        arrays = [*raw_ops.SparseApplyCenteredRMSProp(
            *arrays, *map(np.float32, (0.3, 0.9, 0.8, 5.0)), grad, rows)]  # fmt: skip
    for found, expected in zip(
        (table, state["mg"], state["ms_momentum"][:, 0], state["ms_momentum"][:, 1]), arrays, strict=True
    ):
        same_bits(found, expected)


@pytest.mark.parametrize("settings", [{"weight_decay": 0.1}, {"clip_value": 0.5}, {"clip_norm": 0.7}], ids=str)
def test_gradients_are_adjusted_first(settings: dict[str, float]) -> None:
    rng = np.random.default_rng(2)
    table = rng.standard_normal((6, 5)).astype(np.float32)
    grad, rows = rng.standard_normal((3, 5)).astype(np.float32), np.array([1, 2, 5])
    adjusted = grad
    if "weight_decay" in settings:
        adjusted = grad + np.float32(0.1) * table[rows]
    elif "clip_value" in settings:
        adjusted = np.clip(grad, np.float32(-0.5), np.float32(0.5))
    else:
        norms = np.sqrt(np.sum(grad.astype(float) ** 2, axis=1, keepdims=True))
        adjusted = (grad * np.minimum(1, 0.7 / norms)).astype(np.float32)
    plain, other = optim.FTRL(0.3, l1=0.1), optim.FTRL(0.3, l1=0.1, **settings)
    expected, state = table.copy(), plain.init(table)
    plain.step(expected, RowGradient(adjusted, rows), state)
    other.step(table, RowGradient(grad, rows), other.init(table))
    np.testing.assert_allclose(table, expected, rtol=1e-6, atol=1e-6)


def test_rows_without_a_gradient_change_where_asked() -> None:
    table = np.ones((3, 4), np.float32)
    dense, expected = optim.ProximalSGD(0.5, l2=2.0, decay_untouched=True), np.full((3, 4), 0.5, np.float32)
    dense.step(table, RowGradient(np.zeros((1, 4), np.float32), np.array([1])))
    same_bits(table, expected)


def test_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowgrad._runtime.threads.GRAIN", 1)
    rng = np.random.default_rng(1)
    grad, indices = rng.standard_normal((70, 21)).astype(np.float32), rng.zipf(1.3, 3000) % 500
    segments, results = rng.integers(0, 70, 3000), []
    for threads in (1, 3):
        rowgrad.set_num_threads(threads)
        table, optimizer = np.zeros((500, 21), np.float32), optim.FTRL(0.3, l1=0.1)
        state = optimizer.init(table)
        for _ in range(2):
            optimizer.step_pooled(table, grad, indices, segments, state)
        results.append((table, *state.values()))
    for one, other in zip(*results, strict=True):
        same_bits(one, other)


@pytest.mark.parametrize(
    "optimizer",
    [optim.FTRL(0.3, l1=0.1), optim.RMSprop(0.3, momentum=0.5, centered=True), optim.AdagradDA(0.3)],
    ids=str,
)
def test_layers_and_row_optimizers_of_torch(optimizer: Any) -> None:
    torch = framework("torch")
    import rowgrad.torch

    rng = np.random.default_rng(4)
    start = rng.standard_normal((30, 6)).astype(np.float32)
    layer = rowgrad.torch.EmbeddingBag(30, 6, mode="sum", fused_optimizer=optimizer)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(start))
    weight = torch.nn.Parameter(torch.tensor(start))
    outside = rowgrad.torch.RowOptimizer([weight], optimizer)
    table, state = start.copy(), optimizer.init(start)
    for _ in range(3):
        ids, offsets = torch.tensor(rng.integers(0, 30, 12)), torch.tensor([0, 3, 3, 9])
        grad = torch.tensor(rng.standard_normal((4, 6)).astype(np.float32))
        layer(ids, offsets).backward(grad)
        weight.grad = None
        torch.nn.functional.embedding_bag(ids, weight, offsets, mode="sum", sparse=True).backward(grad)
        outside.step()
        segments = np.repeat(np.arange(4), [3, 0, 6, 3])
        optimizer.step_pooled(table, grad.numpy(), ids.numpy(), segments, state, combiner="sum")
    same_bits(layer.weight.detach().numpy(), table)
    same_bits(weight.detach().numpy(), table)


@pytest.mark.parametrize("cls", [optim.FTRL, optim.AdagradDA])
def test_only_sums_of_squares_have_an_initial_value(cls: Any) -> None:
    state = cls(0.1, initial_accumulator=0.5).init(np.zeros((2, 3)))
    squares = "sum" if cls is optim.FTRL else "squares"
    for name, value in state.items():
        assert (value == (0.5 if name == squares else 0)).all()


@pytest.mark.parametrize(
    "settings", [{"lr_power": 0.5}, {"l1": -1.0}, {"l2": float("nan")}, {"beta": -1.0}, {"l2_shrinkage": "1"}], ids=str
)
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        optim.FTRL(0.1, **settings)
    assert info.value.argument in settings
