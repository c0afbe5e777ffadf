"""docs/report.md, from the JSON files of the parts. Nothing is measured here, and nobody edits the page by hand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import scale_report
from bench import documents
from disk import report as disk_report

Found = dict[str, Any]

FILES = ("results", "values", "adversary", "cold", "scale", "disk", "apart")
HEAD = """# Report

`make report` measures what the documentation states and writes this page. Other pages and the README repeat figures of
this page; none states a figure that is not here. `make report PARTS="values scale"` runs some parts; the others keep
their last figures, with their date.
"""
MISSING = "Not measured yet: `make report PARTS={}`."


def read(folder: Path) -> dict[str, Found]:
    """What the parts found, by the name of their file; those without a file are missing."""
    paths = {name: folder / f"{name}.json" for name in FILES}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()}


def text(found: dict[str, Found]) -> str:
    """The whole page."""
    parts = [HEAD]
    for title, name, part, write in SECTIONS:
        parts.append(f"## {title}\n\n{write(found[name]) if name in found else MISSING.format(part)}\n")
    return "\n".join(parts)


def models(found: Found) -> str:
    """The benchmark, in short."""
    text = "A ratio is the peer's time / ours: above 1, rowgrad is faster. [How it is measured](performance.md)."
    return f"{text}\n\n{documents.summary(found)}"


def same_values(found: Found) -> str:
    """Cases compared with PyTorch and TensorFlow."""
    peers = {
        "torch": "PyTorch {}: the sample inputs of its tests of `embedding_bag`, with gradients",
        "tensorflow": "TensorFlow {}: the calls of `tests/data`, made again",
    }
    rows = []
    for peer, title in peers.items():
        counts = [found[peer]["cases"], *found[peer]["ended"].values()]
        rows.append([title.format(found["versions"][peer]), *map(str, counts)])
    wrong = [f"- {peer}: {name}" for peer in peers for name in found[peer]["different"]]
    note = (
        "Rounding differs where PyTorch sums in another order, and where TensorFlow treats subnormal numbers as zero "
        "or approximates exp differently. PyTorch rounds sums of half and bfloat16 after every addition, rowgrad once. "
        "[Deviations from TensorFlow](deviations.md)."
    )
    table = documents.table(["results compared by value", "cases", *found["torch"]["ended"]], rows)
    return "\n\n".join([_where(found), table, note, *(["\n".join(wrong)] if wrong else [])])


def attacks(found: Found) -> str:
    """Targets, calls and findings of the adversary."""
    rows, wrong = [], []
    for name, count in found["attacks"].items():
        counts = [f"{count[key]:,}" if key in count else "" for key in ("targets", "attacked", "calls")]
        rows.append([f"`{name}`", f"{count['seconds']}", *counts, "1" if "finding" in count else "0"])
        if "finding" in count:
            wrong.append(f"- `{name}`: {count['finding'].splitlines()[0]}")
    table = documents.table(["attack", "seconds", "targets", "attacked", "calls", "findings"], rows)
    text = (
        f"{found['minutes']:g} minutes, seed {found['seed']}, {found['date']}. A target is an operator, an optimizer "
        "or a layer with inputs of one size; it may be attacked several times. [What each attack does](reliability.md)."
    )
    return "\n\n".join([text, table, *(["\n".join(wrong)] if wrong else [])])


def first_calls(found: Found) -> str:
    """Where no kernel has been compiled."""
    slowest = {name: max(calls.values()) for name, calls in found["cases"].items() if calls}
    times = sorted(slowest.values())
    over = sum(taken > found["limit"] for taken in times)
    middle, late = times[len(times) // 2], times[int(len(times) * 0.95)]
    rows = [[name, f"{taken:.2f} s"] for name, taken in sorted(slowest.items(), key=lambda item: -item[1])[:10]]
    text = (
        f"{len(times)} of {found['of']} cases (`benchmarks/cold.py`), by {found['clock']}. The slowest call of a case "
        f"takes {middle:.2f} s in the median, and at most {late:.2f} s in 95 % of the cases; {over} take longer than "
        f"{found['limit']:g} s."
    )
    return "\n\n".join([_where(found), text, documents.table(["slowest cases", "first call"], rows)])


def scale(found: Found) -> str:
    """Tables spread over ranks."""
    parts = (scale_report.constants, scale_report.race, scale_report.model, scale_report.nodes)
    return "\n\n".join([*(part(found) for part in parts), "[What it means](scale.md)."])


def disk(found: Found) -> str:
    """Tables on disk, look-ups of keys."""
    return f"{disk_report(found)}\n\n[What it means](tables.md)."


def apart(found: Found) -> str:
    """Figures that no part measures."""
    rows = [[entry["what"], entry["found"], entry["how"], entry["date"]] for entry in found["figures"]]
    text = "Measured by hand on the machine above while other programs were running: orders of magnitude."
    return f"{text}\n\n{documents.table(['what', 'figures', 'how', 'date'], rows, right=False)}"


SECTIONS: tuple[tuple[str, str, str, Callable[[Found], str]], ...] = (
    ("Models, layers and operators", "results", "bench", models),
    ("The same results", "values", "values", same_values),
    ("Attacks", "adversary", "adversary", attacks),
    ("First calls", "cold", "first-calls", first_calls),
    ("Over several processes", "scale", "scale", scale),
    ("Tables on disk", "disk", "disk", disk),
    ("Measured apart", "apart", "none", apart),
    ("Limits", "results", "bench", documents.limits),
    ("Every time", "results", "bench", documents.tables),
)


def _where(found: Found) -> str:
    facts = found["machine"]
    return f"{facts['cpu']}, {facts['cores']} cores, {facts['system']}, Python {facts['python']}; {found['date']}."
