"""Groups: named, collapsed, opened, nested, used again; gradients and training as groups that follow their page."""

import re
from collections.abc import Callable

from rowgrad.blocks import Page
from studio.browser import Desk, expect, middle

Desks = Callable[..., Desk]


def _chain() -> Page:
    page = Page("chain")
    page.add("Const", "a", value=[1, 2], dtype="float32", at=(40, 60))
    page.add("Square", "first", x="a", at=(340, 60))
    page.add("Neg", "second", x="first", at=(640, 60))
    page.add("Exp", "last", x="second", at=(940, 60))
    return page


def _model() -> Page:
    page = Page("model")
    page.add("Variable", "table", initial_value=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], at=(40, 60))
    page.add("SparseSegmentSum", "pooled", data="table", indices=[0, 0], segment_ids=[0, 0], at=(380, 60))
    page.add("Square", "square", x="pooled", at=(720, 60))
    page.add("ReduceMean", "loss", input="square", axis=[0, 1], at=(1060, 60))
    return page


def _select(desk: Desk, *blocks: str) -> None:
    for number, block in enumerate(blocks):
        modifiers = ["Control"] if number else []
        desk.block(block).click(position={"x": 90, "y": 12}, modifiers=modifiers)


def _name(desk: Desk, old: str, new: str) -> None:
    dialog = desk.dialog(f"Rename {old}")
    dialog.get_by_role("textbox", name="Name").fill(new)
    dialog.get_by_role("button", name="Rename").click()
    expect(dialog).to_have_count(0)


def test_a_group_is_made_collapsed_opened_nested_and_used_again(desks: Desks) -> None:
    desk = desks(viewport={"width": 1600, "height": 900}).show(_chain()).skip_tour()
    _select(desk, "first", "second")
    desk.page.keyboard.press("Control+g")
    _name(desk, "group", "inner")
    frame = desk.page.get_by_role("group", name="Group inner", exact=True)
    expect(frame).to_be_visible()

    desk.page.get_by_role("button", name="Collapse inner").click()
    expect(desk.block("inner")).to_be_visible()
    expect(desk.block("first")).to_have_count(0)
    expect(desk.input("inner", "x")).to_be_visible()
    desk.run()
    expect(desk.result("last", "y")).to_contain_text("0.367879")
    expect(desk.page.get_by_role("region", name="second of inner", exact=True)).to_contain_text("-1")

    _select(desk, "inner", "last")  # a group in a group
    desk.page.keyboard.press("Control+g")
    _name(desk, "group", "outer")
    desk.page.get_by_role("button", name="Collapse outer").click()
    expect(desk.block("outer")).to_be_visible()
    groups = {group["name"]: group for group in desk.file()["groups"]}
    assert set(groups) == {"outer", "outer/inner"}

    desk.act("outer", "Save as a block")
    expect(desk.status).to_contain_text("Saved outer as blocks/outer.page.json")
    desk.page.get_by_role("complementary", name="Palette").get_by_role("button", name="outer", exact=True).click()
    expect(desk.block("outer_1")).to_be_visible()
    desk.wire(desk.output("a"), desk.page.get_by_role("button", name=re.compile(r"^\w+ input of outer_1$")).first)
    expect(desk.status).to_contain_text("Wired")
    desk.run()
    expect(desk.page.get_by_role("region", name=re.compile(r"of outer_1$"))).to_contain_text("0.367879")

    desk.page.get_by_role("button", name="Open outer", exact=True).click()
    expect(desk.page.get_by_role("group", name="Group outer", exact=True)).to_be_visible()
    desk.act("outer", "Ungroup")
    expect(desk.block("last")).to_be_visible()
    for _ in range(2):
        desk.tool("Undo").click()
    expect(desk.block("outer")).to_be_visible()


def test_a_frame_takes_its_blocks_along(desks: Desks) -> None:
    desk = desks(viewport={"width": 1600, "height": 900}).show(_chain()).skip_tour()
    _select(desk, "first", "second")
    desk.page.keyboard.press("Control+g")
    _name(desk, "group", "pair")
    before = desk.blocks()
    head = desk.page.get_by_role("group", name="Group pair").get_by_text("pair", exact=True)
    x, y = middle(head)
    desk.drag(head, x + 40, y + 200)
    expect(desk.tool("Undo")).to_have_attribute("title", re.compile("move"))
    after = desk.blocks()
    moved = [
        [new - old for new, old in zip(after[id]["at"], before[id]["at"], strict=True)] for id in ("first", "second")
    ]
    assert moved[0] == moved[1] and moved[0][1] > 50
    assert after["last"]["at"] == before["last"]["at"]


