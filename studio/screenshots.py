"""Takes the pictures in docs/studio.md of the real studio, in Chromium: ``python studio/screenshots.py``.

Needs what the browser tests need: the built page, Playwright, Chromium.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "docs"))

from pictures import failing, gradients  # noqa: E402

from studio.browser import CHROMIUM, OPTIONS, Desk, Server, expect  # noqa: E402

IMAGES = ROOT / "docs" / "images" / "studio"
SIZE = {"width": 1280, "height": 800}


def main() -> None:
    """Write all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name, "pages")
        folder.mkdir()
        shutil.copyfile(ROOT / "examples" / "pages" / "tour.page.json", folder / "tour.page.json")
        failing().save(folder / "failing.page.json")
        gradients().save(folder / "gradients.page.json")
        server = Server(folder).start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        try:
            for scheme, page, picture in [
                ("light", None, "empty"),
                ("light", "tour", "tour"),
                ("light", "failing", "error"),
                ("dark", "gradients", "dark"),
            ]:
                context = browser.new_context(
                    viewport=SIZE, color_scheme=scheme, reduced_motion="reduce", device_scale_factor=1.5
                )
                desk = Desk(context.new_page(), server)
                _take(desk, page, picture)
                assert not desk.troubles(), desk.troubles()
                context.close()
        finally:
            browser.close()
            server.end()


def _take(desk: Desk, page: str | None, picture: str) -> None:
    desk.open(**({"open": f"{page}.page.json"} if page else {}))
    if page:
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
    elif picture == "dark":
        desk.tool("Palette panel").click()
        desk.tool("Inspector panel").click()
        desk.tool("Fit").click()
        _pan(desk, 0, -30)
    desk.page.wait_for_function("() => document.getAnimations().length === 0")
    path = IMAGES / f"{picture}.png"
    desk.page.screenshot(path=path)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} kB")


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
