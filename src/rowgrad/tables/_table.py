"""The table on disk: what users hold. The files are those of the last flush; changes wait in private memory.

`mapping` maps the files, `header` and `journal` keep them whole, `creating` makes them, `lock` keeps others out.
"""

import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad._ops import combiners
from rowgrad._runtime import dtypes, limits
from rowgrad.errors import FileError, InvalidArgumentError, OutOfRangeError, RowgradError
from rowgrad.tables import _creating as creating
from rowgrad.tables import _header as headers
from rowgrad.tables import _journal as journal
from rowgrad.tables import _opening as opening
from rowgrad.tables._header import Header
from rowgrad.tables._mapping import PAGE, Mapping

if TYPE_CHECKING:
    from rowgrad._ops.plan import Plan
    from rowgrad._ops.results import RowGradient
    from rowgrad._runtime.dtypes import Array

LEAST_CHANGED = 1 << 22  # bytes of changes below which no table is flushed by itself


class Table:
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

    def __init__(self, path: Path, opened: opening.Opened, max_dirty: int) -> None:
        self._closed = True  # until all is there
        header, parts, lock, recovered = opened
        self.path = path
        self.recovered = recovered
        self.max_dirty = max_dirty
        self.rows, self.width, self.dtype = header.rows, header.width, dtypes.NUMPY[header.dtype]
        self.steps = header.steps
        self._header = header
        self._parts = parts
        self._held = lock
        self._process = os.getpid()
        self._guard = threading.RLock()  # one step or flush at a time
        self._whole = True
        self._most = 0  # the most pages that can have been changed since the last flush
        self._base = limits.private_bytes()  # of the process, without changed pages
        self._state = {name.removeprefix("state."): part.array for name, part in parts.items() if name != "rows"}
        self._optimizer: Any = None
        if header.optimizer is not None:
            from rowgrad.optim import from_dict

            self._optimizer = from_dict(dict(header.optimizer))
        self._closed = False

    @classmethod
    def create(cls, path: str | os.PathLike[str], rows: int, width: int, dtype: Any = "float32", *,
               optimizer: Any = None, initializer: Any = 0.0, overwrite: bool = False, max_dirty: int | None = None,
               progress: Callable[[int, int], None] | None = None,
               state_initializers: dict[str, Callable[[int, Any], Any]] | None = None) -> "Table":  # fmt: skip
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

        Raises
        ------
        InvalidArgumentError
            An argument is wrong.
        FileError
            The path exists, or the disk is full or not writable; then nothing is left behind.
        """
        folder = Path(path).absolute()  # the process may go to another folder before it flushes
        _check_system()
        _check_max_dirty(max_dirty)
        header = creating.describe(rows, width, dtype, optimizer)
        state = creating.state_rows(optimizer, header.width, dtypes.NUMPY[header.dtype])
        creating.create(folder, header, state, initializer, overwrite, progress, state_initializers)
        return cls.open(folder, max_dirty=max_dirty)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, mode: str = "r+", max_dirty: int | None = None) -> "Table":
        """Open a table, finishing or undoing a flush that was cut off.

        Parameters
        ----------
        path : path
            The folder.
        mode : {"r+", "r"}
            To read and change, which one process can at a time; or to read only, which any number can beside it.
        max_dirty : int, optional
            As for `create`.

        Raises
        ------
        FileError
            It is not a table, is damaged or of another version, may not be read, or is open for writing already.
        """
        folder = Path(path).absolute()  # the process may go to another folder before it flushes
        _check_system()
        _check_max_dirty(max_dirty)
        if mode not in ("r", "r+"):
            raise InvalidArgumentError(
                f'mode is {mode!r}; it must be "r+" or "r".', code="bad-mode", argument="mode", value=mode
            )
        headers.read(folder)  # whatever is not a table is not touched
        try:
            opened = opening.to_write(folder) if mode == "r+" else opening.to_read(folder)
        except OSError as error:
            hint = ' Open it with mode="r".' if mode == "r+" and isinstance(error, PermissionError) else ""
            raise FileError(
                f"{folder} cannot be opened ({error.strerror}: {error.filename}).{hint}",
                code="disk-full" if creating.is_full(error) else "cannot-open",
                argument="path",
            ) from error
        try:
            return cls(folder, opened, max_dirty or _quarter())
        except BaseException:  # an optimizer that this rowgrad does not know
            opened.close()
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
        if wanted != self._header.state:
            raise InvalidArgumentError(
                f"the optimizer keeps {_listed(wanted)}, and the table has {_listed(self._header.state)}. Make a new "
                "table with this optimizer, and copy the rows.",
                code="bad-state",
                argument="optimizer",
            )
        self._optimizer = optimizer

    @property
    def nbytes(self) -> int:
        """The bytes of the rows and of the state."""
        return sum(part.array.nbytes for part in self._parts.values())

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"Table({self.rows} × {self.width} {dtypes.name_of(self.dtype)}, step {self.steps}{closed})"

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

    def touch(self, rows: Any) -> None:
        """Tell that `rows` of `array` or of the state were changed by someone else.

        On Linux the system keeps book of that, and this only checks the rows; elsewhere it is needed. It counts no
        step: `end_step` does, when the change is whole.
        """
        self._check_writer()
        array = np.asarray(rows)
        if array.size and (array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= self.rows):
            raise OutOfRangeError(
                f"rows must be whole numbers in [0, {self.rows}), the rows of the table.",
                code="index-out-of-range",
                argument="rows",
            )
        with self._guard:
            self._mark(array.reshape(-1))
            self._most += sum(part.most_changed(array.size) for part in self._parts.values())

    def end_step(self) -> None:
        """Count a step that was made by someone else, as `step` does; flushes if much has changed."""
        self._check_writer()
        with self._guard:
            self._end_step(self.rows)

    def _mark(self, rows: Any) -> None:
        if rows is not None and any(part.needs_marks for part in self._parts.values()):
            from rowgrad._runtime import arrays

            rows = arrays.adopt(rows)
        for part in self._parts.values():
            part.mark(rows)

    def _end_step(self, count: int) -> None:
        """Three looks, each slower and sharper than the one before: a bound, the process's memory, the pages."""
        self.steps += 1
        self._most += sum(part.most_changed(count) for part in self._parts.values())
        if min(self._most * PAGE, self.nbytes) <= self.max_dirty:
            return
        now = limits.private_bytes()
        if now is not None and self._base is not None and now - self._base <= self.max_dirty:
            return
        changed = PAGE * sum(part.changed().size for part in self._parts.values())
        if changed > self.max_dirty:
            self.flush()
        else:  # others took the memory
            self._most = changed // PAGE
            self._base = None if now is None else now - changed

    def flush(self) -> None:
        """Write everything that has changed to the disk, all or nothing, and give back its memory.

        While it runs nobody else may write to `array`; reading is fine. When it returns, the step is on the disk.

        Raises
        ------
        FileError
            The disk is full or failed. The changes are still in memory: make room, and flush again.
        """
        self._check_writer()
        with self._guard:
            if not self._whole:
                raise RowgradError(
                    f"a step was interrupted in the middle, and half a step is never written. Open {self.path} again: "
                    f"it is at step {self._header.steps}.",
                    code="half-step",
                )
            changed = {name: (part, part.changed()) for name, part in self._parts.items()}
            settings = None if self._optimizer is None else self._optimizer.as_dict()
            header = self._header.at(self.steps, settings)
            if header != self._header or any(pages.size for _, pages in changed.values()):
                self._write(header, changed)
                for part, pages in changed.values():
                    part.drop(pages)
            self._most = 0
            self._base = limits.private_bytes()

    def _write(self, header: Header, changed: "dict[str, tuple[Mapping, Array]]") -> None:
        is_safe = False
        for part, _ in changed.values():
            part.check_place()
        try:
            if opening.settle_journal(self.path) == "replayed":  # an earlier flush could not finish
                self._header = headers.read(self.path)
            for part, pages in changed.values():
                part.reserve(pages)
            journal.write(self.path, header, changed)
            is_safe = True
            for part, pages in changed.values():
                part.write_back(pages)
            headers.write(self.path, header.as_json())
            journal.remove(self.path)
        except OSError as error:
            if not is_safe and not journal.is_complete(self.path):
                journal.remove(self.path)  # it takes room that may be needed
            what = (
                f"step {header.steps} is safe in the journal, and will be written into the files by the next flush or "
                "when the table is opened"
                if is_safe
                else f"the files are those of step {self._header.steps}, and what has changed since is in memory"
            )
            raise FileError(
                f"{self.path} cannot be written ({error.strerror}): {what}. Make room on the disk, and flush again.",
                code="disk-full" if creating.is_full(error) else "cannot-write",
            ) from error
        self._header = header

    # Its end

    def close(self, *, flush: bool = True) -> None:
        """Flush, unless told otherwise or a step was interrupted, and let others open the table.

        Whoever holds `array` keeps it as it is; it is no longer that of the table.
        """
        if self._closed:
            return
        if self._held is not None and self._process == os.getpid() and flush and self._whole:
            self.flush()
        self._closed = True
        for part in self._parts.values():
            part.close()
        if self._held is not None:
            self._held.release()

    def __enter__(self) -> "Table":
        self._open_parts()
        return self

    def __exit__(self, *_: object) -> None:
        """Steps that were made are whole, and are flushed also when an exception ends the block."""
        self.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if getattr(self, "_closed", True) or is_finalizing():  # the system gives up the lock
            return
        if self._held is not None and self._process == os.getpid():
            warnings.warn(f"{self!r} in {self.path} was never closed", ResourceWarning, stacklevel=2, source=self)
        self.close(flush=False)

    def check(self) -> None:
        """Raise `FileError` if a file of the table was cut off since it was opened.

        `array`, `state`, look-ups, steps and flushes do this first. Reading an array over a file that was cut off
        would end the process; whoever keeps such an array can call this before using it.
        """
        for part in self._parts.values():
            part.check_size()

    def _open_parts(self) -> dict[str, Mapping]:
        if self._closed:
            raise InvalidArgumentError(f"the table in {self.path} is closed. Open it again.", code="closed")
        self.check()
        return self._parts

    def _check_writer(self) -> None:
        self._open_parts()
        if self._held is None:
            raise InvalidArgumentError(
                f'{self.path} is open for reading only. Open it with mode="r+".', code="read-only", argument="mode"
            )
        if self._process != os.getpid():
            raise InvalidArgumentError(
                f"the table was opened by process {self._process}, and this is a child of it, which can read the table "
                "but not change it. Change it there.",
                code="forked",
            )


def _quarter() -> int:
    return max(LEAST_CHANGED, limits.available() // 4)


def _check_max_dirty(max_dirty: Any) -> None:
    if max_dirty is not None and (isinstance(max_dirty, bool) or not isinstance(max_dirty, int) or max_dirty < 1):
        raise InvalidArgumentError(
            f"max_dirty is {max_dirty!r}; it must be a number of bytes, at least 1.",
            code="bad-size",
            argument="max_dirty",
            value=max_dirty,
        )


def _check_system() -> None:
    if os.name != "posix":
        raise FileError("tables on disk need Linux or macOS.", code="not-supported")


def _listed(state: Any) -> str:
    return ", ".join(f"{name} {list(shape)} in {kind}" for name, (kind, shape) in state.items()) or "no state"
