"""The operators as functions for TensorFlow, made from the catalogue: the same names and arguments as `rowgrad`'s own.

`out` and `plan` are left out, since tensors are not written to.
"""

from collections.abc import Callable
from typing import Any

from rowgrad._ops import Operator
from rowgrad._ops.callables import FrontEnd, function_attributes, make_functions
from rowgrad.tensorflow._differentiable import apply


def _bound(operator: Operator) -> Callable[..., Any]:
    return lambda *values, **attributes: apply(operator, values, attributes)


def _closing(operators: list[Operator]) -> str:
    return "For TensorFlow's tensors, eager and inside `tf.function`, differentiable to any order."


FUNCTIONS = make_functions(
    FrontEnd(
        "rowgrad.tensorflow",
        bind=_bound,
        options=function_attributes,
        example=lambda operator, call: (),
        closing=_closing,
    )
)
