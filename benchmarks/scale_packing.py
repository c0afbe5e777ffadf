"""What a rank of a sharded collection does beside the work of the plain one: packing, measured on one core, alone.

Messages are written and read as in a step of two ranks, but nothing travels: the second rank's are made here too.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

import scale_contest as contest
from rowgrad import _kernels as kernels
from rowgrad._runtime.memory import LINE
from rowgrad.torch import EmbeddingBag, EmbeddingBagConfig
from rowgrad.torch._tables import Batch
from rowgrad.torch.distributed import _message as message
from rowgrad.torch.distributed._answers import Answers, ServedTables, View
from rowgrad.torch.distributed._layout import Layout
from rowgrad.torch.distributed._near import runs_of
from rowgrad.torch.distributed._placement import ROW, Plan, placed
from rowgrad.torch.distributed._published import Board, Told
from rowgrad.torch.distributed._shared_memory import SharedMemory

RANKS, ROUNDS = 2, 7
IDS = np.dtype(np.int32)


class Kept(SharedMemory):
    """Memory whose pages are there already, as that which ranks share; `is_new` gives new pages, as Gloo's messages."""

    def __init__(self, is_new: bool) -> None:
        super().__init__(None, 0, 1)
        self._is_new, self._room = is_new, np.ones(1 << 27, np.uint8)

    def room(self, nbytes: int) -> Any:
        return super().room(nbytes) if self._is_new else self._room[:nbytes]


def seconds(call: Callable[[], Any]) -> float:
    """The median of some calls, after one that compiles."""
    call()
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measured(kind: str, shape: contest.Shape) -> dict[str, float]:
    """Seconds for an id that is routed, and bytes a second of rows and gradients that are packed and unpacked.

    `near_…` are those of ranks that share memory: these only write their gradients there.
    """
    configs = [EmbeddingBagConfig(f"t{i}", contest.ROWS, contest.WIDTH) for i in range(contest.TABLES)]
    plan = Plan(tuple(placed(config, kind, RANKS, i % RANKS, "") for i, config in enumerate(configs)), RANKS)
    layouts = [Layout(plan, rank) for rank in range(RANKS)]
    given = [contest.batches(shape, rank)[0] for rank in range(RANKS)]
    bags = [message.Bags(each.values.numpy(), each.offsets.numpy(), None, shape.bags) for each in given]
    layout, grad, count = layouts[0], given[0].grad, contest.TABLES * shape.bags * shape.ids
    found: dict[str, float] = {}
    space, other = Kept(is_new=True), Kept(is_new=True)
    theirs = message.write(layouts[1], bags[1], IDS, other).blocks[0].copy()

    def route() -> message.Received:
        own = message.write(layout, bags[0], IDS, space).blocks[0]
        return message.read(layout, [own, theirs], IDS, [None] * RANKS, [False] * RANKS)

    found["pack"] = seconds(route) / count
    boards = [Board(each, Kept(is_new=False), IDS, np.dtype(np.float32)) for each in layouts]
    others, _ = boards[1].publish(bags[1])
    boards[0].space.read = lambda rank, place, nbytes: others[:nbytes]  # type: ignore[method-assign]
    told = [Told(0, shape.bags, False)] * RANKS
    found["near_pack"] = seconds(lambda: boards[0].join(boards[0].publish(bags[0])[0], told)) / count
    _, foreign = boards[0].publish(bags[0])
    room = np.ones(grad.nbytes + LINE, np.uint8)
    target, runs = room.ctypes.data + -room.ctypes.data % LINE, runs_of(layout, torch.float32)
    give = partial(kernels.exchanging.give, grad.data_ptr(), target, grad.shape[1] * 4, shape.bags, runs, foreign, True)
    found["near_copy"] = grad.nbytes / seconds(give)
    found["copy"] = _packed(layout, route(), bags[0], grad)
    return found


def _packed(layout: Layout, asked: message.Received, bags: message.Bags, grad: torch.Tensor) -> float:
    """Bytes a second of rows and gradients, with those that stay: pooled, collected, packed and joined."""
    space = Kept(is_new=True)
    answers = Answers(layout, torch.float32, space)
    held = [layout.plan.tables[i].on(layout.rank) for i in layout.tables]
    served = ServedTables([View(EmbeddingBag(shard.rows, shard.columns), "sum") for shard in held if shard],
                          [1] * len(held))  # fmt: skip
    sent = message.write(layout, bags, IDS, space)
    batch = Batch(torch.from_numpy(asked.values), torch.from_numpy(asked.offsets), None, asked.bags)
    output, came = torch.empty_like(grad), answers.answer(served, batch, asked)
    rows = [np.ones(answers.size(rank, counts), np.uint8) for rank, counts in enumerate(sent.answers)]
    gradients = [np.ones(answers.size(layout.rank, asked.runs[:, s]), np.uint8) for s in range(RANKS)]
    total = seconds(lambda: answers.collect(rows, sent, bags, output))
    total += seconds(lambda: answers.gradients(grad, sent, bags, 0)) + seconds(lambda: answers.joined(gradients, asked))
    if any(placed.kind == ROW for placed in layout.plan.tables):  # the plain collection writes one sum for each bag
        plain = ServedTables([View(EmbeddingBag(contest.ROWS, contest.WIDTH), "sum") for _ in layout.features],
                             [1] * len(layout.features))  # fmt: skip
        own = Batch(torch.from_numpy(bags.values), torch.from_numpy(bags.offsets), None, bags.bags)
        more = seconds(lambda: answers.answer(served, batch, asked)) - seconds(lambda: plain.pooled(own))
        total += max(0.0, more)
    return (sum(each.size for each in came) + sum(each.size for each in gradients)) / total


def all_of() -> dict[str, dict[str, dict[str, float]]]:
    """For each placement and shape."""
    torch.set_num_threads(1)
    return {kind: {shape.title: measured(kind, shape) for shape in contest.SHAPES} for kind in ("table", "row")}


if __name__ == "__main__":
    for kind, shapes in all_of().items():
        for title, figures in shapes.items():
            print(kind, title, {name: f"{value:.3g}" for name, value in figures.items()})
