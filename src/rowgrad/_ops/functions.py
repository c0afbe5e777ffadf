"""The operators as functions in snake case, made from the catalogue. `functions.pyi` lists them for editors."""

from rowgrad._ops.callables import ON_ARRAYS, make_functions

_functions = make_functions(ON_ARRAYS)
__all__ = sorted(_functions)
globals().update(_functions)
