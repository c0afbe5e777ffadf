"""What a log holds, brought into the files of a table or a set, or laid over them by those who may only read."""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from rowgrad.errors import FileError
from rowgrad.tables import _header as headers
from rowgrad.tables import _journal as journal
from rowgrad.tables import _log as log
from rowgrad.tables._commits import Commits
from rowgrad.tables._header import Header, Part
from rowgrad.tables._home import Home
from rowgrad.tables._mapping import Mapping as MappedArray
from rowgrad.tables._mapping import open_array, runs, write_at

PATIENCE = 60.0  # seconds to wait for readers that look at the files


class State(NamedTuple):
    """The headers and the caller's record at a commit."""

    headers: dict[str, Header]
    record: Any


class Found(NamedTuple):
    """The commits in the logs of a home, and whether one that was not completed follows them."""

    records: list[log.Record]
    has_rest: bool


def find(home: Home) -> Found:
    """The commits in all logs, oldest first."""
    records: list[log.Record] = []
    has_rest = False
    for path in log.paths(home.folder):
        if has_rest:
            raise log.damaged(path, "the log before it has no end")
        found = log.scan(path, home.identity)
        # A log is begun only when the one before is whole; an empty one was never used.
        has_rest = found.has_rest
        records += found.records
    return Found(records, has_rest)


def state_of(home: Home, record: log.Record) -> State:
    """What the tables were at a commit."""
    text = log.text_of(record)
    try:
        found = {name: Header.parse(header, str(record.path)) for name, header in text["headers"].items()}
        told = text["record"]
    except (KeyError, TypeError, AttributeError) as error:
        raise log.damaged(record.path, f"a record has a field that is missing or wrong ({error!r})") from error
    if set(found) != set(home.tables):
        raise log.damaged(record.path, "it is about other tables")
    return State({name: found[name] for name in home.tables}, told)


def parts_of(found: Mapping[str, Header]) -> list[tuple[str, Part]]:
    """All arrays with the name of their table, in the order of the log's numbers."""
    return [(name, part) for name, header in found.items() for part in header.parts().values()]


def shapes_of(parts: Sequence[tuple[str, Part]]) -> list[tuple[int, int]]:
    """The rows and the bytes of a row of arrays, as the log counts them."""
    return [(part.rows, part.row_bytes) for _, part in parts]


def recover(home: Home, shared: Commits) -> str | None:
    """Bring all complete commits into the files, and remove the logs; tells what was found.

    The caller has the lock. May be ended at any moment and done again.
    """
    settled = None if home.is_set else settle_journal(home.folder)
    found = find(home)
    if not log.paths(home.folder):
        if shared.is_torn:  # the logs are gone, so all of their rows are in the files
            with shared.applying(shared.applied):
                pass
        return settled
    with shared.locked(exclusive=True, patience=PATIENCE) as held:
        if not held:
            raise FileError(
                f"{home.folder} is being opened by a reader that hangs. End it, and open the table again.",
                code="table-locked",
                argument="path",
            )
        if found.records:
            last = found.records[-1]
            state = state_of(home, last)
            replay(found.records, state, home.tables, shared)
            home.write(state.headers, state.record)
            shared.set_complete(last.sequence)
        for path in log.paths(home.folder):
            path.unlink()
        headers.sync_folder(home.folder)
    if found.has_rest:
        return "discarded"
    return "replayed" if found.records else settled  # a log may have been begun, and nothing written to it


def replay(records: Sequence[log.Record], state: State, folders: Mapping[str, Path], shared: Commits | None) -> None:
    """Write the rows of commits into files, which are then on the disk."""
    parts = parts_of(state.headers)
    shapes = shapes_of(parts)
    for record in records:  # all of it is checked before anything is changed
        for _ in log.read_rows(record, shapes):
            pass
    with ExitStack() as stack:
        handles = []
        for name, part in parts:
            handles.append(open_array(folders[name] / part.file, part.dtype, part.shape, os.O_RDWR))
            stack.callback(os.close, handles[-1])
        if shared is not None:
            stack.enter_context(shared.applying(records[-1].sequence))
        for record in records:
            for number, rows, contents in log.read_rows(record, shapes):
                size, done = shapes[number][1], 0
                flat = contents.reshape(-1).data
                for first, stop in runs(rows):
                    write_at(handles[number], flat[done : done + (stop - first) * size], first * size)
                    done += (stop - first) * size
        for handle in handles:
            os.fsync(handle)


def overlay(records: Sequence[log.Record], state: State, parts: Sequence[MappedArray]) -> None:
    """Lay the rows of commits over arrays, in private memory."""
    shapes = shapes_of(parts_of(state.headers))
    for record in records:
        for number, rows, contents in log.read_rows(record, shapes):
            parts[number].overlay(rows, contents)


def settle_journal(folder: Path) -> str | None:
    """Finish or undo the flush of a rowgrad that kept journals of pages (version 1); tells which."""
    if not os.path.lexists(folder / journal.NAME):
        return None
    if not journal.is_complete(folder):
        journal.remove(folder)
        return "discarded"
    if journal.check(folder).id != headers.read(folder).id:
        raise FileError(
            f"{folder / journal.NAME} is the journal of another table. Remove it, if it was copied here by hand.",
            code="bad-journal",
        )
    journal.replay(folder)
    return "replayed"
