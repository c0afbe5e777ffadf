"""Collections with fused optimizers: the steps of single layers bit for bit, several passes as one, scaled losses."""

from typing import Any

import pytest
from collection_cases import (
    assert_same_state,
    batch,
    collection,
    layers,
    one_by_one,
    tables_of,
    upstream,
)

import rowgrad
from optional import framework
from rowgrad import optim

torch = framework("torch")

from rowgrad.torch import KeyedJaggedTensor  # noqa: E402

OPTIMIZERS = [optim.SGD(lr=0.1), optim.SGD(lr=0.1, momentum=0.9), optim.Adagrad(lr=0.1), optim.RowWiseAdagrad(lr=0.1),
              optim.Adam(lr=0.1), optim.AdamW(lr=0.1)]  # fmt: skip
EACH = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)


def train(module: Any, *seeds: int, **settings: Any) -> None:
    for seed in seeds:
        module(batch(seed, **settings)).values().square().sum().backward()


def joined(*batches: Any) -> Any:
    """Several batches as one."""
    keys = batches[0].keys()
    parts = [[each[key] for each in batches] for key in keys]
    flat = [one for part in parts for one in part]
    weights = None if flat[0].weights_or_none() is None else torch.cat([one.weights() for one in flat])
    return KeyedJaggedTensor(keys, torch.cat([one.values() for one in flat]), weights,
                             lengths=torch.cat([one.lengths() for one in flat]))  # fmt: skip


@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_steps_of_single_layers(optimizer: Any, dtype: Any, weighted: bool) -> None:
    module = collection(dtype, fused_optimizer=optimizer, is_weighted=weighted)
    bags = layers(module, fused_optimizer=optimizer)
    for seed in range(3):
        features = batch(seed, weighted=weighted)
        for pooled in (module(features).values(), one_by_one(bags, module, features)):
            pooled.backward(upstream(pooled))
        for name, bag in module.embedding_bags.items():
            assert bag.weight.grad is None
            assert_same_state(bag, bags[name])
    changed = [not torch.equal(bag.weight, collection(dtype).embedding_bags[name].weight)
               for name, bag in module.embedding_bags.items()]  # fmt: skip
    assert all(changed)


def test_an_optimizer_for_each_table() -> None:
    optimizers = {"t0": optim.SGD(lr=0.5), "t1": optim.Adam(lr=0.1), "t2": None}
    module = collection(fused_optimizer=optimizers)
    expected = {name: collection(fused_optimizer=optimizer) for name, optimizer in optimizers.items()}
    train(module, 0, 1)
    for each in expected.values():
        train(each, 0, 1)
    for name, bag in module.embedding_bags.items():
        assert_same_state(bag, expected[name].embedding_bags[name])
    grad, other = (each.embedding_bags["t2"].weight.grad for each in (module, expected["t2"]))
    assert grad.is_sparse and torch.equal(grad.to_dense(), other.to_dense())
    assert list(module.state_dict()) == [
        "embedding_bags.t0.weight", "embedding_bags.t1.weight", "embedding_bags.t1.fused_m",
        "embedding_bags.t1.fused_v", "embedding_bags.t1.fused_step", "embedding_bags.t2.weight",
    ]  # fmt: skip


def test_one_optimizer_is_shared() -> None:
    optimizer = optim.SGD(lr=0.1)
    module = collection(fused_optimizer=optimizer)
    module.fused_optimizer.lr = 0.0
    train(module, 1)
    assert_same_state(module, collection(fused_optimizer=optimizer))


def test_a_table_without_state_is_taken() -> None:
    module = collection(fused_optimizer=optim.Adagrad(lr=0.1))
    train(module, 0)
    state = {name: array.clone() for name, array in module.state_dict().items() if "fused" in name}
    module.load_state_dict(collection().state_dict())
    assert torch.equal(module.embedding_bags["t0"].weight, collection().embedding_bags["t0"].weight)
    for name, array in state.items():
        assert torch.equal(module.state_dict()[name], array)


def test_frozen_tables_stay_as_they_are() -> None:
    module = collection(fused_optimizer=optim.SGD(lr=0.1))
    module.embedding_bags["t1"].weight.requires_grad_(False)
    before = tables_of(module)
    train(module, 1)
    assert torch.equal(module.embedding_bags["t1"].weight, before["t1"])
    assert not torch.equal(module.embedding_bags["t0"].weight, before["t0"])


