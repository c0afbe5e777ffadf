"""Results in large: a table of a million rows, colours with zoom, histograms, plots, projections, and comparison."""

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from rowgrad.blocks import Page
from studio.browser import Desk, expect

Desks = Callable[..., Desk]
ROWS, COLUMNS = 1_000_000, 64


@pytest.fixture(scope="module")
def million(studio) -> Iterator[np.ndarray]:
    """An array of a million rows, as a file of the studio's folder, with a few elements that are not finite."""
    array = np.random.default_rng(1).standard_normal((ROWS, COLUMNS), np.float32)
    array[5, 3], array[7, 1], array[8, 1] = np.nan, np.inf, -np.inf
    array[123_456, 2] = 100.0
    np.save(studio.folder / "million.npy", array)
    yield array
    (studio.folder / "million.npy").unlink()


def _opened(desks: Desks, page: Page, block: str, pin: str = "output") -> Desk:
    desk = desks()
    desk.show(page).skip_tour()
    desk.run()
    desk.page.get_by_role("button", name=f"Enlarge {pin} of {block}").click()
    return desk


def _look(desk: Desk, name: str) -> None:
    desk.page.get_by_role("tab", name=name, exact=True).click()


def _large() -> Page:
    page = Page("million")
    page.add("File", "large", path="million.npy", at=(0, 0))
    return page


def test_a_million_rows_scroll_sort_and_are_searched(desks: Desks, million: np.ndarray) -> None:
    desk = _opened(desks, _large(), "large")
    _look(desk, "Table")
    table = desk.page.get_by_role("table", name="All rows of output of large")
    assert table.get_attribute("aria-rowcount") == str(ROWS + 1)

    def shown(row: int) -> list[str]:
        line = table.get_by_role("row").filter(has=desk.page.get_by_role("rowheader", name=str(row), exact=True))
        expect(line).to_have_count(1)
        return line.get_by_role("cell").all_inner_texts()

    def expected(row: int) -> list[str]:
        return [f"{float(value):.6g}" for value in million[row]]

    assert shown(0) == expected(0)
    table.evaluate("(element) => element.scrollTo({ top: element.scrollHeight })")
    expect(table.get_by_role("rowheader", name="999999", exact=True)).to_be_visible()
    assert shown(ROWS - 1) == expected(ROWS - 1)
    assert table.get_by_role("row").count() < 60  # of a million

    # While rows are fetched and sorted, the page goes on drawing.
    desk.page.evaluate("() => { window.longest = 0; let last = performance.now(); const each = (now) => {"
                       " longest = Math.max(longest, now - last); last = now; requestAnimationFrame(each); };"
                       " requestAnimationFrame(each); }")  # fmt: skip
    for share in (0.1, 0.8, 0.3, 0.5):
        table.evaluate("(element, share) => element.scrollTo({ top: element.scrollHeight * share })", share)
    middle = int(table.get_by_role("rowheader").nth(8).inner_text().replace("…", "0") or 0)
    sort = desk.page.get_by_role("button", name="Sort by column 2", exact=True)
    sort.click()
    smallest = int(np.argmin(million[:, 2]))
    expect(table.get_by_role("rowheader").nth(0)).to_have_text(str(smallest))
    sort.click()  # largest first
    expect(table.get_by_role("rowheader").nth(0)).to_have_text("123456")
    assert shown(123_456)[2] == "100"
    expect(desk.page.get_by_role("columnheader", name="Sort by column 2", exact=True)).to_have_attribute(
        "aria-sort", "descending"
    )
    print(f"\nthe longest frame took {desk.page.evaluate('() => longest'):.0f} ms; row {middle} was in the middle")

    search = desk.page.get_by_role("searchbox", name="Search rows")
    search.fill("654321")
    search.press("Enter")
    expect(desk.status).to_contain_text("Row 654321, at position ")
    assert shown(654_321) == expected(654_321)
    sort.click()  # as they are
    search.fill("=100")
    search.press("Enter")
    expect(desk.status).to_contain_text("Row 123456.")
    assert shown(123_456) == expected(123_456)
    search.fill("=nan")
    search.press("Enter")
    expect(desk.status).to_contain_text("Row 5.")


