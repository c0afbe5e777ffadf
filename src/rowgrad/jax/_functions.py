"""The operators as functions for JAX, made from the catalogue: the same names and arguments as `rowgrad`'s own.

`out` and `plan` are left out, since JAX's arrays are not written to; compact gradients take `max_unique`.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from inspect import Parameter, Signature
from typing import Any

from rowgrad._ops import Operator
from rowgrad._ops.callables import by_function, function_signature
from rowgrad._ops.docstrings import docstring
from rowgrad.jax._call import is_compact
from rowgrad.jax._differentiable import apply

OPTIONS = re.compile(r"^(?:out|plan) : .*\n    .*\n", re.MULTILINE)
ROUNDED = re.compile(r"print\((result[.\w]*?)\.astype\(float\)")
MOST = Parameter("max_unique", Parameter.KEYWORD_ONLY, default=None)
MOST_DOC = """max_unique : int, optional
    The most distinct rows that may occur, which `jit` must know: `output` is then padded to as many rows with zeros
    and `sorted_unique_indices` with the number of rows of the table, an id that ``.at[ids].add(rows, mode="drop")``
    leaves out. More distinct rows than that are an error. Without it the size is exact, and `jit` refuses.
"""


def make_function(name: str, operators: list[Operator]) -> Callable[..., Any]:
    """The snake-case function `name`; of two operators, the one whose last input is given or not."""
    shortest, longest = operators[0], operators[-1]
    signature = _signature(operators)
    names = [pin.name for pin in longest.inputs]

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        values = [given[name] for name in names]
        if shortest is not longest and values[-1] is None:
            return apply(shortest, values[:-1])
        return apply(longest, values, most=given.get("max_unique"))

    function.__name__ = function.__qualname__ = name
    function.__module__ = "rowgrad.jax"
    function.__doc__ = _docstring(operators, name)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _signature(operators: list[Operator]) -> Signature:
    """That of rowgrad's own function, without its options."""
    own = function_signature(operators).parameters.values()
    inputs = [parameter for parameter in own if parameter.kind is not Parameter.KEYWORD_ONLY]
    return Signature([*inputs, *([MOST] if is_compact(operators[-1]) else [])])


def _docstring(operators: list[Operator], name: str) -> str:
    """That of rowgrad's own function, with the options that there are here."""
    text = OPTIONS.sub("", docstring([_in_numbers(operator) for operator in operators], name))
    text = text.replace(">>> import rowgrad\n", ">>> import numpy as np\n>>> import rowgrad.jax\n")
    text = text.replace(f"rowgrad.{name}(", f"rowgrad.jax.{name}(")
    text = ROUNDED.sub(r"print(np.asarray(\1).astype(float)", text)
    if not is_compact(operators[-1]):
        return text
    return text.replace("\n\nReturns\n", f"\n{MOST_DOC}\nReturns\n", 1)


def _in_numbers(operator: Operator) -> Operator:
    """`operator` with numbers for the texts of its example: JAX has no arrays of text."""
    example = operator.example
    texts: dict[str, float] = {}

    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [number(item) for item in value]
        return texts.setdefault(value, 1.0 + len(texts)) if isinstance(value, str) else value

    inputs = {name: number(value) for name, value in example.inputs.items()}
    outputs = {name: number(value) for name, value in example.outputs.items()}
    return replace(operator, example=replace(example, inputs=inputs, outputs=outputs)) if texts else operator


FUNCTIONS = {name: make_function(name, operators) for name, operators in by_function().items()}
