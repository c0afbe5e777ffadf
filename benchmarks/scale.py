"""Sharded tables on 1, 2, 3 and 4 ranks of this machine: steps, bytes and seconds, beside the cost model.

Each rank has one thread and one core (the third and the fourth share them). The same batch is spread over more and more
ranks: forward, backward, fused row-wise Adagrad on the owner. `--write` puts the figures into `benchmarks/scale.json`,
`docs/images/scale.png` and, between markers, `docs/scale.md`.

    python benchmarks/scale.py --write
"""

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import scale_report
from bench.groups.operators import LARGE, Shape

ROOT = Path(__file__).parents[1]
RANKS = (1, 2, 3, 4)
LEARNING_RATE = 0.05
SMALL, BIG = 8, 4 << 20  # bytes of the messages that latency and bandwidth are measured with
ALL_TO_ALLS = 200


class Ranks:
    """Processes that each hold a part of a table, and make steps when told."""

    def __init__(self, size: int, cores: list[int]) -> None:
        context = multiprocessing.get_context("spawn")
        path = Path(tempfile.mkdtemp()) / "meeting"
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(size):
            here, there = context.Pipe()
            arguments = (rank, size, str(path), cores[rank % len(cores)], there)
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


def serve(rank: int, size: int, path: str, core: int, pipe: Connection) -> None:
    """A rank: pinned to a core, it does what it is told."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    import torch
    import torch.distributed as dist

    import rowgrad

    torch.set_num_threads(1)
    rowgrad.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    layer: Any = None
    while True:
        try:
            command, *arguments = pipe.recv()
        except EOFError:
            return
        if command == "make":
            layer = None  # its table goes before the next one comes
            layer = Steps(rank, size, *arguments)
            pipe.send(layer.facts())
        elif command == "step":
            pipe.send(layer.step(*arguments))
        elif command == "plain":
            pipe.send(layer.step(*arguments, layer.plain))
        else:
            pipe.send(all_to_all(*arguments))


class Steps:
    """A rank's part of a table and of a batch."""

    def __init__(self, rank: int, size: int, shape: Shape) -> None:
        import torch

        from bench.groups.operators import arguments
        from rowgrad import optim
        from rowgrad.torch import EmbeddingBag
        from rowgrad.torch.distributed import ShardedEmbeddingBag

        batch = arguments("SparseSegmentMeanGradV2", shape)
        first, last = shape.bags * rank // size, shape.bags * (rank + 1) // size
        self.ids = torch.tensor(batch["indices"][first * shape.ids : last * shape.ids])
        self.offsets = torch.arange(0, len(self.ids), shape.ids)
        self.grad = torch.tensor(batch["grad"][first:last])
        # Frequent ids are neighbours: spread, each rank has as much to do.
        self.layer = ShardedEmbeddingBag(
            shape.rows, shape.width, combiner="mean", sharding="hash",
            fused_optimizer=optim.RowWiseAdagrad(LEARNING_RATE),
        )  # fmt: skip
        # The layer for one process, on the same rows.
        self.plain = None
        if size == 1:
            self.plain = EmbeddingBag(shape.rows, shape.width, combiner="mean", _weight=self.layer.weight.detach(),
                                      fused_optimizer=optim.RowWiseAdagrad(LEARNING_RATE))  # fmt: skip

    def facts(self) -> dict[str, Any]:
        """What a step sends, and on how many ranks the ids of a bag live."""
        self.step(1)
        self.layer.traffic.reset()
        self.step(1)
        sent = dict(self.layer.traffic.sent)
        request = self.layer.start(self.ids, self.offsets)
        request.asked()
        # Where rows are pooled here, each is a run; the model knows that, and wants the owners of bags.
        owners = None if request.runs is not None else sum(request.route.runs) / len(self.offsets)
        return {"sent": sent, "owners": owners, "unique": len(self.ids.unique())}

    def step(self, steps: int, layer: Any = None) -> float:
        """Seconds for so many steps."""
        layer = layer or self.layer
        begin = time.perf_counter()
        for _ in range(steps):
            layer(self.ids, self.offsets).backward(self.grad)
        return time.perf_counter() - begin


