"""Ranks of one machine look rows up in each other's tables: the bits of one process, whatever happens to the tables."""

import random
import time
from functools import cache

import numpy as np
import pytest

from optional import framework

torch = framework("torch")
import torch.distributed as dist  # noqa: E402
from collection_training import STEPS, train, train_here  # noqa: E402

from rowgrad import InvalidArgumentError, optim  # noqa: E402
from rowgrad.torch import EmbeddingBagCollection, EmbeddingBagConfig  # noqa: E402
from rowgrad.torch.distributed import PeerError, ShardedEmbeddingBag, ShardedEmbeddingBagCollection  # noqa: E402

ROWS, WIDTH = 30, 8
PLACEMENT = {"r": "row", "t": ("table", 1), "c": "column"}


@cache
def alone(settings):
    return train(None, dict(settings))


@pytest.mark.parametrize("size", [2, 3])
def test_spread_rows_have_the_bits_of_one_process(ranks, size):
    """Also without `exact`: no sums of ranks are added."""
    cases = [
        {"placement": "row", "optimizer": "Adagrad"},
        {"placement": "row", "optimizer": "RowWiseAdagrad", "weighted": "plain", "ids": "int32"},
        {"placement": "column", "optimizer": "Adam", "prefetch": True},
        {"placement": "row"},
        {"placement": "row", "dtype": "bfloat16", "optimizer": "SGD"},
    ]
    for case, several in zip(cases, zip(*ranks.run(size, train_here, cases), strict=True), strict=True):
        one = alone(tuple(sorted((k, v) for k, v in case.items() if k not in ("placement", "prefetch"))))
        for step in range(STEPS):
            found = np.concatenate([rank["outputs"][step] for rank in several])
            np.testing.assert_array_equal(found, one["outputs"][step], err_msg=f"step {step} of {case}")
        for name, table in several[0]["tables"].items():
            np.testing.assert_array_equal(table, one["tables"][name], err_msg=f"{name} of {case}")


def tables():
    return [EmbeddingBagConfig(name, ROWS, WIDTH, pooling="mean") for name in PLACEMENT]


def first_values():
    drawn = np.random.default_rng(0)
    return {name: torch.from_numpy(drawn.normal(size=(ROWS, WIDTH)).astype(np.float32)) for name in PLACEMENT}


def ids_of(step, rank):
    values = np.random.default_rng([step, rank]).integers(0, ROWS, len(PLACEMENT) * 4 * 3)
    return torch.from_numpy(values), torch.arange(0, values.size + 1, 3)


def at_different_speeds(group, seed):
    """Steps of ranks that stop now and then, and change a table in place between them."""
    rank, chance = dist.get_rank(group), random.Random(f"{seed} {dist.get_rank(group)}")
    collection = ShardedEmbeddingBagCollection(
        tables(), group=group, placement=PLACEMENT, fused_optimizer=optim.Adagrad(0.1)
    )
    collection.load_tables(first_values())
    sizes = [bag.weight.untyped_storage().nbytes() for bag in collection.embedding_bags.values()]
    assert sizes == [bag.weight.nbytes for bag in collection.embedding_bags.values()]  # what is saved is the shard
    outputs = []
    for step in range(40):
        with torch.set_grad_enabled(step % 4 != 3):
            output = collection.pool(*ids_of(step, rank))
        outputs.append(output.detach().numpy().copy())
        time.sleep(chance.choice((0, 0, 0.003)) if seed else 0)
        if output.requires_grad:
            output.square().sum().backward()
        else:
            with torch.no_grad():  # as soon as this rank has its rows
                for bag in collection.embedding_bags.values():
                    bag.weight.mul_(0.9)
        time.sleep(chance.choice((0, 0, 0.003)) if seed else 0)
    return outputs, {name: table.numpy() for name, table in collection.gather_tables().items()}


def test_ranks_of_different_speeds_never_see_half_a_step(ranks):
    expected = ranks.run(2, at_different_speeds, 0)
    for seed in (1, 2, 3):
        for (outputs, whole), (other, other_whole) in zip(
            expected, ranks.run(2, at_different_speeds, seed), strict=True
        ):
            np.testing.assert_array_equal(outputs, other)
            for name, table in whole.items():
                np.testing.assert_array_equal(table, other_whole[name])


