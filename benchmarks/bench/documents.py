"""Results in documents: tables between markers, written by `make bench`, never by hand.

`python -m bench.documents results.json ../docs/performance.md ../README.md` fills each part that begins with
`<!-- bench:begin NAME -->` (or without a name, then it is the summary) and ends with `<!-- bench:end -->`.
With `--check` nothing is written, and stale files are an error.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from bench import report
from bench.case import peer_of, title_of
from bench.groups import GROUPS, operators, recommender

Results = report.Results

MARKED = re.compile(
    r"^(?P<begin><!-- bench:begin(?: (?P<name>[\w-]+))? -->)\n.*?^(?P<end><!-- bench:end -->)$",
    re.MULTILINE | re.DOTALL,
)


def filled(text: str, results: Results) -> str:
    """`text` with the marked parts replaced by tables of `results`; text without markers stays as it is."""

    def part(found: re.Match[str]) -> str:
        name = found["name"] or "summary"
        if name not in PARTS:
            raise ValueError(f"there is no table called {name!r}; there are {', '.join(PARTS)}.")
        return f"{found['begin']}\n{PARTS[name](results)}\n{found['end']}"

    return MARKED.sub(part, text)


def summary(results: Results) -> str:
    """The recommender case by case, then a line for each other table: geometric mean and range of the ratios."""
    lead = [one for one in results["contests"] if (one["group"], one["table"]) == LEAD and one["ratios"]]
    rest = [one for one in results["contests"] if (one["group"], one["table"]) != LEAD and one["ratios"]]
    if not lead and not rest:
        return "No peers were measured."
    texts = []
    if lead:
        cells: dict[str, dict[str, str]] = {}
        for one in lead:
            for name, ratio in one["ratios"].items():
                cells.setdefault(one["row"], {})[f"{one['column']}: {title_of(name)}"] = f"{ratio:.3g} ×"
        texts.append(_ratios("26 tables", cells))
    if rest:
        ranges: dict[str, dict[str, list[float]]] = {}
        for one in rest:
            line = ranges.setdefault(_line(one), {})
            for name, ratio in one["ratios"].items():
                if peer_of(name) == name:
                    line.setdefault(title_of(name), []).append(ratio)
        texts.append(
            _ratios(
                "geometric mean (lowest – highest)",
                {line: {name: _range(ratios) for name, ratios in found.items()} for line, found in ranges.items()},
            )
        )
    doubt = f"**{report.doubts(results)}** " if report.doubts(results) else ""
    return "\n\n".join([*texts, f"{doubt}{report.machine_line(results)}."])


LEAD = (recommender.NAME, recommender.tables(2)[0])


def _line(one: dict[str, str]) -> str:
    """What a contest is counted under in the summary."""
    if one["group"] == recommender.NAME:
        return f"{one['table']}: {one['column']}"
    if one["group"] == recommender.UNTUNED:
        return f"models that were not tuned on: {one['column']}"
    if one["table"].endswith(" entries"):
        return "operators: 32 to 1,000,000 entries"
    return one["table"] if one["group"] == operators.NAME else f"{one['group']}: {one['column']}"


def machine(results: Results) -> str:
    """What it was measured on."""
    lines = [f"- {report.machine_line(results)}"]
    share = results["method"]["others_share_of_cores"]
    if share is not None:
        lines.append(f"- others took {share:.1%} of the cores' time during the run")
    if doubt := report.doubts(results):
        lines.append(f"- **{doubt}**")
    return "\n".join(lines)


def limits(results: Results) -> str:
    """Group by group: how many figures are as good as they must be, and every one that is not."""
    rows, late = [], []
    for group in GROUPS:
        part = report.part_of(results, group)
        count, missed = report.judged(part), report.misses(part)
        if count:
            rows.append([group, str(count), str(count - len(missed))])
            late += [f"- {miss.text}" for miss in missed]
    table = _table(["group", "figures with a limit", "met"], rows)
    return f"{table}\n\nNot met:\n\n" + "\n".join(late) if late else table


def tables(results: Results) -> str:
    """Every contest."""
    texts, group = [], ""
    for grid in report.grids(results):
        if grid.group != group:
            group = grid.group
            texts.append(f"### {GROUPS[group][0]}")
        headings = [heading.replace("\n", " ") for heading in grid.headings]
        texts.append(f"**{grid.title}**\n\n{_table(headings, [[cell.text for cell in line] for line in grid.lines])}")
    return "\n\n".join(texts)


PARTS: dict[str, Callable[[Results], str]] = {
    "summary": summary,
    "machine": machine,
    "limits": limits,
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


def _ratios(title: str, lines: dict[str, dict[str, str]]) -> str:
    """A table of ratios, with the columns in the order of their first appearance."""
    columns = list(dict.fromkeys(column for cells in lines.values() for column in cells))
    rows = [[line, *(cells.get(column, "") for column in columns)] for line, cells in lines.items()]
    return _table([title, *columns], rows)


def _range(ratios: list[float]) -> str:
    mean = f"**{report.geometric_mean(ratios):.3g} ×**"
    return mean if len(ratios) == 1 else f"{mean} ({min(ratios):.3g} – {max(ratios):.3g})"


def _table(headings: list[str], rows: list[list[str]]) -> str:
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
