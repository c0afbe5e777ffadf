"""The texts of errors that several families share, as `rowgrad._ops.checks` words them.

Their wording is tested in `test_errors.py`; elsewhere tests ask for the right error with the right facts.
"""

from typing import Any

from rowgrad._ops import checks


def out_of_range(argument: str, position: Any, value: int, limit: int, limit_name: str, remedy: str) -> str:
    """The text for an element that is not in [0, limit)."""
    return str(checks.out_of_range(argument, position, value, limit, limit_name, "", remedy))


def different_lengths(argument: str, length: int, other: str, other_length: int) -> str:
    """The text for arrays that are not equally long."""
    return str(checks.different_lengths(argument, length, other, other_length))
