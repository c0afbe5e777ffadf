"""Seeing at every scale: a page that is read when fitted, cards that collapse, wires around cards, panels, a phone."""

import re
import shutil
from collections.abc import Callable

import pytest

from rowgrad.blocks import Page
from studio.browser import ROOT, Desk, expect

Desks = Callable[..., Desk]
LEAST = 9  # pixels of a title
TITLES = """() => [...document.querySelectorAll(".react-flow__node-block .card")].map((card) => {
    const far = card.querySelector(".far-title > span");
    const title = far.getClientRects().length ? far : card.querySelector(".card-id");
    const lines = [...title.getClientRects()].filter((line) => line.width > 0);
    const box = card.getBoundingClientRect();
    const zoom = new DOMMatrix(getComputedStyle(document.querySelector(".react-flow__viewport")).transform).a;
    return {
        text: title.dataset.title ?? title.textContent,
        height: parseFloat(getComputedStyle(title).fontSize) * zoom,
        inside: lines.every((line) => line.left >= box.left - 1 && line.right <= box.right + 1
                                      && line.top >= box.top - 1 && line.bottom <= box.bottom + 1),
    };
})"""
OVERLAPS = """() => {
    const cards = [...document.querySelectorAll(".react-flow__node-block .card")].map((card) =>
        [card.closest(".react-flow__node").dataset.id, card.getBoundingClientRect()]);
    return cards.flatMap(([one, a], at) => cards.slice(0, at).flatMap(([two, b]) =>
        a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom ? [`${one} and ${two}`] : []));
}"""
# Points of each wire that lie in a card which is at neither of its ends.
UNDER = """() => {
    const cards = [...document.querySelectorAll(".react-flow__node-block")].map((node) =>
        [node.dataset.id, node.querySelector(".card").getBoundingClientRect()]);
    return [...document.querySelectorAll("g.wire")].flatMap((wire) => {
        const line = wire.querySelector(".wire-line");
        const length = line.getTotalLength(), to = line.getScreenCTM();
        const ends = wire.dataset.wire.split(" to ").map((end) => end.slice(0, end.lastIndexOf(":")));
        for (let at = 0; at <= length; at += 4) {
            const { x, y } = line.getPointAtLength(at).matrixTransform(to);
            const hit = cards.find(([id, box]) => !ends.includes(id) && x > box.left && x < box.right && y > box.top
                                                  && y < box.bottom);
            if (hit) return [`${wire.dataset.wire} under ${hit[0]} at ${x}, ${y}`];
        }
        return [];
    });
}"""


def _example(desk: Desk, name: str) -> Desk:
    for path in (ROOT / "examples" / "pages").glob("*.*"):
        shutil.copyfile(path, desk.server.folder / path.name)
    return desk.open(open=f"{name}.page.json").skip_tour()


@pytest.mark.parametrize("name", ["classifier", "batches", "recommender"])
def test_a_fitted_page_can_be_read(desks: Desks, name: str) -> None:
    desk = _example(desks(viewport={"width": 1920, "height": 1080}, reduced_motion="reduce"), name)
    desk.run()
    desk.tool("Fit").click()
    titles = desk.page.evaluate(TITLES)
    assert len(titles) > 8
    assert [title for title in titles if title["height"] < LEAST or not title["inside"]] == []
    assert desk.page.evaluate(OVERLAPS) == []


def test_titles_from_afar_and_numbers_near(desks: Desks) -> None:
    desk = _example(desks(reduced_motion="reduce"), "recommender")
    desk.run()
    desk.tool("Fit").click()
    title = desk.block("films").locator(".far-title")
    expect(title).to_be_visible()
    desk.page.get_by_role("tab", name="On this page").click()
    desk.page.get_by_role("button", name=re.compile("^Go to films ")).click()
    expect(title).not_to_be_visible()
    expect(desk.result("films", "ref").get_by_role("cell").first).to_be_visible()


def test_cards_collapse_and_keep_their_wires(desks: Desks) -> None:
    page = Page("cards")
    page.add("Const", "a", value=[1.0, 2.0], dtype="float32", at=(40, 60))
    page.add("Square", "b", x="a", at=(380, 60))
    desk = desks().show(page).skip_tour()
    desk.run()
    high = desk.block("b").bounding_box()
    desk.page.get_by_role("button", name="Collapse the card of b").click()
    expect(desk.result("b", "y")).to_have_count(0)
    low = desk.block("b").bounding_box()
    assert high is not None and low is not None and low["height"] < 50 < high["height"]
    expect(desk.page.locator('[data-wire="a:output to b:x"]')).to_have_count(1)
    pin = desk.input("b", "x").bounding_box()
    assert pin is not None and abs(pin["y"] + pin["height"] / 2 - low["y"] - low["height"] / 2) < 3
    desk.page.reload()
    desk.ready()
    expect(desk.page.get_by_role("button", name="Expand the card of b")).to_be_visible()
    desk.act("b", "Expand the card")
    expect(desk.result("b", "y")).to_be_visible()


