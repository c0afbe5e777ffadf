"""A real JupyterLab over a folder, and a notebook in it, as a user sees them in Chromium."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rowgrad
from optional import framework
from studio.browser import Desk, expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

TOKEN = "a-token-for-tests"
PATIENCE = 120.0  # seconds for JupyterLab to answer first


class Lab:
    """JupyterLab in a process of its own, with settings of its own."""

    def __init__(self, folder: Path, notebooks: dict[str, list[str]]) -> None:
        self.folder = folder
        work = folder / "work"
        work.mkdir()
        for name, cells in notebooks.items():
            (work / name).write_text(json.dumps(notebook(cells)))
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        places = [str(Path(found.__file__ or "").parents[1]) for found in (rowgrad, framework("rowgrad_studio"))]
        own = {name: str(folder / name.lower()) for name in
               ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
                "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR")}  # fmt: skip
        options = {"ServerApp.port": str(self.port), "ServerApp.port_retries": "0", "ServerApp.ip": "127.0.0.1",
                   "ServerApp.root_dir": str(work), "ServerApp.open_browser": "False", "ServerApp.allow_root": "True",
                   "IdentityProvider.token": TOKEN, "LabApp.news_url": "", "LabApp.expose_app_in_browser": "True",
                   "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate"}  # fmt: skip
        asked = Path(own["JUPYTERLAB_SETTINGS_DIR"], "@jupyterlab/apputils-extension/notification.jupyterlab-settings")
        asked.parent.mkdir(parents=True)
        asked.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
        self._log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())],
            env={**os.environ, **own, "PYTHONPATH": os.pathsep.join(places)},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(f"{self.origin}/api?token={TOKEN}", timeout=5).close()
                return
            except OSError:
                assert self.process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < end, (self.folder / "log").read_text()
                time.sleep(0.1)

    def end(self) -> None:
        """End it, and its kernels."""
        self.process.terminate()
        self.process.wait(30)
        self._log.close()

    def address(self, name: str) -> str:
        """Where a notebook is, with nothing else open."""
        return f"{self.origin}/lab/tree/{name}?reset&token={TOKEN}"


def notebook(cells: list[str]) -> dict[str, object]:
    """A notebook of code cells."""
    made = [{"cell_type": "code", "id": f"cell-{number}", "metadata": {}, "source": source, "outputs": [],
             "execution_count": None} for number, source in enumerate(cells)]  # fmt: skip
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": made}


class Cell(Desk):
    """The studio in the output of a cell, used as in a window of its own."""

    def __init__(self, window: "Page", frame: "Locator") -> None:
        self.frame = frame
        self.window = window
        self.page: Any = frame.content_frame  # found anew each time: a notebook may take a cell away and put it back

    def look(self) -> None:
        """Scroll the notebook to it."""
        self.frame.evaluate("frame => frame.scrollIntoView({ block: 'center' })")

    def drag(self, what: "Locator", x: float, y: float) -> None:
        """Drag as on a desk; the mouse is the window's."""
        with self._at(self.window):
            super().drag(what, x, y)

    def run(self) -> None:
        """Run the page, and wait for its end."""
        with self._at(self.frame.element_handle().content_frame()):
            super().run()

    @contextmanager
    def _at(self, other: Any) -> Iterator[None]:
        self.page, kept = other, self.page
        try:
            yield
        finally:
            self.page = kept


class Notebook:
    """A notebook that is open in JupyterLab."""

    def __init__(self, window: "Page", lab: Lab, name: str) -> None:
        self.window = window
        self.errors: list[str] = []  # of the studio's pages in cells, which have no address of their own
        window.on("console", lambda message: self.errors.append(message.text) if _is_ours(message) else None)
        window.on("pageerror", lambda error: self.errors.append(str(error)))
        window.goto(lab.address(name))
        self.idle()

    def idle(self) -> None:
        """Wait until the kernel is ready for the next cell."""
        self.window.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=PATIENCE * 1000)

    def restart(self) -> None:
        """Restart the kernel, by the menu."""
        self.window.get_by_role("menuitem", name="Kernel", exact=True).click()
        self.window.get_by_role("menuitem", name=re.compile("^Restart Kernel…")).click()
        with self.window.expect_response(re.compile("/restart")):
            self.window.get_by_role("dialog").get_by_role("button", name="Confirm Kernel Restart").click()
        self.idle()

    def _cell(self, number: int) -> "Locator":
        return self.window.locator(".jp-Notebook .jp-CodeCell").nth(number)

    def run(self, number: int) -> None:
        """Run a cell as one does, with a click into it and Shift Enter; the first time, wait for its end."""
        self._cell(number).locator(".cm-content").click()
        self.window.keyboard.press("Shift+Enter")
        expect(self._cell(number).locator(".jp-InputPrompt")).to_have_text(re.compile(r"\[\d+\]:"))

    def output(self, number: int) -> "Locator":
        """What a cell has put out, as text."""
        return self._cell(number).locator(".jp-OutputArea-output")

    def show(self, number: int) -> Cell:
        """The studio in the output of a cell, when it can be worked with."""
        cell = Cell(self.window, self.output(number).locator("iframe"))
        cell.look()
        cell.ready()
        return cell


def _is_ours(message: Any) -> bool:
    return message.type == "error" and "/static/lab/" not in message.location.get("url", "")
