"""Takes the pictures in docs/studio.md of the real studio, in Chromium: ``python studio/screenshots.py [NAME …]``.

Needs what the browser tests need: the built page, Playwright, Chromium.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import Page as Window
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "docs"))

from pictures import failing, gradients  # noqa: E402

from rowgrad.blocks import Page  # noqa: E402
from studio.browser import CHROMIUM, OPTIONS, Desk, Server, drop, expect  # noqa: E402
from studio.notebooks import Lab, Notebook  # noqa: E402

IMAGES = ROOT / "docs" / "images" / "studio"
SIZE = {"width": 1280, "height": 800}
SIZES = {"fitted": {"width": 1920, "height": 1080}, "phone": {"width": 390, "height": 844}}
PICTURES = [  # the colours, the page, the picture
    ("light", None, "empty"),
    ("light", "tour", "tour"),
    ("light", "failing", "error"),
    ("dark", "gradients", "dark"),
    ("light", "tickets", "training"),
    ("light", None, "data"),
    ("light", "examples/classifier", "fitted"),
    ("light", "examples/recommender", "projection"),
    ("light", "examples/mean_grad_v2", "why"),
    ("light", None, "lesson"),
    ("light", "examples/recommender", "phone"),
]


def main() -> None:
    """Write all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name, "pages")
        folder.mkdir()
        shutil.copyfile(ROOT / "examples" / "pages" / "tour.page.json", folder / "tour.page.json")
        failing().save(folder / "failing.page.json")
        gradients().save(folder / "gradients.page.json")
        classifier(folder).save(folder / "tickets.page.json")
        (folder / "examples").mkdir()
        for path in (ROOT / "examples" / "pages").glob("*.*"):
            shutil.copyfile(path, folder / "examples" / path.name)
        server = Server(folder).start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        try:
            for scheme, page, picture in PICTURES:
                if sys.argv[1:] and picture not in sys.argv[1:]:
                    continue
                size = SIZES.get(picture, SIZE)
                context = browser.new_context(
                    viewport=size,
                    color_scheme=scheme,
                    reduced_motion="reduce",
                    device_scale_factor=1 if size["width"] > 1500 else 1.5,
                    **({"is_mobile": True, "has_touch": True} if picture == "phone" else {}),
                )
                desk = Desk(context.new_page(), server)
                _take(desk, page, picture)
                assert not desk.troubles(), desk.troubles()
                context.close()
            if not sys.argv[1:] or "notebook" in sys.argv[1:]:
                context = browser.new_context(viewport=SIZE, device_scale_factor=1.5)
                _notebook(context.new_page(), Path(name, "lab"))
        finally:
            browser.close()
            server.end()


def classifier(folder: Path) -> Page:
    """A classifier of tickets, from a CSV in batches; its look-up is a group."""
    random = np.random.default_rng(3)
    (folder / "tickets.csv").write_bytes(tickets(random))
    page = Page("tickets", folder=folder)
    page.add("Batches", "data", path="tickets.csv", columns=["words", "label"], ragged=["words"], batch_size=32, seed=1,
             holdout=0.2)  # fmt: skip
    page.add("StatelessRandomNormal", "random", shape=[30, 8], seed=[1, 2])
    page.add("Variable", "table", initial_value="random")
    page.add("SparseSegmentMean", "pooled", data="table", indices="data:words", segment_ids="data:words_segments")
    page.add("StatelessRandomNormal", "start", shape=[8, 3], seed=[3, 4])
    page.add("Variable", "weights", initial_value="start")
    page.add("MatMul", "scores", a="pooled", b="weights")
    page.add("SparseSoftmaxCrossEntropyWithLogits", "entropy", features="scores", labels="data:label")
    page.add("ReduceMean", "loss", input="entropy:loss", axis=0)
    places = {"random": (60, 100), "table": (400, 100), "pooled": (740, 100), "data": (400, 480), "start": (740, 480),
              "weights": (1080, 480), "scores": (1420, 160), "entropy": (1760, 160), "loss": (2100, 160)}  # fmt: skip
    for id, (x, y) in places.items():
        page.move(id, x, y)
    page.group(["random", "table", "pooled"], "look-up")
    page.move(page.add_training("loss", None, "Adagrad", lr=0.5).name, 1760, 520)
    return page


def tickets(random: np.random.Generator) -> bytes:
    """Tickets of three kinds, each with words of its own."""
    lines = ["words,label"]
    for _ in range(240):
        kind = int(random.integers(3))
        lines.append(f"{' '.join(map(str, random.integers(kind * 10, kind * 10 + 10, random.integers(2, 6))))},{kind}")
    return "\n".join(lines).encode()


