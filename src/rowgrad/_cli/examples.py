"""The worked examples of the catalogue, run for real and compared with the results written down beside them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import rowgrad
from rowgrad._ops import Operator, docstrings
from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import raw_ops

DIGITS = 1e-6  # the examples are written down to six digits


def call(
    operator: Operator, inputs: Mapping[str, Any], attributes: Mapping[str, Any] | None = None
) -> dict[str, Array]:
    """Call the public function of `operator`; the results by the names of its output pins."""
    function = getattr(rowgrad, operator.top_level) if operator.top_level else getattr(raw_ops, operator.raw_name)
    results = function(**inputs, **(attributes or {}))
    if operator.result is None:
        results = (results,)
    return dict(zip((pin.name for pin in operator.outputs), results, strict=True))


def agrees(got: Array, stated: Any) -> bool:
    """Whether a result has the shape and, to six digits, the values that are written down."""
    expected = docstrings.stated(stated)
    if got.shape != expected.shape:
        return False
    if expected.dtype.kind in "USOTb":
        return bool(got.tolist() == expected.tolist())
    return bool(np.allclose(got, expected, rtol=DIGITS, atol=DIGITS))


def differing(operator: Operator, results: Mapping[str, Array]) -> list[str]:
    """The names of the results that are not as the example of `operator` states them."""
    return [name for name, stated in operator.example.outputs.items() if not agrees(results[name], stated)]


def problem_of(operator: Operator) -> str:
    """What goes wrong when the example of `operator` is run; empty if all is well."""
    try:
        wrong = differing(operator, call(operator, operator.example.inputs, operator.example.attributes))
    except Exception as error:  # whatever it is, finding it is what a self-test is for
        return f"{type(error).__name__}: {error}"
    return f"{', '.join(wrong)} not as stated" if wrong else ""
