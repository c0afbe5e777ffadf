"""Changing a page: ten gestures there and back; copy, paste, duplicate, delete, align, tidy; notes; names; two tabs."""

from collections.abc import Callable

from rowgrad.blocks import Page
from studio.browser import PATIENCE, Desk, expect, middle

Desks = Callable[..., Desk]


def _opened(desks: Desks, name: str) -> Desk:
    page = Page(name)
    page.add("Const", "a", value=[1.0, 2.0], dtype="float32", at=(0, 0))
    page.add("Square", "b", x="a", at=(340, 60))
    desk = desks()
    page.save(desk.server.folder / f"{name}.page.json")
    return desk.open(open=f"{name}.page.json")


def _head(desk: Desk, block: str) -> tuple[float, float]:
    """Where a block is held: beside its name."""
    box = desk.block(block).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + 14


def _drag(desk: Desk, block: str, dx: float, dy: float) -> None:
    x, y = _head(desk, block)
    desk.page.mouse.move(x, y)
    desk.page.mouse.down()
    desk.page.mouse.move(x + dx / 2, y + dy / 2, steps=4)
    desk.page.mouse.move(x + dx, y + dy, steps=4)
    desk.page.mouse.up()


def _select(desk: Desk, *blocks: str) -> None:
    for number, block in enumerate(blocks):
        x, y = _head(desk, block)
        if number:
            desk.page.keyboard.down("Control")
        desk.page.mouse.click(x, y)
        if number:
            desk.page.keyboard.up("Control")


CHANGED = """async ([address, before, most]) => {
    for (const until = performance.now() + most; performance.now() < until; ) {
        const text = await (await fetch(address)).text();
        if (text !== before) return text;
    }
    throw new Error("the page has not changed");
}"""


def test_ten_gestures_are_undone_and_done_again(desks: Desks) -> None:
    desk = _opened(desks, "gestures")
    address = f"/api/documents/{desk.document}/export?as=page.json"

    def next_page() -> str:
        """The page when it is another than the last one that was seen."""
        seen.append(desk.page.evaluate(CHANGED, [address, seen[-1], PATIENCE]))
        return seen[-1]

    seen = [""]
    next_page()
    desk.add("Neg")
    next_page()
    desk.wire(desk.output("b", "y"), desk.input("Neg", "x"))
    next_page()
    desk.type("a", "value", "[3, 4]")
    next_page()
    _drag(desk, "b", 0, 120)
    next_page()
    desk.act("b", "Rename")
    name = desk.page.get_by_role("dialog").get_by_role("textbox")
    name.fill("squared")
    name.press("Enter")
    next_page()
    desk.act("squared", "Duplicate")
    next_page()
    desk.tool("Tidy up").click()
    next_page()
    desk.page.get_by_role("combobox", name="dtype of a").select_option("float64")
    next_page()
    desk.act("squared", "Delete")
    next_page()
    title = desk.page.get_by_role("textbox", name="Name of the page")
    title.fill("ten gestures")
    title.press("Enter")
    next_page()

    states = seen[1:]
    assert len(set(states)) == 11
    for state in reversed(states[:-1]):
        desk.tool("Undo").click()
        assert next_page() == state
    expect(desk.tool("Undo")).to_be_disabled()
    expect(desk.block("b")).to_be_visible()
    expect(desk.field("a", "value")).to_have_value("[1, 2]")
    desk.canvas.click(position={"x": 20, "y": 20})
    for state in states[1:]:
        desk.page.keyboard.press("Control+Shift+z")
        assert next_page() == state
    expect(desk.tool("Redo")).to_be_disabled()


def test_copy_and_paste_keep_wires(desks: Desks) -> None:
    desk = _opened(desks, "copies")
    _select(desk, "a", "b")
    desk.page.keyboard.press("Control+c")
    desk.page.keyboard.press("Control+v")
    expect(desk.block("b_1")).to_be_visible()
    assert desk.blocks()["b_1"]["inputs"] == {"x": "a_1:output"}
    assert desk.blocks()["a_1"]["attrs"] == desk.blocks()["a"]["attrs"]


def test_copies_go_from_page_to_page(desks: Desks) -> None:
    desk = _opened(desks, "from_here")
    _select(desk, "a", "b")
    desk.page.keyboard.press("Control+c")
    desk.tool("New").click()
    expect(desk.block("a")).to_have_count(0)
    desk.canvas.click(position={"x": 300, "y": 400})
    desk.page.keyboard.press("Control+v")
    expect(desk.block("b")).to_be_visible()
    assert desk.blocks()["b"]["inputs"] == {"x": "a:output"}


def test_duplicate_and_delete_by_key(desks: Desks) -> None:
    desk = _opened(desks, "duplicates")
    _select(desk, "b")
    desk.page.keyboard.press("Control+d")
    expect(desk.block("b_1")).to_be_visible()
    assert desk.blocks()["b_1"]["inputs"] == {"x": "a:output"}
    _select(desk, "a")
    desk.page.keyboard.press("Delete")
    expect(desk.block("a")).to_have_count(0)
    assert "inputs" not in desk.blocks()["b"]
    desk.page.keyboard.press("Control+z")
    expect(desk.block("a")).to_be_visible()
    assert desk.blocks()["b"]["inputs"] == {"x": "a:output"}


