"""Layers and collections by the kernels over many tables: the same bits as by operators, whatever the bags are."""

import os
import threading
from contextlib import suppress

import numpy as np
import pytest
import torch

from rowgrad import optim
from rowgrad._runtime import memory, team
from rowgrad.errors import RowgradError
from rowgrad.torch import EmbeddingBag, EmbeddingBagCollection, EmbeddingBagConfig
from rowgrad.torch._tables import Batch
from rowgrad.torch._trained_tables import TrainedTables

# Each is compiled, which takes seconds: one vector a row and several, whole ones and not, sums and what is divided.
WIDTHS = ((1, "sum"), (3, "mean"), (16, "sum"), (20, "sqrtn"), (64, "sum"), (64, "mean"), (100, "sum"), (200, "mean"))
STEPS = (
    (torch.float32, torch.int64, optim.SGD(lr=0.1)),
    (torch.float32, torch.int32, optim.SGD(lr=0.1)),
    (torch.float32, torch.int64, optim.RowWiseAdagrad(lr=0.1)),
    (torch.float64, torch.int64, optim.Adam(lr=0.1)),
    (torch.float16, torch.int64, optim.Adagrad(lr=0.1)),
    (torch.bfloat16, torch.int64, optim.Adam(lr=0.1)),
)


def ragged(seed, rows, bags, most, ids=torch.int64):
    """Ids, where bags begin, the bag of each."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, most + 1, bags)
    values = torch.from_numpy(rng.integers(0, rows, int(lengths.sum()))).to(ids)
    begins = torch.from_numpy(np.cumsum(lengths) - lengths).to(ids)
    return values, begins, torch.from_numpy(np.repeat(np.arange(bags), lengths))


def same_bits(one, other):
    return one.dtype == other.dtype and torch.equal(
        one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8)
    )


def two_layers(rows, width, **settings):
    """Two layers with one table; the second is called with segment_ids, and so takes the way of operators."""
    torch.manual_seed(rows * 1000 + width)
    weight = torch.randn(rows, width).to(settings.pop("dtype", torch.float32))
    weight[0] = -0.0
    return [EmbeddingBag(rows, width, _weight=weight.clone(), **settings) for _ in range(2)]


@pytest.mark.parametrize(("width", "combiner"), WIDTHS)
def test_widths(width, combiner):
    one, other = two_layers(50, width, combiner=combiner)
    ids, begins, bags = ragged(width, 50, 70, 25)
    pooled, expected = one(ids, begins), other(ids, segment_ids=bags, num_bags=70)
    assert same_bits(pooled, expected)
    grad = torch.randn(70, width)
    pooled.backward(grad)
    expected.backward(grad)
    assert one.weight.grad.is_coalesced()
    assert torch.equal(one.weight.grad.indices(), other.weight.grad.indices())
    assert same_bits(one.weight.grad.values(), other.weight.grad.values())


@pytest.mark.parametrize(("fewest", "most"), [(1, 4), (0, 3), (1, 1), (10, 10), (300, 311), (300, 312), (0, 40)])
def test_lengths(fewest, most):
    """Bags of few lengths are pooled in the order of these, 64 bags at a time; the table is large, and is fetched."""
    one, other = two_layers(5000, 64, combiner="sum")
    rng = np.random.default_rng(most)
    for count in (1, 63, 64, 65, 200):
        lengths = rng.integers(fewest, most + 1, count)
        ids = torch.from_numpy(rng.integers(0, 5000, int(lengths.sum())))
        begins, bags = (
            torch.from_numpy(np.cumsum(lengths) - lengths),
            torch.from_numpy(np.repeat(range(count), lengths)),
        )
        assert same_bits(one(ids, begins), other(ids, segment_ids=bags, num_bags=count))


@pytest.mark.parametrize(("dtype", "ids", "optimizer"), STEPS, ids=str)
def test_fused_steps(dtype, ids, optimizer):
    one, other = two_layers(30, 20, combiner="mean", fused_optimizer=optimizer, dtype=dtype)
    for seed in range(3):
        values, begins, bags = ragged(seed, 30, 40, 6, ids)
        grad = torch.randn(40, 20).to(dtype)
        one(values, begins).backward(grad)
        other(values, segment_ids=bags, num_bags=40).backward(grad)
    assert same_bits(one.weight, other.weight)
    for name, state in one.fused_state.items():
        assert same_bits(state, other.fused_state[name]), name


def test_weights():
    one, other = two_layers(30, 20, combiner="sum", fused_optimizer=optim.Adagrad(lr=0.1))
    values, begins, bags = ragged(5, 30, 40, 6)
    weights, grad = torch.rand(len(values)), torch.randn(40, 20)
    pooled = one(values, begins, weights)
    expected = other(values, per_sample_weights=weights, segment_ids=bags, num_bags=40)
    assert same_bits(pooled, expected)
    pooled.backward(grad)
    expected.backward(grad)
    assert same_bits(one.weight, other.weight)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads(threads):
    """Large enough for a team; one table is divided by its rows."""
    before = torch.get_num_threads()
    one, other = two_layers(5000, 64, combiner="sum", fused_optimizer=optim.SGD(lr=0.1))
    values, begins, bags = ragged(1, 5000, 3000, 8)
    grad = torch.randn(3000, 64)
    try:
        torch.set_num_threads(threads)
        pooled = one(values, begins)
        pooled.backward(grad)
    finally:
        torch.set_num_threads(before)
    expected = other(values, segment_ids=bags, num_bags=3000)
    expected.backward(grad)
    assert same_bits(pooled, expected)
    assert same_bits(one.weight, other.weight)


def test_many_tables_are_one_call(monkeypatch):
    """Tables of one width are pooled and changed by one kernel call each."""
    tables = [EmbeddingBagConfig(f"t{i}", 10 + i, 16, [f"f{i}"]) for i in range(26)]
    collection = EmbeddingBagCollection(tables=tables, fused_optimizer=optim.SGD(lr=0.1))
    calls = []
    run = TrainedTables._run_step
    monkeypatch.setattr(TrainedTables, "_run_step", lambda *args: calls.append("step") or run(*args))
    values, offsets = torch.zeros(26 * 4, dtype=torch.int64), torch.arange(26 * 4 + 1)
    collection.pool(values, offsets).sum().backward()
    assert calls == ["step"]
    assert len(collection._tables._groups) == 1


@pytest.mark.parametrize("bad", [10, -1, 2**40, -(2**63)])
def test_bad_ids_leave_everything(bad):
    """No table is changed, and the scratch that must be zero is zero."""
    tables = [EmbeddingBagConfig(f"t{i}", 10, 4 * (i + 1), [f"f{i}"]) for i in range(3)]
    collection = EmbeddingBagCollection(tables=tables, fused_optimizer=optim.SGD(lr=0.1))
    values, offsets = torch.arange(6), torch.arange(7)
    pooled = collection.pool(values, offsets)
    before = [weight.clone() for weight in collection.parameters()]
    values.numpy()[4] = bad  # behind autograd's back
    with pytest.raises(RowgradError):
        pooled.sum().backward()
    assert all(torch.equal(one, other) for one, other in zip(before, collection.parameters(), strict=True))
    assert not any(block.any() for block, _ in memory._free_zeros)
    with pytest.raises(IndexError, match=r"values\[4\]"):
        collection.pool(values, offsets)


@pytest.mark.parametrize("offsets", [[1, 2, 3], [0, 9, 3], [0, -5, 3], [0, 3, 2], [0, 2**63 - 1, -2, 3]])
@pytest.mark.parametrize("include_last_offset", [False, True])
def test_bad_offsets_are_refused(offsets, include_last_offset):
    bag = EmbeddingBag(10, 4, combiner="sum", include_last_offset=include_last_offset)
    ids = torch.arange(2 if offsets == [0, 3, 2] else 3)
    with pytest.raises(RowgradError):
        bag(ids, torch.tensor(offsets))


@pytest.mark.parametrize("which", ["ids", "offsets"])
def test_memory_that_changes_during_calls(which):
    """Another thread writes to what is looked up: any answer or error will do, but no crash."""
    bag = EmbeddingBag(1000, 64, combiner="sum", fused_optimizer=optim.SGD(lr=1e-9))
    ids, offsets = torch.randint(0, 1000, (20_000,)), torch.arange(0, 20_000, 5)
    victim, stop = (ids if which == "ids" else offsets).numpy(), threading.Event()
    good = victim[100:200].copy()

    def flip():
        while not stop.is_set():
            for value in (2**40, -1, 1000, 20_001):
                victim[100:200] = value
                victim[100:200] = good

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        for _ in range(30):
            with suppress(RowgradError):
                bag(ids, offsets).sum().backward()
    finally:
        stop.set()
        thread.join()
    victim[100:200] = good
    assert torch.isfinite(bag(ids, offsets)).all()
    assert not any(block.any() for block, _ in memory._free_zeros)


@pytest.mark.parametrize("combiner", ["sum", "mean"])
def test_offsets_that_change_after_gradients_have_room(combiner, monkeypatch):
    """Bags wander to the first table after it was looked at how many entries that has."""
    tables = [EmbeddingBagConfig(f"t{i}", 50_000, 16, [f"f{i}"], combiner) for i in range(2)]
    collection = EmbeddingBagCollection(tables=tables)
    values, offsets = torch.randint(0, 50_000, (20_000,)), torch.arange(0, 20_001, 5)
    pooled = collection.pool(values, offsets)
    monkeypatch.setattr(Batch, "bounds", lambda batch: [0, 5, 20_000])
    with pytest.raises(RowgradError):
        pooled.sum().backward()
    monkeypatch.undo()
    pooled = collection.pool(values, offsets)
    pooled.sum().backward()
    assert all(weight.grad is not None for weight in collection.parameters())


def test_layers_in_a_forked_child():
    """PyTorch's threads do not exist in a forked child, and nobody waits for them."""
    bag = EmbeddingBag(1000, 64, combiner="sum", fused_optimizer=optim.SGD(lr=0.1))
    ids, offsets = torch.randint(0, 1000, (20_000,)), torch.arange(0, 20_000, 5)
    bag(ids, offsets).sum().backward()
    child = os.fork()
    if child == 0:
        try:
            pooled = bag(ids, offsets).detach().numpy()  # PyTorch's own operators would wait for its threads
            os._exit(0 if np.isfinite(pooled).all() else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_a_late_team_is_left_alone_for_a_while(monkeypatch):
    monkeypatch.setattr(team, "_alone", 0)
    monkeypatch.setattr(team, "_next_alone", team.LEAST_ALONE)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        shared = team.team(team.GRAIN, 2)
        team.note(True)
        alone = [team.team(team.GRAIN, 2) for _ in range(team.LEAST_ALONE)]
        assert set(alone) == {(0, 1)}
        assert team.team(team.GRAIN, 2) == shared
        team.note(True)
        assert team._alone == 2 * team.LEAST_ALONE
    finally:
        torch.set_num_threads(before)
    assert team.team(team.GRAIN - 1, 2) == (0, 1)
