"""A program: train a table in a child, kill the child at random moments, and look at what is left; again and again.

Prints a line of JSON for each round. The child is forked, since starting an interpreter takes longer than a round.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from table_training import batch, first_rows

import rowgrad
from rowgrad.optim import Adagrad

ROWS, WIDTH, ENTRIES, EACH = 40_000, 32, 8_000, 2  # EACH: steps to a flush


def train(path: Path, tell: int) -> None:
    """Make steps and flush for ever, telling before and after each flush."""
    with rowgrad.Table.open(path, max_dirty=1 << 40) as table:
        while True:
            os.write(tell, b"t")
            for _ in range(EACH):
                grad, indices, segments = batch(table.steps, ROWS, WIDTH, ENTRIES)
                table.step_pooled(grad, indices, segments, combiner="sum")
            os.write(tell, b"f")
            table.flush()
            os.write(tell, b".")


class Reference:
    """The same training in memory."""

    def __init__(self) -> None:
        self.table = np.empty((ROWS, WIDTH), np.float32)
        first_rows(0, self.table)
        self.optimizer = Adagrad(lr=0.1)
        self.state: dict[str, Any] = self.optimizer.init(self.table)
        self.steps = 0

    def go_to(self, steps: int) -> None:
        while self.steps < steps:
            grad, indices, segments = batch(self.steps, ROWS, WIDTH, ENTRIES)
            self.optimizer.step_pooled(self.table, grad, indices, segments, self.state, combiner="sum")
            self.steps += 1


def kill_once(path: Path, flushed: int, letter: bytes, flushes: int, delay: float) -> tuple[int, int]:
    """Let a child train from `flushed` on; after `flushes` flushes, kill it `delay` after it tells `letter`.

    Returns the last step that it told as flushed, and the one it was flushing, or the same.
    """
    hear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(hear)
        try:
            train(path, tell)
        finally:
            os._exit(1)
    os.close(tell)
    heard = b""
    while heard.count(b".") < flushes or not heard.endswith(letter):
        news = os.read(hear, 1)
        assert news, "the child ended by itself"
        heard += news
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while news := os.read(hear, 4096):
        heard += news
    os.close(hear)
    last = flushed + EACH * heard.count(b".")
    return last, flushed + EACH * heard.count(b"f")


def main(folder: str, rounds: int, seed: int) -> None:
    rowgrad.set_num_threads(1)  # a fork takes one thread along
    path = Path(folder) / "table"
    chance = random.Random(seed)
    reference = Reference()
    with rowgrad.Table.create(path, ROWS, WIDTH, optimizer=Adagrad(lr=0.1), initializer=first_rows,
                              max_dirty=1 << 40) as table:  # fmt: skip
        times = []
        for _ in range(3):
            grad, indices, segments = batch(table.steps, ROWS, WIDTH, ENTRIES)
            table.step_pooled(grad, indices, segments, combiner="sum")
            start = time.perf_counter()
            table.flush()
            times.append(time.perf_counter() - start)
    flush, flushed = max(times[1:]), table.steps
    for turn in range(rounds):
        training = turn % 6 == 5  # most are killed while they flush, some while they train
        delay = chance.uniform(0, 0.05) if training else chance.uniform(0, 1.1) * flush
        last, tried = kill_once(path, flushed, b"t" if training else b"f", turn % 2, delay)
        with rowgrad.Table.open(path) as table:
            reference.go_to(table.steps)
            same = reference.steps == table.steps
            same = same and np.array_equal(table.array, reference.table)
            same = same and np.array_equal(table.state["sum"], reference.state["sum"])
            print(json.dumps({"training": training, "last": last, "tried": tried, "steps": table.steps, "same": same,
                              "recovered": table.recovered, "delay": delay / flush}))  # fmt: skip
            flushed = table.steps


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
