"""Drawing: a page from nothing, with the mouse and with the keyboard alone; wires that fit, and wires that do not."""

import re
from collections.abc import Callable

import pytest

from rowgrad.blocks import Page
from studio.browser import Desk, expect

GRAD = "[[1, 2, 3], [4, 4, 2], [3, 1, 5]]"
RIGHT = [[1, 1 / 3, 5 / 3]] * 3


def _is_right(desk: Desk) -> None:
    expect(desk.result("SparseSegmentMeanGrad")).to_contain_text("float32 [3, 3]")
    assert desk.numbers("SparseSegmentMeanGrad") == [pytest.approx(row, abs=1e-5) for row in RIGHT]


def test_mean_grad_with_the_mouse(desk: Desk) -> None:
    x, y = (round(part) for part in _corner(desk))
    palette = desk.page.get_by_role("button", name="Const", exact=True)
    palette.drag_to(desk.canvas, target_position={"x": 120, "y": 90})
    expect(desk.block("Const")).to_be_visible()
    box = desk.block("Const").bounding_box()
    assert box is not None and abs(box["x"] - x - 60) < 80 and abs(box["y"] - y - 70) < 60  # where it was dropped
    desk.type("Const", "value", GRAD)
    desk.page.get_by_role("combobox", name="dtype of Const").select_option("float32")

    desk.canvas.dblclick(position={"x": 420, "y": 90})
    search = desk.dialog("Add a block")
    search.get_by_label("Search operators").fill("mean grad")
    search.get_by_role("option", name=re.compile("^SparseSegmentMeanGrad ")).click()
    desk.type("SparseSegmentMeanGrad", "indices", "[0, 1, 2]")
    desk.type("SparseSegmentMeanGrad", "segment_ids", "[2, 2, 2]")
    desk.type("SparseSegmentMeanGrad", "output_dim0", "3")
    desk.wire(desk.output("Const"), desk.input("SparseSegmentMeanGrad", "grad"))
    expect(desk.status).to_contain_text("Wired")
    expect(desk.field("SparseSegmentMeanGrad", "grad")).to_have_count(0)

    desk.run()
    _is_right(desk)
    assert desk.blocks()["SparseSegmentMeanGrad"]["inputs"] == {
        "grad": "Const:output", "indices": [0, 1, 2], "segment_ids": [2, 2, 2], "output_dim0": 3,
    }  # fmt: skip


def _corner(desk: Desk) -> tuple[float, float]:
    box = desk.canvas.bounding_box()
    assert box is not None
    return box["x"], box["y"]


def test_mean_grad_with_the_keyboard_alone(desk: Desk) -> None:
    keys = desk.page.keyboard

    def add(operator: str) -> None:
        keys.press("Control+k")
        expect(desk.dialog("Add a block").get_by_label("Search operators")).to_be_focused()
        keys.type(operator)
        expect(desk.dialog("Add a block").get_by_role("option", selected=True)).to_have_accessible_name(
            re.compile(f"^{operator} ")
        )
        keys.press("Enter")
        expect(desk.block(operator)).to_be_visible()

    def enter(name: str, text: str) -> None:
        desk.tab_to(name)
        keys.type(text)
        keys.press("Enter")
        expect(desk.page.get_by_label(name, exact=True)).to_have_value(text)

    add("Const")
    enter("value of Const", GRAD)
    desk.tab_to("dtype of Const")
    keys.type("float32")
    expect(desk.page.get_by_role("combobox", name="dtype of Const")).to_have_value("float32")
    add("SparseSegmentMeanGrad")
    enter("indices of SparseSegmentMeanGrad", "[0, 1, 2]")
    enter("segment_ids of SparseSegmentMeanGrad", "[2, 2, 2]")
    enter("output_dim0 of SparseSegmentMeanGrad", "3")

    desk.tab_to("output output of Const")
    keys.press("Enter")
    expect(desk.status).to_contain_text("Wiring from Const:output")
    desk.tab_to("grad input of SparseSegmentMeanGrad", most=10)
    keys.press("Enter")
    expect(desk.status).to_contain_text("Wired Const:output to SparseSegmentMeanGrad:grad")
    keys.press("Control+Enter")
    expect(desk.status).to_contain_text("Run finished")
    _is_right(desk)


def test_the_palette_is_one_stop_for_tab(desk: Desk) -> None:
    keys = desk.page.keyboard
    desk.page.get_by_label("Filter operators").fill("segmentmean")
    items = desk.page.locator(".palette-list button")
    keys.press("Tab")
    expect(items.first).to_be_focused()  # the head of a family
    keys.press("ArrowDown")
    expect(items.nth(1)).to_be_focused()
    keys.press("End")
    expect(items.last).to_be_focused()
    keys.press("ArrowDown")
    expect(items.last).to_be_focused()
    keys.press("Tab")
    assert desk.page.locator(".palette-list button:focus").count() == 0
    keys.press("Shift+Tab")
    expect(items.last).to_be_focused()
    name = items.last.get_attribute("aria-label") or ""
    keys.press("Enter")
    expect(desk.block(name)).to_be_visible()


