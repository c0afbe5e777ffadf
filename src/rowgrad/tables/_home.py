"""The folder that commits belong to: that of one table, or that of a set with the folders of its tables in it."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rowgrad.errors import FileError, InvalidArgumentError
from rowgrad.tables import _header as headers
from rowgrad.tables import _regular as regular
from rowgrad.tables._header import Header

SET = "set.json"
TABLES = "tables"
LOCKED = "set.lock"  # what a writer of a set locks; never replaced
VERSION = 1
LARGEST_RECORD = 1 << 20  # bytes of the caller's record
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}")


class Home(NamedTuple):
    """Where logs lie, whose they are, and the folders of the tables by name; a table of its own has the name ""."""

    folder: Path
    identity: str
    tables: dict[str, Path]
    is_set: bool

    @property
    def locked(self) -> Path:
        """The file that a writer locks."""
        return self.folder / (LOCKED if self.is_set else headers.ROWS)

    def headers(self) -> dict[str, Header]:
        """The headers of all tables, as they are in the files."""
        return {name: headers.read(folder, in_set=self.is_set) for name, folder in self.tables.items()}

    def record(self) -> Any:
        """The caller's record, as it is in the files."""
        return read_set(self.folder)["record"] if self.is_set else None

    def write(self, found: Mapping[str, Header], record: Any) -> None:
        """Replace all headers, and the record. Logs have to be there until this is done."""
        for name, header in found.items():
            headers.write(self.tables[name], header.as_json())
        if self.is_set:
            write_set(self.folder, self.identity, list(self.tables), record)


def of_table(folder: Path) -> Home:
    """The home of a table of its own."""
    return Home(folder, headers.read(folder).id, {"": folder}, is_set=False)


def of_set(folder: Path) -> Home:
    """The home of a set."""
    fields = read_set(folder)
    return Home(folder, fields["id"], {name: folder / TABLES / name for name in fields["tables"]}, is_set=True)


def write_set(folder: Path, identity: str, names: list[str], record: Any) -> None:
    """Put a new `set.json` in place, all or nothing."""
    fields = {"rowgrad_table_set": VERSION, "id": identity, "tables": names, "record": record}
    fields["checksum"] = headers.checksum_of(fields)
    headers.write(folder, json.dumps(fields, indent=1) + "\n", name=SET)


def read_set(folder: Path) -> dict[str, Any]:
    """The fields of `set.json`, checked."""
    path = folder / SET
    try:
        with os.fdopen(regular.open_file(path, os.O_RDONLY), "rb") as file:
            text = file.read(4 * LARGEST_RECORD + 1)
        if len(text) > 4 * LARGEST_RECORD:
            raise ValueError("it is too long")
        fields = json.loads(text)
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "there is no such folder" if not folder.exists() else "it has no set.json, so it is not a set of tables"
        raise FileError(
            f"{folder}: {what}. Make one with `rowgrad.TableSet.create`.", code="not-a-table-set", argument="path"
        ) from error
    except OSError as error:
        raise FileError(
            f"{path} cannot be read ({error.strerror}). Check the permissions of the folder.",
            code="cannot-read",
            argument="path",
        ) from error
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"is not JSON ({error})") from error
    if not isinstance(fields, dict) or "rowgrad_table_set" not in fields:
        raise FileError(f"{path} is not that of a set of tables.", code="not-a-table-set", argument="path")
    if fields["rowgrad_table_set"] != VERSION:
        raise FileError(
            f"{path} is of version {fields['rowgrad_table_set']!r} of the format, and this rowgrad knows version "
            f"{VERSION} only. Open it with the rowgrad that wrote it, or a newer one.",
            code="other-version",
            value=fields["rowgrad_table_set"],
        )
    if fields.pop("checksum", None) != headers.checksum_of(fields):
        raise _bad(path, "does not match its checksum: it was damaged, or changed by hand")
    names = fields.get("tables")
    if not (isinstance(fields.get("id"), str) and isinstance(names, list) and "record" in fields) or not all(
        isinstance(name, str) and _NAME.fullmatch(name) for name in names
    ):
        raise _bad(path, "has a field that is missing or wrong")
    return fields


def check_name(name: Any) -> str:
    """A name that a table of a set may have, since its folder is called so."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidArgumentError(
            f"name is {name!r}; it must have 1 to 100 letters, digits, points, hyphens and underscores, and not begin "
            "with a point or a hyphen.",
            code="bad-name",
            argument="name",
            value=name,
        )
    return name


def check_record(record: Any) -> Any:
    """The caller's record as it will be read again."""
    try:
        text = json.dumps(record)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"record cannot be written as JSON ({error}). Use numbers, strings, lists and dicts; keep arrays in a file "
            "of their own, and its name here.",
            code="bad-record",
            argument="record",
        ) from error
    if len(text) > LARGEST_RECORD:
        raise InvalidArgumentError(
            f"record takes {len(text)} bytes as JSON, and at most {LARGEST_RECORD} are kept. Keep large things in a "
            "file of their own, and its name here.",
            code="too-large",
            argument="record",
            value=len(text),
        )
    return json.loads(text)


def _bad(path: Path, what: str) -> FileError:
    return FileError(f"{path} {what}. Copy the whole folder again from its source.", code="bad-header", argument="path")
