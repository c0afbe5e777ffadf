"""`python -m bench`: time rowgrad beside the peers that are installed."""

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rowgrad._cli import show
from rowgrad._cli.problems import BAD_USAGE, Problem, QuietCommand

QUICK_ROUNDS, QUICK_TURN = 3, 0.02

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)


@app.command(cls=QuietCommand)
def bench(
    only: Annotated[
        str,
        typer.Option(
            metavar="GROUP/CASE",
            help="Only the cases whose name contains this; * and ? stand for anything. --list shows the names.",
        ),
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer cases and rounds: everything in three minutes.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="All of the grids of one layer and of segment sums: an hour and 12 GB; with --quick, fewer rounds.",
        ),
    ] = False,
    peers: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="all, none, or names: torch,fbgemm,tensorflow. Else those installed."),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How often each contestant is timed. The best counts.")
    ] = None,
    names: Annotated[bool, typer.Option("--list", help="Print the names of the cases, and measure nothing.")] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write every figure to this file.")] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Keep what FILE has of other cases.")] = False,
    pictures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw benchmark.png there (needs matplotlib).")
    ] = None,
) -> None:
    """Time rowgrad beside its peers, after checking that all give the same answers."""
    # Loaded here, so that --help stays quick.
    from bench import contest, report, run

    cases = _chosen_cases(only, "full" if full else "quick" if quick else "normal")
    if names:
        for case in cases:
            typer.echo(case.name)
        return
    chosen = _chosen_peers(peers)
    _check_targets(json, pictures)
    with _bar() as progress:
        results = run.run(
            cases,
            chosen,
            rounds=rounds or (QUICK_ROUNDS if quick else contest.ROUNDS),
            turn=QUICK_TURN if quick else contest.TURN,
            progress=progress,
        )
    report.show(results, show.output())
    problems = run.problems(results)
    if json is not None:
        if merge and json.exists():
            results = report.merged(report.read_json(json), results)
        report.write_json(results, json)
    if pictures is not None:
        from bench.pictures import draw

        draw(results, pictures)
    if problems:
        raise Problem(f"{len(problems)} of the answers or calls failed; see above.")


def _chosen_cases(only: str, size: str) -> list[Any]:
    from bench import groups
    from bench.case import matching

    everything = groups.all_cases(size)
    chosen = matching(everything, only)
    if not chosen:
        names = [case.name for case in everything]
        close = difflib.get_close_matches(only, names, n=3, cutoff=0.4) or names[:3]
        raise Problem(f"no case is called like {only!r}.", f"names are like {', '.join(close)}.", code=BAD_USAGE)
    return chosen


def _chosen_peers(text: str | None) -> list[str]:
    from bench.case import PEERS, missing

    if text is None:
        absent = missing(PEERS)
        return [name for name in PEERS if name not in absent]
    if text == "none":
        return []
    wanted = list(PEERS) if text == "all" else [name.strip().casefold() for name in text.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in PEERS]
    if unknown or not wanted:
        raise Problem(
            f"--peers: {unknown[0] if unknown else text!r} is no peer.",
            f"there are {', '.join(PEERS)}; or write all, or none.",
            code=BAD_USAGE,
        )
    absent = missing(wanted)
    if absent:
        titles = ", ".join(PEERS[name].title for name in absent)
        packages = " ".join(PEERS[name].distribution for name in absent)
        raise Problem(
            f"--peers: {titles} {'is' if len(absent) == 1 else 'are'} not installed.",
            f"pip install {packages}; or leave --peers out, to measure beside what is installed.",
        )
    return [name for name in PEERS if name in wanted]


def _check_targets(json: Path | None, pictures: Path | None) -> None:
    """Find out before the measuring, not after it, whether its results can be kept."""
    if pictures is not None and util.find_spec("matplotlib") is None:
        raise Problem("--pictures needs matplotlib, which is not installed.", "pip install matplotlib")
    for option, folder in (("--json", json and json.parent), ("--pictures", pictures)):
        if folder is None:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise Problem(f"{option}: {folder} is not a folder.") from None
        if not os.access(folder, os.W_OK):
            raise Problem(f"{option}: {folder} cannot be written to.")
    if json is not None and json.is_dir():
        raise Problem(f"--json: {json} is a folder.", f"write {json}/results.json")


@contextmanager
def _bar() -> Iterator[Any]:
    """Progress: a bar on a terminal, else a line a case. It is drawn between contests only: a thread would be timed."""
    console = show.errors()
    columns = (BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, console=console, auto_refresh=False, transient=True, disable=not console.is_terminal)
    with bar:
        task = bar.add_task("")

        def progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total, refresh=True)
            if not console.is_terminal:
                console.print(f"{done + 1}/{total} {what}" if done < total else what, soft_wrap=True)

        yield progress
