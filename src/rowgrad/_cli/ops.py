"""`rowgrad ops`: the catalogue, and the reference of one operator, for the terminal or as JSON."""

import json
import shlex
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from rowgrad._cli import names, show
from rowgrad._cli.op import option_name
from rowgrad._ops import Attribute, Operator, Pin
from rowgrad._ops.callables import function_signature, raw_signature
from rowgrad._ops.catalogue import REQUIRED
from rowgrad._ops.docstrings import as_json, default_of, page_call
from rowgrad._ops.rule_text import texts
from rowgrad.blocks.operators import BLOCKS, FAMILIES, OPERATORS

NAME = typer.Argument(
    help="An operator, such as SparseSliceGrad or sparse_slice_grad. Without it, list all.",
    autocompletion=names.complete,
)


def ops(
    name: Annotated[str | None, NAME] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List the operators, or print the reference of one."""
    operators = names.in_order(blocks=True) if name is None else names.find(name, blocks=True)
    if as_json:
        typer.echo(json.dumps({"operators": [as_data(operator) for operator in operators]}, indent=2))
        return
    console = show.output()
    if name is None:
        _print_catalogue(console)
    else:
        for operator in operators:
            print_reference(console, operator)


def as_data(operator: Operator) -> dict[str, Any]:
    """An operator as plain data."""
    return {
        "name": operator.name,
        "function": operator.top_level,
        "family": operator.family,
        "role": operator.role,
        "in_tensorflow": operator.in_tensorflow,
        "summary": operator.summary,
        "inputs": [_pin_data(operator, pin) for pin in operator.inputs],
        "outputs": [_pin_data(operator, pin) for pin in operator.outputs],
        "types": {variable: list(types) for variable, types in operator.types.items()},
        "attributes": [_attribute_data(attribute) for attribute in operator.attributes],
        "formula": operator.formula,
        "errors": list(operator.errors),
        "cost": operator.cost,
        "gradient": {name: texts(rule) for name, rule in operator.gradient.items()},
        "compact_gradient": {name: texts(rule) for name, rule in operator.compact_gradient.items()},
        "updates": dict(operator.updates),
        "notes": operator.notes,
        "example": {
            "inputs": dict(operator.example.inputs),
            "attributes": dict(operator.example.attributes),
            "outputs": {name: as_json(value) for name, value in operator.example.outputs.items()},
        },
    }


def _pin_data(operator: Operator, pin: Pin) -> dict[str, Any]:
    return {
        "name": pin.name,
        "dtype": pin.dtype,
        "dtypes": list(operator.dtypes_of(pin)),
        "shape": pin.shape,
        "many": pin.many,
        "doc": pin.doc,
    }


def _attribute_data(attribute: Attribute) -> dict[str, Any]:
    required = attribute.default is REQUIRED
    return {
        "name": attribute.name,
        "kind": attribute.kind,
        "required": required,
        "default": None if required else attribute.default,
        "doc": attribute.doc,
    }


def _origin(operator: Operator) -> str:
    if operator.name not in OPERATORS:
        return "pages"
    return "TensorFlow" if operator.in_tensorflow else "rowgrad"


def _print_catalogue(console: Console) -> None:
    longest = max(map(len, BLOCKS))
    for family, title in FAMILIES.items():
        members = [operator for operator in BLOCKS.values() if operator.family == family]
        table = Table(box=None, show_header=False, expand=True, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column(style="cyan", no_wrap=True, width=longest)
        table.add_column(ratio=1)
        table.add_column(style="dim", no_wrap=True, width=len("TensorFlow"))
        for operator in members:
            table.add_row(operator.name, Text(operator.summary), _origin(operator))
        console.print(Rule(Text(title, "bold"), align="left", style="dim"))
        console.print(table)
        console.print()
    only = f", and {len(BLOCKS) - len(OPERATORS)} blocks of pages" if len(BLOCKS) > len(OPERATORS) else ""
    console.print(f"{len(OPERATORS)} operators{only}. rowgrad ops NAME is the reference of one.", style="dim")


def print_reference(console: Console, operator: Operator) -> None:
    """All that the catalogue says about `operator`."""
    origin = f"{'an operator' if operator.name in OPERATORS else 'a block'} of {_origin(operator)}"
    console.print(Rule(Text.assemble((operator.name, "bold cyan"), (f"  {origin}", "dim")), align="left"))
    console.print(Text(operator.summary))
    _section(console, "Call", _call(operator))
    if operator.inputs:
        _section(console, "Inputs", _pins(operator.inputs))
    if operator.outputs:
        _section(console, "Results", _pins(operator.outputs))
    if operator.types:
        _section(console, "Types", _pairs((name, ", ".join(types)) for name, types in operator.types.items()))
    if operator.attributes:
        _section(
            console, "Attributes", _pairs((a.name, f"{a.doc} ({a.kind}, {default_of(a)})") for a in operator.attributes)
        )
    _section(console, "Formula", operator.formula)
    _section(console, "Errors", _pairs(text.partition(": ")[::2] for text in operator.errors))
    _section(console, "Cost", operator.cost)
    if operator.gradient:
        rules = [(f"d_{pin}", " + ".join(texts(rule))) for pin, rule in operator.gradient.items()]
        rules += [(f"d_{pin}, compact", " + ".join(texts(rule))) for pin, rule in operator.compact_gradient.items()]
        _section(console, "Gradient", _pairs(rules))
    if operator.updates:
        _section(console, "Variables", _pairs((name, f"becomes {new}") for name, new in operator.updates.items()))
    if operator.notes:
        _section(console, "Notes", operator.notes)
    example = operator.example
    given = {**example.inputs, **example.attributes}
    lines = [(name, json.dumps(value, ensure_ascii=False)) for name, value in given.items()]
    lines += [(f"→ {name}", json.dumps(as_json(value), ensure_ascii=False)) for name, value in example.outputs.items()]
    _section(console, "Example", _pairs(lines))
    if operator.name in OPERATORS:
        _section(console, "Example on the command line", example_command(operator))
    console.print()


def _call(operator: Operator) -> str:
    if operator.name not in OPERATORS:
        return page_call(operator)
    outputs = ", ".join(pin.name for pin in operator.outputs)
    results = f"{operator.result.__name__}({outputs})" if operator.result else outputs
    signature = function_signature([operator]) if operator.top_level else raw_signature(operator)
    return f"rowgrad.{operator.call_name}{signature} → {results}"


def example_command(operator: Operator) -> str:
    """The worked example as a command to copy."""
    example = operator.example
    kinds = {attribute.name: attribute.kind for attribute in operator.attributes}
    options = [f"{option_name(name)} {_typed(value)}" for name, value in example.inputs.items()]
    for name, value in example.attributes.items():
        if kinds[name] == "bool":
            options.append(option_name(name) if value else f"--no-{option_name(name)[2:]}")
        else:
            plain = kinds[name] in ("text", "dtype")
            options.append(f"{option_name(name)} {shlex.quote(value) if plain else _typed(value)}")
    return " ".join([f"rowgrad op {operator.name}", *options])


def _typed(value: Any) -> str:
    """A value as it is typed in a shell."""
    return shlex.quote(json.dumps(value, separators=(",", ":")))


def _section(console: Console, title: str, body: str | Table) -> None:
    console.print()
    console.print(Text(title, "bold"))
    console.print(Padding(Text(body) if isinstance(body, str) else body, (0, 0, 0, 2)))


def _pins(pins: tuple[Pin, ...]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for pin in pins:
        table.add_row(pin.name, pin.dtype, Text(f"list of {pin.shape}" if pin.many else pin.shape), Text(pin.doc))
    return table


def _pairs(pairs: Any) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(ratio=1)
    for name, text in pairs:
        table.add_row(Text(name), Text(text))
    return table
