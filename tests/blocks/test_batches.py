"""Batches: every example once an epoch, the same batches for the same seed, from files and arrays, ragged too."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowgrad.blocks import Page, Session
from rowgrad.blocks._random import philox
from rowgrad.blocks.batches import Batches, Ragged
from rowgrad.errors import FileError, PageError


@given(
    size=st.integers(1, 60), batch_size=st.integers(1, 20), shuffle=st.booleans(), seed=st.integers(0, 2**63 - 1),
    remainder=st.sampled_from(["keep", "drop"]), holdout=st.sampled_from([0.0, 0.25]),
)  # fmt: skip
def test_an_epoch_has_every_example_once(
    size: int, batch_size: int, shuffle: bool, seed: int, remainder: str, holdout: float
) -> None:
    batches = Batches({"x": np.arange(size) * 10}, batch_size=batch_size, shuffle=shuffle, seed=seed,
                      remainder=remainder, holdout=holdout)  # fmt: skip
    held_out = set(batches.examples["test"])
    assert len(held_out) == round(size * holdout)
    for epoch in range(2):
        seen: list[int] = []
        for number in range(batches.count()):
            found = batches.batch(epoch * batches.count() + number)
            assert found["x"].tolist() == [row * 10 for row in found["rows"]]
            assert len(found["rows"]) == batch_size or (remainder == "keep" and number == batches.count() - 1)
            seen += found["rows"].tolist()
        train = [row for row in range(size) if row not in held_out]
        if not shuffle:
            assert seen == train[: len(seen)]
        if remainder == "keep":
            assert sorted(seen) == train
        assert len(set(seen)) == len(seen)
        assert not held_out & set(seen)


def test_the_random_numbers_are_those_of_the_paper() -> None:
    """Known answers of Random123's test suite for philox4x32-10."""
    zeros = philox((0, 0), np.zeros((1, 4), np.uint32))
    assert [f"{word:08x}" for word in zeros[0]] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    ones = philox((0xFFFFFFFF, 0xFFFFFFFF), np.full((1, 4), 0xFFFFFFFF, np.uint32))
    assert [f"{word:08x}" for word in ones[0]] == ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]


def test_the_order_is_the_same_for_ever() -> None:
    batches = Batches({"x": np.arange(8)}, batch_size=8, seed=7)
    assert batches.batch(0)["x"].tolist() == ORDERS[0]
    assert batches.batch(1)["x"].tolist() == ORDERS[1]


ORDERS = [[2, 7, 4, 5, 3, 1, 6, 0], [4, 3, 2, 7, 0, 6, 5, 1]]


def rows_of(found: dict[str, Any], name: str) -> list[list[int]]:
    return [part.tolist() for part in np.split(found[name], found[f"{name}_splits"][1:-1])]


def test_ragged_columns() -> None:
    lists = [[1, 2], [], [3], [4, 5, 6], [7]]
    column = Ragged(np.array([item for row in lists for item in row]), np.cumsum([0, *map(len, lists)]))
    batches = Batches({"words": column}, batch_size=2, seed=1)
    for number in range(6):
        found = batches.batch(number)
        assert rows_of(found, "words") == [lists[row] for row in found["rows"]]
        assert found["words_segments"].tolist() == [i for i, row in enumerate(found["rows"]) for _ in lists[row]]


LISTS = [[3, 1], [4], [], [1, 5, 9]]
LABELS = [0.5, 1.5, 2.5, 3.5]


def written(folder: Path, kind: str) -> str:
    name = f"data{kind}"
    if kind == ".npz":
        words, splits = np.concatenate([np.array(row, int) for row in LISTS]), np.cumsum([0, *map(len, LISTS)])
        np.savez(folder / name, words=words, words_splits=splits, label=np.array(LABELS))
    elif kind == ".csv":
        lines = [f"{' '.join(map(str, row))},{label}" for row, label in zip(LISTS, LABELS, strict=True)]
        (folder / name).write_text("\n".join(["words,label", *lines]) + "\n")
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import feather, parquet

        table = pyarrow.table({"words": LISTS, "label": LABELS})
        parquet.write_table(table, folder / name) if kind == ".parquet" else feather.write_feather(table, folder / name)
    return name


