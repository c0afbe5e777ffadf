"""Ranks that read each other's tables give what the process group carries: the same bits where that is promised.

By default, sums of spread rows are made in another order than through the process group, which adds those of ranks.
"""

import os

import numpy as np
import pytest

from optional import framework

torch = framework("torch")
import torch.distributed as dist  # noqa: E402
from collection_training import tables, train  # noqa: E402

from rowgrad.torch.distributed import ShardedEmbeddingBagCollection  # noqa: E402
from rowgrad.torch.distributed._shared_memory import SWITCH  # noqa: E402

CASES = [
    {"placement": "mixed", "exact": True, "optimizer": "Adam", "prefetch": True},
    {"placement": "mixed", "optimizer": "Adagrad", "ids": "int32"},
    {"placement": "mixed", "weighted": "learn", "optimizer": "SGD"},
    {"placement": "mixed", "dtype": "bfloat16", "pooling": "sum", "optimizer": "SGD", "exact": True},
]


def through(everyone, switches):
    """Training on the first ranks, whose switches are given: what it gave, and the ranks whose memory was read.

    A group of its own for each run, because layers on a group have one memory. All ranks of the program make it:
    PyTorch names groups that only their members make by the number of groups a process is in, which differs here.
    """
    size, rank = len(switches), dist.get_rank(everyone)
    group = dist.new_group(list(range(size)))
    if rank >= size:
        return None
    os.environ[SWITCH] = switches[rank]
    try:
        probe = ShardedEmbeddingBagCollection(tables()[:2], group=group)
    finally:
        del os.environ[SWITCH]
    found = [train(group, case) for case in CASES]
    kept = [{key: each[key] for key in ("tables", "outputs", "gradients", "exchanges", "sent")} for each in found]
    return probe.exchange.memory.peers, kept


def close(a, b, **told):
    np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, **told)


@pytest.mark.parametrize(
    ("switches", "near"),
    [("00", [[], []]), ("10", [[], []]), ("000", [[], [], []]), ("110", [[1], [0], []])],
    ids=["gloo", "one of two", "gloo of three", "a far rank"],
)
def test_the_process_group_carries_what_shared_memory_would(ranks, switches, near):
    size = len(switches)
    shared, other = ranks.run(4, through, "1" * size)[:size], ranks.run(4, through, switches)[:size]
    assert [peers for peers, _ in shared] == [[r for r in range(size) if r != rank] for rank in range(size)]
    assert [peers for peers, _ in other] == near
    for number in range(len(CASES)):
        assert sum(kept[number]["sent"]["rows"] for _, kept in other) > 0
    for (_, expected), (_, found) in zip(shared, other, strict=True):
        for case, one, two in zip(CASES, expected, found, strict=True):
            assert one["exchanges"] <= two["exchanges"] - (0 if case.get("prefetch") else 1)
            assert one["sent"]["rows"] == 0  # they are read where they are
            same = np.testing.assert_array_equal if case.get("exact") else close
            for step, (a, b) in enumerate(zip(one["outputs"], two["outputs"], strict=True)):
                same(a, b, err_msg=f"step {step} of {case}")
            for a, b in zip(one["gradients"], two["gradients"], strict=True):
                same(a, b)
            for name, table in one["tables"].items():
                same(table, two["tables"][name], err_msg=f"{name} of {case}")
