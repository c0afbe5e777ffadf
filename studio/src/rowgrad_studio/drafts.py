"""Drafts: what was not saved, kept after every gesture in `.rowgrad/drafts`, so that a crash loses nothing.

A draft also has the last answers that were given. A browser that did not hear them asks again when the studio is back,
and what it asked for is not done twice.
"""

import json
import logging
import re
from functools import partial
from pathlib import Path
from typing import IO, Any

from rowgrad._runtime.files import replace
from rowgrad_studio.files import OWN, Folder
from rowgrad_studio.messages import decoded, encoded
from rowgrad_studio.problems import Refusal

log = logging.getLogger("rowgrad_studio")

VERSION = 1
ENDING = ".draft.json"
OPEN = "open.json"
MOST_NAMED = 4  # operators that a draft is told by
MOST_OPEN = 200  # documents whose files are remembered
ID = re.compile(r"[0-9a-f]{16}")


class Drafts:
    """The drafts in a folder, and which documents were open there."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._has_failed = False

    @property
    def _place(self) -> Path:
        return self._folder.own("drafts")

    def write(self, id: str, draft: dict[str, Any]) -> None:
        """Keep `draft`; where that is not possible, work goes on without."""
        try:
            replace(self._place / f"{id}{ENDING}", partial(_put, {"rowgrad_draft": VERSION, **draft}))
        except OSError as error:
            if not self._has_failed:
                log.warning("drafts cannot be kept in %s: %s", self._folder.root, error.strerror or error)
            self._has_failed = True

    def read(self, id: str) -> dict[str, Any] | None:
        """The draft of a document, or None."""
        if not ID.fullmatch(id):
            return None
        return _read(self._folder.root / OWN / "drafts" / f"{id}{ENDING}")

    def remove(self, id: str) -> None:
        """Forget a draft."""
        if ID.fullmatch(id):
            (self._folder.root / OWN / "drafts" / f"{id}{ENDING}").unlink(missing_ok=True)

    def all(self) -> list[dict[str, Any]]:
        """What there is to go on with, the newest first."""
        found = []
        for path in (self._folder.root / OWN / "drafts").glob(f"*{ENDING}"):
            id = path.name.removesuffix(ENDING)
            draft = self.read(id)
            if draft is not None:
                entry = {"id": id, "name": draft["name"], "path": draft["path"], "about": _about(draft["page"])}
                found.append({**entry, "modified": path.stat().st_mtime})
        return sorted(found, key=lambda entry: -entry["modified"])

    def remember(self, id: str, origin: dict[str, str]) -> None:
        """Document `id` came from `origin`, the fields of the request; a studio that is started anew opens it again."""
        place = self._folder.root / OWN / OPEN
        known = _json(place) or {}
        if known.get(id) == origin:
            return
        known.pop(id, None)
        known[id] = origin
        kept = dict(list(known.items())[-MOST_OPEN:])
        try:
            self._folder.own("drafts")
            replace(place, partial(_put, kept))
        except OSError:
            pass  # only convenience is lost

    def origin(self, id: str) -> dict[str, Any] | None:
        """What document `id` came from, if it was open once."""
        found = (_json(self._folder.root / OWN / OPEN) or {}).get(id)
        return found if isinstance(found, dict) and ID.fullmatch(id) else None


def _about(page: str) -> str:
    """What is on a page that has no name of its own yet: how many blocks, and which."""
    try:
        ops = [block["op"] for block in json.loads(page)["blocks"]]
    except (ValueError, KeyError, TypeError):
        return ""
    kinds = list(dict.fromkeys(map(str, ops)))
    shown = ", ".join(kinds[:MOST_NAMED]) + (", …" if len(kinds) > MOST_NAMED else "")
    return f"{len(ops)} block{'' if len(ops) == 1 else 's'}: {shown}" if ops else "no blocks"


def _put(record: dict[str, Any], file: IO[bytes]) -> None:
    file.write(encoded(record).encode())


def _json(path: Path) -> dict[str, Any] | None:
    try:
        return decoded(path.read_bytes(), path.name)
    except (OSError, Refusal):
        return None


def _read(path: Path) -> dict[str, Any] | None:
    """A whole draft, or None: files in the folder may be anybody's."""
    draft = _json(path)
    wanted = {"page": str, "name": str, "place": str, "feeds": dict, "answers": list}
    if draft is None or draft.get("rowgrad_draft") != VERSION or not isinstance(draft.get("path"), str | None):
        return None
    return draft if all(isinstance(draft.get(name), kind) for name, kind in wanted.items()) else None