@pytest.mark.parametrize("kind", [".npz", ".csv", ".parquet", ".arrow", ".feather"])
def test_files(tmp_path: Path, kind: str) -> None:
    page = Page(folder=tmp_path)
    page.add("Batches", "data", path=written(tmp_path, kind), columns=["words", "label"], ragged=["words"],
             batch_size=3, shuffle=False)  # fmt: skip
    assert str(page.signal("data:words")) == "int64 [data.words]"
    assert str(page.signal("data:label")) == "float64 [data.rows]"
    results = Session(page).loop(2).results
    assert results["data"].label.tolist() == LABELS[3:]
    assert results["data"].words.tolist() == LISTS[3]
    assert Page.from_json(page.to_json(), folder=tmp_path) == page


def test_arrays_and_a_lone_array_in_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(6, 2))
    page = Page(folder=tmp_path)
    page.add("Batches", "a", path="x.npy", columns=["x"], batch_size=4, shuffle=False, remainder="drop")
    page.add("Const", "values", value=[1, 2, 3])
    page.add("Batches", "b", data=["values", [0, 1, 3], [5.0, 6.0]], columns=["v", "y"], ragged=["v"], batch_size=2,
             shuffle=False)  # fmt: skip
    assert str(page.signal("a:x")) == "float64 [4, 2]"
    results = Session(page).run().raise_first()
    assert results["a"].x.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert results["b"].v_segments.tolist() == [0, 1, 1]
    assert results["b"].y.tolist() == [5, 6]
    assert Page.from_json(page.to_json(), folder=tmp_path) == page


def counting(**settings: Any) -> Page:
    page = Page()
    page.add("Batches", "data", data=[np.arange(10.0)], columns=["x"], batch_size=4, **settings)
    page.add("ReduceMean", "mean", input="data:x", axis=[0])
    return page


def test_each_step_of_a_loop_gets_the_next_batch() -> None:
    session = Session(counting(shuffle=False))
    assert session.run()["data"].rows.tolist() == [0, 1, 2, 3]
    assert session.run()["data"].rows.tolist() == [0, 1, 2, 3]
    steps = session.loop(4, record=["data:rows"])["data:rows"]
    assert [rows.tolist() for rows in steps] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1, 2, 3]]
    assert not session.results()["mean"].stale
    kept = session.snapshot()
    more = session.loop(2, record=["data:rows"])["data:rows"]
    assert [rows.tolist() for rows in more] == [[4, 5, 6, 7], [8, 9]]
    session.restore(kept)
    assert session.loop(1, record=["data:rows"])["data:rows"][0].tolist() == [4, 5, 6, 7]
    session.reset()
    assert session.loop(1, record=["data:rows"])["data:rows"][0].tolist() == [0, 1, 2, 3]


def test_a_loop_ends_with_its_epochs() -> None:
    session = Session(counting(epochs=2, remainder="drop"))
    history = session.loop(100, record=["data:rows"])
    assert history.steps == 4
    assert not history.results.errors
    assert len(history["data:rows"]) == 4


def test_evaluating_runs_on_what_was_held_out_and_changes_nothing() -> None:
    page = counting(holdout=0.5, seed=3)
    page.add("Variable", "w", initial_value=0.0)
    page.add("Assign", ref="w", value=1.0)
    session = Session(page)
    trained = {int(row) for rows in session.loop(4, record=["data:rows"])["data:rows"] for row in rows}
    session.restore(session.snapshot())
    before = session.variables["w"]
    held_out = set(range(10)) - trained
    assert len(held_out) == 5
    assert session.evaluate("mean")["mean"] == pytest.approx(np.mean(list(held_out)))
    assert session.evaluate(["mean:output"], "train")["mean:output"] == pytest.approx(np.mean(list(trained)))
    assert session.variables["w"] is before
    assert session.loop(1, record=["data:rows"]).steps == 1
    with pytest.raises(PageError, match="no batches"):
        session.evaluate("w")
    with pytest.raises(PageError, match="too few"):
        Session(counting()).evaluate("mean")


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": []}, {"columns": ["rows"]}, {"columns": ["x", "x"]}, {"columns": ["a:b"]}, {"columns": [3]},
        {"batch_size": 0}, {"epochs": 0}, {"remainder": "no"}, {"holdout": 1.0}, {"holdout": float("nan")},
        {"seed": -1}, {"ragged": ["y"]}, {"columns": ["x", "x_splits"], "ragged": ["x"]},
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    page = counting()
    before = page.to_json()
    with pytest.raises(PageError):
        page.change("data", **wrong)
    assert page.to_json() == before


