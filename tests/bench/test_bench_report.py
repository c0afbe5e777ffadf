"""What a run found is kept, judged and shown: as JSON, as tables on a terminal and in documents, as pictures."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from bench import documents, machine, memory, report, run, targets
from bench.work import SHAPES, SMALL, Bags, Entries, Work, all_work, sized
from optional import framework

ROOT = Path(__file__).parents[2]
TINY = Bags(300, 8, 64, 5, "zipf")


@pytest.fixture(scope="module")
def results():
    """A real run, of tiny work without peers."""
    works = [Work("mean_grad_v2", "mean_grad_v2", TINY), Work("slice_grad", "slice_grad", Entries(500))]
    steps = []
    found = run.run(
        works, [], rounds=1, pause=0, speeds=False, peak_memory=False, progress=lambda *step: steps.append(step)
    )
    assert [step[1:] for step in steps] == [(0, 2), (0, 2), (1, 2), (2, 2)]
    assert [step[0] for step in steps[1:3]] == ["mean_grad_v2/300-8-zipf", "slice_grad/500"]
    return found


@pytest.fixture
def imagined():
    """Results as if every peer took ten times as long as we do, and everything had been measured."""
    contests = []
    for work in all_work():
        names = [*work.rivals, *work.variants]
        timings = {name: {"ms": 10.0, "median_ms": 11.0, "rounds": 7, "calls": 1} for name in names}
        timings["rowgrad"] = {"ms": work.input.size / 1e5, "median_ms": 1.1, "rounds": 7, "calls": 1}
        contests.append({
            "name": work.name, "operator": work.operation, "group": work.group, "input": work.input.title,
            "size": work.input.size, "bytes": 10_000_000, "timings": timings, "ratios": dict.fromkeys(names, 10.0),
        })  # fmt: skip
    facts = {**machine.facts(), "copy_gb_s": 30.0, "fresh_gb_s": 6.0}
    facts["versions"]["tensorflow"] = "2.21.0"
    found = {
        "format": run.FORMAT, "date": "2024-06-07", "machine": facts,
        "method": {"threads": 2, "rounds": 7, "others_share_of_cores": 0.2}, "contests": contests,
        "memory": [{"operator": op, "ids": 10, "bytes_per_id": 20.0} for op in memory.OPERATIONS],
    }  # fmt: skip
    return {**found, "must_show": targets.judge(found)}


def shown(results, width=80):
    console = Console(file=io.StringIO(), width=width)
    report.show(results, console)
    return console.file.getvalue()


def test_a_run_holds_every_figure(results):
    first, second = results["contests"]
    assert first["name"] == "mean_grad_v2/300-8-zipf"
    assert first["operator"] == "SparseSegmentMeanGradV2"
    assert (first["size"], second["size"]) == (320, 500)
    for one in results["contests"]:
        assert set(one["timings"]) == {"rowgrad"}
        assert one["timings"]["rowgrad"]["ms"] > 0
        assert one["ratios"] == {}
        assert one["bytes"] > 0
    assert results["machine"]["cores"] >= 1
    assert results["machine"]["versions"]["numpy"]
    assert run.problems(results) == []


def test_json_comes_back_and_has_a_contest_a_line(results, tmp_path):
    path = tmp_path / "results.json"
    report.write_json(results, path)
    assert report.read_json(path) == json.loads(path.read_text()) == results
    lines = path.read_text().splitlines()
    assert sum(line.startswith('  {"name"') for line in lines) == 2
    path.write_text('{"format": 0}')
    with pytest.raises(ValueError, match=r"format 0.*make bench"):
        report.read_json(path)


def test_promises_are_judged(imagined):
    lines = {line["line"]: line for line in imagined["must_show"]}
    whole = lines["SparseSegmentMeanGradV2 against TensorFlow"]
    assert (whole["target"], whole["measured"], whole["met"], whole["aim"]) == ("≥ 12 ×", 10.0, False, 20)
    each = lines["SparseSegmentMeanGradV2 against TensorFlow, each shape"]
    assert (each["target"], each["met"], set(each["figures"])) == ("≥ 8 ×", True, {s.title for s in SHAPES})
    memory_line = lines["peak memory beside the results"]
    assert (memory_line["measured"], memory_line["met"]) == (20.0, True)
    assert lines["time of bfloat16 to float32, each shape"]["measured"] == 0.1
    assert lines["time per id of 10,000,000 ids to 100,000 ids"]["measured"] == 1.0
    assert len(lines["two threads against one, large shapes"]["figures"]) == 4
    assert len(next(line for name, line in lines.items() if name.startswith("fill and slice"))["figures"]) == 8
    assert all(line["met"] is not None for line in lines.values())


def test_a_promise_measured_in_part_is_not_judged(imagined):
    imagined["contests"] = [one for one in imagined["contests"] if one["input"] != SHAPES[0].title]
    imagined["memory"] = []
    lines = {line["line"]: line for line in targets.judge(imagined)}
    part = lines["SparseSegmentMeanGrad against TensorFlow, each shape"]
    assert (part["measured"], part["met"], report.verdict(part)) == (10.0, None, "in part")
    none = lines["peak memory beside the results"]
    assert (none["measured"], none["met"], report.verdict(none)) == (None, None, "not measured")


def test_the_terminal_shows_all_within_80_columns(imagined, results):
    text = shown(imagined)
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith("Provisional"))
    for title in report.GROUPS.values():
        assert title in text
    assert "10 ×" in text
    assert "…" not in text
    assert "Provisional figures: others took 20% of the cores' time meanwhile." in text
    assert "TensorFlow 2.21.0" in " ".join(text.split())
    assert "µs" in shown(results) or "ms" in shown(results)


def test_what_went_wrong_is_shown(imagined):
    one = imagined["contests"][0]
    one["timings"]["tensorflow"] = {"problem": "wrong answer: all of it"}
    del one["ratios"]["tensorflow"]
    text = shown(imagined)
    assert "failed" in text
    assert f"✗ {one['name']}: tensorflow: wrong answer: all of it" in text
    assert "failed" in documents.tables(imagined)


@pytest.mark.parametrize(
    ("ms", "text"), [(0.00512, "5.12 µs"), (0.25, "0.25 ms"), (12.345, "12.3 ms"), (1234.5, "1234 ms")]
)
def test_milliseconds(ms, text):
    assert report.milliseconds(ms) == text


def test_documents_are_filled_between_markers(imagined, tmp_path):
    path = tmp_path / "performance.md"
    before = "# Speed\n\n<!-- bench:begin -->\nold\n<!-- bench:end -->\n\nwords\n\n"
    path.write_text(before + "<!-- bench:begin promises -->\n<!-- bench:end -->\nend\n")
    assert documents.refresh(imagined, [path], check=True) == [path]
    assert "old" in path.read_text()
    assert documents.refresh(imagined, [path]) == [path]
    text = path.read_text()
    assert "old" not in text
    assert text.startswith("# Speed\n\n<!-- bench:begin -->\n| times longer than rowgrad |")
    assert "| SparseSegmentMeanGradV2: compact gradient | **10 ×** (10 – 10) | **10 ×** (10 – 10) |" in text
    assert "\nwords\n" in text and text.endswith("<!-- bench:end -->\nend\n")
    assert "| SparseSegmentMeanGradV2 against TensorFlow | ≥ 12 × | 10 × | geometric mean | no |" in text
    assert documents.refresh(imagined, [path], check=True) == []


def test_doubtful_figures_say_so_wherever_they_are_shown(imagined):
    imagined["method"] = {"threads": 2, "rounds": 3, "others_share_of_cores": 0.01}
    for text in (documents.summary(imagined), documents.machine(imagined), shown(imagined)):
        assert "Provisional figures: each was timed in 3 rounds only." in text
    imagined["method"]["rounds"] = 7
    for text in (documents.summary(imagined), documents.machine(imagined), shown(imagined)):
        assert "Provisional" not in text


def test_documents_without_markers_stay(imagined):
    assert documents.filled("# Nothing here\n", imagined) == "# Nothing here\n"
    with pytest.raises(ValueError, match="no table called 'tabels'; there are summary, machine, promises, tables"):
        documents.filled("<!-- bench:begin tabels -->\n<!-- bench:end -->\n", imagined)


def test_a_run_without_peers_has_a_summary_too(results):
    assert documents.summary(results) == "No peers were measured."
    assert "| 300 × 8, 64 × 5, zipf |" in documents.tables(results)


def test_the_documents_command(imagined, tmp_path, capsys):
    report.write_json(imagined, tmp_path / "r.json")
    page = tmp_path / "p.md"
    page.write_text("<!-- bench:begin machine -->\n<!-- bench:end -->\n")
    arguments = [str(tmp_path / "r.json"), str(page)]
    assert documents.main(["--check", *arguments]) == 1
    assert "out of date" in capsys.readouterr().out
    assert documents.main(arguments) == 0
    assert documents.main(["--check", *arguments]) == 0
    assert "copies 30 GB/s" in page.read_text()


@pytest.mark.skipif(not (ROOT / "benchmarks/results.json").exists(), reason="not in the source distribution")
def test_the_tables_of_this_project_are_those_of_its_results():
    found = report.read_json(ROOT / "benchmarks/results.json")
    assert documents.refresh(found, [ROOT / "docs/performance.md", ROOT / "README.md"], check=True) == []


def test_pictures_are_drawn(imagined, results, tmp_path):
    framework("matplotlib")
    from bench import pictures

    files = pictures.draw(imagined, tmp_path / "images")
    assert [path.name for path in files] == ["benchmark.png", "roofline.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in files)
    pictures.draw(results, tmp_path)  # without peers and speeds
    assert pictures.bars(imagined, ("mean_grad_v2", "row_update"))[SHAPES[0].title] == {
        "tensorflow": 10.0, "torch": 10.0, "fbgemm": 10.0,
    }  # fmt: skip
    ms = SHAPES[0].size / 1e5
    assert pictures.speeds(imagined)["mean"][SHAPES[0].title] == pytest.approx(10 / ms)


def test_peak_memory_is_measured_in_another_process():
    peak = memory.measure("mean_grad_v2", 20_000)
    if peak:
        assert peak["operator"] == "SparseSegmentMeanGradV2"
        assert peak["bytes_per_id"] == round(peak["extra_bytes"] / 20_000, 2)
    with pytest.raises((RuntimeError, KeyError), match="mean_grad_v9"):
        memory.measure("mean_grad_v9", 10)


def test_the_machine_is_described():
    speeds = machine.memory_speeds(size=1 << 20, rounds=1)
    assert set(speeds) == {"copy_gb_s", "fresh_gb_s"}
    assert min(speeds.values()) > 0
    share = machine.Watch().share_of_others()
    assert share is None or 0 <= share <= 1
    assert sized(SMALL.size * 20).size == SMALL.size * 20
