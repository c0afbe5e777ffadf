"""Making the files of a new table: sparse where they are zero, block by block elsewhere, in place only when whole."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import DTypeError, FileError, InvalidArgumentError
from rowgrad.optim import Optimizer
from rowgrad.tables import _commits as commits
from rowgrad.tables import _header as headers
from rowgrad.tables import _home as home
from rowgrad.tables import _journal as journal
from rowgrad.tables import _lock as lock
from rowgrad.tables import _log as log
from rowgrad.tables._header import Header, KeySettings, Part

BLOCK = 1 << 22  # bytes that are made at a time
WORTH_A_BAR = 1 << 28  # bytes to write from which on a terminal sees how far it is

Progress = Callable[[int, int], None]
Fill = Callable[[int, Array], Any]


def describe(rows: Any, width: Any, dtype: Any, optimizer: Any, keys: KeySettings | None = None,
             in_set: bool = False) -> Header:  # fmt: skip
    """The header of a new table, or the error that tells which argument is wrong."""
    for name, number, least in (("rows", rows, 0), ("width", width, 1)):
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < least:
            raise InvalidArgumentError(
                f"{name} is {number!r}; it must be a whole number, {least} or more.",
                code="bad-size",
                argument=name,
                value=number,
            )
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise InvalidArgumentError(
            f"optimizer is {optimizer!r}; it must be one of rowgrad.optim, such as optim.Adagrad(lr=0.1), or None.",
            code="bad-optimizer",
            argument="optimizer",
            value=optimizer,
        )
    settings = None if optimizer is None else optimizer.as_dict()
    kind = _float_type(dtype)
    state = {
        name: (dtypes.name_of(row.dtype), (int(rows), *row.shape[1:]) if row.ndim else ())
        for name, row in state_rows(optimizer, int(width), dtypes.NUMPY[kind]).items()
    }
    header = Header(os.urandom(16).hex(), int(rows), int(width), kind, settings, state, 0, keys, in_set)
    if any(prod(part.shape) * part.dtype.itemsize > headers.LIMIT for part in header.parts().values()):
        raise InvalidArgumentError(
            f"rows · width is {int(rows) * int(width)}, more than a file can hold. Use fewer rows.",
            code="too-large",
            argument="rows",
            value=rows,
        )
    return header


def state_rows(optimizer: Any, width: int, dtype: "np.dtype[Any]") -> dict[str, Array]:
    """The arrays that `optimizer` keeps for one row, as they are at the beginning; a number for the whole table is 0-d.

    The optimizer makes them for two small tables: what differs in length belongs to rows.
    """
    if optimizer is None:
        return {}
    two, three = (optimizer.init(np.zeros((rows, width), dtype)) or {} for rows in (2, 3))
    found = {}
    for name, array in two.items():
        one, other = np.asarray(array), np.asarray(three[name])
        if not headers.is_state_name(name) or (one.ndim and one.shape[0] == other.shape[0]):
            raise InvalidArgumentError(
                f"the optimizer's state {name!r} has shape {list(one.shape)} for 2 rows; allowed: arrays with a row "
                "for each row, and single numbers.",
                code="bad-state",
                argument="optimizer",
                value=name,
            )
        found[name] = one[:1] if one.ndim else one
    return found


def _float_type(dtype: Any) -> str:
    try:
        name = dtype if dtype in dtypes.FLOATS else dtypes.name_of(np.dtype(dtype))
    except TypeError:
        name = str(dtype)
    if name not in dtypes.FLOATS:
        raise DTypeError(
            f"dtype is {name}; a table is one of {', '.join(dtypes.FLOATS)}.",
            code="wrong-dtype",
            argument="dtype",
            value=name,
        )
    return str(name)


def create(path: Path, header: Header, state: dict[str, Array], initializer: Any, overwrite: bool,
           progress: Progress | None, state_initializers: Mapping[str, Fill] | None = None) -> None:  # fmt: skip
    """Make the table beside `path`, and give it that name when it is whole and on the disk."""
    fill = filler(initializer, header)
    fills = _state_fillers(state, state_initializers or {})
    new = unfinished(path)
    replaced = None
    try:
        with whole_or_nothing(path, lambda: remove(new)):
            if path.exists() or path.is_symlink():
                replaced = _may_replace(path, overwrite)
            new.mkdir(parents=True)
            with _reporting(progress, header, fill is not None) as report:
                for name, part in header.parts().items():
                    blocks = fill if name == "rows" else fills.get(name.removeprefix("state."))
                    _write_part(new / part.file, part, blocks, report if name == "rows" else None)
            headers.write(new, header.as_json())
            _put_in_place(new, path)
    finally:
        if replaced is not None:
            replaced.release()


def unfinished(path: Path) -> Path:
    """The name of a folder beside `path` until it is whole."""
    return path.parent / f".{path.name}-{os.urandom(4).hex()}.part"


@contextmanager
def whole_or_nothing(path: Path, remove: Callable[[], None]) -> Iterator[None]:
    """`remove` takes away what was made of `path` if this is left by an exception; the system's become `FileError`."""
    try:
        yield
    except OSError as error:
        remove()
        raise FileError(
            f"{path} cannot be created ({error.strerror}). Nothing was written; make room or choose another folder.",
            code="disk-full" if is_full(error) else "cannot-write",
            argument="path",
        ) from error
    except BaseException:
        remove()
        raise


