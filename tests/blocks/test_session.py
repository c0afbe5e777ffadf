"""Sessions: what is stale runs again and nothing else, errors stay where they belong, variables change step by step."""

import threading
from typing import Any

import numpy as np
import pytest

from rowgrad.blocks import Page, Progress, Session
from rowgrad.errors import PageError


def chain(length: int = 3) -> Page:
    """A placeholder, and blocks n0, n1, … after it, each the negative of the one before."""
    page = Page()
    page.add("Placeholder", id="x", dtype="float64", shape=["n"])
    before = "x:output"
    for position in range(length):
        page.add("Neg", id=f"n{position}", x=before)
        before = f"n{position}:y"
    return page


def descent() -> Page:
    """A variable that goes to 3."""
    page = Page()
    page.add("Variable", id="w", initial_value={"value": [0.0, 8.0], "dtype": "float64"})
    page.add("Sub", id="gap", x="w:ref", y=3)
    page.add("ApplyGradientDescent", id="descend", var="w:ref", alpha=0.5, delta="gap:z")
    return page


def ran(session: Session, **options: Any) -> list[str]:
    """Run, and tell which blocks were computed anew."""
    before = {id: kept.stamp for id, kept in session._kept.items()}
    session.run(**options).raise_first()
    return [id for id, kept in session._kept.items() if kept.stamp != before.get(id)]


def test_only_what_is_stale_runs_again() -> None:
    page = chain()
    page.add("Const", id="c", value=1.0)
    session = Session(page)
    assert sorted(ran(session, feeds={"x": [1, 2]})) == ["c", "n0", "n1", "n2", "x"]
    assert ran(session) == []
    assert ran(session, feeds={"x": [1.0, 2.0]}) == []
    assert ran(session, feeds={"x": [1.0, 3.0]}) == ["x", "n0", "n1", "n2"]
    page.move("n0", 1, 2)
    assert ran(session) == []
    page.change("n2", x="n0:y")
    assert ran(session) == ["n2"]
    page.change("c", value=2.0)
    assert ran(session) == ["c"]


def test_fetches_run_only_what_they_need() -> None:
    session = Session(chain())
    results = session.run("n1:y", {"x": [5]})
    assert list(results) == ["n1"]
    assert results["n1:y"].tolist() == [5.0]
    assert results["n1"].y.tolist() == [5.0]
    assert set(session._kept) == {"x", "n0", "n1"}
    assert session.results()["n2"].status == "waiting"
    assert list(session.run_to("n2")) == ["x", "n0", "n1", "n2"]
    with pytest.raises(PageError, match="n2:y: it has no results: waiting"):
        _ = Session(chain()).results()["n2"].y
    with pytest.raises(PageError, match="nonsense"):
        session.run("nonsense")
    with pytest.raises(PageError):
        results["n2"]


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({"nonsense": 1}, "no placeholder 'nonsense'"),
        ({"n0": [1.0]}, "no placeholder 'n0'"),
        ({"x": 1.0}, r"shape \[\], and must have \[n\]"),
        ({"x": ["a"]}, "does not fit"),
        ({"x": [[1.0], [1.0, 2.0]]}, "unevenly"),
        ({"x": np.ones(2, np.complex64)}, "does not fit"),
    ],
)
def test_feeds_are_checked(feeds: Any, words: str) -> None:
    with pytest.raises(PageError, match=words):
        Session(chain()).run(feeds=feeds)


def test_named_sizes_must_agree() -> None:
    page = chain()
    page.add("Placeholder", id="other", dtype="int32", shape=["n", 2])
    session = Session(page)
    with pytest.raises(PageError, match=r"other:output: .*n is 3 by x"):
        session.run(feeds={"x": [1, 2, 3], "other": [[1, 2]]})
    session.run(feeds={"x": [1], "other": [[1, 2]]}).raise_first()
    with pytest.raises(PageError, match="n is"):
        session.run(feeds={"x": [1, 2]})


def test_a_failing_block_is_reported_once_and_others_run() -> None:
    page = chain(2)
    page.add("SparseSegmentSum", id="bad", data=np.ones((1, 1)), indices=[7], segment_ids=[0])
    page.add("Neg", id="after", x="bad:output")
    page.add("Add", id="later", x="after:y", y="n1:y")
    page.add("Neg", id="unfinished")
    session = Session(page)
    results = session.run(feeds={"x": [1]})
    assert [(error.block, error.pin, error.code, error.position) for error in results.errors] == [
        ("bad", "indices", "index-out-of-range", 0),
        ("unfinished", "x", "missing-input", None),
    ]
    assert results["after"].reason == results["later"].reason == "skipped: needs bad"
    assert results["n1"].status == "done"
    assert {id: (r.status, r.stale) for id, r in session.results().items() if r.status != "done"} == {
        "bad": ("failed", False), "after": ("skipped", False), "later": ("skipped", False),
        "unfinished": ("failed", False)}  # fmt: skip
    with pytest.raises(PageError, match="bad:indices"):
        _ = results["bad"].output
    with pytest.raises(PageError, match="skipped: needs bad"):
        _ = results["later"].z
    with pytest.raises(PageError, match="bad:indices"):
        results.raise_first()


