"""Text is what UTF-8 can encode. A Python string can also hold half of a surrogate pair, which JSON can spell
(``"\\ud800"``) and which no file, socket or terminal takes. Pages, files, the command and the studio refuse it here.
"""

import re
from typing import Any

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.errors import InvalidArgumentError, RowgradError

FIRST, LAST, MOST = 0xD800, 0xDFFF, 0x10FFFF
_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
# What is special in JSON strings: whole pairs, escaped halves, other escapes, halves as they are.
_IN_JSON = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2}|[\ud800-\udfff])|\\.",
    re.DOTALL,
)


def is_text(text: str) -> bool:
    """Whether UTF-8 can encode `text`."""
    return _half_in(text) is None


def check(value: Any, what: str, error: type[RowgradError] = InvalidArgumentError) -> None:
    """All strings in `value` must be text: a string, nested lists or an array; `what` is what it is called."""
    if isinstance(value, str):
        at = _half_in(value)
        if at is not None:
            raise _refused(what, value[at], at, error)
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            if isinstance(item, str | list | tuple):
                check(item, f"{what}[{position}]", error)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "UOT":
        _check_array(value, what, error)


def check_json(text: str, error: type[RowgradError] = InvalidArgumentError) -> None:
    """The strings in a JSON document must be text, and so must the document itself."""
    if is_text(text) and not _ESCAPED.search(text):
        return
    for found in _IN_JSON.finditer(text):
        if found[1]:
            before = text[: found.start()]
            line, column = before.count("\n") + 1, found.start() - before.rfind("\n")
            raise _refused(f"line {line}", found[1], column, error, "column")


def _check_array(array: Array, what: str, error: type[RowgradError]) -> None:
    if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        codes = native.reshape(-1, 1).view(np.uint32)
        bad = ((codes >= FIRST) & (codes <= LAST)) | (codes > MOST)
        if not bad.any():
            return
        position, at = map(int, np.unravel_index(int(bad.argmax()), bad.shape))
        code = int(codes[position, at])
        raise _refused(what + _place(position, array.shape), f"\\u{code:04x}", at, error)
    if array.dtype.kind in "OT":
        for position, item in enumerate(array.flat):
            if isinstance(item, str):
                check(item, what + _place(position, array.shape), error)


def _half_in(text: str) -> int | None:
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def _place(position: int, shape: tuple[int, ...]) -> str:
    return f"[{', '.join(str(int(i)) for i in np.unravel_index(position, shape))}]" if shape else ""


def _refused(what: str, half: str, at: int, error: type[RowgradError], unit: str = "character") -> RowgradError:
    shown = half.encode("ascii", "backslashreplace").decode()
    why = "half of a surrogate pair" if len(shown) == 6 else "past the last character of Unicode"
    return error(
        f"{what}, {unit} {at}: {shown} is {why}, which UTF-8 cannot encode. Write a whole character, or leave it out.",
        code="bad-text",
        position=at,
    )