def _may_replace(path: Path, overwrite: bool) -> lock.Lock | None:
    """Only a table, or an empty folder, is ever replaced, and only one that nobody is writing to: it is locked."""
    if not overwrite:
        raise FileError(
            f"{path} already exists. Open it with `rowgrad.Table.open`, or pass overwrite=True.",
            code="exists",
            argument="path",
        )
    if path.is_symlink() or not path.is_dir() or not ((path / headers.NAME).exists() or not any(path.iterdir())):
        raise FileError(
            f"{path} is not a table, and is not overwritten. Choose another path.", code="not-a-table", argument="path"
        )
    return lock.Lock(home.Home(path, "", {"": path}, is_set=False)) if (path / headers.ROWS).exists() else None


def _put_in_place(new: Path, path: Path) -> None:
    if path.exists():
        old = new.with_suffix(".old")
        path.rename(old)
        new.rename(path)
        remove(old)
    else:
        new.rename(path)
    headers.sync_folder(path.parent)


def remove(folder: Path) -> None:
    """Remove the files of a table, and the folder if it holds nothing else."""
    if not folder.is_dir():
        return
    names = [headers.NAME, journal.NAME, lock.NAME, headers.ROWS, commits.NAME]
    patterns = ("state.*.bin", "keys.*.bin", ".header.json-*.part", f"{commits.READER}*")
    found = [path for pattern in patterns for path in folder.glob(pattern)]
    for path in [*(folder / name for name in names), *found, *log.paths(folder)]:
        path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _write_part(path: Path, part: Part, blocks: Fill | None, report: Progress | None) -> None:
    with open(path, "xb") as file:
        if blocks is not None and 0 not in part.shape:
            rows = part.shape[0] if part.shape else 1
            row_bytes: int = prod(part.shape[1:]) * part.dtype.itemsize
            step = max(1, BLOCK // row_bytes)
            for first in range(0, rows, step):
                block = np.zeros((min(step, rows - first), *part.shape[1:]), part.dtype)
                blocks(first, block)
                file.write(block.reshape(-1).view(np.uint8).data)
                if report is not None:
                    report(first + len(block), rows)
        file.truncate(part.size)  # what was not written takes no room
        file.flush()
        os.fsync(file.fileno())


def filler(initializer: Any, header: Header) -> "Callable[[int, Array], None] | None":
    """What fills a block of rows from a row on; None if all stay 0."""
    dtype = dtypes.NUMPY[header.dtype]
    if callable(initializer):
        return lambda first, block: _call(initializer, first, block)
    if isinstance(initializer, int | float | np.number) and not isinstance(initializer, bool):
        constant = np.full((1, header.width), initializer, dtype)
        return _repeated(constant)
    if isinstance(initializer, tuple) and len(initializer) == 3 and initializer[0] in ("uniform", "normal"):
        kind, scale, seed = initializer
        rng = np.random.default_rng(seed)
        wide = np.float64 if dtype == np.float64 else np.float32

        def draw(first: int, block: Array) -> None:
            if kind == "uniform":
                block[:] = (rng.random(block.shape, wide) * wide(2) - wide(1)) * wide(scale)
            else:
                block[:] = rng.standard_normal(block.shape, wide) * wide(scale)

        return draw
    raise InvalidArgumentError(
        f"initializer is {initializer!r}; it must be a number, a function of (first_row, block) that fills the block, "
        'or ("uniform", scale, seed) or ("normal", scale, seed).',
        code="bad-initializer",
        argument="initializer",
    )


def _state_fillers(state: dict[str, Array], given: Mapping[str, Fill]) -> "dict[str, Fill | None]":
    """What fills each array of the optimizer: the function that is given for it, or its value at the beginning."""
    unknown = [name for name in given if name not in state]
    if unknown:
        raise InvalidArgumentError(
            f"state_initializers has {unknown[0]!r}; the optimizer has {', '.join(state) or 'no state'}.",
            code="bad-state",
            argument="state_initializers",
            value=unknown[0],
        )
    return {name: partial(_call, given[name]) if name in given else _repeated(row) for name, row in state.items()}


def _call(initializer: Callable[[int, Array], Any], first: int, block: Array) -> None:
    given = initializer(first, block)
    if given is not None:
        raise InvalidArgumentError(
            f"the initializer returned a {type(given).__name__}; it must fill the block that it gets "
            "(`block[:] = …`) and return None.",
            code="bad-initializer",
            argument="initializer",
        )


def _repeated(row: Array) -> "Callable[[int, Array], None] | None":
    """Each row the same; None if it is 0 in every bit."""
    if not row.reshape(-1).view(np.uint8).any():
        return None

    def fill(first: int, block: Array) -> None:
        block[:] = row

    return fill


@contextmanager
def _reporting(progress: Progress | None, header: Header, is_filled: bool) -> Iterator[Progress | None]:
    """Whom to tell how far it is: the caller, or whoever sits at the terminal if it takes long."""
    size = header.parts()["rows"].size
    if progress is not None or not is_filled or size < WORTH_A_BAR or sys.stderr is None or not sys.stderr.isatty():
        yield progress
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("making the table", total=header.rows)
        yield lambda done, total: bar.update(task, completed=done)


def is_full(error: OSError) -> bool:
    """Whether an error tells that there is no room: on the disk, for the user, or for a file."""
    import errno

    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
