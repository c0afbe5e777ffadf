"""Write what is derived: the operators' reference pages, the stubs of the functions, the pictures of pages.

`make docs` calls it; with --check it writes nothing and fails if a file is not as it should be.
"""

import json
import sys
from pathlib import Path

from pictures import pictures
from stubs import stubs

from rowgrad._ops import Attribute, Operator, Pin
from rowgrad._ops.callables import by_function, function_signature, raw_signature
from rowgrad._ops.catalogue import REQUIRED, Rule
from rowgrad._ops.docstrings import example_lines, page_call, page_inputs
from rowgrad._ops.rule_text import texts
from rowgrad.blocks.operators import BLOCKS, FAMILIES, OPERATORS

ROOT = Path(__file__).parent.parent
OPERATOR_PAGES = Path("docs/operators")


def page(operator: Operator) -> str:
    """The reference page of one operator, or of a block that only pages have."""
    parts = [
        f"# {operator.name}",
        f"{operator.summary} {_origin(operator)}",
        "```python\n" + _calls(operator) + "\n```",
    ]
    if operator.inputs:
        parts += ["## Inputs", _pin_table(operator, operator.inputs)]
    if operator.attributes:
        rows = [f"| `{a.name}` | {a.kind} | {_default(a)} | {_cell(a.doc)} |" for a in operator.attributes]
        only = " (`raw_ops` only)" if operator.top_level else ""
        parts += [f"## Attributes{only}", "\n".join(["| name | kind | default | |", "|---|---|---|---|", *rows])]
    if operator.outputs:
        parts += ["## Outputs", _pin_table(operator, operator.outputs)]
    if operator.result:
        parts.append(f"The result is a named tuple, `{operator.result.__name__}`.")
    if operator.updates:
        pairs = ", ".join(f"`{output}` of `{name}`" for name, output in operator.updates.items())
        parts.append(f"New values of variables: {pairs}.")
    parts += ["## Formula", f"```text\n{operator.formula}\n```"]
    if operator.notes:
        parts.append(operator.notes)
    parts += ["## Example", _example(operator)]
    if _is_function(operator):
        parts += ["## Gradient", _gradients(operator)]
    parts += ["## Errors", "\n".join(f"- `{e.partition(': ')[0]}`: {e.partition(': ')[2]}" for e in operator.errors)]
    parts += ["## Cost", operator.cost]
    parts.append("[All operators](index.md) · [Where rowgrad differs from TensorFlow](../deviations.md)")
    return "\n\n".join(parts) + "\n"


def _is_function(operator: Operator) -> bool:
    return operator.name in OPERATORS


def _origin(operator: Operator) -> str:
    if not _is_function(operator):
        return "A block of pages; it is no function."
    return "An operator of TensorFlow." if operator.in_tensorflow else "An operator of rowgrad's own."


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
    parts = ["# Operators", "Written from the catalogue by `make docs`."]
    for family, title in FAMILIES.items():
        members = [operator for operator in BLOCKS.values() if operator.family == family]
        rows = [f"| [{o.name}]({o.name}.md) | {_function(o)} | {_cell(o.summary)} |" for o in members]
        parts += [f"## {title}", "\n".join(["| operator | function | |", "|---|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def _function(operator: Operator) -> str:
    return f"`{operator.call_name}`" if _is_function(operator) else "on pages only"


def generated() -> dict[Path, str]:
    """Every generated file and its text."""
    files = {OPERATOR_PAGES / f"{operator.name}.md": page(operator) for operator in BLOCKS.values()}
    files[OPERATOR_PAGES / "index.md"] = index()
    return files | stubs() | pictures()


def stale() -> list[Path]:
    """The files that are not as the catalogue says, and pages of operators that are no more."""
    files = generated()
    wrong = [path for path, text in files.items() if not (ROOT / path).exists() or (ROOT / path).read_text() != text]
    left = [path.relative_to(ROOT) for path in (ROOT / OPERATOR_PAGES).glob("*.md")]
    return wrong + [path for path in left if path not in files]


def main() -> int:
    wrong = stale()
    if "--check" in sys.argv:
        for path in wrong:
            print(f"stale: {path}; run `make docs`")
        return 1 if wrong else 0
    files = generated()
    for path in wrong:
        if path in files:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(files[path])
        else:
            (ROOT / path).unlink()
    print(f"{len(files)} files are up to date, {len(wrong)} of them changed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
