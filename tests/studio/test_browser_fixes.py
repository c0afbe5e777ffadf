"""What users stumbled over: undo in fields, refused edits, cut numbers, cards on cards, marks that were not true."""

import shutil
from collections.abc import Callable
from itertools import count

import numpy as np

from rowgrad.blocks import Page
from studio.browser import ROOT, Desk, expect, middle

Desks = Callable[..., Desk]
NUMBERS = count()
BOXES = """(all) => all.map((one) => {
    const box = one.getBoundingClientRect();
    return [one.dataset.id, box.x, box.y, box.width, box.height];
})"""


def _example(desk: Desk, name: str) -> Desk:
    for path in (ROOT / "examples" / "pages").glob("*.*"):
        if not path.name.endswith(".page.json"):
            shutil.copyfile(path, desk.server.folder / path.name)
    copy = f"{name}-{next(NUMBERS)}.page.json"
    shutil.copyfile(ROOT / "examples" / "pages" / f"{name}.page.json", desk.server.folder / copy)
    return desk.open(open=copy)


def _sums() -> Page:
    page = Page("sums")
    page.add("Const", "a", value=[1, 2], dtype="float32", at=(40, 60))
    page.add("Const", "b", value=[3, 4], dtype="float32", at=(40, 320))
    page.add("Add", "sum", x="a", y="b", at=(400, 120))
    return page


# Undo


def test_ctrl_z_in_a_field_undoes_the_document(desks: Desks) -> None:
    desk = desks().show(_sums())
    for block, text in (("a", "[5, 6]"), ("b", "[7, 8]")):
        desk.field(block, "value").click()
        desk.page.keyboard.press("Control+a")
        desk.page.keyboard.type(text)
        desk.page.keyboard.press("Enter")
        expect(desk.page.get_by_title(text)).to_have_value(text)
    expect(desk.field("b", "value")).to_be_focused()  # as a field that holds no history
    desk.page.keyboard.press("Control+z")
    expect(desk.status).to_contain_text("Undone: change value of b")
    expect(desk.field("b", "value")).to_have_value("[3, 4]")
    assert desk.blocks()["b"]["attrs"]["value"] == [3, 4]  # not only what the field shows
    expect(desk.tool("Redo")).to_be_enabled()
    expect(desk.field("a", "value")).to_have_value("[5, 6]")
    desk.page.keyboard.press("Control+z")
    expect(desk.field("a", "value")).to_have_value("[1, 2]")
    desk.page.keyboard.press("Control+Shift+z")
    expect(desk.field("a", "value")).to_have_value("[5, 6]")
    assert desk.blocks()["b"]["attrs"]["value"] == [3, 4]
    desk.page.keyboard.press("Control+y")
    expect(desk.field("b", "value")).to_have_value("[7, 8]")


def test_ctrl_z_drops_what_is_only_typed(desks: Desks) -> None:
    desk = desks().show(_sums())
    desk.type("b", "value", "[7, 8]")
    desk.field("a", "value").click()
    desk.page.keyboard.type("99")
    desk.page.keyboard.press("Control+z")
    expect(desk.field("a", "value")).to_have_value("[1, 2]")
    expect(desk.field("b", "value")).to_have_value("[7, 8]")
    desk.page.keyboard.press("Control+z")
    expect(desk.status).to_contain_text("Undone: change value of b")
    expect(desk.field("b", "value")).to_have_value("[3, 4]")


def test_undo_of_the_browser_is_undo_of_the_document(desks: Desks) -> None:
    desk = desks().show(_sums())
    desk.field("a", "value").click()
    desk.page.keyboard.press("Control+a")
    desk.page.keyboard.type("[5, 6]")
    desk.page.keyboard.press("Enter")
    expect(desk.tool("Undo")).to_be_enabled()
    desk.field("b", "value").click()
    desk.page.evaluate("() => document.execCommand('undo')")  # the text history, which a committed field has none of
    expect(desk.field("a", "value")).to_have_value("[5, 6]")
    taken = desk.page.evaluate(
        """() => {
            const event = new InputEvent("beforeinput", { inputType: "historyUndo", bubbles: true, cancelable: true });
            return !document.activeElement.dispatchEvent(event);  // as the browser's own menu does it
        }"""
    )
    assert taken
    expect(desk.status).to_contain_text("Undone: change value of a")
    expect(desk.field("a", "value")).to_have_value("[1, 2]")
    assert desk.blocks()["a"]["attrs"]["value"] == [1, 2]


# Edits that are refused


