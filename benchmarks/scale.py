"""A sharded collection of 26 tables on 1, 2, 3 and 4 ranks of this machine: seconds and bytes, beside the cost model.

Each rank has a thread, a core (the third and the fourth share them) and a batch of its own; forward, backward, row-wise
Adagrad. `--write` puts the figures into `benchmarks/scale.json`, `docs/images/scale.png` and, between markers,
`docs/scale.md`; `--part` measures some of it, and keeps the rest of `scale.json`.

    python benchmarks/scale.py --write
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import scale_contest as contest
import scale_packing
import scale_report

ROOT = Path(__file__).parents[1]
RANKS = (2, 3, 4)
SMALL, SIZES = 8, (1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)  # bytes of the messages that two processes exchange
PARTS = ("constants", "packing", "table", "row", "contest")
CROWD = 2  # times as many ranks as cores, for the exchange of ranks that share cores


def constants(cores: list[int]) -> dict[str, Any]:
    """What two processes, each on a core, need for messages."""
    context = multiprocessing.get_context("spawn")
    path, answers = Path(tempfile.mkdtemp()) / "meeting", context.SimpleQueue()
    processes = [context.Process(target=_two, args=(rank, str(path), cores[rank], answers)) for rank in range(2)]
    for process in processes:
        process.start()
    found: dict[str, Any] = answers.get()
    for process in processes:
        process.join()
    path = Path(tempfile.mkdtemp()) / "meeting"
    crowd = [context.Process(target=_many, args=(rank, str(path), cores, answers)) for rank in range(CROWD * 2)]
    for process in crowd:
        process.start()
    found["near_crowded"] = answers.get()
    for process in crowd:
        process.join()
    return found


def _many(rank: int, path: str, cores: list[int], answers: Any) -> None:
    """An exchange of headers between ranks that share cores."""
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    import torch.distributed as dist

    from rowgrad.torch.distributed._exchange import Exchange

    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=CROWD * len(cores))
    exchange = Exchange()
    exchange.share_memory(0)
    found = _headers(exchange)
    dist.barrier()
    if rank == 0:
        answers.put(found)


def _headers(exchange: Any) -> float:
    """Seconds for an exchange of headers through shared memory."""
    from rowgrad.torch.distributed._exchange import Place

    times = []
    for number in range(2000):
        begin = time.perf_counter()
        exchange.headers(Place.SUMS, number)
        exchange.done()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def _two(rank: int, path: str, core: int, answers: Any) -> None:
    os.sched_setaffinity(0, {core})
    import torch
    import torch.distributed as dist

    from rowgrad.torch.distributed._exchange import Exchange

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)

    def there_and_back(size: int, count: int) -> float:
        """Seconds that a message takes one way: half of the median of round trips."""
        data, times = torch.zeros(size, dtype=torch.uint8), []
        for _ in range(count):
            begin = time.perf_counter()
            for turn in (0, 1):
                (dist.send if turn == rank else dist.recv)(data, 1 - rank)
            times.append(time.perf_counter() - begin)
        return statistics.median(times) / 2

    there_and_back(SMALL, 50)
    latency = there_and_back(SMALL, 500)
    by_size = {str(size): there_and_back(size, 30) for size in SIZES}
    big, small = SIZES[-1], SIZES[2]
    exchange = Exchange()
    sizes, numbers, count = [SMALL, SMALL], torch.zeros(2 * SMALL, dtype=torch.uint8), 500
    both_ways = {}
    for size in (small, big):
        data, times = torch.zeros(size, dtype=torch.uint8), []
        for _ in range(30):
            begin = time.perf_counter()
            exchange.finish(exchange.start(data, [size * (r != rank) for r in (0, 1)],
                                           [size * (r != rank) for r in (0, 1)], "rows"))  # fmt: skip
            times.append(time.perf_counter() - begin)
        both_ways[size] = statistics.median(times)
    used = _processor_time()
    for _ in range(count):
        exchange.finish(exchange.start(numbers, sizes, sizes, "counts"))
    message = (_processor_time() - used) / count
    exchange.share_memory(0)
    near = _headers(exchange)
    dist.barrier()
    if rank == 0:
        answers.put({"latency": latency, "message": message, "by_size": by_size, "near": near,
                     "bandwidth": (big - small) / (both_ways[big] - both_ways[small])})  # fmt: skip


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def runs(kind: str, cores: list[int], seconds: float, rounds: int) -> dict[str, Any]:
    """A step on each number of ranks, by shared memory and by Gloo, and what the plain collection needs on one core."""
    wanted = {"plain": contest.Contestant(contest.Ours, 1, ""), "1": contest.Contestant(contest.Ours, 1, kind)}
    for ranks in RANKS:
        wanted[str(ranks)] = contest.Contestant(contest.Ours, ranks, kind)
        wanted[f"{ranks} gloo"] = contest.Contestant(contest.Ours, ranks, kind, shared=False)
    groups = {name: contest.Ranks(who, cores) for name, who in wanted.items()}
    found: dict[str, Any] = {}
    for shape in (contest.LEAST, contest.SHAPES[0], contest.SHAPES[2]):
        times = contest.measure(groups, shape, seconds, rounds)
        sent = {name: statistics.mean(groups[name].ask("sent", shape, 1)) for name in groups if name != "plain"}
        found[shape.title] = {"seconds": times, "sent": sent}
        print(kind, shape.title, {name: round(1000 * each, 2) for name, each in times.items()}, flush=True)
    for group in groups.values():
        group.end()
    return found


def measured(part: str, asked: argparse.Namespace) -> Any:
    """One part of the record."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        sys.exit("this needs two cores")
    if part == "constants":
        return {"cores": 2, "processor": processor(), "python": platform.python_version(), **constants(cores)}
    if part == "packing":
        os.sched_setaffinity(0, {cores[0]})
        try:
            return scale_packing.all_of()
        finally:
            os.sched_setaffinity(0, set(cores))
    if part == "contest":
        return contest.run(None, asked.seconds, asked.rounds)
    return runs(part, cores, asked.seconds, asked.rounds)


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
    parser.add_argument("--seconds", type=float, default=2, help="for each number of ranks and shape")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", nargs="*", choices=PARTS, default=PARTS, help="what to measure; nothing: only write")
    parser.add_argument("--write", action="store_true", help="write scale.json, the picture and the guide's tables")
    asked = parser.parse_args()
    record = ROOT / "benchmarks" / "scale.json"
    results = json.loads(record.read_text(encoding="utf-8")) if record.exists() and len(asked.part) < len(PARTS) else {}
    for part in asked.part:
        results[part] = measured(part, asked)
        if asked.write:
            record.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if all(part in results for part in PARTS):
        print(*(make(results) for make in scale_report.PARTS.values()), sep="\n\n")
        if asked.write:
            guide = ROOT / "docs" / "scale.md"
            guide.write_text(scale_report.filled(guide.read_text(encoding="utf-8"), results), encoding="utf-8")
            scale_report.draw(results, ROOT / "docs" / "images" / "scale.png")


if __name__ == "__main__":
    main()
