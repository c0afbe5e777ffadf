"""A program: train a table that is larger than the memory this process is given, and tell what it took.

`table_large.py make` makes the table, `table_large.py train` trains it; each prints a line of JSON at its end.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from table_training import Array, batch, first_rows

import rowgrad
from rowgrad._runtime import limits
from rowgrad.optim import Adagrad

ENTRIES = 3000


def main(what: str, path: str, rows: int, width: int, steps: int) -> None:
    start = time.perf_counter()
    allowed = limits.available()
    if what == "make":
        table = rowgrad.Table.create(path, rows, width, optimizer=Adagrad(lr=0.1, initial_accumulator=0.5),
                                     initializer=first_rows)  # fmt: skip
    else:
        table = rowgrad.Table.open(path)
    flushes = []
    flush = table.flush
    table.flush = lambda: (flushes.append(table.steps), flush())  # type: ignore[method-assign]
    with table:
        for _ in range(steps):
            grad, indices, segments = batch(table.steps, rows, width, ENTRIES)
            table.look_up(indices, segments, "sum")
            table.step_pooled(grad, indices, segments, combiner="sum")
    print(json.dumps({"seconds": time.perf_counter() - start, "allowed": allowed, "max_dirty": table.max_dirty,
                      "bytes": table.nbytes, "flushes": flushes, "process": os.getpid()}))  # fmt: skip


def expected(sample: Array, rows: int, width: int, steps: int) -> tuple[Array, Array]:
    """The rows of `sample` (ascending) and their state after as many steps, in memory.

    With sums, an entry changes its own row only: so the entries of other rows can be left out.
    """
    table = np.concatenate([_first(int(row), width) for row in sample])
    optimizer = Adagrad(lr=0.1, initial_accumulator=0.5)
    state = optimizer.init(table)
    for step in range(steps):
        grad, indices, segments = batch(step, rows, width, ENTRIES)
        kept = np.isin(indices, sample)
        optimizer.step_pooled(
            table, grad, np.searchsorted(sample, indices[kept]), segments[kept], state, combiner="sum"
        )
    return table, state["sum"]


def _first(row: int, width: int) -> Array:
    block = np.empty((1, width), np.float32)
    first_rows(row, block)
    return block


if __name__ == "__main__":
    main(sys.argv[1], str(Path(sys.argv[2])), *(int(number) for number in sys.argv[3:]))
