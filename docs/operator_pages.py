"""The reference page of each operator, written from its declaration; `generate.py` puts them into docs/operators/.

Pictures are drawn when the site is built: the directives `block-symbol` and `block-page` stand for them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from rowgrad._ops import Attribute, Operator, Pin
from rowgrad._ops.callables import by_function, function_signature, raw_signature
from rowgrad._ops.catalogue import REQUIRED, Rule
from rowgrad._ops.docstrings import example_lines, in_numbers, is_rounded, page_call, page_inputs, stated
from rowgrad._ops.rule_text import texts
from rowgrad.blocks.operators import BLOCKS, FAMILIES, OPERATORS

TENSORFLOW = "https://www.tensorflow.org/api_docs/python/tf/raw_ops"
DEVIATIONS = Path(__file__).parent / "deviations.md"


def page(operator: Operator) -> str:
    """The reference page of one operator, or of a block that only pages have."""
    parts = [
        f"# {operator.name}",
        f"{operator.summary} {_origin(operator)}",
        f"```{{block-symbol}} {operator.name}\n```",
        "```python\n" + _calls(operator) + "\n```",
    ]
    if operator.inputs:
        parts += ["## Inputs", _pin_table(operator, operator.inputs)]
    if operator.attributes:
        rows = [f"| `{a.name}` | {a.kind} | {_default(a)} | {_cell(a.doc)} |" for a in operator.attributes]
        only = " (`raw_ops` only)" if operator.top_level else ""
        parts += [f"## Attributes{only}", "\n".join(["| name | kind | default | |", "|---|---|---|---|", *rows])]
    if operator.outputs:
        parts += ["## Outputs", _pin_table(operator, operator.outputs), _results(operator)]
    if operator.updates:
        pairs = ", ".join(f"`{output}` of `{name}`" for name, output in operator.updates.items())
        parts.append(f"New values of variables: {pairs}.")
    parts += ["## Formula", f"```text\n{operator.formula}\n```"]
    if operator.notes:
        parts.append(operator.notes)
    parts += ["## Using it", _example(operator)]
    if operator.top_level:
        for title, module in (("PyTorch", "torch"), ("JAX", "jax")):
            lines = "\n".join(_framework_lines(operator, module))
            parts += [f"### In {title}", f"```pycon\n{lines}\n```"]
    parts += [
        "### On a page",
        f"```{{block-page}} {operator.name}\n```",
        f"`rowgrad studio --example {operator.name}` opens this page in the studio.",
    ]
    if _is_function(operator):
        parts += ["## Gradient", _gradients(operator)]
    parts += ["## Errors", "\n".join(f"- `{e.partition(': ')[0]}`: {e.partition(': ')[2]}" for e in operator.errors)]
    parts += ["## Cost", operator.cost]
    if operator.in_tensorflow and _is_function(operator):
        parts += ["## What differs from TensorFlow", _differences(operator)]
    parts.append("[All operators](index.md)")
    return "\n\n".join(parts) + "\n"


def _results(operator: Operator) -> str:
    """How calls and sessions give the results."""
    first = operator.outputs[0].name
    said = f'A session gives them by name: `results["{operator.name}"].{first}`.'
    if operator.result:
        said = f"The result of a call is a named tuple, `{operator.result.__name__}`. {said}"
    return said


def _framework_lines(operator: Operator, module: str) -> Iterator[str]:
    """The worked example for tensors of a framework, as a doctest."""
    example = in_numbers(operator).example
    yield ">>> import numpy as np"
    yield f">>> import rowgrad.{module}"
    yield f">>> result = rowgrad.{module}.{operator.top_level}("
    for name, value in {**example.inputs, **example.attributes}.items():
        yield f"...     {name}={value!r},"
    yield "... )"
    for name, value in example.outputs.items():
        expected = stated(value)
        found = f"np.asarray({f'result.{name}' if operator.result else 'result'})"
        if is_rounded(expected):
            expected, found = expected.round(5), f"{found}.astype(float).round(5)"
        yield f">>> print({found})"
        yield from str(expected).splitlines()


def _differences(operator: Operator) -> str:
    """Links to the deviations that name the operator or call its function."""
    names = {operator.name, f"rowgrad.{operator.call_name}"}
    found = []
    for section in re.split(r"^## ", DEVIATIONS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        if any(re.search(rf"\b{re.escape(name)}\b", text) for name in names):
            found.append(f"- [{title}](../deviations.md)")
    said = "Nothing of its own. [The whole list](../deviations.md) has what holds for all operators."
    return "\n".join(found) if found else said


def _is_function(operator: Operator) -> bool:
    return operator.name in OPERATORS


def _origin(operator: Operator) -> str:
    if not _is_function(operator):
        return "A block of pages; it is no function."
    if not operator.in_tensorflow:
        return "An operator of rowgrad's own."
    return f"TensorFlow's operator [{operator.raw_name}]({TENSORFLOW}/{operator.raw_name})."


def _calls(operator: Operator) -> str:
    """Every way to call it."""
    if not _is_function(operator):
        return page_call(operator)
    lines = [f"rowgrad.{operator.module}.{operator.raw_name}{raw_signature(operator)}"]
    if operator.top_level:
        lines.insert(0, f"rowgrad.{operator.top_level}{function_signature(by_function()[operator.top_level])}")
    return "\n".join(lines)


def _default(attribute: Attribute) -> str:
    return "required" if attribute.default is REQUIRED else f"`{attribute.default!r}`"


def _pin_table(operator: Operator, pins: tuple[Pin, ...]) -> str:
    rows = [f"| `{pin.name}` | {_dtypes(operator, pin)} | {_shape(pin)} | {_cell(pin.doc)} |" for pin in pins]
    return "\n".join(["| pin | type | shape | |", "|---|---|---|---|", *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _shape(pin: Pin) -> str:
    return f"list of `{pin.shape}`" if pin.many else f"`{pin.shape}`"


def _dtypes(operator: Operator, pin: Pin) -> str:
    names = ", ".join(operator.dtypes_of(pin))
    return f"`{pin.dtype}`: {names}" if pin.dtype in operator.types else names


def _example(operator: Operator) -> str:
    """A doctest; for a block, the line of a page file."""
    if _is_function(operator):
        return "```pycon\n" + "\n".join(example_lines(operator, f"rowgrad.{operator.call_name}")) + "\n```"
    example = operator.example
    line = {"id": operator.name, "op": operator.name}
    line |= {"attrs": dict(example.attributes)} if example.attributes else {}
    line |= {"inputs": page_inputs(operator)} if example.inputs else {}
    results = [f"`{name}` is `{json.dumps(value, ensure_ascii=False)}`" for name, value in example.outputs.items()]
    block = f"In a page file:\n\n```json\n{json.dumps(line, ensure_ascii=False)}\n```"
    return f"{block}\n\nThen {', '.join(results)}." if results else block


def _gradients(operator: Operator) -> str:
    if operator.updates:
        return "None: it gives variables their new values, and nothing is computed from those on the same page."
    if not operator.gradient:
        return "None: no gradient flows back through it."
    many = {pin.name for pin in operator.inputs if pin.many}
    lines = [
        f"- to {'each of ' if name in many else ''}`{name}`: {_rule(rule)}" for name, rule in operator.gradient.items()
    ]
    lines += [
        f"- to `{name}`, where `sparse_gradient` is set: {_rule(rule)}"
        for name, rule in operator.compact_gradient.items()
    ]
    more = "; `part` is one array of the list, at `position`" if many & set(operator.gradient) else ""
    return "\n".join(lines) + f"\n\nHere `d_` stands before the gradient that flows into an output{more}."


def _rule(stated: Rule | tuple[Rule, ...]) -> str:
    return " + ".join(f"`{term}`" for term in texts(stated))


def index() -> str:
    """The page that lists all operators, and the blocks that only pages have."""
    parts = ["# Operators", "Every operator of the catalogue, and the blocks that only pages have."]
    for family, title in FAMILIES.items():
        members = [operator for operator in BLOCKS.values() if operator.family == family]
        rows = [f"| [{o.name}]({o.name}.md) | {_function(o)} | {_cell(o.summary)} |" for o in members]
        parts += [f"## {title}", "\n".join(["| operator | function | |", "|---|---|---|", *rows])]
    names = "\n".join(sorted(BLOCKS))
    parts.append(f"```{{toctree}}\n:hidden:\n\n{names}\n```")
    return "\n\n".join(parts) + "\n"


def _function(operator: Operator) -> str:
    return f"`{operator.call_name}`" if _is_function(operator) else "on pages only"
