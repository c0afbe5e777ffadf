"""Several tables in one folder that are committed together, with a small record of the caller's."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rowgrad._runtime import dtypes
from rowgrad.errors import FileError, InvalidArgumentError
from rowgrad.tables import _creating as creating
from rowgrad.tables import _header as headers
from rowgrad.tables import _home as home
from rowgrad.tables import _opening as opening
from rowgrad.tables import _options as options
from rowgrad.tables import _snapshots as snapshots
from rowgrad.tables._dirty import Dirty
from rowgrad.tables._open_folder import OpenFolder
from rowgrad.tables._store import Store
from rowgrad.tables._table import Table


class TableSet(OpenFolder):
    """Tables that are committed together: `flush` writes the changes of all tables and a record, or nothing.

    Use `TableSet.create` or `TableSet.open`. ``tables["name"]`` is a `Table`; its steps do not flush, since other
    tables may still have to make theirs. Call `end_step` when all have. See docs/tables.md.

    Attributes
    ----------
    path : Path
        The folder.
    recovered : {None, "replayed", "discarded"}
        What opening found of an interrupted flush, as for a `Table`.
    auto_flush : bool
        Whether `end_step` flushes when changes exceed `max_dirty`.

    Examples
    --------
    >>> import tempfile
    >>> import rowgrad
    >>> from rowgrad.optim import SGD
    >>> folder = tempfile.TemporaryDirectory()
    >>> with rowgrad.TableSet.create(folder.name + "/model") as tables:
    ...     users = tables.create_table("users", 1000, 2, optimizer=SGD(lr=0.5))
    ...     items = tables.create_table("items", 500, 2, optimizer=SGD(lr=0.5), keys="int64")
    ...     users.step_pooled([[2.0, 4.0]], [1, 3], [0, 0], combiner="mean")
    ...     items.step_pooled([[2.0, 4.0]], items.keys.add([77_000]), [0])
    ...     tables.flush(record={"step": 1, "dense": "dense-1.pt"})
    >>> with rowgrad.TableSet.open(folder.name + "/model", mode="r") as tables:
    ...     print(tables, tables.record, tables["items"].keys.look_up([77_000]))
    TableSet(users: step 1, items: step 1) {'step': 1, 'dense': 'dense-1.pt'} [0]
    >>> folder.cleanup()
    """

    _called = "set"
    _content = ("tables", "them")

    def __init__(self, path: Path, opened: opening.Opened, max_dirty: int, auto_flush: bool) -> None:
        super().__init__(path, opened.store, threading.RLock(), opened.recovered, auto_flush)
        self._record = opened.store.record
        self.dirty = Dirty(lambda: self._store.arrays, max_dirty)
        self._tables = {name: self._member(name) for name in self._store.headers}
        self._closed = False

    def _member(self, name: str) -> Table:
        folder = self._store.home.tables[name]
        return Table(folder, self._store, name, self._guard, recovered=self.recovered, owner=self)

    @classmethod
    def create(cls, path: str | os.PathLike[str], *, max_dirty: int | None = None,
               auto_flush: bool = True) -> "TableSet":  # fmt: skip
        """Create an empty set in a new folder, and open it; `create_table` adds tables.

        Parameters
        ----------
        path : path
            The folder to create.
        max_dirty : int, optional
            `end_step` flushes if more bytes of changed pages than this, of all tables together, are in memory; by
            default a quarter of the memory available to this process.
        auto_flush : bool
            Whether `end_step` flushes.
        """
        folder = Path(path).absolute()
        options.check_system()
        options.max_dirty_of(max_dirty)
        if os.path.lexists(folder):
            raise FileError(
                f"{folder} already exists. Open it with `rowgrad.TableSet.open`, or choose another path.",
                code="exists",
                argument="path",
            )
        new = creating.unfinished(folder)
        made = home.Home(new, os.urandom(16).hex(), {}, is_set=True)
        with creating.whole_or_nothing(folder, lambda: snapshots.remove_copy(made)):
            (new / home.TABLES).mkdir(parents=True)
            made.locked.touch()
            home.write_set(new, made.identity, [], None)
            new.rename(folder)
            headers.sync_folder(folder.parent)
        return cls.open(folder, max_dirty=max_dirty, auto_flush=auto_flush)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, mode: str = "r+", max_dirty: int | None = None,
             auto_flush: bool = True) -> "TableSet":  # fmt: skip
        """Open a set of tables, finishing or undoing an interrupted flush.

        Parameters
        ----------
        path : path
            The folder.
        mode : {"r+", "r"}
            "r+" reads and writes, one process at a time; "r" only reads, in any number of processes.
        max_dirty, auto_flush
            As for `create`.
        """
        folder = Path(path).absolute()
        allowed = options.max_dirty_of(max_dirty)
        opened = opening.open_home(home.of_set, folder, mode)
        try:
            return cls(folder, opened, allowed, auto_flush)
        except BaseException:
            opened.store.close(settle=False)
            raise

    def create_table(self, name: str, rows: int, width: int, dtype: Any = "float32", *, optimizer: Any = None,
                     initializer: Any = 0.0, progress: Callable[[int, int], None] | None = None,
                     state_initializers: dict[str, Callable[[int, Any], Any]] | None = None,
                     keys: Any = None) -> Table:  # fmt: skip
        """Add a table to the set; earlier changes are flushed first. Arguments are those of `Table.create`."""
        store = self._check_writer()
        home.check_name(name)
        if name in self._tables:
            raise InvalidArgumentError(
                f"the set has a table {name!r} already.", code="exists", argument="name", value=name
            )
        header = creating.describe(rows, width, dtype, optimizer, options.key_settings(keys, rows), in_set=True)
        state = creating.state_rows(optimizer, header.width, dtypes.NUMPY[header.dtype])
        with self._guard:
            self._commit(store, 0)
            store.settle()
            folder = self.path / home.TABLES / name
            # What is there without being listed was left by a process that ended before it could be.
            creating.create(folder, header, state, initializer, True, progress, state_initializers)
            opening.add_table(store, name)
            self._tables[name] = self._member(name)
        return self._tables[name]

    # What it holds

    def __getitem__(self, name: str) -> Table:
        self._check_open()
        try:
            return self._tables[name]
        except (KeyError, TypeError):  # what cannot be hashed is no name either
            raise InvalidArgumentError(
                f"there is no table {name!r}; the set has {', '.join(self._tables) or 'none'}.",
                code="no-such-table",
                argument="name",
                value=name,
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._tables

    def __repr__(self) -> str:
        tables = ", ".join(f"{name}: step {table.steps}" for name, table in self._tables.items())
        return f"TableSet({tables or 'no tables'}{', closed' if self._closed else ''})"

    @property
    def record(self) -> Any:
        """The record of the last flush, or the one that the next will write."""
        return self._record

    @property
    def max_dirty(self) -> int:
        """`end_step` flushes if more bytes of changed pages than this are in memory."""
        return self.dirty.max_dirty

    # Commits

    def flush(self, record: Any = None) -> None:
        """Write the changes of all tables, and the record, to the disk, all or nothing.

        While it runs, other threads must not write to the arrays. When it returns, the step is on the disk.

        Parameters
        ----------
        record : JSON, optional
            Your data that belongs to the step: its number, the name of a checkpoint, the position in the data set. Up
            to 1 MB; by default the previous record stays.
        """
        store = self._check_writer()
        with self._guard:
            if record is not None:
                self._record = home.check_record(record)
            self._commit(store, self.max_dirty)

    def _commit(self, store: Store, max_dirty: int) -> None:
        found = {name: table.next_header() for name, table in self._tables.items()}
        self.dirty.reset(store.commit(found, self._record, max_dirty))

    def end_step(self, record: Any = None) -> None:
        """Call this when all tables have made their steps; flushes beyond `max_dirty`, unless `auto_flush` is False."""
        self._check_writer()
        with self._guard:
            if record is not None:
                self._record = home.check_record(record)
            if self.auto_flush and self.dirty.is_too_much():
                self.flush()

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Copy all tables and the record as of the last flush; see `Table.snapshot`."""
        store = self._check_writer()
        snapshots.take(store, self._guard, Path(path).absolute())

    def refresh(self) -> Any:
        """Update all tables of a set that is open for reading to the last flushed step, and return its record."""
        view = self._check_reader()
        with self._guard:
            view.refresh()
            for name in view.headers:
                if name in self._tables:
                    self._tables[name].follow()
                else:
                    self._tables[name] = self._member(name)
            self._record = view.record
        return self._record

    # Its end

    def close(self, *, flush: bool = True) -> None:
        """Flush, unless `flush` is False or a step was interrupted, and release the set for others."""
        if self._closed:
            return
        is_writer = self._is_writer()
        if is_writer and flush and all(table._whole for table in self._tables.values()):
            store = self._check_writer()
            with self._guard:  # readers are not waited for any more
                self._commit(store, 0)
        self._closed = True
        for table in self._tables.values():
            table.end(flush=False)
        self._store.close(settle=is_writer)

    def __enter__(self) -> "TableSet":
        self._check_open()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Close the set; after an exception without a flush, since some tables may have made a step and others not."""
        self.close(flush=kind is None)

    def _check_writer(self) -> Store:
        self._check_open()
        for table in self._tables.values():
            table._check_writer()
        return super()._check_writer()
