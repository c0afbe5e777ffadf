"""The same training in one process and on several ranks: 50 steps of batches with all that is awkward."""

import numpy as np
import torch
import torch.distributed as dist

from rowgrad import optim
from rowgrad.torch._embedding_bag import EmbeddingBag
from rowgrad.torch.distributed import ShardedEmbeddingBag

ROWS, WIDTH, BAGS = 53, 7, 13
PADDING = 7
OPTIMIZERS = {
    "SGD": lambda: optim.SGD(0.05, momentum=0.5),
    "Adagrad": lambda: optim.Adagrad(0.05),
    "RowWiseAdagrad": lambda: optim.RowWiseAdagrad(0.05),
    "Adam": lambda: optim.Adam(0.01),
}


def table(dtype=torch.float32):
    return torch.from_numpy(np.random.default_rng(1).normal(size=(ROWS, WIDTH))).to(dtype)


def batch(step):
    """Ids, their bags, weights, and the numbers that the loss is made of, for the whole batch."""
    random = np.random.default_rng([2, step])
    sizes = random.integers(0, 6, BAGS)  # empty bags among them
    if step % 10 == 9:
        sizes[:] = 0
    bags = np.repeat(np.arange(BAGS), sizes)
    limit = 5 if step % 4 == 1 else ROWS  # at times all ids live on one rank
    ids = random.integers(0, limit, bags.size)
    weights = random.normal(size=bags.size)
    slopes, curves = random.normal(size=(2, BAGS, WIDTH))
    return [torch.from_numpy(x) for x in (ids, bags, weights, slopes, curves)]


def parts(step, ranks):
    """Which bags each rank has, from one to before the other; at times a rank has none."""
    random = np.random.default_rng([3, step])
    cuts = np.sort(random.integers(0, BAGS + 1, ranks - 1))
    if step % 3 == 0:
        cuts[:1] = 0
    return list(zip([0, *cuts], [*cuts, BAGS], strict=True))


def train(group, case, steps=50, begin=0, bag=None):
    """Train on a group, or, for None, in one process: the table, the state, and what each step gave this rank."""
    dtype = getattr(torch, case.get("dtype", "float32"))
    fused = OPTIMIZERS[case["optimizer"]]() if case["optimizer"] else None
    settings = {"combiner": case["combiner"], "fused_optimizer": fused, "padding_idx": case.get("padding"),
                "sparse": case.get("sparse", True)}  # fmt: skip
    if bag is None:
        if group is None:
            bag = EmbeddingBag(ROWS, WIDTH, _weight=table(dtype), **settings)
        else:
            bag = ShardedEmbeddingBag(ROWS, WIDTH, _weight=table(dtype), group=group, exact=case["exact"],
                                      sharding=case["sharding"], **settings)  # fmt: skip
    plain = None if fused else torch.optim.SGD(bag.parameters(), lr=0.05)
    rank, ranks = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    outputs, gradients = [], []
    request = following = None
    for step in range(begin, begin + steps):
        first, last = (0, BAGS) if group is None else parts(step, ranks)[rank]
        given = following or _given(step, first, last, case, dtype)
        output = bag(*given[0], **given[1]) if request is None else bag(request)
        if group is not None and case.get("overlap") and step + 1 < begin + steps:
            # The ids of a step travel while the one before is computed.
            following = _given(step + 1, *parts(step + 1, ranks)[rank], case, dtype)
            request = bag.start(*following[0], **following[1])
        _, _, _, slopes, curves = batch(step)
        slopes, curves = slopes[first:last].to(dtype), curves[first:last].to(dtype)
        loss = (output * slopes + 0.5 * curves * output * output).sum()
        if plain:
            plain.zero_grad()
        loss.backward()
        if plain:
            plain.step()
        outputs.append(output.detach().double().numpy())
        weights = given[0][2]
        gradients.append(np.empty(0) if weights is None else weights.grad.double().numpy())
    if group is None:
        whole, state = bag.weight.detach(), bag.fused_state
    else:
        whole, state = bag.full_table(), bag.full_state()
    return {"table": whole.double().numpy(), "outputs": outputs, "gradients": gradients,
            "state": {name: array.double().numpy() for name, array in state.items()}}  # fmt: skip


def _given(step, first, last, case, dtype):
    ids, bags, weights, _, _ = batch(step)
    here = (bags >= first) & (bags < last)
    leaf = weights[here].to(dtype).requires_grad_() if case["weighted"] else None
    return (ids[here], None, leaf), {"segment_ids": bags[here] - first, "num_bags": int(last - first)}


def train_here(group, cases):
    """Several trainings, one after another."""
    return [train(group, case) for case in cases]