def with_other_tables(group, replacing_rank):
    """Steps of a collection whose tables are replaced on a rank after the first; what each gave, and the tables."""
    rank = dist.get_rank(group)
    collection = ShardedEmbeddingBagCollection(
        tables(), group=group, placement=PLACEMENT, fused_optimizer=optim.Adagrad(0.1), exact=True
    )
    collection.load_tables(first_values())
    outputs = []
    for step in range(3):
        output = collection.pool(*ids_of(step, rank))
        output.square().sum().backward()
        outputs.append(output.detach().numpy())
        if step == 0 and rank == replacing_rank:
            for bag in collection.embedding_bags.values():
                bag.weight.data = bag.weight.data.clone()
    return outputs, {name: table.numpy() for name, table in collection.gather_tables().items()}


@pytest.mark.parametrize("replacing_rank", [0, 1])
def test_tables_that_are_replaced_are_used(ranks, replacing_rank):
    """One rank's tables leave the shared memory; rows travel from then on, with the same results."""
    expected = ranks.run(2, with_other_tables, None)
    found = ranks.run(2, with_other_tables, replacing_rank)
    for (outputs, whole), (other_outputs, other_whole) in zip(expected, found, strict=True):
        np.testing.assert_array_equal(outputs, other_outputs)
        for name, table in whole.items():
            np.testing.assert_array_equal(table, other_whole[name])


def replaced_after_prefetch(group):
    collection = ShardedEmbeddingBagCollection(tables(), group=group, placement=PLACEMENT)
    rank = dist.get_rank(group)
    request = collection.prefetch(ids_of(0, rank))
    if rank == 0:
        bag = collection.embedding_bags["r"]
        bag.weight.data = bag.weight.data.clone()
    try:
        collection(request)
    except (InvalidArgumentError, PeerError) as error:
        told = error.code
    collection.pool(*ids_of(1, rank))  # all ranks can go on
    return told


def test_tables_that_are_replaced_after_prefetch_are_refused(ranks):
    assert ranks.run(2, replaced_after_prefetch) == ["bad-request", "peer-refused"]


def averaged(group, weights_learn):
    """A step with gradient_average: the tables after it, and the gradient of this rank's weights."""
    rank = dist.get_rank(group)
    collection = ShardedEmbeddingBagCollection(
        tables(), weights_learn, group=group, placement=PLACEMENT, fused_optimizer=optim.SGD(0.5), gradient_average=True
    )
    collection.load_tables(first_values())
    values, offsets = ids_of(0, rank)
    weights = torch.linspace(0.5, 1.5, values.numel()).requires_grad_() if weights_learn else None
    collection.pool(values, offsets, weights).square().sum().backward()
    gradient = weights.grad.numpy() if weights_learn else np.empty(0)
    return {name: table.numpy() for name, table in collection.gather_tables().items()}, gradient


@pytest.mark.parametrize("weights_learn", [False, True])
def test_gradient_average_divides_gradients_of_tables_only(ranks, weights_learn):
    """Weights belong to the bags of one rank, and so do their gradients."""
    found = ranks.run(2, averaged, weights_learn)
    expected = {name: np.zeros((ROWS, WIDTH)) for name in PLACEMENT}
    for rank, (_, gradient) in enumerate(found):
        one = EmbeddingBagCollection(tables(), weights_learn)
        with torch.no_grad():
            for name, table in first_values().items():
                one.embedding_bags[name].weight.copy_(table)
        values, offsets = ids_of(0, rank)
        weights = torch.linspace(0.5, 1.5, values.numel()).requires_grad_() if weights_learn else None
        one.pool(values, offsets, weights).square().sum().backward()
        if weights_learn:
            np.testing.assert_allclose(gradient, weights.grad.numpy(), rtol=1e-5, atol=1e-6)
        for name, bag in one.embedding_bags.items():
            expected[name] += bag.weight.grad.to_dense().numpy() / 2
    for name, table in first_values().items():
        np.testing.assert_allclose(found[0][0][name], table.numpy() - 0.5 * expected[name], rtol=1e-4, atol=1e-5)


def without_columns(group):
    codes = []
    for make in (
        lambda: ShardedEmbeddingBagCollection([EmbeddingBagConfig("t", 5, 0)], group=group),
        lambda: ShardedEmbeddingBag(5, 0, group=group),
    ):
        try:
            make()
        except InvalidArgumentError as error:
            codes.append((error.code, error.argument))
    bag = ShardedEmbeddingBag(5, 1, group=group)  # all ranks can go on
    return codes, tuple(bag(torch.tensor([[dist.get_rank(group)]])).shape)


def test_tables_without_columns_are_refused(ranks):
    for codes, shape in ranks.run(2, without_columns):
        assert codes == [("wrong-argument", "tables"), ("wrong-argument", "embedding_dim")]
        assert shape == (1, 1)
