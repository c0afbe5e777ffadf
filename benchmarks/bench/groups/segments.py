"""Forward sums and means over segments on NumPy arrays, against PyTorch's `embedding_bag` on the shapes of one layer.

Our arrays are where NumPy places them: large ones begin 16 bytes behind a cache line. PyTorch takes part twice: with
its own tensors, and with those same arrays.
"""

from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

import rowgrad
from bench import lookups
from bench.case import OURS, Case
from bench.contest import Entry
from bench.groups.layer import FIRST, Shape, shapes
from rowgrad._runtime.dtypes import Array

NAME = "segment sums"
SAME = "torch, same arrays"


class Inputs(NamedTuple):
    """A batch and its table as NumPy arrays."""

    table: Array
    ids: Array
    segments: Array
    offsets: Array


@lookups.remembered
def inputs(shape: Shape) -> Inputs:
    """The batch of `shape`."""
    random = np.random.default_rng(lookups.SEED)
    ends = lookups.offsets(random, shape.bags, shape.ids, shape.ids)
    ids = lookups.ids(random, shape.rows, int(ends[-1]), "uniform")
    table = _table(shape.rows, shape.width)
    rows = np.unique(ids)
    table[rows] = lookups.values(len(rows), shape.width)
    return Inputs(table, ids, lookups.segments(ends), ends[:-1].copy())


@lookups.remembered
def _table(rows: int, width: int) -> Array:
    return np.full((rows, width), FIRST, np.float32)


@lookups.remembered
def _copies(shape: Shape) -> tuple[Any, ...]:
    """The batch of `shape` as PyTorch's own tensors."""
    torch: Any = import_module("torch")
    given = inputs(shape)
    return torch.tensor(given.ids), torch.tensor(given.table), torch.tensor(given.offsets)


def cases(size: str) -> list[Case]:
    """Sums and means."""
    return [case for shape in shapes(size) for case in of_shape(shape)]


def of_shape(shape: Shape) -> list[Case]:
    """The cases on one shape."""
    return [
        Case(
            group=NAME,
            key=f"{shape.key}/{work}",
            table="NumPy arrays, where NumPy places them",
            row=shape.title,
            column=work,
            entries={
                OURS: partial(_ours, shape, work),
                "torch": partial(_torch, shape, work, False),
                SAME: partial(_torch, shape, work, True),
            },
            limits={"torch": 1.0, SAME: 1.0},
        )
        for work in ("sum", "mean")
    ]


def _ours(shape: Shape, work: str) -> Entry:
    table, ids, segments, _ = inputs(shape)
    run = partial(getattr(rowgrad, f"sparse_segment_{work}"), table, ids, segments)
    return Entry(run, lambda: [run()])


def _torch(shape: Shape, work: str, same: bool) -> Entry:
    torch: Any = import_module("torch")
    given = inputs(shape)
    arrays = (given.ids, given.table, given.offsets)
    ids, table, offsets = (torch.from_numpy(array) for array in arrays) if same else _copies(shape)
    pool = torch.nn.functional.embedding_bag

    def run() -> Any:
        with torch.no_grad():
            return pool(ids, table, offsets, mode=work)

    return Entry(run, lambda: [run().numpy()])
