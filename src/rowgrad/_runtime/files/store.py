"""Arrays in files: .npy, .npz, CSV, Parquet and Arrow in, .npy and .npz out; never a pickle, and never half a file.

NumPy's formats know no bfloat16. In an .npz file it is kept as the member `output` of 16-bit words, beside a member
`output.dtype` that says so; a lone .npy file keeps raw 2-byte items, to be read as `bfloat16:file.npy`.
"""

import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from rowgrad._runtime import texts
from rowgrad._runtime.dtypes import BFLOAT16, Array
from rowgrad._runtime.memory import check_room
from rowgrad.errors import FileError, OutOfMemoryError, RowgradError

KEPT_TYPE = ".dtype"  # beside the name of a member: which type its words are


def read(path: Path, part: str | None) -> Array:
    """The array in `path`; `part` is the member of an .npz or the column of a table, where there are several."""
    array = _read(path, part)
    texts.check(array, f"{path}:{part}" if part is not None else str(path), FileError)
    return array


def _read(path: Path, part: str | None) -> Array:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "there is no such file"
        raise FileError(f"{path}: {what}.", code="no-such-file")
    kind = path.suffix.lower()
    if kind in (".parquet", ".arrow", ".feather"):
        from rowgrad._runtime.files.parquet import read_column

        return read_column(path, part)
    if kind == ".csv":
        from rowgrad._runtime.files.csv import read_csv

        return read_csv(path, part)
    if kind == ".npz":
        return _read_member(path, part)
    with path.open("rb") as file:
        return _read_array(file, str(path))


def _read_array(file: IO[bytes], name: str) -> Array:
    try:
        return np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # NumPy reads headers as Python: a damaged one may raise whatever tokenizing raises
        if "Object arrays" in str(error):
            raise FileError(
                f"{name} holds pickled Python objects, which can run code when they are read; they are not loaded.",
                "save it as an array of numbers, or of strings of a fixed width.",
            ) from error
        raise FileError(f"{name} is not a whole .npy array ({first_line(error)}).") from error


def _read_member(path: Path, part: str | None) -> Array:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            notes = {f"{name}{KEPT_TYPE}" for name in members}
            member = choose_part(path, part, [name for name in members if name not in notes], "member")
            array = _open_member(archive, path, member)
            if f"{member}{KEPT_TYPE}" not in members:
                return array
            kept = str(_open_member(archive, path, f"{member}{KEPT_TYPE}"))
    except RowgradError:
        raise
    except Exception as error:  # of damaged archives zipfile says many things, and OSError among them
        raise FileError(f"{path} is not a whole .npz file ({first_line(error)}).") from error
    if kept != "bfloat16" or array.dtype != np.uint16:
        raise FileError(
            f"{path}:{member} is {array.dtype.name} and called {kept}; only uint16 called bfloat16 is known."
        )
    return array.view(BFLOAT16)


def _open_member(archive: zipfile.ZipFile, path: Path, member: str) -> Array:
    try:
        check_room(archive.getinfo(f"{member}.npy").file_size, member)  # a small archive can hold many zeros
    except OutOfMemoryError as error:
        raise FileError(f"{path}:{member} is larger than the free memory.", code=error.code) from error
    with archive.open(f"{member}.npy") as file:
        return _read_array(file, f"{path}:{member}")


def choose_part(path: Path, part: str | None, parts: list[str], word: str) -> str:
    """Which part of a file is meant: the one that is named, or the only one."""
    if part is None and len(parts) == 1:
        return parts[0]
    if part is not None and part in parts:
        return part
    shown = ", ".join(parts[:20]) + (", …" if len(parts) > 20 else "")
    listed = f"it has {shown}." if parts else "it has none."
    if part is None:
        hint = f"name one: {path}:{parts[0]}" if parts else ""
        raise FileError(f"{path} does not have just one {word}; {listed}", hint, code="no-such-part")
    raise FileError(f"{path} has no {word} {part!r}; {listed}", code="no-such-part")


def write(path: Path, results: Mapping[str, Array]) -> None:
    """Write `results` to `path`, all or nothing: what was there stays until the new file is whole."""
    storable = {name: _storable(name, array) for name, array in results.items()}
    if path.suffix.lower() == ".npy":
        (array,) = storable.values()
        replace(path, lambda file: _write_array(file, array.view("V2") if array.dtype == BFLOAT16 else array))
    else:
        replace(path, lambda file: _write_members(file, storable))


def _write_members(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            if array.dtype == BFLOAT16:
                _write_member(archive, f"{name}{KEPT_TYPE}", np.array("bfloat16"))
                array = array.view(np.uint16)
            _write_member(archive, name, array)


def _write_member(archive: zipfile.ZipFile, name: str, array: Array) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        _write_array(file, array)


def _write_array(file: IO[bytes], array: Array) -> None:
    np.lib.format.write_array(file, array, allow_pickle=False)


def _storable(name: str, array: Array) -> Array:
    """Text of any kind as text of a fixed width, the only kind that needs no pickle."""
    if array.dtype.kind not in "OT":
        return array
    fixed = array.astype(bytes if any(isinstance(item, bytes) for item in array.flat) else str)
    if fixed.astype(object).tolist() != array.astype(object).tolist():
        raise FileError(f"{name} mixes text and bytes, or ends in NUL characters, which .npy files cannot hold.")
    return fixed


def replace(path: Path, fill: Callable[[IO[bytes]], None]) -> None:
    """Let `fill` write a new file, and put it in the place of `path` when it is whole and on the disk."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, _usual_mode(path))
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _usual_mode(path: Path) -> int:
    """The permissions of the file that is replaced, or those that a new file would get."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def first_line(error: BaseException) -> str:
    """What an error of another library says, in one line."""
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
