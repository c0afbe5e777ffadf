"""Results as tables, for the terminal and for documents; what misses its limit; and the file that keeps them.

All take the plain data that `run` gives.
"""

import json
from collections.abc import Iterator
from math import exp, log
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.case import OURS, PEERS, title_of
from bench.contest import ROUNDS
from bench.groups import GROUPS, MEANS
from bench.run import FORMAT, problems

Results = dict[str, Any]

BUSY = 0.05  # of the cores' time; more than this for others, and figures are doubtful
INTEL = "(Intel's)"  # PyTorch's time / that of Intel's bags: what our ratio has to exceed
MOST_MISSES = 12  # of a group that are printed
WIDTH = 150  # columns for the tables, where standard output is no terminal


class Cell(NamedTuple):
    """A figure, and whether it is good."""

    text: str
    met: bool | None = None


class Grid(NamedTuple):
    """One table: headings, lines of cells that begin with the row's name."""

    group: str
    title: str
    headings: list[str]
    lines: list[list[Cell]]


class Miss(NamedTuple):
    """A figure that is not as good as it must be; `share` is the part of the limit that it reaches."""

    share: float
    text: str


def grids(results: Results) -> list[Grid]:
    """All contests as tables, in the order of the groups."""
    places: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in results["contests"]:
        places.setdefault((one["group"], one["table"]), []).append(one)
    order = {group: place for place, group in enumerate(GROUPS)}
    return [_grid(*key, contests) for key, contests in sorted(places.items(), key=lambda item: order[item[0][0]])]


def _grid(group: str, title: str, contests: list[dict[str, Any]]) -> Grid:
    columns: dict[tuple[str, str], None] = {}  # in the order of their first appearance
    cells: dict[str, dict[tuple[str, str], Cell]] = {}
    for one in contests:
        row = cells.setdefault(one["row"], {})
        for name in one["timings"]:
            columns[one["column"], name] = None
            row[one["column"], name] = _cell(one, name)
            if name == "torch" and "intel" in one:
                columns[one["column"], INTEL] = None
                row[one["column"], INTEL] = Cell(f"{one['intel']:g} ×")
    works = list(dict.fromkeys(work for work, _ in columns))
    ordered = [column for work in works for column in columns if column[0] == work]
    headings = ["", *(f"{work}:\n{OURS}" if name == OURS else title_of(name) for work, name in ordered)]
    lines = [[Cell(row), *(found.get(column, Cell("")) for column in ordered)] for row, found in cells.items()]
    limits = [_limit(contests, *column) for column in ordered]
    if any(limits):
        lines.insert(0, [Cell("must be at least"), *(Cell(limit) for limit in limits)])
    means = {(mean.column, mean.name): mean for mean in means_of(contests)}
    if means:
        cells_of_means = [
            Cell(f"{mean.ratio:.3g} × (≥ {mean.limit:g})", mean.met) if (mean := means.get(column)) else Cell("")
            for column in ordered
        ]
        lines.append([Cell("geometric mean"), *cells_of_means])
    return Grid(group, title, headings, lines)


class Mean(NamedTuple):
    """The geometric mean of a column's ratios, and what it must be; no verdict where rows are missing."""

    group: str
    table: str
    column: str
    name: str
    ratio: float
    limit: float
    met: bool | None


def means_of(contests: list[dict[str, Any]]) -> list[Mean]:
    """The means that have a limit."""
    found = []
    for (group, table), limits in MEANS.items():
        whole = [case for case in GROUPS[group][1]("normal") if case.table == table]
        for name, limit in limits.items():
            for column in dict.fromkeys(case.column for case in whole if name in case.entries):
                ratios = [
                    one["ratios"][name]
                    for one in contests
                    if (one["group"], one["table"], one["column"]) == (group, table, column) and name in one["ratios"]
                ]
                if ratios:
                    mean = geometric_mean(ratios)
                    complete = len(ratios) == sum(case.column == column for case in whole)
                    found.append(Mean(group, table, column, name, mean, limit, mean >= limit if complete else None))
    return found


