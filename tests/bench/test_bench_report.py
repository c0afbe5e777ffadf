"""What a run found is kept, judged and shown: as JSON, as tables on a terminal and in documents, as pictures."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from bench import documents, groups, machine, report, run
from bench.case import OURS, Case
from bench.contest import Entry
from bench.groups import operators
from optional import framework

ROOT = Path(__file__).parents[2]


def contest(case, ratio, ms=0.01):
    """A contest in which every other contestant took `ratio` times as long as we did."""
    timing = {"median_ms": 1.1, "rounds": 7, "calls": 1}
    names = [name for name in case.entries if name != OURS]
    return {
        "name": case.name, "group": case.group, "table": case.table, "row": case.row, "column": case.column,
        "threads": case.threads,
        "timings": {OURS: {"ms": ms, **timing}} | {name: {"ms": ms * ratio, **timing} for name in names},
        "ratios": dict.fromkeys(names, ratio), "limits": dict(case.limits),
        **({} if case.most_us is None else {"most_us": case.most_us}),
        **({} if case.intel is None else {"intel": case.intel}),
    }  # fmt: skip


@pytest.fixture
def imagined():
    """Results as if everything had been measured, and every other contestant took ten times as long as we did."""
    facts = machine.facts()
    facts["versions"]["tensorflow"] = "2.21.0"
    return {
        "format": run.FORMAT, "date": "2024-06-07", "machine": facts,
        "method": {"threads": 2, "rounds": 7, "others_share_of_cores": 0.2},
        "contests": [contest(case, 10.0) for case in groups.all_cases("normal")],
    }  # fmt: skip


@pytest.fixture(scope="module")
def alone():
    """A real run, of tiny work without peers."""
    cases = [operators._segment_case("SparseSegmentMeanGrad", 64, 8), operators._sparse_case("SparseSlice", 500)]
    steps = []
    found = run.run(cases, [], rounds=1, turn=0, progress=lambda *step: steps.append(step))
    assert [step[1:] for step in steps] == [(0, 2), (0, 2), (1, 2), (2, 2)]
    assert [step[0] for step in steps[1:3]] == [case.name for case in cases]
    return found


def shown(results, width=150):
    console = Console(file=io.StringIO(), width=width)
    report.show(results, console)
    return console.file.getvalue()


def lowered(results, name, peer, ratio):
    (one,) = [one for one in results["contests"] if one["name"] == name]
    one["ratios"][peer] = ratio


def test_a_run_holds_every_figure(alone):
    for one in alone["contests"]:
        assert set(one["timings"]) == {OURS}
        assert one["timings"][OURS]["ms"] > 0
        assert one["ratios"] == {}
    assert alone["machine"]["cores"] >= 1
    assert alone["machine"]["versions"]["numpy"]
    assert run.problems(alone) == []


def test_json_comes_back_and_has_a_contest_a_line(alone, tmp_path):
    path = tmp_path / "results.json"
    report.write_json(alone, path)
    assert report.read_json(path) == json.loads(path.read_text()) == alone
    assert sum(line.startswith('  {"name"') for line in path.read_text().splitlines()) == 2
    path.write_text('{"format": 0}')
    with pytest.raises(ValueError, match=r"format 0.*make bench"):
        report.read_json(path)


def test_results_are_merged_by_case(imagined, alone):
    both = report.merged(imagined, alone)
    names = [one["name"] for one in both["contests"]]
    assert len(names) == len(set(names))
    assert names[-2:] == [one["name"] for one in alone["contests"]]
    assert both["machine"]["versions"]["tensorflow"] == "2.21.0"
    assert both["method"]["rounds"] == 1
    assert both["method"]["others_share_of_cores"] >= 0.2
    assert report.merged(alone, alone)["contests"] == alone["contests"]


def test_figures_are_judged(imagined):
    late = [miss.text for miss in report.misses(imagined)]
    assert late == [
        "operators/SparseSegmentMeanGradV2, large batches, gradient, geometric mean: 10 × TensorFlow, at least 15",
        "operators/SparseSegmentMeanGradV2, large batches, gradient, geometric mean: 10 × PyTorch, at least 12",
    ]
    lowered(imagined, "recommender/512-w64/zipf/forward/2-threads", "torch", 2.0)
    lowered(imagined, "recommender/512-w64/zipf/forward/2-threads", "fbgemm", 2.2)
    lowered(imagined, "one layer/512x10/100kx64/step", "torch", 0.5)
    (small,) = [one for one in imagined["contests"] if one["name"] == "one layer/8x10/100kx64/forward"]
    small["timings"][OURS]["ms"] = 0.03
    late = [miss.text for miss in report.misses(imagined)]
    assert late[:2] == [
        "one layer/512x10/100kx64/step: 0.5 × PyTorch, at least 1",
        "one layer/8x10/100kx64/forward: 30 µs, at most 15",
    ]
    assert "recommender/512-w64/zipf/forward/2-threads: 2 × PyTorch, at least 2.4" in late  # Intel's
    assert len(late) == 5


def test_a_mean_of_some_rows_has_no_verdict(imagined):
    before = report.judged(imagined)
    gone = operators.SHAPES[0].title
    imagined["contests"] = [one for one in imagined["contests"] if one["row"] != gone]
    assert report.judged(imagined) < before
    assert report.misses(imagined) == []
    assert all(mean.met is None and mean.ratio == pytest.approx(10) for mean in report.means_of(imagined["contests"]))


def test_the_terminal_shows_all(imagined, alone):
    text = shown(imagined)
    for title, _ in groups.GROUPS.values():
        assert title in text
    for case in groups.all_cases("normal"):
        assert case.row in text
    assert "10 ×" in text and "(Intel's)" in text and "…" not in text
    recommender = "recommender: 65 of 65 figures are as good as they must be"
    assert recommender in text
    assert "10 × (≥ 15)" in text
    assert "Provisional figures: other programs took 20% of the cores' time meanwhile." in text
    assert "TensorFlow 2.21.0" in " ".join(text.split())
    assert "µs" in shown(alone) or "ms" in shown(alone)


def test_only_the_worst_misses_are_printed(imagined):
    for one in imagined["contests"]:
        one["ratios"] = dict.fromkeys(one["ratios"], 0.5)
    text = shown(imagined)
    part = text[text.index("recommender: 0 of") :].splitlines()
    assert len(part[1].split(": ")) == 2
    assert part[1 + report.MOST_MISSES].strip().startswith("and ")


def test_what_went_wrong_is_shown(imagined):
    one = imagined["contests"][0]
    one["timings"]["torch"] = {"problem": "wrong answer: all of it"}
    del one["ratios"]["torch"]
    text = shown(imagined)
    assert "failed" in text
    assert f"✗ {one['name']}: torch: wrong answer: all of it" in text
    assert "failed" in documents.tables(imagined)


@pytest.mark.parametrize(
    ("ms", "text"), [(0.00512, "5.12 µs"), (0.25, "0.25 ms"), (12.345, "12.3 ms"), (1234.5, "1234 ms")]
)
def test_milliseconds(ms, text):
    assert report.milliseconds(ms) == text


def test_documents_are_filled_between_markers(imagined, tmp_path):
    path = tmp_path / "performance.md"
    before = "# Speed\n\n<!-- bench:begin -->\nold\n<!-- bench:end -->\n\nwords\n\n"
    path.write_text(before + "<!-- bench:begin limits -->\n<!-- bench:end -->\nend\n")
    assert documents.refresh(imagined, [path], check=True) == [path]
    assert "old" in path.read_text()
    assert documents.refresh(imagined, [path]) == [path]
    text = path.read_text()
    assert "old" not in text
    assert text.startswith("# Speed\n\n<!-- bench:begin -->\n| 26 tables | forward: PyTorch | forward: FBGEMM |")
    assert "| batch 128, width 16, 1–20 ids | 10 × | 10 × | 10 × | 10 × | 10 × |" in text
    assert "| one layer: fused step | **10 ×** (10 – 10) |" in text
    assert "\nwords\n" in text and text.endswith("<!-- bench:end -->\nend\n")
    assert "| recommender | 65 | 65 |" in text
    assert "geometric mean: 10 × TensorFlow, at least 15" in text
    assert documents.refresh(imagined, [path], check=True) == []


def test_doubtful_figures_say_so_wherever_they_are_shown(imagined):
    imagined["method"] = {"threads": 2, "rounds": 3, "others_share_of_cores": 0.01}
    for text in (documents.summary(imagined), documents.machine(imagined), shown(imagined)):
        assert "Provisional figures: each was timed in 3 rounds only." in text
    imagined["method"]["rounds"] = 7
    for text in (documents.summary(imagined), documents.machine(imagined), shown(imagined)):
        assert "Provisional" not in text


def test_disturbed_contests_are_counted(imagined):
    imagined["method"]["others_share_of_cores"] = 0.01
    imagined["contests"][0]["others_share_of_cores"] = 0.5
    imagined["contests"][1]["others_share_of_cores"] = None
    count = len(imagined["contests"])
    assert report.doubts(imagined) == f"Provisional figures: other programs disturbed 1 of {count} comparisons."


def test_documents_without_markers_stay(imagined):
    assert documents.filled("# Nothing here\n", imagined) == "# Nothing here\n"
    with pytest.raises(
        ValueError, match="no table called 'tabels'; there are summary, headline, short, machine, limits, tables"
    ):
        documents.filled("<!-- bench:begin tabels -->\n<!-- bench:end -->\n", imagined)


def test_a_run_without_peers_has_a_summary_too(alone):
    assert documents.summary(alone) == "No peers were measured."
    assert "| SparseSegmentMeanGrad |" in documents.tables(alone)


def test_the_documents_command(imagined, tmp_path, capsys):
    report.write_json(imagined, tmp_path / "r.json")
    page = tmp_path / "p.md"
    page.write_text("<!-- bench:begin machine -->\n<!-- bench:end -->\n")
    arguments = [str(tmp_path / "r.json"), str(page)]
    assert documents.main(["--check", *arguments]) == 1
    assert "out of date" in capsys.readouterr().out
    assert documents.main(arguments) == 0
    assert documents.main(["--check", *arguments]) == 0
    assert "TensorFlow 2.21.0" in page.read_text()


@pytest.mark.skipif(not (ROOT / "benchmarks/results.json").exists(), reason="not in the source distribution")
def test_the_tables_of_this_project_are_those_of_its_results():
    found = report.read_json(ROOT / "benchmarks/results.json")
    assert documents.refresh(found, [ROOT / "docs/performance.md", ROOT / "README.md"], check=True) == []


def test_a_picture_is_drawn(imagined, alone, tmp_path):
    framework("matplotlib")
    from bench import pictures

    path = pictures.draw(imagined, tmp_path / "images")
    assert path.name == "benchmark.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    pictures.draw(alone, tmp_path)  # without peers
    panel = pictures.panels(imagined)["forward; Zipf ids, two threads"]
    assert panel["batch 128, width 16, 1–20 ids"] == {"torch": 10.0, "fbgemm": 10.0}


def test_others_are_watched():
    share = machine.Watch().share_of_others()
    assert share is None or 0 <= share <= 1


def test_groups_do_not_keep_each_others_tables(monkeypatch):
    forgotten = []
    monkeypatch.setattr(run.remembered, "forget", lambda: forgotten.append(True))
    entries = {OURS: lambda: Entry(lambda: None, list)}
    cases = [Case(group, key, "t", "r", "c", entries) for group, key in (("a", "1"), ("a", "2"), ("b", "1"))]
    run.run(cases, [], rounds=1, turn=0)
    assert forgotten == [True]
