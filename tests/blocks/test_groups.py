"""Groups: they change nothing that a page computes, nest, have the pins that wires make, and can be used again."""

from pathlib import Path

import numpy as np
import pytest

from rowgrad.blocks import Page, Session
from rowgrad.errors import PageError


def model() -> Page:
    page = Page("model")
    page.add("Variable", "table", initial_value=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    page.add("SparseSegmentMean", "pooled", data="table", indices=[0, 2, 2], segment_ids=[0, 0, 1])
    page.add("Square", "squared", x="pooled")
    page.add("ReduceSum", "y", input="squared", axis=[0, 1])
    return page


def refused(page: Page, code: str, act: object) -> PageError:
    before = page.to_json()
    with pytest.raises(PageError) as caught:
        act()  # type: ignore[operator]
    assert caught.value.code == code, str(caught.value)
    assert page.to_json() == before
    return caught.value


def test_a_group_changes_no_result_and_no_id() -> None:
    page = model()
    session = Session(page)
    before = session.run()["y"].output
    group = page.group(["pooled", "squared"], "encoder")
    assert (group.name, group.collapsed, group.recipe) == ("encoder", False, None)
    assert page.members("encoder") == ["pooled", "squared"]
    assert not session.results()["squared"].stale
    assert session.run()["y"].output is before


def test_the_pins_are_the_wires_that_cross_the_border() -> None:
    page = model()
    page.group(["pooled", "squared"], "encoder")
    pins = page.pins("encoder")
    assert [(pin.name, str(pin.source), pin.targets) for pin in pins.inputs] == [
        ("data", "table:ref", (("pooled", "data"),))
    ]
    assert [(pin.name, str(pin.wire), str(pin.signal)) for pin in pins.outputs] == [
        ("squared", "squared:y", "float32 [2, 2]")
    ]
    page.disconnect("pooled:data")
    assert page.pins("encoder").inputs[0].source is None
    page.connect("table", "encoder:data")
    assert str(page["pooled"].inputs["data"]) == "table:ref"
    assert str(page.wire("encoder")) == "squared:y"
    page.disconnect("encoder:data")
    assert page["pooled"].missing() == ["data"]
    refused(page, "unknown-pin", lambda: page.connect("table", "encoder:nothing"))
    refused(page, "unknown-pin", lambda: page.wire("encoder:nothing"))


def test_groups_nest_and_are_taken_apart() -> None:
    page = model()
    page.group(["squared"], "inner")
    page.group(["pooled", "inner"], "outer")
    assert list(page.groups) == ["outer", "outer/inner"]
    assert [block.group for block in page] == ["", "outer", "outer/inner", ""]
    page.rename("outer", "encoder")
    page.rename("encoder/inner", "square")
    assert list(page.groups) == ["encoder", "encoder/square"]
    assert Page.from_json(page.to_json()) == page
    page.ungroup("encoder")
    assert [block.group for block in page] == ["", "", "square", ""]
    page.put(["pooled"], "square")
    assert page.members("square") == ["pooled", "squared"]
    page.put(["pooled", "squared"], "")
    assert page.groups == {}
    assert page == model()


def test_a_group_goes_with_its_blocks() -> None:
    page = model()
    page.group(["pooled", "squared"], "encoder")
    page.remove("encoder")
    assert [block.id for block in page] == ["table", "y"]
    assert page["y"].missing() == ["input"]
    page = model()
    page.group(["pooled"], "encoder")
    page.remove("pooled")
    assert page.groups == {}


def test_moving_a_group_moves_its_blocks() -> None:
    page = model()
    page.group(["pooled", "squared"], "encoder")
    (x, y), before = page.groups["encoder"].at, page["squared"].at
    page.move("encoder", x + 10, y - 20)
    assert page["squared"].at == (before[0] + 10, before[1] - 20)
    assert page.groups["encoder"].at == (x + 10, y - 20)


def test_the_view_has_one_block_for_a_collapsed_group() -> None:
    page = model()
    page.group(["pooled", "squared"], "encoder")
    assert [block.id for block in page.view()] == [block.id for block in page]
    page.collapse("encoder")
    view = page.view()
    assert [(block.id, block.op) for block in view] == [
        ("table", "Variable"), ("encoder", "Group"), ("y", "ReduceSum")
    ]  # fmt: skip
    assert str(view["y"].inputs["input"]) == "encoder:squared"
    assert str(view["encoder"].inputs["data"]) == "table:ref"
    assert str(view.signal("encoder:squared")) == "float32 [2, 2]"
    assert view.order() == ["table", "encoder", "y"]
    page.group(["encoder", "y"], "all")
    page.collapse("all")
    assert [block.id for block in page.view()] == ["table", "all"]
    page.open("all")
    assert [block.id for block in page.view()] == ["table", "all/encoder", "y"]


def test_what_is_wrong_is_refused() -> None:
    page = model()
    page.group(["pooled"], "encoder")
    refused(page, "duplicate-id", lambda: page.group(["squared"], "encoder"))
    refused(page, "duplicate-id", lambda: page.group(["squared"], "table"))
    refused(page, "duplicate-id", lambda: page.add("Neg", "encoder", x="y"))
    refused(page, "not-side-by-side", lambda: page.group(["pooled", "squared"]))
    refused(page, "empty-group", lambda: page.group([]))
    refused(page, "unknown-block", lambda: page.group(["nobody"]))
    refused(page, "unknown-group", lambda: page.ungroup("nobody"))
    refused(page, "unknown-group", lambda: page.add("Neg", group="nobody"))
    for name in ("", "a b", "/a", "a//b", "_a", "ä", 3):
        refused(page, "bad-id", lambda name=name: page.group(["squared"], name))


def test_a_new_block_in_a_group_is_called_after_it() -> None:
    page = model()
    page.group(["pooled"], "encoder")
    assert page.add("Neg", x="pooled", group="encoder").id == "encoder/Neg"
    assert page.members("encoder") == ["pooled", "encoder/Neg"]


def test_a_group_is_saved_as_a_page_and_used_again(tmp_path: Path) -> None:
    page = model()
    page.group(["pooled", "squared"], "encoder")
    page.extract("encoder").save(tmp_path / "encoder.page.json")
    saved = Page.load(tmp_path / "encoder.page.json")
    assert [block.op for block in saved] == ["Placeholder", "SparseSegmentMean", "Square"]
    alone = Session(saved).run("squared", {"data": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]})
    np.testing.assert_array_equal(alone["squared"].y, Session(page).run("squared")["squared"].y)
    page.add("Variable", "other", initial_value=np.ones((5, 3), np.float32))
    first = page.insert(saved, data="other")
    second = page.insert(saved, "again")
    assert (first.name, second.name) == ("encoder_1", "again")
    assert first.collapsed
    assert str(page.signal("encoder_1/squared")) == "float32 [2, 3]"
    assert page["again/pooled"].missing() == ["data"]
    page.connect("other", "again:data")
    assert not page.problems()
    assert Page.from_json(page.to_json()) == page
    refused(page, "unknown-pin", lambda: page.insert(saved, nothing="other"))
    refused(page, "empty-group", lambda: page.insert(Page()))


