"""`rowgrad op NAME`: run one operator on files. Each operator is a command whose options are its input pins."""

from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup
from typer.main import get_command

from rowgrad import files
from rowgrad.cli import names, show, targets, values
from rowgrad.cli.problems import BAD_USAGE, Problem
from rowgrad.ops import Operator, Pin
from rowgrad.ops.gradients import apply_to_arrays
from rowgrad.threads import MOST_THREADS, set_num_threads

VALUES = (
    "[bold]Values[/bold] are read from files or written as JSON:\n\n"
    "  x.npy   x.npz   x.npz:member   x.parquet:column   5   '\\[1, 2]'   '\\[\"a\", \"b\"]'\n\n"
    "A type in front makes it that type: float64:'\\[1, 2]', int64:ids.npy. Pickled files are refused.\n\n"
    "NumPy's files know no bfloat16: bfloat16:x.npy reads 2-byte items as such; .npz results keep it as 16-bit words "
    "beside a member NAME.dtype, which is noticed when they are read."
)
PANEL = "Results"


class OperatorGroup(TyperGroup):
    """The operators of the catalogue as commands, each made when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the catalogue."""
        return [operator.name for operator in names.in_order()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command for an operator, or for a function, by any spelling of its name."""
        return command(names.find(cmd_name))


app = typer.Typer(
    cls=OperatorGroup,
    help="Run one operator on files.",
    epilog="rowgrad op NAME --help lists the inputs of an operator, rowgrad ops NAME is its reference.\n\n" + VALUES,
    rich_markup_mode="rich",
    subcommand_metavar="NAME --PIN VALUE ...",
    no_args_is_help=False,
    invoke_without_command=True,
)


@app.callback()
def _start(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        raise Problem("name an operator: rowgrad op NAME.", "rowgrad ops lists them.", code=BAD_USAGE)


def command(operators: list[Operator]) -> Any:
    """The command for `operators`; where there are two, they share a function whose last input is optional."""
    shortest, longest = operators[0], operators[-1]

    def run(out: Path | None, force: bool, threads: int | None, **texts: str | None) -> None:
        given = {name: text for name, text in texts.items() if text is not None}
        operator = longest if set(given) > {pin.name for pin in shortest.inputs} else shortest
        run_on_files(operator, given, out=out, force=force, threads=threads)

    required = {pin.name for pin in shortest.inputs}
    parameters = [_pin_option(longest, pin, optional=pin.name not in required) for pin in longest.inputs]
    _declare(run, [*parameters, *COMMON])
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    alone.command(
        name=shortest.name,
        help=escape(shortest.summary),
        epilog=VALUES,
        # --segment_ids is as good as --segment-ids
        context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
    )(run)
    return get_command(alone)


def _pin_option(operator: Operator, pin: Pin, *, optional: bool) -> Parameter:
    types = ", ".join(operator.dtypes_of(pin))
    note = "Optional. " if optional else ""
    option = typer.Option(
        f"--{pin.name.replace('_', '-')}",
        metavar="VALUE",
        rich_help_panel="Inputs",
        help=f"{note}{escape(pin.doc)} [dim]{escape(pin.shape)} of {types}[/dim]",
    )
    return Parameter(pin.name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option])


OUT = typer.Option(
    "--out",
    "-o",
    metavar="FILE",
    rich_help_panel=PANEL,
    help="Write the results to an .npz file, or a single result to an .npy file. Without it they are printed.",
)
FORCE = typer.Option("--force", "-f", rich_help_panel=PANEL, help="Overwrite an existing file.")
THREADS = typer.Option(
    "--threads",
    metavar="N",
    min=1,
    max=MOST_THREADS,
    rich_help_panel=PANEL,
    help="How many threads may work. The results are the same to the bit.",
)
COMMON = (
    Parameter("out", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, OUT]),
    Parameter("force", Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, FORCE]),
    Parameter("threads", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[int | None, THREADS]),
)


def _declare(function: Callable[..., None], parameters: list[Parameter]) -> None:
    """Give `function` the signature that typer reads options from."""
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def run_on_files(
    operator: Operator, texts: dict[str, str], *, out: Path | None, force: bool, threads: int | None
) -> None:
    """Read the inputs, run `operator`, and write or print its results."""
    missing = [pin for pin in operator.inputs if pin.name not in texts]
    if missing:
        raise _missing(operator, missing)
    if out is not None:
        targets.check_target(out, [pin.name for pin in operator.outputs], force=force)
    if threads is not None:
        set_num_threads(threads)
    with show.waiting(f"running {operator.name}"):
        inputs = [_value(pin, texts[pin.name]) for pin in operator.inputs]
        results = apply_to_arrays(operator, inputs)
    if out is not None:
        files.write(out, results)
        written = ", ".join(f"{name} {list(array.shape)}" for name, array in results.items())
        show.errors().print(f"{operator.name}: wrote {written} to {out}", markup=False, soft_wrap=True)
        return
    console = show.output()
    for name, array in results.items():
        console.print(show.result(name, array, console.width))


def _value(pin: Pin, text: str) -> Any:
    try:
        return values.parse(text)
    except Problem as problem:
        problem.message = f"--{pin.name.replace('_', '-')}: {problem.message}"
        raise


def _missing(operator: Operator, pins: list[Pin]) -> Problem:
    listed = "".join(f"\n  --{pin.name.replace('_', '-')}  {pin.shape}  {pin.doc}" for pin in pins)
    return Problem(
        f"{operator.name} needs {len(pins)} more input{'s' * (len(pins) > 1)}:{listed}",
        f"rowgrad op {operator.name} --help tells how values are written.",
        code=BAD_USAGE,
    )
