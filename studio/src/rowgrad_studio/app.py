"""The web application: a few requests and one WebSocket, behind the guard."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute

from rowgrad.blocks.model import as_wire
from rowgrad_studio import data, downloads
from rowgrad_studio.arguments import BASE64, TEXT, checked
from rowgrad_studio.catalogue import catalogue
from rowgrad_studio.commands import busy
from rowgrad_studio.documents import Document
from rowgrad_studio.looking import LOOKS, WINDOWS, asked, number
from rowgrad_studio.messages import decoded, encoded
from rowgrad_studio.origins import explained, origins
from rowgrad_studio.problems import Refusal, problem, status
from rowgrad_studio.security import MOST_BODY, Guard
from rowgrad_studio.sockets import Sockets
from rowgrad_studio.studio import Studio

HERE = Path(__file__).parent
# The bundle in the package; in a checkout, where it is built.
BUNDLES = (HERE / "static", HERE.parents[1] / "web" / "dist", HERE.parents[1] / "web" / "static")
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".txt": "text/plain", ".map":
         "application/json", ".svg": "image/svg+xml", ".png": "image/png", ".woff2": "font/woff2"}  # fmt: skip
NOT_BUILT = """The page of the studio is not built.
In a checkout: run `npm ci` and `npm run build` in studio/web, or start the studio by `make studio`.
"""

Handler = Callable[[Request], Awaitable[Response]]


def create_app(folder: Path, *, token: str, port: int) -> Guard:
    """The studio over `folder`, for whoever has `token`, at `port`."""
    return Guard(application(Studio(folder)), token=token, port=port)


def application(studio: Studio) -> Starlette:
    """The studio for everyone who can call it; it is watched, and closed, with the application's lifespan."""
    pages = Requests(studio)
    sockets = Sockets(studio)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        watch = asyncio.create_task(studio.watch())
        yield
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        studio.close()

    routes = [
        Route("/", pages.index),
        Route("/favicon.ico", pages.icon),
        Route("/static/{name}", pages.static),
        Route("/api/catalogue", pages.catalogue),
        Route("/api/files", _answering(pages.files)),
        Route("/api/documents", _answering(pages.open), methods=["POST"]),
        Route("/api/drafts/{id}", _answering(pages.discard), methods=["DELETE"]),
        Route("/api/drafts/{id}/picture", _answering(pages.picture)),
        Route("/api/documents/{id}/output", _answering(pages.output)),
        Route("/api/documents/{id}/export", _answering(pages.export)),
        Route("/api/documents/{id}/rows", _answering(pages.rows)),
        Route("/api/documents/{id}/explain", _answering(pages.explain)),
        Route("/api/documents/{id}/look/{what}", _answering(pages.look)),
        Route("/api/documents/{id}/data", _answering(pages.data)),
        Route("/api/documents/{id}/data", _answering(pages.keep_data), methods=["POST"]),
        Route("/api/documents/{id}/data/preview", _answering(pages.preview)),
        WebSocketRoute("/ws", sockets.serve),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def _answering(handler: Handler) -> Handler:
    """`handler`, whose errors are answered in the words of the protocol."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:
            return _json({"error": problem(error)}, status(error))

    return answer


class Requests:
    """What is asked for over HTTP."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio

    async def index(self, request: Request) -> Response:
        """The page."""
        return self._file("index.html") or PlainTextResponse(NOT_BUILT, 503)

    async def icon(self, request: Request) -> Response:
        """Browsers ask for one, whether there is any or not."""
        return Response(status_code=204)

    async def static(self, request: Request) -> Response:
        """A part of the bundle."""
        return self._file(request.path_params["name"]) or PlainTextResponse("There is no such file.\n", 404)

    def _file(self, name: str) -> Response | None:
        path = built(name) if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name) else None
        return None if path is None else FileResponse(path, media_type=TYPES.get(path.suffix))

    async def catalogue(self, request: Request) -> Response:
        """All operators."""
        return Response(await self._studio.work(lambda: encoded(catalogue())), media_type="application/json")

    async def files(self, request: Request) -> Response:
        """What there is to open."""
        return _json(await self._studio.files())

    async def open(self, request: Request) -> Response:
        """Open a document."""
        wanted = decoded(await _body(request), "the request")
        return _json({"document": (await self._studio.open(wanted)).id})

    async def discard(self, request: Request) -> Response:
        """Forget a draft."""
        await self._studio.discard(request.path_params["id"])
        return _json({})

    async def picture(self, request: Request) -> Response:
        """A draft as a picture, without results."""
        made = await self._studio.work(self._studio.picture, request.path_params["id"])
        return Response(made, media_type=downloads.KINDS["svg"])

    async def output(self, request: Request) -> Response:
        """An output, to be downloaded."""
        document = await self._document(request)
        block, pin, kind = _query(request, "block"), _query(request, "pin"), _query(request, "as")
        made = await self._studio.work(downloads.output, document, block, pin, kind)
        return Response(made, media_type=downloads.KINDS[kind], headers=downloads.headers(f"{block}-{pin}", kind))

    async def export(self, request: Request) -> Response:
        """The page in another form."""
        document, kind = await self._document(request), _query(request, "as")
        async with document.lock:
            made = await self._studio.work(downloads.export, document, kind)
            name = document.page.name
        return Response(made, media_type=downloads.KINDS[kind], headers=downloads.headers(name, kind))

    async def rows(self, request: Request) -> Response:
        """Which input rows went into a row of a gradient."""
        document = await self._document(request)
        row = _query(request, "row")
        if not row.isdecimal() or len(row) > 18:
            raise Refusal("row must be a whole number.", "bad-request", argument="row", value=row)
        block, pin = _query(request, "block"), _query(request, "pin")
        async with document.lock:
            found = await self._studio.work(origins, document.page, document.results(), block, pin, int(row))
        return _json({"rows": found})

    async def look(self, request: Request) -> Response:
        """A result of any size: rows of it, a region as colours, a histogram, series, a projection."""
        document, what = await self._document(request), request.path_params["what"]
        if what not in LOOKS:
            raise Refusal(f"results are looked at as {', '.join(LOOKS)}.", "bad-request", argument="what", value=what)
        block, pin = _query(request, "block"), _query(request, "pin")
        return _json(await self._studio.work(_looked, document, what, block, pin, dict(request.query_params)))

    async def explain(self, request: Request) -> Response:
        """Why an element of a result is what it is."""
        document, place = await self._document(request), request.query_params.get("index", "")
        index = [number("index", part) for part in place.split(",")] if place else []
        block, pin = _query(request, "block"), _query(request, "pin")
        if document.run is not None:
            raise busy()
        async with document.lock:
            return _json(await self._studio.work(explained, document, block, pin, index))

    async def data(self, request: Request) -> Response:
        """The data files beside the page."""
        place = _place(await self._document(request))
        return _json({"files": await self._studio.work(data.listed, place)})

    async def keep_data(self, request: Request) -> Response:
        """Keep a file that was dropped beside the page."""
        place = _place(await self._document(request))
        given = checked("the request", decoded(await _body(request), "the request"), {"name": TEXT, "data": BASE64})
        return _json({"path": await self._studio.work(data.keep, place, given["name"], given["data"])})

    async def preview(self, request: Request) -> Response:
        """The columns of a data file."""
        place = _place(await self._document(request))
        return _json(await self._studio.work(data.preview, place, _query(request, "path")))

    async def _document(self, request: Request) -> Document:
        return await self._studio.find(request.path_params["id"])


def built(name: str) -> Path | None:
    """A file of the bundle, if it is there."""
    return next((place / name for place in BUNDLES if (place / name).is_file()), None)


def _looked(document: Document, what: str, block: str, pin: str, query: Mapping[str, str]) -> dict[str, Any]:
    array = document.result(block)[pin]
    given = asked(query)
    if query.get("against"):
        array = document.compared(block, pin, query["against"])
    labels = query.get("labels")
    given["labels"] = document.result(as_wire(labels)[0])[as_wire(labels)[1] or "output"] if labels else None
    return LOOKS[what](WINDOWS.on(array), given)


def _place(document: Document) -> Path:
    """The folder that a page reads its data from."""
    return (document.page.folder or document.folder.root).resolve()


def _json(value: Mapping[str, Any], status: int = 200) -> Response:
    return Response(encoded(value), status, media_type="application/json")


def _query(request: Request, name: str) -> str:
    found = request.query_params.get(name)
    if found is None:
        raise Refusal(f"the request needs {name}.", "bad-request", argument=name)
    return found


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BODY:
            raise Refusal(f"the request is larger than {MOST_BODY >> 20} MB.", "too-large")
        parts.append(part)
    return b"".join(parts)
