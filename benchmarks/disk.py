"""A table on disk beside LMDB, RocksDB and a memory map, and look-ups of keys beside a dict, pandas and polars.

    python benchmarks/disk.py --write    # 38,565 changed rows of 4 GB in processes of 1 GB, and 1e6 keys; takes minutes

Each store runs in a process of its own, in a control group where one can be made (root), and begins with none of its
file in memory: what a process of 4 GB would find there, one of 1 GB does not. Bytes are those that the process handed
to write calls (`wchar` of /proc/self/io) and those of the pages that it made the system write (`write_bytes`), over the
bytes of the rows that changed. A row of 256 bytes that is written in place makes the system write its page of 4096. A
memory map with msync is no transaction: it is there as what the disk itself can do.

Then a second process of each store flushes ten times as a training run does: rows are drawn by Zipf's law, so many of
them change again and again. What is still waiting to be written when the store is closed, is counted too.

`--write` puts the figures into `benchmarks/disk.json` and, between markers, `docs/tables.md`.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"(<!-- disk:begin -->\n).*?(<!-- disk:end -->)", re.DOTALL)
WIDTH, CHANGED, FLUSHES = 64, 38_565, 3
TRAINED, SKEW, STEP = 10, 1.05, 2_654_435_761  # flushes of a training run, Zipf's exponent, and what scatters its rows
STORES = ("rowgrad", "lmdb", "rocksdb", "mmap")


def counters() -> dict[str, int]:
    """What /proc tells that this process has written."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def batches(rows: int) -> Iterator[tuple[Any, Any]]:
    """Distinct rows and their new values, for each flush."""
    for number in range(FLUSHES):
        rng = np.random.default_rng(number)
        chosen = np.sort(rng.choice(rows, CHANGED, replace=False))
        yield chosen, rng.standard_normal((CHANGED, WIDTH)).astype(np.float32)


def trained(rows: int) -> Iterator[tuple[Any, Any]]:
    """The same for each flush of a training run: distinct rows, frequent ones in most flushes."""
    for number in range(TRAINED):
        rng, chosen = np.random.default_rng(number), np.empty(0, np.int64)
        while chosen.size < CHANGED:  # Zipf's law without its endless tail: uniform on the scale of its integral
            least = rows ** (1 - SKEW)
            ranks = (least + (1 - least) * rng.random(CHANGED)) ** (1 / (1 - SKEW))
            chosen = np.unique(np.append(chosen, ranks.astype(np.int64).clip(1, rows) - 1))
        kept = np.sort(rng.choice(chosen, CHANGED, replace=False) * STEP % rows)
        yield kept, rng.standard_normal((CHANGED, WIDTH)).astype(np.float32)


def rowgrad_store(path: Path, rows: int) -> Any:
    import rowgrad

    table = rowgrad.Table.open(path, auto_flush=False) if path.exists() else rowgrad.Table.create(
        path, rows, WIDTH, initializer=1.0)  # fmt: skip

    def change(chosen: Any, values: Any) -> None:
        table.prefetch(chosen)
        table.array[chosen] = values
        table.end_step()

    return change, table.flush, table.close


def lmdb_store(path: Path, rows: int) -> Any:
    lmdb = import_module("lmdb")

    is_new = not path.exists()
    environment = lmdb.open(str(path), map_size=24 << 30)
    if is_new:
        one = np.ones(WIDTH, np.float32).tobytes()
        for first in range(0, rows, 1 << 18):
            with environment.begin(write=True) as t:
                for row in range(first, min(rows, first + (1 << 18))):
                    t.put(row.to_bytes(8, "big"), one, append=True)
    held: list[Any] = []

    def change(chosen: Any, values: Any) -> None:
        transaction = environment.begin(write=True)
        held.append(transaction)
        for row, value in zip(chosen.tolist(), values, strict=True):
            transaction.put(row.to_bytes(8, "big"), value.tobytes())

    return change, lambda: held.pop().commit(), environment.close


