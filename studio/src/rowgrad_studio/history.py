"""Undo and redo: the states of a page before each gesture, with what the gesture was."""

from collections.abc import Collection

from rowgrad.blocks import Page
from rowgrad.blocks.page import State
from rowgrad_studio.problems import Refusal

MOST_STEPS = 500
MOST_BLOCKS = 2_000_000  # in all states together; a state shares its blocks with the others, but not the list of them


class History:
    """The gestures on a page."""

    def __init__(self) -> None:
        self._done: list[tuple[str, State]] = []
        self._undone: list[tuple[str, State]] = []

    @property
    def undo_label(self) -> str | None:
        """What `undo` would take back."""
        return self._done[-1][0] if self._done else None

    @property
    def redo_label(self) -> str | None:
        """What `redo` would do again."""
        return self._undone[-1][0] if self._undone else None

    def add(self, label: str, before: State) -> None:
        """A gesture was made; `before` is the page as it was."""
        self._done.append((label, before))
        self._undone.clear()
        held = sum(len(state.blocks) for _, state in self._done)
        while len(self._done) > MOST_STEPS or (held > MOST_BLOCKS and len(self._done) > 1):
            held -= len(self._done.pop(0)[1].blocks)

    def undo(self, page: Page) -> str:
        """Take the last gesture back; says what it was."""
        return self._exchange(page, self._done, self._undone, "there is nothing to undo.")

    def redo(self, page: Page) -> str:
        """Make the gesture that was taken back again; says what it was."""
        return self._exchange(page, self._undone, self._done, "there is nothing to redo.")

    def _exchange(
        self, page: Page, source: list[tuple[str, State]], target: list[tuple[str, State]], otherwise: str
    ) -> str:
        if not source:
            raise Refusal(otherwise, "nothing-to-do")
        label, state = source.pop()
        target.append((label, page.state()))
        page.restore(state)
        return label


def same_state(left: State, right: State) -> bool:
    """Whether a page is the same in both: blocks are immutable, so that it is enough to look which they are."""
    return (
        left.name == right.name
        and left.notes == right.notes
        and left.groups == right.groups
        and left.blocks.keys() == right.blocks.keys()
        and all(block is right.blocks[id] for id, block in left.blocks.items())
    )


def listed(ids: Collection[str], notes: Collection[str]) -> str:
    """What a gesture is about, in a few words."""
    if len(ids) + len(notes) == 1:
        return next(iter(ids), "a note")
    return " and ".join(f"{len(found)} {what}" for found, what in ((ids, "blocks"), (notes, "notes")) if found)
