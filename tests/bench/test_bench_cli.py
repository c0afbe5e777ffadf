"""`python -m bench` does what it is asked, and says before it starts what it cannot do."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from bench import command, contestants, memory, work
from bench.contestants import ours
from bench.work import Bags, Entries, Work

TINY = Bags(300, 8, 64, 5, "zipf")


def run(*args):
    return CliRunner().invoke(command.app, args, env={"COLUMNS": "100"}, prog_name="bench")


@pytest.fixture(autouse=True)
def tiny_work(monkeypatch):
    works = [Work("mean_grad_v2", "mean_grad_v2", TINY, ("scipy",)), Work("fill", "fill", Entries(500))]
    monkeypatch.setattr(work, "all_work", lambda: works)
    monkeypatch.setattr(work, "quick_work", lambda: works[:1])


@pytest.fixture
def no_extras(monkeypatch):
    monkeypatch.setattr(command, "_extras", lambda *_: {"speeds": False, "peak_memory": False})


@pytest.fixture
def installed(monkeypatch):
    """Which modules are installed."""

    def pretend(*names):
        monkeypatch.setattr(contestants.util, "find_spec", lambda name: object() if name in names else None)

    return pretend


def test_alone(tmp_path, no_extras):
    path = tmp_path / "new" / "results.json"
    result = run("--peers", "none", "--rounds", "2", "--json", str(path))
    assert result.exit_code == 0, result.output
    assert "SparseSegmentMeanGradV2: compact gradient" in result.stdout
    assert "500 entries" in result.stdout
    found = json.loads(path.read_text())
    assert [one["name"] for one in found["contests"]] == ["mean_grad_v2/300-8-zipf", "fill/500"]
    assert {one["timings"]["rowgrad"]["rounds"] for one in found["contests"]} == {2}
    assert found["method"]["rounds"] == 2


@pytest.mark.parametrize(
    ("args", "names", "rounds"),
    [(["--quick"], ["mean_grad_v2/300-8-zipf"], 5), (["--only", "fill"], ["fill/500"], 7)],
)
def test_less(args, names, rounds, tmp_path, no_extras):
    path = tmp_path / "results.json"
    assert run("--peers", "none", "--json", str(path), *args).exit_code == 0
    found = json.loads(path.read_text())
    assert [one["name"] for one in found["contests"]] == names
    assert found["method"]["rounds"] == rounds


@pytest.mark.parametrize(
    ("args", "extras"),
    [
        ({}, {"speeds": True, "peak_memory": True}),
        ({"quick": True}, {"speeds": True, "peak_memory": False}),
        ({"only": "x"}, {"speeds": False, "peak_memory": False}),
        ({"only": "x", "drawn": True}, {"speeds": True, "peak_memory": False}),
    ],
)
def test_extras(args, extras):
    assert command._extras(args.get("quick", False), args.get("only", ""), args.get("drawn", False)) == extras


def test_a_wrong_answer_is_an_error(monkeypatch, no_extras):
    class Wrong:
        start = staticmethod(lambda threads: None)
        entry = staticmethod(lambda item: ours.entry(Work("mean_grad_v2", "", Bags(300, 8, 64, 4)), name="scipy"))

    monkeypatch.setattr(contestants, "load", lambda names: {"scipy": Wrong})
    monkeypatch.setattr(contestants, "versions", lambda names: {})
    monkeypatch.setattr(contestants, "missing", lambda names: [])
    result = run("--peers", "scipy", "--rounds", "1")
    assert result.exit_code == 1
    assert "✗ mean_grad_v2/300-8-zipf: scipy: wrong answer: " in result.stdout
    assert result.stderr.startswith("error: 1 of the answers or calls failed")


def test_a_missing_peer_is_named_with_its_package(installed):
    installed("torch")
    result = run("--peers", "torch,FBGEMM")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "error: --peers: FBGEMM is not installed.",
        "hint: pip install fbgemm-gpu-cpu; or leave --peers out, to measure beside what is installed.",
    ]
    everyone = run("--peers", "all")
    assert everyone.stderr.startswith("error: --peers: TensorFlow, FBGEMM, JAX, SciPy are not installed.")


def test_peers_are_those_installed_unless_named(installed):
    installed("torch", "scipy", "jax")
    assert command._chosen_peers(None) == ["torch", "jax", "scipy"]
    assert command._chosen_peers("scipy, jax") == ["jax", "scipy"]
    assert command._chosen_peers("none") == []


@pytest.mark.parametrize("name", ["keras", ",", "torch,keras"])
def test_an_unknown_peer(name):
    result = run("--peers", name)
    assert result.exit_code == 2
    assert "is no peer" in result.stderr
    assert "hint: there are tensorflow, torch, fbgemm, jax, scipy; or write all, or none." in result.stderr


def test_no_such_work():
    result = run("--peers", "none", "--only", "fil_grad")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no work is called like 'fil_grad'.\nhint: names are like ")
    assert "fill/500" in result.stderr


def test_pictures_need_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setattr(command.util, "find_spec", lambda name: None)
    result = run("--peers", "none", "--pictures", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr == (
        "error: --pictures needs matplotlib, which is not installed.\nhint: pip install matplotlib\n"
    )


def test_where_nothing_can_be_written(tmp_path):
    file = tmp_path / "file"
    file.touch()
    assert f"--json: {file} is not a folder" in run("--peers", "none", "--json", str(file / "r.json")).stderr
    assert f"--json: {tmp_path} is a folder" in run("--peers", "none", "--json", str(tmp_path)).stderr


def test_rounds_below_one_are_refused():
    assert run("--rounds", "0").exit_code == 2


def test_help_is_quick():
    code = (
        "import sys; from bench.command import app; from typer.testing import CliRunner;"
        "r = CliRunner().invoke(app, ['--help']); assert r.exit_code == 0;"
        "print(sorted({'numba', 'matplotlib', 'torch', 'jax', 'tensorflow', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=memory.FOLDER, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
