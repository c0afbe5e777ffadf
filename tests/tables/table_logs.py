"""Tables as a process leaves them that ends between a commit and writing its rows; and tables of version 1."""

import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rowgrad import Table
from rowgrad.tables import _header as headers
from rowgrad.tables import _journal as journal
from rowgrad.tables._mapping import PAGE
from rowgrad.tables._store import Store

LOG = "log.1"


def leave_log(path: Path, train: Callable[[Table], None]) -> None:
    """A complete log with what `train` changes, and files without it."""
    with Table.open(path) as table:
        train(table)
        with patch.object(Store, "_apply"):
            table.flush()
        table.close(flush=False)
    assert (path / LOG).exists()


def make_version1(path: Path) -> None:
    """Give a table the header that rowgrad wrote before there were logs."""
    fields = json.loads((path / headers.NAME).read_text())
    for name in ("keys", "in_set", "checksum"):
        del fields[name]
    fields["rowgrad_table"] = 1
    fields["checksum"] = headers.checksum_of(fields)
    (path / headers.NAME).write_text(json.dumps(fields))
    (path / "commits.bin").unlink()


def leave_journal(path: Path, train: Callable[[Table], None]) -> None:
    """A table of version 1 that stopped when its journal of pages was complete, and nothing was in the files yet."""
    with Table.open(path) as table:
        train(table)
        fields = json.loads(table.next_header().as_json())
        changed = {}
        for name, part in table._parts.items():
            pages = part.changed()
            changed[name] = pages, part.bytes.reshape(-1, PAGE)[pages].copy()
        table.close(flush=False)
    make_version1(path)
    for name in ("keys", "in_set", "checksum"):
        del fields[name]
    fields["rowgrad_table"] = 1
    fields["checksum"] = headers.checksum_of(fields)
    _write(path / journal.NAME, json.dumps(fields), changed)


def _write(path: Path, header: str, changed: dict[str, tuple[Any, Any]]) -> None:
    """The journal as version 1 wrote it."""
    text = json.dumps({"page": PAGE, "header": header}).encode()
    with open(path, "xb") as file:
        file.write(journal._START.pack(journal.MAGIC, len(text), zlib.crc32(text)) + text)
        checksums = 0
        for number, (pages, contents) in enumerate(changed.values()):
            lead = journal._BATCH.pack(number, pages.size) + pages.astype("<i8").tobytes()
            checksum = struct.pack("<I", zlib.crc32(contents.tobytes(), zlib.crc32(lead)))
            file.write(lead + contents.tobytes() + checksum)
            checksums = zlib.crc32(checksum, checksums)
        end = struct.pack("<8sQI", journal.MARK, file.tell(), checksums)
        file.write(end + struct.pack("<I", zlib.crc32(end)))
        os.fsync(file.fileno())
