"""`rowgrad studio`: what it starts, and what it says where the studio is not installed."""

import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from rowgrad._cli import app
from rowgrad.blocks import Page, Session
from rowgrad_studio import launch


@pytest.fixture
def served(monkeypatch):
    calls = []
    monkeypatch.setattr(launch, "serve", lambda *args, **options: calls.append((args, options)))
    return calls


def run(*args):
    return CliRunner().invoke(app, ["studio", *map(str, args)], env={"COLUMNS": "100"})


def test_a_page_is_opened_in_its_folder(folder, served):
    assert run(folder / "mean.page.json", "--port", 8123, "--no-browser").exit_code == 0
    assert served == [((folder, "mean.page.json"), {"port": 8123, "browser": False})]


def test_a_folder(folder, served):
    (folder / "deep").mkdir()
    (folder / "deep" / "x.page.json").write_text("{}")
    assert run(folder / "deep" / "x.page.json", "--folder", folder).exit_code == 0
    assert served[0][0] == (folder, "deep/x.page.json")
    assert run("--folder", folder).exit_code == 0
    assert served[1] == ((folder, None), {"port": 0, "browser": True})


def test_the_example_of_an_operator(served, tmp_path):
    assert run("--folder", tmp_path, "--example", "sparse_segment_mean_grad").exit_code == 0
    assert served[0][0] == (tmp_path, "SparseSegmentMeanGrad.page.json")
    path = tmp_path / "SparseSegmentMeanGrad.page.json"
    page = Page.load(path)
    assert Session(page).run()["SparseSegmentMeanGrad"].output.shape == (3, 3)
    path.write_text(changed := path.read_text().replace("worked example", "my own"))
    assert run("--folder", tmp_path, "--example", "SparseSegmentMeanGrad").exit_code == 0
    assert path.read_text() == changed


def test_an_example_of_nothing(served, tmp_path):
    result = run("--folder", tmp_path, "--example", "SparseSegmentMeen")
    assert result.exit_code == 2 and "did you mean SparseSegmentMean" in result.stderr
    assert run("x.page.json", "--example", "Add").exit_code == 2
    assert not served and not list(tmp_path.iterdir())


@pytest.mark.parametrize("args", [("missing.page.json",), ("--folder", "missing"), ("--port", "99999")])
def test_what_cannot_be_opened(args, served, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*args).exit_code in (1, 2)
    assert not served


def test_a_port_that_is_taken(client, folder):
    result = run("--folder", folder, "--port", client.port, "--no-browser")
    assert result.exit_code == 1 and f"port {client.port} is unavailable" in result.stderr


def test_a_page_elsewhere(folder, served, tmp_path):
    (tmp_path / "other").mkdir()
    result = run(folder / "mean.page.json", "--folder", tmp_path / "other")
    assert result.exit_code == 2 and "is not in" in result.stderr


@pytest.mark.parametrize(
    ("missing", "words"), [("rowgrad_studio.launch", "not installed"), ("uvicorn", "lacks the package")]
)
def test_without_the_package_it_says_how_to_get_it(monkeypatch, folder, missing, words):
    from rowgrad._cli import studio

    def fail(name):
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(studio, "import_module", fail)
    result = run("--folder", folder)
    assert result.exit_code == 1
    assert words in result.stderr and "pip install rowgrad-studio" in result.stderr and "make studio" in result.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the ceiling is one of Linux")
@pytest.mark.parametrize(
    ("text", "room"), [("2G", 2 << 30), ("500m", 500 << 20), ("1000000", 1_000_000), ("1GB", 1 << 30)]
)
def test_the_ceiling_of_memory(monkeypatch, text, room):
    calls = []
    fake = SimpleNamespace(
        RLIMIT_DATA=1,
        RLIM_INFINITY=-1,
        getrlimit=lambda kind: (-1, -1),
        setrlimit=lambda kind, limit: calls.append(limit),
    )
    monkeypatch.setitem(sys.modules, "resource", fake)
    launch.limit_memory(text)
    ((wanted, hard),) = calls
    assert hard == -1 and room < wanted < room + (64 << 30)
    launch.limit_memory("0")
    assert len(calls) == 1
    launch.limit_memory("nonsense")
    assert len(calls) == 2  # three quarters of what is free
