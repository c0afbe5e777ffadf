"""A sharded collection of 26 tables on two ranks, beside the plain collection on one core and TorchRec 1.8.0 on two.

Each rank has a core, a thread and a batch of its own; forward, backward and row-wise Adagrad. Answers are compared
first, then rounds take turns and the best of each counts. TorchRec has to be installed beside rowgrad, without what it
asks for, which is made for GPUs; where it is missing, it is left out:

    pip install --no-deps torchrec==1.8.0 fbgemm-gpu-cpu==1.8.0 iopath pyre-extensions tensordict torchmetrics==1.0.3
    pip install tqdm cloudpickle importlib_metadata orjson portalocker pyvers typing_inspect
    python benchmarks/scale_contest.py

`scale.py` writes what it measures into the guide.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

TABLES, ROWS, WIDTH = 26, 100_000, 64
LEARNING_RATE, EPSILON = 0.05, 1e-8
BATCHES = 4  # that rotate


class Shape(NamedTuple):
    """The batch of a rank: bags of each table, and ids of each bag."""

    bags: int
    ids: int

    @property
    def title(self) -> str:
        """For tables that people read."""
        return f"{self.bags} × {self.ids}"


SHAPES = (Shape(256, 10), Shape(2048, 1), Shape(2048, 10))
LEAST = Shape(1, 1)  # what a step takes however small it is


class Batch(NamedTuple):
    """Ids of all tables, one after another, where bags begin, and the gradient of the result."""

    values: Any
    offsets: Any
    grad: Any


def batches(shape: Shape, rank: int) -> list[Batch]:
    """The batches of a rank."""
    import numpy as np
    import torch

    found = []
    for number in range(BATCHES):
        rng = np.random.default_rng((rank, number))
        values = rng.integers(0, ROWS, TABLES * shape.bags * shape.ids)
        grad = rng.standard_normal((shape.bags, TABLES * WIDTH), np.float32)
        offsets = torch.arange(0, values.size + 1, shape.ids)
        found.append(Batch(torch.from_numpy(values), offsets, torch.from_numpy(grad)))
    return found


def table(number: int) -> Any:
    """The first values of a table."""
    import torch

    return torch.empty(ROWS, WIDTH).uniform_(-1, 1, generator=torch.Generator().manual_seed(number))


class Ours:
    """The sharded collection; with one rank, the plain one."""

    def __init__(self, size: int, placement: str) -> None:
        from rowgrad import optim
        from rowgrad.torch import EmbeddingBagCollection, EmbeddingBagConfig
        from rowgrad.torch.distributed import ShardedEmbeddingBagCollection

        configs = [EmbeddingBagConfig(f"t{i}", ROWS, WIDTH, [f"f{i}"]) for i in range(TABLES)]
        optimizer = optim.RowWiseAdagrad(LEARNING_RATE, eps=EPSILON)
        self.layer: Any
        if not placement:
            self.layer = EmbeddingBagCollection(configs, fused_optimizer=optimizer)
            for i in range(TABLES):
                self.layer.embedding_bags[f"t{i}"].weight.data.copy_(table(i))
        else:
            self.layer = ShardedEmbeddingBagCollection(configs, placement=placement, fused_optimizer=optimizer)
            for i in range(TABLES):
                self.layer.load_tables({f"t{i}": table(i)})

    def given(self, batch: Batch) -> Any:
        """A batch in the form that is liked best."""
        return batch

    def answer(self, batch: Batch) -> Any:
        """The pooled rows, table after table."""
        return self.pool(batch)

    def pool(self, batch: Batch) -> Any:
        """The pooled rows of a batch."""
        return self.layer.pool(batch.values, batch.offsets)

    def step(self, batch: Batch) -> None:
        """Forward, backward, and a step of the optimizer."""
        self.pool(batch).backward(batch.grad)


class TorchRec:
    """TorchRec's collection, sharded, with FBGEMM's fused optimizer."""

    def __init__(self, size: int, placement: str) -> None:
        import torch
        import torch.distributed as dist
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
        from torchrec.distributed.model_parallel import DistributedModelParallel
        from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise, table_wise
        from torchrec.distributed.types import ShardingEnv, ShardingPlan
        from torchrec.modules.embedding_configs import EmbeddingBagConfig
        from torchrec.modules.embedding_modules import EmbeddingBagCollection

        # Its result has the tables of one rank after those of another.
        self.order = sorted(range(TABLES), key=lambda i: i % size) if placement == "table" else list(range(TABLES))
        configs = [
            EmbeddingBagConfig(name=f"t{i}", num_embeddings=ROWS, embedding_dim=WIDTH, feature_names=[f"f{i}"])
            for i in range(TABLES)
        ]
        model = torch.nn.Sequential(EmbeddingBagCollection(tables=configs, device=torch.device("meta")))
        ways = {
            f"t{i}": table_wise(i % size, compute_kernel="fused")
            if placement == "table"
            else row_wise(compute_kernel="fused")
            for i in range(TABLES)
        }
        sharder = EmbeddingBagCollectionSharder(
            fused_params={"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "learning_rate": LEARNING_RATE,
                          "eps": EPSILON}
        )  # fmt: skip
        plan = construct_module_sharding_plan(
            model[0], ways, sharder=sharder, local_size=size, world_size=size, device_type="cpu"
        )
        self.layer = DistributedModelParallel(
            model, env=ShardingEnv.from_process_group(dist.group.WORLD), device=torch.device("cpu"),
            plan=ShardingPlan({"0": plan}), sharders=[sharder], init_data_parallel=False,
        )  # fmt: skip
        with torch.no_grad():
            for name, weight in self.layer.state_dict().items():
                whole = table(int(name.split(".")[-2][1:]))
                for shard in weight.local_shards():
                    first = shard.metadata.shard_offsets[0]
                    shard.tensor.copy_(whole[first : first + shard.tensor.shape[0]])

    def given(self, batch: Batch) -> Any:
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

        lengths, grad = batch.offsets.diff().int(), batch.grad.view(-1, TABLES, WIDTH)[:, self.order].flatten(1)
        return KeyedJaggedTensor([f"f{i}" for i in range(TABLES)], batch.values, lengths=lengths), grad

    def answer(self, batch: Any) -> Any:
        """The pooled rows, table after table."""
        import torch

        found = self.layer(batch[0])
        assert found.keys() == [f"f{i}" for i in self.order]
        return torch.cat([found[f"f{i}"] for i in range(TABLES)], 1)

    def step(self, batch: Any) -> None:
        """Forward, backward, and a step of the optimizer."""
        self.layer(batch[0]).values().backward(batch[1])


class Contestant(NamedTuple):
    """Who takes part, on how many ranks; and whether these share memory, or exchange everything by Gloo."""

    make: Callable[[int, str], Any]
    ranks: int
    placement: str
    shared: bool = True


CONTESTANTS = {
    "plain": Contestant(Ours, 1, ""),
    "auto": Contestant(Ours, 2, "auto"),
    "table": Contestant(Ours, 2, "table"),
    "row": Contestant(Ours, 2, "row"),
    "torchrec-table": Contestant(TorchRec, 2, "table"),
    "torchrec-row": Contestant(TorchRec, 2, "row"),
}


def serve(who: Contestant, rank: int, path: str, core: int, pipe: Connection) -> None:
    """A rank: pinned to a core, it does what it is told."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    os.environ["ROWGRAD_SHARED_MEMORY"] = str(int(who.shared))
    import torch
    import torch.distributed as dist

    import rowgrad

    torch.set_num_threads(1)
    rowgrad.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=who.ranks)
    layer = who.make(who.ranks, who.placement)
    given: dict[Shape, list[Any]] = {
        shape: [layer.given(batch) for batch in batches(shape, rank)] for shape in (LEAST, *SHAPES)
    }
    while True:
        try:
            command, shape, count = pipe.recv()
        except EOFError:
            return
        if command == "answer":
            layer.step(given[shape][0])
            with torch.no_grad():
                pipe.send(layer.answer(given[shape][0]).numpy())
            continue
        if command == "sent":  # bytes that a step gives to other ranks
            layer.layer.traffic.reset()
            layer.step(given[shape][0])
            pipe.send(layer.layer.traffic.total)
            continue
        if who.ranks > 1:
            dist.barrier()
        begin = time.perf_counter()
        for number in range(count):
            layer.step(given[shape][number % BATCHES])
        pipe.send(time.perf_counter() - begin)


