"""The header of a table: what its files hold, and at which step; read with suspicion, replaced as a whole.

The header is a JSON file with a checksum of its own. Names of files are made here, never read: a header that someone
tampered with can lead nowhere else.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rowgrad._runtime import dtypes
from rowgrad.errors import FileError
from rowgrad.tables import _regular as regular
from rowgrad.tables._mapping import file_size

NAME = "header.json"
ROWS = "rows.bin"
VERSION = 2
LARGEST = 1 << 20  # bytes of a header that is believed
MAX_KEY_BYTES, MAX_ADMIT = 1 << 12, 255
LIMIT = 2**63 - (1 << 20)  # bytes of a file
_STATE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


class KeySettings(NamedTuple):
    """How keys of a table are kept: what they are, rows that no key gets, and how often a new key has to be seen."""

    kind: str  # "int64" or "string"
    max_bytes: int  # of a string as UTF-8
    reserved: int
    admit_after: int

    @classmethod
    def checked(cls, fields: Any) -> "KeySettings":
        """The settings in a header, or `ValueError`."""
        found = cls(_known(fields["kind"], ("int64", "string")), *(_count(fields[name]) for name in cls._fields[1:]))
        if found.max_bytes > MAX_KEY_BYTES or not 1 <= found.admit_after <= MAX_ADMIT:
            raise ValueError("keys")
        return found

    def arrays(self, rows: int) -> "dict[str, tuple[np.dtype[Any], tuple[int, ...]]]":
        """The arrays that hold the keys of so many rows; all of them begin as zeros."""
        whole, byte = np.dtype(np.int64), np.dtype(np.uint8)
        found: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
            "key": (whole, (rows,)) if self.kind == "int64" else (byte, (rows, -(-(self.max_bytes + 2) // 8) * 8)),
            "seen": (whole, (rows,)),  # the clock of the last use + 1; 0 for rows without a key
            "count": (whole, (rows,)),
            "numbers": (whole, (8,)),
        }
        if self.admit_after > 1:
            found["sketch"] = (byte, (4 * (1 << max(10, (2 * rows - 1).bit_length())),))
        return found


class Part(NamedTuple):
    """One array: its file, type and shape."""

    file: str
    dtype: "np.dtype[Any]"
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The bytes of its file."""
        return file_size(self.shape, self.dtype)

    @property
    def rows(self) -> int:
        """How many rows it has; an array without dimensions is one."""
        return self.shape[0] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        return prod(self.shape[1:]) * self.dtype.itemsize


