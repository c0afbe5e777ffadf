"""`rowgrad run`, `check` and `convert`: pages from the command line, right or wrong."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rowgrad
from rowgrad._cli import app
from rowgrad.blocks import Page

GRAD = [[1, 2, 3], [4, 4, 2], [3, 1, 5]]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page with a placeholder, in the current folder."""
    monkeypatch.chdir(tmp_path)
    made = Page("pooled")
    made.add("Placeholder", "x", dtype="float32", shape=["n", 3])
    made.add("SparseSegmentMeanGrad", "back", grad="x", indices=[0, 1, 2], segment_ids=[2, 2, 2], output_dim0=3)
    made.add("Neg", "minus", x="back")
    made.save("p.page.json")
    return Path("p.page.json")


def run(*args: Any, columns: int = 100) -> Any:
    return CliRunner().invoke(app, [*map(str, args)], env={"COLUMNS": str(columns)}, prog_name="rowgrad")


def test_results_are_printed_as_tables(page: Path) -> None:
    done = run("run", page, "--feed", f"x={GRAD}")
    assert done.exit_code == 0, done.output
    for words in ("x  Placeholder", "back  SparseSegmentMeanGrad", "output  float32 [3, 3]", "1.66667", "minus  Neg"):
        assert words in done.output


def test_feeds_from_files(page: Path) -> None:
    np.save("x.npy", np.array(GRAD, np.float32))
    np.savez("x.npz", a=np.array(GRAD, np.float64))
    Path("x.csv").write_text("a,b,c\n1,2,3\n4,4,2\n3,1,5\n")
    outputs = [run("run", page, "--feed", f"x={value}").stdout for value in (GRAD, "@x.npy", "@x.npz:a", "@x.csv")]
    assert len(set(outputs)) == 1


def test_fetch_out_and_quiet(page: Path) -> None:
    done = run("run", page, "--feed", f"x={GRAD}", "--fetch", "back:output", "--out", "r.npz", "--quiet")
    assert (done.exit_code, done.stdout) == (0, "")
    with np.load("r.npz") as saved:
        assert list(saved) == ["back:output"]
        assert saved["back:output"].shape == (3, 3)
    again = run("run", page, "--feed", f"x={GRAD}", "--out", "r.npz")
    assert again.exit_code == 1
    assert "--force" in again.stderr
    assert run("run", page, "--feed", f"x={GRAD}", "--out", "r.npz", "--force").exit_code == 0
    with np.load("r.npz") as saved:
        assert sorted(saved) == ["back:output", "minus:y", "x:output"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "missing.page.json"], 1, "there is no such file"),
        (["run", "."], 2, "pages are read from"),
        (["run", "p.page.json", "--feed", "x"], 2, "name=value"),
        (["run", "p.page.json", "--feed", "y=1"], 1, "no placeholder 'y'"),
        (["run", "p.page.json", "--feed", "x=[[1], [2, 3]]"], 2, "evenly"),
        (["run", "p.page.json", "--feed", "x=@missing.npy"], 1, "no such file"),
        (["run", "p.page.json", "--fetch", "nonsense"], 1, "no block 'nonsense'"),
        (["run", "p.page.json", "--fetch", "back:nonsense"], 1, "no output nonsense"),
        (["run", "p.page.json", "--out", "r.txt"], 2, ".npz"),
        (["run", "p.page.json", "--svg", "r.gif"], 2, ".svg"),
        (["run", "p.page.json", "--loop", "0"], 2, "--loop"),
        (["check", "missing.page.json"], 1, "there is no such file"),
        (["convert", "p.page.json", "x.docx"], 2, "pages are written as"),
        (["convert", "p.page.json", "missing/x.py"], 1, "no folder"),
        (["convert", "p.page.json", "p.page.json"], 1, "already exists"),
        (["convert", "p.page.json", "x.py", "--run"], 2, "--run"),
    ],
)
def test_bad_commands_are_one_line_and_write_nothing(page: Path, arguments: list[str], code: int, words: str) -> None:
    before = sorted(os.listdir())
    done = run(*arguments)
    assert done.exit_code == code, done.output
    assert words in done.stderr
    assert "Traceback" not in done.output
    assert sorted(os.listdir()) == before


def test_a_failing_block_is_told_once_and_the_rest_is_shown(page: Path) -> None:
    done = run("run", page)
    assert done.exit_code == 1
    assert done.stderr.count("error: x:output: nothing is fed; feed float32 [n, 3].") == 1
    assert "skipped, because they need it: back, minus" in done.stderr
    assert "skipped: needs x" in done.stdout


def test_check_lists_every_wire(page: Path) -> None:
    done = run("check", page)
    assert done.exit_code == 0
    assert "float32 [n, 3]" in done.stdout
    assert "pooled: 3 blocks, 2 wires, 0 problems." in done.stdout
    made = Page.load(page)
    made.disconnect("minus:x")
    made.save("q.page.json")
    done = run("check", "q.page.json")
    assert done.exit_code == 1
    assert "error: minus:x: it is unconnected" in done.stderr


