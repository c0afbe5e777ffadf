"""Running: to here, step by step, in a loop that is charted and stopped; gradients; results in every form; errors."""

from collections.abc import Callable

import numpy as np
import pytest

from rowgrad.blocks import Page, Session
from shared_texts import out_of_range
from studio.browser import Desk, expect

Desks = Callable[..., Desk]


def _chain(name: str) -> Page:
    """a → b → c, and d on its own."""
    page = Page(name)
    page.add("Const", "a", value=[1.0, 2.0, 3.0], dtype="float32", at=(0, 0))
    page.add("Square", "b", x="a", at=(340, 0))
    page.add("Neg", "c", x="b", at=(680, 0))
    page.add("Const", "d", value=[7], dtype="int32", at=(0, 260))
    return page


def _opened(desks: Desks, page: Page) -> Desk:
    desk = desks()
    page.save(desk.server.folder / f"{page.name}.page.json")
    return desk.open(open=f"{page.name}.page.json")


def test_run_to_here_runs_what_is_needed_and_no_more(desks: Desks) -> None:
    desk = _opened(desks, _chain("to_here"))
    desk.act("b", "Run to here")
    expect(desk.status).to_contain_text("Run to b finished")
    assert desk.numbers("b", "y") == [[1, 4, 9]]
    expect(desk.result("c", "y")).to_have_count(0)
    expect(desk.result("d")).to_have_count(0)


def test_steps_run_one_block_after_the_other(desks: Desks) -> None:
    desk = _opened(desks, _chain("steps"))
    for count, block in enumerate(("a", "b", "c", "d"), 1):
        desk.tool("Step").click()
        expect(desk.status).to_contain_text(f"Ran {block}.")
        expect(
            desk.page.get_by_role("region", name="y of ").or_(desk.page.get_by_role("region", name="output of "))
        ).to_have_count(count)
    desk.tool("Step").click()
    expect(desk.status).to_contain_text("Everything is up to date.")


def test_what_is_stale_says_so_and_only_that_runs_again(desks: Desks) -> None:
    desk = _opened(desks, _chain("stale"))
    desk.run()
    desk.type("a", "value", "[1, 2, 4]")
    expect(desk.block("c")).to_contain_text("stale")
    assert "stale" not in desk.block("d").inner_text()
    assert desk.numbers("c", "y") == [[-1, -4, -9]]  # kept until it runs again
    desk.run()
    expect(desk.block("c")).not_to_contain_text("stale")
    assert desk.numbers("c", "y") == [[-1, -4, -16]]


def _training(name: str) -> Page:
    page = Page(name)
    page.add("Variable", "w", initial_value=[4.0, -2.0], at=(0, 0))
    page.add("Square", "squared", x="w", at=(340, 0))
    page.add("ReduceSum", "loss", input="squared", axis=[0], at=(680, 0))
    page.add("ApplyGradientDescent", "descend", var="w", alpha=0.25, delta="w", at=(340, 300))
    return page


def test_a_loop_draws_what_it_records(desks: Desks) -> None:
    desk = _opened(desks, _training("training"))
    expected = Session(_training("training")).loop(30, record=["loss:output"])["loss:output"]
    desk.tool("Loop").click()
    dialog = desk.dialog("Loop")
    dialog.get_by_label("Steps").fill("1.5")
    dialog.get_by_label("Steps").press("Enter")
    expect(dialog.get_by_label("Steps")).to_have_attribute("aria-invalid", "true")
    dialog.get_by_label("Steps").fill("30")
    dialog.get_by_role("checkbox", name="loss:output").check()
    dialog.get_by_role("button", name="Start the loop").click()
    expect(desk.status).to_contain_text("Loop of 30 steps finished")
    chart = desk.page.get_by_role("figure", name="Recorded values")
    expect(chart).to_contain_text(f"loss:output: {expected[0]:g} in step 1")
    expect(chart).to_contain_text("in step 30")
    assert desk.numbers("loss") == [[pytest.approx(float(expected[-1]), rel=1e-4)]]


