"""The WebSocket of a tab: commands come in, answers and events go out, each in order.

A command is done once, also if its tab is cut off before the answer and asks again: answers are remembered for each
client. It is done to its end, whether the tab is still there or not.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from rowgrad_studio.arguments import checked
from rowgrad_studio.commands import VERBS, busy
from rowgrad_studio.documents import Document, Event, Subscriber
from rowgrad_studio.messages import decoded, encoded
from rowgrad_studio.problems import Refusal, problem
from rowgrad_studio.runs import Run, check_record
from rowgrad_studio.security import MOST_MESSAGE
from rowgrad_studio.studio import Studio

MOST_ANSWERS = 1000  # of one client
MOST_CLIENTS = 100
LATE = 2.0  # seconds until a large draft is written
PATIENCE = 20.0  # seconds for a tab to take one message
NUMBER = re.compile(r'\s*\{\s*"n"\s*:\s*(\d{1,15})\b')

Answer = dict[str, Any]


class Sockets:
    """The tabs of a studio."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._answers: OrderedDict[tuple[str, str], OrderedDict[int, asyncio.Task[Answer]]] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def serve(self, socket: WebSocket) -> None:
        """Serve one tab until it goes."""
        await socket.accept()
        try:
            document = await self._studio.find(socket.query_params.get("document", ""))
        except Exception as error:
            await socket.close(4404, problem(error)["message"][:100])
            return
        client = socket.query_params.get("client", "")[:100]
        reader = asyncio.current_task()
        assert reader is not None
        subscriber = Subscriber(reader.cancel)
        async with document.lock:
            for whole in await self._studio.work(lambda: [encoded(event) for event in document.whole()]):
                subscriber.tell(whole)
            if document.run is not None:
                subscriber.tell(encoded(document.run.event_now()))
            document.subscribers.add(subscriber)
        sender = asyncio.create_task(self._send(socket, subscriber))
        try:
            while True:
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    break
                text = message.get("text")
                await self._take(document, client, subscriber, text if text is not None else "")
        except (WebSocketDisconnect, RuntimeError):
            pass  # it went without a word
        except asyncio.CancelledError:
            await _close(socket, 1013)  # it was too slow; it connects again
        finally:
            document.subscribers.discard(subscriber)
            sender.cancel()

    async def _send(self, socket: WebSocket, subscriber: Subscriber) -> None:
        try:
            while True:
                text = await subscriber.queue.get()
                await asyncio.wait_for(socket.send_text(text), PATIENCE)
        except (TimeoutError, WebSocketDisconnect, RuntimeError, OSError):
            subscriber.drop()

    # Commands

    async def _take(self, document: Document, client: str, subscriber: Subscriber, text: str) -> None:
        """Start what a message asks for; all but runs are waited for, so that each sees the one before."""
        try:
            n, do, given = _parsed(text)
        except Exception as error:
            found = NUMBER.match(text)
            subscriber.tell(encoded({"n": int(found[1]) if found else -1, "error": problem(error)}))
            return
        task = self._known(document, client, n)
        if task is None:
            task = asyncio.create_task(self._answer(document, client, n, do, given))
            self._remember(document, client, n, task)
        if do in VERBS and VERBS[do].act is None:
            self._follow(asyncio.create_task(_pass_on(task, subscriber)))
        else:
            await _pass_on(task, subscriber)

    def _known(self, document: Document, client: str, n: int) -> "asyncio.Task[Answer] | None":
        if not client:
            return None
        known = self._answers.get((document.id, client), OrderedDict()).get(n)
        if known is None:
            for by, number, answer in document.answers:
                if (by, number) == (client, n):
                    return asyncio.create_task(_given(answer))
        return known

    def _remember(self, document: Document, client: str, n: int, task: "asyncio.Task[Answer]") -> None:
        self._follow(task)
        if not client:
            return
        answers = self._answers.setdefault((document.id, client), OrderedDict())
        self._answers.move_to_end((document.id, client))
        answers[n] = task
        while len(answers) > MOST_ANSWERS:
            answers.popitem(last=False)
        while len(self._answers) > MOST_CLIENTS:
            self._answers.popitem(last=False)

    def _follow(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, document: Document, client: str, n: int, do: str, given: Mapping[str, Any]) -> Answer:
        try:
            if do not in VERBS:
                raise Refusal(f"there is no command {do[:100]!r}; there are: {', '.join(VERBS)}.", "unknown-command")
            verb = VERBS[do]
            fields = checked(do, given, verb.fields)
            if do in ("stop", "pause"):
                if document.run is not None:
                    document.run.stop() if do == "stop" else document.run.pause()
                return {"n": n, "ok": {}}
            if verb.act is None:
                return {"n": n, "ok": await self._run(document, do, fields)}
            async with document.lock:
                ok, events = await self._studio.work(_perform, document, client, n, do, fields)
                document.publish(events)
            if document.draft_is_due:
                self._follow(asyncio.create_task(self._late_draft(document)))
            return {"n": n, "ok": ok}
        except Exception as error:
            return {"n": n, "error": problem(error)}

    async def _late_draft(self, document: Document) -> None:
        await asyncio.sleep(LATE)
        async with document.lock:
            if document.draft_is_due:
                await self._studio.work(document.keep_draft, late=True)

    async def _run(self, document: Document, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()

        def tell(events: list[Event]) -> None:
            loop.call_soon_threadsafe(document.publish, events)

        async with document.lock:
            if document.run is not None:
                raise busy()
            if do in ("loop", "sweep"):
                fields["record"] = fields["record"] or []
                await self._studio.work(check_record, document, fields["record"])
            elif do == "run_to":
                document.page[fields["block"]]
            await self._studio.work(document.pass_on)
            run = Run(document, do, fields, tell)
            run.begin()
            document.run = run
            document.publish([document.recordings.event(), run.event_now()])
        try:
            return await self._studio.run(run.work)
        finally:
            if not self._studio.is_closed:
                async with document.lock:
                    document.run = None
                    events = await self._studio.work(document.changes)
                    document.publish([run.event(None), *events, document.recordings.event()])


def _perform(document: Document, client: str, n: int, do: str, fields: dict[str, Any]) -> tuple[Answer, list[Event]]:
    """Do a command, in a worker thread; what changed is kept in the draft before anybody is told."""
    act = VERBS[do].act
    assert act is not None
    document.notice()
    ok = act(document, fields) or {}
    events = document.changes()
    if client:
        document.answers.append((client, n, {"n": n, "ok": ok}))
    if any(event["event"] == "page" for event in events):
        document.keep_draft()
    if do in ("rename_run", "remove_runs"):
        events.append(document.recordings.event())
    if do == "save":
        events.append({"event": "saved", "path": ok["path"]})
    return ok, events


def _parsed(text: str) -> tuple[int, str, dict[str, Any]]:
    if len(text) > MOST_MESSAGE or len(text.encode("utf-8", "surrogatepass")) > MOST_MESSAGE:
        raise Refusal(f"the command is larger than {MOST_MESSAGE >> 20} MB.", "too-large")
    command = decoded(text, "the command")
    n, do = command.pop("n", None), command.pop("do", None)
    if type(n) is not int or n < 0 or not isinstance(do, str):
        raise Refusal('a command has a number n and a verb do, as in {"n": 1, "do": "run"}.')
    return n, do, command


async def _given(answer: Answer) -> Answer:
    return answer


async def _pass_on(task: "asyncio.Task[Answer]", subscriber: Subscriber) -> None:
    """Wait for an answer, and tell it; if the tab goes meanwhile, the command is still done."""
    subscriber.tell(encoded(await asyncio.shield(task)))


async def _close(socket: WebSocket, code: int) -> None:
    with suppress(RuntimeError, TimeoutError, OSError):  # it is closed already, or does not listen
        await asyncio.wait_for(socket.close(code), 1)
