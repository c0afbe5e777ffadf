"""Opening the folder of a table or a set: for its writer, who first finishes what was cut off, or for readers."""

import time
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from rowgrad._runtime import limits
from rowgrad.errors import FileError
from rowgrad.tables import _commits as commits
from rowgrad.tables import _header as headers
from rowgrad.tables import _home as homes
from rowgrad.tables import _journal as journal
from rowgrad.tables import _log as log
from rowgrad.tables import _options as options
from rowgrad.tables import _recovery as recovery
from rowgrad.tables._commits import Commits, Reader
from rowgrad.tables._creating import is_full
from rowgrad.tables._header import VERSION, Header
from rowgrad.tables._home import Home
from rowgrad.tables._lock import Lock
from rowgrad.tables._mapping import Mapping as MappedArray
from rowgrad.tables._recovery import State
from rowgrad.tables._store import Parts, Store

PATIENCE = 60.0  # seconds that a reader waits for a writer that writes into the files
AGAIN = 0.02  # seconds until it looks again


class Opened(NamedTuple):
    """A store in the hands of a writer or a reader, and what became of a flush that was cut off."""

    store: "Store | View"
    recovered: str | None


def open_home(find: Callable[[Path], Home], folder: Path, mode: str) -> Opened:
    """Open what `find` finds in `folder`; errors of the system become `FileError`."""
    options.check_system()
    options.check_mode(mode)
    home = find(folder)  # whatever is not a table is not touched
    try:
        return to_write(home) if mode == "r+" else to_read(home)
    except OSError as error:
        hint = ' Open it with mode="r".' if mode == "r+" and isinstance(error, PermissionError) else ""
        raise FileError(
            f"{folder} cannot be opened ({error.strerror}: {error.filename}).{hint}",
            code="disk-full" if is_full(error) else "cannot-open",
            argument="path",
        ) from error


def to_write(home: Home) -> Opened:
    """Open for the one who may change it."""
    lock = Lock(home)
    parts: Parts = {}
    try:
        shared = Commits(home.folder, writable=True)
        recovered = recovery.recover(home, shared)
        found, record = home.headers(), home.record()
        if any(header.version != VERSION for header in found.values()):
            # Before the first log: an older rowgrad would not see it, and must not open the table.
            found = {name: header.at(header.steps, header.optimizer) for name, header in found.items()}
            home.write(found, record)
        parts = _map(home, found, writable=True)
        return Opened(Store(home, lock, parts, found, record, shared), recovered)
    except BaseException:
        _close(parts)
        lock.release()
        raise


def to_read(home: Home) -> Opened:
    """Open for one of any number of readers, whether someone writes or not."""
    view = View(home)
    try:
        return Opened(view, view.refresh())
    except BaseException:
        view.close(settle=False)
        raise