def test_a_refused_edit_says_that_it_does_not_hold(desks: Desks) -> None:
    desk = desks().show(_sums())
    desk.type("a", "value", "[1, 2, oops]")
    field = desk.field("a", "value")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(desk.block("a")).to_contain_text("Not applied: [1, 2] still holds.")
    expect(desk.problems).to_contain_text("1 problem")
    desk.run()
    expect(desk.problems).to_contain_text("a:value")
    expect(desk.problems).to_contain_text("The input was not applied.")
    assert desk.numbers("sum", "z") == [[4, 6]]
    desk.tool("Fit").click()
    desk.problems.get_by_role("button", name="a:value").click()
    expect(field).to_be_focused()
    desk.page.keyboard.press("Escape")
    expect(field).to_have_value("[1, 2]")
    expect(desk.problems).to_contain_text("No problems")
    expect(desk.status).not_to_contain_text("oops")


def test_what_the_server_refuses_is_listed_too(desks: Desks) -> None:
    desk = desks().show(_sums())
    desk.type("a", "value", "[1, 2, 3]")  # of another shape than b
    expect(desk.field("a", "value")).to_have_attribute("aria-invalid", "true")
    expect(desk.problems).to_contain_text("1 problem")
    desk.type("a", "value", "[8, 9]")
    expect(desk.problems).to_contain_text("No problems")
    desk.run()
    assert desk.numbers("sum", "z") == [[11, 13]]


# Numbers


def test_numbers_are_rounded_and_never_cut(desks: Desks) -> None:
    page = Page("small")
    small = np.array([[3.456789e-05, -1.234567e-12, 0.1234567, 123.4567], [1, 2, 3, 4]], np.float32)
    page.add("Const", "small", value=small, at=(40, 60))
    page.add("Neg", "same", x="small", at=(400, 60))
    wide = np.full((2, 12), 1.23456e-05, np.float32)
    page.add("Neg", "wide", x=wide, at=(400, 400))
    desk = desks().show(page)
    desk.run()
    for block in ("same", "wide"):
        region = desk.result(block, "y")
        for cell in region.get_by_role("cell").all()[:4]:
            shown, exact = cell.inner_text(), cell.get_attribute("title")
            assert exact is not None and abs(float(shown) - float(exact)) <= 0.1 * abs(float(exact))
            assert cell.evaluate("(one) => one.scrollWidth <= one.clientWidth")
        box = region.locator(".cells").bounding_box()
        assert box is not None
        edges = [cell.bounding_box() for cell in region.get_by_role("row").first.get_by_role("cell").all()]
        seen = [one for one in edges if one and one["x"] < box["x"] + box["width"] - 1]
        assert seen and all(
            one["x"] + one["width"] <= box["x"] + box["width"] + 2 for one in seen
        )  # whole, or not at all
    expect(desk.result("same", "y")).to_contain_text("rounded")
    expect(desk.result("wide", "y")).to_contain_text("of 12 columns; scroll, or enlarge")
    page_in_table = desk.page.get_by_role("button", name="Edit value of small as a table")
    page_in_table.click()
    cell = desk.page.get_by_role("textbox", name="value of small, row 0, column 0")
    assert cell.evaluate("(one) => one.scrollWidth <= one.clientWidth + 1")


def test_nan_and_infinities_are_flagged_and_counted(desks: Desks) -> None:
    page = Page("odd")
    page.add("Const", "x", value=np.array([0, -1, 1, 0], np.float32), at=(40, 60))
    page.add("Log", "log", x="x", at=(400, 60))
    desk = desks().show(page)
    expect(desk.problems).to_contain_text("No problems")
    desk.run()
    expect(desk.result("log", "y")).to_contain_text("1 NaN, 2 infinities")
    expect(desk.problems).to_contain_text("1 result with NaN or infinities")
    expect(desk.problems).to_contain_text("log:y has 1 NaN, 2 infinities among 4 elements")
    desk.type("x", "value", "[1, 2, 3, 4]")
    desk.run()
    expect(desk.result("log", "y")).not_to_contain_text("NaN")
    expect(desk.problems).not_to_contain_text("NaN")


# Cards, marks, views


def _overlaps(desk: Desk) -> list[tuple[str, str]]:
    boxes = desk.page.locator(".react-flow__node").evaluate_all(BOXES)
    return [
        (one[0], other[0])
        for at, one in enumerate(boxes)
        for other in boxes[at + 1 :]
        if one[1] < other[1] + other[3] - 1 and other[1] < one[1] + one[3] - 1
        and one[2] < other[2] + other[4] - 1 and other[2] < one[2] + one[4] - 1
    ]  # fmt: skip


def _is_all_in_view(desk: Desk) -> bool:
    box, under = desk.canvas.bounding_box(), desk.page.get_by_label("Overview of the page").bounding_box()
    assert box is not None and under is not None
    for _, x, y, width, height in desk.page.locator(".react-flow__node").evaluate_all(BOXES):
        inside = (
            x >= box["x"]
            and y >= box["y"]
            and x + width <= box["x"] + box["width"]
            and y + height <= box["y"] + box["height"]
        )
        if not inside or (x + width > under["x"] and y + height > under["y"]):
            return False
    return True


