"""No document states a measured figure that is not in docs/report.md, and the report is what its data files say."""

import re
from pathlib import Path

import pytest

from bench import documents, report
from optional import framework

framework("torch")  # the model of scale is a module of the front end for PyTorch

from figures import page  # noqa: E402

ROOT = Path(__file__).parents[2]
REPORT = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
# Decisions tell what was measured when they were made; operators and modules have generated pages without figures.
DOCUMENTS = [ROOT / "README.md", *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.name != "report.md")]
UNITS = {"×": "×", "times": "×", "s": "s", "seconds": "s", "ms": "ms", "µs": "µs", "ns": "ns", "GB/s": "GB/s"}
NUMBER = r"\d[\d,]*(?:\.\d+)?"
# Numbers with one unit: "6 to 8.6 times", "2.7–3.6 s", "1.06 ×". What follows a × in "8,192 × 30" makes it a shape.
FIGURE = re.compile(
    rf"(?<![\w.,–-])(?P<numbers>{NUMBER}(?:(?: to | and |–|, ){NUMBER})*) ?"
    rf"(?P<unit>×(?! ?[\d*`])|{'|'.join(re.escape(unit) for unit in UNITS if unit != '×')})(?![\w/])"
)
# Settings, definitions and inputs, which nobody measures.
STATED = {
    "performance.md": {(0.9, "s"), (40, "ms")},
    "from_tensorflow.md": {(32, "×")},
    # The costs of a log are computed.
    "tables.md": {(size, "×") for size in (16, 15.3, 11.4, 8.1, 5.2, 3.1, 12.5, 8.6, 6.5, 4.6, 3.0)},
    "scale.md": {(60, "s"), (100, "µs")},
}


def figures(text: str) -> set[tuple[float, str]]:
    """The numbers with a unit of time or speed, outside of code."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return {
        (float(number.replace(",", "")), UNITS[found["unit"]])
        for found in FIGURE.finditer(text)
        for number in re.findall(NUMBER, found["numbers"])
    }


def test_figures_are_found() -> None:
    text = "6 to 8.6 times as fast, 1.06 × | 8,192 × 30 ids, 2.7–3.6 s, 48.8 µs, float32, 3 steps\n```\n9 ms\n```\n"
    assert figures(text) == {(6, "×"), (8.6, "×"), (1.06, "×"), (2.7, "s"), (3.6, "s"), (48.8, "µs")}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_stated_figures_are_in_the_report(path: Path) -> None:
    unknown = figures(path.read_text(encoding="utf-8")) - figures(REPORT) - STATED.get(path.name, set())
    assert not unknown, (
        f"{path.name} states {sorted(unknown)}; measure them with `make report`, add them to benchmarks/apart.json "
        "with the command that measured them, or leave them out"
    )


@pytest.mark.parametrize("name", STATED)
def test_what_is_stated_elsewhere_is_still_there(name: str) -> None:
    assert STATED[name] <= figures((ROOT / "docs" / name).read_text(encoding="utf-8"))


def test_the_report_is_what_its_files_say() -> None:
    assert page.text(page.read(ROOT / "benchmarks")) == REPORT, "run `make report PARTS=none`"


def test_a_part_that_was_not_measured_says_so() -> None:
    text = page.text({})
    assert text.count("Not measured yet") == len(page.SECTIONS) and "`make report PARTS=values`" in text


def test_findings_and_differences_are_shown() -> None:
    found = page.read(ROOT / "benchmarks")
    found["values"]["torch"]["different"] = ["torch.float32/3"]
    found["adversary"] = {"date": "2024-06-07", "minutes": 1.0, "seed": 3, "attacks": {
        "flip": {"seconds": 60, "targets": 10, "attacked": 25, "calls": 1234},
        "fork": {"seconds": 60, "finding": "fork SparseSlice x1: ended with -11\nmore"},
    }}  # fmt: skip
    text = page.text(found)
    assert "- torch: torch.float32/3" in text
    assert "| `flip` | 60 | 10 | 25 | 1,234 | 0 |" in text and "| `fork` | 60 |  |  |  | 1 |" in text
    assert "- `fork`: fork SparseSlice x1: ended with -11\n" in text


def test_the_headline_is_that_of_the_results() -> None:
    found = report.read_json(ROOT / "benchmarks" / "results.json")
    assert documents.headline(found) in (ROOT / "README.md").read_text(encoding="utf-8")
