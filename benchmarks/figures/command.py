"""`python -m figures [PART ...]`: run all parts, or those named, then write docs/report.md and other documents' tables.

A part that was not run keeps the figures of its last run, with their date. `none` runs nothing, and writes the
documents.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import scale_report
from bench import documents, machine, pictures, report
from figures import page, values

HERE = Path(__file__).parents[1]
ROOT = HERE.parent


def main(arguments: list[str]) -> int:
    """The command; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m figures", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; or none. All unless given.")
    chosen = parser.parse_args(arguments).parts or list(PARTS)
    names = [] if chosen == ["none"] else chosen
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    failed = []
    for number, name in enumerate(names, 1):
        print(f"{number}/{len(names)} {name}: {PARTS[name].__doc__}", flush=True)
        try:
            PARTS[name]()
        except subprocess.CalledProcessError as error:
            print(f"{name}: ended with {error.returncode}", flush=True)
            failed.append(name)
    write()
    print(f"failed: {', '.join(failed)}" if failed else "docs/report.md is up to date", flush=True)
    return int(bool(failed))


def write() -> None:
    """All documents, from the files of the parts."""
    (ROOT / "docs" / "report.md").write_text(page.text(page.read(HERE)), encoding="utf-8")
    scale = ROOT / "docs" / "scale.md"
    measured = json.loads((HERE / "scale.json").read_text(encoding="utf-8"))
    scale.write_text(scale_report.filled(scale.read_text(encoding="utf-8"), measured), encoding="utf-8")
    results = report.read_json(HERE / "results.json")
    documents.refresh(results, [ROOT / "docs" / "performance.md", ROOT / "README.md"])
    pictures.draw(results, ROOT / "docs" / "images")


def bench() -> None:
    """Times of models, layers and operators beside the peers (a quarter of an hour)."""
    _run("-m", "bench", "--peers", "all", "--json", "results.json")


def compare() -> None:
    """Results beside those of PyTorch and TensorFlow, by value (a minute)."""
    found: dict[str, Any] = {}
    for peer, outcomes in (("torch", values.pytorch), ("tensorflow", values.tensorflow)):
        found[peer] = values.counted(outcomes(), peer)
        print(f"{peer}: {found[peer]['cases']} cases, {len(found[peer]['different'])} different", flush=True)
    versions = {name: sys.modules[name].__version__ for name in ("torch", "tensorflow")}
    _keep("values.json", {**found, "versions": versions})


def adversary() -> None:
    """Attacks on every operator, optimizer and layer (twenty minutes)."""
    _run("-m", "adversary.soak", "20", "", str(HERE / "adversary.json"), folder=ROOT / "tests")


def first_calls() -> None:
    """First calls where no kernel is compiled (half an hour)."""
    _run("cold.py", "--json", "cold.json")


def scale() -> None:
    """Steps of tables that are spread over several processes (five minutes)."""
    _run("scale.py", "--write")


def disk() -> None:
    """Tables on disk beside other stores (ten minutes, 20 GB)."""
    _run("disk.py", "--write")


PARTS: dict[str, Callable[[], None]] = {
    "bench": bench,
    "values": compare,
    "adversary": adversary,
    "first-calls": first_calls,
    "scale": scale,
    "disk": disk,
}


def _run(*command: str, folder: Path = HERE, keep: bool = False) -> str:
    """A command of Python in `folder`; its output is shown, or given back."""
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    output = subprocess.PIPE if keep else None
    done = subprocess.run([sys.executable, *command], cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=True,
                          stdout=output, text=True)  # fmt: skip
    return done.stdout or ""


def _keep(name: str, found: dict[str, Any]) -> None:
    record = {"date": datetime.now(UTC).date().isoformat(), "machine": machine.facts(), **found}
    (HERE / name).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