def test_a_long_loop_stops_when_told(desks: Desks) -> None:
    desk = _opened(desks, _training("endless"))
    desk.tool("Loop").click()
    dialog = desk.dialog("Loop")
    dialog.get_by_label("Steps").fill("10000000")
    dialog.get_by_role("checkbox", name="loss:output").check()
    dialog.get_by_role("button", name="Start the loop").click()
    expect(desk.page.get_by_role("progressbar", name="Progress")).to_be_visible()
    expect(desk.page.get_by_role("figure", name="Recorded values")).to_contain_text("in step 1,")
    expect(desk.tool("Run")).to_be_disabled()
    desk.tool("Stop").click()
    expect(desk.tool("Run")).to_be_enabled()
    expect(desk.tool("Stop")).to_be_disabled()
    expect(desk.status).to_contain_text("ended after")
    desk.run()  # and it goes on


def test_gradients_are_added_from_an_output(desks: Desks) -> None:
    page = Page("squares")
    page.add("Variable", "table", initial_value=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], at=(0, 0))
    page.add(
        "SparseSegmentMean",
        "pooled",
        data="table",
        indices=[0, 2, 2],
        segment_ids=[0, 0, 1],
        sparse_gradient=True,
        at=(340, 0),
    )
    page.add("Square", "squared", x="pooled", at=(680, 0))
    page.add("ReduceSum", "y", input="squared", axis=[0, 1], at=(1020, 0))
    desk = _opened(desks, page)
    before = set(desk.blocks())
    desk.output("y").click(button="right")
    desk.page.get_by_role("menuitem", name="Add gradients from here").click()
    dialog = desk.page.get_by_role("dialog")
    dialog.get_by_role("checkbox", name="table:ref").check()
    dialog.get_by_role("button", name="Check against differences").click()
    expect(dialog).to_contain_text("6 elements agree")
    dialog.get_by_role("button", name="Add gradients").click()
    expect(desk.block("gradients")).to_be_visible()  # one card: the backward half, derived
    desk.run()
    assert desk.numbers("gradients", "d_table_output") == [[3, 4], [13, 16]]
    assert desk.numbers("gradients", "d_table_sorted_unique_indices") == [[0, 2]]
    desk.tool("Undo").click()  # all of them are one gesture
    expect(desk.block("gradients")).to_have_count(0)
    assert set(desk.blocks()) == before


def test_an_error_stands_at_its_pin_and_the_list_leads_there(desks: Desks) -> None:
    page = Page("failing")
    page.add("Const", "table", value=[[1.0], [2.0], [3.0]], dtype="float32", at=(0, 0))
    page.add("SparseSegmentSum", "wrong", data="table", indices=[0, 7], segment_ids=[0, 0], at=(2000, 900))
    page.add("Neg", "after", x="wrong", at=(2340, 900))
    page.add("Square", "fine", x="table", at=(340, 0))
    desk = _opened(desks, page)
    desk.run()
    why = out_of_range("indices", 1, 7, 3, "the number of rows of data", "Drop the entry")
    expect(desk.block("wrong")).to_contain_text(why)
    expect(desk.block("after")).to_contain_text("needs wrong")
    assert desk.numbers("fine", "y") == [[1], [4], [9]]
    expect(desk.problems).to_contain_text("1 problem")
    expect(desk.status).to_contain_text("1 failed")

    for _ in range(4):  # as far away as the zoom allows
        desk.canvas.hover(position={"x": 100, "y": 400})
        desk.page.mouse.wheel(0, -400)
    desk.problems.get_by_role("button", name=why).click()
    expect(desk.input("wrong", "indices")).to_be_focused()
    expect(desk.input("wrong", "indices")).to_be_in_viewport()

    desk.type("wrong", "indices", "[0, 2]")
    desk.run()
    expect(desk.problems).to_contain_text("No problems")
    assert desk.numbers("after", "y") == [[-4]]


