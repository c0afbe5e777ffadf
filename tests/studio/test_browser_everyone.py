"""For everyone: dark mode, no violation that axe finds, small windows, reduced motion, the list of keys, the tour."""

import json
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rowgrad.blocks import Page
from studio.browser import LUMINANCE, ROOT, Desk, drop, expect

Desks = Callable[..., Desk]
NUMBERS = count()


@pytest.fixture(scope="session")
def axe(packages: Path) -> str:
    """The script that looks for what keeps people out."""
    return (packages / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def _tour(desk: Desk) -> Desk:
    """The tour page, after a run."""
    text = (ROOT / "examples" / "pages" / "tour.page.json").read_text()
    name = f"tour-{next(NUMBERS)}.page.json"  # tests that open the same file would be at the same document
    (desk.server.folder / name).write_text(text)
    desk.open(open=name)
    desk.run()
    return desk


def _violations(desk: Desk, axe: str) -> list[str]:
    desk.page.evaluate(axe)
    found: dict[str, Any] = desk.page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{rule['id']}: {node['html'][:160]} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(desks: Desks, axe: str, scheme: str) -> None:
    desk = desks(color_scheme=scheme).open()
    assert _violations(desk, axe) == []  # an empty page, with the tour
    _tour(desk)
    desk.type("pooled", "indices", "[2, 9, 0]")
    desk.run()
    expect(desk.problems).to_contain_text("1 problem")
    desk.page.get_by_role("button", name="Go to pooled").or_(desk.block("pooled")).first.click(
        position={"x": 60, "y": 12}
    )
    assert _violations(desk, axe) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_in_dialogs(desks: Desks, axe: str, scheme: str) -> None:
    desk = _tour(desks(color_scheme=scheme))
    for button in ("Add block", "Open", "Save as", "Loop", "Examples", "Shortcuts"):
        desk.tool(button).click()
        expect(desk.page.get_by_role("dialog")).to_be_visible()
        assert _violations(desk, axe) == [], button
        desk.page.keyboard.press("Escape")
        expect(desk.page.get_by_role("dialog")).to_have_count(0)
    desk.page.get_by_role("button", name="Actions of pooled").click()
    assert _violations(desk, axe) == []
    desk.page.keyboard.press("Escape")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_in_groups_tabs_menus_and_data(desks: Desks, axe: str, scheme: str) -> None:
    page = Page("model")
    page.add("Variable", "table", initial_value=[[1.0, 2.0], [3.0, 4.0]], at=(40, 60))
    page.add("SparseSegmentSum", "pooled", data="table", indices=[0, 0], segment_ids=[0, 0], at=(380, 60))
    page.add("Log", "log", x="pooled", at=(720, 60))
    page.add("ReduceMean", "loss", input="log", axis=[0, 1], at=(1060, 60))
    page.group(["pooled", "log"], "encoder")
    page.add_training("loss:output", None, "Adagrad")
    desk = desks(color_scheme=scheme)
    name = f"groups-{next(NUMBERS)}.page.json"
    page.save(desk.server.folder / name)
    desk.open(open=name)
    desk.type("table", "initial_value", "[[1, 2], [3, oops]]")  # refused, and told
    desk.run()
    desk.page.get_by_role("button", name="New tab").click()
    desk.page.get_by_role("tab", name="model").click()
    expect(desk.block("training")).to_be_visible()
    desk.block("training").click(position={"x": 90, "y": 12})
    assert _violations(desk, axe) == []
    desk.canvas.click(button="right", position={"x": 20, "y": 560})
    expect(desk.page.get_by_role("menu", name="Canvas")).to_be_visible()
    assert _violations(desk, axe) == []
    desk.page.keyboard.press("Escape")
    desk.tool("Train").click()
    assert _violations(desk, axe) == []
    desk.page.keyboard.press("Escape")
    drop(desk, "axe.csv", b"words,label\n1 2,0\n3,1\n")
    expect(desk.page.get_by_role("checkbox", name="Column words")).to_be_visible()
    assert _violations(desk, axe) == []


PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.mark.parametrize(
    "options", [{"color_scheme": "light"}, {"color_scheme": "dark"}, PHONE], ids=["light", "dark", "phone"]
)
def test_axe_finds_no_violation_in_results_runs_and_lessons(desks: Desks, axe: str, options: dict[str, Any]) -> None:
    page = Page("looked at")
    page.add("Variable", "table", initial_value=[[float(3 * r + c) for c in range(3)] for r in range(40)], at=(40, 60))
    page.add("SparseSegmentSum", "pooled", data="table", indices=[0, 0, 5], segment_ids=[0, 0, 1], at=(380, 60))
    page.add("ReduceMean", "loss", input="pooled", axis=[0, 1], at=(720, 60))
    page.move(page.add_training("loss", None, "Adagrad", lr=0.1).name, 1060, 60)
    desk = desks(**options)
    desk.show(page)
    for lesson in ("Pooling and its gradient", "Compact or dense"):
        _press(desk, "Examples")
        assert _violations(desk, axe) == []
        desk.dialog("Examples").get_by_role("button", name=re.compile(f"^{lesson}.* steps$")).click()
        expect(desk.page.get_by_role("region", name="Lesson")).to_contain_text(lesson)
        assert _violations(desk, axe) == []
        desk.page.get_by_role("button", name="Leave the lesson").click()
    desk.show(page)
    if "is_mobile" in options:  # panels lie over the canvas there
        for panel in ("Inspector panel", "Palette panel"):
            if desk.tool(panel).get_attribute("aria-pressed") == "true":
                _press(desk, panel)
    desk.run()
    _press(desk, "Loop")
    assert _violations(desk, axe) == []
    desk.dialog("Loop").get_by_role("button", name="Start the loop").click()
    expect(desk.status).to_contain_text("Loop of 100 steps finished")
    assert _violations(desk, axe) == []
    desk.page.get_by_role("button", name="Sweep", exact=True).click()
    assert _violations(desk, axe) == []
    desk.page.keyboard.press("Escape")
    desk.page.get_by_role("button", name="Hide the chart").click()
    desk.page.get_by_role("button", name="Enlarge ref of table").evaluate("(button) => button.click()")
    for tab in ("Table", "Heat-map", "Histogram", "Plot", "Projection", "Why this number?"):
        desk.page.get_by_role("tab", name=tab, exact=True).click()
        shown = desk.page.get_by_role("dialog").get_by_role("img").or_(desk.page.get_by_role("cell"))
        expect(shown.or_(desk.page.get_by_role("region", name="Why table")).first).to_be_visible()
        assert _violations(desk, axe) == [], tab


def _press(desk: Desk, name: str) -> None:
    """Press a button of the toolbar, which may have to be scrolled to."""
    desk.tool(name).scroll_into_view_if_needed()
    desk.tool(name).click()


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_the_systems_choice_of_dark_is_followed(desks: Desks, scheme: str, is_dark: bool) -> None:
    desk = _tour(desks(color_scheme=scheme))
    for what in (desk.canvas, desk.problems, desk.result("pooled"), desk.field("pooled", "indices")):
        assert (what.evaluate(LUMINANCE) < 0.4) is is_dark
    desk.page.emulate_media(color_scheme="light" if is_dark else "dark")  # and while it is open
    assert (desk.problems.evaluate(LUMINANCE) < 0.4) is not is_dark


def test_it_fits_a_small_laptop(desks: Desks) -> None:
    desk = _tour(desks(viewport={"width": 1280, "height": 720}))
    title = desk.page.get_by_role("textbox", name="Name of the page")
    title.fill("a name that is longer than there is room for")
    title.press("Enter")
    size = desk.page.evaluate("() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
    assert size == [1280, 720]
    for name in ("Run", "Stop", "Undo", "Redo", "Save", "Open", "Export", "Step", "Loop", "New", "Save as", "Add block",
                 "Tidy up", "Shortcuts", "Examples", "Fit"):  # fmt: skip
        expect(desk.tool(name)).to_be_in_viewport(ratio=1)
    rows = {round(button.bounding_box()["y"]) for button in desk.page.get_by_role("banner").get_by_role("button").all()}
    assert max(rows) - min(rows) < 12  # one row of them
    box = desk.canvas.bounding_box()
    assert box is not None and box["width"] > 600 and box["height"] > 400


def test_a_phone_shows_it(desks: Desks) -> None:
    desk = desks(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    _tour(desk)
    assert desk.page.evaluate("() => document.documentElement.scrollWidth") <= 390
    box = desk.canvas.bounding_box()
    assert box is not None and box["width"] > 350 and box["height"] > 400
    desk.tool("Fit").click()
    expect(desk.block("pooled")).to_be_in_viewport()
    expect(desk.tool("Run")).to_be_in_viewport()


def test_the_list_of_keys(desk: Desk) -> None:
    desk.canvas.click(position={"x": 300, "y": 300})
    desk.page.keyboard.press("?")
    dialog = desk.dialog("Shortcuts")
    for text in ("Ctrl K", "Ctrl Enter", "Ctrl Z", "Delete", "F2"):
        expect(dialog).to_contain_text(text)
    desk.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    desk.add("Const")
    desk.field("Const", "value").press("?")  # in a field it is a sign like others
    expect(dialog).to_have_count(0)


def test_the_tour_is_taken_once(desk: Desk) -> None:
    tour = desk.page.get_by_role("region", name="Tour")
    expect(tour).to_contain_text("1 of 4")
    for number in (2, 3, 4):
        tour.get_by_role("button", name="Next").click()
        expect(tour).to_contain_text(f"{number} of 4")
    tour.get_by_role("button", name="Close the tour").click()
    expect(tour).to_have_count(0)
    desk.open()
    expect(tour).to_have_count(0)


def test_the_tour_can_be_skipped(desk: Desk) -> None:
    tour = desk.page.get_by_role("region", name="Tour")
    tour.get_by_role("button", name="Skip the tour").click()
    expect(tour).to_have_count(0)
    desk.page.reload()
    desk.ready()
    expect(tour).to_have_count(0)


def test_reduced_motion_is_kept_to(desks: Desks) -> None:
    desk = _tour(desks(reduced_motion="reduce"))
    moving = desk.page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((element) => {
            const style = getComputedStyle(element);
            const seconds = [style.transitionDuration, style.animationDuration].join(",").split(",").map(parseFloat);
            return Math.max(...seconds) > 0.01;
        }).map((element) => element.className)"""
    )
    assert moving == []
    desk.tool("Fit").click()
    assert desk.page.evaluate("() => document.getAnimations().length") == 0


def test_each_block_has_its_reference_beside_it(desk: Desk) -> None:
    desk.add("SparseSegmentMeanGrad")
    inspector = desk.page.get_by_role("complementary", name="Inspector")
    expect(inspector).to_contain_text("output_dim0")
    inspector.get_by_role("button", name="Insert this example").click()
    expect(desk.block("SparseSegmentMeanGrad_1")).to_be_visible()
    desk.act("SparseSegmentMeanGrad_1", "Run to here")
    expect(desk.result("SparseSegmentMeanGrad_1")).to_be_visible()


def test_announcements_are_polite_and_in_one_place(desk: Desk) -> None:
    expect(desk.status).to_have_count(1)
    assert desk.status.get_attribute("aria-live") == "polite"
    desk.add("Neg")
    expect(desk.status).to_contain_text("Added Neg.")


def test_no_script_or_style_is_inline(desk: Desk) -> None:
    answer = desk.page.request.get(desk.server.address())
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy
    assert json.dumps(answer.text()).count("<script") == json.dumps(answer.text()).count("<script src=")
