"""The docstrings of the functions, written from the declarations in numpydoc's form.

The worked example of each operator becomes a doctest: the call, and its results, rounded where they are stated so.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from textwrap import indent
from typing import Any, NamedTuple

import numpy as np

from rowgrad._ops.catalogue import REQUIRED, Attribute, Operator
from rowgrad._ops.pins import Pin


class Option(NamedTuple):
    """A keyword argument of a function that is no input: what it is, and a sentence, if it needs one."""

    default: Any
    kind: str = ""
    doc: str = ""


def docstring(operators: list[Operator], options: Mapping[str, Option], example: Iterable[str], closing: str) -> str:
    """The docstring of a function that stands for `operators`, the one with the fewest inputs first.

    It ends with the lines of an `example` and a `closing` paragraph, where there are any.
    """
    shortest, longest = operators[0], operators[-1]
    optional = {pin.name for pin in longest.inputs} - {pin.name for pin in shortest.inputs}
    inputs = [_pin(longest, pin, pin.name in optional) for pin in longest.inputs]
    sections = [
        shortest.summary,
        _section("Parameters", [*inputs, *_options(options)]),
        _section("Returns", (_pin(longest, pin, False) for pin in longest.outputs)),
        _section("Raises", (f"{cls}\n    {text}." for cls, text in _errors(longest))),
        _section(
            "Notes", [_code(longest.formula), "", *([longest.notes] if longest.notes else []), f"Cost: {longest.cost}"]
        ),
    ]
    lines = list(example)
    if lines:
        sections.append(_section("Examples", lines))
    return "\n\n".join([*sections, *([closing] if closing else [])]) + "\n"


def _section(title: str, entries: Any) -> str:
    return "\n".join([title, "-" * len(title), *entries])


def _pin(operator: Operator, pin: Pin, optional: bool) -> str:
    dtypes = operator.dtypes_of(pin)
    dtype = f"{pin.dtype} in {{{', '.join(dtypes)}}}" if pin.dtype in operator.types else pin.dtype
    what = f"list of {dtype}, each of shape" if pin.many else f"{dtype}, shape"
    return f"{pin.name} : {what} {pin.shape}{', optional' * optional}\n    {pin.doc}"


def _options(options: Mapping[str, Option]) -> list[str]:
    return [f"{name} : {option.kind}\n    {option.doc}" for name, option in options.items() if option.doc]


def default_of(attribute: Attribute) -> str:
    """What an attribute is if it is not given: ``default True``, or ``required``."""
    return "required" if attribute.default is REQUIRED else f"default {attribute.default!r}"


def _errors(operator: Operator) -> Iterator[tuple[str, str]]:
    """Each class once, with all its conditions."""
    conditions: dict[str, list[str]] = {}
    for error in operator.errors:
        cls, _, text = error.partition(": ")
        conditions.setdefault(cls, []).append(text)
    return ((cls, "; ".join(texts)) for cls, texts in conditions.items())


def _code(formula: str) -> str:
    return "::\n\n" + indent(formula, "    ")


def example_lines(operator: Operator, call: str, as_array: str = "{}") -> Iterator[str]:
    """The worked example of `operator` as a doctest; `as_array` makes a result one that can be rounded."""
    example = operator.example
    yield f">>> import {call.rpartition('.')[0].removesuffix('.raw_ops')}"
    yield f">>> result = {call}("
    for name, value in {**example.inputs, **example.attributes}.items():
        yield f"...     {name}={value!r},"
    yield "... )"
    for name, value in example.outputs.items():
        expected = stated(value)
        result = f"result.{name}" if operator.result else "result"
        if is_rounded(expected):
            expected, result = expected.round(5), f"{as_array.format(result)}.astype(float).round(5)"
        yield f">>> print({result})"
        yield from str(expected).splitlines()


def stated(value: Any) -> "np.ndarray[Any, Any]":
    """A result of a worked example as an array; NumPy would cut zeros off the ends of bytes."""
    found = np.array(value)
    return np.array(value, object) if found.dtype.kind == "S" else found


def as_json(value: Any) -> Any:
    """A result of a worked example as JSON has it."""
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


def page_call(operator: Operator) -> str:
    """How a block that only pages have is put on one, by its worked example."""
    given = {**page_inputs(operator), **operator.example.attributes}
    return f"page.add({', '.join([repr(operator.name), *(f'{name}={value!r}' for name, value in given.items())])})"


def page_inputs(operator: Operator) -> dict[str, Any]:
    """The inputs of the worked example as pages take them: there, a single text would be a wire."""
    inputs = operator.example.inputs
    return {name: {"value": value} if isinstance(value, str) else value for name, value in inputs.items()}


def is_rounded(expected: "np.ndarray[Any, Any]") -> bool:
    """Whether a result is stated to six digits only."""
    return expected.dtype.kind == "f" and bool((expected.astype(np.float32) != expected).any())


def in_numbers(operator: Operator) -> Operator:
    """`operator` with numbers for the texts of its example: PyTorch and JAX have no arrays of text."""
    example = operator.example
    texts: dict[str, float] = {}

    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [number(item) for item in value]
        return texts.setdefault(value, 1.0 + len(texts)) if isinstance(value, str) else value

    inputs = {name: number(value) for name, value in example.inputs.items()}
    outputs = {name: number(value) for name, value in example.outputs.items()}
    return replace(operator, example=replace(example, inputs=inputs, outputs=outputs)) if texts else operator
