"""Layers in programs that are compiled whole: sparse gradients and fused optimizers as without compilation."""

import copy

import pytest
import torch

from rowgrad import optim
from rowgrad.torch import EmbeddingBag, EmbeddingBagCollection, EmbeddingBagConfig

IDS, OFFSETS = torch.tensor([1, 2, 2, 5, 0, 1, 1, 7]), torch.tensor([0, 3, 3, 6])
WEIGHTS = torch.linspace(0.5, 2, 8)


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()


def compiled(module, **settings):
    return torch.compile(module, fullgraph=True, backend="aot_eager", **settings)


def layer(**settings):
    torch.manual_seed(0)
    return EmbeddingBag(10, 4, **settings)


CASES = [(combiner, changes) for combiner in ("sum", "mean", "sqrtn", "max") for changes in ({}, {"padding_idx": 1})]


@pytest.mark.parametrize(("combiner", "changes"), [*CASES, ("mean", {"scale_grad_by_freq": True})], ids=str)
def test_sparse_gradients(combiner, changes):
    one, other = (layer(combiner=combiner, **changes) for _ in range(2))
    run = compiled(one)
    for _ in range(2):  # gradients are added up
        results = [call(IDS, OFFSETS) for call in (run, other)]
        assert torch.equal(*results)
        for result in results:
            result.square().sum().backward()
    assert one.weight.grad.is_sparse
    assert torch.equal(one.weight.grad.to_dense(), other.weight.grad.to_dense())


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_weights_get_gradients(combiner):
    one, other = (layer(combiner=combiner) for _ in range(2))
    grads = []
    for call in (compiled(one), other):
        weights = WEIGHTS.clone().requires_grad_()
        call(IDS, OFFSETS, weights).square().sum().backward()
        grads.append(weights.grad)
    torch.testing.assert_close(*grads)
    torch.testing.assert_close(one.weight.grad.to_dense(), other.weight.grad.to_dense())


@pytest.mark.parametrize("combiner", ["mean", "max"])
@pytest.mark.parametrize("optimizer", [optim.SGD(lr=0.1), optim.Adam(lr=0.1), optim.RowWiseAdagrad(lr=0.1)], ids=str)
def test_fused_optimizers(combiner, optimizer):
    one, other = (layer(combiner=combiner, fused_optimizer=optimizer) for _ in range(2))
    head = torch.nn.Linear(4, 2)
    run = compiled(lambda ids, offsets: head(one(ids, offsets)).tanh())
    for step in range(3):
        results = [run(IDS, OFFSETS), head(other(IDS, OFFSETS)).tanh()]
        assert torch.equal(*results)
        for result in results:
            result.sum().backward()
        for each in (one, other):
            each.optimizer.param_groups[0]["lr"] = 0.1 / (step + 2)  # a schedule is followed without compiling anew
    assert torch.equal(one.weight, other.weight)
    assert one.weight.grad is None
    for name, state in one.fused_state.items():
        assert torch.equal(state, other.fused_state[name]), name


def test_steps_are_accumulated():
    one, other = (layer(combiner="sum", fused_optimizer=optim.Adagrad(lr=0.1)) for _ in range(2))
    for each, call in ((one, compiled(one)), (other, other)):
        with each.accumulate():
            before = each.weight.clone()
            for ids in (IDS, IDS.flip(0)):
                call(ids, OFFSETS).sum().backward()
            assert torch.equal(each.weight, before)
    assert torch.equal(one.weight, other.weight)


def test_a_copy_changes_its_own_table():
    one = layer(combiner="sum", fused_optimizer=optim.SGD(lr=0.1))
    other = copy.deepcopy(one)
    before = one.weight.clone()
    compiled(other)(IDS, OFFSETS).sum().backward()
    assert torch.equal(one.weight, before)
    assert not torch.equal(other.weight, before)


def test_batches_of_any_size():
    one, other = (layer(combiner="mean", fused_optimizer=optim.SGD(lr=0.1)) for _ in range(2))
    run = compiled(one, dynamic=True)
    for size in (4, 9, 30):
        ids, offsets = torch.arange(size) % 10, torch.arange(0, size, 2)
        for call in (run, other):
            call(ids, offsets).sum().backward()
    assert torch.equal(one.weight, other.weight)


@pytest.mark.parametrize("optimizer", [None, optim.Adagrad(lr=0.1)], ids=str)
def test_collections(optimizer):
    torch.manual_seed(0)
    tables = [EmbeddingBagConfig("a", 10, 4, ["f", "g"], "mean"), EmbeddingBagConfig("b", 5, 3, ["h"])]
    one = EmbeddingBagCollection(tables=tables, fused_optimizer=optimizer)
    other = copy.deepcopy(one)
    values, offsets = torch.tensor([1, 2, 3, 9, 9, 1, 0, 4, 4]), torch.tensor([0, 2, 3, 5, 6, 6, 9])
    run = torch.compile(one.pool, fullgraph=True, backend="aot_eager")
    for call in (run, other.pool):
        for _ in range(2):
            call(values, offsets).square().sum().backward()
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        if optimizer is None:
            assert torch.equal(mine.grad.to_dense(), theirs.grad.to_dense())
