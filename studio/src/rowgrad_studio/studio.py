"""The studio as a whole: the folder, the documents that are open, and the threads in which they are worked on."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rowgrad.blocks import Page
from rowgrad.errors import RowgradError
from rowgrad_studio.documents import Document, restored
from rowgrad_studio.drafts import Drafts
from rowgrad_studio.files import Folder, Opened, gallery, stamp_of
from rowgrad_studio.problems import Refusal, log

MOST_DOCUMENTS = 50
WATCH = 1.5  # seconds between looks at the files on disk
WATCH_PAGES = 0.2  # at pages that a program changes too

T = TypeVar("T")


class Studio:
    """All documents of one launch."""

    def __init__(self, root: Path) -> None:
        self.folder = Folder(root)
        self.drafts = Drafts(self.folder)
        self._documents: dict[str, Document] = {}
        self.is_closed = False
        self._opening = asyncio.Lock()
        self._workers = ThreadPoolExecutor(6, "studio")
        self._runners = ThreadPoolExecutor(4, "studio-run")

    async def work(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call `function` in a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, partial(function, *args, **options))

    async def run(self, function: Callable[[], T]) -> T:
        """Call `function`, which may take long, in a thread for runs."""
        return await asyncio.get_running_loop().run_in_executor(self._runners, function)

    # Documents

    async def open(self, request: dict[str, Any]) -> Document:
        """The document that a request asks for: a new one, or the one that is open already."""
        if len(request) - ("data" in request and "name" in request) != 1:
            raise Refusal("say one of open, new, example, draft, or data with name.", "bad-request")
        wanted = {name: value for name, value in request.items() if name != "new"}
        if not all(isinstance(value, str) for value in wanted.values()) or request.get("new", True) is not True:
            raise Refusal("the fields of the request are texts.", "bad-request")
        if "draft" in request:
            return await self.find(request["draft"])
        async with self._opening:
            if "open" in request:
                name = self.folder.name_of(self.folder.inside(request["open"]))
                for document in self._documents.values():
                    if document.path == name:
                        return document
            return self._keep(await self.work(self._new, request))

    def _new(self, request: dict[str, Any]) -> Document:
        opened = self._opened(request)
        document = Document(secrets.token_hex(8), opened, self.folder, self.drafts)
        if "data" in request or ("open" in request and opened.path is None):
            document.saved = None  # it is in no page file yet
            document.keep_draft()
            document.changes()
        origin = {"open": opened.path} if opened.path is not None else {}
        origin |= {"example": request["example"]} if "example" in request else {}
        self.drafts.remember(document.id, origin)
        return document

    def _opened(self, request: dict[str, Any]) -> Opened:
        if "open" in request:
            return self.folder.open(request["open"])
        if "example" in request:
            return self.folder.open_example(request["example"])
        if "data" in request:
            return self.folder.open_dropped(request.get("name", ""), request["data"])
        if "new" not in request:
            raise Refusal("say one of open, new, example, draft, or data with name.", "bad-request")
        return Opened(Page("page", folder=self.folder.root), None, None)

    async def find(self, id: str) -> Document:
        """The document `id`; one that was open in an earlier launch is opened again, as it was."""
        async with self._opening:
            document = self._documents.get(id)
            return document or self._keep(await self.work(self._reopened, id))

    def _reopened(self, id: str) -> Document:
        draft = self.drafts.read(id)
        if draft is not None:
            return restored(id, draft, self.folder, self.drafts)
        origin = self.drafts.origin(id)
        if origin is None:
            raise Refusal("there is no such document open, and no draft of it.", "unknown-document", value=id)
        try:
            return Document(id, self._opened(origin or {"new": True}), self.folder, self.drafts)
        except RowgradError as error:
            raise Refusal(f"the document cannot be opened again: {error}", "unknown-document", value=id) from error

    def _keep(self, document: Document) -> Document:
        """Add a document; of very many, the oldest that nobody is at goes, and its draft stays."""
        self._documents[document.id] = document
        idle = [one for one in self._documents.values() if one.is_idle]
        if len(self._documents) > MOST_DOCUMENTS and idle and idle[0] is not document:
            del self._documents[idle[0].id]
        return document

    def hold(self, document: Document) -> None:
        """Add a document that stays until it is let go."""
        self._documents[document.id] = document

    def let_go(self, document: Document) -> None:
        """End what runs in a document, and forget it."""
        if document.run is not None:
            document.run.stop()
        self._documents.pop(document.id, None)

    async def discard(self, id: str) -> None:
        """Forget a draft, and the document, unless somebody is at it."""
        document = self._documents.get(id)
        if document is not None and document.subscribers:
            raise Refusal("the draft is open in a tab; close it first.", "busy", value=id)
        self._documents.pop(id, None)
        await self.work(self.drafts.remove, id)

    def picture(self, id: str) -> str:
        """The page in a draft as SVG."""
        draft = self.drafts.read(id)
        if draft is None:
            raise Refusal("there is no such draft.", "unknown-document", value=id)
        return Page.from_json(draft["page"], folder=self.folder.root).to_svg()

    async def files(self) -> dict[str, Any]:
        """What there is to open."""
        pages, drafts, examples = await asyncio.gather(
            self.work(self.folder.pages), self.work(self.drafts.all), self.work(gallery)
        )
        return {"folder": str(self.folder.root), "pages": pages, "drafts": drafts, "examples": examples}

    # As long as it runs

    async def watch(self) -> None:
        """Tell of files that somebody else changes."""
        while True:
            await asyncio.sleep(WATCH)
            await self._watch(self._look, lambda document: document.path is not None)

    async def watch_pages(self) -> None:
        """Tell of what a program changes on pages that it has given to the studio."""
        while True:
            await asyncio.sleep(WATCH_PAGES)
            await self._watch(self._notice, lambda document: document.is_shared)

    async def _watch(self, look: Callable[[Document], Awaitable[None]], which: Callable[[Document], bool]) -> None:
        for document in [one for one in self._documents.values() if one.subscribers and which(one)]:
            try:
                async with document.lock:
                    await look(document)
            except Exception as error:
                log.warning("%s cannot be watched: %s", document.path or document.page.name, error)

    async def _notice(self, document: Document) -> None:
        document.publish(await self.work(document.noticed_changes))

    async def _look(self, document: Document) -> None:
        known = document.noticed or document.stamp
        found = await self.work(stamp_of, self.folder.root / (document.path or ""), known)
        if found is None or found is known:
            return
        if document.stamp is not None and found.digest == document.stamp.digest:
            document.stamp, document.noticed = found, None
        elif known is None or found.digest != known.digest:
            document.noticed = found
            document.publish([{"event": "disk"}])

    def close(self) -> None:
        """End all runs, and let the threads go."""
        self.is_closed = True
        for document in self._documents.values():
            if document.run is not None:
                document.run.stop()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._runners.shutdown(wait=False, cancel_futures=True)