MALFORMED = {
    "truncated": '{"rowgrad_page": 1, "name": "x", "blocks": [{"id": "a", "op": "Ne',
    "types": '{"rowgrad_page": 1, "blocks": [{"id": "a", "op": ["Neg"]}]}',
    "cycle": '{"rowgrad_page": 1, "blocks": [{"id": "a", "op": "Neg", "inputs": {"x": "a"}}]}',
    "twice": '{"rowgrad_page": 1, "blocks": [{"id": "a", "op": "Neg"}, {"id": "a", "op": "Neg"}]}',
    "many": json.dumps({"rowgrad_page": 1, "blocks": [{"id": f"b{i}", "op": "Neg"} for i in range(100_000)]}),
    "deep": '{"rowgrad_page": 1, "blocks": ' + "[" * 50_000 + "]" * 50_000 + "}",
    "outside": '{"rowgrad_page": 1, "blocks": [{"id": "a", "op": "File", "attrs": {"path": "/etc/passwd"}}]}',
    "newer": '{"rowgrad_page": 99, "blocks": []}',
}


@pytest.mark.parametrize("command", [["run"], ["check"], ["convert"]], ids=str)
@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, command: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.page.json").write_text(MALFORMED[kind])
    done = run(*command, "bad.page.json", *(["out.py"] if command == ["convert"] else []))
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.output
    assert os.listdir() == ["bad.page.json"]


def test_a_constant_of_2_to_the_40_is_an_error_of_its_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = Page()
    made.add("BroadcastTo", "huge", input=1.0, shape=[2**40])
    made.add("Const", "small", value=[1, 2])
    made.save("p.page.json")
    done = run("run", "p.page.json")
    assert done.exit_code == 1
    assert "error: huge" in done.stderr
    assert "small  Const" in done.stdout


@pytest.mark.parametrize("ending", ["py", "svg", "png", "pb", "pbtxt", "page.json"])
def test_convert_there_and_back(page: Path, ending: str) -> None:
    assert run("convert", page, f"x.{ending}").exit_code == 0
    assert Path(f"x.{ending}").stat().st_size > 100
    if ending != "py":
        done = run("convert", f"x.{ending}", "back.page.json")
        assert done.exit_code == 0, done.output
        assert Page.load("back.page.json") == Page.load(page)


def test_a_picture_without_a_page(page: Path) -> None:
    Path("x.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    Path("x.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    for name in ("x.svg", "x.png"):
        done = run("check", name)
        assert done.exit_code == 1
        assert "carries no page" in done.stderr or "incomplete" in done.stderr


def test_results_are_drawn(page: Path) -> None:
    done = run("run", page, "--feed", f"x={GRAD}", "--svg", "out.svg", "-q")
    assert done.exit_code == 0, done.output
    assert "1.66667" in Path("out.svg").read_text()


@pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals")
def test_a_loop_shows_its_progress_on_a_terminal(tmp_path: Path) -> None:
    made = Page()
    made.add("Variable", "w", initial_value=[0.0])
    made.add("Sub", "d", x="w", y=3)
    made.add("Square", "s", x="d")
    made.add("ReduceSum", "loss", input="s", axis=0)
    made.add("ApplyGradientDescent", var="w", alpha=0.01, delta="d")
    made.save(tmp_path / "p.page.json")
    leader, follower = pty.openpty()
    worker = subprocess.Popen(
        [sys.executable, "-m", "rowgrad", "run", "p.page.json", "--loop", "3000", "--quiet"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=follower, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(rowgrad.__file__).parents[1]), "TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(follower)
    seen = b""
    while True:
        try:
            piece = os.read(leader, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(leader)
    output, _ = worker.communicate(timeout=60)
    assert b"/3000" in seen
    assert "loss:output: 9 in step 1" in output
    assert "times smaller" in output


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page that trains, and tells its loss every second step."""
    monkeypatch.chdir(tmp_path)
    made = Page("training")
    made.add("Variable", "w", initial_value=[4.0, -2.0])
    made.add("Square", "squares", x="w")
    made.add("ReduceSum", "loss", input="squares", axis=[0])
    made.add("Print", "told", input="loss", data=["loss:output"], message="loss ", every=2)
    made.add_training("loss", optimizer="SGD", lr=0.25)
    made.save("t.page.json")
    return Path("t.page.json")


def test_a_loop_is_kept_as_csv_and_for_tensorboard(training: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    done = run(
        "run", training, "--loop", "4", "--fetch", "loss:output", "--csv", "r.csv", "--logdir", "logs/one", "--quiet"
    )
    assert done.exit_code == 0, done.output
    assert "step 2, told: loss 5" in done.stdout
    assert "step 4, told: loss 0.3125" in done.stdout
    lines = Path("r.csv").read_text().splitlines()
    assert lines == ["run,step,loss:output", "run,1,20.0", "run,2,5.0", "run,3,1.25", "run,4,0.3125"]
    found = accumulator.EventAccumulator("logs/one")
    found.Reload()
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [(1, 20), (2, 5), (3, 1.25), (4, 0.3125)]
    done = run("run", training, "--loop", "4", "--every", "2", "--csv", "r.csv", "--force", "--quiet")
    assert done.exit_code == 0, done.output
    assert [line.split(",")[1] for line in Path("r.csv").read_text().splitlines()] == ["step", "2", "4"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["--csv", "r.csv"], "need --loop N"), (["--logdir", "logs"], "need --loop N"),
     (["--loop", "2", "--csv", "t.page.json"], "t.page.json"), (["--loop", "2", "--every", "0"], "--every")],
)  # fmt: skip
def test_records_that_cannot_be_kept(training: Path, arguments: list[str], text: str) -> None:
    done = run("run", training, *arguments)
    assert done.exit_code != 0
    assert text in done.output
    assert Page.load(training).name == "training"
