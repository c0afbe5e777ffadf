"""Gestures that people know: ends of wires, context menus, cutting, copies by dragging, boxes, tabs, searching."""

import re
from collections.abc import Callable

import pytest

from rowgrad.blocks import Page
from studio.browser import Desk, expect, middle

Desks = Callable[..., Desk]


def _sums() -> Page:
    page = Page("sums")
    page.add("Const", "a", value=[1, 2], dtype="float32", at=(40, 40))
    page.add("Const", "b", value=[3, 4], dtype="float32", at=(40, 260))
    page.add("Square", "left", x="a", at=(400, 40))
    page.add("Square", "right", at=(400, 260))
    return page


def _wire(desk: Desk, source: str, target: str) -> tuple[float, float]:
    """A point on a wire, half way from pin to pin."""
    (x, y), (to_x, to_y) = middle(desk.output(source)), middle(desk.input(target, "x"))
    return x + (to_x - x) * 0.75 if y == to_y else (x + to_x) / 2, (y + to_y) / 2


# Wires


def test_the_end_of_a_wire_is_dragged_to_another_pin(desks: Desks) -> None:
    desk = desks().show(_sums()).skip_tour()
    desk.wire(desk.input("left", "x"), desk.input("right", "x"))
    expect(desk.status).to_contain_text("The wire from a:output now leads to right:x.")
    blocks = desk.blocks()
    assert blocks["right"]["inputs"] == {"x": "a:output"} and "inputs" not in blocks["left"]
    desk.tool("Undo").click()  # one gesture, one step
    expect(desk.status).to_contain_text("Undone")
    assert desk.blocks()["left"]["inputs"] == {"x": "a:output"}


def test_the_end_of_a_wire_is_taken_beside_the_pin(desks: Desks) -> None:
    desk = desks().show(_sums()).skip_tour()
    x, y = middle(desk.input("left", "x"))
    desk.page.mouse.move(x - 18, y)
    desk.page.mouse.down()
    to = middle(desk.input("right", "x"))
    desk.page.mouse.move(to[0] - 8, to[1] - 8, steps=6)
    desk.page.mouse.move(*to, steps=3)
    desk.page.mouse.up()
    expect(desk.status).to_contain_text("now leads to right:x")
    assert desk.blocks()["right"]["inputs"] == {"x": "a:output"}


def test_an_end_that_does_not_fit_stays_where_it_was(desks: Desks) -> None:
    page = _sums()
    page.add("Const", "words", value=["x"], dtype="string", at=(40, 480))
    page.add("StringToHashBucketFast", "hash", input="words", num_buckets=8, at=(400, 480))
    desk = desks().show(page).skip_tour()
    desk.wire(desk.input("hash", "input"), desk.input("right", "x"))
    expect(desk.status).to_contain_text("Not wired")
    assert desk.blocks()["hash"]["inputs"] == {"input": "words:output"}


def test_an_end_dropped_on_nothing_takes_the_wire_away(desks: Desks) -> None:
    desk = desks().show(_sums()).skip_tour()
    x, y = middle(desk.input("left", "x"))
    desk.drag(desk.input("left", "x"), x - 40, y + 150)
    expect(desk.status).to_contain_text("Removed the wire to left:x.")
    assert "inputs" not in desk.blocks()["left"]


def test_a_wire_has_a_menu_and_reroute_points(desks: Desks) -> None:
    desk = desks().show(_sums()).skip_tour()
    desk.page.mouse.click(*_wire(desk, "a", "left"), button="right")
    menu = desk.page.get_by_role("menu", name="Wire from a:output to left:x")
    menu.get_by_role("menuitem", name="Add a reroute point").click()
    expect(desk.block("reroute")).to_be_visible()
    box = desk.block("reroute").bounding_box()
    assert box is not None and box["height"] < 40  # a dot, not a card
    blocks = desk.blocks()
    assert list(blocks["reroute"]["inputs"].values()) == ["a:output"]
    assert blocks["left"]["inputs"] == {"x": "reroute:output"}
    desk.run()
    assert desk.numbers("left", "y") == [[1, 4]]
    desk.drag(desk.block("reroute"), box["x"] + 60, box["y"] + 140)
    expect(desk.tool("Undo")).to_have_attribute("title", re.compile("move reroute"))
    desk.page.mouse.click(*_middle_of_wire(desk, "reroute:output to left:x"), button="right")
    desk.page.get_by_role("menuitem", name="Remove").click()
    expect(desk.status).to_contain_text("Removed the wire to left:x.")


def _middle_of_wire(desk: Desk, name: str) -> tuple[float, float]:
    found = desk.page.locator(f'[data-wire="{name}"] .wire-reach').evaluate(
        """(path) => {
            const at = path.getPointAtLength(path.getTotalLength() * 0.7).matrixTransform(path.getScreenCTM());
            return [at.x, at.y];
        }"""
    )
    return found[0], found[1]


def test_the_canvas_has_a_menu(desks: Desks) -> None:
    desk = desks().show(_sums()).skip_tour()
    desk.block("a").click(position={"x": 60, "y": 12})
    desk.page.keyboard.press("Control+c")
    expect(desk.status).to_contain_text("Copied a.")
    desk.canvas.click(button="right", position={"x": 300, "y": 500})
    menu = desk.page.get_by_role("menu", name="Canvas")
    for item in ("Add a block", "Add a note", "Paste", "Select all", "Tidy up", "Fit all into view"):
        expect(menu.get_by_role("menuitem", name=item)).to_be_visible()
    menu.get_by_role("menuitem", name="Paste").click()
    expect(desk.block("a_1")).to_be_visible()
    desk.block("a_1").click(button="right", position={"x": 60, "y": 12})
    desk.page.get_by_role("menuitem", name="Delete").click()
    expect(desk.block("a_1")).to_have_count(0)


