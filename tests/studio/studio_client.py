"""A studio in a thread, and a client that speaks to it as a browser does."""

import http.client
import itertools
import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import uvicorn
from websockets.sync.client import connect

from rowgrad_studio.app import create_app
from rowgrad_studio.launch import _bound

TOKEN = "key-of-the-tests"
WAIT = 60.0
PAGE = """{"rowgrad_page": 1, "name": "pooled mean", "blocks": [
  {"id": "grad", "op": "Const", "attrs": {"value": [[1, 2, 3], [4, 4, 2], [3, 1, 5]], "dtype": "float32"},
   "at": [40, 40]},
  {"id": "mean", "op": "SparseSegmentMeanGrad", "inputs": {"grad": "grad:output", "indices": [0, 1, 2],
   "segment_ids": [2, 2, 2], "output_dim0": 3}, "at": [420, 40]},
  {"id": "after", "op": "Neg", "inputs": {"x": "mean:output"}, "at": [800, 40]}]}
"""


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """A browser at the studio of `port`; `cookie` is what it was given for the token."""

    def __init__(self, port: int, token: str = TOKEN) -> None:
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.origin = f"http://{self.host}"
        self.cookie = f"rowgrad-studio-{port}={token}"

    def request(self, method: str, path: str, body: Any = None, **headers: str | None) -> Answer:
        sent = {"Cookie": self.cookie, "Origin": self.origin if method != "GET" else None}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        line.putrequest(method, path, skip_host="Host" in sent)
        for name, value in sent.items():
            if value is not None:
                line.putheader(name, value)
        line.putheader("Content-Length", str(len(data or b"")))
        line.endheaders()
        if data:
            line.send(data)
        answer = Answer(line.getresponse())
        line.close()
        return answer

    def get(self, path: str, **query: Any) -> Answer:
        return self.request("GET", f"{path}?{urlencode(query)}" if query else path)

    def post(self, body: Any) -> Answer:
        return self.request("POST", "/api/documents", body)

    def open(self, **what: Any) -> str:
        answer = self.post(what)
        assert answer.status == 200, answer.body
        return str(answer.json["document"])

    def tab(self, document: str, client: str | None = None, **options: Any) -> "Tab":
        return Tab(self, document, client or uuid.uuid4().hex, **options)


class Tab:
    """One tab at a document: it keeps the page and the results as the events tell, and all events."""

    def __init__(self, client: Client, document: str, name: str, **options: Any) -> None:
        self.client, self.document, self.name = client, document, name
        self.events: list[dict[str, Any]] = []
        self.answers: dict[int, dict[str, Any]] = {}
        self.page: dict[str, Any] = {}
        self.blocks: dict[str, Any] = {}
        self.results: dict[str, Any] = {}
        self.numbers = itertools.count(1)
        options = {"origin": client.origin, "max_size": None, **options}
        self._connecting = connect(
            f"ws://{client.host}/ws?{urlencode({'document': document, 'client': name})}",
            additional_headers={"Cookie": client.cookie},
            **options,
        )
        self.line = self._connecting.__enter__()
        self.hear(lambda: any(event["event"] == "results" for event in self.events))

    def __enter__(self) -> "Tab":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def close(self) -> None:
        self._connecting.__exit__(None, None, None)

    def send(self, do: str, n: int | None = None, **given: Any) -> int:
        n = next(self.numbers) if n is None else n
        self.line.send(json.dumps({"n": n, "do": do, **given}))
        return n

    def hear(self, until: Any) -> None:
        """Take messages until it is so."""
        end = time.monotonic() + WAIT
        while not until():
            message = json.loads(self.line.recv(timeout=max(0.1, end - time.monotonic())))
            if "n" in message:
                self.answers[message["n"]] = message
            else:
                self.events.append(message)
                self._apply(message)

    def _apply(self, event: dict[str, Any]) -> None:
        if event["event"] in ("page", "results"):
            kept = self.blocks if event["event"] == "page" else self.results
            if event["whole"]:
                kept.clear()
            for id, view in event["blocks"].items():
                kept.pop(id, None)
                if view is not None:
                    kept[id] = view
        if event["event"] == "page":
            self.page = event

    def answer(self, n: int) -> dict[str, Any]:
        self.hear(lambda: n in self.answers)
        return self.answers[n]

    def do(self, do: str, **given: Any) -> dict[str, Any]:
        """What is answered to a command that is followed."""
        answer = self.answer(self.send(do, **given))
        assert "ok" in answer, answer
        return dict(answer["ok"])

    def refused(self, do: str, **given: Any) -> dict[str, Any]:
        """The problem of a command that is not followed; the page stays as it was."""
        revision = self.page["revision"]
        answer = self.answer(self.send(do, **given))
        assert "error" in answer, answer
        assert self.page["revision"] == revision
        return dict(answer["error"])

    def hear_event(self, name: str, **fields: Any) -> dict[str, Any]:
        """The next event of that kind."""
        before = len(self.events)

        def found() -> list[dict[str, Any]]:
            return [
                event for event in self.events[before:] if event["event"] == name and fields.items() <= event.items()
            ]

        self.hear(found)
        return found()[0]

    def forget(self) -> None:
        self.events.clear()


@contextmanager
def studio(folder: Path, token: str = TOKEN) -> Iterator[Client]:
    """A studio over `folder`, as long as it is needed."""
    with _bound(0) as bound:
        port = bound.getsockname()[1]
        config = uvicorn.Config(
            create_app(folder, token=token, port=port),
            log_level="error",
            ws="websockets-sansio",
            ws_max_size=64 * 2**20,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield Client(port, token)
        finally:
            server.should_exit = True
            thread.join(10)