def _unwired(desk: Desk, name: str) -> None:
    page = Page(name)
    page.add("Const", "table", value=[[1.0, 2.0], [3.0, 4.0]], dtype="float32", at=(0, 0))
    page.add("SparseSegmentSum", "pooled", indices=[0, 1], segment_ids=[0, 0], at=(360, 0))
    page.save(desk.server.folder / f"{name}.page.json")


def test_a_wire_that_does_not_fit_is_refused(desks: Callable[..., Desk]) -> None:
    desk = desks()
    _unwired(desk, "refused")
    desk.open(open="refused.page.json")
    before = desk.file()
    why = "table:output is float32; indices takes int32, int64. Put a Cast between, or wire another output."
    desk.wire(desk.output("table"), desk.input("pooled", "indices"))
    expect(desk.status).to_contain_text(why)
    expect(desk.block("pooled")).to_contain_text("table:output is float32")
    assert desk.file() == before
    expect(desk.tool("Undo")).to_be_disabled()
    expect(desk.field("pooled", "indices")).to_have_value("[0, 1]")


def test_pins_that_fit_are_told_from_the_others_while_a_wire_is_dragged(desks: Callable[..., Desk]) -> None:
    desk = desks()
    _unwired(desk, "glow")
    desk.open(open="glow.page.json")
    desk.output("table").hover()
    desk.page.mouse.down()
    desk.page.mouse.move(600, 500, steps=5)

    def strength(pin: str) -> float:
        found = "(pin) => Number(getComputedStyle(pin.querySelector('svg')).opacity)"
        return float(desk.input("pooled", pin).evaluate(found))

    desk.page.wait_for_function("() => document.querySelectorAll('.pin.dim').length >= 2")
    assert strength("data") == 1
    assert strength("indices") < 1 and strength("segment_ids") < 1
    desk.page.mouse.up()


def test_a_wire_let_go_on_empty_space_offers_what_fits(desks: Callable[..., Desk]) -> None:
    desk = desks()
    _unwired(desk, "offer")
    desk.open(open="offer.page.json")
    x, y = _corner(desk)
    desk.drag(desk.output("table"), x + 300, y + 520)
    search = desk.dialog("Add a block")
    search.get_by_label("Search operators").fill("Square")
    search.get_by_role("option", name=re.compile("^Square ")).click()
    expect(desk.block("Square")).to_be_visible()
    assert desk.blocks()["Square"]["inputs"] == {"x": "table:output"}
    expect(desk.tool("Undo")).to_be_enabled()
    desk.tool("Undo").click()  # block and wire were one gesture
    expect(desk.block("Square")).to_have_count(0)


def test_a_literal_is_read_strictly_and_edited_as_a_table(desks: Callable[..., Desk]) -> None:
    desk = desks()
    _unwired(desk, "literal")
    desk.open(open="literal.page.json")
    desk.type("pooled", "indices", "[0, 1.5]")
    expect(desk.field("pooled", "indices")).to_have_attribute("aria-invalid", "true")
    expect(desk.block("pooled")).to_contain_text("At [1]")
    assert desk.blocks()["pooled"]["inputs"]["indices"] == [0, 1]
    desk.field("pooled", "indices").press("Escape")
    expect(desk.field("pooled", "indices")).to_have_value("[0, 1]")

    desk.page.get_by_role("button", name="Edit value of table as a table").click()
    cell = desk.page.get_by_role("textbox", name="value of table, row 0, column 1", exact=True)
    cell.fill("-7.5")
    cell.press("Enter")
    expect(desk.field("table", "value")).to_have_value("[[1, -7.5], [3, 4]]")
    assert desk.blocks()["table"]["attrs"]["value"] == [[1, -7.5], [3, 4]]
    desk.page.get_by_role("button", name="Add row").click()
    expect(desk.field("table", "value")).to_have_value("[[1, -7.5], [3, 4], [0, 0]]")
    desk.page.get_by_role("button", name="Remove column 0 of value of table").click()
    expect(desk.field("table", "value")).to_have_value("[[-7.5], [4], [0]]")


def test_types_and_shapes_stand_on_wires_before_anything_runs(desk: Desk) -> None:
    page = Page("wired")
    page.add("Const", "table", value=[[1.0, 2.0], [3.0, 4.0]], dtype="float32", at=(0, 0))
    page.add("Square", "squared", x="table", at=(460, 0))
    page.save(desk.server.folder / "wired.page.json")
    desk.open(open="wired.page.json")
    expect(desk.canvas.get_by_text("float32 [2, 2]", exact=True)).to_be_visible()