def rocksdb_store(path: Path, rows: int) -> Any:
    rocks = import_module("rocksdict")

    is_new = not path.exists()
    database = rocks.Rdict(str(path), rocks.Options(raw_mode=True))
    if is_new:
        one = np.ones(WIDTH, np.float32).tobytes()
        for first in range(0, rows, 1 << 18):
            batch = rocks.WriteBatch(raw_mode=True)
            for row in range(first, min(rows, first + (1 << 18))):
                batch.put(row.to_bytes(8, "big"), one)
            database.write(batch)
    synced: Any = rocks.WriteOptions()
    held: list[Any] = []
    synced.sync = True

    def change(chosen: Any, values: Any) -> None:
        batch = rocks.WriteBatch(raw_mode=True)
        for row, value in zip(chosen.tolist(), values, strict=True):
            batch.put(row.to_bytes(8, "big"), value.tobytes())
        held.append(batch)

    return change, lambda: database.write(held.pop(), synced), database.close


def mmap_store(path: Path, rows: int) -> Any:
    array = np.memmap(path, np.float32, "r+" if path.exists() else "w+", shape=(rows, WIDTH))
    if array[0, 0] != 1:
        array[:] = 1

    def change(chosen: Any, values: Any) -> None:
        array[chosen] = values

    return change, array.flush, array.flush


def run(name: str, folder: str, rows: int, is_trained: bool) -> None:
    """Change and flush in this process; without batches it only makes the store."""
    change, flush, close = globals()[f"{name}_store"](Path(folder) / name, rows)
    if os.environ.get("MAKE"):
        close()
        return
    change(*next(batches(rows)))  # compile, open, warm up
    flush()
    begun, steps, flushes = counters(), list[float](), list[float]()
    for chosen, values in (trained if is_trained else batches)(rows):
        at = time.perf_counter()
        change(chosen, values + 1)
        steps.append(time.perf_counter() - at)
        at = time.perf_counter()
        flush()
        flushes.append(time.perf_counter() - at)
    at = time.perf_counter()
    close()
    closing = time.perf_counter() - at
    ended, changed = counters(), len(flushes) * CHANGED * WIDTH * 4
    print(json.dumps({
        "store": name, "rows": rows, "change_s": float(np.median(steps)), "flush_s": float(np.median(flushes)),
        "close_s": closing, "handed_over": (ended["wchar"] - begun["wchar"]) / changed,
        "to_disk": (ended["write_bytes"] - begun["write_bytes"]) / changed,
    }), flush=True)  # fmt: skip


