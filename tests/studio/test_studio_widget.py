"""The widget without a browser: what it says and hears, changes from both sides, and threads that end."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from optional import framework
from rowgrad.blocks import Page
from studio.browser import ROOT

WAIT = 60.0  # seconds


class View:
    """What a view of a widget does in the browser: it says messages, and keeps what it hears."""

    def __init__(self, widget: Any, name: str = "view") -> None:
        self.widget, self.name, self.number = widget, name, 0
        self.heard: list[dict[str, Any]] = []
        self._news = threading.Condition()
        before = widget.send
        widget.send = lambda content, buffers=None: (self._hear(content, buffers), before(content, buffers))

    def _hear(self, content: dict[str, Any], buffers: Any) -> None:
        if content["view"] == self.name:
            with self._news:
                self.heard.append({**content, "buffers": buffers})
                self._news.notify_all()

    def say(self, do: str, **more: Any) -> None:
        self.widget._handle_custom_msg({"view": self.name, "do": do, **more}, [])

    def hear(self, found: Callable[[dict[str, Any]], Any]) -> Any:
        """The first thing that was told for which `found` gives something."""
        with self._news:
            assert self._news.wait_for(lambda: any(map(found, self.heard)), WAIT), self.heard
            return next(filter(None, map(found, self.heard)))

    def command(self, do: str, **given: Any) -> dict[str, Any]:
        self.number += 1
        self.say("text", text=json.dumps({"n": self.number, "do": do, **given}))
        return dict(self.hear(lambda told: _answer(told, self.number)))

    def fetch(self, path: str) -> tuple[int, bytes]:
        self.number += 1
        self.say("fetch", n=self.number, path=path, method="GET", body="")
        told = self.hear(lambda told: told if told["do"] == "fetched" and told["n"] == self.number else None)
        return told["status"], told["buffers"][0]


def _answer(told: dict[str, Any], n: int) -> dict[str, Any] | None:
    message = json.loads(told.get("text", "{}"))
    return message if message.get("n") == n else None


def _event(told: dict[str, Any], name: str) -> dict[str, Any] | None:
    message = json.loads(told.get("text", "{}"))
    return message if message.get("event") == name else None


def studio_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "studio" in thread.name]


@pytest.fixture
def widgets(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Makes widgets in an empty folder; when they are closed, no thread is left."""
    framework("anywidget")
    from rowgrad_studio import PageWidget

    monkeypatch.chdir(tmp_path)
    before = studio_threads()
    made: list[Any] = []

    def make(*args: Any, **options: Any) -> Any:
        made.append(PageWidget(*args, **options))
        return made[-1]

    yield make
    for widget in made:
        widget.close()
        widget.close()  # twice is once
    for thread in studio_threads():
        if thread not in before:
            thread.join(WAIT)
            assert not thread.is_alive(), thread
    assert not list(tmp_path.iterdir())  # nothing was written


def small() -> Page:
    page = Page("small")
    page.add("Variable", "w", initial_value=[1.0, 2.0])
    page.add("Square", "squares", x="w")
    page.add("ReduceSum", "loss", input="squares", axis=[0])
    return page


def test_what_is_drawn_is_on_the_page_and_what_changes_there_is_told(widgets: Callable[..., Any]) -> None:
    page = small()
    view = View(widgets(page))
    view.say("open")
    assert view.command("change", block="loss", set={"keep_dims": True})["ok"] == {}
    assert page["loss"].attributes["keep_dims"] is True
    assert view.command("run")["ok"] == {}
    assert view.widget.results["loss"].output.tolist() == [5.0]
    view.heard.clear()
    page.change("w", initial_value=[3.0, 4.0])
    told = view.hear(lambda told: _event(told, "page"))
    assert told["undo"] == "change in Python"
    assert list(told["blocks"]) == ["w"]
    # The change and the gesture before it are two steps of undo, also where nobody was told of the change.
    page.rename("w", "weights")
    assert view.command("undo")["ok"] == {"label": "change in Python"}
    assert "w" in page
    assert view.command("undo")["ok"] == {"label": "change in Python"}
    assert view.command("undo")["ok"]["label"].startswith("change keep_dims")
    assert page == small()


