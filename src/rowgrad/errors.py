"""The errors of rowgrad: one root, and a few classes that are also the built-in ones a caller would expect.

Each error says which operator, which argument, where in it, what was found, and how to fix it; `code` is stable
and meant for programs. An error can be built from a message alone, because frameworks rebuild errors like that.
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
    """The root of all errors that rowgrad raises on purpose.

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
        A stable word for programs, such as ``"index-out-of-range"``; each class has one that it takes by default.
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
    """An index, a segment id or a row points outside what it refers to."""

    code = "out-of-range"


class DTypeError(RowgradError, TypeError):
    """An argument is of a type the operator does not take, or cannot be converted without loss."""

    code = "wrong-dtype"


class OutOfMemoryError(RowgradError, MemoryError):
    """The result would not fit into the memory that is free."""

    code = "out-of-memory"


class FileError(RowgradError, ValueError):
    """A file is missing, damaged, of another format, or outside the folder it may be in; `hint` says what helps."""

    code = "bad-file"

    def __init__(self, message: str, hint: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.hint = hint


class PageError(RowgradError, ValueError):
    """A page is wrong, or a change would make it so; says at which block and pin.

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
        """`error` as one of a block; `pin` is where it belongs, if the error does not know."""
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
