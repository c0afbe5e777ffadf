"""RowOptimizer as users of PyTorch expect an optimizer: sparse layers, schedulers, groups, saved and loaded runs."""

import copy
import io
from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad import optim

torch = framework("torch")
from rowgrad.torch._optim import RowOptimizer  # noqa: E402

FORMULAS = {
    "sgd": optim.SGD(0.1),
    "momentum": optim.SGD(0.1, momentum=0.9),
    "adagrad": optim.Adagrad(0.1),
    "row-wise": optim.RowWiseAdagrad(0.1),
    "adam": optim.Adam(0.1),
    "adamw": optim.AdamW(0.1),
    "partial row-wise adam": optim.PartialRowWiseAdam(0.1),
    "lamb": optim.LAMB(0.1),
}


def bag(dtype: Any = torch.float32) -> Any:
    torch.manual_seed(0)
    return torch.nn.EmbeddingBag(50, 6, mode="sum", sparse=True, dtype=dtype)


def backward(layer: Any, number: int) -> None:
    rng = np.random.default_rng(number)
    ids = torch.tensor(rng.zipf(1.4, 40) % 50)
    target = torch.tensor(rng.standard_normal((8, 6))).to(layer.weight.dtype)
    layer.zero_grad()
    (layer(ids, torch.arange(0, 40, 5)) * target).sum().backward()


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("coalesced", [False, True])
def test_it_is_the_formula_on_the_layers_gradient(name: str, coalesced: bool) -> None:
    layer, formula = bag(), FORMULAS[name]
    optimizer = RowOptimizer(layer.parameters(), formula)
    table = layer.weight.detach().clone()
    state = formula.init(table)
    for number in range(5):
        backward(layer, number)
        gradient = layer.weight.grad
        rows, values = gradient._indices()[0], gradient._values()
        compact = rowgrad.sparse_segment_sum_grad_v2(values, rows, torch.arange(len(rows)), 50)
        formula.step(table, compact, state)
        if coalesced:
            with torch.sparse.check_sparse_tensor_invariants(True):
                order = compact.sorted_unique_indices[None]
                layer.weight.grad = torch.sparse_coo_tensor(order, compact.output, (50, 6), is_coalesced=True)
        optimizer.step()
    assert torch.equal(layer.weight.detach(), table)
    assert all(torch.equal(optimizer.state[layer.weight][key], value) for key, value in state.items())


def test_beside_the_adagrad_of_torch() -> None:
    ours, theirs = bag(torch.float64), bag(torch.float64)
    optimizers = [
        RowOptimizer(ours.parameters(), optim.Adagrad(0.1)),
        torch.optim.Adagrad(theirs.parameters(), lr=0.1),
    ]
    with torch.sparse.check_sparse_tensor_invariants(True):
        for number in range(20):
            for layer, optimizer in zip((ours, theirs), optimizers, strict=True):
                backward(layer, number)
                optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FORMULAS)
