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

from rowgrad.cli import names, show
from rowgrad.ops import FAMILIES, OPERATORS, Operator, Pin
from rowgrad.ops.callables import function_signature

NAME = typer.Argument(
    help="An operator, as SparseSliceGrad or sparse_slice_grad; all without it.", autocompletion=names.complete
)


def ops(
    name: Annotated[str | None, NAME] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List the operators, or print the reference of one."""
    operators = names.in_order() if name is None else names.find(name)
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
        "function": operator.function,
        "family": operator.family,
        "in_tensorflow": operator.in_tensorflow,
        "summary": operator.summary,
        "inputs": [_pin_data(operator, pin) for pin in operator.inputs],
        "outputs": [_pin_data(operator, pin) for pin in operator.outputs],
        "types": {variable: list(types) for variable, types in operator.types.items()},
        "attributes": [{"name": a.name, "default": a.default, "doc": a.doc} for a in operator.attributes],
        "formula": operator.formula,
        "errors": list(operator.errors),
        "cost": operator.cost,
        "gradient": dict(operator.gradient),
        "compact_gradient": dict(operator.compact_gradient),
        "notes": operator.notes,
        "example": {"inputs": dict(operator.example.inputs), "outputs": dict(operator.example.outputs)},
    }


def _pin_data(operator: Operator, pin: Pin) -> dict[str, Any]:
    return {
        "name": pin.name,
        "dtype": pin.dtype,
        "dtypes": list(operator.dtypes_of(pin)),
        "shape": pin.shape,
        "doc": pin.doc,
    }


def _print_catalogue(console: Console) -> None:
    longest = max(map(len, OPERATORS))
    for family, title in FAMILIES.items():
        members = [operator for operator in OPERATORS.values() if operator.family == family]
        table = Table(box=None, show_header=False, expand=True, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column(style="cyan", no_wrap=True, width=longest)
        table.add_column(ratio=1)
        table.add_column(style="dim", no_wrap=True, width=len("TensorFlow"))
        for operator in members:
            table.add_row(operator.name, Text(operator.summary), "TensorFlow" if operator.in_tensorflow else "rowgrad")
        console.print(Rule(Text(title, "bold"), align="left", style="dim"))
        console.print(table)
        console.print()
    console.print(f"{len(OPERATORS)} operators. rowgrad ops NAME is the reference of one.", style="dim")


def print_reference(console: Console, operator: Operator) -> None:
    """All that the catalogue says about `operator`."""
    origin = "an operator of TensorFlow" if operator.in_tensorflow else "an operator of rowgrad"
    console.print(Rule(Text.assemble((operator.name, "bold cyan"), (f"  {origin}", "dim")), align="left"))
    console.print(Text(operator.summary))
    outputs = ", ".join(pin.name for pin in operator.outputs)
    results = f"{operator.result.__name__}({outputs})" if operator.result else outputs
    signature = function_signature([operator])
    _section(console, "Call", f"rowgrad.{operator.function}{signature} → {results}")
    _section(console, "Inputs", _pins(operator.inputs))
    _section(console, "Results", _pins(operator.outputs))
    if operator.types:
        _section(console, "Types", _pairs((name, ", ".join(types)) for name, types in operator.types.items()))
    if operator.attributes:
        _section(console, "Attributes", _pairs((f"{a.name} = {a.default}", a.doc) for a in operator.attributes))
    _section(console, "Formula", operator.formula)
    _section(console, "Errors", _pairs(text.partition(": ")[::2] for text in operator.errors))
    _section(console, "Cost", operator.cost)
    if operator.gradient:
        rules = [(f"d_{pin}", rule) for pin, rule in operator.gradient.items()]
        rules += [(f"d_{pin}, compact", rule) for pin, rule in operator.compact_gradient.items()]
        _section(console, "Gradient", _pairs(rules))
    if operator.notes:
        _section(console, "Notes", operator.notes)
    example = operator.example
    lines = [(name, json.dumps(value)) for name, value in example.inputs.items()]
    lines += [(f"→ {name}", json.dumps(value, ensure_ascii=False)) for name, value in example.outputs.items()]
    _section(console, "Example", _pairs(lines))
    _section(console, "Example on the command line", example_command(operator))
    console.print()


def example_command(operator: Operator) -> str:
    """The worked example as a command to copy."""
    options = (
        f"--{name.replace('_', '-')} {shlex.quote(json.dumps(value, separators=(',', ':')))}"
        for name, value in operator.example.inputs.items()
    )
    return " ".join([f"rowgrad op {operator.name}", *options])


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
        table.add_row(pin.name, pin.dtype, Text(pin.shape), Text(pin.doc))
    return table


def _pairs(pairs: Any) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(ratio=1)
    for name, text in pairs:
        table.add_row(Text(name), Text(text))
    return table