def test_what_is_missing_is_told_before_anything_runs(desk: Desk) -> None:
    desk.add("Square")
    expect(desk.problems).to_contain_text("1 input to fill")
    desk.problems.get_by_role("button", name="Square:x").click()
    expect(desk.input("Square", "x")).to_be_focused()


def test_larger_results_are_heat_maps_whose_values_can_be_read(desks: Desks) -> None:
    page = Page("heat")
    values = np.linspace(-3, 5, 40 * 20).reshape(40, 20)
    page.add("Const", "large", value=values, dtype="float64", at=(0, 0))
    desk = _opened(desks, page)
    desk.run()
    heat = desk.page.get_by_role("img", name="Heat-map of output of large: float64 [40, 20]")
    expect(heat).to_be_visible()
    assert "min -3" in (heat.get_attribute("aria-label") or "").replace("−", "-")
    box = heat.bounding_box()
    assert box is not None
    desk.page.mouse.move(box["x"] + box["width"] * 2.5 / 20, box["y"] + box["height"] * 10.5 / 40)
    expect(desk.result("large")).to_contain_text("row 10, column 2: ")
    assert f"{values[10, 2]:.5f}" in desk.result("large").inner_text().replace("−", "-")
    desk.page.mouse.move(5, 5)
    heat.focus()
    desk.page.keyboard.press("ArrowRight")
    desk.page.keyboard.press("ArrowRight")
    expect(desk.status).to_contain_text("row 0, column 1: ")

    desk.page.get_by_role("button", name="Enlarge output of large").click()
    dialog = desk.page.get_by_role("dialog")
    expect(dialog.get_by_role("img", name="Heat-map of output of large")).to_be_visible()
    desk.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_texts_are_a_table(desks: Desks) -> None:
    page = Page("texts")
    page.add("Const", "names", value=["a", "ü, b", "<i>c</i>"], dtype="string", at=(0, 0))
    desk = _opened(desks, page)
    desk.run()
    expect(desk.result("names").get_by_role("cell")).to_have_text(["a", "ü, b", "<i>c</i>"])


def test_outputs_are_downloaded(desks: Desks, tmp_path: object) -> None:
    page = Page("downloads")
    page.add("Const", "numbers", value=[[0.1, 2.0], [3.0, -4.0]], dtype="float32", at=(0, 0))
    desk = _opened(desks, page)
    desk.run()
    found = {}
    for kind in ("npy", "csv"):
        desk.page.get_by_role("button", name="Download output of numbers").click()
        with desk.page.expect_download() as download:
            desk.page.get_by_role("menuitem", name=f"Download as .{kind}").click()
        assert download.value.suggested_filename == f"numbers-output.{kind}"
        found[kind] = download.value.path()
    array = np.load(found["npy"], allow_pickle=False)
    assert array.dtype == np.float32 and array.tolist() == np.float32([[0.1, 2], [3, -4]]).tolist()
    assert found["csv"].read_text().splitlines()[1] == "3,-4"


def test_a_row_of_a_gradient_lights_up_what_it_came_from(desks: Desks) -> None:
    page = Page("origins")
    page.add(
        "SparseSegmentMeanGrad",
        "rows",
        grad=[[1.0, 2.0], [3.0, 4.0]],
        indices=[0, 2, 0],
        segment_ids=[0, 0, 1],
        output_dim0=3,
        at=(0, 0),
    )
    desk = _opened(desks, page)
    desk.run()
    assert desk.block("rows").get_by_role("mark").count() == 0
    desk.result("rows").get_by_role("row").nth(2).hover()
    marks = desk.block("rows").locator("mark")
    expect(marks.first).to_be_visible()
    desk.page.mouse.move(5, 5)
    expect(marks).to_have_count(0)


def test_a_placeholder_is_fed(desks: Desks) -> None:
    page = Page("fed")
    page.add("Placeholder", "x", dtype="float32", shape=["n"], at=(0, 0))
    page.add("Square", "y", x="x", at=(340, 0))
    desk = _opened(desks, page)
    desk.type("x", "feed", "[2, 3]")
    desk.run()
    assert desk.numbers("y", "y") == [[4, 9]]
