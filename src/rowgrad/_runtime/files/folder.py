"""Files of a page: only those in its folder or below, so that a page from elsewhere can reach nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rowgrad._runtime import dtypes, texts
from rowgrad._runtime.dtypes import BFLOAT16, Array
from rowgrad._runtime.files import store
from rowgrad.errors import FileError

KINDS = (".npy", ".npz", ".csv", ".parquet", ".arrow", ".feather")


def inside(folder: Path | None, name: Any) -> Path:
    """The file called `name` in `folder` (the current one, if None); paths that lead outside it are refused."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise FileError(f"{name!r} is not a file name.")
    texts.check(name, "the name of the file", FileError)
    root = (folder or Path()).resolve()
    try:
        path = (root / name).resolve()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, names past what a file system takes
        shown = name if len(name) <= 60 else f"{name[:57]}..."
        raise FileError(f"{shown!r} is not a file name ({getattr(error, 'strerror', None) or error}).") from error
    if Path(name).is_absolute() or not path.is_relative_to(root):
        raise FileError(f"{name} is outside the folder of the page.", "put the file in the folder of the page.")
    texts.check(str(path.relative_to(root)), f"the file that {name} leads to", FileError)
    return path


def read(folder: Path | None, name: Any, part: str | None, dtype: str | None = None) -> Array:
    """The array in a file of the page's folder, as `dtype` if that is given."""
    try:
        return _plain(store.read(_readable(folder, name), part), name, dtype)
    except FileError as error:
        if part is None and error.code == "no-such-part":  # the command's form, file:part, is none of a page
            raise FileError(error.message, "name one as the attribute part.", code=error.code) from error
        raise


def read_ragged(folder: Path | None, name: Any, part: str) -> tuple[Array, Array]:
    """A column of rows of different lengths, as values and row splits.

    In a Parquet or Arrow file it is a column of lists, in a CSV file one of numbers with spaces between, and in an .npz
    file the members `part` and `part_splits`.
    """
    path = _readable(folder, name)
    match path.suffix.lower():
        case ".parquet" | ".arrow" | ".feather":
            from rowgrad._runtime.files.parquet import read_lists

            values, splits = read_lists(path, part)
        case ".csv":
            values, splits = _split_cells(store.read(path, part), f"{name}:{part}")
        case ".npz":
            values, splits = store.read(path, part), store.read(path, f"{part}_splits")
        case ending:
            raise FileError(f"{name}: {ending} files have no rows of different lengths.")
    return checked_splits(f"{name}:{part}", _plain(values, name), _plain(splits, name))


def checked_splits(name: str, values: Array, splits: Array) -> tuple[Array, Array]:
    """Values and row splits, if they belong together."""
    whole = splits.ndim == 1 and splits.dtype.kind in "iu" and splits.size > 0 and values.ndim > 0
    if not whole or splits[0] != 0 or splits[-1] != len(values) or (np.diff(splits.astype(np.int64)) < 0).any():
        raise FileError(f"{name}: its row splits must ascend from 0 to its number of values.")
    return values, splits.astype(np.int64)


def _split_cells(cells: Array, name: str) -> tuple[Array, Array]:
    """Cells of numbers with spaces between, as values and row splits."""
    if cells.dtype.kind in "iuf":
        return cells, np.arange(len(cells) + 1)
    words = [str(cell).split() for cell in cells]
    flat = [word for row in words for word in row]
    try:
        values = (
            np.array([int(word) for word in flat], np.int64) if all(map(_is_whole, flat)) else np.array(flat, float)
        )
    except (ValueError, OverflowError) as error:
        raise FileError(f"{name} is not a column of numbers separated by spaces ({error}).") from error
    return values, np.cumsum([0, *map(len, words)])


def _is_whole(word: str) -> bool:
    return word.isascii() and word.removeprefix("-").isdigit()


def _readable(folder: Path | None, name: Any) -> Path:
    path = inside(folder, name)
    if path.suffix.lower() not in KINDS:
        raise FileError(f"{name}: files are read by their endings, {', '.join(KINDS)}.")
    return path


def _plain(array: Array, name: str, dtype: str | None = None) -> Array:
    """`array` in the forms that pages know."""
    if dtype is not None and dtypes.name_of(array.dtype) != dtype:
        array = _converted(array, dtype, name)
    if dtypes.name_of(array.dtype) not in (*dtypes.NUMPY, "string"):
        raise FileError(f"{name} is of type {array.dtype}, which no pin takes.", "name a dtype to convert it to.")
    if array.dtype.kind in "UST":
        array = array.astype(object)  # texts on a page are objects, wherever they come from
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    array.flags.writeable = False
    return array


def _converted(array: Array, dtype: str, name: str) -> Array:
    """Floating-point numbers may round; everything else must stay what it is."""
    if dtype == "string" or array.dtype.kind in "OUSTmM":
        raise FileError(f"{name} is {dtypes.name_of(array.dtype)} and cannot be converted to {dtype}.")
    target = dtypes.NUMPY[dtype]
    if array.dtype == np.dtype("V2") and target == BFLOAT16:
        return array.view(BFLOAT16)
    if target.names or (array.dtype.kind == "V" and array.dtype != BFLOAT16):
        raise FileError(f"{name} is {dtypes.name_of(array.dtype)} and cannot be converted to {dtype}.")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(target)
        back = converted.astype(array.dtype)
        rounds = target.kind in "fc" or target == BFLOAT16
        same = np.isfinite(converted) == np.isfinite(array) if rounds else back == array
    if not np.all(same) or (array.dtype.kind == "c" and target.kind != "c"):
        raise FileError(f"{name} is {dtypes.name_of(array.dtype)}, and some of it would change as {dtype}.")
    return converted


def write(folder: Path | None, name: Any, arrays: Mapping[str, Array]) -> None:
    """Write arrays to an .npz file of the page's folder, all or nothing."""
    path = inside(folder, name)
    if path.suffix.lower() != ".npz":
        raise FileError(f"{name}: arrays are saved as .npz.")
    if not path.parent.is_dir():
        raise FileError(f"{name}: there is no folder {path.parent.name}.")
    store.write(path, arrays)
