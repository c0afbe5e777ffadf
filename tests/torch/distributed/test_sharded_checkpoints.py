"""What some ranks saved, others load, and training goes on as if nothing had happened."""

import numpy as np
import pytest

from optional import framework

torch = framework("torch")
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.state_dict import (  # noqa: E402
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from training import OPTIMIZERS, ROWS, WIDTH, table, train  # noqa: E402

from rowgrad import optim  # noqa: E402
from rowgrad.torch._embedding_bag import EmbeddingBag  # noqa: E402
from rowgrad.torch._optim import RowOptimizer  # noqa: E402
from rowgrad.torch.distributed import Ownership, ShardedEmbeddingBag, shard_state  # noqa: E402

CASE = {"combiner": "mean", "weighted": False, "exact": True, "optimizer": "Adam"}


def layer(group, sharding, seed=0, optimizer="Adam"):
    return ShardedEmbeddingBag(
        ROWS, WIDTH, combiner="mean", group=group, exact=True, sharding=sharding, seed=seed,
        fused_optimizer=OPTIMIZERS[optimizer](),
    )  # fmt: skip


def train_and_save(group, sharding, load, save, begin, steps):
    """Load if there is something, train on, save if there is a place for it."""
    bag = layer(group, sharding, seed=5)
    if load is None:
        bag.load_full_table(table())
    else:
        state = {"bag": bag.state_dict()}
        dcp.load(state, checkpoint_id=load, process_group=group)
        bag.load_state_dict(state["bag"])
    found = train(group, {**CASE, "sharding": sharding}, steps, begin, bag)
    if save is not None:
        dcp.save({"bag": bag.state_dict()}, checkpoint_id=save, process_group=group)
    return found["table"], found["state"]


@pytest.mark.parametrize("sharding", ["range", "hash"])
def test_four_save_two_load_then_one_and_the_end_is_that_of_one_process(ranks, tmp_path, sharding):
    expected = train(None, CASE, 30)
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    ranks.run(4, train_and_save, sharding, None, first, 0, 10)
    ranks.run(2, train_and_save, sharding, first, second, 10, 10)
    ((found, state),) = ranks.run(1, train_and_save, sharding, second, None, 20, 10)
    np.testing.assert_array_equal(found, expected["table"])
    assert state["step"] == 30
    for name, array in state.items():
        np.testing.assert_array_equal(array, expected["state"][name])


def moved(group, sharding):
    """Tables go between layers of one process and of many, by the table itself and by its state."""
    alone = EmbeddingBag(ROWS, WIDTH, _weight=table(), fused_optimizer=OPTIMIZERS["Adagrad"]())
    alone.fused_sum.copy_(torch.arange(ROWS * WIDTH).view(ROWS, WIDTH))
    bag = layer(group, sharding, optimizer="Adagrad")
    bag.load_state_dict(alone.state_dict())
    assert torch.equal(bag.full_table(), table())
    assert torch.equal(bag.full_state()["sum"], alone.fused_sum)
    bag.load_full_table(2 * table())
    only = bag.full_table(rank=0)
    assert (only is None) == (dist.get_rank(group) != 0)
    assert only is None or torch.equal(only, 2 * table())
    bag.load_state_dict(EmbeddingBag(ROWS, WIDTH, _weight=table()).state_dict())  # a table alone: the state stays
    assert torch.equal(bag.full_table(), table())
    assert torch.equal(bag.full_state()["sum"], alone.fused_sum)
    again = layer(group, sharding, seed=9, optimizer="Adagrad")
    again.load_state_dict(bag.state_dict())
    return torch.equal(again.weight, bag.weight) and torch.equal(again.fused_sum, bag.fused_sum)


@pytest.mark.parametrize("sharding", ["range", "hash"])
def test_tables_move_between_layers(ranks, sharding):
    assert ranks.run(3, moved, sharding) == [True] * 3


PLAIN = {
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.5),
    "SparseAdam": lambda parameters: torch.optim.SparseAdam(list(parameters), lr=0.1),
    "RowOptimizer": lambda parameters: RowOptimizer(parameters, optim.RowWiseAdagrad(0.1)),
}


