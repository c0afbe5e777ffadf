"""The table on disk: what users hold. Changes wait in private memory until a flush commits them.

`_store` holds the files for a writer and `_opening` for a reader, `_log` makes commits whole, `_mapping` maps arrays.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad._ops import combiners
from rowgrad._runtime import dtypes, limits, notebooks
from rowgrad.errors import FileError, InvalidArgumentError, OutOfRangeError, RowgradError
from rowgrad.tables import _creating as creating
from rowgrad.tables import _home as home
from rowgrad.tables import _opening as opening
from rowgrad.tables import _options as options
from rowgrad.tables import _snapshots as snapshots
from rowgrad.tables._dirty import Dirty
from rowgrad.tables._open_folder import OpenFolder, Owner
from rowgrad.tables._opening import View
from rowgrad.tables._store import Store

if TYPE_CHECKING:
    from rowgrad._ops.plan import Plan
    from rowgrad._ops.results import RowGradient
    from rowgrad._runtime.dtypes import Array
    from rowgrad.tables._header import Header
    from rowgrad.tables._keys import KeyTable
    from rowgrad.tables._mapping import Mapping


class Table(OpenFolder):
    """A table of rows in a folder, which may be larger than memory, with the optimizer's state.

    Use `Table.create` or `Table.open`. Rows are read from the disk when they are looked up; changed rows stay in memory
    until `flush`, which writes all of them or none: if a process is killed, the files hold the last flushed step. See
    docs/tables.md.

    Attributes
    ----------
    path : Path
        The folder.
    rows, width : int
        The shape.
    dtype : numpy.dtype
        float16, bfloat16, float32 or float64.
    steps : int
        The steps that the table has made; in the files, those of the last flush.
    recovered : {None, "replayed", "discarded"}
        What opening found of an interrupted flush: nothing; a complete journal, which was written into the files;
        an incomplete one, which was discarded.

    Examples
    --------
    >>> import tempfile
    >>> import rowgrad
    >>> from rowgrad.optim import SGD
    >>> folder = tempfile.TemporaryDirectory()
    >>> with rowgrad.Table.create(folder.name + "/words", 1000, 2, optimizer=SGD(lr=0.5)) as table:
    ...     table.step_pooled([[2.0, 4.0]], [1, 3], [0, 0], combiner="mean")
    >>> with rowgrad.Table.open(folder.name + "/words", mode="r") as table:
    ...     print(table, table.look_up([0, 3], [0, 1], "sum"))
    Table(1000 × 2 float32, step 1) [[ 0.   0. ]
     [-0.5 -1. ]]
    >>> folder.cleanup()
    """

    _called = "table"
    _content = ("table", "it")

    def __init__(self, path: Path, store: "Store | View", name: str, guard: threading.RLock, *, max_dirty: int = 0,
                 auto_flush: bool = True, recovered: str | None = None,
                 owner: Owner | None = None) -> None:  # fmt: skip
        super().__init__(path, store, guard, recovered, auto_flush)
        header = store.headers[name]
        self.rows, self.width, self.dtype = header.rows, header.width, dtypes.NUMPY[header.dtype]
        self.steps = header.steps
        self._name = name
        self._parts = store.parts[name]
        self._owner = owner
        self._whole = True
        self._dirty = Dirty(lambda: store.arrays, max_dirty) if owner is None else owner.dirty
        self._state = {
            each.removeprefix("state."): part.array for each, part in self._parts.items() if each.startswith("state.")
        }
        self._optimizer: Any = None
        if header.optimizer is not None:
            from rowgrad.optim import from_dict

            self._optimizer = from_dict(dict(header.optimizer))
        self._keys: KeyTable | None = None
        if header.keys is not None:
            from rowgrad.tables import _keys as keys

            arrays = {each.removeprefix("keys."): part.raw for each, part in self._parts.items()}
            self._keys = keys.KeyTable.over(header.keys, arrays, self)
        self._closed = False

    @classmethod
    def create(cls, path: str | os.PathLike[str], rows: int, width: int, dtype: Any = "float32", *,
               optimizer: Any = None, initializer: Any = 0.0, overwrite: bool = False, max_dirty: int | None = None,
               progress: Callable[[int, int], None] | None = None,
               state_initializers: dict[str, Callable[[int, Any], Any]] | None = None, keys: Any = None,
               auto_flush: bool = True) -> "Table":  # fmt: skip
        """Make a new table, and open it.

        Parameters
        ----------
        path : path
            The folder to create. It appears when the table is complete.
        rows, width : int
            The shape; rows may be 0.
        dtype : {"float32", "float64", "float16", "bfloat16"} or NumPy type
            The type of the values.
        optimizer : optimizer of rowgrad.optim, optional
            The optimizer of `step` and `step_pooled`. Its state is stored with the rows.
        initializer : float, callable or tuple
            The initial values: a number (0 takes no disk space until rows are changed); a function that is called with
            the number of the first row and a block of rows to fill; ("uniform", scale, seed) for values in
            [−scale, scale), or ("normal", scale, seed) with the standard deviation scale.
        overwrite : bool
            Whether to replace an existing table. Only a table is ever replaced.
        max_dirty : int, optional
            A step ends with a flush if more bytes of changed pages than this are in memory; by default a quarter of the
            memory available to this process.
        progress : callable, optional
            Called with (rows done, rows in total) while rows are filled. By default a terminal shows a progress bar.
        state_initializers : dict of str to callable, optional
            Initial values of optimizer state that differ from those of its `init`: functions like `initializer`.
        keys : {"int64", "string"} or dict, optional
            Store a `KeyTable` with the rows, as `table.keys`; a dict has its settings, such as
            ``{"kind": "string", "max_bytes": 40, "reserved": 1, "admit_after": 3}``.
        auto_flush : bool
            Whether steps flush automatically when changes exceed `max_dirty`.

        Raises
        ------
        InvalidArgumentError
            An argument is wrong.
        FileError
            The path exists, or the disk is full or not writable; then nothing is left behind.
        """
        folder = Path(path).absolute()  # the process may go to another folder before it flushes
        options.check_system()
        options.max_dirty_of(max_dirty)
        header = creating.describe(rows, width, dtype, optimizer, options.key_settings(keys, rows))
        state = creating.state_rows(optimizer, header.width, dtypes.NUMPY[header.dtype])
        creating.create(folder, header, state, initializer, overwrite, progress, state_initializers)
        return cls.open(folder, max_dirty=max_dirty, auto_flush=auto_flush)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, mode: str = "r+", max_dirty: int | None = None,
             auto_flush: bool = True) -> "Table":  # fmt: skip
        """Open a table, finishing or undoing an interrupted flush.

        Parameters
        ----------
        path : path
            The folder.
        mode : {"r+", "r"}
            "r+" reads and writes, one process at a time; "r" only reads, in any number of processes.
        max_dirty, auto_flush
            As for `create`.

        Raises
        ------
        FileError
            It is not a table, is damaged or of another version, may not be read, or is open for writing already.
        """
        folder = Path(path).absolute()  # the process may go to another folder before it flushes
        allowed = options.max_dirty_of(max_dirty)
        opened = opening.open_home(home.of_table, folder, mode)
        try:
            return cls(folder, opened.store, "", threading.RLock(), max_dirty=allowed, auto_flush=auto_flush,
                       recovered=opened.recovered)  # fmt: skip
        except BaseException:  # an optimizer that this rowgrad does not know
            opened.store.close(settle=False)
            raise

    # What it holds

    @property
    def array(self) -> "Array":
        """The rows, [rows, width], memory-mapped; read-only with mode "r"."""
        return self._open_parts()["rows"].array

    @property
    def state(self) -> "dict[str, Array]":
        """The arrays of the optimizer by name."""
        self._open_parts()
        return self._state

    @property
    def optimizer(self) -> Any:
        """The optimizer, or None. Assign one with the same state arrays, for example with another learning rate."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Any) -> None:
        self._check_writer()
        wanted = creating.describe(self.rows, self.width, self.dtype, optimizer).state
        has = self._store.headers[self._name].state
        if wanted != has:
            raise InvalidArgumentError(
                f"the optimizer needs {_listed(wanted)}, but the table has {_listed(has)}. Make a new "
                "table with this optimizer, and copy the rows.",
                code="bad-state",
                argument="optimizer",
            )
        self._optimizer = optimizer

    @property
    def keys(self) -> "KeyTable | None":
        """The keys of the rows, if the table was created with keys."""
        self._open_parts()
        return self._keys

    @property
    def max_dirty(self) -> int:
        """A step ends with a flush if more bytes of changed pages than this are in memory."""
        return self._dirty.max_dirty

    @property
    def nbytes(self) -> int:
        """The bytes of the rows, of the state and of the keys."""
        return sum(part.array.nbytes for part in self._parts.values())

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"Table({self.rows} × {self.width} {dtypes.name_of(self.dtype)}, step {self.steps}{closed})"

    def _repr_html_(self) -> str:
        """The first rows, in notebooks."""
        if self._closed:
            return f"<p>{notebooks.escaped(self)}</p>"
        few = np.array(self.array[: notebooks.MOST_ROWS])
        return notebooks.array(f"{self!r}, its first rows:", few)

    # Reading and changing

    def look_up(self, indices: Any, segment_ids: Any, combiner: str = "mean", weights: Any = None,
                num_segments: int | None = None) -> Any:  # fmt: skip
        """Pool the rows `indices` by segment, as `sparse_segment_mean` and its relatives do.

        Parameters
        ----------
        indices, segment_ids : int32 or int64, shape [N]
            The row and the segment of each entry; segments must not decrease.
        combiner : {"mean", "sqrtn", "sum"}
            How the rows of a segment are reduced to one.
        weights : floats, shape [N], optional
            A factor for each entry; with combiner "sum" only.
        num_segments : int, optional
            The rows of the result; by default the largest segment + 1.
        """
        found = self._look_up(indices, segment_ids, combiner, weights, num_segments)
        if isinstance(self._store, View):
            self.check()  # what was read meanwhile may be of two steps
        return found

    def _look_up(self, indices: Any, segment_ids: Any, combiner: str, weights: Any, num_segments: int | None) -> Any:
        from rowgrad._ops import functions

        combiners.check(combiner)
        if weights is None:
            return getattr(functions, combiners.COMBINERS[combiner].function)(
                self.array, indices, segment_ids, num_segments
            )
        if combiner != "sum":
            raise InvalidArgumentError(
                f"combiner is {combiner!r}, but weights need sum. Divide the weights of each segment first.",
                code="bad-combiner",
                argument="combiner",
                value=combiner,
            )
        if num_segments is None:
            num_segments = int(np.max(np.asarray(segment_ids), initial=-1)) + 1
        pool: Any = functions.sparse_segment_weighted_sum  # type: ignore[attr-defined,unused-ignore]
        return pool(self.array, weights, indices, segment_ids, num_segments)

    def step(self, gradient: "RowGradient") -> None:
        """Update rows and state with a compact gradient and the table's optimizer. Flushes beyond `max_dirty`."""
        rows = gradient.sorted_unique_indices
        self._change(rows, np.size(rows), lambda optimizer, state: optimizer.step(self.array, gradient, **state))

    def step_pooled(self, grad: Any, indices: Any, segment_ids: Any, *, combiner: str = "mean", weights: Any = None,
                    plan: "Plan | None" = None) -> None:  # fmt: skip
        """Update with the gradient of a pooled look-up, without computing the compact one; `plan` as for operators."""
        options = {} if weights is None else {"weights": weights}
        count = np.size(indices) if plan is None else plan.size

        def change(optimizer: Any, state: dict[str, Any]) -> None:
            optimizer.step_pooled(self.array, grad, indices, segment_ids, **state, combiner=combiner, plan=plan,
                                  **options)  # fmt: skip

        self._change(indices, count, change)

    def _change(self, rows: Any, count: int, change: Callable[[Any, dict[str, Any]], None]) -> None:
        self._check_writer()
        if self._optimizer is None:
            raise InvalidArgumentError(
                "the table has no optimizer, so it cannot make steps. Create it with one, or change `array` yourself.",
                code="no-optimizer",
            )
        with self._guard:
            dense = bool(getattr(self._optimizer, "decay_untouched", False))
            if dense and self.nbytes > limits.available():
                raise InvalidArgumentError(
                    f"the optimizer has decay_untouched=True, which changes all {self.nbytes} bytes of the table in "
                    "each step, more than there is memory. Use one without.",
                    code="too-large",
                    argument="optimizer",
                )
            self._whole = False
            try:
                change(self._optimizer, {"state": self._state} if self._state else {})
            except (RowgradError, TypeError, ValueError):
                self._whole = True  # arguments are checked before anything is changed
                raise
            for name, part in self._parts.items():
                kept = self._state.get(name.removeprefix("state."))
                if kept is not None and kept is not part.array:  # an optimizer may put a new number in its place
                    part.array[...] = kept
                    self._state[name.removeprefix("state.")] = part.array
            self._whole = True
            self._mark(None if dense else rows)
            self._end_step(self.rows if dense else count)

    def prefetch(self, rows: Any) -> None:
        """Read `rows` and their optimizer state from the disk in the background.

        For tables larger than memory: a look-up or a step reads the pages it needs one after another; this requests
        them all together. It is a hint: nothing waits for it, and it changes no result.
        """
        array = self._rows_of(rows)
        for part in self._open_parts().values():
            if part.count == self.rows:
                part.prefetch(array)

    def touch(self, rows: Any) -> None:
        """Mark `rows` as changed, after writing to `array` or to the state directly.

        On Linux the system tracks changes, and this only checks the rows; elsewhere it is needed. It does not count a
        step: call `end_step` when the change is complete.
        """
        self._check_writer()
        array = self._rows_of(rows)
        with self._guard:
            self._mark(array)
            self._dirty.add(list(self._parts.values()), array.size)

    def _rows_of(self, rows: Any) -> "Array":
        array = np.asarray(rows)
        if array.size and (array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= self.rows):
            raise OutOfRangeError(
                f"rows must be whole numbers in [0, {self.rows}), the rows of the table.",
                code="index-out-of-range",
                argument="rows",
            )
        return array.reshape(-1).astype(np.int64, copy=False)

    def end_step(self) -> None:
        """Count a step after writing to `array` directly, as `step` does; flushes beyond `max_dirty`."""
        self._check_writer()
        with self._guard:
            self._end_step(self.rows)

    def reset_rows(self, rows: Any, initializer: Any = 0.0) -> None:
        """Reinitialize `rows` and their state; does not count a step.

        Parameters
        ----------
        rows : int32 or int64, shape [N]
            Which rows.
        initializer : float, callable or tuple
            As for `create`; a function is called for each row, with its number and a block of one row.
        """
        self.touch(rows)
        with self._guard:
            numbers = np.asarray(rows).reshape(-1)
            fill = creating.filler(initializer, self._store.headers[self._name])
            block = np.zeros((numbers.size, self.width), self.dtype)
            if callable(initializer):
                for position, row in enumerate(numbers.tolist()):
                    initializer(row, block[position : position + 1])
            elif fill is not None:
                fill(0, block)
            self._whole = False
            self.array[numbers] = block
            for name, value in creating.state_rows(self._optimizer, self.width, self.dtype).items():
                if value.ndim:
                    self._state[name][numbers] = value
            self._whole = True

    def keys_changed(self, rows: Any) -> None:
        """Mark the keys of `rows` as changed; for `keys`."""
        parts = {name: part for name, part in self._parts.items() if name.startswith("keys.")}
        for name, part in parts.items():
            part.mark(rows if name in ("keys.key", "keys.seen", "keys.count") else None)
        self._dirty.add(list(parts.values()), np.size(rows))

    def _mark(self, rows: Any) -> None:
        if rows is not None and any(part.needs_marks for part in self._parts.values()):
            from rowgrad._runtime import arrays

            rows = arrays.adopt(rows)
        for name, part in self._parts.items():
            if not name.startswith("keys."):
                part.mark(rows)

    def _end_step(self, count: int) -> None:
        self.steps += 1
        self._dirty.add(list(self._parts.values()), count)
        # A set flushes when the steps of all of its tables are made.
        if self._owner is None and self.auto_flush and self._dirty.is_too_much():
            self.flush()

    def flush(self) -> None:
        """Write all changes to the disk, all or nothing, and release their memory.

        While it runs, other threads may read `array` but not write to it. When it returns, the step is on the disk.

        Raises
        ------
        FileError
            The disk is full or failed. The changes are still in memory: free disk space, and flush again.
        """
        store = self._check_writer()
        self._check_alone("flush")
        with self._guard:
            left = store.commit({self._name: self.next_header()}, None, self.max_dirty)
            self._dirty.reset(left)

    def next_header(self) -> "Header":
        """The header that a flush would write now. Raises `RowgradError` if a step was interrupted."""
        header = self._store.headers[self._name]
        if not self._whole:
            raise RowgradError(
                f"a step was interrupted in the middle, and half a step is never written. Open {self.path} again: "
                f"it is at step {header.steps}.",
                code="half-step",
            )
        return header.at(self.steps, None if self._optimizer is None else self._optimizer.as_dict())

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Copy the table as of the last flush to a new folder, while other threads continue training.

        The copy is a table like any other. It shares disk blocks with this one if the file system supports it (reflinks
        of Btrfs and XFS). It appears when it is complete.

        Raises
        ------
        FileError
            The path exists, or the disk is full or not writable; then nothing is left behind.
        """
        store = self._check_writer()
        self._check_alone("snapshot")
        snapshots.take(store, self._guard, Path(path).absolute())

    def refresh(self) -> int:
        """Update a table that is open for reading to the last flushed step, and return that step.

        `array`, and arrays and tensors made of it, are updated in place. No thread may read them meanwhile.
        """
        self._check_alone("refresh")
        view = self._check_reader()
        with self._guard:
            view.refresh()
            self.follow()
        return self.steps

    def follow(self) -> None:
        """Update to what the reader's files show now."""
        header = self._store.headers[self._name]
        self.steps = header.steps
        if header.optimizer is not None:
            from rowgrad.optim import from_dict

            self._optimizer = from_dict(dict(header.optimizer))
        if self._keys is not None:
            self._keys.rebuild()

    # Its end

    def close(self, *, flush: bool = True) -> None:
        """Flush, unless `flush` is False or a step was interrupted, and release the table for others.

        References to `array` stay valid, but are no longer connected to the table.
        """
        if self._closed:
            return
        self._check_alone("close")
        self.end(flush=flush)

    def end(self, *, flush: bool) -> None:
        """Does the work of `close`."""
        is_writer = self._is_writer()
        try:
            if is_writer and flush and self._whole and self._owner is None:
                self._check_writer()
                with self._guard:  # readers are not waited for any more
                    self._store.commit({self._name: self.next_header()}, None, 0)  # type: ignore[union-attr]
        except BaseException:
            if self._owner is None and not flush:
                self._closed = True
            raise
        self._closed = True
        if self._owner is None:
            self._store.close(settle=is_writer)

    def __enter__(self) -> "Table":
        self._open_parts()
        return self

    def __exit__(self, *_: object) -> None:
        """Steps that were made are whole, and are flushed also when an exception ends the block."""
        self.close()

    def check(self) -> None:
        """Raise `FileError` if a file of the table was truncated since it was opened.

        `array`, `state`, look-ups, steps and flushes do this first. Reading an array over a truncated file would kill
        the process; code that holds such an array can call this before using it.
        """
        for part in self._parts.values():
            part.check_size()
        if isinstance(self._store, View) and not self._store.is_current():
            raise FileError(
                f"{self.path} was changed, and this reader still shows step {self.steps}: its writer could not wait "
                "any longer. Call `refresh()`, and read again.",
                code="view-outdated",
            )

    def _open_parts(self) -> "dict[str, Mapping]":
        self._check_open()
        self.check()
        return self._parts

    def _check_writer(self) -> Store:
        self._open_parts()
        return super()._check_writer()

    def _check_alone(self, what: str) -> None:
        """What concerns files is done for all tables of a set at once."""
        if self._owner is not None:
            raise InvalidArgumentError(
                f"the table {self._name!r} belongs to a set, whose tables are committed together. Call `{what}` of the "
                "set.",
                code="part-of-set",
            )


def _listed(state: Any) -> str:
    return ", ".join(f"{name} {list(shape)} in {kind}" for name, (kind, shape) in state.items()) or "no state"
