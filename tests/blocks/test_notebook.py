"""What notebooks show: pictures and tables, with everything escaped."""

import sys
import types
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowgrad
from rowgrad.blocks import Page, Progress, ProgressBar, Session, explain
from rowgrad.tables import Table

EVIL = '<script>alert("1")</script>&'


class Tags(HTMLParser):
    """Checks that tags are closed, and keeps their names and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def model() -> Page:
    page = Page(f"model {EVIL}")
    page.add("Const", "words", value={"value": [EVIL], "dtype": "string"})
    page.add("Variable", "w", initial_value=[[1.0, 2.0]])
    page.add("Square", "squares", x="w")
    page.add("ReduceSum", "loss", input="squares", axis=[0, 1])
    page.add("Placeholder", "x", dtype="float32", shape=[])
    return page


def test_a_page_is_its_picture() -> None:
    page = model()
    picture = page._repr_svg_()
    assert picture is not None
    assert picture.startswith("<svg")
    assert "<script>" not in picture
    for number in range(300):
        page.add("Const", f"c{number}", value=1.0)
    assert page._repr_svg_() is None


def test_sessions_results_and_runs_are_tables() -> None:
    page = model()
    page.add_training("loss", optimizer="SGD", lr=0.1)
    session = Session(page)
    session.loop(3, feeds={"x": 1.0}, record=["loss:output", "w:ref"], name=EVIL)
    results = session.results()
    history = session.loop(1, record=["loss:output"])
    shown = [session, results, results["words"], results["loss"], session.runs[EVIL], history,
             explain(session, "loss"), explain(session, "squares", (0, 1))]  # fmt: skip
    for thing in shown:
        found = Tags(thing._repr_html_())  # type: ignore[attr-defined]
        assert "script" not in found.names
    assert EVIL in Tags(session._repr_html_()).text
    assert EVIL in Tags(results["words"]._repr_html_()).text
    assert "variable" in Tags(session._repr_html_()).text
    failed = Session(model()).run()
    assert "nothing is fed" in Tags(failed._repr_html_()).text
    assert "nothing is fed" in Tags(failed["x"]._repr_html_()).text


def test_sparse_tensors_and_tables(tmp_path: Path) -> None:
    found = Tags(rowgrad.SparseTensor([[0, 1], [2, 0]], np.array([EVIL, "b"], object), [3, 2])._repr_html_())
    assert "[0, 1]" in found.text
    assert EVIL in found.text
    assert "script" not in found.names
    assert "…" in Tags(rowgrad.SparseTensor([[i] for i in range(50)], np.ones(50), [50])._repr_html_()).text
    with Table.create(tmp_path / "t.table", 100, 3) as table:
        shown = Tags(table._repr_html_())
        assert "Table(100 × 3 float32, step 0), its first rows:  float32 [10, 3]" in shown.text
    assert "closed" in Tags(table._repr_html_()).text


@pytest.mark.parametrize("shape", [(), (0,), (3,), (30, 40), (2, 3, 4), (0, 3), (3, 0)])
def test_arrays_of_every_shape(shape: tuple[int, ...]) -> None:
    page = Page()
    page.add("Const", "c", value=np.full(shape, 1.5, np.float32))
    found = Tags(Session(page).run()["c"]._repr_html_())
    assert f"c:output  float32 [{', '.join(map(str, shape))}]" in found.text
    assert len(found.text) < 2000


def test_progress_bars(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar(f"step {EVIL}")
    assert 'value="2" max="5"' in bar.html(Progress(2, 5, 0, 1, None))
    assert "<script>" not in bar.html(Progress(2, 5, 0, 1, None))
    assert 'max="1"' in bar.html(Progress(0, 0, 0, 0, None))
    bar(Progress(5, 5, 1, 1, None))
    assert capsys.readouterr() == ("", "")  # neither a notebook nor a terminal
    drawn: list[str] = []

    class Shown:
        def update(self, thing: str) -> None:
            drawn.append(thing)

    def display(thing: str, display_id: bool) -> Shown:
        drawn.append(thing)
        return Shown()

    shell = types.ModuleType("IPython")
    shell.get_ipython = lambda: types.SimpleNamespace(kernel=1)  # type: ignore[attr-defined]
    shown = types.ModuleType("IPython.display")
    shown.HTML, shown.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    page = Page()
    page.add("Const", value=1.0)
    Session(page).loop(3, progress=ProgressBar())
    assert "step 3 of 3" in drawn[-1]