def _limit(contests: list[dict[str, Any]], work: str, name: str) -> str:
    """The limit of a column, where all its rows have the same."""
    found = {one["limits"].get(name) for one in contests if one["column"] == work and name in one["timings"]}
    (only,) = found if len(found) == 1 else (None,)
    return "" if only is None else f"{only:.3g} ×"


def _cell(one: dict[str, Any], name: str) -> Cell:
    timing = one["timings"][name]
    if "problem" in timing:
        return Cell("failed", False)
    if name == OURS:
        most = one.get("most_us")
        text = milliseconds(timing["ms"])
        return Cell(text) if most is None else Cell(f"{text} (≤ {most:g})", timing["ms"] * 1e3 <= most)
    ratio = one["ratios"][name]
    needed = limits_of(one).get(name)
    met = None if needed is None else ratio >= needed
    return Cell(f"{ratio:.3g} ×", met)


def limits_of(one: dict[str, Any]) -> dict[str, float]:
    """What each ratio of a contest must reach: ahead of Intel's bags is part of it."""
    limits = dict(one["limits"])
    if "intel" in one and "torch" in limits:
        limits["torch"] = max(limits["torch"], one["intel"])
    return limits


def misses(results: Results) -> list[Miss]:
    """Every figure that is not as good as it must be, the worst first."""
    return sorted(_misses(results))


def _misses(results: Results) -> Iterator[Miss]:
    for one in results["contests"]:
        for name, limit in limits_of(one).items():
            ratio = one["ratios"].get(name)
            if ratio is not None and ratio < limit:
                yield Miss(ratio / limit, f"{one['name']}: {ratio:.3g} × {title_of(name)}, at least {limit:g}")
        most, ours = one.get("most_us"), one["timings"][OURS]["ms"] * 1e3
        if most is not None and ours > most:
            yield Miss(most / ours, f"{one['name']}: {ours:.3g} µs, at most {most:g}")
    for mean in means_of(results["contests"]):
        if mean.met is False:
            what = f"{mean.table}, {mean.column}, geometric mean"
            against = f"{mean.ratio:.3g} × {title_of(mean.name)}, at least {mean.limit:g}"
            yield Miss(mean.ratio / mean.limit, f"{mean.group}/{what}: {against}")


def judged(results: Results) -> int:
    """How many figures have a limit."""
    ratios = sum(len(limits_of(one).keys() & one["ratios"].keys()) for one in results["contests"])
    means = sum(mean.met is not None for mean in means_of(results["contests"]))
    return ratios + means + sum("most_us" in one for one in results["contests"])


def show(results: Results, console: Console) -> None:
    """Print everything: the ratios, what misses its limit, what went wrong."""
    if not console.is_terminal:
        console.width = WIDTH
    console.print(Text("How long rowgrad takes, and how many times longer the others take", "bold"))
    group = ""
    for grid in grids(results):
        if grid.group != group:
            group = grid.group
            console.print(Text(f"\n{GROUPS[group][0]}", "bold cyan"))
        console.print(Text(f"\n{grid.title}", "cyan"))
        console.print(_table(grid))
    for name in GROUPS:
        _show_misses(part_of(results, name), name, console)
    console.print(Text(f"\n{machine_line(results)}", "dim"), soft_wrap=True)
    for problem in problems(results):
        console.print(Text(f"✗ {problem}", "red"), soft_wrap=True)
    if doubt := doubts(results):
        console.print(Text(doubt, "yellow"), soft_wrap=True)


def part_of(results: Results, group: str) -> Results:
    """The results of one group."""
    return {**results, "contests": [one for one in results["contests"] if one["group"] == group]}