def test_colours_are_zoomed_down_to_single_values(desks: Desks, million: np.ndarray) -> None:
    desk = _opened(desks, _large(), "large")
    heat = desk.page.get_by_role("dialog").get_by_role("img", name="Heat-map of output of large")
    expect(heat).to_have_attribute("aria-label", re.compile("rows 0 to 999999, columns 0 to 63"))
    values = desk.page.get_by_role("list", name="Values")
    box = heat.bounding_box()
    assert box is not None
    for _ in range(40):
        if values.count():
            break
        desk.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        desk.page.mouse.wheel(0, -100)
        desk.page.wait_for_timeout(20)
    expect(values).to_be_visible()
    expect(desk.page.get_by_text("single values")).to_be_visible()
    words = (heat.get_attribute("aria-label") or "").partition("rows ")[2]
    top, bottom, left, right = map(int, re.findall(r"\d+", words)[:4])
    found = [float(text) for text in values.get_by_role("listitem").all_inner_texts()]
    wanted = million[top : bottom + 1, left : right + 1].reshape(-1)
    assert 0 < len(wanted) <= 1000
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    desk.page.get_by_role("button", name="Whole", exact=True).click()
    expect(heat).to_have_attribute("aria-label", re.compile("rows 0 to 999999"))
    heat.focus()
    desk.page.keyboard.press("+")
    expect(heat).not_to_have_attribute("aria-label", re.compile("rows 0 to 999999"))


def test_what_is_not_finite_is_counted(desks: Desks, million: np.ndarray) -> None:
    desk = _opened(desks, _large(), "large")
    _look(desk, "Histogram")
    histogram = desk.page.get_by_role("img", name="Histogram of output of large")
    expect(histogram).to_have_attribute(
        "aria-label", re.compile("64,000,000 elements; 1 NaN, 1 .infinity, 1 .infinity")
    )
    desk.page.get_by_role("spinbutton", name="Column").fill("3")
    expect(histogram).to_have_attribute("aria-label", re.compile("1,000,000 elements; 1 NaN; 0 zeros"))


def test_lines_bars_and_points(desks: Desks) -> None:
    page = Page("plots")
    page.add("Const", "values", value=np.arange(120.0).reshape(40, 3), dtype="float32", at=(0, 0))
    desk = _opened(desks, page, "values")
    _look(desk, "Plot")
    kind = desk.page.get_by_role("combobox", name="Kind of plot")
    for name, choice in (("Line", "line"), ("Bar", "bar"), ("Scatter", "scatter")):
        kind.select_option(choice)
        expect(desk.page.get_by_role("img", name=f"{name} plot of output of values")).to_be_visible()
    desk.page.get_by_role("spinbutton", name="Up").fill("2")
    plot = desk.page.get_by_role("img", name="Scatter plot of output of values: column 2 over column 0, 40 points")
    expect(plot).to_be_visible()
    assert plot.locator("circle").count() == 40


def test_an_embedding_is_projected_and_labelled(desks: Desks) -> None:
    page = Page("embedding")
    random = np.random.default_rng(2)
    centres = np.repeat([[4.0, 0, 0, 0], [-4.0, 0, 0, 0]], 10, axis=0)
    page.add("Const", "table", value=centres + 0.1 * random.normal(size=(20, 4)), dtype="float32", at=(0, 0))
    page.add("Const", "names", value=[f"film {n}" for n in range(20)], dtype="string", at=(340, 0))
    desk = _opened(desks, page, "table")
    _look(desk, "Projection")
    shown = desk.page.get_by_role("img", name="Projection of output of table: 20 rows")
    expect(desk.page.get_by_role("combobox", name="Labels")).to_have_value("names:output")
    points = shown.locator("circle").evaluate_all("(all) => all.map((one) => [one.dataset.row, one.cx.baseVal.value])")
    across = {int(row): place for row, place in points}
    first, second = [across[n] for n in range(10)], [across[n] for n in range(10, 20)]
    assert max(first) < min(second) or max(second) < min(first)  # two kinds, apart
    shown.locator('circle[data-row="7"]').hover()
    expect(desk.page.get_by_text("film 7 (row 7)")).to_be_visible()
    desk.page.get_by_role("searchbox", name="Find a label").fill("film 13")
    expect(shown.locator("circle.wanted")).to_have_count(1)
    shown.focus()
    desk.page.keyboard.press("ArrowRight")
    expect(desk.status).to_contain_text("film ")


def test_two_runs_are_compared(desks: Desks) -> None:
    page = Page("compared")
    page.add("Const", "a", value=[[1.0, 2.0], [3.0, 4.0]], dtype="float32", at=(0, 0))
    page.add("Square", "b", x="a", at=(340, 0))
    desk = desks().show(page).skip_tour()
    desk.run()
    desk.type("a", "value", "[[1, 2], [3, 5]]")
    desk.run()
    desk.page.get_by_role("button", name="Enlarge y of b").click()
    desk.page.get_by_role("combobox", name="Compare with").select_option("the run before")
    expect(desk.page.get_by_text("Shown is the difference")).to_be_visible()
    cells = desk.page.get_by_role("table", name="All rows of y of b").get_by_role("cell")
    expect(cells).to_have_text(["0", "0", "0", "9"])
