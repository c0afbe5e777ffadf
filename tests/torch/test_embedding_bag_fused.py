"""The layer with a fused optimizer: equal to a step of its own, saved and resumed, over tables on disk."""

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
from bag_cases import ROWS, WIDTH, assert_equal, table

import rowgrad
from optional import framework
from rowgrad import optim

torch = framework("torch")

from rowgrad.torch import EmbeddingBag  # noqa: E402

OPTIMIZERS = [
    optim.SGD(lr=0.1), optim.SGD(lr=0.1, momentum=0.9), optim.Adagrad(lr=0.1), optim.RowWiseAdagrad(lr=0.1),
    optim.Adam(lr=0.1), optim.AdamW(lr=0.1),
]  # fmt: skip


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", "max"])
@pytest.mark.parametrize("weighted", [True, False])
def test_fused_is_the_same_as_a_step_of_its_own(optimizer: Any, combiner: str, weighted: bool) -> None:
    if weighted and combiner == "max":
        return
    fused = EmbeddingBag(ROWS, WIDTH, combiner=combiner, fused_optimizer=optimizer, _weight=table())
    plain = EmbeddingBag(ROWS, WIDTH, combiner=combiner, _weight=table())
    state = optimizer.init(plain.weight.detach())
    random = np.random.default_rng(1)
    for _ in range(5):
        ids = torch.tensor(random.integers(0, ROWS, (3, 4)))
        weights = torch.tensor(random.random((3, 4)), dtype=torch.float32) if weighted else None
        results = []
        for layer in (fused, plain):
            given = None if weights is None else weights.clone().requires_grad_()
            layer(ids, None, given).square().sum().backward()
            results.append(None if given is None else given.grad)
        assert fused.weight.grad is None
        assert not weighted or torch.equal(*results)
        grad, plain.weight.grad = plain.weight.grad, None
        optimizer.step(plain.weight.detach(), rowgrad.RowGradient(grad.values(), grad.indices()[0]), state)
        assert torch.equal(fused.weight, plain.weight)
        for name, array in state.items():
            assert torch.equal(fused.fused_state[name], array)


def test_a_fused_layer_saved_half_way_goes_on_the_same() -> None:
    def steps(layer: Any, first: int, last: int) -> None:
        for step in range(first, last):
            ids = torch.tensor(np.random.default_rng(step).integers(0, ROWS, (3, 4)))
            layer(ids).square().sum().backward()

    def new() -> Any:
        return EmbeddingBag(ROWS, WIDTH, fused_optimizer=optim.Adam(lr=0.1), _weight=table())

    whole, half = new(), new()
    steps(whole, 0, 10)
    steps(half, 0, 5)
    file = io.BytesIO()
    torch.save(half.state_dict(), file)
    file.seek(0)
    resumed = new()
    resumed.load_state_dict(torch.load(file, weights_only=True))
    steps(resumed, 5, 10)
    assert torch.equal(resumed.weight, whole.weight)
    for copied in (copy.deepcopy(whole), pickle.loads(pickle.dumps(whole))):
        steps(copied, 10, 12)
    steps(whole, 10, 12)
    assert torch.equal(copied.weight, whole.weight)


def test_a_fused_layer_takes_a_table_without_state() -> None:
    layer = EmbeddingBag(ROWS, WIDTH, fused_optimizer=optim.Adagrad(lr=0.1))
    layer.load_state_dict(torch.nn.EmbeddingBag(ROWS, WIDTH, _weight=table()).state_dict())
    assert torch.equal(layer.weight, table())
    outer = torch.nn.Sequential(EmbeddingBag(ROWS, WIDTH, fused_optimizer=optim.Adagrad(lr=0.1)))
    outer.load_state_dict(torch.nn.Sequential(torch.nn.EmbeddingBag(ROWS, WIDTH, _weight=table())).state_dict())
    assert torch.equal(outer[0].weight, table())


def test_a_fused_layer_that_is_frozen_stays_as_it_is() -> None:
    layer = EmbeddingBag(ROWS, WIDTH, combiner="sum", fused_optimizer=optim.SGD(lr=1.0), _weight=table())
    layer.weight.requires_grad_(False)
    weights = torch.ones(1, 2, requires_grad=True)
    layer(torch.tensor([[1, 2]]), None, weights).sum().backward()
    assert torch.equal(layer.weight, table())
    assert_equal(table()[1:3].sum(1), weights.grad[0])


def test_a_changed_table_is_noticed() -> None:
    layer = EmbeddingBag(ROWS, WIDTH, combiner="sum", fused_optimizer=optim.SGD(lr=1.0))
    weights = torch.ones(1, 2, requires_grad=True)
    first, second = (layer(torch.tensor([[1, 2]]), None, weights).sum() for _ in range(2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (first + second).backward()
    layer = EmbeddingBag(ROWS, WIDTH, fused_optimizer=optim.SGD(lr=1.0))
    with pytest.raises(rowgrad.InvalidArgumentError, match="fused optimizer"):
        torch.autograd.grad(layer(torch.tensor([[1, 2]])).sum(), layer.weight, create_graph=True)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", "max"])
@pytest.mark.parametrize("weighted", [True, False])
def test_a_layer_over_a_table_on_disk(combiner: str, weighted: bool, tmp_path: Any) -> None:
    if weighted and combiner == "max":
        return
    optimizer = optim.Adam(lr=0.1)
    plain = EmbeddingBag(ROWS, WIDTH, combiner=combiner, fused_optimizer=optimizer, _weight=table())
    with rowgrad.Table.create(tmp_path / "t", ROWS, WIDTH, optimizer=optimizer) as stored:
        stored.array[:] = table().numpy()
        stored.touch(np.arange(ROWS))
        layer = EmbeddingBag.from_table(stored, combiner=combiner)
        for step in range(4):
            ids = torch.tensor(np.random.default_rng(step).integers(0, ROWS, (3, 4)))
            weights = torch.rand(3, 4) if weighted else None
            for each in (layer, plain):
                each(ids, None, weights).square().sum().backward()
            stored.flush()
            assert torch.equal(layer.weight, plain.weight)
        assert stored.steps == 4
    with rowgrad.Table.open(tmp_path / "t", mode="r") as stored:
        assert np.array_equal(stored.array, plain.weight.detach().numpy())
        assert np.array_equal(stored.state["v"], plain.fused_state["v"].numpy())
        layer = EmbeddingBag.from_table(stored, combiner=combiner)
        assert not layer.weight.requires_grad
        assert torch.equal(layer(ids), plain(ids))
        with pytest.raises(rowgrad.InvalidArgumentError, match=r"table\.optimizer"):
            EmbeddingBag.from_table(stored, fused_optimizer=optimizer)
