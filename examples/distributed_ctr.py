"""The click model on several processes or machines: tables spread over the ranks, the dense part by PyTorch's DDP.

Batch k depends on the seed and k alone, so a job that ends goes on from its last whole checkpoint as if nothing had
happened, bit for bit. It also runs as one process; `docs/scale.md` tells about Slurm, Kubernetes and Ray.

    torchrun --nproc-per-node 2 --max-restarts 1 examples/distributed_ctr.py --checkpoint checkpoints
"""

import argparse
import hashlib
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ctr_model import WIDTH, Batch, ClickModel, Clicks, first_table
from rich.console import Console
from rich.progress import track
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import rowgrad
from rowgrad import optim
from rowgrad.torch.distributed import CommunicationError, ShardedEmbeddingBag

LEARNING_RATE, FIRST_SUM = 0.05, 1e-6  # of Adagrad, as in torch_ctr.py
HELD_OUT = 20_000
KEPT = 2  # checkpoints


class Given(nn.Module):
    """Stands for a table in the dense part: what it is called with is already pooled."""

    def forward(self, pooled: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """The rows themselves."""
        return pooled


class Trainer:
    """The tables, the dense part and its optimizer: all that a checkpoint holds."""

    def __init__(self, clicks: Clicks, exact: bool, timeout: float) -> None:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.batch = clicks.batch
        self.tables = nn.ModuleDict({
            feature.name: ShardedEmbeddingBag(
                feature.rows, WIDTH, combiner=feature.combiner, exact=exact, timeout=timeout, gradient_average=True,
                fused_optimizer=optim.Adagrad(lr=LEARNING_RATE, initial_accumulator=FIRST_SUM),
                _weight=first_table(clicks.seed, feature),
            )
            for feature in clicks.features
        })  # fmt: skip
        self.dense = DistributedDataParallel(ClickModel(clicks.features, lambda feature: Given(), clicks.seed))
        self.optimizer = torch.optim.Adagrad(
            self.dense.parameters(), lr=LEARNING_RATE, initial_accumulator_value=FIRST_SUM
        )

    def loss(self, batch: Batch, examples: int) -> torch.Tensor:
        """This rank's part of the mean over all `examples`, times the ranks: gradients are averaged over them."""
        requests = {name: bag.start(batch.ids[name], batch.offsets[name]) for name, bag in self.tables.items()}
        pooled = {name: bag(requests[name]) for name, bag in self.tables.items()}
        logits = self.dense(Batch(pooled, batch.offsets, batch.numbers, batch.clicked, batch.chance))
        total = functional.binary_cross_entropy_with_logits(logits, batch.clicked, reduction="sum")
        return total * (self.ranks / examples)

    def step(self, batch: Batch, die: bool) -> float:
        """Forward, backward (which changes the tables), optimizer of the dense part; the loss over all ranks."""
        self.optimizer.zero_grad()
        loss = self.loss(part(batch, self.rank, self.ranks), self.batch)
        if die:  # while the others wait for this rank's gradients
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        self.optimizer.step()
        return mean(loss)

    def state(self, step: int) -> dict[str, Any]:
        """What is saved: tensors that stand for all ranks' rows, the dense part, the number of steps."""
        return {
            "tables": self.tables.state_dict(),
            "dense": self.dense.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": step,
        }

    def load(self, folder: Path) -> int:
        """Take over a checkpoint, of any number of ranks; gives its step."""
        state = self.state(0)
        dcp.load(state, checkpoint_id=folder)
        self.tables.load_state_dict(state["tables"])
        self.dense.module.load_state_dict(state["dense"])
        self.optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])

    def digest(self) -> str:
        """A number for all bits of tables, states and dense part; equal only if all are (for as many ranks)."""
        mine = hashlib.sha256()
        state = self.state(0)
        for tensor in tensors([state["tables"], state["dense"], state["optimizer"]["state"]]):
            local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            mine.update(local.detach().contiguous().view(-1).view(torch.uint8).numpy())
        found: list[Any] = [None] * self.ranks
        dist.all_gather_object(found, mine.hexdigest())
        return hashlib.sha256("".join(found).encode()).hexdigest()[:16]


