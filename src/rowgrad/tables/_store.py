"""The files of a table, or of all tables of a set, in the hands of their writer: commits, and what follows from them.

A commit goes to the row log first; then its rows are written into the files, where the system keeps them in memory and
brings them to the disk when it likes. When the log has grown, a thread brings the files to the disk, and the log is
removed; new commits go to the next log meanwhile. While a reader shows an older commit, rows stay in the log and in
private memory, until it moves on or either grows too large.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.errors import FileError
from rowgrad.tables import _commits as commits
from rowgrad.tables import _log as log
from rowgrad.tables._creating import is_full
from rowgrad.tables._header import Header, sync_folder
from rowgrad.tables._home import Home
from rowgrad.tables._lock import Lock
from rowgrad.tables._mapping import PAGE
from rowgrad.tables._mapping import Mapping as MappedArray

LOG_LIMIT = 1 << 26  # bytes of a log from which on it is brought into the files
PATIENCE = 1.0  # seconds that a commit waits for readers that are just opening

Parts = dict[str, dict[str, MappedArray]]  # of each table by name


class Change(NamedTuple):
    """What a commit writes of one array: the rows that changed, and the pages they were found in."""

    part: MappedArray
    pages: Array
    rows: Array


class Store:
    """All that its writer holds: the lock, the mapped arrays, the log, headers and record of the last commit."""

    def __init__(self, home: Home, lock: Lock, parts: Parts, headers: Mapping[str, Header], record: Any,
                 shared: commits.Commits) -> None:  # fmt: skip
        self.home = home
        self.parts = parts
        self.headers = dict(headers)
        self.record = record
        self._lock = lock
        self._shared = shared
        self._sequence = max(shared.complete, shared.applied)
        self._log: log.Log | None = None
        self._number = 0
        self._waiting: dict[MappedArray, Array] = {}  # rows that are in the log, and not in the files
        self._retained = 0  # snapshots that need all of the log
        self._settler: threading.Thread | None = None
        self._failure: OSError | None = None

    @property
    def arrays(self) -> list[MappedArray]:
        """All arrays, in the order of the log's numbers."""
        return [part for parts in self.parts.values() for part in parts.values()]

    # Commits

    def commit(self, headers: Mapping[str, Header], record: Any, max_dirty: int) -> int:
        """Make what has changed permanent, all or nothing, and give back its memory where no reader is in the way.

        Tells how many pages were not given back. If they come to more than `max_dirty` bytes, readers have to refresh.
        """
        changes = [self._changed(part) for part in self.arrays]
        is_new = headers != self.headers or record != self.record or any(change.rows.size for change in changes)
        if is_new:
            self._write(headers, record, changes)
        if is_new or self._waiting:
            self._apply(changes, max_dirty)
        else:
            for change in changes:
                change.part.drop(change.pages)
        if self._log is not None and self._log.size > LOG_LIMIT and not self._waiting and not self._retained:
            self._begin_settling()
        return sum(change.pages.size for change in changes) if self._waiting else 0

    def _changed(self, part: MappedArray) -> Change:
        pages = part.changed()
        rows = part.changed_rows(pages)
        if part in self._waiting:  # they may have got back the values that the file has, and the log has others
            rows = np.union1d(rows, self._waiting[part])
        return Change(part, pages, rows)

    def _write(self, headers: Mapping[str, Header], record: Any, changes: list[Change]) -> None:
        for change in changes:
            change.part.check_place()
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
            for change in changes:
                if change.rows.size:
                    change.part.reserve(change.rows)
            if self._log is None:
                self._number += 1
                self._log = log.Log(self.home.folder, self._number, self.home.identity)
                sync_folder(self.home.folder)
            # Whatever ends this early, these rows are written again by the next commit.
            self._waiting |= {change.part: change.rows for change in changes if change.rows.size}
            text = {"headers": {name: header.as_json() for name, header in headers.items()}, "record": record}
            self._log.append(self._sequence + 1, text, [(change.part, change.rows) for change in changes])
        except OSError as error:
            steps = ", ".join(str(header.steps) for header in self.headers.values()) or "0"
            raise FileError(
                f"{self.home.folder} cannot be written ({error.strerror}): the files are those of step {steps}, and "
                "what has changed since is in memory. Make room on the disk, and flush again.",
                code="disk-full" if is_full(error) else "cannot-write",
            ) from error
        self._sequence += 1
        self.headers, self.record = dict(headers), record
        self._shared.set_complete(self._sequence)

    def _apply(self, changes: list[Change], max_dirty: int) -> None:
        """Write the rows of complete commits into the files, unless a reader shows an older commit."""
        oldest = commits.oldest_shown(self.home.folder)
        dirty = sum(change.pages.size for change in changes) * PAGE
        is_large = dirty > max_dirty or (self._log is not None and self._log.size > LOG_LIMIT)
        if oldest is not None and oldest < self._sequence and not is_large:
            return
        with self._shared.locked(exclusive=True, patience=PATIENCE) as held:
            if not held:
                return
            try:
                with self._shared.applying(self._sequence):
                    for change in changes:
                        change.part.write_rows(change.rows)
            except OSError as error:
                raise FileError(
                    f"{self.home.folder} cannot be written ({error.strerror}): the step is safe in the log, and will "
                    "be written into the files by the next flush or when the table is opened. Make room on the disk, "
                    "and flush again.",
                    code="disk-full" if is_full(error) else "cannot-write",
                ) from error
        self._waiting.clear()
        for change in changes:
            change.part.drop(change.pages)

    # The log's end

    def _begin_settling(self) -> None:
        """Let a thread bring the files to the disk and remove the logs up to now; the next commit begins another."""
        self._join()
        if self._log is None or self._failure is not None:
            return
        self._log.close()
        self._log = None
        paths = log.paths(self.home.folder)
        arguments = paths, self.headers, self.record
        self._settler = threading.Thread(target=self._settle_quietly, args=arguments, daemon=True)
        self._settler.start()

    def _settle_quietly(self, paths: list[Path], headers: dict[str, Header], record: Any) -> None:
        try:
            self._settle(paths, headers, record)
        except OSError as error:  # the next commit tells it; the logs are still there
            self._failure = error

    def _settle(self, paths: list[Path], headers: Mapping[str, Header], record: Any) -> None:
        for part in self.arrays:
            part.sync()
        self.home.write(headers, record)
        with self._shared.locked(exclusive=True, patience=60 * PATIENCE) as held:
            if held:  # else they are carried out again, which changes nothing
                for path in paths:
                    path.unlink(missing_ok=True)
        sync_folder(self.home.folder)

    def _join(self) -> None:
        if self._settler is not None:
            self._settler.join()
            self._settler = None

    def settle(self) -> None:
        """Bring everything that was committed into the files, and remove the logs."""
        self._join()
        self._failure = None
        if self._waiting:
            # Only rows that were committed: whoever changed others since has not flushed them.
            raise FileError(f"{self.home.folder}: rows of the log are not in the files yet.", code="cannot-write")
        if self._log is not None:
            self._log.close()
            self._log = None
        paths = log.paths(self.home.folder)
        if not paths:
            return
        try:
            self._settle(paths, self.headers, self.record)
        except OSError as error:
            raise FileError(
                f"{self.home.folder} cannot be written ({error.strerror}): the step is safe in the log, and will be "
                "written into the files when the table is opened.",
                code="disk-full" if is_full(error) else "cannot-write",
            ) from error

    @contextmanager
    def retained(self) -> Iterator[None]:
        """Within this, no log is removed."""
        self._retained += 1
        try:
            self._join()
            yield
        finally:
            self._retained -= 1

    def records(self) -> list[log.Record]:
        """The complete commits in the logs, oldest first."""
        return [record for path in log.paths(self.home.folder) for record in log.scan(path, self.home.identity).records]

    def close(self, *, settle: bool) -> None:
        """Give up files and lock; `settle` brings what was committed into the files first, where that is possible."""
        try:
            if settle and not self._waiting:
                self.settle()
        finally:
            if settle:
                self._join()
            if self._log is not None:
                self._log.close()
            for part in self.arrays:
                part.close()
            self._shared.close()
            self._lock.release()
