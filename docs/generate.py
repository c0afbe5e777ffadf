"""Write what is derived from the catalogue: the operators' reference pages and the stubs of the functions.

`make docs` calls it; with --check it writes nothing and fails if a file is not as it should be.
"""

import sys
from pathlib import Path

from rowgrad.ops import FAMILIES, OPERATORS, Operator, Pin
from rowgrad.ops.callables import by_function, function_signature, raw_signature
from rowgrad.ops.docstrings import example_lines

ROOT = Path(__file__).parent.parent
OPERATOR_PAGES = Path("docs/operators")
STUB_HEADER = '"""Written by `make docs` from the catalogue; do not edit."""\n\nfrom typing import Any\n\n'


def page(operator: Operator) -> str:
    """The reference page of one operator."""
    origin = (
        "An operator of TensorFlow."
        if operator.in_tensorflow
        else "An operator of rowgrad's own: TensorFlow has no gradient here."
    )
    signature = function_signature(by_function()[operator.function])
    raw = raw_signature(operator)
    parts = [
        f"# {operator.name}",
        f"{operator.summary} {origin}",
        f"```python\nrowgrad.{operator.function}{signature}\nrowgrad.raw_ops.{operator.name}{raw}\n```",
        "## Inputs",
        _pin_table(operator, operator.inputs),
    ]
    if operator.attributes:
        rows = [f"| `{a.name}` | `{a.default}` | {a.doc} |" for a in operator.attributes]
        parts += ["Attributes (`raw_ops` only):", "\n".join(["| name | default | |", "|---|---|---|", *rows])]
    parts += ["## Outputs", _pin_table(operator, operator.outputs)]
    if operator.result:
        parts.append(f"The result is a named tuple, `{operator.result.__name__}`.")
    parts += ["## Formula", f"```text\n{operator.formula}\n```"]
    if operator.notes:
        parts.append(operator.notes)
    lines = example_lines(operator.example, f"rowgrad.{operator.function}", operator.result is not None)
    parts += ["## Example", "```pycon\n" + "\n".join(lines) + "\n```"]
    parts += ["## Gradient", _gradients(operator)]
    parts += ["## Errors", "\n".join(f"- `{e.partition(': ')[0]}`: {e.partition(': ')[2]}" for e in operator.errors)]
    parts += ["## Cost", operator.cost]
    parts.append("[All operators](index.md) · [Where rowgrad differs from TensorFlow](../deviations.md)")
    return "\n\n".join(parts) + "\n"


def _pin_table(operator: Operator, pins: tuple[Pin, ...]) -> str:
    rows = [f"| `{pin.name}` | {_dtypes(operator, pin)} | `{pin.shape}` | {pin.doc} |" for pin in pins]
    return "\n".join(["| pin | type | shape | |", "|---|---|---|---|", *rows])


def _dtypes(operator: Operator, pin: Pin) -> str:
    names = ", ".join(operator.dtypes_of(pin))
    return f"`{pin.dtype}`: {names}" if pin.dtype in operator.types else names


def _gradients(operator: Operator) -> str:
    if not operator.gradient:
        return "None: it works on indices."
    lines = [f"- to `{name}`: `{rule}`" for name, rule in operator.gradient.items()]
    lines += [
        f"- to `{name}`, where `sparse_gradient` is set: `{rule}`" for name, rule in operator.compact_gradient.items()
    ]
    return "\n".join(lines) + "\n\nHere `d_` stands before the gradient that flows into an output."


def index() -> str:
    """The page that lists all operators."""
    parts = ["# Operators", "Written from the catalogue by `make docs`."]
    for family, title in FAMILIES.items():
        members = [operator for operator in OPERATORS.values() if operator.family == family]
        rows = [f"| [{o.name}]({o.name}.md) | `{o.function}` | {o.summary} |" for o in members]
        parts += [f"## {title}", "\n".join(["| operator | function | |", "|---|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def functions_stub() -> str:
    """`functions.pyi`."""
    groups = sorted(by_function().items())
    results = sorted({o.result.__name__ for o in OPERATORS.values() if o.result})
    imports = f"from rowgrad.ops.results import {', '.join(results)}\n\n"
    return STUB_HEADER + imports + "".join(_stub(name, ops[-1], function_signature(ops)) for name, ops in groups)


def raw_ops_stub() -> str:
    """`raw_ops.pyi`."""
    results = sorted({o.result.__name__ for o in OPERATORS.values() if o.result})
    imports = f"from rowgrad.ops.results import {', '.join(results)}\n\n"
    return STUB_HEADER + imports + "".join(_stub(n, o, raw_signature(o)) for n, o in sorted(OPERATORS.items()))


def _stub(name: str, operator: Operator, signature: object) -> str:
    result = operator.result.__name__ if operator.result else "Any"
    typed = [
        "*" if piece == "*" else (f"{piece.replace('=', ': Any = ')}" if "=" in piece else f"{piece}: Any")
        for piece in str(signature)[1:-1].split(", ")
    ]
    return f"def {name}({', '.join(typed)}) -> {result}: ...\n"


def generated() -> dict[Path, str]:
    """Every generated file and its text."""
    files = {OPERATOR_PAGES / f"{operator.name}.md": page(operator) for operator in OPERATORS.values()}
    files[OPERATOR_PAGES / "index.md"] = index()
    files[Path("src/rowgrad/functions.pyi")] = functions_stub()
    files[Path("src/rowgrad/raw_ops.pyi")] = raw_ops_stub()
    return files


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
