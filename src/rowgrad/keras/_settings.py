"""The settings that the layers share, checked."""

import operator
from typing import Any

from rowgrad.errors import InvalidArgumentError

MOST = 2**63 - 1


def whole(op: str, argument: str, value: Any) -> int:
    """A number of rows, columns or bins: 1 or more."""
    try:
        found = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = 0
    if not 1 <= found <= MOST:
        raise InvalidArgumentError(
            f"{argument} is {value!r}; it must be a whole number from 1 to 2**63 - 1.",
            code="wrong-argument",
            argument=argument,
            value=value,
            op=op,
        )
    return found
