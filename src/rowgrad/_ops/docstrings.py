"""The docstrings of the functions, written from the declarations in numpydoc's form.

The worked example of each operator becomes a doctest: the call, and its results, rounded where they are stated so.
"""

from collections.abc import Iterator
from textwrap import indent
from typing import Any

import numpy as np

from rowgrad._ops.catalogue import REQUIRED, Attribute, Operator
from rowgrad._ops.pins import Pin


def docstring(operators: list[Operator], name: str, *, raw: bool = False) -> str:
    """The docstring of the function `name` that stands for `operators`, the one with the fewest inputs first.

    `raw` ones take the attributes, the others the options.
    """
    shortest, longest = operators[0], operators[-1]
    optional = {pin.name for pin in longest.inputs} - {pin.name for pin in shortest.inputs}
    inputs = [_pin(longest, pin, pin.name in optional) for pin in longest.inputs]
    sections = [
        shortest.summary,
        _section("Parameters", [*inputs, *(_attributes(longest) if raw else _options(longest))]),
        _section("Returns", (_pin(longest, pin, False) for pin in longest.outputs)),
        _section("Raises", (f"{cls}\n    {text}." for cls, text in _errors(longest))),
        _section(
            "Notes", [_code(longest.formula), "", *([longest.notes] if longest.notes else []), f"Cost: {longest.cost}"]
        ),
        _section("Examples", ["\n".join(example_lines(shortest, f"rowgrad.{name}"))]),
    ]
    return "\n\n".join(sections) + "\n"


def _section(title: str, entries: Any) -> str:
    return "\n".join([title, "-" * len(title), *entries])


def _pin(operator: Operator, pin: Pin, optional: bool) -> str:
    dtypes = operator.dtypes_of(pin)
    dtype = f"{pin.dtype} in {{{', '.join(dtypes)}}}" if pin.dtype in operator.types else pin.dtype
    what = f"list of {dtype}, each of shape" if pin.many else f"{dtype}, shape"
    return f"{pin.name} : {what} {pin.shape}{', optional' * optional}\n    {pin.doc}"


def _attributes(operator: Operator) -> list[str]:
    return [f"{a.name} : {a.kind}, {default_of(a)}\n    {a.doc}" for a in operator.attributes]


def default_of(attribute: Attribute) -> str:
    """What an attribute is if it is not given: ``default True``, or ``required``."""
    return "required" if attribute.default is REQUIRED else f"default {attribute.default!r}"


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


def example_lines(operator: Operator, call: str) -> Iterator[str]:
    """The worked example of `operator` as a doctest."""
    example = operator.example
    yield f">>> import {call.split('.raw_ops.')[0] if '.raw_ops.' in call else 'rowgrad'}"
    yield f">>> result = {call}("
    for name, value in {**example.inputs, **example.attributes}.items():
        yield f"...     {name}={value!r},"
    yield "... )"
    for name, value in example.outputs.items():
        expected = np.array(value)
        rounded = ""
        if _is_rounded(expected):
            expected, rounded = expected.round(5), ".astype(float).round(5)"
        yield f">>> print({f'result.{name}' if operator.result else 'result'}{rounded})"
        yield from str(expected).splitlines()


def page_call(operator: Operator) -> str:
    """How a block that only pages have is put on one, by its worked example."""
    given = {**page_inputs(operator), **operator.example.attributes}
    return f"page.add({', '.join([repr(operator.name), *(f'{name}={value!r}' for name, value in given.items())])})"


def page_inputs(operator: Operator) -> dict[str, Any]:
    """The inputs of the worked example as pages take them: there, a lone text would be a wire."""
    inputs = operator.example.inputs
    return {name: {"value": value} if isinstance(value, str) else value for name, value in inputs.items()}


def _is_rounded(expected: "np.ndarray[Any, Any]") -> bool:
    """Whether a result is stated to six digits only."""
    return expected.dtype.kind == "f" and bool((expected.astype(np.float32) != expected).any())
