"""Runs: in a thread of their own, one at a time for each document, with progress, and a stop that works.

A loop is run in short pieces, so that what it records can be shown while it goes on. A stop takes effect after the
block that is being computed; no kernel is interrupted. A pause is a stop after which the loop can go on. A sweep runs
one loop for each value of a literal, each on a copy of the page with variables of its own.
"""

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import Page, Progress, Session
from rowgrad.blocks.model import as_wire
from rowgrad.blocks.values import is_text, plain
from rowgrad_studio.documents import Document, Event
from rowgrad_studio.problems import Refusal
from rowgrad_studio.recordings import Recording, arrays_of

OFTEN = 0.05  # seconds from one progress event to the next
SELDOM = 0.25  # from one look at the results to the next
SHARE = 10  # a look at the results may take this part of the time

Tell = Callable[[list[Event]], None]


class Run:
    """One run of a document; `tell` takes events from the worker thread."""

    def __init__(self, document: Document, verb: str, given: dict[str, Any], tell: Tell) -> None:
        self.document = document
        self.verb = verb
        self.given = given
        self._tell = tell
        self._stopping = threading.Event()
        self._pausing = False
        self._session = document.session  # a sweep has others
        self.recording: Recording | None = None
        self._recorded: dict[str, list[float | None]] = {}
        self._taken, self._steps = 0, 1
        self._last_progress = self._last_look = monotonic()
        self._look_seconds = 0.0

    def stop(self) -> None:
        """End after the block that is being computed, from any thread."""
        self._stopping.set()
        self._session.cancel()

    def pause(self) -> None:
        """End as `stop` does; a loop can go on later."""
        if self.verb not in ("loop", "resume"):
            raise Refusal("only a loop can be paused; stop this run instead.", "not-paused")
        self._pausing = True
        self.stop()

    def work(self) -> dict[str, Any]:
        """All of it, in the worker thread; gives what is answered."""
        session, given = self.document.session, self.given
        feeds = self.document.fed()
        if self.verb in ("run", "run_to", "loop", "resume"):
            self.document.recordings.before = arrays_of(self.document.shown())
        match self.verb:
            case "run":
                session.run(feeds=feeds, progress=self._report)
            case "run_to":
                session.run([given["block"]], feeds, progress=self._report)
            case "step":
                done = session.step(feeds)
                return {"block": done.block if done is not None else None}
            case "loop" | "resume":
                return self._loop(session, feeds)
            case "sweep":
                return self._sweep(feeds)
            case "evaluate":
                found = session.evaluate(given["outputs"], given["split"] or "test", feeds)
                return {"values": {name: _number(array) for name, array in found.items()}}
            case _:
                if feeds:
                    session.run(list(feeds), feeds)
                checked = session.check_gradients(given["y"], given["xs"])
                return {"text": str(checked), "ok": bool(checked.ok)}
        return {}

    def begin(self) -> None:
        """Make the recording of a loop, or take the one that is to go on, before anything is told."""
        document, given = self.document, self.given
        if self.verb == "loop":
            self.recording = document.recordings.begin(given["name"], given["steps"], given["record"])
        elif self.verb == "resume":
            state, last = document.page.state(), document.history.undo_label
            self.recording = document.recordings.paused(given["run"], state, last)
            self._taken = self.recording.steps
        if self.recording is not None:
            self._steps = self.recording.asked

    def _loop(self, session: Session, feeds: dict[str, Any]) -> dict[str, Any]:
        recording = self.recording
        assert recording is not None
        record = {str(session.page.wire(name)): name for name in recording.outputs}
        piece, failed = 1, False
        while self._taken < self._steps and not self._stopping.is_set():
            begun = monotonic()
            count = min(piece, self._steps - self._taken)
            history = session.loop(count, feeds, record=record, progress=self._report)
            self._taken += history.steps
            for wire, name in record.items():
                self._recorded.setdefault(name, []).extend(map(_number, history[wire]))
            failed = bool(history.results.errors)
            if history.cancelled or failed or history.steps < count:
                break
            self._progress(Progress(0, self._steps, 0, 0, None))
            seconds = monotonic() - begun
            piece = piece * 2 if seconds < OFTEN / 2 else max(1, piece // 2) if seconds > 2 * OFTEN else piece
        recording.steps = self._taken
        recording.paused = self._pausing and not failed and self._taken < self._steps
        recording.seen = self.document.page.state() if recording.paused else None
        if session is self.document.session:
            found = self.document.result_changes()
            self._tell([found] if found is not None else [])
            self.document.recordings.end(recording, self.document.shown())
        else:
            self.document.recordings.end(recording, session.results())
        return {"steps": self._taken, "run": recording.id, "paused": recording.paused}

    def _sweep(self, feeds: dict[str, Any]) -> dict[str, Any]:
        """A loop for each value, each in a session of its own; the page and its session stay as they are."""
        given, document = self.given, self.document
        id, name = as_wire(given["target"])
        pages = [_changed(document, id, name or "", value) for value in given["values"]]
        runs = []
        for page, value in zip(pages, given["values"], strict=True):
            if self._stopping.is_set():
                break
            self._session = Session(page)
            self._taken, self._steps = 0, given["steps"]
            about = f"{name} of {id} is {value}"
            self.recording = document.recordings.begin(f"{name} = {value}", given["steps"], given["record"], about)
            runs.append(self.recording.id)
            self._tell([document.recordings.event()])
            self._loop(self._session, feeds)
            self._tell([self.event(Progress(0, self._steps, 0, 0, None)), document.recordings.event()])
        return {"runs": runs}

    def _report(self, progress: Progress) -> None:
        """Called by the session before each block."""
        if self._stopping.is_set():
            self._session.cancel()  # again: a run that was just beginning has forgotten the first
        if progress.block is not None:
            self._progress(progress)

    def _progress(self, progress: Progress) -> None:
        now = monotonic()
        if now - self._last_progress < OFTEN:
            return
        events = [self.event(progress)]
        if self.verb != "sweep" and now - self._last_look > max(SELDOM, SHARE * self._look_seconds):
            found = self.document.result_changes()
            self._last_look = monotonic()
            self._look_seconds = self._last_look - now
            events += [found] if found is not None else []
        self._tell(events)
        self._last_progress = monotonic()

    def event_now(self) -> Event:
        """That it is running, for those who have just come; what was recorded is left for the next event."""
        begins = self.recording.recorded if self.recording is not None else 0
        return self._event(Progress(0, self._steps, 0, 0, None), begins, {})

    def event(self, progress: Progress | None) -> Event:
        """How far it is, with what was recorded since the last time; None: it is over."""
        recorded, self._recorded = self._recorded, {}
        return self._event(progress, self.recording.extend(recorded) if self.recording is not None else 0, recorded)

    def _event(self, progress: Progress | None, begins: int, recorded: dict[str, list[float | None]]) -> Event:
        step = self._taken + (progress.step if progress else 0)
        return {
            "event": "progress",
            "running": progress is not None,
            "step": min(step, self._steps),
            "steps": self._steps,
            "done": progress.done if progress else 0,
            "total": progress.total if progress else 0,
            "block": progress.block if progress else None,
            "run": self.recording.id if self.recording is not None else None,
            "begins": begins,
            "recorded": recorded,
        }


def _changed(document: Document, id: str, name: str, value: Any) -> Page:
    """A copy of the page with another literal, attribute or setting."""
    page = document.page.copy()
    page.change(id, **{name: value})
    return page


def check_record(document: Document, names: list[str]) -> None:
    """Only numbers can be charted."""
    for name in names:
        signal = document.page.signal(name)
        if signal.dtype == "string":
            raise Refusal(f"{name} holds texts; only numbers are recorded.", "wrong-dtype", argument="record",
                          value=name)  # fmt: skip


def _number(array: Array) -> float | None:
    """An output as one number: itself, or the mean of its elements; None where that is none."""
    if is_text(array) or not array.size:
        return None
    with np.errstate(all="ignore"):
        read = plain(array)
        mean = (
            complex(np.mean(read.astype(np.complex128)))
            if read.dtype.kind == "c"
            else float(np.mean(read, dtype=float))
        )
    number = abs(mean) if isinstance(mean, complex) else mean
    return number if np.isfinite(number) else None
