"""Results in documents: tables between markers, written by `make bench`, never by hand.

`python -m bench.documents results.json ../docs/performance.md ../README.md` fills each part that begins with
`<!-- bench:begin NAME -->` (or without a name, then it is the summary) and ends with `<!-- bench:end -->`.
With `--check` nothing is written, and stale files are an error.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import report
from bench.contestants import PEERS
from bench.targets import geometric_mean

Results = report.Results

MARKED = re.compile(
    r"^(?P<begin><!-- bench:begin(?: (?P<name>[\w-]+))? -->)\n.*?^(?P<end><!-- bench:end -->)$",
    re.MULTILINE | re.DOTALL,
)
SUMMARY = (
    "mean_grad_v2", "row_update", "train_row_wise", "train_adagrad", "train_adam", "mean_grad", "sum_grad", "mean",
    "fill", "fill_grad", "slice", "slice_grad",
)  # fmt: skip


def filled(text: str, results: Results) -> str:
    """`text` with the marked parts replaced by tables of `results`; text without markers stays as it is."""

    def part(found: re.Match[str]) -> str:
        name = found["name"] or "summary"
        if name not in PARTS:
            raise ValueError(f"there is no table called {name!r}; there are {', '.join(PARTS)}.")
        return f"{found['begin']}\n{PARTS[name](results)}\n{found['end']}"

    return MARKED.sub(part, text)


def summary(results: Results) -> str:
    """One line for each operator: how many times longer each peer takes, as geometric mean and range."""
    rows, used = [], set()
    for group in SUMMARY:
        contests = [one for one in results["contests"] if one["group"] == group]
        cells = {}
        for peer in PEERS:
            ratios = [one["ratios"][peer] for one in contests if peer in one["ratios"]]
            if ratios:
                cells[peer] = _range(ratios)
        if cells:
            used |= set(cells)
            rows.append((report.GROUPS[group], cells))
    if not rows:
        return "No peers were measured."
    shown = [peer for peer in PEERS if peer in used]
    table = _table(
        ["times longer than rowgrad", *(PEERS[peer].title for peer in shown)],
        [[title, *(cells.get(peer, "") for peer in shown)] for title, cells in rows],
    )
    doubt = f"**{report.doubts(results)}** " if report.doubts(results) else ""
    return f"{table}\n\n{doubt}Geometric mean (lowest – highest). {report.machine_line(results)}."


def machine(results: Results) -> str:
    """What it was measured on."""
    facts = results["machine"]
    lines = [f"- {report.machine_line(results)}"]
    if "copy_gb_s" in facts:
        lines.append(
            f"- memory, {results['method']['threads']} threads: copies {facts['copy_gb_s']:g} GB/s (read and written), "
            f"writes fresh pages at {facts['fresh_gb_s']:g} GB/s"
        )
    share = results["method"]["others_share_of_cores"]
    if share is not None:
        lines.append(f"- others took {share:.1%} of the cores' time during the run")
    if doubt := report.doubts(results):
        lines.append(f"- **{doubt}**")
    return "\n".join(lines)


def promises(results: Results) -> str:
    """The targets, and what was measured."""
    rows = [
        [line["line"], line["target"], report.measured(line), line["mean"], report.verdict(line)]
        for line in results["must_show"]
    ]
    return _table(["promise", "target", "measured", "which is the", "met"], rows)


def tables(results: Results) -> str:
    """Every contest."""
    texts = []
    for part in report.sections(results):
        shown = report.columns([part])
        rows = [[line.input, line.ours, *(line.ratios.get(column, "") for column in shown)] for line in part.lines]
        texts.append(f"### {part.title}\n\n{_table(['work', 'rowgrad', *shown.values()], rows)}")
    return "\n\n".join(texts)


PARTS: dict[str, Callable[[Results], str]] = {
    "summary": summary,
    "machine": machine,
    "promises": promises,
    "tables": tables,
}


def refresh(results: Results, paths: list[Path], *, check: bool = False) -> list[Path]:
    """Fill the tables of the files `paths`, unless `check`; gives those that are, or were, out of date."""
    stale = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        new = filled(text, results)
        if new != text:
            stale.append(path)
            if not check:
                path.write_text(new, encoding="utf-8")
    return stale


def _range(ratios: list[float]) -> str:
    mean = f"**{geometric_mean(ratios):.3g} ×**"
    return mean if len(ratios) == 1 else f"{mean} ({min(ratios):.3g} – {max(ratios):.3g})"


def _table(headings: list[str], rows: list[list[Any]]) -> str:
    rule = ["---", *("---:" for _ in headings[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, rule, *rows))


def main(arguments: list[str]) -> int:
    """The command; gives the exit code."""
    check = "--check" in arguments
    source, *documents = (Path(argument) for argument in arguments if argument != "--check")
    stale = refresh(report.read_json(source), documents, check=check)
    for path in stale:
        print(f"{path}: {'out of date; run make bench' if check else 'refreshed'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
