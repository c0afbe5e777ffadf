"""The options that tables, sets and their keys are made and opened with, checked."""

import os
from typing import Any

import numpy as np

from rowgrad._runtime import limits
from rowgrad.errors import FileError, InvalidArgumentError
from rowgrad.tables._header import MAX_ADMIT, MAX_KEY_BYTES, KeySettings

LEAST_CHANGED = 1 << 22  # bytes of changes below which nothing is flushed by itself


def check_system() -> None:
    """Files are mapped and locked in ways that Windows does not have."""
    if os.name != "posix":
        raise FileError("tables on disk need Linux or macOS.", code="not-supported")


def check_mode(mode: Any) -> None:
    """Whether a table can be opened so."""
    if mode not in ("r", "r+"):
        raise InvalidArgumentError(
            f'mode is {mode!r}; it must be "r+" or "r".', code="bad-mode", argument="mode", value=mode
        )


def max_dirty_of(max_dirty: Any) -> int:
    """The bytes of changes that are allowed: those asked for, or a quarter of the memory at hand."""
    if max_dirty is None:
        return max(LEAST_CHANGED, limits.available() // 4)
    return whole(max_dirty, "max_dirty", 1, 2**63 - 1, "a number of bytes")


def key_settings(keys: Any, rows: Any) -> KeySettings | None:
    """The settings of a `KeyTable` from what `keys=` was given."""
    if keys is None:
        return None
    given = {"kind": keys} if isinstance(keys, str) else keys
    defaults = {"kind": "int64", "max_bytes": 64, "reserved": 0, "admit_after": 1}
    if not isinstance(given, dict) or not set(given) <= set(defaults):
        raise InvalidArgumentError(
            f'keys is {keys!r}; it must be "int64", "string" or a dict of {", ".join(defaults)}.',
            code="bad-keys",
            argument="keys",
        )
    return checked_settings(rows=rows, **(defaults | given))


def checked_settings(rows: Any, kind: Any, max_bytes: Any, reserved: Any, admit_after: Any) -> KeySettings:
    """The settings of a `KeyTable`, or the error that tells which is wrong."""
    if kind not in ("int64", "string"):
        raise InvalidArgumentError(
            f'kind is {kind!r}; keys are "int64" or "string".', code="bad-keys", argument="kind", value=kind
        )
    rows = whole(rows, "rows", 0, 2**48, "a whole number")
    return KeySettings(
        kind,
        whole(max_bytes, "max_bytes", 1, MAX_KEY_BYTES, "a number of bytes"),
        whole(reserved, "reserved", 0, rows, "a number of rows"),
        whole(admit_after, "admit_after", 1, MAX_ADMIT, "a number of times"),
    )


def whole(value: Any, argument: str, least: int, most: int, what: str) -> int:
    """`value` as an int in [least, most], or `InvalidArgumentError`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise InvalidArgumentError(
            f"{argument} is {value!r}; it must be {what} from {least} to {most}.",
            code="bad-size",
            argument=argument,
            value=value,
        )
    return int(value)
