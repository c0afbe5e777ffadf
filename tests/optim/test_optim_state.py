"""State is plain arrays: saved and loaded it continues bit for bit; settings go through JSON, and change when told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dense_formulas import EVERY, ROWS, batch

import rowgrad
from optional import framework
from rowgrad import optim

EXPECTED = {
    "sgd": {},
    "momentum": {"momentum": (ROWS, 2, 3)},
    "nesterov": {"momentum": (ROWS, 2, 3)},
    "adagrad": {"sum": (ROWS, 2, 3)},
    "row-wise adagrad": {"sum": (ROWS,)},
    "adam": {"m": (ROWS, 2, 3), "v": (ROWS, 2, 3), "step": ()},
    "adamw": {"m": (ROWS, 2, 3), "v": (ROWS, 2, 3), "step": ()},
    "partial row-wise adam": {"m": (ROWS, 2, 3), "v": (ROWS,), "step": ()},
    "lamb": {"m": (ROWS, 2, 3), "v": (ROWS, 2, 3), "step": ()},
}


def run(optimizer: Any, table: Any, state: Any, steps: range) -> None:
    for number in steps:
        grad, indices, segments = batch(np.random.default_rng(number), (2, 3), np.float32)
        optimizer.step_pooled(table, grad, indices, segments, state, combiner="sum")


def new_table() -> Any:
    return np.random.default_rng(9).standard_normal((ROWS, 2, 3)).astype(np.float32)


@pytest.mark.parametrize("name", EVERY)
def test_what_is_kept(name: str) -> None:
    state = EVERY[name]().init(new_table())
    assert {key: value.shape for key, value in state.items()} == EXPECTED[name]
    start = 0.1 if name == "adagrad" else 0.0
    assert all((value == np.float32(start)).all() for value in state.values())


@pytest.mark.parametrize("name", EVERY)
def test_saved_by_numpy_it_continues_bit_for_bit(name: str, tmp_path: Path) -> None:
    optimizer, table = EVERY[name](), new_table()
    state = optimizer.init(table)
    run(optimizer, table, state, range(5))
    np.savez(tmp_path / "saved.npz", table=table, **state)
    with np.load(tmp_path / "saved.npz") as saved:
        loaded = {key: saved[key] for key in saved}
    described = json.loads(json.dumps(optimizer.as_dict()))
    again = loaded.pop("table")
    run(optim.from_dict(described), again, loaded, range(5, 10))
    run(optimizer, table, state, range(5, 10))
    np.testing.assert_array_equal(again, table)
    for key, value in state.items():
        np.testing.assert_array_equal(loaded[key], value)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", EVERY)
def test_torch_tables_have_torch_state(name: str, dtype: str, tmp_path: Path) -> None:
    torch = framework("torch")
    optimizer = EVERY[name]()
    rng = np.random.default_rng(4)
    table = torch.nn.Parameter(torch.tensor(rng.standard_normal((ROWS, 5))).to(getattr(torch, dtype)))
    other = table.detach().clone()
    state = optimizer.init(table)
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    version = table._version
    for number in range(3):
        grad, indices, segments = batch(rng, (5,), np.float32)
        grad = torch.tensor(grad).to(table.dtype)
        optimizer.step_pooled(table, grad, torch.tensor(indices), torch.tensor(segments), state, combiner="sum")
        if number == 1:
            torch.save({"table": table.detach(), **state}, tmp_path / "saved.pt")
    assert table._version > version  # what autograd has saved of the old table is known to be stale
    assert not torch.equal(table.detach(), other)
    loaded = torch.load(tmp_path / "saved.pt")
    again = loaded.pop("table")
    optimizer.step_pooled(again, grad, indices, segments, loaded, combiner="sum")
    assert torch.equal(again, table.detach())
    assert all(torch.equal(loaded[key], value) for key, value in state.items())


def test_a_backward_pass_that_needs_the_old_table_is_refused() -> None:
    torch = framework("torch")
    table = torch.nn.Parameter(torch.ones(3, 2))
    loss = (table * table).sum()
    optim.SGD(0.1).step(table, rowgrad.RowGradient(np.ones((1, 2), np.float32), [1]))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("name", EVERY)
def test_settings_through_json(name: str) -> None:
    optimizer = EVERY[name](weight_decay=0.25, decay_untouched=True)
    again = optim.from_dict(json.loads(json.dumps(optimizer.as_dict())))
    assert type(again) is type(optimizer)
    assert again == optimizer
    assert repr(again) == repr(optimizer)
    assert again.as_dict()["weight_decay"] == 0.25


@pytest.mark.parametrize(
    ("described", "argument"),
    [
        ({"name": "Lion", "lr": 0.1}, "name"),
        ({"lr": 0.1}, "name"),
        ({"name": ["SGD"], "lr": 0.1}, "name"),
        ({"name": "SGD"}, "lr"),
        ({"name": "SGD", "lr": -1}, "lr"),
        ({"name": "SGD", "lr": 0.1, "eps": 0.1}, "eps"),
        ([("name", "SGD")], "settings"),
    ],
)
def test_descriptions_that_are_wrong(described: Any, argument: str) -> None:
    with pytest.raises(rowgrad.RowgradError) as info:
        optim.from_dict(described)
    assert info.value.argument == argument


def test_the_learning_rate_can_be_changed() -> None:
    optimizer = optim.SGD(lr=1.0)
    table = np.zeros((2, 1), np.float32)
    for lr in (0.5, np.float32(0.25), 2):
        optimizer.lr = lr
        optimizer.step_pooled(table, [[1.0]], [0], [0])
    assert table.tolist() == [[-2.75], [0.0]]
    with pytest.raises(rowgrad.InvalidArgumentError):
        optimizer.lr = float("nan")
    assert optimizer.lr == 2.0
    with pytest.raises(AttributeError):
        optimizer.rate = 1.0


@pytest.mark.parametrize(
    ("cls", "settings", "argument"),
    [
        (optim.SGD, {"lr": -0.1}, "lr"),
        (optim.SGD, {"lr": 0.1, "momentum": float("inf")}, "momentum"),
        (optim.SGD, {"lr": 0.1, "nesterov": True}, "nesterov"),
        (optim.SGD, {"lr": 0.1, "nesterov": 1}, "nesterov"),
        (optim.SGD, {"lr": 0.1, "weight_decay": -1}, "weight_decay"),
        (optim.Adagrad, {"lr": float("nan")}, "lr"),
        (optim.Adagrad, {"lr": 0.1, "eps": -1e-9}, "eps"),
        (optim.RowWiseAdagrad, {"lr": 0.1, "initial_accumulator": -1.0}, "initial_accumulator"),
        (optim.Adam, {"lr": 0.1, "betas": (0.9, 1.0)}, "betas[1]"),
        (optim.Adam, {"lr": 0.1, "betas": 0.9}, "betas"),
        (optim.AdamW, {"lr": 0.1, "decay_untouched": "yes"}, "decay_untouched"),
    ],
)
def test_settings_that_are_wrong(cls: Any, settings: dict[str, Any], argument: str) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        cls(**settings)
    assert info.value.argument == argument