def _show_misses(results: Results, group: str, console: Console) -> None:
    late, all_of_them = misses(results), judged(results)
    if all_of_them:
        kept = Text(f"\n{group}: {all_of_them - len(late)} of {all_of_them} figures are as good as they must be")
        console.print(kept, style="" if late else "green")
    for miss in late[:MOST_MISSES]:
        console.print(Text(f"  {miss.text}", "red"), soft_wrap=True)
    if len(late) > MOST_MISSES:
        console.print(Text(f"  and {len(late) - MOST_MISSES} more", "red"))


def _table(grid: Grid) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True, min_width=33)  # so that columns of all tables stand below each other
    for heading in grid.headings[1:]:
        table.add_column(heading, justify="right", min_width=8, vertical="bottom")
    for first, *cells in grid.lines:
        styles = {True: "green", False: "bold red", None: ""}
        table.add_row(Text(f"  {first.text}"), *(Text(cell.text, styles[cell.met], no_wrap=True) for cell in cells))
    return table


def doubts(results: Results) -> str:
    """Why figures should not be relied on, or nothing; it goes wherever they go."""
    share, rounds = results["method"]["others_share_of_cores"], results["method"]["rounds"]
    reasons = []
    if share is not None and share > BUSY:
        reasons.append(f"other programs took {share:.0%} of the cores' time meanwhile")
    # A core taken away slows PyTorch's OpenMP threads more than ours: such ratios would flatter us.
    disturbed = sum((one.get("others_share_of_cores") or 0) > BUSY for one in results["contests"])
    if disturbed:
        reasons.append(f"other programs disturbed {disturbed} of {len(results['contests'])} comparisons")
    if rounds < ROUNDS:
        reasons.append(f"each was timed in {rounds} rounds only")
    return f"Provisional figures: {', and '.join(reasons)}." if reasons else ""


def machine_line(results: Results) -> str:
    """The machine and the versions, in one line."""
    facts = results["machine"]
    titles = {name: peer.title for name, peer in PEERS.items()}
    versions = ", ".join(f"{titles.get(name, name)} {number}" for name, number in facts["versions"].items())
    threads = results["method"]["threads"]
    return (
        f"{facts['cpu']}, {threads} threads on {facts['cores']} cores, {facts['memory_gb']:g} GB; {facts['system']}; "
        f"Python {facts['python']}, {versions}; {results['date']}"
    )


def merged(old: Results, new: Results) -> Results:
    """`new`, and what only `old` measured. The method is the worse of both."""
    names = {one["name"] for one in new["contests"]}
    kept = [one for one in old["contests"] if one["name"] not in names]
    shares = [part["method"]["others_share_of_cores"] for part in (old, new)]
    known = [share for share in shares if share is not None]
    method = {
        **new["method"],
        "rounds": min(old["method"]["rounds"], new["method"]["rounds"]) if kept else new["method"]["rounds"],
        "others_share_of_cores": max(known) if known else None,
    }
    versions = {**old["machine"]["versions"], **new["machine"]["versions"]}
    return {
        **new,
        "machine": {**new["machine"], "versions": versions},
        "method": method,
        "contests": [*kept, *new["contests"]],
    }


def write_json(results: Results, path: Path) -> None:
    """Keep `results` in a file, one contest a line, so that two runs can be compared by eye."""
    rest = {key: value for key, value in results.items() if key != "contests"}
    parts = [f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in rest.items()]
    lines = ",\n  ".join(json.dumps(one, ensure_ascii=False) for one in results["contests"])
    parts.append(f' "contests": [\n  {lines}\n ]')
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def read_json(path: Path) -> Results:
    """The results that `write_json` kept."""
    results = dict(json.loads(path.read_text(encoding="utf-8")))
    if results.get("format") != FORMAT:
        raise ValueError(f"{path} has format {results.get('format')}, and {FORMAT} is needed. Run make bench again.")
    return results


def milliseconds(value: float) -> str:
    """A time, three digits."""
    return f"{value * 1e3:.3g} µs" if value < 0.1 else f"{value:.3g} ms" if value < 1000 else f"{value:.0f} ms"


def geometric_mean(values: list[float]) -> float:
    """The mean of ratios."""
    return exp(sum(log(value) for value in values) / len(values))
