"""What goes wrong, in the words of the protocol: a message, the block and the pin, a code, and where in the value."""

import logging
from typing import Any

from rowgrad.errors import RowgradError

log = logging.getLogger("rowgrad_studio")

LONGEST = 2000  # characters of a value that is shown
STATUS = {"no-such-file": 404, "unknown-document": 404, "outside": 403, "too-large": 413}


class Refusal(RowgradError):
    """A request or a command that the studio does not follow; `code` says why."""

    code = "bad-command"

    def __init__(self, message: str, code: str | None = None, **fields: Any) -> None:
        super().__init__(message, code=code, **fields)


def problem(error: Exception) -> dict[str, Any]:
    """The `Problem` that tells of `error`."""
    if isinstance(error, RowgradError):
        hint = getattr(error, "hint", "")
        return {
            "message": f"{error.message} {hint[0].upper()}{hint[1:]}" if hint else error.message,
            "block": getattr(error, "block", None),
            "pin": error.argument,
            "code": error.code,
            "position": _place(error.position),
            "value": _shown(error.value),
        }
    if isinstance(error, MemoryError):
        return _plain("there is not enough memory for this.", "out-of-memory")
    if isinstance(error, OSError):
        return _plain(f"{error.filename or 'a file'}: {error.strerror or error}.", "bad-file")
    log.error("a bug in the studio", exc_info=error)
    return _plain(
        f"{type(error).__name__}: {error}. This is a bug in the studio; its terminal shows where.", "internal"
    )


def status(error: Exception) -> int:
    """The HTTP status of `error`."""
    return STATUS.get(getattr(error, "code", ""), 400)


def _plain(message: str, code: str) -> dict[str, Any]:
    return {"message": message, "block": None, "pin": None, "code": code, "position": None, "value": None}


def _place(position: Any) -> int | list[int] | None:
    if position is None:
        return None
    return [int(part) for part in position] if isinstance(position, tuple | list) else int(position)


def _shown(value: Any) -> Any:
    """`value` as JSON can hold it; what it has no word for is shown as Python writes it."""
    if value is None or isinstance(value, bool) or (type(value) is int and abs(value) < 2**53):
        return value
    if isinstance(value, tuple | list) and len(value) <= 32:
        return [_shown(item) for item in value]
    return str(value)[:LONGEST]
