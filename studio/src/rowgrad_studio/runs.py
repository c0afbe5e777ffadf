"""Runs: in a thread of their own, one at a time for each document, with progress, and a stop that works.

A loop is run in short pieces, so that what it records can be shown while it goes on. A stop takes effect after the
block that is being computed; no kernel is interrupted.
"""

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import Progress, Session
from rowgrad.blocks.values import is_text, plain
from rowgrad_studio.documents import Document, Event
from rowgrad_studio.problems import Refusal

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
        self._recorded: dict[str, list[float | None]] = {}
        self._taken, self._steps = 0, 1
        self._last_progress = self._last_look = monotonic()
        self._look_seconds = 0.0

    def stop(self) -> None:
        """End after the block that is being computed, from any thread."""
        self._stopping.set()
        self.document.session.cancel()

    def work(self) -> dict[str, Any]:
        """All of it, in the worker thread; gives what is answered."""
        session, given = self.document.session, self.given
        feeds = self.document.fed()
        match self.verb:
            case "run":
                session.run(feeds=feeds, progress=self._report)
            case "run_to":
                session.run([given["block"]], feeds, progress=self._report)
            case "step":
                done = session.step(feeds)
                return {"block": done.block if done is not None else None}
            case "loop":
                return self._loop(session, feeds)
            case "evaluate":
                found = session.evaluate(given["outputs"], given["split"] or "test", feeds)
                return {"values": {name: _number(array) for name, array in found.items()}}
            case _:
                if feeds:
                    session.run(list(feeds), feeds)
                checked = session.check_gradients(given["y"], given["xs"])
                return {"text": str(checked), "ok": bool(checked.ok)}
        return {}

    def _loop(self, session: Session, feeds: dict[str, Any]) -> dict[str, Any]:
        record = {str(session.page.wire(name)): name for name in self.given["record"]}
        self._steps = self.given["steps"]
        piece = 1
        while self._taken < self._steps and not self._stopping.is_set():
            begun = monotonic()
            count = min(piece, self._steps - self._taken)
            history = session.loop(count, feeds, record=record, progress=self._report)
            self._taken += history.steps
            for wire, name in record.items():
                self._recorded.setdefault(name, []).extend(map(_number, history[wire]))
            if history.cancelled or history.results.errors:
                break
            self._progress(Progress(0, self._steps, 0, 0, None))
            seconds = monotonic() - begun
            piece = piece * 2 if seconds < OFTEN / 2 else max(1, piece // 2) if seconds > 2 * OFTEN else piece
        return {"steps": self._taken}

    def _report(self, progress: Progress) -> None:
        """Called by the session before each block."""
        if self._stopping.is_set():
            self.document.session.cancel()  # again: a run that was just beginning has forgotten the first
        if progress.block is not None:
            self._progress(progress)

    def _progress(self, progress: Progress) -> None:
        now = monotonic()
        if now - self._last_progress < OFTEN:
            return
        events = [self.event(progress)]
        if now - self._last_look > max(SELDOM, SHARE * self._look_seconds):
            found = self.document.result_changes()
            self._last_look = monotonic()
            self._look_seconds = self._last_look - now
            events += [found] if found is not None else []
        self._tell(events)
        self._last_progress = monotonic()

    def event_now(self) -> Event:
        """That it is running, for those who have just come; what was recorded is left for the next event."""
        kept, self._recorded = self._recorded, {}
        event = self.event(Progress(0, self._steps, 0, 0, None))
        self._recorded = kept
        return event

    def event(self, progress: Progress | None) -> Event:
        """How far it is, with what was recorded since the last time; None: it is over."""
        recorded, self._recorded = self._recorded, {}
        step = self._taken + (progress.step if progress else 0)
        return {
            "event": "progress",
            "running": progress is not None,
            "step": min(step, self._steps),
            "steps": self._steps,
            "done": progress.done if progress else 0,
            "total": progress.total if progress else 0,
            "block": progress.block if progress else None,
            "recorded": recorded,
        }


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
