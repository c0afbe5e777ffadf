"""An open document: a page, the session that runs it, its history, its file and its draft, and who is watching.

A document is changed by one command at a time, in a worker thread, under `lock`. The session runs a twin of the page:
it gets the page's blocks when a run begins, so that the page can be drawn on while it runs. As long as it does, only
the run touches the session.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import Block, BlockResult, Page, Results, Session
from rowgrad.blocks.groups import is_in
from rowgrad.blocks.inference import Inferred
from rowgrad.blocks.page import State
from rowgrad.errors import RowgradError
from rowgrad_studio import views
from rowgrad_studio.drafts import Drafts
from rowgrad_studio.files import Folder, Opened, Stamp
from rowgrad_studio.history import History, same_state
from rowgrad_studio.looking import difference
from rowgrad_studio.messages import encoded
from rowgrad_studio.problems import Refusal, problem
from rowgrad_studio.recordings import Recordings

if TYPE_CHECKING:
    from rowgrad_studio.runs import Run

log = logging.getLogger("rowgrad_studio")

MOST_WAITING = 500  # events that a tab may be behind; then it is cut off, and connects again
MOST_ANSWERS = 20  # that a draft keeps
QUICK = 0.2  # seconds; a draft that takes longer is written after the answer, not before

Event = dict[str, Any]


class Subscriber:
    """A tab that watches a document; `drop` cuts it off."""

    def __init__(self, drop: Callable[[], object]) -> None:
        self.queue: asyncio.Queue[str] = asyncio.Queue(MOST_WAITING)
        self.drop = drop

    def tell(self, text: str) -> bool:
        """Send `text` when the tab is ready for it; False if it is too far behind, and was cut off."""
        try:
            self.queue.put_nowait(text)
        except asyncio.QueueFull:
            self.drop()
            return False
        return True


class Document:
    """One page that is open, in one tab or several; one `is_shared` with a program that may change it too."""

    def __init__(self, id: str, opened: Opened, folder: Folder, drafts: Drafts, *, is_shared: bool = False) -> None:
        self.id = id
        self.page = opened.page
        self.is_shared = is_shared
        self._told = opened.page.state()
        self.path = opened.path
        self.stamp: Stamp | None = opened.stamp
        self.noticed: Stamp | None = None  # the change on disk that was told of
        self.saved: State | None = opened.page.state()
        self.folder = folder
        self.drafts = drafts
        self.history = History()
        self.session = Session(Page())
        self.feeds: dict[str, Any] = {}
        self.recordings = Recordings()
        self._difference: tuple[Array, Array, Array] | None = None
        self._sliding: tuple[str, int] | None = None  # the last gesture, where a slider made it
        self.run: Run | None = None
        self.lock = asyncio.Lock()
        self.subscribers: set[Subscriber] = set()
        self.answers: deque[tuple[str, int, dict[str, Any]]] = deque(maxlen=MOST_ANSWERS)
        self.draft_is_due = False
        self._draft_seconds = 0.0
        self._revision = 0
        self._blocks: dict[str, tuple[Block, Inferred, dict[str, Any]]] = {}
        self._results: dict[str, tuple[BlockResult, dict[str, Any]]] = {}
        self._known: dict[str, BlockResult] = {}
        self._ran: dict[str, views.Ran] = {}
        self._head: dict[str, Any] = {}
        self.changes()

    # Changing

    def edit(self, label: str, change: Callable[[Page], Any], slide: int | None = None) -> Any:
        """Make one gesture: all of `change` or nothing, and one step of `undo`; gives what `change` gives.

        All changes of one `slide` of a slider are one gesture.
        """
        before = self.page.state()
        with self.page.changing():
            found = change(self.page)
        if not same_state(before, self.page.state()):
            sliding = None if slide is None else (label, slide)
            if sliding is None or sliding != self._sliding or self.history.undo_label != label:
                self.history.add(label, before)
            self._sliding = sliding
        return found

    @property
    def is_dirty(self) -> bool:
        """Whether there is anything that was not saved."""
        return self.saved is None or not same_state(self.saved, self.page.state())

    def notice(self) -> bool:
        """Make one gesture of what the program changed since the last command; whether there was anything."""
        found = self.is_shared and not same_state(self._told, self.page.state())
        if found:
            self.history.add("change in Python", self._told)
            self._told = self.page.state()
        return found

    @property
    def is_idle(self) -> bool:
        """Whether nobody needs it now: it can be opened again from its draft or its file."""
        return not self.subscribers and self.run is None and not self.is_shared

    # Looking

    def noticed_changes(self) -> list[Event]:
        """What the program has changed, as events."""
        return self.changes() if self.notice() else []

    def changes(self) -> list[Event]:
        """What is new since the last time, as events."""
        events = [self._page_changes(), self.result_changes() if self.run is None else None]
        return [event for event in events if event is not None]

    def whole(self) -> list[Event]:
        """Everything, for a tab that has just come."""
        blocks = {id: view for id, (_, _, view) in self._blocks.items()}
        results = {id: view for id, (_, view) in self._results.items()}
        return [
            {"event": "page", "whole": True, **self._head, "blocks": blocks},
            {"event": "results", "whole": True, "blocks": results},
            self.recordings.event(whole=True),
        ]

    def _page_changes(self) -> Event | None:
        page, before = self.page.copy() if self.is_shared else self.page, self._blocks
        if self.is_shared:
            self._told = page.state()
        shown = page.view() if page.groups else page  # a collapsed group is one block
        found: dict[str, tuple[Block, Inferred, dict[str, Any]]] = {}
        changed: dict[str, dict[str, Any] | None] = {id: None for id in before if id not in shown}
        for block in shown:
            inferred, known = shown.inferred(block.id), before.get(block.id)
            if known is None or known[0] is not block or known[1] is not inferred:
                view = views.block_view(shown, block)
                if known is None or known[2] != view:  # groups are made anew each time
                    changed[block.id] = view
                known = (block, inferred, view)
            found[block.id] = known
        head = {
            "name": page.name,
            "path": self.path,
            "dirty": self.is_dirty,
            "undo": self.history.undo_label,
            "redo": self.history.redo_label,
            "order": shown.order(),
            "groups": [views.group_view(page, group) for group in page.groups.values()],
            "notes": [views.note_view(note) for note in page.notes],
            "problems": [_seen(problem(error), shown, page) for error in page.problems()],
        }
        if not changed and head == {name: value for name, value in self._head.items() if name != "revision"}:
            return None
        self._revision += 1
        self._blocks, self._head = found, {"revision": self._revision, **head}
        return {"event": "page", "whole": False, **self._head, "blocks": changed}

    def result_changes(self) -> Event | None:
        """The results that are not as they were; called by the run, as long as there is one."""
        if self.run is None:
            self.pass_on()
        page, before = self.session.page, self._results
        self._known = views.results_of(page, self.session, self._ran)
        shown = page.view() if page.groups else page
        found: dict[str, tuple[BlockResult, dict[str, Any]]] = {}
        changed: dict[str, dict[str, Any] | None] = {id: None for id in before if id not in shown}
        for block in shown:
            id = block.id
            result = self._known[id] if id in self._known else views.group_result(page, id, self._known)
            known = before.get(id)
            if known is None or not views.same_result(known[0], result):
                known = (result, views.result_view(result))
                changed[id] = known[1]
            found[id] = known
        self._results = found
        return {"event": "results", "whole": False, "blocks": changed} if changed else None

    def pass_on(self) -> None:
        """Give the session the page as it is now."""
        self.session.page.restore(self.page.state())
        self.session.page.folder = self.page.folder

    def result(self, id: str) -> BlockResult:
        """What is known of a block."""
        if id not in self._results:
            raise Refusal(f"there is no block {id!r} with results.", "unknown-block", argument="block", value=id)
        return self._results[id][0]

    def compared(self, id: str, pin: str, against: str) -> Array:
        """An output less that of another run; the last difference is kept, because it is looked at in parts."""
        array, other = self.result(id)[pin], self.recordings.result(against, id, pin)
        if self._difference is None or self._difference[0] is not array or self._difference[1] is not other:
            self._difference = (array, other, difference(array, other))
        return self._difference[2]

    def shown(self) -> dict[str, BlockResult]:
        """What is known of what is seen: blocks, and groups that are collapsed."""
        return {id: result for id, (result, _) in self._results.items()}

    def results(self) -> Results:
        """What is known of all blocks."""
        return Results(self._known)

    def fed(self) -> dict[str, Any]:
        """What is fed to the placeholders that are still there."""
        return {
            id: value
            for id, value in self.feeds.items()
            if id in self.page and self.page[id].operator.role == "placeholder"
        }

    # Telling

    def publish(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Tell all tabs; one that is too far behind is not waited for."""
        for event in events:
            text = encoded(event)
            for subscriber in tuple(self.subscribers):
                if not subscriber.tell(text):
                    self.subscribers.discard(subscriber)

    # Keeping

    def keep_draft(self, late: bool = False) -> None:
        """Write what was not saved, or forget the draft if all is saved; a slow one is left for `late`."""
        if self.is_shared:
            return  # the program has the page
        if not self.is_dirty:
            self.draft_is_due = False
            self.drafts.remove(self.id)
            return
        if self._draft_seconds > QUICK and not late:
            self.draft_is_due = True
            return
        begun = monotonic()
        self.draft_is_due = False
        try:
            text = self.page.to_json()
        except RowgradError as error:
            log.warning("there is no draft of %s: %s", self.page.name, error)
            return
        place = (self.page.folder or self.folder.root).resolve().relative_to(self.folder.root).as_posix()
        draft: dict[str, Any] = {
            "name": self.page.name,
            "path": self.path,
            "place": place,
            "page": text,
            "feeds": self.feeds,
        }
        draft |= {"stamp": self.stamp, "answers": list(self.answers)}
        self.drafts.write(self.id, draft)
        self._draft_seconds = monotonic() - begun


def _seen(told: dict[str, Any], shown: Page, page: Page) -> dict[str, Any]:
    """A problem, at the group that hides its block."""
    id = told["block"]
    if id is None or id in shown or id not in page:
        return told
    owner = next((name for name in page.groups if name in shown and is_in(page[id].group, name)), None)
    return {**told, "block": owner, "pin": None, "message": f"{id}: {told['message']}"}


def restored(id: str, draft: Mapping[str, Any], folder: Folder, drafts: Drafts) -> Document:
    """The document that a draft was made of."""
    place = (folder.root / draft["place"]).resolve()
    inside = place if place.is_relative_to(folder.root) and place.is_dir() else folder.root
    page = Page.from_json(draft["page"], folder=inside)
    document = Document(id, Opened(page, draft["path"], _stamp(draft.get("stamp"))), folder, drafts)
    document.saved = None
    document.feeds = dict(draft["feeds"])
    for answer in draft["answers"]:
        if isinstance(answer, list) and len(answer) == 3:
            document.answers.append((answer[0], answer[1], answer[2]))
    document.changes()
    return document


def _stamp(kept: Any) -> Stamp | None:
    return Stamp(*kept) if isinstance(kept, list) and len(kept) == 3 else None