def test_a_mended_block_runs_with_what_follows() -> None:
    page = Page()
    page.add("SparseSegmentSum", id="s", data=[[1.0]], indices=[7], segment_ids=[0])
    page.add("Neg", id="after", x="s:output")
    session = Session(page)
    assert len(session.run().errors) == 1
    page.change("s", indices=[0])
    assert session.run().raise_first()["after"].y.tolist() == [[-1.0]]


def test_an_unfed_placeholder_fails_alone() -> None:
    page = chain(1)
    page.add("Const", id="c", value=1)
    results = Session(page).run()
    assert [error.code for error in results.errors] == ["not-fed"]
    assert results["c"].status == "done"
    assert results["n0"].needs == "x"


def test_variables_change_when_the_step_is_over() -> None:
    session = Session(descent())
    results = session.run()
    assert results["w"].ref.tolist() == [0.0, 8.0]
    assert results["descend"].out.tolist() == [1.5, 5.5]
    assert session.variables["w"].tolist() == [1.5, 5.5]
    assert not any(result.stale for result in session.results().values())  # it is what that step has seen
    kept = session.snapshot()
    session.restore(kept)
    assert session.results()["w"].stale
    session.run("gap")
    assert session.variables["w"].tolist() == [1.5, 5.5]
    history = session.loop(50, record=["gap:z"])
    assert history.steps == 50
    assert len(history["gap:z"]) == 50
    np.testing.assert_allclose(session.variables["w"], 3)


def test_snapshots() -> None:
    page = descent()
    session = Session(page)
    session.run()
    kept = session.snapshot()
    session.loop(3)
    after = session.variables["w"].tolist()
    session.restore(kept)
    assert session.variables["w"].tolist() == [1.5, 5.5]
    other = Session(page)
    other.restore(kept)
    other.loop(3)
    session.loop(3)
    assert session.variables["w"].tolist() == other.variables["w"].tolist() == after
    page.rename("w", "v")
    with pytest.raises(PageError, match="no such variable"):
        session.restore(kept)


def test_a_new_initial_value_begins_anew() -> None:
    page = descent()
    session = Session(page)
    session.loop(2)
    page.change("w", initial_value={"value": [1.0, 1.0], "dtype": "float64"})
    assert session.run()["w"].ref.tolist() == [1.0, 1.0]
    session.reset()
    assert session.variables == {}


def test_an_initial_value_that_is_computed_is_taken_once() -> None:
    page = descent()
    page.add("Neg", id="n", x="w:ref")
    page.add("Variable", id="v", initial_value="n:y")
    page.add("Sub", id="less", x="v:ref", y=1)
    page.add("Assign", id="set", ref="v:ref", value="less:z")
    session = Session(page)
    session.loop(3)
    assert session.variables["v"].tolist() == [-3.0, -11.0]  # from −[0, 8], although w has moved since


def test_step_by_step() -> None:
    session = Session(descent())
    walked = [session.step() for _ in range(4)]
    assert [result.block if result else None for result in walked] == ["w", "gap", "descend", None]
    assert session.variables["w"].tolist() == [1.5, 5.5]
    assert session.step().ref.tolist() == [1.5, 5.5]  # type: ignore[union-attr]
    quiet = Session(chain(1))
    assert [quiet.step({"x": [1]}).block, quiet.step().block, quiet.step(), quiet.step()] == ["x", "n0", None, None]  # type: ignore[union-attr]


def test_step_goes_on_after_a_failure() -> None:
    page = chain(1)
    page.add("Const", id="c", value=1)
    session = Session(page)
    walked = [session.step() for _ in range(4)]
    assert [(r.block, r.status) if r else None for r in walked] == [
        ("x", "failed"), ("n0", "skipped"), ("c", "done"), None]  # fmt: skip


def test_progress_tells_every_block() -> None:
    told: list[Progress] = []
    Session(chain(2)).run(feeds={"x": [1]}, progress=told.append)
    assert [(p.done, p.total, p.block) for p in told] == [(0, 3, "x"), (1, 3, "n0"), (2, 3, "n1"), (3, 3, None)]


def test_cancelling_from_another_thread_in_a_loop_drops_the_step() -> None:
    session = Session(descent())
    reached = threading.Event()
    go_on = threading.Event()

    def progress(report: Progress) -> None:
        if report.step == 2 and report.block == "descend":
            reached.set()
            assert go_on.wait(30)

    found: list[Any] = []
    worker = threading.Thread(target=lambda: found.append(session.loop(1000, progress=progress)))
    worker.start()
    assert reached.wait(30)
    session.cancel()
    go_on.set()
    worker.join(30)
    (history,) = found
    assert history.cancelled
    assert history.steps == 2
    assert session.variables["w"].tolist() == [2.25, 4.25]  # two whole steps
    assert session.run().raise_first()["w"].ref.tolist() == [2.25, 4.25]


