"""Fused layers that are cast, moved, scaled and given several backward passes for one step."""

from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad import optim

torch = framework("torch")

from rowgrad.torch import EmbeddingBag  # noqa: E402

ROWS, WIDTH = 12, 5
HALVES = [torch.float16, torch.bfloat16]
OPTIMIZERS = [optim.SGD(lr=0.1, momentum=0.9), optim.Adagrad(lr=0.1), optim.RowWiseAdagrad(lr=0.1), optim.Adam(lr=0.1)]
EACH = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)


def table(dtype: Any = torch.float32) -> Any:
    return torch.tensor(np.random.default_rng(7).normal(size=(ROWS, WIDTH))).to(dtype)


def layer(optimizer: Any, dtype: Any = torch.float32, **settings: Any) -> Any:
    return EmbeddingBag(ROWS, WIDTH, fused_optimizer=optimizer, _weight=table(dtype), **settings)


def batch(seed: int) -> Any:
    return torch.tensor(np.random.default_rng(seed).integers(0, ROWS, (3, 4)))


def train(module: Any, *seeds: int) -> None:
    for seed in seeds:
        module(batch(seed)).square().sum().backward()


def assert_same(first: Any, second: Any) -> None:
    assert torch.equal(first.weight, second.weight)
    assert first.fused_state.keys() == second.fused_state.keys()
    for name, array in first.fused_state.items():
        assert array.dtype == second.fused_state[name].dtype
        assert torch.equal(array, second.fused_state[name])


# Casts and devices


@EACH
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_layer_that_is_cast_goes_on(optimizer: Any, dtype: Any) -> None:
    module = layer(optimizer)
    train(module, 1)
    before = {name: array.clone() for name, array in module.fused_state.items()}
    module = module.to(dtype)
    for name, array in module.fused_state.items():  # nothing is rounded
        assert array.dtype == before[name].dtype and torch.equal(array, before[name])
    other = layer(optimizer, dtype)
    with torch.no_grad():
        other.weight.copy_(module.weight)
        for name, array in before.items():
            other.fused_state[name].copy_(array)
    train(module, 2, 3)
    train(other, 2, 3)
    assert_same(module, other)


@EACH
def test_state_has_the_type_that_goes_with_the_table(optimizer: Any) -> None:
    module = torch.nn.Sequential(layer(optimizer))
    for cast, dtype in [("half", torch.float32), ("double", torch.float64), ("bfloat16", torch.float32),
                        ("float", torch.float32)]:  # fmt: skip
        getattr(module, cast)()
        train(module[0], 1)
        floats = [array for array in module[0].fused_state.values() if array.is_floating_point()]
        assert floats and {array.dtype for array in floats} == {dtype}


@EACH
def test_a_layer_without_memory(optimizer: Any) -> None:
    with torch.device("meta"):
        module = EmbeddingBag(ROWS, WIDTH, fused_optimizer=optimizer, dtype=torch.bfloat16)
    made = layer(optimizer, torch.bfloat16)
    for empty in (module, layer(optimizer).to("meta").bfloat16(), layer(optimizer).to("meta", torch.bfloat16)):
        for name, array in empty.state_dict().items():
            assert array.is_meta
            assert (array.shape, array.dtype) == (made.state_dict()[name].shape, made.state_dict()[name].dtype)
    torch.manual_seed(1)
    filled = module.to_empty(device="cpu")
    for array in filled.state_dict().values():
        array.fill_(3)
    filled.reset_parameters()
    torch.manual_seed(1)
    fresh = EmbeddingBag(ROWS, WIDTH, fused_optimizer=optimizer, dtype=torch.bfloat16)
    for each in (filled, fresh):
        train(each, 1, 2)
    assert_same(filled, fresh)


# The scale of the loss


@EACH
@pytest.mark.parametrize("combiner", ["mean", "max"])
def test_the_scale_of_the_loss_is_taken_out(optimizer: Any, combiner: str) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    scaled, plain = layer(optimizer, combiner=combiner), layer(optimizer, combiner=combiner)
    scaled.grad_scaler = scaler
    for seed in range(3):
        scaler.scale(scaled(batch(seed)).square().sum()).backward()
        plain(batch(seed)).square().sum().backward()
    assert_same(scaled, plain)
    assert scaled.skipped_steps == 0


