"""Runs: overlaid, named and exported; a sweep in one click; pause, change, resume; a slider that re-runs the page."""

import csv
import re
from collections.abc import Callable

from rowgrad.blocks import Page, Session
from studio.browser import Desk, expect

Desks = Callable[..., Desk]


def _descent() -> Page:
    page = Page("descent")
    page.add("Variable", "w", initial_value=[8.0, 4.0], at=(40, 60))
    page.add("Square", "squared", x="w", at=(380, 60))
    page.add("ReduceSum", "loss", input="squared", axis=[0], at=(720, 60))
    page.move(page.add_training("loss", None, "GradientDescent", alpha=0.1).name, 1060, 60)
    return page


def _loop(desk: Desk, steps: int, name: str = "") -> None:
    desk.tool("Loop").click()
    dialog = desk.dialog("Loop")
    dialog.get_by_role("textbox", name="Name of the run").fill(name)
    dialog.get_by_role("textbox", name="Steps").fill(str(steps))
    dialog.get_by_role("button", name="Start the loop").click()


def _lines(desk: Desk) -> set[str]:
    lines = desk.page.locator("polyline.run-line:not(.raw)")
    return set(lines.evaluate_all("(all) => all.map((line) => line.dataset.run)"))


def test_five_runs_of_a_sweep_are_overlaid_named_and_exported(desks: Desks) -> None:
    desk = desks().show(_descent()).skip_tour()
    _loop(desk, 20, "mine")
    expect(desk.status).to_contain_text("Loop of 20 steps finished")
    desk.page.get_by_role("button", name="Sweep", exact=True).click()
    dialog = desk.dialog("Sweep")
    expect(dialog.get_by_role("combobox", name="Number to sweep")).to_contain_text("alpha of training")
    dialog.get_by_role("textbox", name="Values").fill("0.01, 0.03, 0.1, 0.2, 0.3")
    dialog.get_by_role("button", name="Start the sweep").click()
    expect(desk.status).to_contain_text("Swept training:alpha over 5 values")
    swept = {f"alpha = {rate}" for rate in ("0.01", "0.03", "0.1", "0.2", "0.3")}
    assert _lines(desk) == {"mine", *swept}

    name = desk.page.get_by_role("textbox", name="Name of run 3")
    name.fill("slow, but sure")
    name.press("Enter")
    expect(desk.status).to_contain_text("The run is now called slow, but sure.")
    swept = swept - {"alpha = 0.03"} | {"slow, but sure"}
    desk.page.get_by_role("checkbox", name="Show mine").uncheck()
    expect(desk.page.locator('polyline[data-run="mine"]')).to_have_count(0)
    assert _lines(desk) == swept

    with desk.page.expect_download() as download:
        desk.page.get_by_role("button", name="Export runs").click()
        desk.page.get_by_role("menuitem", name="Values as CSV").click()
    rows = list(csv.DictReader(download.value.path().read_text().splitlines()))
    assert {row["run"] for row in rows} == swept and len(rows) == 500
    values = [float(row["loss:output"]) for row in rows if row["run"] == "slow, but sure"]
    page = _descent()
    page.change("training", alpha=0.03)
    wanted = Session(page).loop(100, record=["loss:output"])["loss:output"]
    assert values == [float(value) for value in wanted]
    with desk.page.expect_download() as download:
        desk.page.get_by_role("button", name="Export runs").click()
        desk.page.get_by_role("menuitem", name="Chart as PNG").click()
    assert download.value.suggested_filename == "descent-runs.png"
    assert download.value.path().read_bytes().startswith(b"\x89PNG")

    desk.page.reload()  # runs belong to the server
    desk.ready()
    expect(desk.page.get_by_role("textbox", name="Name of run 3")).to_have_value("slow, but sure")
    desk.page.get_by_role("button", name="Clear", exact=True).click()
    expect(desk.page.get_by_role("figure", name="Recorded values")).to_have_count(0)


def test_the_chart_grows_smooths_and_has_a_logarithmic_scale(desks: Desks) -> None:
    desk = desks().show(_descent()).skip_tour()
    _loop(desk, 15)
    figure = desk.page.get_by_role("figure", name="Recorded values")
    expect(figure).to_contain_text("80 in step 1")
    grip = desk.page.get_by_role("separator", name="Height of the chart")
    before = figure.bounding_box()
    assert before is not None
    grip.focus()
    for _ in range(3):
        desk.page.keyboard.press("ArrowUp")
    expect(grip).not_to_have_attribute("aria-valuenow", "180")
    after = figure.bounding_box()
    assert after is not None and after["height"] > before["height"] + 40
    linear = desk.page.locator("polyline.run-line").first.get_attribute("points")
    log = desk.page.get_by_role("checkbox", name="Logarithmic scale")
    log.check()
    expect(desk.page.locator("polyline.run-line").first).not_to_have_attribute("points", linear or "")
    desk.page.get_by_role("slider", name="Smoothing").fill("0.9")
    expect(desk.page.locator("polyline.run-line.raw")).to_have_count(1)
    desk.page.get_by_role("button", name="Hide the chart").click()
    expect(figure).to_have_count(0)
    desk.page.get_by_role("button", name="1 run", exact=True).click()
    expect(figure).to_be_visible()


