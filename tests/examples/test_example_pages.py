"""The example pages: as they are drawn, with the results they state, and a classifier that learns."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rowgrad
from rowgrad._cli import app
from rowgrad.blocks import Page, Session

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "pages"
sys.path.insert(0, str(FOLDER.parent))

import make_data  # noqa: E402
import make_pages  # noqa: E402

NAMES = list(make_pages.PAGES)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(rowgrad.__file__).parents[1])}


def load(name: str) -> Page:
    return Page.load(FOLDER / f"{name}.page.json")


def test_every_page_is_drawn_by_the_script() -> None:
    assert {path.name for path in FOLDER.glob("*.page.json")} == {f"{name}.page.json" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_as_drawn(name: str) -> None:
    assert (FOLDER / f"{name}.page.json").read_text(encoding="utf-8") == make_pages.drawn(name).to_json()


def test_the_data_is_as_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_data, "FOLDER", tmp_path)
    make_data.main()
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (FOLDER / made.name).read_bytes(), made.name


@pytest.mark.parametrize("name", NAMES)
def test_stated_results(name: str) -> None:
    page = load(name)
    assert page.problems() == []
    results = Session(page).run().raise_first()
    for wire, stated in make_pages.RESULTS[name].items():
        found = results[wire]
        if found.dtype.kind in "OU":
            assert found.tolist() == stated
        else:
            assert found.shape == np.shape(stated)
            np.testing.assert_allclose(found.astype(np.float64), stated, rtol=0, atol=1e-6)


def test_the_tour_holds_all_five_gradient_operators() -> None:
    five = {"SparseSegmentSqrtNGrad", "SparseSegmentMeanGrad", "SparseSegmentMeanGradV2", "SparseFillEmptyRowsGrad",
            "SparseSliceGrad"}  # fmt: skip
    assert five <= {block.op for block in load("tour")}


def in_numpy(steps: int) -> list[float]:
    """The classifier again, in NumPy alone: softmax regression on mean-pooled embeddings, with Adagrad."""
    tickets, words = np.loadtxt(FOLDER / "tickets.csv", int, delimiter=",", skiprows=1).T
    labels = np.loadtxt(FOLDER / "labels.csv", np.float64, delimiter=",", skiprows=1)
    table = np.load(FOLDER / "table.npy").astype(np.float64)
    weights, bias = np.array(make_pages.WEIGHTS), np.zeros(3)
    sums = [np.full(array.shape, 0.1) for array in (table, weights, bias)]
    bags = np.zeros((len(labels), len(table)))
    np.add.at(bags, (tickets, words), 1)
    bags /= bags.sum(1, keepdims=True)
    losses = []
    for _ in range(steps):
        pooled = bags @ table
        logits = pooled @ weights + bias
        logits -= logits.max(1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        losses.append(float(-(labels * logs).sum(1).mean()))
        back = (np.exp(logs) - labels) / len(labels)
        gradients = (bags.T @ (back @ weights.T), pooled.T @ back, back.sum(0))
        for value, total, gradient in zip((table, weights, bias), sums, gradients, strict=True):
            total += gradient**2
            value -= 0.5 * gradient / np.sqrt(total)
    return losses


def test_the_classifier_learns_as_numpy_does_step_by_step() -> None:
    session = Session(load("classifier"))
    history = session.loop(200, record=["loss:output"])
    losses = [float(loss) for loss in history["loss:output"]]
    np.testing.assert_allclose(losses, in_numpy(200), rtol=2e-4)
    assert losses[0] / losses[-1] > 60  # as docs/pages.md states
    assert Session(load("classifier")).check_gradients("loss", ["table", "weights", "bias"]).ok


def test_the_classifier_in_batches_learns_and_is_evaluated() -> None:
    session = Session(load("batches"))
    before = session.evaluate(["accuracy"])
    history = session.loop(24, record=["loss:output"])
    assert history["loss:output"][0] > 20 * history["loss:output"][-1]
    assert before["accuracy"] < 0.5 < 0.9 < session.evaluate(["accuracy"])["accuracy"]


def test_the_classifier_touches_only_rows_that_occur() -> None:
    page = load("classifier")
    results = Session(page).run().raise_first()
    assert page["pooled"].attributes["sparse_gradient"] is True
    (compact,) = (block for block in page if block.op == "SparseSegmentMeanGradV2")
    rows = results[compact.id].sorted_unique_indices
    assert rows.tolist() == sorted(set(results["words"].output.tolist()))


def run(*arguments: Any, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "rowgrad", *map(str, arguments)], cwd=cwd, env=ENVIRONMENT, text=True,
                          capture_output=True, timeout=300)  # fmt: skip


def test_the_command_trains_it(tmp_path: Path) -> None:
    done = run("run", FOLDER / "classifier.page.json", "--loop", 200, "--fetch", "loss:output", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "loss:output: 1.09297 in step 1, 0.0163881 in step 200, 66.69 times smaller" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_as_a_script_it_gives_the_same_bits(tmp_path: Path, name: str) -> None:
    """In a clean process, without blocks; the script lies where the page lies, to find its files."""
    page = load(name)
    for path in FOLDER.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    script = tmp_path / f"{name}.py"
    script.write_text(page.to_python(), encoding="utf-8")
    loops = 3 if name == "classifier" else 1
    done = subprocess.run([sys.executable, str(script), "--loop", str(loops), "--out", "out.npz"], cwd=tmp_path,
                          env=ENVIRONMENT, text=True, capture_output=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = Session(page).loop(loops).results.raise_first()
    checked = 0
    for block in page:
        for pin, array in results[block.id].outputs.items():
            back = rowgrad._runtime.files.read(tmp_path / "out.npz", f"{block.id}:{pin}")
            assert back.shape == array.shape
            if array.dtype.kind == "O":
                assert back.tolist() == array.tolist()
            else:
                assert (back.dtype, back.tobytes()) == (array.dtype, array.tobytes()), f"{block.id}:{pin}"
            checked += 1
    assert checked >= len(page) - 1


@pytest.mark.parametrize("name", NAMES)
def test_through_graphdef_and_picture_it_comes_back(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = load(name)
    for text in (False, True):
        back = Page.from_graphdef(page.to_graphdef(text=text), folder=FOLDER)
        assert back == page
    monkeypatch.chdir(tmp_path)
    for arguments in ([str(FOLDER / f"{name}.page.json"), "x.svg", "--run"], ["x.svg", "y.page.json"]):
        done = CliRunner().invoke(app, ["convert", *arguments], prog_name="rowgrad")
        assert done.exit_code == 0, done.output
    found, wanted = json.loads((tmp_path / "y.page.json").read_text()), json.loads(page.to_json())
    for group in (*found.get("groups", ()), *wanted.get("groups", ())):
        group.pop("places", None)  # what is derived depends on the shapes of files, which are not in that folder
    assert found == wanted
