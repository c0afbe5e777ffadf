"""As much of protocol buffers as checkpoints need: messages taken apart by field number, with every bound checked."""

from collections.abc import Iterator
from typing import Any

Buffer = bytes | memoryview


class Damage(Exception):
    """What is wrong with the bytes; the caller, which knows the file, raises a FileError."""


def varint(data: Buffer, at: int) -> tuple[int, int]:
    """The number at a position, and the position after it."""
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise Damage("a number is truncated")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, at
        shift += 7
    raise Damage("a number has more than ten bytes")


def fields(data: Buffer) -> Iterator[tuple[int, Any]]:
    """The number and the value of each field of a message: an int, or the bytes of text, messages and fixed types."""
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        match key & 7:
            case 0:
                value: Any
                value, at = varint(data, at)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, at = varint(data, at)
            case 5:
                size = 4
            case kind:
                raise Damage(f"a message has a field of the unknown kind {kind}")
        if size > end - at:
            raise Damage("a message is truncated")
        yield key >> 3, bytes(data[at : at + size])
        at += size


class Message:
    """The fields of a message by number: the last one, where a field is there once; all, where it is repeated."""

    def __init__(self, data: Buffer) -> None:
        self._found: dict[int, list[Any]] = {}
        for number, value in fields(data):
            self._found.setdefault(number, []).append(value)

    def number(self, field: int, default: int = 0) -> int:
        """A whole number; negative ones are stored as their two's complement."""
        value: int = self._last(field, int, default)
        return value - (1 << 64) if value >> 63 else value

    def fixed32(self, field: int) -> int:
        """An unsigned number of four bytes."""
        return int.from_bytes(self._last(field, bytes, b"\0\0\0\0")[:4], "little")

    def text(self, field: int) -> str:
        """UTF-8 text."""
        return decoded(self._last(field, bytes, b""))

    def message(self, field: int) -> "Message":
        """A message, without fields if it is not there."""
        return Message(self._last(field, bytes, b""))

    def messages(self, field: int) -> "list[Message]":
        """The messages of a repeated field."""
        return [Message(_checked(value, bytes)) for value in self._found.get(field, ())]

    def has(self, field: int) -> bool:
        """Whether a field is there."""
        return field in self._found

    def _last(self, field: int, kind: type, default: Any) -> Any:
        return _checked(self._found[field][-1], kind) if field in self._found else default


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise Damage("a field is of the wrong kind")
    return value


def decoded(data: bytes) -> str:
    """Text of UTF-8 bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Damage("text is not UTF-8") from None