class View:
    """The tables at one commit, for a reader. The view stays as it is until `refresh`, as long as it is current.

    The writer leaves rows that this reader needs in the files until it moves on. It does not wait for ever: then
    `is_current` is False, and the view is to be refreshed.
    """

    def __init__(self, home: Home) -> None:
        self.home = home
        self.parts: Parts = {}
        self.headers: dict[str, Header] = {}
        self.record: Any = None
        self._shared: Commits | None = None
        self._reader: Reader | None = None
        self._shown = 0
        self._is_laid_over = False

    @property
    def arrays(self) -> list[MappedArray]:
        """All arrays, in the order of the log's numbers."""
        return [part for parts in self.parts.values() for part in parts.values()]

    def refresh(self) -> str | None:
        """Show the last commit; tells what became of one that was cut off."""
        deadline = time.monotonic() + PATIENCE
        recovered = None
        while True:
            done = self._try(time.monotonic() > deadline)
            if done == "shown":
                return recovered
            if done in ("replayed", "discarded"):
                recovered = done
            elif done == "overlaid":
                return "replayed"
            else:
                time.sleep(AGAIN)

    def _try(self, is_late: bool) -> str:
        if self._is_cut_off():
            try:
                return self._recover()
            except (PermissionError, FileError) as error:
                if isinstance(error, FileError) and error.code not in ("cannot-lock", "table-locked"):
                    raise
                if not (isinstance(error, FileError) and error.code == "table-locked"):
                    return self._overlay_all()
                # A writer is at work.
                if is_late:
                    raise
        if self._shared is not None and not self._shared.is_in_place():
            self._part_from_writer()
        if self._shared is None and not self._meet_writer():
            self._show(State(self.home.headers(), self.home.record()), [], 0)
            return "shown"
        assert self._shared is not None
        with self._shared.locked(exclusive=False, patience=PATIENCE) as held:
            if not held or self._shared.is_torn:  # its writer ended, or is just beginning
                if is_late:
                    raise FileError(f"{self.home.folder} is between two steps, and no writer finishes it. Open it for "
                                    "writing.", code="table-locked")  # fmt: skip
                return "wait"
            applied, complete = self._shared.applied, self._shared.complete
            if self._is_in_journal():
                return "wait"
            if self.home.is_set:  # tables may have been added; commits up to this one know no others
                self.home = homes.of_set(self.home.folder)
            records = [record for record in recovery.find(self.home).records if record.sequence <= complete]
            state = recovery.state_of(self.home, records[-1]) if records else None
            if state is None:
                state = State(self.home.headers(), self.home.record())
            self._show(state, [record for record in records if record.sequence > applied], max(applied, complete))
        return "shown"

    def _is_in_journal(self) -> bool:
        return not self.home.is_set and journal.is_complete(self.home.folder)

    def _is_cut_off(self) -> bool:
        """Whether there is something to finish, if nobody is at it."""
        return self._is_in_journal() or bool(log.paths(self.home.folder))

    def _recover(self) -> str:
        lock = Lock(self.home)
        try:
            shared = Commits(self.home.folder, writable=True)
            try:
                return recovery.recover(self.home, shared) or "again"
            finally:
                shared.close()
        finally:
            lock.release()

    def _meet_writer(self) -> bool:
        """Find the numbers that a writer shares, and tell it that this reader is there, if it may be told."""
        try:
            self._shared = Commits(self.home.folder, writable=False)
        except FileNotFoundError:
            return False
        try:
            self._reader = Reader(self.home.folder)
        except OSError:  # the folder must not be written to: then a writer does not wait for this reader
            self._reader = None
        return True

    def _part_from_writer(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._shared is not None:
            self._shared.close()
        self._reader = self._shared = None

    def _overlay_all(self) -> str:
        """What is complete in journal or log, laid over files that must not be changed."""
        if self._shared is None:
            self._meet_writer()
        if self._is_in_journal():
            header = journal.check(self.home.folder)
            self._map({"": header})
            mapped = self.arrays

            def put(number: int, offset: int, data: memoryview) -> None:
                mapped[number].bytes[offset : offset + len(data)] = data

            journal.read(self.home.folder, put)
            self.headers = {"": header}
            self._is_laid_over = True
            return "overlaid"
        records = recovery.find(self.home).records
        if records:
            self._show(recovery.state_of(self.home, records[-1]), records, records[-1].sequence)
        else:
            self._show(State(self.home.headers(), self.home.record()), [], 0)
        return "overlaid" if records else "shown"

    def _show(self, state: State, records: "list[log.Record]", sequence: int) -> None:
        self._map(state.headers)
        if self._is_laid_over:
            for part in self.arrays:
                part.drop_overlay()
        recovery.overlay(records, state, self.arrays)
        self._is_laid_over = bool(records)
        self.headers, self.record = state.headers, state.record
        self._shown = sequence
        if self._reader is not None:
            self._reader.show(sequence)

    def _map(self, found: dict[str, Header]) -> None:
        for part in self.arrays:
            part.check_place()
        new = _map(self.home, {name: found[name] for name in found if name not in self.parts}, writable=False)
        for parts in new.values():
            for part in parts.values():
                part.lock_array()
        self.parts |= new

    def is_current(self) -> bool:
        """Whether the files still are what this view shows, as far as it does not show its own memory."""
        if self._shared is None:
            return not (self.home.folder / commits.NAME).exists()
        return self._shared.applied <= self._shown and self._shared.is_in_place()

    def close(self, *, settle: bool) -> None:
        """Give up the files."""
        _close(self.parts)
        self._part_from_writer()


def add_table(store: Store, name: str) -> None:
    """Let a new table, whose files are there, belong to a set that is settled."""
    home = store.home
    home.tables[name] = home.folder / homes.TABLES / name
    try:
        found = headers.read(home.tables[name], in_set=True)
        parts = _map(home, {name: found}, writable=True)
        homes.write_set(home.folder, home.identity, list(home.tables), store.record)
    except BaseException:
        del home.tables[name]
        raise
    store.parts |= parts
    store.headers[name] = found


def _map(home: Home, found: dict[str, Header], *, writable: bool) -> Parts:
    parts: Parts = {}
    try:
        for name, header in found.items():
            parts[name] = {}
            for each, part in header.parts().items():
                mapped = MappedArray(home.tables[name] / part.file, part.dtype, part.shape, writable=writable)
                parts[name][each] = mapped
                if writable:
                    mapped.fill_holes_in_memory()
    except BaseException:
        _close(parts)
        raise
    sizes = [prod(part.shape) * part.dtype.itemsize for header in found.values() for part in header.parts().values()]
    if sum(sizes) > limits.available():
        for mapping in (mapping for mappings in parts.values() for mapping in mappings.values()):
            mapping.expect_random()
    return parts


def _close(parts: Parts) -> None:
    for mappings in parts.values():
        for mapping in mappings.values():
            mapping.close()
