"""Files of Parquet and Arrow as pieces that can be read by themselves: row groups, or record batches.

Only what the files say of themselves is read to list the pieces; rows are read piece by piece.
"""

import glob
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rowgrad._runtime.files.regular import open_regular
from rowgrad.errors import InvalidArgumentError

SUFFIXES = (".parquet", ".pq", ".arrow", ".feather", ".ipc")
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Piece(NamedTuple):
    """Rows of a file that are read together: the number of the piece in it, and how many rows it has."""

    file: str
    number: int
    rows: int


def arrow() -> Any:
    """pyarrow, with the parts that read files."""
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("rowgrad.torch.data needs pyarrow: pip install 'rowgrad[parquet]'") from error
    return pyarrow


def find(files: Paths) -> list[str]:
    """The files that paths, folders and patterns name, each sorted by name."""
    given = [files] if isinstance(files, str | os.PathLike) or not isinstance(files, Iterable) else list(files)
    if wrong := [path for path in given if not isinstance(path, str | os.PathLike)]:
        raise InvalidArgumentError(
            f"files has {wrong[0]!r}; give paths as str or pathlib.Path.", code="wrong-argument", argument="files"
        )
    found: list[str] = []
    for item in [os.fspath(path) for path in given]:
        if os.path.isdir(item):
            here = sorted(str(path) for path in Path(item).rglob("*") if path.suffix in SUFFIXES)
        else:
            here = sorted(glob.glob(item)) if glob.has_magic(item) else [item] if os.path.exists(item) else []
        if not here:
            raise InvalidArgumentError(
                f"{item} names no file; give a file, a folder with {', '.join(SUFFIXES)} files, or a pattern such as "
                "data/*.parquet.",
                code="no-file",
                argument="files",
                value=item,
            )
        found += here
    if not found:
        raise InvalidArgumentError("files is empty; give at least one file.", code="no-file", argument="files")
    return found


def pieces_of(file: str, columns: Sequence[str]) -> list[Piece]:
    """The pieces of a file, which must have these columns."""
    with _named(file):
        if _is_parquet(file):
            opened = arrow().parquet.ParquetFile(file, memory_map=True)
            names = opened.schema_arrow.names
            rows = [opened.metadata.row_group(i).num_rows for i in range(opened.num_row_groups)]
        else:
            opened = arrow().ipc.open_file(arrow().memory_map(file))
            names = opened.schema.names
            rows = [opened.get_batch(i).num_rows for i in range(opened.num_record_batches)]
    for column in columns:
        if column not in names:
            raise InvalidArgumentError(
                f"{file} has no column {column!r}; it has {', '.join(map(repr, names))}. Name one of these.",
                code="no-column",
                argument="features",
                value=column,
            )
    return [Piece(file, number, count) for number, count in enumerate(rows) if count]


def read(piece: Piece, columns: Sequence[str], *, is_alone: bool) -> Any:
    """The rows of a piece as a table of pyarrow; by several threads if this process `is_alone`."""
    with _named(piece.file):
        if _is_parquet(piece.file):
            opened = arrow().parquet.ParquetFile(piece.file, memory_map=True)
            table = opened.read_row_group(piece.number, columns=list(columns), use_threads=is_alone)
        else:
            opened = arrow().ipc.open_file(arrow().memory_map(piece.file))
            table = arrow().Table.from_batches([opened.get_batch(piece.number)]).select(list(columns))
            table.validate(full=True)  # what is mapped is believed: lengths and offsets may lead out of it
    if table.num_rows != piece.rows:
        raise InvalidArgumentError(
            f"{piece.file} has {table.num_rows} rows in its row group {piece.number}, but had {piece.rows} when the "
            "data set was made. Do not change files while they are read.",
            code="changed",
            argument="files",
            value=piece.file,
        )
    return table


def _is_parquet(file: str) -> bool:
    with open_regular(file) as opened:
        return opened.read(4) == b"PAR1"


class _named:
    """Errors of pyarrow, which do not say which file it was."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        wrong = arrow().ArrowException | OSError | UnicodeError
        if isinstance(error, wrong) and not isinstance(error, FileNotFoundError):
            raise InvalidArgumentError(
                f"{self._file} cannot be read as Parquet or as an Arrow file: {error}. Write it again, or leave it "
                "out; Arrow streams have to be written as files.",
                code="bad-file",
                argument="files",
                value=self._file,
            ) from error
