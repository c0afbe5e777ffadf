"""Runs: recorded by name, paused, changed and resumed, swept over a literal, written as CSV and for TensorBoard."""

import csv
import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowgrad.blocks import Page, Run, Session
from rowgrad.blocks.results import Progress
from rowgrad.blocks.runs import to_csv
from rowgrad.blocks.summaries import EventFile, write_run, write_runs
from rowgrad.errors import FileError, InvalidArgumentError, PageError


def model(optimizer: str = "SGD", **settings: Any) -> Page:
    page = Page("model")
    page.add("Variable", id="w", initial_value=[4.0, -2.0])
    page.add("Square", id="squares", x="w")
    page.add("ReduceSum", id="loss", input="squares", axis=[0])
    page.add_training("loss", optimizer=optimizer, **settings)
    return page


def losses(rate: float, steps: int, start: float = 20.0) -> list[float]:
    found, w = [], np.array([4.0, -2.0]) * np.sqrt(start / 20.0)
    for _ in range(steps):
        found.append(float((w**2).sum()))
        w = w - rate * 2 * w
    return found


def test_a_named_loop_is_a_run_and_goes_on_under_its_name() -> None:
    session = Session(model(lr=0.1))
    session.loop(3, record=["loss:output"], name="first")
    session.loop(2, record=["loss:output"], name="first")
    session.loop(1, record=["loss:output"])
    run = session.runs["first"]
    assert run.steps == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(run.scalars("loss:output"), losses(0.1, 5), rtol=1e-5)
    assert list(session.runs) == ["first"]
    assert repr(run) == "<Run 'first': 5 steps of loss:output>"


def test_every_so_many_steps_are_recorded() -> None:
    session = Session(model(lr=0.1))
    history = session.loop(7, record=["loss:output"], name="run", every=3)
    assert session.runs["run"].steps == [3, 6]
    np.testing.assert_allclose(history["loss:output"], np.array(losses(0.1, 7))[[2, 5]], rtol=1e-5)
    with pytest.raises(PageError, match="every is 0; it must be 1 or more"):
        session.loop(1, every=0)


def test_pause_change_resume() -> None:
    page = model(lr=0.1)
    session = Session(page)

    def progress(told: Progress) -> None:
        if told.step == 3 and told.block is None:
            session.pause()

    history = session.loop(10, record=["loss:output"], name="run", progress=progress)
    assert (history.steps, history.paused, history.cancelled) == (3, True, False)
    page.change("training", alpha=0.2)
    history = session.resume()
    assert (history.steps, history.paused) == (7, False)
    before = losses(0.1, 4)
    expected = [*before[:3], *losses(0.2, 7, before[3])]
    np.testing.assert_allclose(session.runs["run"].scalars("loss:output"), expected, rtol=1e-4)
    assert session.runs["run"].steps == list(range(1, 11))
    with pytest.raises(PageError, match="no loop was paused"):
        session.resume()


def test_a_loop_is_paused_from_another_thread_between_steps() -> None:
    page = model(lr=0.001)
    session = Session(page)
    begun = threading.Event()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(session.loop(10**6, progress=lambda _: begun.set())))
    thread.start()
    assert begun.wait(30)
    session.pause()
    thread.join(30)
    assert not thread.is_alive()
    assert found[0].paused
    assert all(result.status == "done" for result in found[0].results.values())


def test_a_sweep_runs_from_the_same_beginning_and_leaves_the_session_alone() -> None:
    page = model(lr=0.1)
    session = Session(page)
    session.loop(2)
    before = {name: value.copy() for name, value in session.variables.items()}
    text = page.to_json()
    runs = session.sweep("lr", [0.05, 0.1, 0.2], steps=4, record=["loss:output"])
    assert [run.name for run in runs] == ["lr=0.05", "lr=0.1", "lr=0.2"] == list(session.runs)
    for run, rate in zip(runs, [0.05, 0.1, 0.2], strict=True):
        np.testing.assert_allclose(run.scalars("loss:output"), losses(rate, 4), rtol=1e-4)
        assert run.settings == {"lr": rate}
    assert page.to_json() == text
    for name, value in session.variables.items():
        np.testing.assert_array_equal(value, before[name])
    assert [run.name for run in session.sweep("training:alpha", [0.1], steps=1, record=[])] == ["training:alpha=0.1"]
    again = session.sweep("lr", [0.1], steps=1, record=["loss:output"])
    assert again[0].name == "lr=0.1 (2)"


