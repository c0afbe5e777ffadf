"""How the command fails: one line on standard error, a hint where there is one, and an exit code; no traceback.

Exit codes: 1 for data that is wrong, 2 for a command that is, 130 for Ctrl-C.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from rowgrad._cli.show import errors
from rowgrad._runtime.texts import is_text
from rowgrad.errors import FileError, RowgradError

BAD_DATA, BAD_USAGE, INTERRUPTED = 1, 2, 130


class Problem(Exception):
    """Something the user can fix: what is wrong, and how to fix it."""

    def __init__(self, message: str, hint: str = "", *, code: int = BAD_DATA) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


class QuietCommand(TyperCommand):
    """A command that turns every error into one line."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command and leave with its exit code."""
        _leave(super().main, *args, **kwargs)


class QuietGroup(TyperGroup):
    """A group of commands that turns every error into one line."""

    def list_commands(self, ctx: Any) -> list[str]:
        """By name; typer would put groups last."""
        return sorted(super().list_commands(ctx))

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command and leave with its exit code."""
        _leave(super().main, *args, **kwargs)


def _leave(main: Callable[..., Any], *args: Any, **kwargs: Any) -> NoReturn:
    kwargs["standalone_mode"] = False
    try:
        given = args[0] if args else kwargs.get("args")
        _check_arguments(sys.argv[1:] if given is None else given)
        # Commands give nothing back, so that what comes back is the code of an early exit.
        code = main(*args, **kwargs) or 0
        if sys.stdout is not None:  # it is, where the caller has closed it
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has closed it; write nothing more, not even when Python closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = BAD_DATA
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        if os.environ.get("ROWGRAD_TRACEBACK"):
            raise
        code = report(error)
    sys.exit(code)


def _check_arguments(arguments: Sequence[str]) -> None:
    """What a shell passes may be any bytes; those that are not UTF-8 arrive as halves of surrogate pairs."""
    for argument in arguments:
        if not is_text(argument):
            shown = argument if len(argument) <= 60 else f"{argument[:57]}..."
            hint = "rename the file; in a shell without UTF-8, set LC_ALL=C.UTF-8."
            raise Problem(f"the argument {shown!r} is not UTF-8 text.", hint, code=BAD_USAGE)


def report(error: Exception) -> int:
    """Say what is wrong on standard error; gives the exit code."""
    message, hint, code = _described(error)
    console = errors()
    console.print(Text.assemble(("error: ", "bold red"), (message, "red")), soft_wrap=True)
    if hint:
        console.print(Text.assemble(("hint: ", "bold"), hint), soft_wrap=True)
    return code


def _described(error: Exception) -> tuple[str, str, int]:
    if isinstance(error, Problem):
        return error.message, error.hint, error.code
    if isinstance(error, FileError):
        return error.message, error.hint, BAD_USAGE if error.code == "no-such-part" else BAD_DATA
    if isinstance(error, RowgradError):
        return str(error), "", BAD_DATA
    if isinstance(error, MemoryError):
        return "there is not enough memory for this.", "", BAD_DATA
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror or error}.", "", BAD_DATA
    if hasattr(error, "format_message"):  # what typer finds wrong with the command itself
        context = getattr(error, "ctx", None)
        hint = f"{context.command_path} --help lists the options." if context else ""
        return " ".join(error.format_message().split()), hint, getattr(error, "exit_code", BAD_USAGE)
    return (
        f"{type(error).__name__}: {error}",
        "this is a bug in rowgrad; ROWGRAD_TRACEBACK=1 shows where, for a report.",
        BAD_DATA,
    )
