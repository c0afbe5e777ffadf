"""A rank that trains a sharded table for some steps and writes what came of it; see `test_namespaces.py`."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import rowgrad
from rowgrad import optim
from rowgrad.torch.distributed import ShardedEmbeddingBag

ROWS, WIDTH, BAGS, IDS = 30_000, 32, 4000, 10
WARM, STEPS = 2, 8


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The ids of the whole batch, a bag a row, and the gradient of the pooled rows."""
    random = np.random.default_rng([11, step])
    ids = random.integers(0, ROWS, (BAGS, IDS))
    return torch.from_numpy(ids), torch.from_numpy(random.normal(size=(BAGS, WIDTH)).astype(np.float32))


def train(layer: torch.nn.Module, rank: int, ranks: int, steps: range) -> float:
    """Steps with this rank's part of each batch; gives how many different ids it had on average."""
    mine = slice(BAGS * rank // ranks, BAGS * (rank + 1) // ranks)
    unique = []
    for step in steps:
        ids, grad = batch(step)
        layer(ids[mine]).backward(grad[mine])
        unique.append(len(torch.unique(ids[mine])))
    return float(np.mean(unique))


def main(path: str, interface: str, exact: str) -> None:
    """Train, and count what leaves the interface while steps are made."""
    torch.set_num_threads(1)
    rowgrad.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    layer = ShardedEmbeddingBag(
        ROWS, WIDTH, combiner="mean", sharding="hash", exact=exact == "exact", seed=3, timeout=300,
        fused_optimizer=optim.RowWiseAdagrad(0.1),
    )  # fmt: skip
    counter = Path("/sys/class/net", interface, "statistics", "tx_bytes")
    train(layer, rank, ranks, range(WARM))

    def settled() -> int:
        dist.barrier()
        time.sleep(0.5)  # for the last acknowledgements
        return int(counter.read_text(encoding="utf-8"))

    layer.traffic.reset()
    before = settled()
    unique = train(layer, rank, ranks, range(WARM, WARM + STEPS))
    found = {"interface": settled() - before, "traffic": layer.traffic.total, "unique": unique}
    table, state = layer.full_table(), layer.full_state()
    np.savez(path, table=table.numpy(), sum=state["sum"].numpy())
    Path(path).with_suffix(".json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
