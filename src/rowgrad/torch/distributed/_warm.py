"""Compile the kernels of sharded collections: `rowgrad doctor --warm`.

One rank writes messages to itself, without a process group: the kernels are the same for any number of ranks.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch

from rowgrad import _kernels as kernels
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.optim import from_dict
from rowgrad.torch._configs import EmbeddingBagConfig
from rowgrad.torch._embedding_bag import EmbeddingBag
from rowgrad.torch._tables import Batch
from rowgrad.torch.distributed import _message as message
from rowgrad.torch.distributed._answers import Answers, ServedTables, View
from rowgrad.torch.distributed._collection_pass import factors_for
from rowgrad.torch.distributed._layout import Layout
from rowgrad.torch.distributed._placement import ROW, TABLE, Plan, placed
from rowgrad.torch.distributed._published import Board, Told
from rowgrad.torch.distributed._shared_memory import SharedMemory

ROWS, BAGS = 4, 2
INT32, INT64 = dtypes.NUMPY["int32"], dtypes.NUMPY["int64"]
# Of ids, of offsets, and of ids on their way, which are short unless a table has more than 2³¹ rows.
TYPES = ((INT64, INT64, INT32), (INT32, INT32, INT32), (INT32, INT64, INT32), (INT64, INT64, INT64))


def tasks(widths: Iterable[int], optimizers: Iterable[str]) -> list[tuple[str, Callable[[], Any]]]:
    """Steps of a sharded collection with each optimizer, for float32 in every width, with a label for each."""
    found: list[tuple[str, Callable[[], Any]]] = []
    updates = (None, *optimizers)
    for width in widths:
        found += [(f"sharded {name or 'sparse'} float32, {width} wide", partial(_train, "float32", width, name))
                  for name in updates]  # fmt: skip
        found += [(f"sharded weighted {types[0]} float32, {width} wide",
                   partial(_train, "float32", width, None, True, types)) for types in TYPES[:2]]  # fmt: skip
        found += [(f"sharded {ids} offsets {offsets} float32, {width} wide",
                   partial(_train, "float32", width, None, False, (ids, offsets, sent)))
                  for ids, offsets, sent in TYPES[1:3]]  # fmt: skip
    found += [(f"sharded messages {ids} {offsets} {sent}", partial(_exchange_ids, ids, offsets, sent))
              for ids, offsets, sent in TYPES]  # fmt: skip
    found += [(f"sharded {name or 'sparse'} {dtype}", partial(_train, dtype, 16, name))
              for dtype in dtypes.FLOATS if dtype != "float32" for name in updates]  # fmt: skip
    return found


def _layout(width: int, dtype: torch.dtype, exact: bool = False) -> Layout:
    """A table whose rows are spread and one that a rank has whole, over one rank."""
    tables = [EmbeddingBagConfig(name, ROWS, width, pooling="mean", data_type=dtype) for name in ("a", "b")]
    plan = [placed(table, kind, 1, 0, "") for table, kind in zip(tables, (ROW, TABLE), strict=True)]
    return Layout(Plan(tuple(plan), 1), 0, exact)


def _bags(ids: "np.dtype[Any]", offsets: "np.dtype[Any]", factors: Array | None) -> message.Bags:
    return message.Bags(np.zeros(2 * BAGS, ids), np.arange(2 * BAGS + 1, dtype=offsets), factors, BAGS)


def _exchange_ids(ids: "np.dtype[Any]", offsets: "np.dtype[Any]", wire: "np.dtype[Any]") -> None:
    layout, space = _layout(1, torch.float32), SharedMemory(None, 0, 1)
    for weights in (None, np.dtype(np.float32), np.dtype(np.float64)):
        bags = _bags(ids, offsets, None if weights is None else np.ones(2 * BAGS, weights))
        sent = message.write(layout, bags, wire, space)
        message.read(layout, sent.blocks, wire, [weights], [False])
        board = Board(layout, space, wire, np.dtype(np.float32) if weights is None else weights)
        own, foreign = board.publish(bags)
        for divided in (False, True):
            board.is_divided = divided
            board.join(own, [Told(0, BAGS, weights is not None)])
    grad = np.zeros(BAGS * 2, np.float32).ctypes.data
    kernels.exchanging.give(grad, grad, 8, 0, np.zeros((0, 3), np.int64), foreign, False)


def _train(
    dtype: str, width: int, name: str | None, weighted: bool = False,
    types: "tuple[np.dtype[Any], np.dtype[Any], np.dtype[Any]]" = TYPES[0],
) -> None:  # fmt: skip
    """A step with sums that travel and with rows that do (`exact`)."""
    kind, (ids, offsets, wire) = getattr(torch, dtype), types
    space = SharedMemory(None, 0, 1)
    optimizer = None if name is None else from_dict({"name": name, "lr": 0.0})
    layers = [EmbeddingBag(ROWS, width, mode="mean", sparse=name is None, fused_optimizer=optimizer, dtype=kind)
              for _ in range(2)]  # fmt: skip
    modes = ("sum", "sum" if weighted else "mean")
    served = ServedTables([View(layer, mode) for layer, mode in zip(layers, modes, strict=True)], [1, 1])
    grad = torch.zeros(BAGS, 2 * width, dtype=kind)
    for exact in (False, True):
        layout = _layout(width, kind, exact)
        answers = Answers(layout, kind, space)
        bags = _bags(ids, offsets, np.ones(2 * BAGS, answers.sums) if weighted else None)
        if bags.factors is not None:
            values, begins, weights = (torch.from_numpy(array) for array in (bags.values, bags.offsets, bags.factors))
            factors_for(values, begins, weights, BAGS, ["mean", "mean"])
        served.pooled(Batch(torch.from_numpy(bags.values), torch.from_numpy(bags.offsets.astype(ids)),
                            None if bags.factors is None else torch.from_numpy(bags.factors),
                            BAGS))  # as ranks of one machine do it  # fmt: skip
        sent = message.write(layout, bags, wire, space)
        asked = message.read(layout, sent.blocks, wire, [answers.sums if weighted else None], [False])
        factors = None if asked.factors is None else torch.from_numpy(asked.factors)
        batch = Batch(torch.from_numpy(asked.values), torch.from_numpy(asked.offsets), factors, asked.bags)
        answers.collect(answers.answer(served, batch, asked), sent, bags, torch.empty_like(grad))
        theirs = answers.joined(answers.gradients(grad, sent, bags, 0), asked)
        if optimizer is None:
            served.gradients(batch, theirs)
        else:
            served.step(batch, theirs, [((0, 1), optimizer)])