def forget(path: Path) -> None:
    """Have the system write the files of a store, and drop what it has of them in memory."""
    os.sync()
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def report(found: dict[str, dict[str, Any]]) -> str:
    """The figures as tables in Markdown."""
    titles = {"rowgrad": "rowgrad", "lmdb": "LMDB", "rocksdb": "RocksDB", "mmap": "memory map, msync"}
    lines = ["| | changing the rows, s | flush, s | closing, s | bytes by calls | bytes of pages |",
             "| --- | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for name, title in titles.items():
        if name in found:
            one = found[name]
            lines.append(
                f"| {title} | {one['change_s']:.2f} | {one['flush_s']:.2f} | {one['close_s']:.2f} "
                f"| {one['handed_over']:.1f} × | {one['to_disk']:.1f} × |"
            )
    trained_by = {name: found[name]["trained"] for name in titles if "trained" in found.get(name, {})}
    if trained_by:
        lines += ["", f"| {TRAINED} flushes of a training run | bytes by calls | bytes of pages |",
                  "| --- | ---: | ---: |"]  # fmt: skip
        lines += [
            f"| {titles[name]} | {one['handed_over']:.1f} × | {one['to_disk']:.1f} × |"
            for name, one in trained_by.items()
        ]
    if "keys" in found:
        one = found["keys"]
        names = {"rowgrad": "KeyTable", "dict": "dict", "pandas": "pandas", "polars": "polars join"}
        lines += ["", f"| look-up of {one['keys']:,} known keys | ms | beside KeyTable |", "| --- | ---: | ---: |"]
        lines += [
            f"| {title} | {1000 * one[name + '_s']:.1f} | {one[name + '_s'] / one['rowgrad_s']:.1f} × |"
            for name, title in names.items()
        ]
    return "\n".join(lines)


def write(found: dict[str, dict[str, Any]]) -> None:
    """Note figures beside those of earlier runs, and put them into the guide."""
    record, guide = ROOT / "benchmarks" / "disk.json", ROOT / "docs" / "tables.md"
    known = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    known |= found
    record.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    text = guide.read_text(encoding="utf-8")
    guide.write_text(MARKED.sub(lambda marks: marks[1] + report(known) + "\n" + marks[2], text), encoding="utf-8")


def keys(count: int = 1_000_000) -> dict[str, Any]:
    """Look-ups of `count` known keys among as many."""
    pandas, polars = import_module("pandas"), import_module("polars")

    import rowgrad

    rng = np.random.default_rng(0)
    known = rng.choice(2**62, count, replace=False)
    wanted = rng.permutation(known)
    table = rowgrad.KeyTable(count)
    rows = table.add(known)
    plain = dict(zip(known.tolist(), rows.tolist(), strict=True))
    listed, index = wanted.tolist(), pandas.Index(known)
    left = polars.DataFrame({"key": wanted})
    right = polars.DataFrame({"key": known, "row": rows})
    ways: dict[str, Callable[[], Any]] = {
        "rowgrad": lambda: table.look_up(wanted),
        "dict": lambda: [plain[key] for key in listed],
        "pandas": lambda: index.get_indexer(wanted),
        "polars": lambda: left.join(right, on="key", how="left"),
    }
    best = {}
    for name, way in ways.items():
        way()
        times = []
        for _ in range(5):
            at = time.perf_counter()
            way()
            times.append(time.perf_counter() - at)
        best[name] = min(times)
    return {"keys": count, **{f"{name}_s": value for name, value in best.items()}}


def _join(processes: Path) -> None:
    processes.write_text(str(os.getpid()))


def confined(command: list[str], limit: int) -> str:
    """What a command prints in a control group with `limit` bytes of memory, or without where none can be made."""
    for root, setting in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root) / f"rowgrad-disk-{os.getpid()}"
        try:
            group.mkdir()
            (group / setting).write_text(str(limit))
        except OSError:
            continue
        try:
            join = partial(_join, group / "cgroup.procs")
            return subprocess.run(command, check=True, preexec_fn=join, stdout=subprocess.PIPE, text=True).stdout
        finally:
            group.rmdir()
    print("no control group: without a limit of memory", file=sys.stderr)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1 << 24)
    parser.add_argument("--memory", type=int, default=1 << 30)
    parser.add_argument("--folder", default="disk-benchmark")
    parser.add_argument("--only", choices=[*STORES, "keys"])
    parser.add_argument("--keep", action="store_true", help="leave the stores for another run")
    parser.add_argument("--make", action="store_true", help="only make the stores")
    parser.add_argument("--write", action="store_true", help="write disk.json and the guide's table")
    parser.add_argument("--run", choices=STORES, help=argparse.SUPPRESS)
    parser.add_argument("--trained", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run:
        run(chosen.run, chosen.folder, chosen.rows, chosen.trained)
        return
    Path(chosen.folder).mkdir(exist_ok=True)
    found = {}
    for name in STORES:
        if chosen.only in (None, name):
            command = [sys.executable, __file__, "--run", name, "--folder", chosen.folder, "--rows", str(chosen.rows)]
            if not (Path(chosen.folder) / name).exists():
                subprocess.run(command, env=os.environ | {"MAKE": "1"}, check=True)
            if not chosen.make:
                forget(Path(chosen.folder) / name)
                found[name] = json.loads(confined(command, chosen.memory))
                forget(Path(chosen.folder) / name)
                found[name]["trained"] = json.loads(confined([*command, "--trained"], chosen.memory))
                print(found[name], flush=True)
    if chosen.only in (None, "keys") and not chosen.make:
        found["keys"] = keys()
        print(found["keys"], flush=True)
    if chosen.write:
        write(found)
    if not chosen.keep:
        shutil.rmtree(chosen.folder)


if __name__ == "__main__":
    main()