def test_a_wire_is_taken_away(desks: Desks) -> None:
    desk = _opened(desks, "unwire")
    desk.input("b", "x").focus()
    desk.page.keyboard.press("Delete")
    expect(desk.field("b", "x")).to_be_visible()
    assert "inputs" not in desk.blocks()["b"]


def test_blocks_are_aligned(desks: Desks) -> None:
    desk = _opened(desks, "aligned")
    _select(desk, "a", "b")
    desk.page.keyboard.press("Alt+t")
    expect(desk.tool("Undo")).to_have_attribute("title", "Undo: move b (Ctrl Z)")
    assert desk.blocks()["b"]["at"] == [340, 0]
    desk.page.keyboard.press("Control+z")
    expect(desk.tool("Undo")).to_be_disabled()
    desk.page.keyboard.press("Alt+l")
    expect(desk.tool("Undo")).to_be_enabled()
    assert desk.blocks()["b"]["at"] == [0, 60]


def test_blocks_are_moved_by_hand_and_by_key(desks: Desks) -> None:
    desk = _opened(desks, "moved")
    _drag(desk, "b", 100, 50)
    expect(desk.tool("Undo")).to_be_enabled()
    x, y = desk.blocks()["b"]["at"]
    assert x > 340 and y > 60 and x % 10 == 0 and y % 10 == 0  # it snaps to the grid
    _select(desk, "a")
    desk.page.keyboard.press("ArrowDown")
    expect(desk.page.get_by_role("button", name="Undo", exact=True)).to_have_attribute("title", "Undo: move a (Ctrl Z)")
    assert desk.blocks()["a"]["at"] == [0, 10]


def test_a_frame_selects_and_all_of_it_moves_at_once(desks: Desks) -> None:
    desk = _opened(desks, "framed")
    box = desk.canvas.bounding_box()
    assert box is not None
    desk.page.keyboard.down("Shift")
    desk.page.mouse.move(box["x"] + 4, box["y"] + 4)
    desk.page.mouse.down()
    desk.page.mouse.move(box["x"] + box["width"] - 20, box["y"] + box["height"] - 20, steps=6)
    desk.page.mouse.up()
    desk.page.keyboard.up("Shift")
    expect(desk.page.get_by_role("complementary", name="Inspector")).to_contain_text("2 selected")
    _drag(desk, "b", 40, 80)
    expect(desk.tool("Undo")).to_have_attribute("title", "Undo: move 2 blocks (Ctrl Z)")
    places = {id: block["at"] for id, block in desk.blocks().items()}
    assert places["b"] != [340, 60]
    assert [places["b"][axis] - places["a"][axis] for axis in (0, 1)] == [340, 60]


def test_notes_are_written_moved_and_removed(desks: Desks) -> None:
    desk = _opened(desks, "noted")
    desk.tool("Add note").click()
    text = desk.page.get_by_role("textbox", name="Text of note")
    text.fill("Look here.\nAnd here.")
    text.press("Control+Enter")
    expect(desk.canvas.get_by_text("Look here.")).to_be_visible()
    assert [note["text"] for note in desk.file()["notes"]] == ["Look here.\nAnd here."]
    place = desk.file()["notes"][0]["at"]
    desk.drag(
        desk.canvas.get_by_text("Look here."), *(part + 60 for part in middle(desk.canvas.get_by_text("Look here.")))
    )
    expect(desk.tool("Undo")).to_have_attribute("title", "Undo: move a note (Ctrl Z)")
    assert desk.file()["notes"][0]["at"] != place
    desk.canvas.get_by_text("Look here.").click()
    desk.page.keyboard.press("Delete")
    expect(desk.canvas.get_by_text("Look here.")).to_have_count(0)
    assert not desk.file().get("notes")


def test_a_name_that_is_taken_is_refused(desks: Desks) -> None:
    desk = _opened(desks, "names")
    desk.act("b", "Rename")
    dialog = desk.page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("a")
    dialog.get_by_role("textbox").press("Enter")
    expect(dialog).to_contain_text("a")
    expect(dialog.get_by_role("textbox")).to_have_attribute("aria-invalid", "true")
    desk.page.keyboard.press("Escape")
    assert set(desk.blocks()) == {"a", "b"}


def test_two_tabs_see_each_other(desks: Desks) -> None:
    desk = _opened(desks, "shared")
    other = desks(beside=desk)
    other.page.goto(desk.page.url)
    other.ready()
    expect(other.field("a", "value")).to_have_value("[1, 2]")
    desk.type("a", "value", "[5, 6]")
    expect(other.field("a", "value")).to_have_value("[5, 6]")
    other.add("Neg")
    expect(desk.block("Neg")).to_be_visible()
    other.run()
    expect(desk.result("b", "y")).to_contain_text("36")
    desk.tool("Undo").click()
    expect(other.block("Neg")).to_have_count(0)
    assert desk.file() == other.file()
