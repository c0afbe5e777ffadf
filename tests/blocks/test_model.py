"""A whole model by the library alone: drawn, trained in batches from a CSV file, evaluated, exported, moved."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowgrad.blocks import OPTIMIZERS, Page, Session
from rowgrad.errors import PageError

WORDS, WIDTH, CLASSES, EXAMPLES = 30, 4, 3, 50


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Examples whose class is that of most of their words."""
    rng = np.random.default_rng(0)
    lines = ["words,label"]
    for _ in range(EXAMPLES):
        label = rng.integers(CLASSES)
        words = rng.integers(0, WORDS // CLASSES, rng.integers(1, 6)) * CLASSES + label
        lines.append(f"{' '.join(map(str, words))},{label}")
    (tmp_path / "tickets.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def drawn(folder: Path, optimizer: str | None = "Adagrad", **settings: Any) -> Page:
    page = Page("tickets", folder=folder)
    page.add("Batches", "data", path="tickets.csv", columns=["words", "label"], ragged=["words"], batch_size=16, seed=5,
             holdout=0.2)  # fmt: skip
    page.add("StatelessRandomNormal", "noise", shape=[WORDS, WIDTH], seed=[1, 2], dtype="float64")
    page.add("StatelessRandomUniform", "more_noise", shape=[WIDTH, CLASSES], seed=[3, 4], dtype="float64")
    page.add("Variable", "table", initial_value="noise")
    page.add("Variable", "weights", initial_value="more_noise")
    page.add("Variable", "bias", initial_value={"value": [0.0] * CLASSES, "dtype": "float64"})
    page.add("Size", "examples", input="data:rows")
    page.add("SparseSegmentMeanWithNumSegments", "pooled", data="table", indices="data:words",
             segment_ids="data:words_segments", num_segments="examples")  # fmt: skip
    page.add("MatMul", "scores", a="pooled", b="weights")
    page.add("Add", "logits", x="scores", y="bias")
    page.add("SparseSoftmaxCrossEntropyWithLogits", "entropy", features="logits", labels="data:label")
    page.add("ReduceMean", "loss", input="entropy:loss", axis=[0])
    page.add("ArgMax", "guess", input="logits", dimension=1)
    page.add("Equal", "right", x="guess", y="data:label")
    page.add("Cast", "ones", x="right", DstT="float32")
    page.add("ReduceMean", "accuracy", input="ones", axis=[0])
    page.group(["examples", "pooled", "scores", "logits"], "model")
    if optimizer is not None:
        page.add_training("loss", None, optimizer, **settings)
    return page


Update = Callable[[dict[str, Any], Any, Any, int], None]


def adagrad(state: dict[str, Any], gradient: Any, rows: Any, step: int) -> None:
    accum = state.setdefault("accum", np.full_like(state["var"], 0.1))
    accum[rows] += gradient**2
    state["var"][rows] -= 0.5 * gradient / np.sqrt(accum[rows])


def descent(state: dict[str, Any], gradient: Any, rows: Any, step: int) -> None:
    state["var"][rows] -= 0.5 * gradient


def momentum(state: dict[str, Any], gradient: Any, rows: Any, step: int) -> None:
    accum = state.setdefault("accum", np.zeros_like(state["var"]))
    accum[rows] = 0.9 * accum[rows] + gradient
    state["var"][rows] -= 0.5 * accum[rows]


def adam(state: dict[str, Any], gradient: Any, rows: Any, step: int) -> None:
    m, v = (state.setdefault(name, np.zeros_like(state["var"])) for name in "mv")
    m[rows] += (gradient - m[rows]) * (1 - 0.9)
    v[rows] += (gradient**2 - v[rows]) * (1 - 0.999)
    rate = 0.5 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    state["var"][rows] -= rate * m[rows] / (np.sqrt(v[rows]) + 1e-8)


BY_HAND: dict[str, Update] = {"Adagrad": adagrad, "SGD": descent, "Momentum": momentum, "Adam": adam}


def in_numpy(page: Page, update: Update, batches: list[Any]) -> list[float]:
    """The model again, in NumPy alone."""
    lines = (page.folder / "tickets.csv").read_text().splitlines()[1:]  # type: ignore[operator]
    words = [list(map(int, line.split(",")[0].split())) for line in lines]
    labels = np.array([int(line.split(",")[1]) for line in lines])
    first = Session(page).run(["table", "weights", "bias"])
    table, weights, bias = ({"var": np.array(first[name].ref)} for name in ("table", "weights", "bias"))
    losses = []
    for step, rows in enumerate(batches, 1):
        bags = np.zeros((len(rows), WORDS))
        for at, row in enumerate(rows):
            np.add.at(bags[at], words[row], 1 / len(words[row]))
        pooled = bags @ table["var"]
        logits = pooled @ weights["var"] + bias["var"]
        logs = logits - logits.max(1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(1, keepdims=True))
        losses.append(float(-logs[np.arange(len(rows)), labels[rows]].mean()))
        back = np.exp(logs)
        back[np.arange(len(rows)), labels[rows]] -= 1
        back /= len(rows)
        seen = np.flatnonzero(bags.any(axis=0))
        gradients = (bags.T @ (back @ weights["var"].T))[seen], pooled.T @ back, back.sum(0)
        for state, gradient, changed in zip((table, weights, bias), gradients, (seen, ..., ...), strict=True):
            update(state, gradient, changed, step)
    return losses


@pytest.mark.parametrize("optimizer", BY_HAND)
def test_it_learns_as_numpy_does_step_by_step(folder: Path, optimizer: str) -> None:
    page = drawn(folder, optimizer, lr=0.5)
    history = Session(page).loop(20, record=["loss:output", "data:rows"])
    assert history.steps == 20, history.results.errors
    losses = [float(loss) for loss in history["loss:output"]]
    np.testing.assert_allclose(losses, in_numpy(page, BY_HAND[optimizer], history["data:rows"]), rtol=1e-9)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_trains_every_variable(folder: Path, optimizer: str) -> None:
    page = drawn(folder, optimizer)
    assert not page.problems()
    session = Session(page)
    before = session.run(["table", "weights", "bias"])
    session.loop(2).results.raise_first()
    changed = (session.variables[name] != before[name].ref for name in ("table", "weights", "bias"))
    assert all(found.any() for found in changed)
    assert page["training/train_table"].op == f"SparseApply{optimizer}"
    assert page["training/train_weights"].op == f"Apply{optimizer}"
    assert Page.from_json(page.to_json(), folder=folder) == page


def test_it_is_evaluated_on_examples_that_it_has_not_seen(folder: Path) -> None:
    session = Session(drawn(folder, lr=0.5))
    before = session.evaluate(["loss", "accuracy"])
    session.loop(60)
    variables = session.variables
    after = session.evaluate(["loss", "accuracy"])
    assert after["loss"] < before["loss"] / 2
    assert after["accuracy"] > 0.8
    assert all(session.variables[name] is value for name, value in variables.items())


def test_its_script_gives_the_same_bits(folder: Path) -> None:
    page = drawn(folder, "Adam", lr=0.5)
    script = page.to_python()
    assert "def model(" in script
    assert "def training(" in script
    (folder / "script.py").write_text(script)
    done = subprocess.run([sys.executable, "script.py", "--loop", "5", "--out", "out.npz"], cwd=folder, text=True,
                          capture_output=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = Session(page).loop(5).results
    with np.load(folder / "out.npz") as found:
        for id, result in results.items():
            for pin, array in result.outputs.items():
                assert found[f"{id}:{pin}"].tobytes() == array.tobytes(), f"{id}:{pin}"


def test_its_graph_comes_back_and_runs(folder: Path) -> None:
    pytest.importorskip("tensorboard")
    page = drawn(folder, "Momentum", lr=0.5)
    again = Page.from_graphdef(page.to_graphdef(), folder=folder)
    assert again == page
    both = [Session(each).loop(4, record=["loss:output"])["loss:output"] for each in (page, again)]
    assert both[0] == both[1]
    moved = Page.from_graphdef(page.to_graphdef(), folder=folder / "elsewhere")
    assert {block.id for block in moved} >= {"table", "loss", "data"}


def test_settings_of_training(folder: Path) -> None:
    page = drawn(folder, None)
    page.add("Variable", "rate", initial_value={"value": 0.5, "dtype": "float64"})
    group = page.add_training("loss", ["weights"], "momentum", lr="rate", use_nesterov=True, accum=0.25)
    assert group.recipe is not None
    assert group.recipe.optimizer == "Momentum"
    update = page["training/train_weights"]
    assert str(update.inputs["lr"]) == "rate:ref"
    assert update.attributes["use_nesterov"] is True
    start = Session(page).run("training/weights_accum_start")["training/weights_accum_start"].output
    assert start.tolist() == [[0.25] * CLASSES] * WIDTH
    page.change("training", lr=0.125, momentum=0.5)
    assert page["training/train_weights"].inputs["lr"].value == 0.125  # type: ignore[union-attr]
    page.change("training", optimizer="Adagrad")
    assert page["training/train_weights"].op == "ApplyAdagrad"
    for code, wrong in (
        ("unknown-optimizer", {"optimizer": "No"}), ("unknown-pin", {"speed": 1}), ("bad-literal", {"lr": np.nan}),
        ("bad-literal", {"lr": [1.0]}), ("not-a-variable", {"variables": ["scores"]}),
        ("unknown-block", {"lr": "nobody"}),
    ):  # fmt: skip
        before = page.to_json()
        with pytest.raises(PageError) as caught:
            page.change("training", **wrong)
        assert caught.value.code == code, str(caught.value)
        assert page.to_json() == before
    with pytest.raises(PageError) as caught:
        page.add_training("loss", ["weights"])
    assert caught.value.code == "updated-twice"
    with pytest.raises(PageError) as caught:
        page.add_training("data:rows")
    assert caught.value.code == "not-a-variable"


def test_its_gradients_are_those_of_differences(folder: Path) -> None:
    check = Session(drawn(folder)).check_gradients("loss", ["table", "weights", "bias"])
    assert check.ok, str(check)
