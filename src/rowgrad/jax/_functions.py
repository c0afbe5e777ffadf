"""The operators as functions for JAX, made from the catalogue: the same names and arguments as `rowgrad`'s own.

`out` and `plan` are left out, since JAX's arrays are not written to; compact gradients take `max_unique`.
"""

from collections.abc import Callable, Iterator
from typing import Any

from rowgrad._ops import Operator
from rowgrad._ops.callables import FrontEnd, function_attributes, make_functions
from rowgrad._ops.docstrings import Option, example_lines, in_numbers
from rowgrad.jax._call import is_compact
from rowgrad.jax._differentiable import apply

MAX_UNIQUE = Option(
    None,
    "int, optional",
    """The most distinct rows that may occur, which `jit` must know: `output` is then padded to as many rows with zeros
    and `sorted_unique_indices` with the number of rows of the table, an id that ``.at[ids].add(rows, mode="drop")``
    leaves out. More distinct rows than that are an error. Without it the size is exact, and `jit` refuses.""",
)


def _bound(operator: Operator) -> Callable[..., Any]:
    return lambda *values, max_unique=None, **attributes: apply(operator, values, attributes, most=max_unique)


def _example(operator: Operator, call: str) -> Iterator[str]:
    yield ">>> import numpy as np"
    yield from example_lines(in_numbers(operator), call, as_array="np.asarray({})")


FUNCTIONS = make_functions(
    FrontEnd(
        "rowgrad.jax",
        bind=_bound,
        options=lambda operator: {
            **function_attributes(operator),
            **({"max_unique": MAX_UNIQUE} if is_compact(operator) else {}),
        },
        example=_example,
    )
)
