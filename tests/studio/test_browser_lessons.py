"""The three lessons, taken as a learner takes them; each step is ticked off only when it was done."""

import re
from collections.abc import Callable

from studio.browser import Desk, expect

Desks = Callable[..., Desk]


def _start(desk: Desk, title: str) -> None:
    desk.skip_tour()
    desk.tool("Examples").click()
    desk.dialog("Examples").get_by_role("button", name=re.compile(f"^{title}.* steps$")).click()
    expect(desk.page.get_by_role("region", name="Lesson")).to_contain_text(title)


def _next(desk: Desk, step: str) -> None:
    """Step on, which can be done only once the step is."""
    lesson = desk.page.get_by_role("region", name="Lesson")
    expect(lesson.get_by_role("heading", name=re.compile(f": {re.escape(step)}$"))).to_be_visible()
    button = lesson.get_by_role("button", name="Next step")
    expect(button).to_be_enabled()
    button.click()


def _is_not_done(desk: Desk, missing: str) -> None:
    lesson = desk.page.get_by_role("region", name="Lesson")
    expect(lesson).to_contain_text(missing)
    on = lesson.get_by_role("button", name="Next step").or_(lesson.get_by_role("button", name="Finish"))
    expect(on).to_be_disabled()


def _answer(desk: Desk, wrong: str, right: str) -> None:
    lesson = desk.page.get_by_role("region", name="Lesson")
    lesson.get_by_role("radio", name=wrong).check()
    _is_not_done(desk, "Not quite")
    lesson.get_by_role("radio", name=right).check()
    lesson.get_by_role("button", name="Finish the lesson").click()
    expect(lesson).to_have_count(0)


def test_pooling_and_its_gradient(desks: Desks) -> None:
    desk = desks(viewport={"width": 1440, "height": 900}, reduced_motion="reduce").open()
    _start(desk, "Pooling and its gradient")
    _is_not_done(desk, "There is no SparseSegmentMean on the page yet.")
    desk.add("SparseSegmentMean")
    _next(desk, "A pooled look-up")
    desk.type("SparseSegmentMean", "data", "[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]")
    desk.type("SparseSegmentMean", "indices", "[0, 1, 2]")
    desk.type("SparseSegmentMean", "segment_ids", "[0, 0, 1]")
    _is_not_done(desk, "then press Run")
    desk.run()
    _is_not_done(desk, "the result is not [[3, 4], [5, 6]]")
    desk.type("SparseSegmentMean", "indices", "[0, 2, 2]")
    desk.run()
    _next(desk, "Pool three rows")
    desk.add("SparseSegmentMeanGrad")
    pins = {"grad": "[[1.0, 1.0], [1.0, 1.0]]", "indices": "[0, 2, 2]", "segment_ids": "[0, 0, 1]", "output_dim0": "3"}
    for pin, text in pins.items():
        desk.type("SparseSegmentMeanGrad", pin, text)
    desk.run()
    _next(desk, "Go backward")
    _is_not_done(desk, "Click on a number in row 2")
    desk.result("SparseSegmentMeanGrad").get_by_role("row").nth(2).get_by_role("cell").nth(0).click()
    expect(desk.page.get_by_role("region", name="Why SparseSegmentMeanGrad:output[2, 0]")).to_be_visible()
    desk.page.keyboard.press("Escape")
    _next(desk, "Why 1.5?")
    _answer(desk, "Its values are too small", "No entry of indices is 1")


def test_compact_or_dense(desks: Desks) -> None:
    desk = desks(viewport={"width": 1440, "height": 900}, reduced_motion="reduce").open()
    _start(desk, "Compact or dense")
    _is_not_done(desk, "Press Run")
    desk.run()
    _next(desk, "The dense one")
    desk.add("SparseSegmentSumGradV2")
    desk.tool("Fit").click()
    desk.wire(desk.output("grad"), desk.input("SparseSegmentSumGradV2", "grad"))
    for pin, text in (("indices", "[7, 2, 7]"), ("segment_ids", "[0, 0, 1]"), ("dense_output_dim0", "1000")):
        desk.type("SparseSegmentSumGradV2", pin, text)
    desk.run()
    _next(desk, "The compact one")
    _is_not_done(desk, "does not have 1,000,000 rows yet")
    desk.type("dense", "output_dim0", "1000000")
    desk.type("SparseSegmentSumGradV2", "dense_output_dim0", "1000000")
    desk.run()
    _next(desk, "A million rows")
    _answer(desk, "3: one for each entry", "2: the rows that were used")


def test_training_a_small_recommender(desks: Desks) -> None:
    desk = desks(viewport={"width": 1440, "height": 900}, reduced_motion="reduce").open()
    _start(desk, "Training a small recommender")
    desk.run()
    _next(desk, "Before training")
    _is_not_done(desk, "There is no training")
    desk.tool("Train").click()
    desk.dialog("Train").get_by_role("button", name="Add training").click()
    _next(desk, "Make it train")
    _is_not_done(desk, "No loop of 50 steps")
    desk.tool("Loop").click()
    desk.dialog("Loop").get_by_role("textbox", name="Steps").fill("300")
    desk.dialog("Loop").get_by_role("button", name="Start the loop").click()
    expect(desk.status).to_contain_text("Loop of 300 steps finished")
    _next(desk, "Train")
    _is_not_done(desk, "0 of at least 3 runs")
    desk.page.get_by_role("button", name="Sweep", exact=True).click()
    desk.dialog("Sweep").get_by_role("button", name="Start the sweep").click()
    expect(desk.status).to_contain_text("Swept training:lr over 5 values")
    _next(desk, "Which learning rate?")
    desk.page.get_by_role("button", name="Enlarge ref of films").click()
    desk.page.get_by_role("tab", name="Projection").click()
    expect(desk.page.get_by_role("img", name="Projection of ref of films: 10 rows")).to_be_visible()
    desk.page.keyboard.press("Escape")
    lesson = desk.page.get_by_role("region", name="Lesson")
    lesson.get_by_role("button", name="Finish the lesson").click()
    expect(lesson).to_have_count(0)
