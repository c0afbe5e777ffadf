"""The operators as functions in snake case, made from the catalogue; those at the top level of `rowgrad` and others."""

from typing import Any

from rowgrad._ops.callables import ON_ARRAYS, make_functions

_functions = make_functions(ON_ARRAYS)
__all__ = sorted(_functions)
globals().update(_functions)


def __getattr__(name: str) -> Any:  # tells type checkers that there are more names than are written here
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