class Checkpoints:
    """A folder that all ranks see, with the last few steps in it.

    A step is written under another name and renamed when all ranks are done, so what has its name is whole.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def whole(self) -> list[Path]:
        """Those that can be loaded, the newest last."""
        return sorted(self.folder.glob("step-????????"))

    def newest(self) -> Path | None:
        """As rank 0 sees it, for all ranks must load the same."""
        found: list[Any] = [(self.whole() or [None])[-1] if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(found)
        return found[0]

    def save(self, trainer: Trainer, step: int) -> None:
        """Write a step and forget the oldest; all ranks call this."""
        writing = self.folder / "writing"
        if trainer.rank == 0:
            shutil.rmtree(writing, ignore_errors=True)  # of a job that ended in the middle
            writing.mkdir(parents=True)
        dist.barrier()
        dcp.save(trainer.state(step), checkpoint_id=writing)  # returns on rank 0 when all ranks have written
        if trainer.rank == 0:
            name = self.folder / f"step-{step:08}"
            shutil.rmtree(name, ignore_errors=True)
            writing.rename(name)
            for old in self.whole()[:-KEPT]:
                shutil.rmtree(old)
        dist.barrier()


def part(batch: Batch, rank: int, ranks: int) -> Batch:
    """The examples of one rank: those of all ranks together are the batch, in its order."""
    examples = len(batch.clicked)
    first, last = examples * rank // ranks, examples * (rank + 1) // ranks
    ids, offsets = {}, {}
    for name, begins in batch.offsets.items():
        ends = [*begins.tolist(), len(batch.ids[name])]
        ids[name] = batch.ids[name][ends[first] : ends[last]]
        offsets[name] = begins[first:last] - ends[first]
    here = slice(first, last)
    return Batch(ids, offsets, batch.numbers[here], batch.clicked[here], batch.chance[here])


def mean(loss: torch.Tensor) -> float:
    """The mean over ranks."""
    total = loss.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def tensors(tree: Any) -> Iterator[torch.Tensor]:
    """All tensors of nested dicts and lists, in their order."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict | list):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from tensors(value)


@contextmanager
def group(timeout: float) -> Iterator[None]:
    """All ranks that torchrun (or Slurm, by the same variables) started; without them, this process alone."""
    limit = timedelta(seconds=timeout)
    if "RANK" not in os.environ:
        store, rank, ranks = dist.HashStore(), 0, 1
    else:
        store, rank, ranks = next(dist.rendezvous("env://", timeout=limit))
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            # torchrun keeps this store when it restarts: the addresses of the ranks that ended must not be found in it.
            store = dist.PrefixStore(f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=limit)
    # The ranks of a machine share its cores.
    threads = max(1, len(os.sched_getaffinity(0)) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    torch.set_num_threads(threads)
    rowgrad.set_num_threads(threads)
    try:
        yield
    finally:
        dist.destroy_process_group()


def train(asked: argparse.Namespace) -> None:
    """From the last checkpoint to the last step."""
    clicks = Clicks(asked.seed, asked.rows, asked.batch)
    trainer = Trainer(clicks, asked.exact, asked.timeout)
    checkpoints = Checkpoints(asked.checkpoint) if asked.checkpoint else None
    newest = checkpoints.newest() if checkpoints else None
    begin = trainer.load(newest) if newest else 0
    first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    steps: Iterable[int] = range(begin, asked.steps)
    if trainer.rank == 0:
        print(f"{trainer.ranks} ranks, steps {begin} to {asked.steps} of {asked.batch} examples", flush=True)
        steps = track(steps, "training", console=Console(stderr=True))
    for k in steps:
        die = first_attempt and (k, trainer.rank) == (asked.die_at_step, asked.die_rank)
        loss = trainer.step(clicks.training(k), die)
        at_mark = (k + 1) % asked.every == 0 or k + 1 == asked.steps
        if at_mark and trainer.rank == 0:
            print(f"step {k + 1}: loss {loss:.6f}", flush=True)
        if at_mark and checkpoints:
            checkpoints.save(trainer, k + 1)
    with torch.no_grad():
        held_out = mean(trainer.loss(part(clicks.held_out(HELD_OUT), trainer.rank, trainer.ranks), HELD_OUT))
    digest = trainer.digest()
    if trainer.rank == 0:
        sent = sum(bag.traffic.total for bag in trainer.tables.values())
        print(f"held out: loss {held_out:.6f}; rank 0 sent {sent / 1e6:.1f} MB for the tables")
        print(f"digest {digest}", flush=True)


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=1024, help="examples a step, of all ranks together")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the largest table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--exact", action="store_true", help="pooled rows have the bits of one process")
    parser.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="save here, and go on from what is here")
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints and printed losses")
    parser.add_argument("--timeout", type=float, default=60, help="seconds after which a silent rank counts as lost")
    parser.add_argument("--die-at-step", type=int, help="for drills: a rank kills itself in the middle of this step, "
                        "unless torchrun has restarted it")  # fmt: skip
    parser.add_argument("--die-rank", type=int, default=1, help="which rank that is")
    asked = parser.parse_args()
    for name in ("steps", "batch", "rows", "every"):
        if getattr(asked, name) < 1:
            parser.error(f"--{name} must be 1 or more")
    if not asked.timeout > 0:
        parser.error("--timeout must be above 0")
    return asked


def main() -> int:
    """Train; 1 if another rank was lost."""
    asked = options()
    with group(asked.timeout):
        try:
            train(asked)
        except RuntimeError as error:
            # The layers say CommunicationError; PyTorch's own messages of Gloo name it.
            if not isinstance(error, CommunicationError) and "gloo" not in str(error).lower():
                raise
            print(f"rank {dist.get_rank()} stops: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
