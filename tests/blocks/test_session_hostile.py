"""Sessions under fire: pages that change meanwhile, interruptions, files written twice in a moment, odd orders."""

import copy
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rowgrad.blocks import Page, Progress, Session, Snapshot
from rowgrad.blocks.results import DONE, FAILED, SKIPPED
from rowgrad.errors import PageError


def counter() -> Page:
    """Two variables that count together."""
    page = Page()
    for name in ("v", "w"):
        page.add("Variable", name, initial_value=[0.0])
        page.add("Add", f"{name}_next", x=name, y=[1.0])
        page.add("Assign", f"{name}_assign", ref=name, value=f"{name}_next")
    return page


class Fresh(RuleBasedStateMachine):
    """Whatever is done in whatever order: a session gives what a new one would give."""

    @initialize()
    def begin(self) -> None:
        self.page = Page()
        self.page.add("Placeholder", "x", dtype="float32", shape=["n"])
        self.page.add("Const", "c", value=[1.0])
        self.page.add("Variable", "v", initial_value=[2.0])
        self.page.add("Add", "sum", x="x", y="c")
        self.page.add("Mul", "product", x="sum", y="v")
        self.page.add("ReduceSum", "y", input="product", axis=0)
        self.session = Session(self.page)
        self.count = 0

    @rule(numbers=st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=2))
    def feed(self, numbers: list[float]) -> None:
        self.session.run("x", {"x": numbers})

    @rule(number=st.sampled_from([1.0, 2.0]))
    def change(self, number: float) -> None:
        self.page.change("c", value=[number])

    @rule(number=st.sampled_from([3.0, 4.0]))
    def update(self, number: float) -> None:
        self.session.run("v")
        self.session.restore(Snapshot({"v": np.array([number], np.float32)}))

    @rule(source=st.sampled_from(["x", "c", "v"]), pin=st.sampled_from(["sum:x", "product:y"]))
    def rewire(self, source: str, pin: str) -> None:
        self.page.connect(source, pin)

    @rule()
    def rename(self) -> None:
        self.page.rename("sum", "other")
        self.page.rename("other", "sum")

    @rule()
    def remove_and_take_back(self) -> None:
        before = self.page.state()
        self.page.remove("product")
        self.session.run()
        self.page.restore(before)

    @precondition(lambda self: len(self.page) < 20)
    @rule(source=st.sampled_from(["sum", "product", "v", "x"]))
    def add(self, source: str) -> None:
        self.count += 1
        self.page.add("Neg", f"neg{self.count}", x=source)

    @rule(fetch=st.sampled_from(["y", "sum", None]))
    def run(self, fetch: str | None) -> None:
        self.session.run(fetch)

    @rule(steps=st.integers(1, 4))
    def walk(self, steps: int) -> None:
        for _ in range(steps):
            self.session.step()

    @invariant()
    def results_are_those_of_a_new_session(self) -> None:
        if not hasattr(self, "page"):
            return
        new = Session(self.page)
        new.run("v", self.session.feeds)
        new.restore(self.session.snapshot())
        for result in self.session.results().values():
            if result.status == DONE and not result.stale:
                expected = new.run(result.block)[result.block]
                assert expected.status == DONE
                for pin, array in result.outputs.items():
                    assert array.tobytes() == expected.outputs[pin].tobytes()


Fresh.TestCase.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
TestFresh = Fresh.TestCase


def test_a_page_that_is_changed_while_it_runs() -> None:
    page = counter()
    session = Session(page)

    def meddle(progress: Progress) -> None:
        if progress.block == "v":
            page.remove("w_assign")
            page.change("v_next", y=[100.0])
            page.rename("w", "u")

    assert session.run(progress=meddle).errors == []
    assert session.snapshot().variables["v"] == 1.0
    assert "w_assign" not in session.run()
    assert session.variables["v"] == 101.0


def test_threads_that_draw_while_others_run() -> None:
    page, failed = counter(), []
    done = threading.Event()

    def draw() -> None:
        while not done.is_set():
            page.add("Neg", "a", x="v")
            page.add("Neg", "b", x="a")
            page.rename("a", "c")
            page.tidy()
            page.remove("b")
            page.remove("c")

    def run() -> None:
        try:
            session = Session(page)
            for _ in range(60):
                assert session.run().errors == []
                session.step()
                session.results()
        except BaseException as error:
            failed.append(error)

    drawing = threading.Thread(target=draw)
    running = [threading.Thread(target=run) for _ in range(2)]
    for thread in (drawing, *running):
        thread.start()
    for thread in running:
        thread.join()
    done.set()
    drawing.join()
    assert failed == []


def test_an_interruption_leaves_variables_whole_and_the_lock_free() -> None:
    session = Session(counter())
    session.run()

    def interrupt(progress: Progress) -> None:
        if progress.block == "w_assign":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.loop(5, progress=interrupt)
    assert [float(session.variables[name][0]) for name in "vw"] == [1.0, 1.0]
    other = threading.Thread(target=session.run)
    other.start()
    other.join(10)
    assert not other.is_alive()
    assert [float(session.variables[name][0]) for name in "vw"] == [2.0, 2.0]