class Ranks:
    """The processes of a contestant."""

    def __init__(self, who: Contestant, cores: list[int]) -> None:
        context = multiprocessing.get_context("spawn")
        path = Path(tempfile.mkdtemp()) / "meeting"
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(who.ranks):
            here, there = context.Pipe()
            arguments = who, rank, str(path), cores[rank % len(cores)], there
            process = context.Process(target=serve, args=arguments, daemon=True)
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def ask(self, *what: Any) -> list[Any]:
        """What all ranks answer to a command."""
        for pipe in self.pipes:
            pipe.send(what)
        return [pipe.recv() for pipe in self.pipes]

    def end(self) -> None:
        """Stop the processes."""
        for process in self.processes:
            process.kill()
            process.join()


def compare(groups: dict[str, Ranks], shape: Shape) -> float:
    """The largest difference between what two ranks of any contestant give after a step."""
    import numpy as np

    answers = {name: group.ask("answer", shape, 1) for name, group in groups.items() if name != "plain"}
    first = next(iter(answers.values()))
    worst = 0.0
    for name, answer in answers.items():
        for mine, theirs in zip(answer, first, strict=True):
            worst = max(worst, float(np.abs(mine - theirs).max()))
        if worst > 1e-3:
            sys.exit(f"{name} has other results than the first contestant for {shape.title}: {worst:.2g}")
    return worst


def measure(groups: dict[str, Ranks], shape: Shape, seconds: float, rounds: int) -> dict[str, float]:
    """Seconds for a step: the best round of each contestant, one after another in each round."""
    names = list(groups)
    once = {name: max(group.ask("step", shape, 3)) / 3 for name, group in groups.items()}
    steps = {name: max(2, round(seconds / rounds / once[name])) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for place in range(len(names)):
            name = names[(place + turn) % len(names)]
            times[name].append(max(groups[name].ask("step", shape, steps[name])) / steps[name])
    return {name: min(found) for name, found in times.items()}


def run(only: list[str] | None, seconds: float, rounds: int) -> dict[str, dict[str, float]]:
    """All shapes, for all who can take part."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    names = [name for name in CONTESTANTS if not name.startswith("torchrec") or find_spec("torchrec")]
    groups = {name: Ranks(CONTESTANTS[name], cores) for name in names if only is None or name in only}
    for shape in SHAPES:
        print(f"{shape.title}: results differ by at most {compare(groups, shape):.1g}", flush=True)
    found = {shape.title: measure(groups, shape, seconds, rounds) for shape in SHAPES}
    for group in groups.values():
        group.end()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3, help="for each contestant and shape")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", nargs="*", choices=list(CONTESTANTS))
    asked = parser.parse_args()
    for title, times in run(asked.only, asked.seconds, asked.rounds).items():
        print(title, json.dumps({name: round(1000 * each, 2) for name, each in times.items()}))


if __name__ == "__main__":
    main()
