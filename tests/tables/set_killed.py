"""A program: train a set of tables with keys in a child that takes snapshots, kill it at random moments, look; again.

Prints a line of JSON for each round, with what the child was doing when it was killed. Everything in the files follows
from the step, so that any mixture is noticed: each step adds two keys to the vocabulary, evicts the oldest, and writes
the step into rows of both tables.
"""

import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

import rowgrad

ROWS, WIDTH, KEPT = 20_000, 16, 50


def step(tables: rowgrad.TableSet, number: int) -> None:
    """Make one step of both tables, and of the vocabulary."""
    words, plain = tables["words"], tables["plain"]
    assert words.keys is not None
    rows = words.keys.add([2 * number, 2 * number + 1])
    words.array[rows] = number
    words.end_step()
    words.keys.evict(older_than=KEPT)
    plain.array[np.random.default_rng(number).integers(0, ROWS, 2000)] = number
    plain.end_step()


def is_at(tables: rowgrad.TableSet, number: int, expected: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]") -> bool:
    """Whether rows, keys and record are those of a step."""
    words, plain = tables["words"], tables["plain"]
    assert words.keys is not None
    keys, rows = words.keys.items()
    alive = np.arange(2 * max(number - KEPT + 1, 1), 2 * number + 2)
    return bool(
        words.steps == plain.steps == number
        and np.array_equal(np.sort(keys), alive)
        and (words.array[rows] == (keys // 2)[:, None]).all()
        and np.array_equal(plain.array, expected)
    )


class Reference:
    """The plain table in memory."""

    def __init__(self) -> None:
        self.array = np.zeros((ROWS, WIDTH), np.float32)
        self.number = 0

    def at(self, number: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
        if number < self.number:
            self.__init__()  # type: ignore[misc]
        while self.number < number:
            self.number += 1
            self.array[np.random.default_rng(self.number).integers(0, ROWS, 2000)] = self.number
        return self.array


def train(path: Path, tell: int) -> None:
    """Make steps and flush for ever, with snapshots in another thread."""
    tables = rowgrad.TableSet.open(path, auto_flush=False)
    from rowgrad.tables import _store

    _store.LOG_LIMIT = 1 << 20  # so that logs are brought into the files now and then

    def copy() -> None:
        for number in range(10**6):
            os.write(tell, b"c")
            tables.snapshot(path.parent / f"copy{os.getpid()}-{number}")
            os.write(tell, b"d")
            time.sleep(0.05)

    threading.Thread(target=copy, daemon=True).start()
    while True:
        number = tables["plain"].steps + 1
        os.write(tell, b"s")
        step(tables, number)
        os.write(tell, b"f")
        tables.flush(record={"step": number})
        os.write(tell, b".")


class Killed(NamedTuple):
    """What a child was doing: the last step flushed, the last whose flush began, and what was under way."""

    last: int
    tried: int
    during: str
    copying: bool


def kill_once(path: Path, begun: int, delay: float) -> Killed:
    """Let a child train, and kill it `delay` seconds after its first step began."""
    hear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(hear)
        try:
            train(path, tell)
        finally:
            os._exit(1)
    os.close(tell)
    heard = os.read(hear, 1)
    assert heard, "the child ended by itself"
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while news := os.read(hear, 4096):
        heard += news
    os.close(hear)
    during = {b"s": "step", b"f": "flush", b".": "between"}[heard[max(map(heard.rfind, b"sf.")) :][:1]]
    is_copying = heard.count(b"c") > heard.count(b"d")
    return Killed(begun + heard.count(b"."), begun + heard.count(b"f"), during, is_copying)


def main(folder: str, rounds: int, seed: int) -> None:
    rowgrad.set_num_threads(1)  # a fork takes one thread along
    path, chance, reference = Path(folder) / "set", random.Random(seed), Reference()
    with rowgrad.TableSet.create(path) as tables:
        tables.create_table("words", 4 * KEPT, WIDTH, keys="int64")
        tables.create_table("plain", ROWS, WIDTH)
        step(tables, 1)
        tables.flush(record={"step": 1})
    begun = 1
    for _ in range(rounds):
        killed = kill_once(path, begun, chance.uniform(0, 0.4))
        whole = copies = 0
        for each in Path(folder).glob("copy*"):
            with rowgrad.TableSet.open(each, mode="r") as copy:
                copies += 1
                whole += is_at(copy, copy.record["step"], reference.at(copy.record["step"]))
        with rowgrad.TableSet.open(path) as tables:
            number = tables.record["step"]
            same = is_at(tables, number, reference.at(number))
            print(json.dumps({"step": number, **killed._asdict(), "same": same, "copies": copies,
                              "snapshots_whole": whole == copies, "recovered": tables.recovered}))  # fmt: skip
        begun = number
        for each in [*Path(folder).glob("copy*"), *Path(folder).glob(".copy*")]:
            with suppress(FileNotFoundError):
                shutil.rmtree(each)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
