"""Columns of Parquet and Arrow files as arrays, by pyarrow, which is loaded only here.

A column of lists of equal length becomes a matrix. An array has no place for a null, so nulls are refused.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.files.store import choose_part, first_line
from rowgrad.errors import FileError, RowgradError

R = TypeVar("R")


def read_column(path: Path, column: str | None) -> Array:
    """The column called `column`, or the only one there is."""
    return _read(path, column, _to_numpy)


def read_lists(path: Path, column: str) -> tuple[Array, Array]:
    """A column of lists of any lengths, as values and row splits."""
    return _read(path, column, _to_rows)


def _read(path: Path, column: str | None, convert: Callable[[Any, str], R]) -> R:
    if importlib.util.find_spec("pyarrow") is None:
        raise FileError(f"reading {path} needs pyarrow, which is not installed.", "pip install 'rowgrad[parquet]'")
    import pyarrow
    from pyarrow import feather, parquet

    kind = "Parquet" if path.suffix.lower() == ".parquet" else "Arrow"
    try:
        if kind == "Parquet":
            with parquet.ParquetFile(path) as file:
                name = choose_part(path, column, file.schema_arrow.names, "column")
                chunked = file.read(columns=[name]).column(name)
        else:
            table = feather.read_table(path, memory_map=False)
            name = choose_part(path, column, table.column_names, "column")
            chunked = table.column(name)
        whole = pyarrow.concat_arrays(chunked.chunks) if chunked.chunks else pyarrow.array([], chunked.type)
        whole.validate(full=True)
        return convert(whole, f"{path}:{name}")
    except RowgradError:
        raise
    except Exception as error:  # of damaged files pyarrow says many things, and UnicodeDecodeError among them
        raise FileError(f"{path} cannot be read as {kind} ({first_line(error)}).") from error


def _to_rows(column: Any, name: str) -> tuple[Array, Array]:
    from pyarrow import compute, types

    if not (types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type)):
        raise FileError(f"{name} is a column of {column.type}, not of lists.")
    _refuse_nulls(column, name, ())
    lengths = compute.list_value_length(column).to_numpy(zero_copy_only=False)
    return _to_numpy(column.flatten(), name), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _to_numpy(column: Any, name: str) -> Array:
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    _refuse_nulls(column, name, ())
    shape = [len(column)]
    while types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type):
        shape.append(_common_length(column, name, tuple(shape)))
        column = column.flatten()
        _refuse_nulls(column, name, tuple(shape[1:]))
    is_text = types.is_string(column.type) or types.is_large_string(column.type)
    is_bytes = types.is_binary(column.type) or types.is_large_binary(column.type)
    if not (is_text or is_bytes or types.is_boolean(column.type) or types.is_integer(column.type)
            or types.is_floating(column.type)):  # fmt: skip
        raise FileError(f"{name} is a column of {column.type}; numbers, booleans, strings and lists of them are read.")
    flat = column.to_numpy(zero_copy_only=False)
    return np.asarray(flat, object if is_text or is_bytes else None).reshape(shape)


def _common_length(lists: Any, name: str, shape: tuple[int, ...]) -> int:
    from pyarrow import compute

    lengths = compute.list_value_length(lists).to_numpy(zero_copy_only=False)
    if not lengths.size:
        return 0
    odd = lengths != lengths[0]
    if odd.any():
        position = int(odd.argmax())
        place = _place(position, shape[1:])
        raise FileError(
            f"{name}{place} is a list of {int(lengths[position])}, and the first one is of {int(lengths[0])}; "
            "the lists must be equally long to be the rows of a matrix.",
        )
    return int(lengths[0])


def _refuse_nulls(column: Any, name: str, inner: tuple[int, ...]) -> None:
    if column.null_count:
        position = int(np.asarray(column.is_null()).argmax())
        raise FileError(
            f"{name}{_place(position, inner)} is null (as are {column.null_count - 1} more); arrays have no nulls.",
            "fill them, or drop the rows.",
        )


def _place(position: int, inner: tuple[int, ...]) -> str:
    """Where the element at `position` of a flattened column stands: `[row]`, or `[row, …]` within lists."""
    places: list[int] = []
    for size in reversed(inner):
        position, place = divmod(position, size)
        places.append(place)
    return f"[{', '.join(map(str, [position, *reversed(places)]))}]"