def test_a_loop_stops_where_a_block_fails() -> None:
    page = descent()
    page.add("Neg", id="unfinished")
    history = Session(page).loop(5)
    assert history.steps == 0
    assert [error.block for error in history.results.errors] == ["unfinished"]


def test_sessions_are_isolated_and_run_side_by_side() -> None:
    page = descent()
    sessions = [Session(page) for _ in range(6)]
    threads = [threading.Thread(target=s.loop, args=(i * 7,)) for i, s in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for position, session in enumerate(sessions):
        alone = Session(page)
        alone.loop(position * 7)
        if position:
            assert session.variables["w"].tobytes() == alone.variables["w"].tobytes()
        else:
            assert session.variables == {}


def test_results_cannot_be_written_to() -> None:
    results = Session(chain(1)).run(feeds={"x": [1]})
    with pytest.raises(ValueError, match="read-only"):
        results["n0"].y[0] = 5


def test_results_do_not_change_with_what_was_fed() -> None:
    array = np.ones(2)
    session = Session(chain(1))
    session.run(feeds={"x": array})
    array[:] = 7
    assert session.run()["n0"].y.tolist() == [-1.0, -1.0]


def test_files_in_and_out(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.arange(3.0))
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    page = Page(folder=tmp_path)
    page.add("File", id="f", path="x.npy", dtype="float32")
    page.add("File", id="t", path="t.csv", part="b")
    page.add("Save", id="s", filename={"value": "out.npz"}, tensor_names=["f", "t"], data=["f:output", "t:output"])
    page.add("Restore", id="r", file_pattern={"value": "old.npz"}, tensor_name={"value": "f"}, dt="float32")
    assert str(page.signal("f")) == "float32 [3]"
    session = Session(page)
    results = session.run()
    assert [error.block for error in results.errors] == ["r"]
    with np.load(tmp_path / "out.npz") as saved:
        assert saved["f"].tolist() == [0.0, 1.0, 2.0]
        assert saved["t"].tolist() == [2]
    (tmp_path / "out.npz").rename(tmp_path / "old.npz")
    assert session.run().raise_first()["r"].tensor.tolist() == [0.0, 1.0, 2.0]
    np.save(tmp_path / "x.npy", np.arange(5.0))
    assert session.run()["f"].output.shape == (5,)


@pytest.mark.parametrize("name", ["../x.npz", "/x.npz", "sub/../../x.npz", "", "x.npy", "missing/x.npz"])
def test_saving_stays_in_the_folder(tmp_path: Any, name: str) -> None:
    (tmp_path / "inner" / "sub").mkdir(parents=True)
    page = Page(folder=tmp_path / "inner")
    page.add("Save", id="s", filename={"value": name}, tensor_names=["a"], data=[[1.0]])
    (error,) = Session(page).run().errors
    assert (error.block, error.code) == ("s", "bad-file")
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]


def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Any) -> None:
    (tmp_path / "inner").mkdir()
    np.save(tmp_path / "secret.npy", np.ones(1))
    (tmp_path / "inner" / "link.npy").symlink_to(tmp_path / "secret.npy")
    with pytest.raises(PageError, match="outside the folder"):
        Page(folder=tmp_path / "inner").add("File", path="link.npy")


@pytest.mark.slow
def test_a_thousand_blocks_cost_little() -> None:
    """No time is asserted; a walk that took quadratic time or deep recursion would not end here."""
    page = chain(3000)
    session = Session(page)
    assert session.run(feeds={"x": [1.0]}).raise_first()["n2999"].y.tolist() == [1.0]
    assert not any(result.stale for result in session.results().values())


def test_a_result_larger_than_memory_is_an_error_of_its_block() -> None:
    page = Page()
    page.add("SparseSegmentSumGrad", id="huge", grad=[[1.0]], indices=[0], segment_ids=[0], output_dim0=2**40)
    (error,) = Session(page).run().errors
    assert error.block == "huge"
    assert isinstance(error.__cause__, MemoryError)


def test_a_page_can_be_drawn_before_its_data_is_there(tmp_path: Any) -> None:
    page = Page(folder=tmp_path)
    page.add("File", "f", path="later.npy", dtype="float32")
    page.add("Neg", "n", x="f")
    assert [(problem.block, problem.pin, problem.code) for problem in page.problems()] == [
        ("f", "path", "no-such-file")]  # fmt: skip
    assert str(page.signal("n")) == "float32 [?]"
    session = Session(page)
    assert [error.code for error in session.run().errors] == ["no-such-file"]
    np.save(tmp_path / "later.npy", np.array([1.0]))
    assert session.run().raise_first()["n"].y.tolist() == [-1.0]
    assert page.problems() == []
