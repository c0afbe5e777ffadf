"""The errors of rowgrad: one base class, and a few classes that also derive from the matching built-in errors.

Each error names the operator, the argument, the position, the value, and the fix; `code` is stable and meant for
programs. An error can be constructed from a message alone, because frameworks rebuild errors that way.
"""

from typing import Any

__all__ = [
    "DTypeError",
    "FileError",
    "InvalidArgumentError",
    "OutOfMemoryError",
    "OutOfRangeError",
    "PageError",
    "RowgradError",
]


class RowgradError(Exception):
    """Base class of all errors that rowgrad raises on purpose.

    Attributes
    ----------
    op : str or None
        The operator that was called, by its catalogue name.
    argument : str or None
        The argument at fault.
    position : int, tuple of int or None
        Where in the argument.
    value : object
        What was found there.
    code : str
        A stable identifier for programs, such as ``"index-out-of-range"``; each class has a default.
    """

    code: str = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        argument: str | None = None,
        position: int | tuple[int, ...] | None = None,
        value: Any = None,
        op: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = type(self).code if code is None else code
        self.argument = argument
        self.position = position
        self.value = value
        self.op = op

    def __str__(self) -> str:
        return f"{self.op}: {self.message}" if self.op else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,), self.__dict__.copy()


class InvalidArgumentError(RowgradError, ValueError):
    """An argument has the wrong rank, length, order or value."""

    code = "invalid-argument"


class OutOfRangeError(InvalidArgumentError, IndexError):
    """An index, a segment id or a row number is out of range."""

    code = "out-of-range"


class DTypeError(RowgradError, TypeError):
    """An argument has a type that the operator does not accept, or cannot be converted without loss."""

    code = "wrong-dtype"


class OutOfMemoryError(RowgradError, MemoryError):
    """The result would not fit into the free memory."""

    code = "out-of-memory"


class FileError(RowgradError, ValueError):
    """A file is missing, damaged, of another format, or outside its allowed folder; `hint` says how to fix it."""

    code = "bad-file"

    def __init__(self, message: str, hint: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.hint = hint


class PageError(RowgradError, ValueError):
    """A page is invalid, or a change would make it invalid; names the block and the pin.

    Attributes
    ----------
    block : str or None
        The block at fault.
    pin : str or None
        The pin or attribute at fault; the same as `argument`.
    """

    code = "bad-page"

    def __init__(self, message: str, *, block: str | None = None, pin: str | None = None, **fields: Any) -> None:
        super().__init__(message, argument=pin, **fields)
        self.block = block

    @classmethod
    def of(cls, error: RowgradError, block: str, op: str, pin: str | None = None) -> "PageError":
        """Return `error` as the error of a block; `pin` is the place, if the error does not name one."""
        hint = getattr(error, "hint", "")
        message = f"{error.message} {hint[0].upper()}{hint[1:]}" if hint else error.message
        found = cls(message, block=block, pin=pin or error.argument, code=error.code, position=error.position,
                    value=error.value, op=op)  # fmt: skip
        found.__cause__ = error
        return found

    @property
    def pin(self) -> str | None:
        """The pin or attribute at fault."""
        return self.argument

    def __str__(self) -> str:
        where = self.block or ""
        if self.block and self.pin:
            where += f":{self.pin}"
        return f"{where}: {self.message}" if where else self.message
