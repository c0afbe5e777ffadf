"""`python -m bench` does what it is asked, and says before it starts what it cannot do."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import bench.case
from bench import command, groups, run
from bench.case import OURS, Case
from bench.contest import Entry

FOLDER = Path(run.__file__).parents[1]
RIGHT = np.ones(3, np.float32)


def invoke(*args):
    return CliRunner().invoke(command.app, args, env={"COLUMNS": "100"}, prog_name="bench")


def entry(result=RIGHT):
    return lambda: Entry(lambda: result, lambda: [result])


@pytest.fixture(autouse=True)
def tiny_cases(monkeypatch):
    cases = [
        Case("one layer", "a/forward", "a table", "a row", "forward", {OURS: entry(), "torch": entry(RIGHT + 1)}),
        Case("operators", "SparseSlice/500", "500 entries", "SparseSlice", "width 8", {OURS: entry()}),
    ]
    sizes = {"quick": cases[:1], "normal": cases, "full": cases[1:]}
    monkeypatch.setattr(groups, "all_cases", sizes.get)


@pytest.fixture
def installed(monkeypatch):
    """Which modules are installed."""

    def pretend(*names):
        monkeypatch.setattr(bench.case.util, "find_spec", lambda name: object() if name in names else None)

    return pretend


def test_alone(tmp_path):
    path = tmp_path / "new" / "results.json"
    result = invoke("--peers", "none", "--rounds", "2", "--json", str(path))
    assert result.exit_code == 0, result.output
    assert "500 entries" in result.stdout
    found = json.loads(path.read_text())
    assert [one["name"] for one in found["contests"]] == ["one layer/a/forward", "operators/SparseSlice/500"]
    assert {one["timings"][OURS]["rounds"] for one in found["contests"]} == {2}
    assert found["method"]["rounds"] == 2
    assert "2/2 operators/SparseSlice/500" in result.stderr


@pytest.mark.parametrize(
    ("args", "name", "rounds"),
    [
        (["--quick"], "one layer/a/forward", 3),
        (["--full"], "operators/SparseSlice/500", 7),
        (["--full", "--quick"], "operators/SparseSlice/500", 3),
        (["--only", "operators/*500"], "operators/SparseSlice/500", 7),
    ],
)
def test_less_and_more(args, name, rounds, tmp_path):
    path = tmp_path / "results.json"
    assert invoke("--peers", "none", "--json", str(path), *args).exit_code == 0
    found = json.loads(path.read_text())
    assert [one["name"] for one in found["contests"]] == [name]
    assert found["method"]["rounds"] == rounds


def test_results_are_added_to_a_file(tmp_path):
    path = tmp_path / "results.json"
    for only, names in (
        ("slice", []),
        ("Slice", ["operators/SparseSlice/500"]),
        ("layer", ["operators/SparseSlice/500", "one layer/a/forward"]),
    ):
        invoke("--peers", "none", "--json", str(path), "--merge", "--only", only, "--rounds", "1")
        assert (
            [one["name"] for one in json.loads(path.read_text())["contests"]] == names if names else not path.exists()
        )


def test_names_are_listed():
    result = invoke("--list", "--only", "layer")
    assert (result.exit_code, result.stdout) == (0, "one layer/a/forward\n")


def test_a_wrong_answer_is_an_error(monkeypatch, installed):
    installed("torch")
    monkeypatch.setattr(run, "_load", lambda peers: None)
    result = invoke("--peers", "torch", "--rounds", "1")
    assert result.exit_code == 1
    assert "✗ one layer/a/forward: torch: wrong answer: " in result.stdout
    assert "error: 1 of the answers or calls failed" in result.stderr


def test_a_missing_peer_is_named_with_its_package(installed):
    installed("torch")
    result = invoke("--peers", "torch,FBGEMM")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "error: --peers: FBGEMM is not installed.",
        "hint: pip install fbgemm-gpu-cpu; or leave --peers out, to measure beside what is installed.",
    ]
    everyone = invoke("--peers", "all")
    assert everyone.stderr.startswith("error: --peers: FBGEMM, TensorFlow, SciPy are not installed.")


def test_peers_are_those_installed_unless_named(installed):
    installed("torch", "tensorflow")
    assert command._chosen_peers(None) == ["torch", "tensorflow"]
    assert command._chosen_peers("TensorFlow, torch") == ["torch", "tensorflow"]
    assert command._chosen_peers("none") == []


@pytest.mark.parametrize("name", ["keras", ",", "torch,keras"])
def test_an_unknown_peer(name):
    result = invoke("--peers", name)
    assert result.exit_code == 2
    assert "is no peer" in result.stderr
    assert "hint: there are torch, fbgemm, tensorflow, scipy; or write all, or none." in result.stderr


def test_no_such_case():
    result = invoke("--peers", "none", "--only", "operators/SparseSlise/500")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no case is called like 'operators/SparseSlise/500'.\nhint: names are like ")
    assert "operators/SparseSlice/500" in result.stderr


def test_pictures_need_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setattr(command.util, "find_spec", lambda name: None)
    result = invoke("--peers", "none", "--pictures", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr == (
        "error: --pictures needs matplotlib, which is not installed.\nhint: pip install matplotlib\n"
    )


def test_where_nothing_can_be_written(tmp_path):
    file = tmp_path / "file"
    file.touch()
    assert f"--json: {file} is not a folder" in invoke("--peers", "none", "--json", str(file / "r.json")).stderr
    assert f"--json: {tmp_path} is a folder" in invoke("--peers", "none", "--json", str(tmp_path)).stderr


def test_rounds_below_one_are_refused():
    assert invoke("--rounds", "0").exit_code == 2


def test_help_is_quick():
    code = (
        "import sys; from bench.command import app; from typer.testing import CliRunner;"
        "r = CliRunner().invoke(app, ['--help']); assert r.exit_code == 0;"
        "print(sorted({'numba', 'matplotlib', 'torch', 'tensorflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
