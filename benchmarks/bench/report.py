"""Results as tables: for the terminal, and for documents. All take the plain data that `run` gives and JSON keeps."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.contest import ROUNDS
from bench.contestants import PEERS
from bench.run import FORMAT, problems
from bench.work import OURS

Results = dict[str, Any]

BUSY = 0.05  # of the cores' time; more than this for others, and figures are doubtful
ITSELF = "itself"  # the column of variants
GROUPS = {
    "mean_grad_v2": "SparseSegmentMeanGradV2: compact gradient",
    "row_update": "Compact gradient and update of the table's rows",
    "train_row_wise": "Training step: forward, backward, row-wise Adagrad",
    "train_adagrad": "Training step: forward, backward, Adagrad",
    "train_adam": "Training step: forward, backward, Adam on rows (PyTorch: SparseAdam)",
    "layer": "Training step of a small batch by the layer; itself: by the kernels alone",
    "mean_grad": "SparseSegmentMeanGrad: dense gradient",
    "sum_grad": "SparseSegmentSumGrad: dense gradient of a sum",
    "mean": "SparseSegmentMean: forward",
    "unaligned": "SparseSegmentMean: forward, our arrays where NumPy places them",
    "shuffled": "SparseSegmentMeanGradV2, ids of all bags shuffled",
    "bfloat16": "SparseSegmentMeanGradV2 in bfloat16; itself: in float32",
    "int32": "SparseSegmentMeanGradV2, int32 ids; itself: int64 ids",
    "threads": "SparseSegmentMeanGradV2; itself: on one thread",
    "small": "SparseSegmentMeanGradV2, a small call",
    "width": "SparseSegmentMeanGradV2 by width",
    "ids": "SparseSegmentMeanGradV2 by number of ids",
    "fill": "SparseFillEmptyRows",
    "fill_grad": "SparseFillEmptyRowsGrad",
    "slice": "SparseSlice",
    "slice_grad": "SparseSliceGrad",
}


class Line(NamedTuple):
    """One contest: what it worked on, our time, and the ratios by column."""

    input: str
    ours: str
    ratios: dict[str, str]


class Section(NamedTuple):
    """The contests of one group."""

    title: str
    lines: list[Line]


def sections(results: Results) -> list[Section]:
    """All contests, group by group."""
    found = []
    for group, title in GROUPS.items():
        lines = [_line(one) for one in results["contests"] if one["group"] == group]
        if lines:
            found.append(Section(title, lines))
    return found


def columns(parts: list[Section]) -> dict[str, str]:
    """The columns of ratios that `parts` need, and their headings."""
    used = {column for part in parts for line in part.lines for column in line.ratios}
    headings = {name: peer.title for name, peer in PEERS.items()} | {ITSELF: ITSELF}
    return {name: title for name, title in headings.items() if name in used}


def show(results: Results, console: Console) -> None:
    """Print everything: the ratios, the promises, what went wrong."""
    console.print(Text("How long rowgrad takes, and how many times longer the others take", "bold"))
    for part in sections(results):
        console.print()
        console.print(Text(part.title, "cyan"))
        console.print(_section(part))
    console.print()
    if any(line["measured"] is not None for line in results["must_show"]):
        console.print(_promises(results))
    console.print(Text(machine_line(results), "dim"))
    for problem in problems(results):
        console.print(Text(f"✗ {problem}", "red"), soft_wrap=True)
    if doubt := doubts(results):
        console.print(Text(doubt, "yellow"), soft_wrap=True)


def doubts(results: Results) -> str:
    """Why figures should not be relied on, or nothing; it goes wherever they go."""
    share, rounds = results["method"]["others_share_of_cores"], results["method"]["rounds"]
    reasons = []
    if share is not None and share > BUSY:
        reasons.append(f"others took {share:.0%} of the cores' time meanwhile")
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


def verdict(line: dict[str, Any]) -> str:
    """Whether a promise is kept."""
    return {True: "yes", False: "no", None: "not measured" if line["measured"] is None else "in part"}[line["met"]]


def measured(line: dict[str, Any]) -> str:
    """The figure of a promise, with its unit."""
    return "" if line["measured"] is None else f"{line['measured']:.3g} {line['target'].split(' ', 2)[2]}"


def write_json(results: Results, path: Path) -> None:
    """Keep `results` in a file, one contest a line, so that two runs can be compared by eye."""
    lists = {key: value for key, value in results.items() if isinstance(value, list)}
    rest = {key: value for key, value in results.items() if key not in lists}
    parts = [f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in rest.items()]
    for key, values in lists.items():
        lines = ",\n  ".join(json.dumps(value, ensure_ascii=False) for value in values)
        parts.append(f" {json.dumps(key)}: [\n  {lines}\n ]")
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


def _line(one: dict[str, Any]) -> Line:
    ratios: dict[str, str] = {}
    for name, timing in one["timings"].items():
        column = name if name in PEERS or name == OURS else ITSELF
        if name != OURS:
            ratios[column] = "failed" if "problem" in timing else f"{_three(one['ratios'][name])} ×"
    return Line(one["input"], milliseconds(one["timings"][OURS]["ms"]), ratios)


def _three(ratio: float) -> str:
    return f"{ratio:.3g}" if ratio < 1000 else f"{ratio:.0f}"


def _colour(cell: str) -> str:
    if not cell:
        return ""
    return "bold red" if cell == "failed" or float(cell.split()[0]) < 1 else "green"


def _section(part: Section) -> Table:
    shown = columns([part])
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True, min_width=33)  # so that columns of all sections stand below each other
    for heading in (OURS, *shown.values()):
        table.add_column(heading, justify="right", no_wrap=True, min_width=9)
    for line in part.lines:
        cells = [Text(line.ratios.get(column, ""), _colour(line.ratios.get(column, ""))) for column in shown]
        table.add_row(Text(f"  {line.input}"), Text(line.ours), *cells)
    return table


def _promises(results: Results) -> Table:
    table = Table(title="what rowgrad promises", title_justify="left", title_style="bold")
    table.add_column("promise", overflow="fold")
    for heading in ("target", "measured", "as", "met"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in results["must_show"]:
        if line["measured"] is not None:
            said = verdict(line)
            style = {"yes": "green", "no": "bold red"}.get(said, "dim")
            table.add_row(line["line"], line["target"], measured(line), line["mean"], Text(said, style))
    return table
