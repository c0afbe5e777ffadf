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
    """A table of rows in a folder, larger than memory if need be, with the optimizer's state beside it.

    Made by `Table.create` and `Table.open`. Rows are read from the disk when they are looked up; rows that are changed
    stay in memory until `flush`, which writes all of them or none: a process that ends at any moment leaves the last
    step that was flushed. See docs/tables.md.

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
        What opening found of a flush that was cut off: nothing; a complete journal, which was written into the files;
        an incomplete one, which was thrown away.

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
            The folder to make. It appears when the table is whole.
        rows, width : int
            The shape; rows may be 0.
        dtype : {"float32", "float64", "float16", "bfloat16"} or NumPy type
            The type of the values.
        optimizer : optimizer of rowgrad.optim, optional
            What `step` and `step_pooled` use. Its state is kept beside the rows.
        initializer : float, callable or tuple
            The first values: a number (0 takes no room on the disk until rows are changed); a function that is given
            the number of a first row and a block of rows to fill; ("uniform", scale, seed) for values in
            [−scale, scale), or ("normal", scale, seed) with the standard deviation scale.
        overwrite : bool
            Replace the table that is there. Nothing but a table is ever replaced.
        max_dirty : int, optional
            The bytes of changed pages from which on a step ends with a flush; by default a quarter of the memory this
            process can get.
        progress : callable, optional
            Told (rows done, rows in all) while rows are filled. On a terminal, long fills show a bar without it.
        state_initializers : dict of str to callable, optional
            For arrays of the optimizer's state that do not begin as its `init` has them: functions like `initializer`.
        keys : {"int64", "string"} or dict, optional
            Keep a `KeyTable` beside the rows, as `table.keys`; a dict has its settings, such as
            ``{"kind": "string", "max_bytes": 40, "reserved": 1, "admit_after": 3}``.
        auto_flush : bool
            Whether steps flush by themselves when changes come to more than `max_dirty`.

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
        """Open a table, finishing or undoing a flush that was cut off.

        Parameters
        ----------
        path : path
            The folder.
        mode : {"r+", "r"}
            To read and change, which one process can at a time; or to read only, which any number can beside it.
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
        """The rows, [rows, width], in memory only as far as they are used; read-only with mode "r"."""
        return self._open_parts()["rows"].array

    @property
    def state(self) -> "dict[str, Array]":
        """The arrays of the optimizer by name."""
        self._open_parts()
        return self._state

    @property
    def optimizer(self) -> Any:
        """The optimizer, or None. Another one may be set if it keeps the same arrays, such as one with another rate."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Any) -> None:
        self._check_writer()
        wanted = creating.describe(self.rows, self.width, self.dtype, optimizer).state
        has = self._store.headers[self._name].state
        if wanted != has:
            raise InvalidArgumentError(
                f"the optimizer keeps {_listed(wanted)}, and the table has {_listed(has)}. Make a new "
                "table with this optimizer, and copy the rows.",
                code="bad-state",
                argument="optimizer",
            )
        self._optimizer = optimizer

    @property
    def keys(self) -> "KeyTable | None":
        """The keys of the rows, if the table was made with some."""
        self._open_parts()
        return self._keys

    @property
    def max_dirty(self) -> int:
        """The bytes of changed pages from which on a step ends with a flush."""
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
        """Rows `indices` pooled by segment; as `sparse_segment_mean` and the like do it.

        Parameters
        ----------
        indices, segment_ids : int32 or int64, shape [N]
            The row and the segment of each entry; segments must not decrease.
        combiner : {"mean", "sqrtn", "sum"}
            How the rows of a segment become one.
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
                f"combiner is {combiner!r}, and weights go with sum only. Divide the weights of each segment first.",
                code="bad-combiner",
                argument="combiner",
                value=combiner,
            )
        if num_segments is None:
            num_segments = int(np.max(np.asarray(segment_ids), initial=-1)) + 1
        pool: Any = functions.sparse_segment_weighted_sum  # type: ignore[attr-defined,unused-ignore]
        return pool(self.array, weights, indices, segment_ids, num_segments)

    def step(self, gradient: "RowGradient") -> None:
        """Change rows and state by a compact gradient, with the table's optimizer. Flushes if much has changed."""
        rows = gradient.sorted_unique_indices
        self._change(rows, np.size(rows), lambda optimizer, state: optimizer.step(self.array, gradient, **state))

    def step_pooled(self, grad: Any, indices: Any, segment_ids: Any, *, combiner: str = "mean", weights: Any = None,
                    plan: "Plan | None" = None) -> None:  # fmt: skip
        """The same by the gradient of a pooled look-up, which is never in memory; `plan` is as for the operators."""
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
        """Have the disk read `rows`, and what the optimizer keeps of them, while something else is done.

        For tables larger than memory: a look-up or a step reads the pages it needs one after another, and here they are
        asked for at once. It is a hint: nothing waits for it, and it changes no result.
        """
        array = self._rows_of(rows)
        for part in self._open_parts().values():
            if part.count == self.rows:
                part.prefetch(array)

    def touch(self, rows: Any) -> None:
        """Tell that `rows` of `array` or of the state were changed by someone else.

        On Linux the system tracks that, and this only checks the rows; elsewhere it is needed. It counts no
        step: `end_step` does, when the change is whole.
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
        """Count a step that was made by someone else, as `step` does; flushes if much has changed."""
        self._check_writer()
        with self._guard:
            self._end_step(self.rows)

    def reset_rows(self, rows: Any, initializer: Any = 0.0) -> None:
        """Give `rows` new first values, and their state that of the beginning; counts no step.

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
        """Tell that the keys of `rows` changed; for `keys`."""
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
        """Write everything that has changed to the disk, all or nothing, and give back its memory.

        While it runs nobody else may write to `array`; reading is fine. When it returns, the step is on the disk.

        Raises
        ------
        FileError
            The disk is full or failed. The changes are still in memory: make room, and flush again.
        """
        store = self._check_writer()
        self._check_alone("flush")
        with self._guard:
            left = store.commit({self._name: self.next_header()}, None, self.max_dirty)
            self._dirty.reset(left)

    def next_header(self) -> "Header":
        """The header that a flush writes now; `RowgradError` if a step was interrupted in the middle."""
        header = self._store.headers[self._name]
        if not self._whole:
            raise RowgradError(
                f"a step was interrupted in the middle, and half a step is never written. Open {self.path} again: "
                f"it is at step {header.steps}.",
                code="half-step",
            )
        return header.at(self.steps, None if self._optimizer is None else self._optimizer.as_dict())

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Copy the table as it is at the last flush to a new folder, while other threads go on training.

        The copy is a table like any other. It shares the blocks of this one where the file system can do that
        (reflinks of Btrfs and XFS), and takes their room elsewhere. It appears when it is whole.

        Raises
        ------
        FileError
            The path exists, or the disk is full or not writable; then nothing is left behind.
        """
        store = self._check_writer()
        self._check_alone("snapshot")
        snapshots.take(store, self._guard, Path(path).absolute())

    def refresh(self) -> int:
        """Show the last step that was flushed, and tell it; for a table that is open for reading.

        `array`, and arrays and tensors made of it, show it in place. Nobody may read them meanwhile.
        """
        self._check_alone("refresh")
        view = self._check_reader()
        with self._guard:
            view.refresh()
            self.follow()
        return self.steps

    def follow(self) -> None:
        """Take over what the files of a reader show by now."""
        header = self._store.headers[self._name]
        self.steps = header.steps
        if header.optimizer is not None:
            from rowgrad.optim import from_dict

            self._optimizer = from_dict(dict(header.optimizer))
        if self._keys is not None:
            self._keys.rebuild()

    # Its end

    def close(self, *, flush: bool = True) -> None:
        """Flush, unless told otherwise or a step was interrupted, and let others open the table.

        Whoever holds `array` keeps it as it is; it is no longer that of the table.
        """
        if self._closed:
            return
        self._check_alone("close")
        self.end(flush=flush)

    def end(self, *, flush: bool) -> None:
        """What `close` does."""
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
        """Raise `FileError` if a file of the table was cut off since it was opened.

        `array`, `state`, look-ups, steps and flushes do this first. Reading an array over a file that was cut off
        would end the process; whoever keeps such an array can call this before using it.
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