@pytest.mark.parametrize("combiner", ["mean", "max"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_gradients_that_overflow_change_nothing(combiner: str, value: float) -> None:
    module = layer(optim.Adam(lr=0.1), combiner=combiner)
    module.grad_scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    module(batch(0)).sum().mul(value).backward()
    assert_same(module, layer(optim.Adam(lr=0.1), combiner=combiner))
    assert module.skipped_steps == 1


def test_the_scale_of_half_tables_is_refused() -> None:
    """As PyTorch refuses to unscale float16 gradients."""
    module = layer(optim.SGD(lr=0.1), torch.float16)
    module.grad_scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(rowgrad.InvalidArgumentError, match="Keep the table in float32"):
        module(batch(0)).sum().backward()
    assert torch.equal(module.weight, table(torch.float16))


# Several passes, one step


@EACH
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_passes_are_one_step(optimizer: Any, combiner: str, dtype: Any) -> None:
    """That of all batches in one, bit for bit, and weights may be there in some of them."""
    parts, whole = (layer(optimizer, dtype, combiner=combiner) for _ in range(2))
    ids = [batch(0), batch(1).int(), batch(2)]
    weights = torch.rand(3, 3, 4)
    for given in (None, weights):
        with parts.accumulate():
            for i, each in enumerate(ids):
                parts(each, None, given if given is None else given[i]).square().sum().backward()
            assert parts.weight.grad is None
        every = None if given is None else given.reshape(9, 4)
        whole(torch.cat(ids), None, every).square().sum().backward()
        assert_same(parts, whole)
    with parts.accumulate():
        parts(ids[0]).sum().backward()
        parts(ids[1], None, weights[1]).sum().backward()
    factors = torch.cat([torch.ones(3, 4), weights[1]])  # equal weights are no weights
    whole(torch.cat(ids[:2]), None, factors).sum().backward()
    torch.testing.assert_close(parts.weight, whole.weight)


@EACH
def test_maxima_are_one_step(optimizer: Any) -> None:
    parts, whole = (layer(optimizer, combiner="max") for _ in range(2))
    with parts.accumulate():
        train(parts, 0, 1)
    whole(torch.cat([batch(0), batch(1)])).square().sum().backward()
    torch.testing.assert_close(parts.weight, whole.weight)
    for name, array in whole.fused_state.items():
        torch.testing.assert_close(parts.fused_state[name], array)


def test_callers_may_use_their_memory_again() -> None:
    parts, whole = layer(optim.SGD(lr=0.1)), layer(optim.SGD(lr=0.1))
    ids, weights, grad = torch.empty(3, 4, dtype=torch.int64), torch.empty(3, 4), torch.empty(3, WIDTH)
    with parts.accumulate():
        for seed in (0, 1):
            ids.copy_(batch(seed))
            weights.fill_(seed + 1)
            parts(ids, None, weights).backward(grad.fill_(seed + 2))
    both = torch.cat([torch.full((3, WIDTH), 2.0), torch.full((3, WIDTH), 3.0)])
    pooled = whole(torch.cat([batch(0), batch(1)]), None, torch.tensor([1.0, 2.0]).repeat_interleave(12).reshape(6, 4))
    pooled.backward(both)
    assert_same(parts, whole)


def test_when_passes_make_no_step() -> None:
    module, same = layer(optim.Adam(lr=0.1)), layer(optim.Adam(lr=0.1))
    with module.accumulate():
        pass
    with pytest.raises(ZeroDivisionError), module.accumulate():
        train(module, 0)
        raise ZeroDivisionError
    assert_same(module, same)
    with pytest.raises(rowgrad.InvalidArgumentError, match="within a block"), module.accumulate(), module.accumulate():
        pass
    train(module, 0)  # and the layer is as before
    train(same, 0)
    assert_same(module, same)
    unfused = EmbeddingBag(ROWS, WIDTH, _weight=table())
    with unfused.accumulate():
        train(unfused, 0)
    assert unfused.weight.grad is not None


def test_passes_with_a_scale_are_one_step() -> None:
    module, whole = layer(optim.Adam(lr=0.1)), layer(optim.Adam(lr=0.1))
    module.grad_scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with module.accumulate():
        for seed in (0, 1):
            module.grad_scaler.scale(module(batch(seed)).square().sum()).backward()
    whole(torch.cat([batch(0), batch(1)])).square().sum().backward()
    assert_same(module, whole)
    with module.accumulate():  # one that overflows spoils the step
        module(batch(0)).sum().backward()
        module(batch(1)).sum().mul(float("inf")).backward()
    assert_same(module, whole)


def test_passes_over_a_table_on_disk_are_one_step(tmp_path: Any) -> None:
    plain = layer(optim.Adam(lr=0.1))
    with rowgrad.Table.create(tmp_path / "t", ROWS, WIDTH, optimizer=optim.Adam(lr=0.1)) as stored:
        stored.array[:] = table().numpy()
        stored.touch(np.arange(ROWS))
        module = EmbeddingBag.from_table(stored)
        with module.accumulate():
            train(module, 0, 1)
        plain(torch.cat([batch(0), batch(1)])).square().sum().backward()
        assert stored.steps == 1
        assert torch.equal(module.weight, plain.weight)
