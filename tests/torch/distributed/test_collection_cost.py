"""The cost model tells the bytes that a sharded collection sends, however its table is placed."""

import os

import numpy as np
import pytest

from optional import framework

torch = framework("torch")
import torch.distributed as dist  # noqa: E402

from rowgrad import optim  # noqa: E402
from rowgrad.torch import EmbeddingBagConfig  # noqa: E402
from rowgrad.torch.distributed import ShardedEmbeddingBagCollection, cost  # noqa: E402
from rowgrad.torch.distributed._shared_memory import SWITCH  # noqa: E402


def measured(everyone, kind, shared):
    """What a step of a collection sends on this rank, and how many different ids it has."""
    group = dist.new_group(list(range(dist.get_world_size(everyone))))  # whose layers share memory or do not
    os.environ[SWITCH] = str(int(shared))
    rank, bags, ids, rows, width = dist.get_rank(group), 64, 3, 40, 16
    table = EmbeddingBagConfig("t", rows, width)
    place = ("table", 0) if kind == "table" else kind
    try:
        collection = ShardedEmbeddingBagCollection(
            [table], group=group, placement={"t": place}, fused_optimizer=optim.SGD(0.1)
        )
    finally:
        del os.environ[SWITCH]
    given = torch.from_numpy(np.random.default_rng(rank).integers(0, rows, (bags, ids)))
    collection.traffic.reset()
    collection({"t": given}).values().sum().backward()
    sent = collection.traffic.sent
    return {name: sent[name] for name in ("ids", "rows", "gradients")}, len(given.unique())


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", ["row", "table", "column", "replicated"])
def test_placed_bytes_are_what_a_collection_sends(ranks, kind, shared):
    """To a few percent: numbers of owners are expected values, and messages are filled up to 64 bytes."""
    found = ranks.run(4, measured, kind, shared)
    unique = sum(each for _, each in found) / 4
    batch = cost.Batch(bags=64, ids_per_bag=3, width=16, rows=unique if kind == "replicated" else 40)
    told = cost.placed_bytes(4, batch, kind, shared=shared)
    for name in ("ids", "rows", "gradients"):
        assert sum(sent[name] for sent, _ in found) / 4 == pytest.approx(told[name], rel=0.06, abs=128), name
