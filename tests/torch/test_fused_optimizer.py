"""A fused optimizer as users of PyTorch expect an optimizer: schedulers, scalers, checkpoints, lists of optimizers."""

import copy
import io
from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad import optim

torch = framework("torch")

from rowgrad.torch import EmbeddingBag  # noqa: E402
from rowgrad.torch._fused_optimizer import FusedOptimizer, FusedTable  # noqa: E402

ROWS, WIDTH = 12, 5


def weight(seed: int = 7) -> Any:
    return torch.nn.Parameter(torch.tensor(np.random.default_rng(seed).normal(size=(ROWS, WIDTH))).float())


def made(**optimizers: Any) -> Any:
    """A fused optimizer over tables of these names."""
    tables = {}
    for seed, (name, optimizer) in enumerate(optimizers.items()):
        table = weight(seed)
        tables[name] = FusedTable(table, optimizer, optimizer.init(table.detach()))
    return FusedOptimizer(tables)


def backward(fused: Any, name: str, seed: int) -> None:
    """What a layer does with a fused optimizer in a backward pass."""
    rng = np.random.default_rng(seed)
    table = fused._tables[name]
    grad = fused.unscaled(
        torch.tensor(rng.normal(size=(4, WIDTH))).float() * (fused.grad_scaler or Unscaled).get_scale()
    )
    if grad is not None:
        ids, segments = torch.tensor(rng.integers(0, ROWS, 9)), torch.tensor(np.sort(rng.integers(0, 4, 9)))
        fused.optimizer_for(name).step_pooled(table.weight.detach(), grad, ids, segments, table.fused_state)


class Unscaled:
    @staticmethod
    def get_scale() -> float:
        return 1.0


def test_groups_are_those_of_optimizers() -> None:
    sgd = optim.SGD(0.5, momentum=0.9)
    fused = made(a=sgd, b=optim.Adam(0.1), c=sgd)
    assert isinstance(fused, torch.optim.Optimizer)
    assert [group["param_names"] for group in fused.param_groups] == [["a", "c"], ["b"]]
    assert [group["lr"] for group in fused.param_groups] == [0.5, 0.1]
    assert fused.param_groups[0]["momentum"] == 0.9 and fused.param_groups[1]["betas"] == (0.9, 0.999)
    assert [names for names, _ in fused.groups()] == [("a", "c"), ("b",)]
    assert set(fused.state) == {table.weight for table in fused._tables.values()}


def test_settings_of_groups_are_used() -> None:
    fused = made(a=optim.SGD(0.5), b=optim.SGD(0.5))
    before = fused.optimizer_for("a")
    assert fused.optimizer_for("a") is before  # nothing has changed
    fused.param_groups[0]["lr"] = 0.25
    fused.param_groups[1]["lr"] = torch.tensor(0.125)
    assert (fused.optimizer_for("a").lr, fused.optimizer_for("b").lr, before.lr) == (0.25, 0.125, 0.5)
    fused.param_groups[1]["lr"].fill_(2.0)
    assert fused.optimizer_for("b").lr == 2.0
    fused.param_groups[0]["lr"] = -1.0
    with pytest.raises(rowgrad.InvalidArgumentError, match="lr is -1"):
        fused.optimizer_for("a")


def test_settings_that_are_assigned_to_the_optimizer_are_used() -> None:
    given = optim.Adam(0.5)
    fused = made(a=given)
    fused.param_groups[0]["eps"] = 1e-3
    given.lr = 0.25
    assert (fused.optimizer_for("a").lr, fused.optimizer_for("a").eps) == (0.25, 1e-3)
    assert fused.param_groups[0]["lr"] == 0.25
    fused.param_groups[0]["lr"] = 0.1
    assert fused.optimizer_for("a").lr == 0.1
    assert given.lr == 0.25  # other layers may have it too


@pytest.mark.parametrize("schedule", ["step", "lambda", "cosine", "one cycle"])
def test_schedulers(schedule: str) -> None:
    fused, dense = made(a=optim.AdamW(0.5)), torch.optim.AdamW([weight()], lr=0.5)
    make = {
        "step": lambda each: torch.optim.lr_scheduler.StepLR(each, 1, 0.5),
        "lambda": lambda each: torch.optim.lr_scheduler.LambdaLR(each, lambda epoch: 1 / (1 + epoch)),
        "cosine": lambda each: torch.optim.lr_scheduler.CosineAnnealingLR(each, 4),
        "one cycle": lambda each: torch.optim.lr_scheduler.OneCycleLR(each, 1.0, total_steps=6),
    }[schedule]
    schedulers = [make(each) for each in (fused, dense)]
    for _ in range(4):
        assert fused.optimizer_for("a").lr == dense.param_groups[0]["lr"]
        assert fused.optimizer_for("a").betas == dense.param_groups[0]["betas"]
        for optimizer, scheduler in zip((fused, dense), schedulers, strict=True):  # as Lightning does with a list
            optimizer.zero_grad()
            optimizer.step()
            scheduler.step()


