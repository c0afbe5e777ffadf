"""`rowgrad run PAGE`: run a page once or in a loop, print what each block gives, and keep it if asked to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from rowgrad._cli import formats, show, targets, values
from rowgrad._cli.problems import BAD_DATA, BAD_USAGE, Problem
from rowgrad._runtime import files
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.threads import MOST_THREADS, set_num_threads
from rowgrad.blocks import BlockResult, Page, Results, Session
from rowgrad.blocks import Progress as Report
from rowgrad.blocks.results import DONE, FAILED
from rowgrad.blocks.runs import to_csv
from rowgrad.blocks.summaries import EventFile

FEED = "Feed a placeholder: name=@x.npy, name=@x.npz:member, name=@x.csv:column, or a literal, name='[1, 2]'."


def run(
    page: Annotated[Path, typer.Argument(metavar="PAGE", help="A page file.")],
    feed: Annotated[list[str] | None, typer.Option("--feed", metavar="NAME=VALUE", help=FEED)] = None,
    fetch: Annotated[
        list[str] | None,
        typer.Option(
            "--fetch",
            metavar="BLOCK[:PIN]",
            help="Run and show only this block or output, and those it needs; repeatable.",
        ),
    ] = None,
    loop: Annotated[
        int | None, typer.Option("--loop", metavar="N", min=1, help="Run the page N times, and show the last results.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the shown results to an .npz file.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw the page with its results, as .svg or .png.")
    ] = None,
    every: Annotated[int, typer.Option("--every", metavar="N", min=1, help="Record every N-th step of a loop.")] = 1,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write the recorded values of a loop as CSV.")
    ] = None,
    logdir: Annotated[
        Path | None,
        typer.Option(
            "--logdir", metavar="DIR", help="Write the recorded values of a loop for TensorBoard, step by step."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no results.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite existing files.")] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="N", min=1, max=MOST_THREADS, help="The number of threads.")
    ] = None,
) -> None:
    """Run a page, and print the results of its blocks as tables."""
    if out is not None:
        if out.suffix.lower() != ".npz":
            raise Problem(f"--out {out}: results are written as .npz.", code=BAD_USAGE)
        targets.check_place(out, "--out", force=force)
    if svg is not None:
        formats.check_picture(svg)
        targets.check_place(svg, "--svg", force=force)
    if loop is None and (csv is not None or logdir is not None):
        raise Problem("--csv and --logdir need --loop N, which records values.", code=BAD_USAGE)
    if csv is not None:
        targets.check_place(csv, "--csv", force=force)
    if threads is not None:
        set_num_threads(threads)
    drawn = formats.load(page)
    session = Session(drawn)
    feeds = dict(_parsed(text) for text in feed or [])
    names = [str(drawn.wire(name)) if name not in drawn else name for name in fetch or []]
    console = show.output()
    with _summaries(logdir, drawn) as events:
        results, changes, steps = _run(session, names, feeds, loop, every, events)
    _print_lines(console, session)
    if not quiet:
        print_results(console, drawn, results, names)
    _print_changes(console, changes, steps)
    if out is not None:
        arrays = dict(_arrays(results, names))
        files.write(out, arrays)
        show.errors().print(f"wrote {len(arrays)} arrays to {out}", style="dim", markup=False, soft_wrap=True)
    if csv is not None:
        csv.write_text(to_csv(session.runs.values()), encoding="utf-8")
        show.errors().print(f"wrote {csv}", style="dim", markup=False, soft_wrap=True)
    if svg is not None:
        formats.draw(drawn, session, svg)
        show.errors().print(f"drew {svg}", style="dim", markup=False, soft_wrap=True)
    if results.errors:
        raise typer.Exit(_report(results))


def _parsed(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Problem(f"--feed {text}: write name=value.", FEED, code=BAD_USAGE)
    return name, values.parse(value.removeprefix("@"))


def _run(
    session: Session, names: list[str], feeds: dict[str, Any], loop: int | None, every: int, events: EventFile | None
) -> tuple[Results, dict[str, tuple[float, float]], int]:
    """The results, how single numbers that were asked for went from a loop's first step to its last, and its steps."""
    if loop is None:
        with show.waiting("running"):
            return session.run(names or None, feeds), {}, 1
    record = [name for name in names if ":" in name] or _scalars(session.page)
    with bar("step") as progress:
        on_record = None if events is None else events.values
        history = session.loop(loop, feeds, record=record, name="run", every=every, progress=progress,
                               on_record=on_record)  # fmt: skip
    changes = {}
    for name, found in history.values.items():
        if found and found[0].size == 1 and found[0].dtype.kind == "f":
            changes[name] = (float(found[0].reshape(())), float(found[-1].reshape(())))
    results = history.results
    if names and not results.errors:
        results = Results({name.partition(":")[0]: results[name.partition(":")[0]] for name in names})
    return results, changes, history.steps