def test_requests_are_answered_as_by_the_server(widgets: Callable[..., Any]) -> None:
    view = View(widgets(small()))
    status, body = view.fetch("/api/catalogue")
    assert status == 200 and json.loads(body)["operators"]
    status, body = view.fetch(f"/api/documents/{view.widget.document}/export?as=page.json")
    assert status == 200 and Page.from_json(body.decode()) == view.widget.page
    status, body = view.fetch("/api/documents/unknown/export?as=py")
    assert status == 404 and json.loads(body)["error"]["code"] == "unknown-document"


def test_widgets_of_one_page_share_it_and_a_run_ends_with_the_last(widgets: Callable[..., Any]) -> None:
    page = small()
    page.add_training("loss", optimizer="SGD", lr=1e-9)
    first, second = View(widgets(page), "first"), View(widgets(page), "second")
    assert first.widget.document == second.widget.document != widgets(small()).document
    for view in (first, second):
        view.say("open")
    first.say("text", text=json.dumps({"n": 1, "do": "loop", "steps": 10**6}))
    second.hear(lambda told: (_event(told, "progress") or {}).get("running"))
    first.widget.close()
    second.heard.clear()
    second.hear(lambda told: (_event(told, "progress") or {}).get("running"))  # it goes on for the other
    second.widget.close()


def test_what_is_no_message_is_ignored(widgets: Callable[..., Any]) -> None:
    view = View(widgets(small()))
    for message in ({}, {"view": 1}, {"view": "view", "do": "text", "text": "x"}, {"view": "view", "do": "close"}):
        view.widget._handle_custom_msg(message, [])
    view.say("ping")
    view.hear(lambda told: told["do"] == "pong")
    view.say("open")
    view.say("text", text="no JSON")
    assert view.hear(lambda told: _answer(told, -1))["error"]["code"] == "bad-json"


def test_a_page_may_be_new_or_a_file(widgets: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("pages") / "small.page.json"
    small().save(place)
    assert widgets(place).page == widgets(str(place)).page == small()
    assert len(widgets().page) == 0
    assert widgets(height=10).height == 200


def test_the_guide_is_true(widgets: Callable[..., Any]) -> None:
    text = (ROOT / "docs" / "studio.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for code in re.findall(r"^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        exec(code, names)
    widget = names["widget"]
    view = View(widget)
    view.say("open")
    assert view.command("run")["ok"] == {}
    assert widget.page is names["page"]
    assert widget.results["sums"].output.tolist() == [[6.0, 8.0]]
    assert widget.session.variables["table"].shape == (3, 2)
    widget.close()


PROGRAM = """
import json, threading
from rowgrad.blocks import Page
from rowgrad_studio import PageWidget
page = Page()
page.add("Variable", "w", initial_value=[1.0])
page.add("ReduceSum", "loss", input="w", axis=[0])
page.add_training("loss", optimizer="SGD", lr=1e-9)
widget = PageWidget(page)
begun = threading.Event()
widget.send = lambda content, buffers=None: begun.set() if '"running":true' in content.get("text", "") else None
widget._handle_custom_msg({"view": "a", "do": "open"}, [])
widget._handle_custom_msg({"view": "a", "do": "text", "text": json.dumps({"n": 1, "do": "loop", "steps": 10**6})}, [])
assert begun.wait(60)
"""


def test_a_run_does_not_keep_a_program_from_ending(bundle: Path, tmp_path: Path) -> None:
    framework("anywidget")
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_anywidget_the_import_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['anywidget'] = None\nfrom rowgrad_studio import PageWidget"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "pip install 'rowgrad-studio[notebook]'" in done.stderr