def with_plain_optimizer(group, name, load, save, steps):
    """Train by an optimizer beside the layer, from what was saved if there is something: the whole table."""
    bag = ShardedEmbeddingBag(ROWS, WIDTH, combiner="sum", group=group, sharding="hash", _weight=table())
    optimizer = PLAIN[name](bag.parameters())
    named = name == "SparseAdam"  # whose count of steps is a plain number, which PyTorch loads by the parameter's name

    def state_of():
        return get_optimizer_state_dict(bag, optimizer) if named else optimizer.state_dict()

    def step(number):
        optimizer.zero_grad()
        ids = torch.arange(number, number + 20).view(4, 5) * 7 % ROWS
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        bag(ids.tensor_split(size)[rank]).square().sum().backward()
        optimizer.step()

    if load is not None:
        if name == "Adagrad":
            shard_state(optimizer)  # and nothing has to be trained before
        else:
            step(0)  # so that there is state to load into
        state = {"bag": bag.state_dict(), "optimizer": state_of()}
        dcp.load(state, checkpoint_id=load, process_group=group)
        bag.load_state_dict(state["bag"])
        if named:
            set_optimizer_state_dict(bag, optimizer, state["optimizer"])
        else:
            optimizer.load_state_dict(state["optimizer"])
    for number in steps:
        step(number)
    if save is not None:
        state = {"bag": bag.state_dict(), "optimizer": state_of()}
        dcp.save(state, checkpoint_id=save, process_group=group)
    return bag.full_table().numpy()


@pytest.mark.parametrize("name", PLAIN)
def test_the_state_of_a_plain_optimizer_is_spread_like_the_table(ranks, tmp_path, name):
    saved = str(tmp_path / "saved")
    (expected,) = ranks.run(1, with_plain_optimizer, name, None, None, range(6))
    ranks.run(2, with_plain_optimizer, name, None, saved, range(3))
    for size in (2, 1):
        for found in ranks.run(size, with_plain_optimizer, name, saved, None, range(3, 6)):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def by_state_dict_api(group):
    """PyTorch's own functions for checkpoints take the state, as parts and as a whole."""
    bag = ShardedEmbeddingBag(ROWS, WIDTH, group=group, sparse=False, _weight=table())
    optimizer = torch.optim.Adam(bag.parameters(), lr=0.1)
    bag(torch.arange(ROWS)[None]).sum().backward()
    optimizer.step()
    full = get_optimizer_state_dict(bag, optimizer, options=StateDictOptions(full_state_dict=True))
    parts = get_optimizer_state_dict(bag, optimizer)
    again = torch.optim.Adam(bag.parameters(), lr=0.1)
    set_optimizer_state_dict(bag, again, parts)
    again.zero_grad()
    bag(torch.arange(ROWS)[None]).sum().backward()
    again.step()
    shapes = [tuple(each["state"]["weight"]["exp_avg"].shape) for each in (full, parts) if each["state"]]
    return shapes, type(again.state[bag.weight]["exp_avg"]) is torch.Tensor, int(again.state[bag.weight]["step"])


def test_the_functions_of_pytorch_for_checkpoints(ranks):
    whole = (ROWS, WIDTH)
    for shapes, is_plain, steps in ranks.run(2, by_state_dict_api):
        assert set(shapes) == {whole}
        assert is_plain and steps == 2


def other_order(group):
    try:
        layer(group, "hash").load_state_dict(layer(group, "range").state_dict())
    except ValueError as error:
        return error.code, str(error)


def test_a_table_in_another_order_is_refused(ranks):
    for code, message in ranks.run(2, other_order):
        assert code == "checkpoint-differs"
        assert "sharding 'range'" in message


def drawn(group, seed):
    return ShardedEmbeddingBag(200_000, 3, group=group, seed=seed, padding_idx=70_001).full_table().numpy()


def test_a_new_table_does_not_depend_on_the_number_of_ranks(ranks):
    one, three = ranks.run(1, drawn, 4)[0], ranks.run(3, drawn, 4)[2]
    np.testing.assert_array_equal(one, three)
    assert not one[70_001].any()
    assert abs(one.mean()) < 0.01 and abs(one.std() - 1) < 0.01
    assert len(np.unique(one)) > 550_000  # blocks of rows are not copies of one another
    assert not np.array_equal(one, ranks.run(1, drawn, 5)[0])


@pytest.mark.parametrize("rows", [1, 2, 3, 10, 53, 64, 1000, 99_991])
@pytest.mark.parametrize("sharding", ["range", "hash"])
@pytest.mark.parametrize("size", [1, 3, 4, 7])
def test_every_row_has_one_place(rows, sharding, size):
    ownership = Ownership(rows, size, sharding)
    positions = ownership.positions(np.arange(rows))
    assert np.array_equal(np.sort(positions), np.arange(rows))
    ids = np.concatenate([ownership.ids(rank) for rank in range(size)])
    assert np.array_equal(positions[ids], np.arange(rows))
    chunks = [len(part) for part in torch.arange(rows).chunk(size)]
    assert [last - first for first, last in ownership.pieces if last > first] == chunks


def test_hash_spreads_neighbours():
    owners = Ownership(1_000_000, 8, "hash").positions(np.arange(1000)) // 125_000
    counts = np.bincount(owners, minlength=8)
    assert counts.min() > 100 and counts.max() < 150