def test_saved_and_loaded_it_continues_bit_for_bit(name: str, dtype: Any) -> None:
    layer = bag(dtype)
    optimizer = RowOptimizer(layer.parameters(), FORMULAS[name])
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for number in range(3):
        backward(layer, number)
        optimizer.step()
        scheduler.step()
    file = io.BytesIO()
    torch.save({"layer": layer.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file)
    again = bag(dtype)
    again.load_state_dict(saved["layer"])
    loaded = RowOptimizer(again.parameters(), FORMULAS[name])
    loaded.load_state_dict(saved["optimizer"])
    assert loaded.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    for number in range(3, 6):
        for one, stepped in ((layer, optimizer), (again, loaded)):
            backward(one, number)
            stepped.step()
    assert torch.equal(layer.weight, again.weight)
    for key, value in optimizer.state[layer.weight].items():
        assert torch.equal(value, loaded.state[again.weight][key])


def test_groups_and_schedulers_have_their_own_rates() -> None:
    one, other = bag(), bag()
    optimizer = RowOptimizer(
        [{"params": one.parameters()}, {"params": other.parameters(), "lr": 0.0}], optim.SGD(1.0, weight_decay=0.5)
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    before = other.weight.detach().clone()
    for expected in (1.0, 0.5, 0.25):
        start = one.weight.detach().clone()
        for layer in (one, other):
            backward(layer, 1)
        optimizer.step()
        scheduler.step()
        rows = one.weight.grad.coalesce().indices()[0]
        gradient = one.weight.grad.to_dense()[rows] + 0.5 * start[rows]
        torch.testing.assert_close(one.weight.detach()[rows], start[rows] - expected * gradient)
    assert torch.equal(other.weight.detach(), before)


def test_a_closure_is_called_with_gradients_on() -> None:
    layer = bag()
    optimizer = RowOptimizer(layer.parameters(), optim.SGD(0.1))

    def closure() -> Any:
        layer.zero_grad()
        loss = layer(torch.tensor([1, 2]), torch.tensor([0])).sum()
        loss.backward()
        return loss

    first, second = optimizer.step(closure), optimizer.step(closure)
    assert second < first


def test_parameters_without_a_gradient_are_left_alone() -> None:
    layer, idle = bag(), bag()
    optimizer = RowOptimizer([layer.weight, idle.weight], optim.Adam(0.1))
    before = idle.weight.detach().clone()
    backward(layer, 0)
    optimizer.step()
    assert torch.equal(idle.weight.detach(), before)
    assert list(optimizer.state) == [layer.weight]


@pytest.mark.parametrize("grad", ["dense", "two dimensions"])
def test_gradients_that_are_not_rows(grad: str) -> None:
    first, second = bag(), bag()
    optimizer = RowOptimizer([first.weight, second.weight], optim.SGD(0.1))
    backward(first, 0)
    with torch.sparse.check_sparse_tensor_invariants(True):
        odd = torch.ones(50, 6)
        second.weight.grad = odd if grad == "dense" else odd.to_sparse()
    before = first.weight.detach().clone()
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"torch\.optim|first dimension") as info:
        optimizer.step()
    assert info.value.code == "not-sparse"
    assert torch.equal(first.weight.detach(), before)


def test_a_copy_is_an_optimizer_of_its_own() -> None:
    layer = bag()
    optimizer = RowOptimizer(layer.parameters(), optim.Adagrad(0.1))
    backward(layer, 0)
    optimizer.step()
    twin = copy.deepcopy(optimizer)
    (parameter,) = twin.param_groups[0]["params"]
    with torch.sparse.check_sparse_tensor_invariants(True):
        parameter.grad = layer.weight.grad.clone()
    twin.step()
    optimizer.step()
    assert parameter is not layer.weight
    assert torch.equal(parameter.detach(), layer.weight.detach())


def test_what_is_no_optimizer_or_setting() -> None:
    with pytest.raises(rowgrad.DTypeError):
        RowOptimizer(bag().parameters(), torch.optim.SGD)
    with pytest.raises(rowgrad.InvalidArgumentError):
        RowOptimizer([{"params": bag().parameters(), "lr": -1.0}], optim.SGD(0.1))


@pytest.mark.parametrize("size", [1, 40, 300, 5000, 20000])
@pytest.mark.parametrize("coalesced", [False, True])
def test_steps_of_any_size_are_those_of_the_formula(size: int, coalesced: bool) -> None:
    """Few entries take one kernel, which sorts by itself in two ways; many take several."""
    rng = np.random.default_rng(size)
    rows, formula = 3000, optim.Adagrad(0.1)
    table = torch.tensor(rng.standard_normal((rows, 24)), dtype=torch.float32)
    parameter, state = torch.nn.Parameter(table.clone()), formula.init(table)
    optimizer = RowOptimizer([parameter], formula)
    for _ in range(2):
        ids, values = torch.tensor(rng.integers(0, rows, size)), torch.tensor(rng.standard_normal((size, 24))).float()
        compact = rowgrad.sparse_segment_sum_grad_v2(values, ids, torch.arange(size), rows)
        formula.step(table, compact, state)
        with torch.sparse.check_sparse_tensor_invariants(True):
            if coalesced:
                unique = compact.sorted_unique_indices[None]
                grad = torch.sparse_coo_tensor(unique, compact.output, (rows, 24), is_coalesced=True)
            else:
                grad = torch.sparse_coo_tensor(ids[None], values, (rows, 24))
        parameter.grad = grad
        version = parameter._version
        optimizer.step()
        assert parameter._version > version
    assert torch.equal(parameter.detach(), table)
    assert torch.equal(optimizer.state[parameter]["sum"], state["sum"])


@pytest.mark.parametrize("coalesced", [False, True])
def test_rows_that_are_not_in_the_table_change_nothing(coalesced: bool) -> None:
    layer = bag()
    optimizer = RowOptimizer(layer.parameters(), optim.Adam(0.1))
    backward(layer, 0)
    optimizer.step()
    before, state = layer.weight.detach().clone(), copy.deepcopy(optimizer.state[layer.weight])
    for bad in (50, -1):
        ids = torch.tensor([[3, bad]])
        with torch.sparse.check_sparse_tensor_invariants(False):
            layer.weight.grad = torch.sparse_coo_tensor(ids, torch.ones(2, 6), (50, 6), is_coalesced=coalesced)
        with pytest.raises(rowgrad.InvalidArgumentError) as info:
            optimizer.step()
        assert info.value.value == bad
    assert torch.equal(layer.weight.detach(), before)
    assert all(torch.equal(optimizer.state[layer.weight][key], value) for key, value in state.items())


def test_memory_that_was_replaced_is_noticed() -> None:
    layer, twin = bag(), bag()
    optimizers = [RowOptimizer(each.parameters(), optim.Adam(0.1)) for each in (layer, twin)]
    for number in range(4):
        for each, optimizer in zip((layer, twin), optimizers, strict=True):
            backward(each, number)
            optimizer.step()
        layer.weight.data = layer.weight.data.clone()
        state = optimizers[0].state[layer.weight]
        state["m"] = state["m"].clone()
        state["step"] = state["step"].clone()
    assert torch.equal(layer.weight.detach(), twin.weight.detach())
    optimizers[0].state[layer.weight]["v"] = torch.zeros(2, 6)
    before = layer.weight.detach().clone()
    backward(layer, 9)
    with pytest.raises(rowgrad.InvalidArgumentError, match="state"):
        optimizers[0].step()
    assert torch.equal(layer.weight.detach(), before)


def test_settings_may_change_between_steps() -> None:
    layer, twin = bag(), bag()
    optimizer = RowOptimizer(layer.parameters(), optim.SGD(0.1))
    for number, settings in enumerate(
        [{"lr": 0.5}, {"weight_decay": 0.1}, {"clip_norm": 0.3}, {"lr": torch.tensor(2.0)}]
    ):
        optimizer.param_groups[0].update(settings)
        backward(layer, number)
        backward(twin, number)
        optimizer.step()
        formula = optim.SGD(**{key: float(value) if key == "lr" else value for key, value in
                               optimizer.param_groups[0].items() if key in optim.SGD.settings()})  # fmt: skip
        gradient = twin.weight.grad
        rows, values = gradient._indices()[0], gradient._values()
        formula.step_pooled(twin.weight, values, rows, torch.arange(len(rows)), combiner="sum")
        assert torch.equal(layer.weight.detach(), twin.weight.detach())