def _take(desk: Desk, page: str | None, picture: str) -> None:
    desk.open(**({"open": f"{page}.page.json"} if page else {}))
    if page:
        if picture != "phone":  # where panels are closed at first
            desk.page.get_by_role("button", name="Skip the tour").click()
        desk.run()
    if picture == "tour":
        _go(desk, "SparseSegmentMeanGrad")
        desk.page.get_by_role("tab", name="Operators").click()
        _pan(desk, 60, 0)
        desk.result("SparseSegmentMeanGrad").get_by_role("row").nth(1).hover()  # and what it came from lights up
    elif picture == "error":
        desk.problems.get_by_role("button", name="wrong:indices").click()
        expect(desk.input("wrong", "indices")).to_be_focused()
    elif picture == "training":
        desk.tool("Palette panel").click()
        desk.tool("Inspector panel").click()
        _loop(desk, 200, "first try")
        expect(desk.status).to_contain_text("On the examples held out")
        desk.page.get_by_role("button", name="Sweep", exact=True).click()
        desk.dialog("Sweep").get_by_role("textbox", name="Steps").fill("200")
        desk.dialog("Sweep").get_by_role("button", name="Start the sweep").click()
        expect(desk.status).to_contain_text("Swept")
        desk.tool("Fit").click()
    elif picture in ("fitted", "phone"):
        desk.tool("Fit").click()
    elif picture == "projection":
        desk.tool("Train").click()
        desk.dialog("Train").get_by_role("button", name="Add training").click()
        _loop(desk, 300)
        expect(desk.status).to_contain_text("finished")
        desk.page.get_by_role("button", name="Enlarge ref of films").click()
        desk.page.get_by_role("tab", name="Projection").click()
        desk.page.get_by_role("img", name="Projection").locator("circle").nth(4).hover()
    elif picture == "why":
        desk.result("SparseSegmentMeanGradV2").get_by_role("row").nth(0).get_by_role("cell").nth(1).click()
        expect(desk.page.get_by_role("region", name="Why ")).to_be_visible()
    elif picture == "lesson":
        _lesson(desk)
    elif picture == "data":
        desk.page.get_by_role("button", name="Skip the tour").click()
        drop(desk, "tickets.csv", (desk.server.folder / "tickets.csv").read_bytes())
        expect(desk.page.get_by_role("checkbox", name="Column words")).to_be_visible()
    elif picture == "dark":
        desk.tool("Palette panel").click()
        desk.tool("Inspector panel").click()
        desk.tool("Fit").click()
        _pan(desk, 0, -30)
    desk.page.wait_for_function("() => document.getAnimations().length === 0")
    desk.page.wait_for_load_state("networkidle")
    path = IMAGES / f"{picture}.png"
    desk.page.screenshot(path=path)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} kB")


def _notebook(window: Window, place: Path) -> None:
    """The example of the guide in JupyterLab, after a run."""
    code = re.findall(r"^```py\n(.*?)^```", (ROOT / "docs" / "studio.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    place.mkdir()
    lab = Lab(place, {"pooled.ipynb": [code.strip()]})
    try:
        notebook = Notebook(window, lab, "pooled.ipynb")
        window.keyboard.press("Control+b")  # without its list of files
        notebook.run(0)
        cell = notebook.show(0)
        cell.run()
        cell.tool("Fit").click()
        cell.look()
        window.screenshot(path=IMAGES / "notebook.png")
        assert not notebook.errors, notebook.errors
    finally:
        lab.end()


def _loop(desk: Desk, steps: int, name: str = "") -> None:
    desk.tool("Loop").click()
    desk.dialog("Loop").get_by_role("textbox", name="Name of the run").fill(name)
    desk.dialog("Loop").get_by_role("textbox", name="Steps").fill(str(steps))
    desk.dialog("Loop").get_by_role("button", name="Start the loop").click()


def _lesson(desk: Desk) -> None:
    """The lesson on pooling, as far as its third step."""
    desk.page.get_by_role("button", name="Skip the tour").click()
    desk.tool("Examples").click()
    desk.dialog("Examples").get_by_role("button", name="Pooling and its gradient").click()
    desk.add("SparseSegmentMean")
    desk.page.get_by_role("button", name="Next step").click()
    for pin, text in {
        "data": "[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]",
        "indices": "[0, 2, 2]",
        "segment_ids": "[0, 0, 1]",
    }.items():
        desk.type("SparseSegmentMean", pin, text)
    desk.run()
    desk.page.get_by_role("button", name="Next step").click()


def _pan(desk: Desk, x: float, y: float) -> None:
    """Move the page by its empty space."""
    desk.page.mouse.move(860, 300)
    desk.page.mouse.down()
    desk.page.mouse.move(860 + x, 300 + y, steps=5)
    desk.page.mouse.up()


def _go(desk: Desk, block: str) -> None:
    desk.page.get_by_role("tab", name="On this page").click()
    desk.page.get_by_role("button", name=re.compile(f"^Go to {block} ")).click()
    expect(desk.block(block)).to_be_focused()


if __name__ == "__main__":
    main()