def test_wires_lead_around_cards(desks: Desks) -> None:
    page = Page("wires")
    page.add("Const", "from", value=[1.0], dtype="float32", at=(0, 60))
    page.add("Const", "between", value=[2.0], dtype="float32", at=(340, 60))
    page.add("Square", "to", x="from", at=(680, 60))
    page.add("Neg", "back", x="to", at=(0, 400))  # against the direction of reading
    desk = desks(viewport={"width": 1600, "height": 900}).show(page).skip_tour()
    expect(desk.page.locator("g.wire")).to_have_count(2)
    assert desk.page.evaluate(UNDER) == []
    desk.drag(desk.block("between").get_by_text("between", exact=True), 640, 700)
    desk.drag(desk.block("between").get_by_text("between", exact=True), 700, 180)
    assert desk.page.evaluate(UNDER) == []


def test_no_wire_of_the_examples_is_under_a_card(desks: Desks) -> None:
    desk = _example(desks(viewport={"width": 1920, "height": 1080}, reduced_motion="reduce"), "recommender")
    desk.run()
    assert desk.page.evaluate(UNDER) == []


def test_popovers_have_the_size_of_the_screen(desks: Desks) -> None:
    page = Page("popovers")
    page.add("Const", "a", value=[[1.0, 2.0], [3.0, 4.0]], dtype="float32", at=(40, 60))
    desk = desks(reduced_motion="reduce").show(page).skip_tour()
    sizes = []
    for zoom in (0, -4):
        for _ in range(-zoom):
            desk.canvas.click(position={"x": 20, "y": 300})
            desk.page.keyboard.press("-")
        desk.page.get_by_role("button", name="Edit value of a as a table").click()
        box = desk.page.get_by_role("dialog", name="Table of value of a").bounding_box()
        assert box is not None
        sizes.append(box["width"])
        desk.page.keyboard.press("Escape")
    assert abs(sizes[0] - sizes[1]) < 0.12 * sizes[0], sizes


def test_the_inspector_edits_first_and_explains_below(desks: Desks) -> None:
    page = Page("inspected")
    page.add("Const", "grad", value=[[1.0]], dtype="float32", at=(40, 60))
    page.add("SparseSegmentSumGrad", "rows", grad="grad", indices=[0], segment_ids=[0], output_dim0=2, at=(380, 60))
    desk = desks().show(page).skip_tour()
    desk.block("rows").click(position={"x": 60, "y": 12})
    inspector = desk.page.get_by_role("complementary", name="Inspector")
    field = inspector.get_by_role("textbox", name="Inspected indices")
    box, below = field.bounding_box(), inspector.get_by_role("heading", name="SparseSegmentSumGrad").bounding_box()
    assert box is not None and below is not None and box["y"] < below["y"]
    field.fill("[1]")
    field.press("Enter")
    expect(desk.field("rows", "indices")).to_have_value("[1]")


def test_panels_give_way_on_a_small_laptop(desks: Desks) -> None:
    widths = {}
    for width, height in ((1280, 720), (1920, 1080)):
        desk = desks(viewport={"width": width, "height": height}).open()
        box = desk.page.get_by_role("complementary", name="Inspector").bounding_box()
        canvas = desk.canvas.bounding_box()
        assert box is not None and canvas is not None
        widths[width] = box["width"]
        assert canvas["width"] > 0.62 * width
    assert widths[1280] < widths[1920]


def test_run_is_at_the_thumb_of_a_phone(desks: Desks) -> None:
    desk = desks(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    desk.open(open=_copied(desk))
    for name in ("Run", "Loop", "Stop"):
        expect(desk.tool(name)).to_be_in_viewport(ratio=1)
        box = desk.tool(name).bounding_box()
        assert box is not None and box["height"] >= 44 and box["y"] > 760
    desk.tool("Run").tap()
    expect(desk.status).to_contain_text("Run finished")
    desk.tool("Inspector panel").scroll_into_view_if_needed()
    desk.tool("Inspector panel").tap()
    expect(desk.page.get_by_role("complementary", name="Inspector")).to_be_visible()
    assert desk.page.evaluate("() => document.documentElement.scrollWidth") <= 390


def _copied(desk: Desk) -> str:
    shutil.copyfile(ROOT / "examples" / "pages" / "recommender.page.json", desk.server.folder / "phone.page.json")
    return "phone.page.json"
