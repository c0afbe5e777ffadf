"""Data files of a page's folder: which there are, what their columns hold, and new ones that are dropped."""

import base64
import binascii
import csv
import os
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np

from rowgrad._runtime import files
from rowgrad._runtime.files import folder
from rowgrad._runtime.files.store import replace
from rowgrad.errors import FileError
from rowgrad_studio.files import MOST_BYTES, Folder
from rowgrad_studio.problems import Refusal

TABLES = (".parquet", ".arrow", ".feather")
KINDS = (".csv", ".npy", ".npz", *TABLES)
MOST_LISTED = 500
MOST_SHOWN = 5  # rows of a preview
MOST_LOOKED_AT = 200  # rows that tell what a column holds
LONGEST = 60


def listed(place: Path) -> list[dict[str, Any]]:
    """The data files in a page's folder and below, by name; hidden folders are not looked into."""
    found: list[dict[str, Any]] = []
    for here, folders, names in os.walk(place):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        for name in sorted(names):
            path = Path(here, name)
            if path.suffix.lower() in KINDS and not name.startswith(".") and path.is_file():
                found.append({"path": path.relative_to(place).as_posix(), "size": path.stat().st_size})
        if len(found) >= MOST_LISTED:
            break
    return found[:MOST_LISTED]


def keep(place: Path, name: str, data: str) -> str:
    """Write a file that was dropped; another one of that name stays, and the new one gets a number."""
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise Refusal("data is not valid base64.", "bad-request", argument="data") from None
    plain = PurePosixPath(name.replace("\\", "/")).name
    if PurePosixPath(plain).suffix.lower() not in KINDS:
        raise Refusal(f"{plain}: data is read from {', '.join(KINDS)} files.", "bad-file", value=name)
    if len(content) > MOST_BYTES:
        raise Refusal(f"{plain} is larger than {MOST_BYTES >> 20} MB; put it into the folder yourself.", "too-large")
    root = Folder(place)
    for wanted in _names(plain):
        path = root.inside(wanted)
        if not path.exists():
            replace(path, partial(_put, content))
            return wanted
        if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
            return wanted
    raise AssertionError("there is always a next number")


def _put(content: bytes, file: IO[bytes]) -> None:
    file.write(content)


def _names(name: str) -> Iterator[str]:
    yield name
    stem, dot, ending = name.rpartition(".")
    number = 1
    while True:
        yield f"{stem}_{number}{dot}{ending}"
        number += 1


def preview(place: Path, name: str) -> dict[str, Any]:
    """The columns of a file with their first values: what is chosen from."""
    path = folder.inside(place, name)
    if not path.is_file():
        raise Refusal(f"{name}: there is no such file.", "no-such-file", argument="path", value=name)
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise Refusal(f"{name}: data is read from {', '.join(KINDS)} files.", "bad-file", value=name)
    columns = _csv(path) if kind == ".csv" else _table(path) if kind in TABLES else _arrays(path)
    return {"path": name, "columns": columns}


def _column(name: str, kind: str, sample: list[Any], ragged: bool = False) -> dict[str, Any]:
    texts = [text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…" for text in map(str, sample[:MOST_SHOWN])]
    return {"name": name, "kind": kind, "ragged": ragged, "sample": texts}


def _csv(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row, _ in zip(csv.reader(file), range(MOST_LOOKED_AT + 1), strict=False) if row]
    except (csv.Error, UnicodeDecodeError) as error:
        raise FileError(f"{path.name} cannot be read as CSV ({error}).") from error
    if not rows:
        raise FileError(f"{path.name} is empty.")
    has_names = _kind(rows[0]) == "text"
    names = [name.strip() for name in rows[0]] if has_names else [str(position) for position in range(len(rows[0]))]
    body = rows[has_names:]
    columns = []
    for position, name in enumerate(names):
        cells = [row[position].strip() for row in body if position < len(row)]
        kind = _kind(cells)
        parts = [part for cell in cells for part in cell.split()]
        ragged = kind == "text" and any(len(cell.split()) > 1 for cell in cells) and _kind(parts) == "whole numbers"
        columns.append(_column(name, "lists of whole numbers" if ragged else kind, cells, ragged))
    return columns


def _kind(cells: list[str]) -> str:
    for kind, what in ((int, "whole numbers"), (float, "numbers")):
        try:
            for cell in cells:
                kind(cell)
        except ValueError:
            continue
        return what
    return "text"


def _table(path: Path) -> list[dict[str, Any]]:
    try:
        import pyarrow as pa
        import pyarrow.feather as feather
        import pyarrow.parquet as parquet
    except ImportError:
        raise FileError(f"{path.name} is read by pyarrow, which is not installed.", "pip install 'rowgrad[parquet]'",
                        code="not-installed") from None  # fmt: skip
    try:
        if path.suffix.lower() == ".parquet":
            file = parquet.ParquetFile(path)
            batch = next(file.iter_batches(MOST_SHOWN), None)
            table = pa.Table.from_batches([batch] if batch is not None else [], file.schema_arrow)
        else:
            table = feather.read_table(path).slice(0, MOST_SHOWN)
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{path.name} cannot be read ({error}).") from error
    return [
        _column(field.name, str(field.type), table.column(field.name).to_pylist(), pa.types.is_list(field.type))
        for field in table.schema
    ]


def _arrays(path: Path) -> list[dict[str, Any]]:
    if path.suffix.lower() == ".npy":
        parts: list[str | None] = [None]
    else:
        try:
            with zipfile.ZipFile(path) as archive:
                parts = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        except (zipfile.BadZipFile, OSError) as error:
            raise FileError(f"{path.name} is not a whole .npz file ({error}).") from error
    found = []
    for part in parts:
        array = files.read(path, part)
        shape = ", ".join(map(str, array.shape))
        sample = [np.array2string(row, threshold=6) for row in array[:MOST_SHOWN]] if array.ndim else [array]
        found.append(_column(part or "output", f"{array.dtype} [{shape}]", sample))
    return found
