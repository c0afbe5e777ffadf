"""The cost model tells the bytes that a sharded collection sends, however its table is placed."""

import numpy as np
import pytest

from optional import framework

torch = framework("torch")
import torch.distributed as dist  # noqa: E402

from rowgrad import optim  # noqa: E402
from rowgrad.torch import EmbeddingBagConfig  # noqa: E402
from rowgrad.torch.distributed import ShardedEmbeddingBagCollection, cost  # noqa: E402


def measured(group, kind):
    """What a step of a collection sends on this rank, and what the cost model says of it."""
    rank, bags, ids, rows, width = dist.get_rank(group), 64, 3, 40, 16
    table = EmbeddingBagConfig("t", rows, width)
    place = ("table", 0) if kind == "table" else kind
    collection = ShardedEmbeddingBagCollection(
        [table], group=group, placement={"t": place}, fused_optimizer=optim.SGD(0.1)
    )
    given = torch.from_numpy(np.random.default_rng(rank).integers(0, rows, (bags, ids)))
    collection.traffic.reset()
    collection({"t": given}).values().sum().backward()
    sent = collection.traffic.sent
    return {name: sent[name] for name in ("ids", "rows", "gradients")}, len(given.unique())


@pytest.mark.parametrize("kind", ["row", "table", "column", "replicated"])
def test_placed_bytes_are_what_a_collection_sends(ranks, kind):
    """To a few percent: numbers of owners are expected values, and messages are filled up to 64 bytes."""
    found = ranks.run(3, measured, kind)
    unique = sum(each for _, each in found) / 3
    batch = cost.Batch(bags=64, ids_per_bag=3, width=16, rows=unique if kind == "replicated" else 40)
    told = cost.placed_bytes(3, batch, kind)
    for name in ("ids", "rows", "gradients"):
        assert sum(sent[name] for sent, _ in found) / 3 == pytest.approx(told[name], rel=0.06, abs=128), name
