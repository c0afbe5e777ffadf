"""The layer in a model: beside DistributedDataParallel, with requests started early, and what travels."""

import numpy as np
import pytest

from optional import framework

torch = framework("torch")
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from training import WIDTH, table  # noqa: E402

from rowgrad import optim  # noqa: E402
from rowgrad.torch._embedding_bag import EmbeddingBag  # noqa: E402
from rowgrad.torch.distributed import ShardedEmbeddingBag  # noqa: E402

STEPS, BATCH, LENGTH = 10, 12, 5


def data(step):
    random = torch.Generator().manual_seed(step)
    return torch.randint(0, 53, (BATCH, LENGTH), generator=random), torch.randn(BATCH, generator=random)


def tower():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()


def fitted(group):
    """A model of a table and a dense part, on a group or, for None, in one process, with a mean loss each."""
    optimizer = optim.Adagrad(0.1)
    if group is None:
        bag, dense, part = EmbeddingBag(53, WIDTH, _weight=table().double(), fused_optimizer=optimizer), tower(), ...
    else:
        bag = ShardedEmbeddingBag(53, WIDTH, _weight=table().double(), group=group, fused_optimizer=optimizer,
                                  gradient_average=True)  # fmt: skip
        dense = DistributedDataParallel(tower(), process_group=group)
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        part = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    plain = torch.optim.SGD(dense.parameters(), lr=0.1)
    for step in range(STEPS):
        ids, labels = data(step)
        loss = ((dense(bag(ids[part])).squeeze(1) - labels[part]) ** 2).mean()
        plain.zero_grad()
        loss.backward()
        plain.step()
    whole = bag.weight.detach() if group is None else bag.full_table()
    return whole.numpy(), [p.detach().numpy() for p in dense.parameters()]


@pytest.mark.parametrize("size", [2, 3])
def test_beside_distributed_data_parallel(ranks, size):
    expected, dense = fitted(None)
    for found, parameters in ranks.run(size, fitted):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        for mine, other in zip(parameters, dense, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-12)


def measured(group, exact, weighted):
    """Bytes of one step in which each rank has 4 bags of 6 entries, half of each bag's rows on each of two ranks."""
    bag = ShardedEmbeddingBag(1000, 16, combiner="mean", group=group, exact=exact)
    ids = torch.arange(4 * 6).view(4, 6) % 3 + torch.tensor([0, 500]).repeat(3)
    weights = torch.ones(4, 6, requires_grad=True) if weighted else None
    bag.traffic.reset()
    bag(ids, None, weights).sum().backward()
    return dict(bag.traffic.sent)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_what_travels_is_what_is_needed(ranks, exact, weighted):
    entries, runs, row = 12, 4, 16 * 4
    unique = 3
    expected = {
        "counts": 2 * 56,
        "ids": 16 + 4 * entries + 4 * runs + (4 * entries if weighted else 0),
        "rows": (unique if exact else runs) * row,
        "gradients": runs * row,
    }
    if weighted:
        expected["weights"] = 4 * entries
    assert ranks.run(2, measured, exact, weighted) == [expected] * 2


def early(group):
    """Two requests under way at once, finished in their order."""
    bag = ShardedEmbeddingBag(53, WIDTH, combiner="sum", group=group, _weight=table())
    first, second = (torch.tensor([[dist.get_rank(group), 50]]), torch.tensor([[7, 8, 9]]))
    requests = bag.start(first), bag.start(second)
    found = [bag(request) for request in requests]
    expected = [table()[ids[0]].sum(0) for ids in (first, second)]
    other = ShardedEmbeddingBag(53, WIDTH, combiner="sum", group=group)
    with pytest.raises(ValueError, match="another layer"):
        other(requests[0])
    return all(torch.allclose(a[0], b) for a, b in zip(found, expected, strict=True))


def test_requests_may_be_started_early(ranks):
    assert ranks.run(3, early) == [True] * 3


def frozen(group):
    """A table that is not trained still gives weights their gradients; in evaluation nothing is sent back."""
    bag = ShardedEmbeddingBag(53, WIDTH, combiner="sum", group=group, _weight=table())
    bag.weight.requires_grad_(False)
    weights = torch.ones(1, 2, requires_grad=True)
    bag(torch.tensor([[3, 40]]), None, weights).sum().backward()
    assert bag.weight.grad is None
    right = torch.allclose(weights.grad[0], table()[[3, 40]].sum(1))
    bag.traffic.reset()
    with torch.no_grad():
        bag(torch.tensor([[3, 40]]))
    return right and "gradients" not in bag.traffic.sent


def test_frozen_tables_and_evaluation(ranks):
    assert ranks.run(2, frozen) == [True] * 2


def twice(group, combiner):
    """One table for two inputs of a model, as for a user and the items: each makes a step of its own."""
    first, second = torch.tensor([[3, 40], [3, 3]]), torch.tensor([[40, 52, 7]])
    bags = []
    for whole in (True, False):
        settings = {"combiner": combiner, "_weight": table(), "fused_optimizer": optim.SGD(0.5)}
        if whole:
            bag = EmbeddingBag(53, WIDTH, **settings)
        else:
            bag = ShardedEmbeddingBag(53, WIDTH, group=group, gradient_average=True, **settings)
        (bag(first).sum() + bag(second).sum()).backward()
        bags.append(bag)
    return torch.allclose(bags[1].full_table(), bags[0].weight)


@pytest.mark.parametrize("combiner", ["sum", "mean", "max"])
def test_a_fused_layer_that_is_called_twice_in_a_step(ranks, combiner):
    assert ranks.run(2, twice, combiner) == [True] * 2


def more_ranks_than_rows(group):
    bag = ShardedEmbeddingBag(2, 3, combiner="sum", group=group, _weight=torch.ones(2, 3),
                              fused_optimizer=optim.Adam(0.5))  # fmt: skip
    bag(torch.tensor([[0, 1, 1]])).sum().backward()
    return bag.full_table().tolist(), int(bag.fused_step)


def test_more_ranks_than_rows(ranks):
    assert all(steps == 1 for _, steps in ranks.run(4, more_ranks_than_rows))
    found = ranks.run(4, more_ranks_than_rows)
    np.testing.assert_allclose(found[0][0], np.full((2, 3), 0.5), rtol=1e-6)
    assert all(each == found[0] for each in found)