def test_pause_change_the_learning_rate_and_resume(desks: Desks) -> None:
    desk = desks().show(_descent()).skip_tour()
    desk.type("training", "alpha", "0.0001")
    _loop(desk, 20_000)
    desk.tool("Pause").click()
    expect(desk.status).to_contain_text(re.compile("Paused after step \\d+ of 20000"))
    expect(desk.tool("Resume")).to_be_visible()
    figure = desk.page.get_by_role("figure", name="Recorded values")
    expect(figure).to_contain_text("paused after step")
    found = re.search(r"paused after step (\d+) of", figure.inner_text())
    assert found is not None
    desk.type("training", "alpha", "0.0")
    desk.tool("Resume").click()
    expect(desk.page.locator(".chart-mark")).to_have_count(1)
    expect(desk.status).to_contain_text("finished", timeout=120_000)
    expect(figure).to_contain_text("in step 20000")
    expect(desk.page.locator(".chart-mark")).to_contain_text("change training")
    expect(desk.tool("Resume")).to_have_count(0)


def test_a_slider_re_runs_what_is_stale_while_it_moves(desks: Desks) -> None:
    page = Page("slid")
    page.add("Const", "a", value=[1.0, 2.0], dtype="float32", at=(40, 60))
    page.add("Mul", "scaled", x="a", y=3.0, at=(380, 60))
    page.add("Square", "squared", x="scaled", at=(720, 60))
    desk = desks().show(page).skip_tour()
    desk.run()
    desk.block("scaled").click(position={"x": 60, "y": 12})
    desk.page.get_by_role("button", name="Slider for y of scaled").click()
    slider = desk.page.get_by_role("slider", name="Slider of y of scaled")
    box = slider.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    desk.page.mouse.move(box["x"] + box["width"] / 2, middle)
    desk.page.mouse.down()
    seen = set()
    for share in (0.6, 0.75, 0.9, 1.0):
        desk.page.mouse.move(box["x"] + box["width"] * share, middle)
        expect(desk.result("squared", "y").get_by_role("cell").first).not_to_have_text("9")
        seen.add(desk.result("squared", "y").get_by_role("cell").first.inner_text())
        expect(desk.block("squared")).not_to_contain_text("stale")
    desk.page.mouse.up()
    expect(desk.result("squared", "y").get_by_role("cell").first).to_have_text("36")  # 6 squared
    assert desk.blocks()["scaled"]["inputs"]["y"] == 6.0
    desk.tool("Undo").click()  # the whole drag
    expect(desk.field("scaled", "y")).to_have_value("3.0")
    slider.focus()
    desk.page.keyboard.press("ArrowLeft")
    expect(desk.field("scaled", "y")).not_to_have_value("3.0")


def test_any_split_is_evaluated(desks: Desks) -> None:
    desk = desks()
    (desk.server.folder / "splits.csv").write_text("x\n" + "\n".join(map(str, range(1, 41))) + "\n")
    page = Page("splits", folder=desk.server.folder)
    page.add("Batches", "data", path="splits.csv", columns=["x"], batch_size=8, holdout=0.25,
             splits=["check=0.25"], at=(40, 60))  # fmt: skip
    page.add("Cast", "x", x="data:x", DstT="float32", at=(380, 60))
    page.add("ReduceMean", "mean", input="x", axis=0, at=(720, 60))
    desk.show(page).skip_tour()
    figures = {}
    for split, words in (
        ("test", "examples held out"),
        ("train", "examples for training"),
        ("check", "examples of check"),
    ):
        desk.tool("Loop").click()
        dialog = desk.dialog("Loop")
        dialog.get_by_role("combobox", name="Split").select_option(split)
        dialog.get_by_role("button", name="Evaluate now").click()
        expect(desk.status).to_contain_text(f"On the {words}: mean:output")
        figures[split] = float(re.search(r"mean:output ([\d.]+)", desk.status.inner_text())[1].rstrip("."))
    shares = {"test": 0.25, "train": 0.5, "check": 0.25}
    assert abs(sum(share * figures[split] for split, share in shares.items()) - 20.5) < 1e-3
