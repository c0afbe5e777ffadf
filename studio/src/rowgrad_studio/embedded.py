"""The studio without a server: the same application, called in this process, for pages that a program has.

One thread has the event loop for all of them; it is started with the first page and ended with the last. Messages go in
from any thread. What comes out is told from that thread.
"""

import asyncio
import secrets
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

from rowgrad.blocks import Page
from rowgrad_studio.app import application
from rowgrad_studio.documents import Document
from rowgrad_studio.drafts import Drafts
from rowgrad_studio.files import Folder, Opened
from rowgrad_studio.studio import Studio

PATIENCE = 5.0  # seconds for the thread to end
LOOK = 0.2  # seconds between looks whether the program has ended

Opening = Callable[[], None]
Tell = Callable[[str], None]
Closed = Callable[["Line", int], None]
Answered = Callable[[int, dict[str, str], bytes], None]


class Line:
    """A WebSocket of the application: `opened` is called when it stands, `tell` takes what is said, `closed` a code."""

    def __init__(
        self, embedded: "Embedded", document: str, client: str, opened: Opening, tell: Tell, closed: Closed
    ) -> None:
        self._embedded, self._opened, self._tell, self._closed = embedded, opened, tell, closed
        self._said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._said.put_nowait({"type": "websocket.connect"})
        query = urlencode({"document": document, "client": client})
        embedded.call(self._serve, {**_scope("websocket", f"/ws?{query}"), "subprotocols": []})

    def send(self, text: str) -> None:
        """Say something to the application, from any thread."""
        self._embedded.soon(self._said.put_nowait, {"type": "websocket.receive", "text": text})

    def close(self) -> None:
        """Hang up, from any thread."""
        self._embedded.soon(self._said.put_nowait, {"type": "websocket.disconnect", "code": 1000})

    async def _serve(self, scope: dict[str, Any]) -> None:
        code = 1000

        async def take(message: Any) -> None:
            nonlocal code
            if message["type"] == "websocket.accept":
                self._opened()
            elif message["type"] == "websocket.send":
                self._tell(message["text"])
            elif message["type"] == "websocket.close":
                code = message.get("code", 1000)

        try:
            await self._embedded.app(scope, self._said.get, take)
        finally:
            self._closed(self, code)


class Embedded:
    """The studio in this process, over the folder `root`."""

    def __init__(self, root: Path) -> None:
        self._studio = Studio(root)
        self.app = application(self._studio)
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._work, name="rowgrad-studio", daemon=True)
        self._thread.start()

    # From any thread

    def open(self, page: Page) -> Document:
        """A document that shows `page` itself, not a copy of it."""
        folder = Folder(page.folder or self._studio.folder.root)
        document = Document(secrets.token_hex(8), Opened(page, None, None), folder, Drafts(folder), is_shared=True)
        self.soon(self._studio.hold, document)
        return document

    def let_go(self, document: Document) -> None:
        """Forget a document; what runs in it ends."""
        self.soon(self._studio.let_go, document)

    def connect(self, document: Document, client: str, opened: Opening, tell: Tell, closed: Closed) -> Line:
        """The line of a tab to a document."""
        return Line(self, document.id, client, opened, tell, closed)

    def fetch(self, method: str, path: str, body: bytes, answered: Answered) -> None:
        """Ask for what the server has under `path`; `answered` takes the status, headers and body."""
        self.call(self._fetch, method, path, body, answered)

    def soon(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function in the thread of the event loop; nothing, if that has ended."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)

    def call(self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Start a coroutine in the event loop."""
        self.soon(self._start, function, *args)

    def close(self) -> None:
        """End all runs, lines and threads, and wait for the event loop's."""
        self.soon(self._end)
        if threading.current_thread() is not self._thread:
            self._thread.join(PATIENCE)

    # In the thread of the event loop

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        for watch in (self._studio.watch, self._studio.watch_pages, self._watch_program):
            self._loop.call_soon(self._start, watch)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)  # the application's too
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self._loop.close()

    def _start(self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        task = self._loop.create_task(function(*args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self) -> None:
        self._studio.close()
        self._loop.stop()

    async def _watch_program(self) -> None:
        """A program that ends waits for threads that work, and they take no more work: end the runs then."""
        with suppress(RuntimeError):
            while True:
                await self._studio.work(int)
                await asyncio.sleep(LOOK)
        self._end()

    async def _fetch(self, method: str, path: str, body: bytes, answered: Answered) -> None:
        status, headers, parts = 500, {}, []

        async def give() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def take(message: Any) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
            else:
                parts.append(message.get("body", b""))

        await self.app({**_scope("http", path), "method": method}, give, take)
        answered(status, headers, b"".join(parts))


def _scope(kind: str, address: str) -> dict[str, Any]:
    """What ASGI asks to be told of a request."""
    parts = urlsplit(address)
    scheme = "ws" if kind == "websocket" else "http"
    return {"type": kind, "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": scheme, "root_path": "",
            "path": unquote(parts.path), "raw_path": parts.path.encode(), "query_string": parts.query.encode(),
            "headers": [], "client": None, "server": None}  # fmt: skip


class Shared:
    """The pages that are shown in this process: one studio for all, one document for each page."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._embedded: Embedded | None = None
        self._shown: dict[int, tuple[Document, int]] = {}  # by the identity of its page, with how many show it

    def open(self, page: Page) -> tuple[Embedded, Document]:
        """The document of `page`, a new one if nobody shows it; `close` is to be called once for each call."""
        with self._lock:
            if self._embedded is None:
                self._embedded = Embedded(Path.cwd())
            document, users = self._shown.get(id(page)) or (self._embedded.open(page), 0)
            self._shown[id(page)] = (document, users + 1)
            return self._embedded, document

    def close(self, document: Document) -> None:
        """One shows it no more; with the last, the document goes, and with the last document, the studio."""
        with self._lock:
            assert self._embedded is not None
            _, users = self._shown.pop(id(document.page))
            if users > 1:
                self._shown[id(document.page)] = (document, users - 1)
                return
            self._embedded.let_go(document)
            if self._shown:
                return
            ended, self._embedded = self._embedded, None
        ended.close()


SHARED = Shared()
