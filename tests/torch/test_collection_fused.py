"""Collections with fused optimizers: the steps of single layers bit for bit, several passes as one, scaled losses."""

import copy
import pickle
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

OPTIMIZERS = [
    optim.SGD(lr=0.1), optim.SGD(lr=0.1, momentum=0.9), optim.Adagrad(lr=0.1), optim.RowWiseAdagrad(lr=0.1),
    optim.Adam(lr=0.1), optim.AdamW(lr=0.1), optim.PartialRowWiseAdam(lr=0.1), optim.LAMB(lr=0.1),
]  # fmt: skip
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


@pytest.mark.parametrize(("optimizer", "dtype", "weighted"), [
    *((optimizer, torch.float32, False) for optimizer in OPTIMIZERS),
    *((OPTIMIZERS[2], dtype, False) for dtype in (torch.float64, torch.float16, torch.bfloat16)),
    (OPTIMIZERS[0], torch.float32, True),
    (OPTIMIZERS[4], torch.bfloat16, True),
], ids=str)  # fmt: skip
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


# As an optimizer of PyTorch


@EACH
def test_schedulers_set_the_rate_of_the_next_pass(optimizer: Any) -> None:
    scheduled, assigned = (collection(fused_optimizer=copy.copy(optimizer)) for _ in range(2))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(scheduled.optimizer, gamma=0.5)
    for step in range(3):
        assigned.fused_optimizer.lr = optimizer.lr * 0.5**step
        for module in (scheduled, assigned):
            train(module, step)
            module.optimizer.step()  # changes nothing
            module.optimizer.zero_grad()
        scheduler.step()
        assert_same_state(scheduled, assigned)
    assert scheduled.optimizer.param_groups[0]["lr"] == pytest.approx(optimizer.lr / 8)


def test_tables_with_one_optimizer_are_one_group() -> None:
    shared, other = optim.Adam(lr=0.1), optim.SGD(lr=0.2)
    module = collection(fused_optimizer={"t0": shared, "t1": other, "t2": shared})
    groups = module.optimizer.param_groups
    assert [group["param_names"] for group in groups] == [["t0", "t2"], ["t1"]]
    assert [group["lr"] for group in groups] == [0.1, 0.2]
    assert groups[1]["params"][0] is module.embedding_bags["t1"].weight
    assert module.optimizer is module.optimizer
    assert collection().optimizer is None and collection().grad_scaler is None


def test_the_state_of_optimizers_goes_on() -> None:
    module, other = (collection(fused_optimizer=optim.Adam(lr=0.1)) for _ in range(2))
    train(module, 0, 1)
    module.optimizer.param_groups[0]["lr"] = 0.01
    other.load_state_dict(collection().state_dict() | module.state_dict())
    other.optimizer.load_state_dict(module.optimizer.state_dict())
    for each in (module, other):
        train(each, 2)
    assert_same_state(module, other)
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert copied.optimizer.param_groups[0]["params"][0] is copied.embedding_bags["t0"].weight
        assert copied.optimizer.param_groups[0]["lr"] == 0.01
        reference = copy.deepcopy(module)
        for each in (reference, copied):
            train(each, 3)
        assert_same_state(reference, copied)


def test_a_scaler_steps_the_optimizer() -> None:
    """It is told when gradients of tables have overflowed, and lowers its scale."""
    module = collection(fused_optimizer=optim.SGD(lr=0.1))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    module.grad_scaler = scaler
    head = torch.nn.Linear(15, 1)
    dense = torch.optim.SGD(head.parameters(), lr=0.1)
    for factor, scale, skipped in [(1.0, 4.0, 0), (float("inf"), 2.0, 1), (1.0, 2.0, 1)]:
        before = tables_of(module)
        pooled = module(batch(1)).values()
        scaler.scale(head(pooled).mean() * factor).backward()
        for optimizer in (dense, module.optimizer):
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()
        assert scaler.get_scale() == scale and module.skipped_steps == skipped
        changed = not torch.equal(before["t0"], module.embedding_bags["t0"].weight)
        assert changed == (factor == 1.0)