@dataclass(frozen=True)
class Header:
    """What a table is: an id of its own, its shape, the optimizer's settings and arrays, and the steps it has made.

    A table with keys has their settings, too; one that belongs to a set tells that, since its log is there.
    """

    id: str
    rows: int
    width: int
    dtype: str
    optimizer: Mapping[str, Any] | None
    state: Mapping[str, tuple[str, tuple[int, ...]]]  # name → type and shape
    steps: int
    keys: KeySettings | None = None
    in_set: bool = False
    version: int = VERSION

    def parts(self) -> dict[str, Part]:
        """All arrays by name: "rows", "state.name" for those of the state, "keys.name" for those of the keys."""
        rows = Part(ROWS, dtypes.NUMPY[self.dtype], (self.rows, self.width))
        state = {
            f"state.{name}": Part(f"state.{name}.bin", dtypes.NUMPY[kind], shape)
            for name, (kind, shape) in self.state.items()
        }
        keys = {} if self.keys is None else self.keys.arrays(self.rows)
        return {
            "rows": rows,
            **state,
            **{f"keys.{name}": Part(f"keys.{name}.bin", *kind) for name, kind in keys.items()},
        }

    def at(self, steps: int, optimizer: Mapping[str, Any] | None) -> "Header":
        """The same table, some steps later."""
        return replace(self, steps=steps, optimizer=optimizer, version=VERSION)

    def as_json(self) -> str:
        """The text of the file, one field a line."""
        fields = {
            "rowgrad_table": VERSION,
            "id": self.id,
            "rows": self.rows,
            "width": self.width,
            "dtype": self.dtype,
            "steps": self.steps,
            "optimizer": self.optimizer,
            "state": {name: {"dtype": kind, "shape": list(shape)} for name, (kind, shape) in self.state.items()},
            "keys": None if self.keys is None else self.keys._asdict(),
            "in_set": self.in_set,
            "files": {part.file: part.size for part in self.parts().values()},
        }
        fields["checksum"] = checksum_of(fields)
        return "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(fields[name])}" for name in fields) + "\n}\n"

    @classmethod
    def parse(cls, text: str, where: str) -> "Header":
        """The header in `text`, or `FileError` that tells what is wrong with `where` it was found."""
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _bad(where, f"is not JSON ({error})") from error
        if not isinstance(fields, dict) or "rowgrad_table" not in fields:
            raise FileError(f"{where} is not the header of a table.", code="not-a-table")
        if fields["rowgrad_table"] not in (1, VERSION):
            raise FileError(
                f"{where} is of version {fields['rowgrad_table']!r} of the format, and this rowgrad knows versions 1 "
                f"and {VERSION} only. Open it with the rowgrad that wrote it, or a newer one.",
                code="other-version",
                value=fields["rowgrad_table"],
            )
        if fields.pop("checksum", None) != checksum_of(fields):
            raise _bad(where, "does not match its checksum: it was damaged, or changed by hand")
        try:
            header = cls._from(fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _bad(where, f"has a field that is missing or wrong ({error!r})") from error
        if {part.file: part.size for part in header.parts().values()} != fields["files"]:
            raise _bad(where, "lists files that do not fit its shape")
        return header

    @classmethod
    def _from(cls, fields: dict[str, Any]) -> "Header":
        rows, width, steps = (_count(fields[name]) for name in ("rows", "width", "steps"))
        dtype = _known(fields["dtype"], dtypes.FLOATS)
        state = {}
        for name, described in fields["state"].items():
            shape = tuple(_count(length) for length in described["shape"])
            if not is_state_name(name) or (shape and shape[0] != rows):
                raise ValueError(f"state {name} of shape {list(shape)}")
            state[name] = _known(described["dtype"], dtypes.REALS), shape
        if not (isinstance(fields["id"], str) and isinstance(fields["optimizer"], dict | None)):
            raise ValueError("id or optimizer")
        keys = None if fields.get("keys") is None else KeySettings.checked(fields["keys"])
        in_set = fields.get("in_set", False)
        if not isinstance(in_set, bool):
            raise ValueError("in_set")
        version = fields["rowgrad_table"]
        header = cls(fields["id"], rows, width, dtype, fields["optimizer"], state, steps, keys, in_set, version)
        if any(prod(part.shape) * part.dtype.itemsize > LIMIT for part in header.parts().values()):
            raise ValueError("larger than any file")
        return header


def is_state_name(name: str) -> bool:
    """Whether an array of the state may be called so; its file will be."""
    return _STATE_NAME.fullmatch(name) is not None


def read(folder: Path, *, in_set: bool = False) -> Header:
    """The header of the table in `folder`; one of a set is opened with the set only, which has its log."""
    header = _read(folder)
    if header.in_set and not in_set:
        raise FileError(
            f"{folder} is a table of a set. Open the set: `rowgrad.TableSet.open({str(folder.parent.parent)!r})`.",
            code="part-of-set",
            argument="path",
        )
    return header


def _read(folder: Path) -> Header:
    path = folder / NAME
    try:
        with os.fdopen(regular.open_file(path, os.O_RDONLY), "rb") as file:
            data = file.read(LARGEST + 1)
        text = data.decode("utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "there is no such folder" if not folder.exists() else "it has no header.json, so it is not a table"
        raise FileError(
            f"{folder}: {what}. Make one with `rowgrad.Table.create`.", code="not-a-table", argument="path"
        ) from error
    except UnicodeDecodeError as error:
        raise _bad(str(path), "is not text") from error
    except OSError as error:
        raise FileError(
            f"{path} cannot be read ({error.strerror}). Check the permissions of the folder.",
            code="cannot-read",
            argument="path",
        ) from error
    if len(data) > LARGEST:
        raise _bad(str(path), "is too long")
    return Header.parse(text, str(path))


def write(folder: Path, text: str, *, name: str = NAME) -> None:
    """Put `text` in the place of the header, all or nothing, on the disk itself."""
    from rowgrad._runtime.files import store  # with all it needs, slower to load than the rest of tables

    store.replace(folder / name, lambda file: _put(file, text))
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Bring the names in `folder` to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _put(file: Any, text: str) -> None:
    file.write(text.encode("utf-8"))


def checksum_of(fields: Mapping[str, Any]) -> str:
    """A checksum of all fields but the one called "checksum"."""
    text = json.dumps({name: fields[name] for name in fields if name != "checksum"}, sort_keys=True)
    import hashlib

    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is not a count")
    return value


def _known(name: Any, names: tuple[str, ...]) -> str:
    if name not in names:
        raise ValueError(f"unknown type {name!r}")
    return str(name)


def _bad(where: str, what: str) -> FileError:
    return FileError(
        f"{where} {what}. Copy the whole folder again from its source.", code="bad-header", argument="path"
    )