# Blocks


def test_cut_and_paste(desks: Desks) -> None:
    desk = desks().show(_sums()).skip_tour()
    desk.block("b").click(position={"x": 60, "y": 12})
    desk.page.keyboard.press("Control+x")
    expect(desk.block("b")).to_have_count(0)
    desk.page.keyboard.press("Control+v")
    expect(desk.block("b")).to_be_visible()
    assert desk.blocks()["b"]["attrs"]["value"] == [3, 4]


def test_alt_drag_makes_a_copy(desks: Desks) -> None:
    desk = desks().show(_sums()).skip_tour()
    x, y = middle(desk.block("a").get_by_text("a", exact=True))
    desk.page.keyboard.down("Alt")
    desk.page.mouse.move(x, y)
    desk.page.mouse.down()
    desk.page.mouse.move(x + 60, y + 430, steps=8)
    desk.page.mouse.up()
    desk.page.keyboard.up("Alt")
    expect(desk.block("a_1")).to_be_visible()
    blocks = desk.blocks()
    assert blocks["a"]["at"] == [40, 40] and blocks["a_1"]["at"][1] > 300
    assert blocks["a_1"]["attrs"]["value"] == [1, 2]


def test_a_box_selects_and_several_blocks_are_edited_at_once(desks: Desks) -> None:
    desk = desks().show(_sums()).skip_tour()
    first, second = desk.block("a").bounding_box(), desk.block("b").bounding_box()
    assert first is not None and second is not None
    desk.page.keyboard.down("Shift")
    desk.page.mouse.move(first["x"] - 12, first["y"] - 12)
    desk.page.mouse.down()
    desk.page.mouse.move(second["x"] + second["width"] + 8, second["y"] + second["height"] + 8, steps=6)
    desk.page.mouse.up()
    desk.page.keyboard.up("Shift")
    together = desk.page.get_by_role("group", name="Edit 2 blocks")
    together.get_by_role("combobox", name="dtype of 2 blocks").select_option("float64")
    expect(desk.tool("Undo")).to_have_attribute("title", re.compile("of 2 blocks"))
    assert [desk.blocks()[id]["attrs"]["dtype"] for id in "ab"] == ["float64", "float64"]
    desk.tool("Undo").click()
    expect(desk.status).to_contain_text("Undone")
    assert [desk.blocks()[id]["attrs"]["dtype"] for id in "ab"] == ["float32", "float32"]


# Searching


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("ssmg", "SparseSegmentMeanGrad"),
        ("embedding", "SparseSegmentMean"),
        ("optimizer", "ApplyGradientDescent"),
        ("random", "StatelessRandomNormal|Variable"),
        ("loss", "SparseSoftmaxCrossEntropyWithLogits"),
        ("add", "Add"),
        ("csv", "Batches|File"),
    ],
)
def test_search_finds_what_people_mean(desk: Desk, typed: str, first: str) -> None:
    desk.page.keyboard.press("Control+k")
    search = desk.dialog("Add a block")
    search.get_by_role("combobox", name="Search operators").fill(typed)
    expect(search.get_by_role("option").first).to_contain_text(re.compile(f"^({first})[A-Z]?"))
    desk.page.keyboard.press("Escape")
    palette = desk.page.get_by_role("complementary", name="Palette")
    palette.get_by_role("searchbox", name="Filter operators").fill(typed)
    expect(palette.locator(".palette-item").first).to_contain_text(re.compile(f"^({first})"))


# Pages as tabs


def test_two_pages_as_tabs_with_copy_and_paste_between_them(desks: Desks) -> None:
    desk = desks().show(_sums()).skip_tour()
    tabs = desk.page.get_by_role("tablist", name="Pages")
    expect(tabs.get_by_role("tab")).to_have_count(1)
    desk.block("b").click(position={"x": 60, "y": 12})
    desk.page.keyboard.press("Control+c")
    desk.page.get_by_role("button", name="New tab").click()
    expect(tabs.get_by_role("tab")).to_have_count(2)
    expect(desk.block("a")).to_have_count(0)
    desk.page.keyboard.press("Control+v")
    expect(desk.block("b")).to_be_visible()
    title = desk.page.get_by_role("textbox", name="Name of the page")
    title.fill("second")
    title.press("Enter")
    expect(tabs.get_by_role("tab", name="second")).to_have_attribute("aria-selected", "true")
    tabs.get_by_role("tab", name="sums").click()
    expect(desk.block("left")).to_be_visible()
    desk.type("a", "value", "[9, 9]")
    tabs.get_by_role("tab", name="second").click()
    expect(desk.block("b")).to_be_visible()
    expect(desk.block("left")).to_have_count(0)
    desk.tool("Undo").click()  # each page has its own history
    expect(desk.status).to_contain_text("Undone: rename the page")
    desk.page.reload()
    desk.ready()
    expect(tabs.get_by_role("tab")).to_have_count(2)
    desk.page.get_by_role("button", name="Close this tab").click()
    expect(desk.field("a", "value")).to_have_value("[9, 9]")
    expect(tabs.get_by_role("tab")).to_have_count(1)


def test_drafts_have_names_and_pictures(desks: Desks) -> None:
    desk = desks().open()
    desk.add("Square")
    expect(desk.tool("Undo")).to_be_enabled()
    desk.tool("Open").click()
    draft = desk.dialog("Open").get_by_role("button", name=re.compile("1 block: Square")).first
    expect(draft).to_be_visible()
    desk.page.wait_for_function("() => document.querySelector('dialog .file img')?.naturalWidth > 50")
