"""`rowgrad doctor`: what is installed, what the machine offers, where compiled kernels are, and whether all works."""

import json
import os
import platform
from importlib import metadata
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

import rowgrad
from rowgrad import _kernels as kernels
from rowgrad._cli import examples, names, show
from rowgrad._runtime.threads import get_num_threads
from rowgrad.errors import RowgradError

NEEDED = ("numpy", "numba", "llvmlite", "ml_dtypes")
WELCOME = ("torch", "jax", "tensorflow", "pyarrow")
VECTOR_UNITS = ("sse", "ssse", "avx", "fma", "f16c", "amx", "neon", "asimd", "sve", "vsx", "rvv")


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    warm: Annotated[bool, typer.Option("--warm", help="Compile all kernels for all types first.")] = False,
) -> None:
    """Check the installation: versions, threads, CPU, compiled kernels, and a self-test of every operator."""
    if warm:
        compile_all()
    with show.waiting("running every operator's worked example"):
        findings = examine()
    if as_json:
        typer.echo(json.dumps(findings, indent=2))
    else:
        _print(show.output(), findings)
    if not findings["ok"]:
        raise typer.Exit(1)


def compile_all() -> None:
    """Run what makes Numba compile every kernel, with a progress bar."""
    from rowgrad._cli.warm import tasks

    console = Console(stderr=True)
    for label, task in track(tasks(), "compiling kernels", console=console, disable=not console.is_terminal):
        try:
            task()
        except RowgradError as error:
            error.add_note(f"while compiling for {label}")
            raise


def examine() -> dict[str, Any]:
    """All findings as plain data. The self-test comes before the count of kernels, which it may add to."""
    tests = [{"operator": op.name, "problem": examples.problem_of(op)} for op in names.in_order()]
    findings: dict[str, Any] = {
        "versions": _versions(),
        "threads": _threads(),
        "cpu": _tried(_cpu),
        "cache": _tried(_cache),
        "self_test": tests,
    }
    parts = [findings["threads"], findings["cpu"], findings["cache"], *tests]
    findings["ok"] = not any(part["problem"] for part in parts)
    return findings


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"rowgrad": rowgrad.__version__, "python": platform.python_version()}
    for name in (*NEEDED, *WELCOME):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def _threads() -> dict[str, Any]:
    is_set = bool(os.environ.get("ROWGRAD_NUM_THREADS"))
    try:
        source = "ROWGRAD_NUM_THREADS" if is_set else "the cores this process may use"
        return {"count": get_num_threads(), "source": source, "problem": ""}
    except RowgradError as error:
        return {"count": None, "source": "ROWGRAD_NUM_THREADS", "problem": str(error)}


def _cpu() -> dict[str, Any]:
    from llvmlite import binding

    features = (name for name, has in binding.get_host_cpu_features().items() if has)
    return {
        "name": binding.get_host_cpu_name(),
        "machine": platform.machine(),
        "vector_features": sorted(name for name in features if name.startswith(VECTOR_UNITS)),
        "problem": "",
    }


def _cache() -> dict[str, Any]:
    folder = kernels.compile.cache_folder()
    if folder is None:
        problem = "no folder is writable, so kernels are compiled again in each process; set ROWGRAD_CACHE_DIR"
        return {"folder": None, "kernels": 0, "variants": 0, "megabytes": 0.0, "problem": problem}
    # One file for each kernel and combination of types: module.kernel.digest.nbc
    sizes = {path.name: path.stat().st_size for path in folder.glob(f"*{kernels.compile.SUFFIX}")}
    return {
        "folder": str(folder),
        "kernels": len({name.rsplit(".", 2)[0] for name in sizes}),
        "variants": len(sizes),
        "megabytes": round(sum(sizes.values()) / 1e6, 1),
        "problem": "",
    }


def _tried(find: Any) -> dict[str, Any]:
    """What `find` finds; an installation may be broken in any way, and the doctor must still be able to speak."""
    try:
        return dict(find())
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {error}"}


def _print(console: Console, findings: dict[str, Any]) -> None:
    about = Table.grid(padding=(0, 2))
    about.add_column(style="bold", no_wrap=True)
    about.add_column(ratio=1)
    for name, version in findings["versions"].items():
        about.add_row(name, version or Text("not installed", "dim" if name in WELCOME else "bold red"))
    threads, cpu, cache = findings["threads"], findings["cpu"], findings["cache"]
    about.add_row("threads", _or_problem(threads, lambda: f"{threads['count']}, from {threads['source']}"))
    about.add_row("CPU", _or_problem(cpu, lambda: f"{cpu['name']} ({cpu['machine']})"))
    if not cpu["problem"]:
        about.add_row("vectors", " ".join(cpu["vector_features"]) or "none reported")
    about.add_row("kernels", _or_problem(
        cache, lambda: f"{cache['kernels']} compiled, {cache['variants']} variants, {cache['megabytes']} MB"
    ))  # fmt: skip
    if not cache["problem"]:
        about.add_row("kept in", Text(cache["folder"], overflow="fold"))
    console.print(about)
    console.print()
    tests = findings["self_test"]
    for test in tests:
        mark = Text("✗ ", "bold red") if test["problem"] else Text("✓ ", "green")
        console.print(Text.assemble(mark, test["operator"], (f"  {test['problem']}" if test["problem"] else "", "red")))
    console.print()
    failed = sum(bool(test["problem"]) for test in tests)
    if failed:
        console.print(Text(f"{failed} of {len(tests)} operators fail their worked example.", "bold red"))
    elif findings["ok"]:
        console.print(
            Text(f"No problems found: {len(tests)} operators give the results that the catalogue states.", "green")
        )
    else:
        console.print(Text("The operators work, but see the problem above.", "bold red"))


def _or_problem(part: dict[str, Any], text: Any) -> Text:
    return Text(part["problem"], "bold red") if part["problem"] else Text(text())
