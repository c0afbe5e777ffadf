"""The operators as functions in snake case, made from the catalogue. `functions.pyi` lists them for editors."""

from rowgrad._ops.callables import by_function, make_function

__all__ = sorted(by_function())
globals().update({name: make_function(name, operators) for name, operators in by_function().items()})
