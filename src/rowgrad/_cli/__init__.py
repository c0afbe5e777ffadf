"""The `rowgrad` command: run pages, look operators up, run one on files, check the installation.

All that is known of operators comes from the catalogue. Numba is loaded with the first operator that runs, and
pyarrow with the first Parquet file, so that help stays quick.
"""

import io
import sys
from typing import Annotated

import typer

import rowgrad
from rowgrad._cli import check, convert, doctor, migrate, op, ops, run, studio, tour
from rowgrad._cli.problems import QuietGroup

EPILOG = """[bold]Examples[/bold]

  rowgrad run model.page.json --loop 200     run a page of blocks
  rowgrad convert model.page.json model.py   write the page as a script
  rowgrad studio model.page.json             edit it in the browser
  rowgrad migrate model.ckpt-100 tables      convert TensorFlow's variables
  rowgrad tour                               see which row gets which gradient
  rowgrad ops sparse_slice_grad              print the reference of one operator
  rowgrad op SparseSegmentMeanGrad --help    list its inputs
  rowgrad op SparseFillEmptyRowsGrad --reverse-index-map map.npy --grad-values g.npy --out d.npz
"""

app = typer.Typer(
    name="rowgrad",
    cls=QuietGroup,
    help="Sparse gradients, exactly as TensorFlow computes them, without TensorFlow.",
    epilog=EPILOG,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rowgrad {rowgrad.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("run")(run.run)
app.command("check")(check.check)
app.command("convert", epilog=convert.FORMATS)(convert.convert)
app.command("migrate", epilog=migrate.FORMATS)(migrate.migrate)
app.command("ops")(ops.ops)
app.add_typer(op.app, name="op")
app.command("doctor")(doctor.doctor)
app.command("tour")(tour.tour)
app.command("studio")(studio.studio)


def main() -> None:
    """Run the command with the arguments of this process, and end it."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show Σ shows a question mark; it is no reason to fail. Nor is half a character.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app(prog_name="rowgrad")