def test_step_and_zero_grad_do_nothing() -> None:
    fused = made(a=optim.Adagrad(0.1))
    before = fused._tables["a"].weight.detach().clone()
    calls = []
    fused.register_step_post_hook(lambda *args: calls.append(1))
    assert fused.step() is None
    assert fused.step(lambda: torch.is_grad_enabled()) is True
    fused.zero_grad()
    assert torch.equal(fused._tables["a"].weight, before) and len(calls) == 2


@pytest.mark.parametrize("one", [optim.SGD(0.1, momentum=0.9), optim.Adam(0.1), optim.RowWiseAdagrad(0.1)], ids=repr)
def test_saved_and_loaded_it_continues_bit_for_bit(one: Any) -> None:
    fused = made(a=one, b=optim.LAMB(0.3))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(fused, 0.9)
    for seed in range(3):
        backward(fused, "a", seed)
        backward(fused, "b", seed)
        fused.step()
        scheduler.step()
    file = io.BytesIO()
    torch.save(fused.state_dict(), file)
    file.seek(0)
    again = made(b=optim.LAMB(0.7), a=type(one)(**_settings(one)))
    for name in "ab":  # tables are in another order
        with torch.no_grad():
            again._tables[name].weight.copy_(fused._tables[name].weight)
    again.load_state_dict(torch.load(file))
    for seed in range(3, 5):
        for each in (fused, again):
            backward(each, "a", seed)
            backward(each, "b", seed)
    for name in "ab":
        assert again.optimizer_for(name).lr == fused.optimizer_for(name).lr
        assert torch.equal(again._tables[name].weight, fused._tables[name].weight)
        for key, value in fused._tables[name].fused_state.items():
            assert torch.equal(again._tables[name].fused_state[key], value)


def _settings(optimizer: Any) -> dict[str, Any]:
    return {name: getattr(optimizer, name) for name in optimizer.settings()}


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    fused = made(a=optim.Adam(0.1))
    backward(fused, "a", 0)
    saved = copy.deepcopy(fused.state_dict())
    for other in (made(b=optim.Adam(0.1)), made(a=optim.Adagrad(0.1)), made(a=optim.Adam(0.1), b=optim.SGD(0.1))):
        before = copy.deepcopy(other.state_dict())
        with pytest.raises(rowgrad.InvalidArgumentError, match="does not fit"):
            other.load_state_dict(saved)
        assert str(other.state_dict()) == str(before)
    bad = copy.deepcopy(saved)
    bad["param_groups"][0]["lr"] = -1.0
    with pytest.raises(rowgrad.InvalidArgumentError, match="lr is -1"):
        fused.load_state_dict(bad)
    with pytest.raises(rowgrad.InvalidArgumentError, match="no other parameters"):
        fused.add_param_group({"params": [weight()]})


def test_a_gradient_scaler() -> None:
    """As in the loop of PyTorch's guide, with a fused optimizer alone, and with another beside it."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=100)
    fused, plain = made(a=optim.Adam(0.1)), made(a=optim.Adam(0.1))
    fused.grad_scaler = scaler
    scaler.scale(torch.ones(()))
    for seed in range(3):
        backward(fused, "a", seed)
        backward(plain, "a", seed)
        if seed == 1:
            scaler.unscale_(fused)
        scaler.step(fused)
        scaler.update()
    assert torch.equal(fused._tables["a"].weight, plain._tables["a"].weight)
    assert scaler.get_scale() == 8.0
    before = fused._tables["a"].weight.detach().clone()
    assert fused.unscaled(torch.full((4, WIDTH), torch.inf)) is None
    assert fused.unscaled(torch.ones(4, WIDTH)) is not None  # of another table, in the same pass
    scaler.step(fused)
    scaler.update()
    assert (scaler.get_scale(), fused.skipped_steps) == (4.0, 1)
    assert torch.equal(fused._tables["a"].weight, before)
    backward(fused, "a", 5)
    scaler.step(fused)
    scaler.update()
    assert scaler.get_scale() == 4.0  # the overflow was that of one pass
    saved = fused.state_dict()
    fused.grad_scaler = None
    assert len(fused.param_groups[0]["params"]) == 1
    fused.load_state_dict(saved)


def test_a_layer_that_is_cast_and_a_copy() -> None:
    bag = EmbeddingBag(ROWS, WIDTH, fused_optimizer=optim.Adagrad(0.1), _weight=weight().detach())
    fused = FusedOptimizer({"weight": bag})
    bag.double()
    bag(torch.tensor([[1, 2]])).sum().backward()
    assert fused.state[bag.weight]["sum"].dtype == torch.float64
    assert fused.state[bag.weight]["sum"].abs().sum() > 0
    twin = copy.deepcopy(fused)
    twin.param_groups[0]["lr"] = 0.7
    assert (twin.optimizer_for("weight").lr, fused.optimizer_for("weight").lr) == (0.7, 0.1)
    assert set(twin.state) == {twin._tables["weight"].weight} and bag.weight not in twin.state
