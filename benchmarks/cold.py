"""How long first calls take where no kernel has been compiled: every operator, layer and optimizer.

Each case is a process of its own with an empty folder for compiled kernels. It makes its calls in turn, so that the
first is that of a new environment, and one with another type is that of a further type. Loading Numba counts, loading
frameworks does not.

    python benchmarks/cold.py                 # all cases: half an hour
    python benchmarks/cold.py --only Adam     # cases whose name contains this
    python benchmarks/cold.py --kernels       # and how long each kernel took to compile
    python benchmarks/cold.py --json cold.json  # keep the times

On a busy machine a survey of all cases by processor time shows which ones are worth a measurement. It writes a line for
each case, and leaves out those that the file has already, so that it can be stopped and continued:

    python benchmarks/cold.py --survey cold.jsonl --minutes 8
    python benchmarks/cold.py --slowest 30 --survey cold.jsonl    # measure the slowest of them
    python benchmarks/cold.py --survey cold.jsonl --json cold.json  # keep the processor times
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.machine import facts
from rowgrad import optim
from rowgrad._ops import OPERATORS, Operator
from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.enlarged import enlarged, entries, first_accepted, has_rows
from rowgrad._ops.results import RowGradient

LIMIT = 3.0  # seconds
MANY = 1_000_000  # entries of a large call
FURTHER = ("float64", "int64", "complex128")  # the further type is the first of these that is allowed

Calls = Iterator[tuple[str, Callable[[], Any]]]


def cases() -> dict[str, Callable[[], Calls]]:
    """By name, what yields the calls of a case, each with a label."""
    found: dict[str, Callable[[], Calls]] = {}
    for operator in OPERATORS.values():
        found[f"{operator.name} small"] = partial(_operator, operator, 1)
        found[f"{operator.name} large"] = partial(_operator, operator, MANY // entries(operator) + 1)
        if {"indices", "segment_ids"} <= {pin.name for pin in operator.inputs}:
            found[f"{operator.name} table"] = partial(_table, operator)
    for name in optim.OPTIMIZERS:
        for clipped in (False, True):
            title = f"{name} clipped" if clipped else name
            for size in (16, MANY):
                found[f"{title} step {size}"] = partial(_step, name, clipped, size)
                found[f"{title} step_pooled {size}"] = partial(_step_pooled, name, clipped, size)
            for size in (16, 200_000):
                found[f"{title} RowOptimizer {size}"] = partial(_row_optimizer, name, clipped, size)
                found[f"{title} fused layer {size}"] = partial(_layer, size, optimizer=name, clipped=clipped)
            found[f"{title} fused collection"] = partial(_collection, optimizer=name, clipped=clipped)
    for size in (16, 200_000):
        for mode in ("sum", "mean", "max"):
            found[f"layer {mode} {size}"] = partial(_layer, size, mode=mode)
            found[f"layer {mode} sparse {size}"] = partial(_layer, size, mode=mode, sparse=True)
        found[f"layer weighted {size}"] = partial(_layer, size, mode="sum", weighted=True)
    found["collection"] = _collection
    return found


def _operator(operator: Operator, repeats: int) -> Calls:
    allowed = operator.types.get("T", ())
    usual = "float32" if "float32" in allowed else None
    attributes = check_attributes(operator, dict(operator.example.attributes))

    def call(dtype: str | None, width: int | None) -> Any:
        forms = [list(form.values()) for form in enlarged(operator, repeats, dtype, width=width)]
        return lambda: first_accepted(lambda form: operator(*form, **attributes), iter(forms))

    width = 16 if any(has_rows(pin) for pin in operator.inputs) else None
    yield str(usual), call(usual, width)
    for dtype in [name for name in FURTHER if name in allowed]:
        yield dtype, call(dtype, width)


def _table(operator: Operator) -> Calls:
    """As many rows and segments as entries."""
    random = np.random.default_rng(0)
    known = {
        "indices": random.integers(0, MANY, MANY),
        "segment_ids": np.arange(MANY),
        "weights": np.ones(MANY, np.float32),
    }
    for dtype in ("float32", "float64"):
        rows = np.ones((MANY, 16), dtype)
        given = [known[pin.name] if pin.name in known else rows if has_rows(pin) else MANY for pin in operator.inputs]
        yield dtype, partial(operator, *given)


def _optimizer(name: str, clipped: bool) -> Any:
    return getattr(optim, name)(lr=0.1, **({"clip_norm": 1.0, "weight_decay": 0.1} if clipped else {}))


def _step(name: str, clipped: bool, size: int) -> Calls:
    optimizer, ids = _optimizer(name, clipped), np.arange(size)
    for dtype in ("float32", "float64"):
        table = np.ones((size, 16), dtype)
        yield dtype, partial(optimizer.step, table, RowGradient(table.copy(), ids), optimizer.init(table))


def _step_pooled(name: str, clipped: bool, size: int) -> Calls:
    optimizer, ids = _optimizer(name, clipped), np.random.default_rng(0).integers(0, size, size)
    for dtype in ("float32", "float64"):
        table = np.ones((size, 16), dtype)
        yield dtype, partial(optimizer.step_pooled, table, table.copy(), ids, np.arange(size), optimizer.init(table))


def _row_optimizer(name: str, clipped: bool, size: int) -> Calls:
    import torch

    from rowgrad.torch import RowOptimizer

    for dtype in (torch.float32, torch.float64):
        bag = torch.nn.EmbeddingBag(100_000, 16, mode="sum", sparse=True, dtype=dtype)
        optimizer = RowOptimizer(bag.parameters(), _optimizer(name, clipped))
        bag(torch.randint(100_000, (size // 4, 4))).sum().backward()
        yield str(dtype), optimizer.step


def _layer(size: int, mode: str = "mean", sparse: bool = False, weighted: bool = False,
           optimizer: str | None = None, clipped: bool = False) -> Calls:  # fmt: skip
    import torch

    from rowgrad.torch import EmbeddingBag

    fused = None if optimizer is None else _optimizer(optimizer, clipped)
    for dtype in (torch.float32, torch.float64):
        bag = EmbeddingBag(100_000, 16, mode=mode, sparse=sparse, dtype=dtype, fused_optimizer=fused)
        ids = torch.randint(100_000, (size // 4, 4))
        given = [ids, None, torch.ones(ids.shape, dtype=dtype)] if weighted else [ids]
        results: list[Any] = []
        yield f"{dtype} forward", partial(_keep, results, bag, *given)
        loss = results[0].sum()
        yield f"{dtype} backward", loss.backward


def _keep(results: list[Any], layer: Any, *given: Any) -> None:
    results.append(layer(*given))


def _collection(optimizer: str | None = None, clipped: bool = False) -> Calls:
    import torch

    from rowgrad.torch import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor

    tables = [
        EmbeddingBagConfig(name=f"t{i}", num_embeddings=10_000, embedding_dim=16, feature_names=[f"f{i}"])
        for i in range(4)
    ]
    bags = EmbeddingBagCollection(tables, fused_optimizer=None if optimizer is None else _optimizer(optimizer, clipped))
    lengths = torch.full((4 * 128,), 5)
    features = KeyedJaggedTensor([f"f{i}" for i in range(4)], torch.randint(10_000, (4 * 128 * 5,)), lengths=lengths)
    results: list[Any] = []
    yield "forward", partial(_keep, results, bags, features)
    loss = results[0].values().sum()
    yield "backward", loss.backward


def run_case(name: str, kernels: bool) -> None:
    """Make the calls of a case, and print their times."""
    calls = cases()[name]()
    heard = _Compilations() if kernels else None
    for label, call in calls:
        cpu, began = time.process_time(), time.perf_counter()
        call()
        row = {"call": label, "seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
        print(json.dumps(row | {"kernels": heard.taken() if heard else []}), flush=True)


class _Compilations:
    """How long each kernel took, and how many functions were compiled into it."""

    def __init__(self) -> None:
        from numba.core import event

        from rowgrad import _kernels as kernels

        self._found: list[Any] = []
        begun: list[tuple[float, int]] = []
        count = 0
        heard = self

        class Listener(event.Listener):  # type: ignore[misc]
            def on_start(self, started: Any) -> None:
                nonlocal count
                count += 1
                begun.append((time.perf_counter(), count))

            def on_end(self, ended: Any) -> None:
                since, number = begun.pop()
                names = {id(kernel): name for name, kernel in kernels.compile.KERNELS.items()}
                if id(ended.data["dispatcher"]) in names:
                    taken = time.perf_counter() - since
                    heard._found.append((names[id(ended.data["dispatcher"])], round(taken, 2), count - number))

        event.register("numba:compile", Listener())

    def taken(self) -> list[Any]:
        found, self._found = self._found, []
        return found


def survey(names: list[str], file: Path, minutes: float) -> None:
    """Append the processor times of the cases that `file` does not have.

    Cases are forked from a process that has loaded PyTorch but not Numba: loading PyTorch takes longer than a case.
    """
    import torch  # noqa: F401

    known = {row["case"] for row in _surveyed(file)}
    left, end = [name for name in names if name not in known], time.monotonic() + 60 * minutes
    for number, name in enumerate(left):
        if time.monotonic() > end:
            print(f"{len(left) - number} of {len(names)} cases are left; run it again")
            return
        reading, writing = os.pipe()
        with tempfile.TemporaryDirectory() as folder:
            child = os.fork()
            if child == 0:
                os.close(reading)
                os.dup2(writing, 1)
                os.environ["ROWGRAD_CACHE_DIR"] = folder
                code = 1
                try:
                    run_case(name, kernels=False)
                    code = 0
                finally:
                    os._exit(code)
            os.close(writing)
            with open(reading) as lines:
                rows = [json.loads(line) for line in lines]
            failed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with file.open("a") as kept:
            calls = {row["call"]: round(row["cpu"], 2) for row in rows}
            kept.write(json.dumps({"case": name, "failed": failed, "cpu": calls}) + "\n")
    for row in _slowest(file)[:20]:
        print(row["case"], row["cpu"], "failed" if row["failed"] else "")


def _surveyed(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _slowest(file: Path) -> list[dict[str, Any]]:
    return sorted(_surveyed(file), key=lambda row: -max(row["cpu"].values(), default=LIMIT))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains this; | separates several")
    parser.add_argument("--kernels", action="store_true", help="show how long each kernel took")
    parser.add_argument("--cpu", action="store_true", help="judge by processor time: on a busy machine")
    parser.add_argument("--survey", type=Path, metavar="FILE", help="add processor times of all cases to this file")
    parser.add_argument("--minutes", type=float, default=8.0, help="how long a survey may take")
    parser.add_argument("--slowest", type=int, metavar="N", help="measure the N slowest cases of the survey")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the times to this file")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        run_case(given.case, given.kernels)
        return
    names = [name for name in cases() if any(part.casefold() in name.casefold() for part in given.only.split("|"))]
    if given.slowest:
        names = [row["case"] for row in _slowest(given.survey) if row["case"] in names][: given.slowest]
    is_survey = given.survey is not None and not given.slowest
    if is_survey:
        survey(names, given.survey, given.minutes)
        found = {row["case"]: row["cpu"] for row in _surveyed(given.survey)}
    else:
        found = measure(names, given.kernels, given.cpu)
    if given.json:
        record = {"date": datetime.now(UTC).date().isoformat(), "machine": facts(), "limit": LIMIT, "of": len(cases()),
                  "clock": "processor time" if is_survey or given.cpu else "time", "cases": found}  # fmt: skip
        given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def measure(names: list[str], kernels: bool, cpu: bool) -> dict[str, dict[str, float]]:
    """Run each case in a process of its own, and print and give the seconds of its calls."""
    over, found = [], {}
    for number, name in enumerate(names, 1):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--case", name, *(["--kernels"] if kernels else [])]
            ended = subprocess.run(command, env={**os.environ, "ROWGRAD_CACHE_DIR": folder}, capture_output=True,
                                   text=True, check=False)  # fmt: skip
        rows = [json.loads(line) for line in ended.stdout.splitlines()]
        times = [row["cpu" if cpu else "seconds"] for row in rows]
        calls = ", ".join(f"{row['call']} {taken:.2f}" for row, taken in zip(rows, times, strict=True))
        mark = "OVER" if max(times, default=0.0) > LIMIT else ""
        print(f"{number}/{len(names)} {name}: {calls} {mark}", flush=True)
        found[name] = {row["call"]: round(taken, 2) for row, taken in zip(rows, times, strict=True)}
        for row in rows:
            if row["kernels"]:
                print("    ", row["call"], *(f"{kernel} {taken} s ({functions} functions)"
                      for kernel, taken, functions in row["kernels"]), flush=True)  # fmt: skip
        if ended.returncode:
            print(f"    failed: {ended.stderr.splitlines()[-1]}")
        if mark or ended.returncode:
            over.append(name)
    print(f"{len(names)} cases, {len(over)} above {LIMIT:g} s{': ' if over else ''}{', '.join(over)}")
    return found


if __name__ == "__main__":
    main()
