"""`rowgrad op NAME`: run one operator on files. Each is a command; its options are its input pins and attributes."""

import json
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup
from typer.main import get_command

from rowgrad._cli import names, show, targets, values
from rowgrad._cli.problems import BAD_USAGE, Problem
from rowgrad._ops import Attribute, Operator, Pin
from rowgrad._ops.catalogue import REQUIRED
from rowgrad._ops.docstrings import default_of
from rowgrad._ops.gradients import apply_to_arrays
from rowgrad._runtime import files
from rowgrad._runtime.threads import MOST_THREADS, set_num_threads
from rowgrad.errors import RowgradError

VALUES = (
    "[bold]Values[/bold] are read from files or written as JSON:\n\n"
    "  x.npy   x.npz:member   x.parquet:column   x.csv:column   5   '\\[1, 2]'   '\\[\"a\", \"b\"]'\n\n"
    "A type in front converts it: float64:'\\[1, 2]', int64:ids.npy. Pickled files are refused.\n\n"
    "NumPy's files do not support bfloat16: bfloat16:x.npy reads 2-byte items as bfloat16; .npz results store 16-bit "
    "words with a member NAME.dtype, which is recognised on reading."
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

    required = {pin.name for pin in shortest.inputs}
    attributes = [attribute for attribute in longest.attributes if attribute.passed]
    settings = {attribute.name for attribute in attributes}

    def run(out: Path | None, force: bool, threads: int | None, **options: Any) -> None:
        given = {name: value for name, value in options.items() if value not in (None, [])}
        texts = {name: value for name, value in given.items() if name not in settings}
        operator = longest if set(texts) > required else shortest
        chosen = {name: value for name, value in given.items() if name in settings}
        run_on_files(operator, texts, chosen, out=out, force=force, threads=threads)

    parameters = [_pin_option(longest, pin, optional=pin.name not in required) for pin in longest.inputs]
    _declare(run, [*parameters, *map(_attribute_option, attributes), *COMMON])
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    alone.command(
        name=shortest.name,
        help=escape(shortest.summary),
        epilog=VALUES,
        # --segment_ids means the same as --segment-ids
        context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
    )(run)
    return get_command(alone)


def option_name(name: str) -> str:
    """How a pin or an attribute is called on the command line."""
    return f"--{name.replace('_', '-')}"


def _pin_option(operator: Operator, pin: Pin, *, optional: bool) -> Parameter:
    types = ", ".join(operator.dtypes_of(pin))
    note = "Optional. " if optional else ""
    what = f"{escape(pin.shape)} of {types}"
    option = typer.Option(
        option_name(pin.name),
        metavar="VALUE",
        rich_help_panel="Inputs",
        help=f"{note}{escape(pin.doc)} [dim]{f'{MANY} {what}' if pin.many else what}[/dim]",
    )
    kind = Annotated[list[str] | None, option] if pin.many else Annotated[str | None, option]
    return Parameter(pin.name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)


MANY = "Once for each array, or a JSON list of values and files. Each is"
READ_AS: dict[str, type] = {"bool": bool, "int": int, "float": float}  # the other kinds are texts, or JSON


def _attribute_option(attribute: Attribute) -> Parameter:
    name = option_name(attribute.name)
    option = typer.Option(
        f"{name}/--no-{name[2:]}" if attribute.kind == "bool" else name,
        metavar=None if attribute.kind == "bool" else attribute.kind.upper(),
        rich_help_panel="Attributes",
        show_default=False,
        help=f"{escape(attribute.doc)} [dim]{escape(default_of(attribute))}[/dim]",
    )
    kind = READ_AS.get(attribute.kind, str)
    return Parameter(attribute.name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


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
    help="The number of threads. Results do not depend on it.",
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
    operator: Operator,
    texts: dict[str, Any],
    attributes: dict[str, Any],
    *,
    out: Path | None,
    force: bool,
    threads: int | None,
) -> None:
    """Read the inputs, run `operator`, and write or print its results."""
    missing = [(pin.name, pin.shape, pin.doc) for pin in operator.inputs if pin.name not in texts]
    required = [attribute for attribute in operator.attributes if attribute.default is REQUIRED]
    missing += [(a.name, a.kind, a.doc) for a in required if a.name not in attributes]
    if missing:
        raise _missing(operator, missing)
    settings = {a.name: _setting(a, attributes[a.name]) for a in operator.attributes if a.name in attributes}
    if out is not None:
        targets.check_target(out, [pin.name for pin in operator.outputs], force=force)
    if threads is not None:
        set_num_threads(threads)
    with show.waiting(f"running {operator.name}"):
        inputs = [_value(pin, texts[pin.name]) for pin in operator.inputs]
        results = apply_to_arrays(operator, inputs, settings)
    if out is not None:
        files.write(out, results)
        written = ", ".join(f"{name} {list(array.shape)}" for name, array in results.items())
        show.errors().print(f"{operator.name}: wrote {written} to {out}", markup=False, soft_wrap=True)
        return
    console = show.output()
    for name, array in results.items():
        console.print(show.result(name, array, console.width))


def _value(pin: Pin, text: Any) -> Any:
    try:
        return _many(text) if pin.many else values.parse(text)
    except (Problem, RowgradError) as problem:
        problem.message = f"{option_name(pin.name)}: {problem.message}"
        raise


def _many(texts: list[str]) -> list[Any]:
    """Several arrays: one from each option, or, from a single one, those of a JSON list."""
    if len(texts) == 1 and isinstance(listed := _json(texts[0]), list):
        texts = [item if isinstance(item, str) else json.dumps(item) for item in listed]
    return [values.parse(text) for text in texts]


def _setting(attribute: Attribute, value: Any) -> Any:
    if attribute.kind not in ("shape", "list", "numbers", "value"):
        return value
    if (read := _json(value)) is None and value != "null":
        raise Problem(f"{option_name(attribute.name)}: {value!r} is not JSON.", code=BAD_USAGE)
    return read


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _missing(operator: Operator, missing: list[tuple[str, str, str]]) -> Problem:
    listed = "".join(f"\n  {option_name(name)}  {what}  {doc}" for name, what, doc in missing)
    return Problem(
        f"{operator.name} needs {len(missing)} more input{'s' * (len(missing) > 1)}:{listed}",
        f"rowgrad op {operator.name} --help shows how to write values.",
        code=BAD_USAGE,
    )
