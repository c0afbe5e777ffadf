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
from bench.case import peer_of, title_of
from bench.groups import GROUPS, dlrm, operators, recommender

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
STEP = "step, SGD"


def _line(one: dict[str, str]) -> str:
    """What a contest is counted under in the summary."""
    if one["group"] == recommender.NAME:
        return f"{one['table']}: {one['column']}"
    if one["group"] == recommender.UNTUNED:
        return f"models that were not tuned on: {one['column']}"
    if one["table"].endswith(" entries"):
        return "operators: 32 to 1,000,000 entries"
    return one["table"] if one["group"] == operators.NAME else f"{one['group']}: {one['column']}"


def headline(results: Results) -> str:
    """Two sentences: a training step of a whole model, and of its embedding part."""
    whole = {name: _between(results, name, lambda one: one["group"] == dlrm.NAME) for name in ("torch", "fbgemm")}
    part = {name: _between(results, name, _is_lead_step) for name in ("torch", "fbgemm")}
    return (
        f"A training step of a whole DLRM recommender, dense layers included, is **{whole['torch']} times as fast** as "
        f"with PyTorch's layers on two cores; {whole['fbgemm']} times as fast as with FBGEMM's. The embedding part "
        f"alone, with 26 tables and SGD, is **{part['torch']} times as fast** as PyTorch's and {part['fbgemm']} times "
        "as fast as FBGEMM's."
    )


def _is_lead_step(one: dict[str, str]) -> bool:
    return (one["group"], one["table"]) == LEAD and one["column"] == STEP


def _between(results: Results, name: str, counts: Callable[[dict[str, Any]], bool]) -> str:
    """The lowest and the highest ratio to a peer, of the contests that count."""
    ratios = [one["ratios"][name] for one in results["contests"] if counts(one) and name in one["ratios"]]
    return f"{min(ratios):.3g} to {max(ratios):.3g}" if ratios else "?"


def short(results: Results) -> str:
    """For the README: ratios of the whole model, then of its embedding part, case by case."""
    whole: dict[str, dict[str, str]] = {}
    part: dict[str, dict[str, str]] = {}
    for one in results["contests"]:
        ratios = {name: f"{ratio:.3g} ×" for name, ratio in one["ratios"].items() if peer_of(name) == name}
        if one["group"] == dlrm.NAME:
            whole.setdefault(one["row"], {}).update((title_of(name), text) for name, text in ratios.items())
        elif (one["group"], one["table"]) == LEAD:
            cells = part.setdefault(one["row"], {})
            cells.update((f"{one['column']}: {title_of(name)}", text) for name, text in ratios.items())
    named = {"training step of a whole DLRM": whole, "the embedding part: 26 tables": part}
    doubt = f"**{report.doubts(results)}** " if report.doubts(results) else ""
    found = [_ratios(title, cells) for title, cells in named.items() if cells]
    return "\n\n".join([*found, f"{doubt}{report.machine_line(results)}."])


def machine(results: Results) -> str:
    """What it was measured on."""
    lines = [f"- {report.machine_line(results)}"]
    share = results["method"]["others_share_of_cores"]
    if share is not None:
        lines.append(f"- other programs took {share:.1%} of the cores' time during the run")
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
    counts = table(["group", "figures with a limit", "met"], rows)
    return f"{counts}\n\nNot met:\n\n" + "\n".join(late) if late else counts


def tables(results: Results) -> str:
    """Every contest."""
    texts, group = [], ""
    for grid in report.grids(results):
        if grid.group != group:
            group = grid.group
            texts.append(f"### {GROUPS[group][0]}")
        headings = [heading.replace("\n", " ") for heading in grid.headings]
        texts.append(f"**{grid.title}**\n\n{table(headings, [[cell.text for cell in line] for line in grid.lines])}")
    return "\n\n".join(texts)


PARTS: dict[str, Callable[[Results], str]] = {
    "summary": summary,
    "headline": headline,
    "short": short,
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
    return table([title, *columns], rows)


def _range(ratios: list[float]) -> str:
    mean = f"**{report.geometric_mean(ratios):.3g} ×**"
    return mean if len(ratios) == 1 else f"{mean} ({min(ratios):.3g} – {max(ratios):.3g})"


def table(headings: list[str], rows: list[list[str]], *, right: bool = True) -> str:
    """A table in Markdown; all columns but the first to the right, unless told otherwise."""
    rule = ["---", *("---:" if right else "---" for _ in headings[1:])]
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