def test_wrong_data_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.arange(3), b=np.arange(4), a_splits=np.array([0, 5]), c=np.float32(1))
    (tmp_path / "x.csv").write_text("a\n1 x\n2\n")
    page = Page(folder=tmp_path)
    for given_ in (
        {"path": "x.npz", "columns": ["nobody"]},
        {"path": "x.npz", "columns": ["a"], "ragged": ["a"]},
        {"path": "x.npz", "columns": ["c"]},
        {"path": "x.csv", "columns": ["a"], "ragged": ["a"]},
        {"path": "../x.npz", "columns": ["a"]},
        {"path": "x.txt", "columns": ["a"]},
    ):
        with pytest.raises((PageError, FileError)):
            page.add("Batches", **given_)
    page.add("Batches", "odd", path="x.npz", columns=["a", "b"])
    assert "column b has 4 examples" in str(Session(page).run()["odd"].error)
    page.add("Batches", "later", path="not_yet.npz", columns=["a"])
    assert [problem.code for problem in page.problems()] == ["no-such-file"]


def test_files_that_change_are_looked_at_again(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 2), np.float32))
    page = Page(folder=tmp_path)
    page.add("File", "x", path="x.npy")
    page.add("ReduceSum", "y", input="x", axis=[0, 1])
    found = page.add_gradients("y", ["x"])
    session = Session(page)
    assert session.run()[str(found["x"])].shape == (3, 2)
    np.save(tmp_path / "x.npy", np.ones((5, 4), np.float32))
    assert session.run().raise_first()[str(found["x"])].shape == (5, 4)
    assert str(page.signal("x")) == "float32 [5, 4]"


def test_splits_of_any_name() -> None:
    page = counting(holdout=0.2, splits=["validation=0.3", "dev = 0.1"], seed=3)
    session = Session(page)
    session.run().raise_first()
    source = session._source(page["data"])
    assert {name: len(rows) for name, rows in source.examples.items()} == {"train": 4, "test": 2, "validation": 3,
                                                                          "dev": 1}  # fmt: skip
    assert sorted(row for rows in source.examples.values() for row in rows.tolist()) == list(range(10))
    for name, rows in source.examples.items():
        assert session.evaluate("mean", name)["mean"] == pytest.approx(rows.mean())
    with pytest.raises(PageError, match="there is no split 'nobody'; there are: train, test, validation, dev"):
        session.evaluate("mean", "nobody")
    # What is held out for testing does not depend on further splits.
    other = Session(counting(holdout=0.2, seed=3))
    assert other.evaluate("mean")["mean"] == session.evaluate("mean")["mean"]
    assert Page.from_json(page.to_json()) == page
    assert 'splits={"validation": 0.3, "dev": 0.1}' in page.to_python()


def test_a_column_names_the_splits(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("x,part\n1,train\n2,valid\n3,train\n4,valid\n5,test\n")
    page = Page(folder=tmp_path)
    page.add("Batches", "data", path="x.csv", columns=["x", "part"], split_by="part", batch_size=2, shuffle=False)
    page.add("Cast", "real", x="data:x", DstT="float32")
    page.add("ReduceMean", "mean", input="real", axis=[0])
    session = Session(page)
    assert session.evaluate("mean", "train")["mean"] == 2
    assert session.evaluate("mean", "valid")["mean"] == 3
    assert session.evaluate("mean")["mean"] == 5
    assert session.loop(2, record=["data:x"])["data:x"][1].tolist() == [1, 3]
    (tmp_path / "x.csv").write_text("x,part\n1,valid\n")
    with pytest.raises(PageError, match="no example has the split 'train' in column part; there are: valid"):
        session.run().raise_first()


@pytest.mark.parametrize(
    "wrong",
    [{"splits": ["a"]}, {"splits": ["a=x"]}, {"splits": ["=0.1"]}, {"splits": ["a=2"]}, {"splits": ["test=0.1"]},
     {"splits": ["a=0.1", "a=0.2"]}, {"splits": ["a=0.6"], "holdout": 0.5}, {"splits": ["a=nan"]}, {"splits": [3]},
     {"split_by": "nobody"}, {"split_by": "x", "holdout": 0.5}],
)  # fmt: skip
def test_wrong_splits_are_refused(wrong: dict[str, Any]) -> None:
    page = counting()
    before = page.to_json()
    with pytest.raises(PageError):
        page.change("data", **wrong)
    assert page.to_json() == before