def test_a_page_without_groups_is_a_file_of_version_1() -> None:
    page = model()
    assert page.to_json().startswith('{"rowgrad_page": 1,')
    page.group(["pooled"], "encoder")
    page.collapse("encoder")
    text = page.to_json()
    assert '{"rowgrad_page": 2, "name": "model", "groups": [\n  {"name": "encoder", "collapsed": true, "at":' in text
    again = Page.from_json(text)
    assert again.groups == page.groups
    assert again.to_json() == text


@pytest.mark.parametrize(
    ("groups", "block", "code"),
    [
        ('[{"name": "a/b"}]', "", "unknown-group"),
        ('[{"name": "a"}, {"name": "a"}]', "", "duplicate-id"),
        ('[{"name": "x"}]', "", "duplicate-id"),
        ('[{"name": "a b"}]', "", "bad-id"),
        ('[{"name": "a", "collapsed": 1}]', "", "bad-page"),
        ('[{"name": "a", "at": [1]}]', "", "bad-page"),
        ('[{"name": "a", "gradients": {"y": "x:output"}}]', "", "bad-page"),
        ('[{"name": "a", "gradients": {"y": "x:output", "xs": [1]}}]', "", "bad-page"),
        ('[{"name": "a", "training": {"loss": "x:output", "variables": [], "optimizer": "No"}}]', "",
         "unknown-optimizer"),
        ('[{"name": "a", "gradients": {"y": "x:output", "xs": []}, "training": {}}]', "", "bad-page"),
        ('[{"name": "a", "gradients": {"y": "x:output", "xs": []}, "places": {"b": 3}}]', "", "bad-page"),
        ("[3]", "", "bad-page"),
        ("{}", "", "bad-page"),
        ("[]", ', "group": "a"', "unknown-group"),
        ('[{"name": "a", "gradients": {"y": "x:output", "xs": []}}]', ', "group": "a"', "unknown-group"),
    ],
)  # fmt: skip
def test_groups_in_files_are_checked(groups: str, block: str, code: str) -> None:
    blocks = f'[{{"id": "x", "op": "Const", "attrs": {{"value": 1.5}}{block}}}]'
    text = f'{{"rowgrad_page": 2, "groups": {groups}, "blocks": {blocks}}}'
    with pytest.raises(PageError) as caught:
        Page.from_json(text)
    assert caught.value.code == code, str(caught.value)