def test_sweeps_take_literals_and_attributes() -> None:
    page = Page()
    page.add("Const", id="c", value=2.0)
    page.add("Mul", id="double", x="c", y=3.0)
    page.add("Mul", id="more", x="double", y=1.0)
    session = Session(page)
    assert [run.scalars("double:z")[0] for run in session.sweep("double:y", [1.0, 5.0], steps=1, record=["double:z"])] \
        == [2.0, 10.0]  # fmt: skip
    with pytest.raises(PageError, match="'y' may mean double:y, more:y; say which"):
        session.sweep("y", [1.0], steps=1, record=[])
    with pytest.raises(PageError, match="there is no literal 'nobody' to change; there are: c:value, double:y, more:y"):
        session.sweep("nobody", [1.0], steps=1, record=[])
    with pytest.raises(PageError, match="'' is not a valid name for a run"):
        session.loop(1, name="")


def test_a_sweep_can_be_cancelled_and_tells_how_far_it_is() -> None:
    session = Session(model(lr=0.1))
    told: list[tuple[int, int]] = []

    def progress(report: Progress) -> None:
        told.append((report.step, report.steps))
        if report.step == 7:
            session.cancel()

    runs = session.sweep("lr", [0.1, 0.2, 0.3], steps=5, record=["loss:output"], progress=progress)
    assert [len(run.steps) for run in runs] == [5, 2]
    assert runs[1].problem == "cancelled"
    assert told[-1] == (7, 15)
    assert told == sorted(told)


def test_a_run_that_fails_says_why() -> None:
    page = Page()
    page.add("Placeholder", id="x", dtype="float32", shape=[])
    session = Session(page)
    session.loop(3, name="run", record=["x:output"])
    assert session.runs["run"].problem == "x:output: nothing is fed; feed float32 []."
    assert session.runs["run"].steps == []


def test_csv_has_a_line_for_each_run_and_step() -> None:
    session = Session(model(lr=0.1))
    runs = session.sweep("lr", [0.1, 0.2], steps=2, record=["loss:output", "w:ref"])
    lines = list(csv.reader(io.StringIO(to_csv(runs))))
    assert lines[0] == ["run", "lr", "step", "loss:output", "w:ref[0]", "w:ref[1]"]
    assert lines[1] == ["lr=0.1", "0.1", "1", "20.0", "4.0", "-2.0"]
    assert [line[:3] for line in lines[2:]] == [["lr=0.1", "0.1", "2"], ["lr=0.2", "0.2", "1"], ["lr=0.2", "0.2", "2"]]
    assert to_csv([]) == "run,step\n"
    odd = Run("=1+1")
    odd.add(1, {"x": np.array(np.nan)})
    odd.add(2, {"x": np.array(-1.5), "y": np.array(b"@a", object)})
    assert to_csv([odd]) == "run,step,x,y\n'=1+1,1,nan,nan\n'=1+1,2,-1.5,'@a\n"
    with pytest.raises(InvalidArgumentError, match="'z' was not recorded in =1"):
        odd.scalars("z")


def test_tensorboard_reads_the_summaries(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    session = Session(model(lr=0.1))
    runs = session.sweep("lr", [0.1, 0.2], steps=3, record=["loss:output", "w:ref"])
    written = write_runs(tmp_path, runs, session.page)
    assert [path.parent.name for path in written] == ["lr=0.1", "lr=0.2"]
    for run, path in zip(runs, written, strict=True):
        found = accumulator.EventAccumulator(str(path.parent), size_guidance={"histograms": 0, "scalars": 0})
        found.Reload()
        assert found.Tags()["scalars"] == ["loss"]
        assert found.Tags()["histograms"] == ["w/ref"]
        assert found.Tags()["graph"] is True
        events = found.Scalars("loss")
        assert [event.step for event in events] == [1, 2, 3]
        assert [event.value for event in events] == [float(value) for value in run.values["loss:output"]]
        shown = found.Histograms("w/ref")[0].histogram_value
        assert (shown.min, shown.max, shown.num, sum(shown.bucket)) == (-2, 4, 2, 2)


def test_odd_values_and_names_are_written_too(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = Run("../odd")
    run.add(1, {"a:x": np.array(np.nan), "b:y": np.array([np.inf, 1e30, -1e30]), "c:z": np.array("text", object),
                "d:e": np.zeros((0, 2))})  # fmt: skip
    (path,) = write_runs(tmp_path, {"odd": run})
    assert path.parent.parent == tmp_path
    assert write_run(path.parent, run) != path
    found = accumulator.EventAccumulator(str(path))
    found.Reload()
    assert found.Tags()["scalars"] == ["a/x"]
    assert np.isnan(found.Scalars("a/x")[0].value)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError):
        EventFile(tmp_path / "file")
