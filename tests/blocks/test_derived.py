"""Derived groups: in no state of a page is the gradient that it shows not the gradient of the page."""

import pickle
from typing import Any

import numpy as np
import pytest

from rowgrad import RowGradient
from rowgrad.blocks import Page, Session
from rowgrad.errors import PageError


def model(*, sparse: bool = False) -> Page:
    page = Page("model")
    page.add("Variable", "table", initial_value=np.arange(8, dtype=np.float32).reshape(4, 2))
    page.add("Variable", "w", initial_value=[[1.0, -1.0], [0.5, 2.0]])
    page.add("SparseSegmentMean", "pooled", data="table", indices=[0, 0], segment_ids=[0, 1], sparse_gradient=sparse)
    page.add("MatMul", "scores", a="pooled", b="w")
    page.add("SparseSoftmaxCrossEntropyWithLogits", "entropy", features="scores", labels=[0, 1])
    page.add("ReduceSum", "loss", input="entropy:loss", axis=[0])
    return page


def value(page: Page, wire: Any) -> Any:
    return Session(page).run(wire).raise_first()[str(wire)]


def refused(page: Page, code: str, act: Any) -> PageError:
    before = page.to_json(), list(page)
    with pytest.raises(PageError) as caught:
        act()
    assert caught.value.code == code, str(caught.value)
    assert (page.to_json(), list(page)) == before
    return caught.value


def test_the_gradient_follows_a_literal() -> None:
    page = model()
    found = page.add_gradients("loss", ["table", "w"])
    assert found.group == "gradients"
    assert [str(wire) for wire in found.values()] == ["gradients/d_table:output", "gradients/d_w:product"]
    assert np.flatnonzero(value(page, found["table"]).any(axis=1)).tolist() == [0]
    ids, places = page.members("gradients"), {block.id: block.at for block in page}
    page.change("pooled", indices=[2, 2])
    assert np.flatnonzero(value(page, found["table"]).any(axis=1)).tolist() == [2]
    assert page.members("gradients") == ids
    assert {block.id: block.at for block in page} == places
    assert not page.problems()


def test_names_say_what_they_are_and_nothing_is_computed_twice() -> None:
    page = model()
    page.add_gradients("loss", ["table", "w"])
    names = {block.id.removeprefix("gradients/") for block in page if block.group == "gradients"}
    assert {"d_table", "d_w", "d_pooled", "d_scores"} <= names
    assert not any(block.op in ("Softmax", "LogSoftmax") for block in page)
    page = Page()
    page.add("Variable", "x", initial_value=[[1.0, 2.0]])
    page.add("Const", "labels", value=[[0.0, 1.0]])
    page.add("SoftmaxCrossEntropyWithLogits", "entropy", features="x", labels="labels")
    page.add_gradients("entropy:loss", ["x"])
    assert not any(block.op in ("Softmax", "LogSoftmax") for block in page)


def test_what_has_not_changed_stays_the_same_block() -> None:
    page = model()
    page.add_gradients("loss", ["table", "w"])
    session = Session(page)
    session.run()
    before = {block.id: block for block in page}
    page.change("pooled", indices=[1, 1])
    changed = {block.id for block in page if block is not before[block.id]}
    assert changed == {"pooled", "gradients/d_table"}
    page.move("scores", 1, 1)
    assert {block.id for block in page if block is not before[block.id]} == {*changed, "scores"}


def test_compact_becomes_dense_and_wires_follow() -> None:
    page = model(sparse=True)
    rows = page.add_gradients("loss", ["table"])["table"]
    assert isinstance(rows, RowGradient)
    page.add("Neg", "user", x=rows.output)
    page.change("pooled", sparse_gradient=False)
    now = page.gradients("gradients")["table:ref"]
    assert page["user"].inputs["x"] == now
    assert str(page.signal("user")) == "float32 [4, 2]"


@pytest.mark.parametrize("edit", ["wire", "block", "target", "dtype"])
def test_a_group_that_cannot_be_derived_says_why_and_runs_nothing(edit: str) -> None:
    page = model()
    found = page.add_gradients("loss", ["table", "w"])
    page.add("Neg", "user", x=found["w"])
    before = page.state(), page.to_json()
    places = {block.id: block.at for block in page}
    match edit:
        case "wire":
            page.disconnect("scores:a")
        case "block":
            page.remove("loss")
        case "target":
            page.remove("w")
        case "dtype":
            page.add("Cast", "whole", x="entropy:loss", DstT="int32")
            page.connect("whole:y", "loss:input")
    problem = page.groups["gradients"].problem
    assert problem is not None
    assert (problem.code, problem.block) == ("underivable", "gradients")
    assert problem in page.problems()
    assert str(page["user"].inputs["x"]).startswith("gradients/d_w")
    results = Session(page).run()
    assert results["user"].status == "skipped"
    assert all(result.status != "done" for id, result in results.items() if id.startswith("gradients/"))
    broken = page.to_json()
    assert Page.from_json(broken).to_json() == broken
    match edit:
        case "wire":
            page.connect("pooled", "scores:a")
        case "block":
            page.add("ReduceSum", "loss", input="entropy:loss", axis=[0])
        case "target":
            page.add("Variable", "w", initial_value=[[1.0, -1.0], [0.5, 2.0]])
            page.connect("w", "scores:b")
        case "dtype":
            page.connect("entropy:loss", "loss:input")
    assert page.groups["gradients"].problem is None
    assert page["user"].inputs["x"] == page.gradients("gradients")["w:ref"]
    assert {id: at for id, at in places.items() if "/" in id} == {b.id: b.at for b in page if b.group}
    page.restore(before[0])
    assert page.to_json() == before[1]


