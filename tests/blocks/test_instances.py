"""Groups as definitions with instances that follow every edit: on the page, in files, scripts, pictures and graphs."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowgrad.blocks import Page, Session
from rowgrad.errors import PageError


def layers() -> Page:
    """A layer with a weight of its own, used twice."""
    page = Page("two layers")
    page.add("Const", "x", value=[[1.0, 2.0]])
    page.add("Variable", "w", initial_value=[[1.0, 0.5], [-1.0, 2.0]])
    page.add("MatMul", "product", a="x", b="w")
    page.add("Tanh", "out", x="product")
    page.group(["w", "product", "out"], "layer")
    page.add_instance("layer", "second", a="out")
    return page


def values(page: Page) -> dict[str, Any]:
    return {f"{id}:{pin}": array.tolist() for id, result in Session(page).run().raise_first().items()
            for pin, array in result.outputs.items()}  # fmt: skip


def test_an_instance_follows_every_edit_of_its_definition() -> None:
    page = layers()
    assert page.members("second") == ["second/w", "second/product", "second/out"]
    once = np.tanh(np.array([[1, 2]], np.float32) @ np.array([[1, 0.5], [-1, 2]], np.float32))
    twice = np.tanh(once @ np.array([[1, 0.5], [-1, 2]], np.float32))
    np.testing.assert_allclose(values(page)["second/out:y"], twice, rtol=1e-6)
    page.change("w", initial_value=[[0.0, 1.0], [1.0, 0.0]])
    assert page["second/w"].inputs["initial_value"].value == page["w"].inputs["initial_value"].value
    page.add("Neg", "minus", x="out:y", group="layer")
    assert page["second/minus"].inputs["x"] == page["second/out"]["y"]
    page.rename("product", "times")
    assert "second/times" in page
    page.remove("minus")
    assert "second/minus" not in page
    assert values(page)["second/out:y"] != values(page)["out:y"]


def test_wires_from_an_instance_stay_when_blocks_are_renamed() -> None:
    page = layers()
    page.add("Square", "loss", x="second:out")
    page.rename("out", "activations")
    assert str(page["loss"].inputs["x"]) == "second/activations:y"


def test_inputs_of_an_instance() -> None:
    page = layers()
    page.add("Const", "other", value=[[5.0, 5.0]])
    assert [pin.name for pin in page.pins("second").inputs] == ["a"]
    page.connect("other", "second:a")
    assert str(page["second/product"].inputs["a"]) == "other:output"
    page.disconnect("second:a")
    assert str(page["second/product"].inputs["a"]) == "x:output"
    page.change("second", a="other")
    assert str(page["second/product"].inputs["a"]) == "other:output"
    with pytest.raises(PageError, match="the group layer has no input nobody; it has: a"):
        page.change("second", nobody="x")
    with pytest.raises(PageError, match="the group layer has no input nobody"):
        page.add_instance("layer", nobody="x")


def test_an_instance_cannot_be_edited_itself_and_can_be_detached() -> None:
    page = layers()
    with pytest.raises(PageError, match="the group second is an instance of layer and cannot be edited"):
        page.change("second/w", initial_value=[[1.0]])
    page.detach("second")
    page.change("second/w", initial_value=[[1.0, 1.0], [1.0, 1.0]])
    assert page["w"].inputs["initial_value"].value != page["second/w"].inputs["initial_value"].value


@pytest.mark.parametrize("away", ["remove", "ungroup"])
def test_instances_of_a_group_that_goes_away_become_ordinary_blocks(away: str) -> None:
    page = layers()
    page.connect("x", "second:a")
    before = values(page)["second/out:y"]
    getattr(page, away)("layer")
    assert page.groups["second"].recipe is None
    assert values(page)["second/out:y"] == before


def test_cycles_are_refused() -> None:
    page = layers()
    text = page.to_json()
    for wrong in (
        lambda: page.connect("second:out", "product:a"),
        lambda: page.change("second", a="second/out:y"),
        lambda: page.add_instance("second"),
        lambda: page.add_instance("nobody"),
    ):
        with pytest.raises(PageError):
            wrong()
        assert page.to_json() == text


def test_instances_of_instances_and_in_groups() -> None:
    page = layers()
    page.group(["layer", "second"], "both")
    assert page.groups["both/second"].recipe is not None
    page.add_instance("both", "again", a="second/out" if "second/out" in page else "both/second/out")
    assert len(page.members("again")) == 6
    page.change("w", initial_value=[[0.1, 0.2], [0.3, 0.4]])
    ids = [id for id in page.members("again") if page[id].op == "Variable"]
    assert all(page[id].inputs["initial_value"].value == page["w"].inputs["initial_value"].value for id in ids)
    values(page)
    assert Page.from_json(page.to_json()) == page


def test_renaming_the_definition_and_undo() -> None:
    page = layers()
    before, text = page.state(), page.to_json()
    page.rename("layer", "dense")
    page.change("w", initial_value=[[0.0, 1.0], [1.0, 0.0]])
    assert page.groups["second"].recipe.y.block == "dense"  # type: ignore[union-attr]
    assert page["second/w"].inputs["initial_value"].value == [[0.0, 1.0], [1.0, 0.0]]
    page.restore(before)
    assert page.to_json() == text


def test_files_and_graphs_carry_instances() -> None:
    page = layers()
    again = Page.from_json(page.to_json())
    assert again == page
    again.change("w", initial_value=[[0.0, 1.0], [1.0, 0.0]])
    assert again["second/w"].inputs["initial_value"].value == [[0.0, 1.0], [1.0, 0.0]]
    pytest.importorskip("tensorboard")
    found = Page.from_graphdef(page.to_graphdef())
    assert found == page
    assert "an instance of layer" not in page.to_svg()  # it is collapsed
    page.open("second")
    assert "group second, an instance of layer" in page.to_svg()


def test_a_script_has_one_function_for_all_instances(tmp_path: Path) -> None:
    page = layers()
    page.add_instance("layer", "third", a="second:out")
    script = page.to_python()
    assert script.count("def layer(") == 1
    assert "def second(" not in script
    assert "def third(" not in script
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([sys.executable, "script.py", "--out", "r.npz"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "r.npz") as saved:
        for name, value in values(page).items():
            assert saved[name].tolist() == value


def test_training_through_instances() -> None:
    page = layers()
    page.add("ReduceSum", "loss", input="second:out", axis=[0, 1])
    page.add_training("loss", optimizer="SGD", lr=0.1)
    session = Session(page)
    history = session.loop(5, record=["loss:output"])
    assert history["loss:output"][-1] < history["loss:output"][0]
    assert session.variables["w"].tolist() != session.variables["second/w"].tolist()
    page.add("Neg", "more", x="out:y", group="layer")
    assert page.groups["training"].problem is None


def test_damaged_records_are_named() -> None:
    text = layers().to_json()
    for before, after in (
        ('"of": "layer"', '"of": "nobody"'),
        ('"of": "layer"', '"of": "second"'),
        ('"inputs": {"a": "out:y"}', '"inputs": {"a": "nobody:y"}'),
    ):
        assert before in text
        page = Page.from_json(text.replace(before, after))
        assert page.groups["second"].problem is not None
        assert Page.from_json(page.to_json()).to_json() == page.to_json()
    for before, after in (('"of": "layer"', '"of": 3'), ('{"a": "out:y"}', '{"a": 3}'), ('{"a": "out:y"}', "[]")):
        with pytest.raises(PageError, match=r"groups\[1\]"):
            Page.from_json(text.replace(before, after))
