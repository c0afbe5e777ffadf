"""The docstrings of the functions, written from the declarations in numpydoc's form.

The worked example of each operator becomes a doctest: the call, and its results, rounded where they are stated so.
"""

from collections.abc import Iterator
from textwrap import indent
from typing import Any

import numpy as np

from rowgrad.ops.catalogue import Example, Operator
from rowgrad.ops.pins import Pin


def docstring(operators: list[Operator], name: str) -> str:
    """The docstring of the function `name` that stands for `operators`, the one with the fewest inputs first."""
    shortest, longest = operators[0], operators[-1]
    optional = {pin.name for pin in longest.inputs} - {pin.name for pin in shortest.inputs}
    sections = [
        shortest.summary,
        _section(
            "Parameters", [*(_pin(longest, pin, pin.name in optional) for pin in longest.inputs), *_options(longest)]
        ),
        _section("Returns", (_pin(longest, pin, False) for pin in longest.outputs)),
        _section("Raises", (f"{cls}\n    {text}." for cls, text in _errors(longest))),
        _section(
            "Notes", [_code(longest.formula), "", *([longest.notes] if longest.notes else []), f"Cost: {longest.cost}"]
        ),
        _section("Examples", ["\n".join(example_lines(shortest.example, f"rowgrad.{name}", bool(shortest.result)))]),
    ]
    return "\n\n".join(sections) + "\n"


def _section(title: str, entries: Any) -> str:
    return "\n".join([title, "-" * len(title), *entries])


def _pin(operator: Operator, pin: Pin, optional: bool) -> str:
    dtypes = operator.dtypes_of(pin)
    dtype = f"{pin.dtype} in {{{', '.join(dtypes)}}}" if pin.dtype in operator.types else pin.dtype
    return f"{pin.name} : {dtype}, shape {pin.shape}{', optional' * optional}\n    {pin.doc}"


OPTIONS = {
    "out": "Where to put the (first) result: of its shape and type, contiguous, apart from the inputs.",
    "plan": "What `rowgrad.plan` made of the same ids; then `indices` and `segment_ids` may be None.",
}


def _options(operator: Operator) -> list[str]:
    types = {"out": "array", "plan": "Plan"}
    return [f"{name} : {types[name]}, optional\n    {OPTIONS[name]}" for name in operator.options]


def _errors(operator: Operator) -> Iterator[tuple[str, str]]:
    """Each class once, with all its conditions."""
    conditions: dict[str, list[str]] = {}
    for error in operator.errors:
        cls, _, text = error.partition(": ")
        conditions.setdefault(cls, []).append(text)
    return ((cls, "; ".join(texts)) for cls, texts in conditions.items())


def _code(formula: str) -> str:
    return "::\n\n" + indent(formula, "    ")


def example_lines(example: Example, call: str, several: bool) -> Iterator[str]:
    """The example as a doctest."""
    yield ">>> import rowgrad"
    yield f">>> result = {call}("
    for name, value in example.inputs.items():
        yield f"...     {name}={value!r},"
    yield "... )"
    for name, value in example.outputs.items():
        expected = np.array(value)
        rounded = ""
        if _is_rounded(expected):
            expected, rounded = expected.round(5), ".astype(float).round(5)"
        yield f">>> print({'result.' + name if several else 'result'}{rounded})"
        yield from str(expected).splitlines()


def _is_rounded(expected: "np.ndarray[Any, Any]") -> bool:
    """Whether a result is stated to six digits only."""
    return expected.dtype.kind == "f" and bool((expected.astype(np.float32) != expected).any())