def test_no_card_covers_another_and_nothing_is_stale_after_training(desks: Desks) -> None:
    desk = _example(desks(reduced_motion="reduce"), "classifier")
    assert _overlaps(desk) == []
    desk.tool("Loop").click()
    desk.dialog("Loop").get_by_role("textbox", name="Steps").fill("3")
    desk.dialog("Loop").get_by_role("button", name="Start the loop").click()
    expect(desk.status).to_contain_text("Loop of 3 steps finished")
    expect(desk.page.get_by_text("stale", exact=True)).to_have_count(0)
    assert _overlaps(desk) == []
    desk.tool("Tidy up").click()
    expect(desk.status).to_contain_text("Tidied up.")
    assert _overlaps(desk) == []
    desk.page.wait_for_function("() => document.getAnimations().length === 0")
    assert _is_all_in_view(desk)


def test_a_change_makes_results_stale_until_they_run_again(desks: Desks) -> None:
    desk = desks().show(_sums())
    desk.run()
    desk.type("a", "value", "[5, 6]")
    expect(desk.block("sum").get_by_text("stale", exact=True).first).to_be_visible()
    expect(desk.block("b").get_by_text("stale", exact=True)).to_have_count(0)
    desk.run()
    expect(desk.page.get_by_text("stale", exact=True)).to_have_count(0)


def test_nothing_is_under_the_overview_after_fit(desks: Desks) -> None:
    page = Page("corner")
    for column in range(3):
        for row in range(3):
            page.add("Const", f"c{column}{row}", value=[1.0], dtype="float32", at=(340 * column, 260 * row))
    desk = desks(reduced_motion="reduce").show(page)
    assert _is_all_in_view(desk)
    desk.run()
    desk.tool("Fit").click()
    assert _is_all_in_view(desk)


def test_the_table_button_stays_under_the_pointer(desks: Desks) -> None:
    desk = desks().show(_sums())
    button = desk.page.get_by_role("button", name="Edit value of a as a table")
    before = middle(button)
    desk.field("a", "value").click()
    assert middle(button) == before
    desk.page.mouse.click(*before)
    table = desk.page.get_by_role("dialog", name="Table of value of a")
    expect(table).to_be_visible()
    assert middle(button) == before
    desk.page.mouse.click(*before)
    expect(table).to_have_count(0)


def test_the_status_line_forgets_an_error_when_something_works(desks: Desks) -> None:
    desk = desks().show(_sums())
    desk.type("a", "value", "[1, 2, 3]")
    expect(desk.status).to_contain_text("value of a")
    desk.type("a", "value", "[2, 2]")
    expect(desk.tool("Undo")).to_be_enabled()
    expect(desk.status).not_to_contain_text("value of a")


def test_a_new_block_is_not_reproached(desk: Desk) -> None:
    desk.add("Square")
    name = desk.block("Square").get_by_text("x", exact=True)
    calm = desk.block("Square").locator(".pin-name.out").evaluate("(one) => getComputedStyle(one).color")
    assert name.evaluate("(one) => getComputedStyle(one).color") == calm
    expect(desk.problems).to_contain_text("No problems · 1 input to fill")
    desk.tool("Run").click()
    expect(desk.problems).to_contain_text("1 problem")
    assert name.evaluate("(one) => getComputedStyle(one).color") != calm


def test_help_for_npz_files_names_what_is_taken(desk: Desk) -> None:
    np.savez(desk.server.folder / "two.npz", left=np.arange(3.0), right=np.ones(2))
    desk.add("File")
    desk.type("File", "path", "two.npz")
    expect(
        desk.problems.or_(desk.block("File")).filter(has_text="Name one as the attribute part.").first
    ).to_be_visible()
    desk.type("File", "part", "left")
    desk.type("File", "path", "two.npz")
    desk.run()
    assert desk.numbers("File") == [[0, 1, 2]]


def test_a_picture_tells_that_it_is_being_made(desks: Desks) -> None:
    desk = desks().show(_sums())
    desk.page.route("**/export?as=png", lambda route: desk.page.wait_for_timeout(400) or route.continue_())
    desk.tool("Export").click()
    with desk.page.expect_download() as download:
        desk.page.get_by_role("menuitem", name="PNG picture").click()
        expect(desk.page.get_by_role("progressbar", name="Writing the PNG picture …")).to_be_visible()
    assert download.value.suggested_filename.endswith(".png")
    expect(desk.page.get_by_role("progressbar")).to_have_count(0)
