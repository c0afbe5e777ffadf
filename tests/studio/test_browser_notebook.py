"""The canvas in a cell of a real JupyterLab: drawn on there and read in Python, changed in Python and seen there."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from optional import framework
from studio.browser import LUMINANCE, SIZE, expect
from studio.notebooks import Lab, Notebook

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

MODEL = """
from rowgrad.blocks import Page, ProgressBar, Session
from rowgrad_studio import PageWidget

page = Page("pooled")
page.add("Variable", "table", initial_value=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], at=(0, 0))
page.add("SparseSegmentSum", "sums", data="table", indices=[0, 2], segment_ids=[0, 0], at=(330, 0))
widget = PageWidget(page)
widget
"""

DRAW = [
    MODEL,
    "print(page['sums'].inputs['indices'].value, 'Square' in page, widget.page is page)",
    "print(widget.results['Square'].y.tolist())",
    "page.change('sums', indices=[1, 1])",
    "other = Page.from_json(page.to_json()); print(other == widget.page, 'Square' in page)",
]

RUN = [
    MODEL,
    "page.add('ReduceSum', 'loss', input='sums', axis=[0, 1], at=(660, 0))\n"
    "page.add_training('loss', optimizer='SGD', lr=1e-9)\nPageWidget(page)",
    "import time\nsession = Session(page)\n"
    "session.loop(5, progress=lambda told, bar=ProgressBar('training'): (bar(told), time.sleep(0.01))).steps",
    "import threading\nfrom ipywidgets import Widget\nWidget.close_all()\n"
    "end = time.monotonic() + 20\n"
    "def left(): return [one.name for one in threading.enumerate() if 'studio' in one.name]\n"
    "while left() and time.monotonic() < end: time.sleep(0.05)\n"
    "print('threads left:', left())",
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab, for the tests of this file."""
    framework("jupyterlab")
    framework("anywidget")
    lab = Lab(tmp_path_factory.mktemp("lab"), {"draw.ipynb": DRAW, "run.ipynb": RUN, "restart.ipynb": [MODEL]})
    yield lab
    lab.end()


@pytest.fixture
def notebooks(chromium: "Browser", lab: Lab, bundle: Path) -> Iterator[Callable[[str], Notebook]]:
    """Opens notebooks; what went wrong in their cells fails the test."""
    context = chromium.new_context(viewport={**SIZE, "height": 900}, reduced_motion="reduce")
    opened: list[Notebook] = []

    def make(name: str) -> Notebook:
        opened.append(Notebook(context.new_page(), lab, name))
        return opened[-1]

    yield make
    errors = [error for notebook in opened for error in notebook.errors]
    context.close()
    assert not errors


def test_a_page_is_edited_in_the_cell_and_in_python(notebooks: Callable[[str], Notebook]) -> None:
    notebook = notebooks("draw.ipynb")
    notebook.run(0)
    cell = notebook.show(0)
    # Dark where JupyterLab is.
    assert cell.problems.evaluate(LUMINANCE) > 0.6
    notebook.window.evaluate("() => { document.body.dataset.jpThemeLight = 'false'; }")
    assert cell.problems.evaluate(LUMINANCE) < 0.4
    # Edited in the cell …
    cell.type("sums", "indices", "[0, 1]")
    cell.add("Square")
    expect(cell.block("Square")).to_be_visible()
    cell.tool("Fit").click()
    cell.look()
    cell.wire(cell.output("sums"), cell.input("Square", "x"))
    expect(cell.status).to_contain_text("Wired")
    cell.run()
    expect(cell.result("Square", "y").get_by_role("cell")).to_have_text(["16", "36"])
    # … and read in Python …
    notebook.run(1)
    expect(notebook.output(1)).to_have_text("[0, 1] True True")
    notebook.run(2)
    expect(notebook.output(2)).to_have_text("[[16.0, 36.0]]")
    # … changed in Python, and seen in the cell …
    notebook.run(3)
    expect(cell.field("sums", "indices")).to_have_value("[1, 1]")
    cell.run()
    expect(cell.result("Square", "y").get_by_role("cell")).to_have_text(["36", "64"])
    # … where all of it can be undone, step by step.
    cell.tool("Undo").click()
    expect(cell.status).to_contain_text("Undone: change in Python")
    expect(cell.field("sums", "indices")).to_have_value("[0, 1]")
    for _ in range(2):
        cell.tool("Undo").click()
    expect(cell.block("Square")).to_have_count(0)
    notebook.run(4)
    expect(notebook.output(4)).to_have_text("True False")


def test_two_cells_show_one_page_that_runs_and_stops(notebooks: Callable[[str], Notebook]) -> None:
    notebook = notebooks("run.ipynb")
    notebook.run(0)
    notebook.run(1)
    first, second = notebook.show(0), notebook.show(1)
    expect(first.block("loss")).to_be_visible()
    second.tool("Loop").click()
    second.dialog("Loop").get_by_role("textbox", name="Steps").fill("1000000")
    second.dialog("Loop").get_by_role("button", name="Start the loop").click()
    expect(first.tool("Stop")).to_be_enabled()
    # Meanwhile Python works, with a progress bar that comes to its end.
    notebook.run(2)
    expect(notebook.output(2).locator("progress")).to_have_attribute("value", "5")
    first.look()
    first.tool("Stop").click()
    expect(second.tool("Stop")).to_be_disabled()
    expect(second.tool("Run")).to_be_enabled()
    # Nothing is left of it when the widgets are closed.
    notebook.run(3)
    expect(notebook.output(3)).to_have_text("threads left: []")


def test_a_cell_tells_that_its_kernel_was_restarted(notebooks: Callable[[str], Notebook]) -> None:
    notebook = notebooks("restart.ipynb")
    notebook.run(0)
    cell = notebook.show(0)
    notebook.restart()
    cell.tool("Run").click()
    expect(cell.page.get_by_role("region", name="Connection")).to_contain_text("run the cell again")
    notebook.run(0)
    expect(cell.page.get_by_role("region", name="Connection")).to_have_count(0)
    notebook.show(0).run()
