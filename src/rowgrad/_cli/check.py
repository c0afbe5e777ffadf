"""`rowgrad check PAGE`: what is on a page, what is known of every wire, and what keeps it from running."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from rowgrad._cli import formats, show
from rowgrad._cli.problems import BAD_DATA
from rowgrad.blocks import Page


def check(
    page: Annotated[Path, typer.Argument(metavar="PAGE", help="A page file.")],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="List only problems.")] = False,
) -> None:
    """Check a page without running it: types and shapes on every wire, and unconnected pins."""
    drawn = formats.load(page)
    console = show.output()
    if not quiet and len(drawn):
        console.print(_listed(drawn))
    problems = drawn.problems()
    for problem in problems:
        show.errors().print(Text.assemble(("error: ", "bold red"), (str(problem), "red")), soft_wrap=True)
    wires = sum(1 for block in drawn for _ in block.wires())
    console.print(Text(f"{drawn.name}: {len(drawn)} blocks, {wires} wires, {len(problems)} problems."))
    if problems:
        raise typer.Exit(BAD_DATA)


def _listed(page: Page) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("block", "operator", "output", "type and shape"):
        table.add_column(heading, overflow="fold")
    for block in page:
        outputs = block.operator.outputs
        for row, pin in enumerate(outputs or (None,)):
            first = (block.id, block.op if block.op != block.id else "") if row == 0 else ("", "")
            known = (pin.name, str(page.signal(f"{block.id}:{pin.name}"))) if pin else ("", "")
            table.add_row(*(Text(cell) for cell in (*first, *known)))
    return table