def test_changed_tables_are_noticed() -> None:
    module = collection(fused_optimizer=optim.SGD(lr=0.1), is_weighted=True)
    features = batch(1, weighted=True)
    features.weights().requires_grad_()
    first, second = (module(features).values().sum() for _ in range(2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (first + second).backward()
    module = collection(fused_optimizer=optim.SGD(lr=0.1))
    with pytest.raises(rowgrad.InvalidArgumentError, match="fused optimizer"):
        torch.autograd.grad(module(batch(1)).values().sum(), list(module.parameters()), create_graph=True)


def test_nothing_is_kept_alive_or_changed_without_gradients() -> None:
    module = collection(fused_optimizer=optim.SGD(lr=0.1))
    with torch.no_grad():
        assert not module(batch(1)).values().requires_grad
    with torch.inference_mode():
        module(batch(1))
    assert_same_state(module, collection(fused_optimizer=optim.SGD(lr=0.1)))


# Several passes, one step


@EACH
@pytest.mark.parametrize("weighted", [False, True])
def test_passes_are_one_step(optimizer: Any, weighted: bool) -> None:
    parts, whole = (collection(fused_optimizer=optimizer, is_weighted=weighted) for _ in range(2))
    with parts.accumulate():
        train(parts, 0, 1, 2, weighted=weighted)
        assert torch.equal(parts.embedding_bags["t0"].weight, collection().embedding_bags["t0"].weight)
    whole(joined(*(batch(seed, weighted=weighted) for seed in range(3)))).values().square().sum().backward()
    for name in ("t0", "t2"):
        assert_same_state(parts.embedding_bags[name], whole.embedding_bags[name])
    # The table of two features has its entries in another order.
    for name, array in whole.state_dict().items():
        torch.testing.assert_close(parts.state_dict()[name], array)


def test_when_passes_make_no_step() -> None:
    module, same = (collection(fused_optimizer=optim.Adam(lr=0.1)) for _ in range(2))
    with module.accumulate():
        pass
    with pytest.raises(ZeroDivisionError), module.accumulate():
        train(module, 0)
        raise ZeroDivisionError
    assert_same_state(module, same)
    with pytest.raises(rowgrad.InvalidArgumentError, match="within a block"), module.accumulate(), module.accumulate():
        pass
    for each in (module, same):
        train(each, 0)
    assert_same_state(module, same)
    unfused = collection()
    with unfused.accumulate():
        train(unfused, 0)
    assert unfused.embedding_bags["t0"].weight.grad is not None


# The scale of the loss


@EACH
def test_the_scale_of_the_loss_is_taken_out(optimizer: Any) -> None:
    scaled, plain = (collection(fused_optimizer=optimizer) for _ in range(2))
    scaled.grad_scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for seed in range(3):
        scaled.grad_scaler.scale(scaled(batch(seed)).values().square().sum()).backward()
        train(plain, seed)
    assert_same_state(scaled, plain)
    assert scaled.skipped_steps == 0


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_gradients_that_overflow_in_one_table_change_none(value: float) -> None:
    module = collection(fused_optimizer=optim.Adam(lr=0.1))
    module.grad_scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    pooled = module(batch(1))
    (pooled["a"].sum() + pooled["d"].mul(value).sum()).backward()
    assert_same_state(module, collection(fused_optimizer=optim.Adam(lr=0.1)))
    assert module.skipped_steps == 1
    with module.accumulate():  # one that overflows spoils the step
        train(module, 0)
        module(batch(1))["d"].mul(value).sum().backward()
    assert_same_state(module, collection(fused_optimizer=optim.Adam(lr=0.1)))
    assert module.skipped_steps == 2
    with module.accumulate():
        module.grad_scaler.scale(module(batch(0)).values().square().sum()).backward()
    plain = collection(fused_optimizer=optim.Adam(lr=0.1))
    train(plain, 0)
    assert_same_state(module, plain)


def test_scaled_gradients_of_other_tables_stay_scaled() -> None:
    """Their optimizer's scaler takes the scale out."""
    module, plain = (collection(fused_optimizer={"t0": optim.SGD(0.1), "t1": None, "t2": None}) for _ in range(2))
    module.grad_scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    module.grad_scaler.scale(module(batch(1)).values().square().sum()).backward()
    train(plain, 1)
    assert_same_state(module, plain)
    for name in ("t1", "t2"):
        grad, expected = (each.embedding_bags[name].weight.grad.to_dense() for each in (module, plain))
        torch.testing.assert_close(grad, 8 * expected)


def test_the_scale_of_half_tables_is_refused() -> None:
    module = collection(torch.float32, fused_optimizer=optim.SGD(lr=0.1))
    module.embedding_bags["t2"].half()
    before = tables_of(module)
    module.grad_scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(rowgrad.InvalidArgumentError, match="Keep the table in float32"):
        module(batch(1)).values().sum().backward()
    for name, array in tables_of(module).items():
        assert torch.equal(array, before[name])
