"""The canvas in a cell of a notebook: the studio's own front end, which speaks to this process instead of a server."""

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from rowgrad.blocks import Page, Results, Session
from rowgrad_studio.app import NOT_BUILT, built
from rowgrad_studio.embedded import SHARED, Line
from rowgrad_studio.problems import Refusal

LEAST_HEIGHT = 200  # pixels


class PageWidget(anywidget.AnyWidget):
    """A page of blocks in a notebook cell, to edit, run and train.

    Edits in the cell change `page` immediately, and the cell follows changes that the program makes. Several widgets of
    one page, and several views of one widget, show the same.

    Parameters
    ----------
    page : Page, str or path, optional
        The page, which is not copied, or its file. By default an empty page.
    height : int
        Its height in the notebook, in pixels.

    Examples
    --------
    >>> from rowgrad.blocks import Page
    >>> from rowgrad_studio import PageWidget
    >>> page = Page("sums")
    >>> _ = page.add("Const", "x", value=[[1.0, 2.0]])
    >>> widget = PageWidget(page)
    >>> widget.page is page
    True
    >>> widget.close()
    """

    document = traitlets.Unicode().tag(sync=True)
    height = traitlets.Int(560).tag(sync=True)

    def __init__(self, page: Page | str | Path | None = None, *, height: int = 560) -> None:
        script = built("widget.js")
        if script is None:
            raise Refusal(NOT_BUILT, "not-built")
        if page is None:
            page = Page()
        elif not isinstance(page, Page):
            page = Page.load(page)
        self._lines: dict[str, Line] = {}
        self._embedded, self._document = SHARED.open(page)
        self._is_open = True
        try:
            self._esm = script.read_text(encoding="utf-8")
            super().__init__(document=self._document.id, height=max(LEAST_HEIGHT, int(height)))
            self.on_msg(self._hear)
        except BaseException:
            self._let_go()
            raise

    @property
    def page(self) -> Page:
        """The page that is shown."""
        return self._document.page

    @property
    def session(self) -> Session:
        """The session that runs the page in the cell, with its variables."""
        return self._document.session

    @property
    def results(self) -> Results:
        """The current results of all blocks in the cell."""
        return self._document.results()

    def close(self) -> None:
        """Remove the widget from all cells; a run ends, unless another widget shows the page."""
        super().close()
        self._let_go()

    def _let_go(self) -> None:
        if self._is_open:
            self._is_open = False
            for line in list(self._lines.values()):
                line.close()
            SHARED.close(self._document)

    # What the views say. Each has an id of its own: a message reaches all views of a widget.

    def _hear(self, widget: Any, content: Any, buffers: Any) -> None:
        view, do = content.get("view"), content.get("do")
        if not isinstance(view, str) or not self._is_open:
            return
        if do == "ping":
            self.send({"view": view, "do": "pong"})
        elif do == "fetch":
            self._fetch(view, content)
        elif do == "open":
            self._open(view)
        elif view in self._lines:
            self._lines[view].send(content["text"]) if do == "text" else self._lines[view].close()

    def _open(self, view: str) -> None:
        def opened() -> None:
            self.send({"view": view, "do": "opened"})

        def tell(text: str) -> None:
            self.send({"view": view, "do": "text", "text": text})

        def closed(line: Line, code: int) -> None:
            if self._lines.get(view) is line:
                del self._lines[view]
            self.send({"view": view, "do": "closed", "code": code})

        if view in self._lines:
            self._lines[view].close()
        self._lines[view] = self._embedded.connect(self._document, view, opened, tell, closed)

    def _fetch(self, view: str, content: dict[str, Any]) -> None:
        def answered(status: int, headers: dict[str, str], body: bytes) -> None:
            told = {"view": view, "do": "fetched", "n": content["n"], "status": status, "headers": headers}
            self.send(told, [body])

        body = content.get("body") or ""
        self._embedded.fetch(content["method"], content["path"], body.encode(), answered)