def test_edits_inside_are_refused_and_detaching_allows_them() -> None:
    page = model()
    page.add_gradients("loss", ["table"])
    for act in (
        lambda: page.change("gradients/d_table", indices=[1, 1]),
        lambda: page.connect("w", "gradients/d_table:grad"),
        lambda: page.disconnect("gradients/d_table:grad"),
        lambda: page.remove("gradients/d_table"),
        lambda: page.rename("gradients/d_table", "mine"),
        lambda: page.drop(["gradients/d_table"]),
        lambda: page.group(["gradients/d_table"]),
        lambda: page.put(["gradients/d_table"], ""),
        lambda: page.put(["w"], "gradients"),
        lambda: page.ungroup("gradients"),
        lambda: page.add("Neg", group="gradients", x="w"),
        lambda: page.add("Neg", "gradients/mine", x="w"),
        lambda: page.extract("gradients"),
    ):
        assert "detach" in str(refused(page, "derived", act))
    page.move("gradients/d_table", 5, 6)
    assert page["gradients/d_table"].at == (5, 6)
    page.detach("gradients")
    page.change("pooled", indices=[2, 2])
    page.change("gradients/d_table", indices=[1, 1])
    assert page.groups["gradients"].recipe is None
    refused(page, "not-derived", lambda: page.detach("gradients"))
    assert page.add_gradients("loss", ["w"]).group == "gradients_1"


def test_gradients_of_gradients_follow_too() -> None:
    page = Page()
    page.add("Variable", "x", initial_value=np.array([2.0, 3.0]))
    page.add("Square", "s", x="x")
    page.add("Mul", "cube", x="s", y="x")
    (first,) = page.add_gradients("cube", ["x"]).values()
    second = page.add_gradients(first, ["x"])
    assert second.group == "gradients_1"
    assert value(page, second["x"]).tolist() == [12, 18]
    page.change("cube", y="s")
    (now,) = page.gradients("gradients_1").values()
    assert value(page, now).tolist() == [48, 108]  # of x⁴: 12 x²
    assert Page.from_json(page.to_json()).to_json() == page.to_json()


def test_a_group_is_not_derived_from_itself() -> None:
    page = model()
    found = page.add_gradients("loss", ["w"])
    refused(page, "cycle", lambda: page.connect(found["w"], "scores:b"))
    page.add("Neg", "next", x=found["w"])
    refused(page, "cycle", lambda: page.change("gradients", y="next"))
    page.change("gradients", xs=["table"])
    assert list(page.gradients("gradients")) == ["table:ref"]
    assert page["next"].missing() == ["x"]


def test_renaming_and_grouping_keep_it_derived() -> None:
    page = model()
    page.add_gradients("loss", ["w"])
    page.rename("w", "weights")
    assert "gradients/d_weights" in page
    page.rename("gradients", "backward")
    assert "backward/d_weights" in page
    page.group(["backward", "scores"], "half")
    assert "half/backward/d_weights" in page
    page.change("pooled", indices=[3, 3])
    assert not page.problems()
    assert Page.from_json(page.to_json()).to_json() == page.to_json()
    page.remove("half/backward")
    assert not any("backward" in block.id for block in page)


def test_only_what_can_be_derived_is_added() -> None:
    page = model()
    page.add("Const", "ids", value=[1, 2])
    refused(page, "no-gradient", lambda: page.add_gradients("ids", ["w"]))
    page.add("Neg", "open")
    refused(page, "missing-input", lambda: page.add_gradients("open", ["w"]))
    refused(page, "duplicate-id", lambda: page.add_gradients("loss", ["w"], name="w"))
    assert page.add_gradients("loss", ["w"], name="backward").group == "backward"


def test_a_file_may_not_say_what_a_derived_block_is() -> None:
    page = model()
    page.add_gradients("loss", ["w"])
    text = page.to_json()
    assert "gradients/d_w" not in text
    wrong = text.replace('"blocks": [', '"blocks": [{"id": "gradients/d_w", "op": "Const", "attrs": {"value": 1.5}},')
    with pytest.raises(PageError):
        Page.from_json(wrong)


def test_long_names_are_cut() -> None:
    page = Page()
    long = "x" * 200
    page.add("Variable", long, initial_value=[1.0, 2.0])
    page.add("Square", f"{long[:-1]}y", x=long)
    found = page.add_gradients(f"{long[:-1]}y", [long], name="g" * 100)
    assert value(page, found[long]).tolist() == [2, 4]
    assert Page.from_json(page.to_json()) == page
    refused(page, "bad-id", lambda: page.group(["g" * 100], "a"))
    refused(page, "bad-id", lambda: page.rename("g" * 100, "h" * 101))


def test_a_page_is_pickled_with_its_groups() -> None:
    page = model()
    page.add_gradients("loss", ["w"])
    page.remove("loss")
    again = pickle.loads(pickle.dumps(page))
    assert again == page
    again.add("ReduceSum", "loss", input="entropy:loss", axis=[0])
    assert again.groups["gradients"].problem is None


def test_damaged_files_are_refused_as_such() -> None:
    page = model(sparse=True)
    page.group(["pooled", "scores"], "net")
    page.add_gradients("loss", ["table", "w"])
    page.add_training("loss", lr=0.5)
    text = page.to_json()
    rng = np.random.default_rng(0)
    for _ in range(400):
        at, end = sorted(rng.integers(0, len(text), 2))
        damaged = (
            text[:at] + rng.choice(["", "0", '"', "{}", "null", "[1]", text[at:end] * 2]) + text[min(end, at + 9) :]
        )
        try:
            Page.from_json(damaged)
        except PageError:
            continue