def test_a_gradient_follows_its_page_and_cannot_be_edited(desks: Desks) -> None:
    desk = desks(viewport={"width": 1600, "height": 900}).show(_model()).skip_tour()
    desk.act("loss", "Add gradients")
    desk.dialog("Add gradients of loss:output").get_by_role("button", name="Add gradients").click()
    expect(desk.block("gradients")).to_contain_text("detach it to edit it")
    desk.run()
    result = desk.page.get_by_role("region", name="d_table of gradients", exact=True)
    expect(result).to_contain_text("float32 [3, 2]")
    assert desk.numbers("gradients", "d_table") == [[4, 8], [0, 0], [0, 0]]
    desk.type("pooled", "indices", "[2, 2]")
    desk.run()
    assert desk.numbers("gradients", "d_table") == [[0, 0], [0, 0], [20, 24]]

    desk.page.get_by_role("button", name="Open gradients").click()
    expect(desk.block("gradients/d_table")).to_be_visible()
    desk.block("gradients/d_table").click(position={"x": 90, "y": 12})
    desk.page.keyboard.press("Delete")
    expect(desk.status).to_contain_text("detach")
    expect(desk.block("gradients/d_table")).to_be_visible()
    desk.act("gradients", "Detach")
    expect(desk.status).to_contain_text("Detached gradients.")
    desk.block("gradients/d_table").click(position={"x": 90, "y": 12})
    desk.page.keyboard.press("Delete")
    expect(desk.block("gradients/d_table")).to_have_count(0)


def test_training_is_one_dialog(desks: Desks) -> None:
    desk = desks(viewport={"width": 1600, "height": 900}).show(_model()).skip_tour()
    desk.tool("Train").click()
    dialog = desk.dialog("Train")
    expect(dialog.get_by_role("combobox", name="Loss")).to_have_value("loss:output")
    expect(dialog.get_by_role("checkbox", name="table")).to_be_checked()
    dialog.get_by_role("combobox", name="Optimizer").select_option("GradientDescent")
    dialog.get_by_role("textbox", name="alpha").fill("0.1")
    dialog.get_by_role("button", name="Add training").click()
    expect(desk.block("training")).to_contain_text("GradientDescent of table by loss:output")
    desk.tool("Loop").click()
    desk.dialog("Loop").get_by_role("textbox", name="Steps").fill("20")
    desk.dialog("Loop").get_by_role("button", name="Start the loop").click()
    expect(desk.status).to_contain_text("Loop of 20 steps finished")
    assert desk.numbers("loss")[0][0] < 1
    expect(desk.page.get_by_text("stale", exact=True)).to_have_count(0)
    desk.type("training", "alpha", "0.2")
    expect(desk.tool("Undo")).to_have_attribute("title", re.compile("change training"))
    assert desk.file()["groups"][0]["training"]["settings"]["alpha"] == 0.2


def test_a_collapsed_group_is_copied_with_what_is_in_it(desks: Desks) -> None:
    page = Page("copied groups")
    page.add("Const", "a", value=[1.0, 2.0], dtype="float32", at=(0, 60))
    page.add("Square", "b", x="a", at=(340, 60))
    page.add("Neg", "c", x="b", at=(680, 60))
    page.group(["b", "c"], "half")
    page.collapse("half")
    desk = desks().show(page).skip_tour()
    _select(desk, "half", "a")
    desk.page.keyboard.press("Control+c")
    expect(desk.status).to_contain_text("Copied 2 blocks.")
    desk.page.keyboard.press("Control+v")
    expect(desk.status).to_contain_text("Pasted 2 blocks.")
    expect(desk.block("half_1")).to_be_visible()
    blocks = desk.blocks()
    assert {"a_1", "b_1", "c_1"} <= set(blocks)
    assert blocks["b_1"]["inputs"] == {"x": "a_1:output"} and blocks["c_1"]["inputs"] == {"x": "b_1:y"}
    assert blocks["b_1"]["group"] == "half_1"
    desk.page.get_by_role("button", name="Open half_1").click()
    desk.run()
    assert desk.numbers("c_1", "y") == [[-1, -4]]