def test_looking_at_results_from_a_callback_disturbs_nothing() -> None:
    page = counter()
    session = Session(page)

    def look(progress: Progress) -> None:
        if progress.block == "w" and "v_assign" in page:
            page.remove("v_assign")
        session.results()

    assert session.run(progress=look).errors == []
    assert session.variables["v"] == 1.0


def steps_of(session: Session, feeds: Any = None) -> list[tuple[str, str]]:
    found = []
    while (result := session.step(feeds)) is not None:
        found.append((result.block, result.status))
        assert len(found) < 50
    return found


def test_a_step_that_failed_is_taken_again_when_its_reason_is_gone() -> None:
    page = Page()
    page.add("Placeholder", "x", dtype="int32", shape=["n"])
    page.add("Gather", "g", params=[1.0, 2.0], indices="x")
    page.add("Neg", "n", x="g")
    session = Session(page)
    for _ in range(3):
        result = session.step()
    assert result is not None
    assert (result.block, result.status) == ("n", SKIPPED)
    assert steps_of(session, {"x": [5]}) == [("x", DONE), ("g", FAILED)]
    session = Session(page)
    assert session.step({"x": [5]}) is not None
    assert session.step().status == FAILED  # type: ignore[union-attr]
    assert steps_of(session, {"x": [1]}) == [("x", DONE), ("g", DONE), ("n", DONE)]


def test_updates_of_a_block_that_was_removed_between_steps_are_dropped() -> None:
    page = counter()
    session = Session(page)
    while (result := session.step()) is not None and result.block != "v_assign":
        pass
    page.remove("v_assign")
    steps_of(session)
    assert [float(session.variables[name][0]) for name in "vw"] == [0.0, 1.0]
    session.step()
    session.reset()
    page.remove("w")
    steps_of(session)


def test_files_that_are_written_twice_in_one_moment(tmp_path: Path) -> None:
    page = Page(folder=tmp_path)
    for turn in range(20):
        np.save(tmp_path / "x.npy", np.array([turn]))
        os.utime(tmp_path / "x.npy", ns=(time_of(tmp_path), time_of(tmp_path)))
        if turn == 0:
            page.add("File", "f", path="x.npy")
            session = Session(page)
        assert session.run()["f"].output.tolist() == [turn]


def time_of(folder: Path) -> int:
    """One moment for all: what a coarse clock of a file system would say."""
    stamp = folder / "stamp"
    if not stamp.exists():
        stamp.touch()
    return stamp.stat().st_mtime_ns


def test_a_snapshot_of_ones_own_is_not_shared() -> None:
    session = Session(counter())
    mine = np.array([5.0], np.float32)
    session.restore(Snapshot({"v": mine}))
    mine[0] = 9.0
    assert session.variables["v"] == 5.0


def test_outputs_recorded_under_two_names() -> None:
    history = Session(counter()).loop(2, record=["v_next", "v_next:z"])
    assert [float(a[0]) for a in history["v_next"]] == [float(a[0]) for a in history["v_next:z"]] == [1.0, 2.0]


def test_results_and_pages_can_be_copied() -> None:
    page = counter()
    results = Session(page).run()
    for other in (copy.deepcopy(results), pickle.loads(pickle.dumps(results))):
        assert other["v_next"].z == results["v_next"].z
    for twin in (copy.deepcopy(page), pickle.loads(pickle.dumps(page)), page.copy()):
        assert twin == page
        twin.remove("v")
        assert "v" in page
    assert results.get("nothing") is None
    assert results.get("v") is results["v"]


@pytest.mark.parametrize(
    "call",
    [
        lambda session: session.sweep(None, [[1.0]], steps=1, record=["x:output"]),
        lambda session: session.sweep("x:value", None, steps=1, record=["x:output"]),
        lambda session: session.sweep("x:value", np.array(1.0), steps=1, record=["x:output"]),
        lambda session: session.sweep("x:value", [[1.0]], steps="x", record=["x:output"]),
        lambda session: session.sweep("x:value", [[1.0]], steps=1, record=None),
        lambda session: session.sweep("x:value", [[1.0]], steps=1, record=["x:output"], every=None),
        lambda session: session.sweep("x:value", [[1.0]], steps=1, record=["x:output"], feeds=5),
        lambda session: session.sweep("x:value", [[1.0]], steps=1, record=["x:output"], progress="x"),
        lambda session: session.loop(1.5),
        lambda session: session.restore({}),
        lambda session: session.run_to(5),
        lambda session: session.evaluate(None),
        lambda session: Session("x"),
    ],
)
def test_arguments_of_a_wrong_kind(call: Any) -> None:
    page = Page()
    page.add("Const", "x", value=[1.0, 2.0])
    session = Session(page)
    with pytest.raises(PageError):
        call(session)
    assert session.run()["x"].output.tolist() == [1.0, 2.0]
