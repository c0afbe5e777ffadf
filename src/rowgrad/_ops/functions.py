"""The operators as functions in snake case, made from the catalogue; those at the top level of `rowgrad` and others."""

from typing import Any

from rowgrad._ops.callables import by_function, make_function

__all__ = sorted(by_function())
globals().update({name: make_function(name, operators) for name, operators in by_function().items()})


def __getattr__(name: str) -> Any:  # tells type checkers that there are more names than are written here
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
