"""Tables with fewer rows than a batch has ids: rows travel once and are pooled where they are needed."""

import numpy as np
import pytest

from optional import framework

torch = framework("torch")
import torch.distributed as dist  # noqa: E402

from rowgrad import RowgradError, optim  # noqa: E402
from rowgrad.torch import EmbeddingBag  # noqa: E402
from rowgrad.torch.distributed import ShardedEmbeddingBag  # noqa: E402

ROWS, WIDTH, BAGS, STEPS = 23, 6, 90, 12
CASES = [(combiner, weighted, fused) for combiner in ("sum", "mean", "sqrtn") for weighted in (False, True)
         for fused in (False, True)]  # fmt: skip


def train(group, combiner, weighted, fused):
    """Outputs, gradients of weights, and the table; how many rows this rank was sent at most, of how many runs."""
    rank, size = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    first = torch.from_numpy(np.random.default_rng(1).normal(size=(ROWS, WIDTH)).astype(np.float32))
    settings = {"combiner": combiner, "fused_optimizer": optim.Adagrad(0.05, eps=1e-3) if fused else None}
    if group is None:
        bag = EmbeddingBag(ROWS, WIDTH, _weight=first, **settings)
    else:
        bag = ShardedEmbeddingBag(ROWS, WIDTH, _weight=first, group=group, sharding="hash", **settings)
    plain = None if fused else torch.optim.SGD(bag.parameters(), lr=0.01)
    outputs, gradients, pooled = [], [], []
    for step in range(STEPS):
        random = np.random.default_rng([2, step])
        bags = np.repeat(np.arange(BAGS), random.integers(0, 7, BAGS))
        ids, weights = random.integers(0, ROWS, bags.size), random.normal(1, 0.2, bags.size).astype(np.float32)
        slopes = torch.from_numpy(random.normal(size=(BAGS, WIDTH)).astype(np.float32))
        # The first rank has so little every other time that sums of rows travel to it, and rows to the others.
        cuts = [0, *(np.arange(1, size) * BAGS // size), BAGS]
        if size > 1 and step % 2:
            cuts[1] = 3
        begin, end = cuts[rank], cuts[rank + 1]
        here = (bags >= begin) & (bags < end)
        leaf = torch.from_numpy(weights[here]).requires_grad_() if weighted else None
        given = {
            "per_sample_weights": leaf,
            "segment_ids": torch.from_numpy(bags[here] - begin),
            "num_bags": end - begin,
        }
        mine = torch.from_numpy(ids[here])
        if group is None:
            output = bag(mine, **given)
        else:
            request = bag.start(mine, **given)
            pooled.append(request.rows is not None)
            output = bag(request)
        (output * slopes[begin:end] + 0.1 * output * output).sum().backward()
        if plain:
            plain.step()
            plain.zero_grad()
        outputs.append(output.detach().numpy())
        gradients.append(np.empty(0) if leaf is None else leaf.grad.numpy())
    table = bag.weight.detach() if group is None else bag.full_table()
    return outputs, gradients, table.numpy(), pooled


def several(group, cases):
    return [[train(group, *case) for case in cases] for _ in range(2)]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_they_train_as_in_one_process(ranks, size):
    found = ranks.run(size, several, CASES)
    for number, case in enumerate(CASES):
        outputs, gradients, table, _ = train(None, *case)
        of_ranks = [rank[0][number] for rank in found]
        for step in range(STEPS):
            for expected, which in ((outputs, 0), (gradients, 1)):
                whole = np.concatenate([one[which][step] for one in of_ranks])
                np.testing.assert_allclose(whole, expected[step], rtol=2e-4, atol=2e-5, err_msg=f"{case}, {step}")
        for rank, one in enumerate(of_ranks):
            np.testing.assert_allclose(one[2], table, rtol=2e-4, atol=2e-5, err_msg=str(case))
            assert one[3] == [size == 1 or not step % 2 or rank > 0 for step in range(STEPS)]
            np.testing.assert_array_equal(one[2], found[rank][1][number][2])  # the same bits in each run


def wrong(group, ids, bags):
    bag = ShardedEmbeddingBag(2, 3, combiner="sum", group=group)
    given = (ids, bags) if dist.get_rank(group) == 1 else ([0, 1, 1], [0, 1, 2])
    try:
        bag(torch.tensor(given[0]), segment_ids=torch.tensor(given[1]), num_bags=3)
    except RowgradError as error:
        return error.code


@pytest.mark.parametrize(
    ("ids", "bags", "code"),
    [
        ([0, 1, 2], [0, 1, 2], "index-out-of-range"),
        ([0, -1, 1], [0, 1, 2], "index-out-of-range"),
        ([0, 1, 1], [0, 1, 3], "segment-id-out-of-range"),
        ([0, 1, 1], [0, 2, 1], "unsorted-segment-ids"),
    ],
)
def test_what_is_wrong_is_told_as_ever(ranks, ids, bags, code):
    assert ranks.run(2, wrong, ids, bags) == ["peer-refused", code]