def all_to_all(size: int) -> float:
    """Seconds for an exchange of `size` bytes with each other rank, as the layer makes it."""
    import torch
    import torch.distributed as dist

    from rowgrad.torch.distributed._exchange import Exchange

    exchange = Exchange()
    sizes = [size] * dist.get_world_size()
    data = torch.zeros(sum(sizes), dtype=torch.uint8)
    repeat = ALL_TO_ALLS if size == SMALL else max(2, ALL_TO_ALLS // 20)
    begin = time.perf_counter()
    for _ in range(repeat):
        exchange.finish(exchange.start(data, sizes, sizes, "counts"))
    return (time.perf_counter() - begin) / repeat


def constants(cores: list[int], rounds: int) -> dict[str, float]:
    """Latency, time of a message and bandwidth, between processes of this machine."""
    found = {}
    for size in (2, len(cores) + 1):
        ranks = Ranks(size, cores)
        found[size] = min(max(ranks.ask("exchange", SMALL)) for _ in range(rounds))
        if size == 2:
            big = min(max(ranks.ask("exchange", BIG)) for _ in range(rounds))
        ranks.end()
    # What each rank more adds to an exchange is the message to it; where cores are shared, they all wait for it.
    more = max((found[len(cores) + 1] - found[2]) / (len(cores) - 1) * len(cores) / (len(cores) + 1), 1e-6)
    return {
        "latency": max(found[2] - more, 1e-6),
        "message": more,
        "bandwidth": BIG / (big - found[2]),
    }


def measure(groups: dict[int, Ranks], shape: Shape, seconds: float, rounds: int) -> dict[str, Any]:
    """The best round of each number of ranks, one after another in each round."""
    sizes = list(groups)
    facts = {size: group.ask("make", shape) for size, group in groups.items()}
    once = {size: max(group.ask("step", 2)) / 2 for size, group in groups.items()}
    steps = {size: max(1, round(seconds / rounds / once[size])) for size in sizes}
    times: dict[int, list[float]] = {size: [] for size in sizes}
    plain = []
    for turn in range(rounds):
        for place in range(len(sizes)):  # none is always the first
            size = sizes[(place + turn) % len(sizes)]
            times[size].append(max(groups[size].ask("step", steps[size])) / steps[size])
            if size == 1:
                plain.append(max(groups[size].ask("plain", steps[size])) / steps[size])
    return {
        str(size): {
            "seconds": min(times[size]),
            "median": statistics.median(times[size]),
            "sent": statistics.mean(sum(fact["sent"].values()) for fact in facts[size]),
            "owners": facts[size][0]["owners"],
            "unique": statistics.mean(fact["unique"] for fact in facts[size]),
            **({"plain": min(plain)} if size == 1 else {}),
        }
        for size in sizes
    }


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """All shapes, on pairs of numbers of ranks that fit into memory together."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    if len(cores) < 2:
        sys.exit("this needs two cores")
    cores = cores[:2]
    shapes: tuple[Shape, ...] = LARGE
    if asked.small:
        shapes = tuple(replace(shape, rows=shape.rows // 100, bags=shape.bags // 8) for shape in LARGE)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    found: list[dict[str, Any]] = [{"title": shape.title, **asdict(shape), "ranks": {}} for shape in shapes]
    for sizes, seconds, rounds in (((1, 2), asked.seconds, asked.rounds), ((3, 4), asked.seconds / 3, 3)):
        groups = {size: Ranks(size, cores) for size in sizes}
        for shape, one in zip(shapes, found, strict=True):
            one["ranks"] |= measure(groups, shape, seconds, rounds)
            times = (f"{size} ranks {1000 * one['ranks'][str(size)]['seconds']:.1f} ms" for size in sizes)
            print(f"{shape.title}: {', '.join(times)}", flush=True)
        for group in groups.values():
            group.end()
    return {
        "machine": {"cores": len(cores), "processor": processor(), "python": platform.python_version(), "load": load},
        "constants": constants(cores, asked.rounds),
        "shapes": found,
    }


def processor() -> str:
    """The name of the processor, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=9, help="for each number of ranks and shape")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--small", action="store_true", help="small tables and batches, to see that it works")
    parser.add_argument("--write", action="store_true", help="write scale.json, the picture and the guide's tables")
    parser.add_argument("--again", action="store_true", help="do not measure: write from scale.json")
    asked = parser.parse_args()
    record = ROOT / "benchmarks" / "scale.json"
    results = json.loads(record.read_text(encoding="utf-8")) if asked.again else run(asked)
    print(scale_report.speed(results), scale_report.model(results), sep="\n\n")
    if asked.write or asked.again:
        record.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        guide = ROOT / "docs" / "scale.md"
        guide.write_text(scale_report.filled(guide.read_text(encoding="utf-8"), results), encoding="utf-8")
        scale_report.draw(results, ROOT / "docs" / "images" / "scale.png")


if __name__ == "__main__":
    main()