@contextmanager
def _summaries(logdir: Path | None, page: Page) -> Iterator[EventFile | None]:
    """The event file of a loop, if one is wanted."""
    if logdir is None:
        yield None
        return
    with EventFile(logdir) as events:
        events.graph(page)
        yield events
    show.errors().print(f"wrote {events.path}", style="dim", markup=False, soft_wrap=True)


def _print_lines(console: Console, session: Session) -> None:
    """What Print blocks have said."""
    for line in session.printed:
        console.print(Text.assemble((f"step {line.step}, {line.block}: ", "dim"), line.text), soft_wrap=True)


def _scalars(page: Page) -> list[str]:
    """The single numbers at which wires end: losses and the like."""
    found = []
    for block in page:
        for pin in block.operator.outputs:
            signal = page.signal(f"{block.id}:{pin.name}")
            if signal.shape == () and signal.dtype in ("float32", "float64") and block.operator.role == "operator":
                found.append(f"{block.id}:{pin.name}")
    return found


@contextmanager
def bar(word: str) -> Iterator[Any]:
    """A progress bar on a terminal, as a callback for sessions."""
    console = show.errors()
    columns = (TextColumn(word), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(word)

        def progress(report: Report) -> None:
            shown.update(task, completed=report.step, total=report.steps)

        yield progress


def print_results(console: Console, page: Page, results: Results, names: list[str]) -> None:
    """Each block's results as tables; of blocks that have none, why."""
    pins = {name for name in names if ":" in name}
    for id, result in results.items():
        title = Text.assemble((id, "bold"), (f"  {result.op}" if result.op != id else "", "dim"))
        console.print(title)
        if result.status != DONE:
            style = "red" if result.status == FAILED else "dim"
            console.print(Padding(Text(result.reason, style), (0, 0, 0, 2), expand=False))
            continue
        wanted = {pin: array for pin, array in result.outputs.items() if _is_wanted(id, pin, pins, names)}
        parts = [show.result(pin, array, console.width - 4) for pin, array in wanted.items()]
        if parts:
            show.side_by_side(console, parts)


def _is_wanted(id: str, pin: str, pins: set[str], names: list[str]) -> bool:
    return not names or id in names or f"{id}:{pin}" in pins


def _print_changes(console: Console, changes: dict[str, tuple[float, float]], steps: int) -> None:
    for name, (first, last) in changes.items():
        factor = f", {first / last:.4g} times smaller" if 0 < last < first else ""
        console.print(Text(f"{name}: {first:.6g} in step 1, {last:.6g} in step {steps}{factor}"))


def _arrays(results: Results, names: list[str]) -> Iterator[tuple[str, Array]]:
    pins = {name for name in names if ":" in name}
    for id, result in results.items():
        if result.status == DONE:
            for pin, array in result.outputs.items():
                if _is_wanted(id, pin, pins, names):
                    yield f"{id}:{pin}", np.asarray(array)


def _report(results: Results) -> int:
    """Say once more, on standard error, what failed, and what was skipped for it."""
    console = show.errors()
    for result in results.values():
        if result.status == FAILED:
            console.print(Text.assemble(("error: ", "bold red"), (str(result.error), "red")), soft_wrap=True)
    skipped: list[BlockResult] = [result for result in results.values() if result.needs]
    if skipped:
        console.print(Text(f"skipped, because they need it: {', '.join(r.block for r in skipped)}"), soft_wrap=True)
    return BAD_DATA
