"""`rowgrad migrate CHECKPOINT [OUT]`: what is in a TensorFlow checkpoint, and the same in files of others."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from importlib import import_module, util
from pathlib import Path
from typing import Annotated, Any

import typer

from rowgrad._cli import show, targets
from rowgrad._cli.problems import BAD_USAGE, Problem
from rowgrad.errors import InvalidArgumentError

FORMATS = """[bold]OUT[/bold], by its ending:

  .safetensors   all variables, and optimizers' state as name@sum
  .pt .pth       the same for torch.load: "model", "state", "optimizer"
  a folder       a table on disk for each embedding, opened by rowgrad.Table.open,
                 and variables.safetensors for the rest
"""


def migrate(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT",
            help="A checkpoint (its path without .index, or its folder), a SavedModel, or a .keras or .h5 file.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Argument(metavar="[OUT]", help="What to write; without it, list the variables.")
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help="A variable to write as a table on disk, or a pattern (*). Default: *embedding*."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the optimizer, such as lr=0.1."),
    ] = None,
    state: Annotated[bool, typer.Option("--state/--no-state", help="Include the optimizer's state.")] = True,
    verify: Annotated[bool, typer.Option("--verify", help="Compare all variables with their checksums.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite existing files.")] = False,
) -> None:
    """List the variables of a TensorFlow checkpoint, or write them to files that need no TensorFlow."""
    if out is None and (table or setting or force):
        raise Problem("--table, --set and --force need OUT.", code=BAD_USAGE)
    loaded = import_module("rowgrad.tensorflow").load_checkpoint(checkpoint)
    if verify:
        with _bar("reading", len(loaded)) as advance:
            loaded.verify(lambda name: advance(1))
    if out is None:
        _list(loaded)
    else:
        _write(loaded, out, table or [], _settings(setting or []), state=state, force=force)


def _list(loaded: Any) -> None:
    rows = [
        (_shown(each.name), each.dtype, " × ".join(map(str, each.shape)) or "–", f"{each.nbytes:,}")
        for each in loaded.variables.values()
    ]
    show.output().print(show.table(loaded.path.name, rows, headings=("variable", "type", "shape", "bytes"), left=(1,)))


def _write(loaded: Any, out: Path, patterns: list[str], settings: dict[str, Any], *, state: bool, force: bool) -> None:
    writing: Any = import_module("rowgrad.tensorflow._writing")
    kind = out.suffix.lower()
    is_folder = kind not in (".safetensors", ".pt", ".pth")
    if is_folder and kind and not out.is_dir():
        raise Problem(f"{out}: checkpoints become .safetensors, .pt or .pth files, or folders.", code=BAD_USAGE)
    if patterns and not is_folder:
        raise Problem("--table needs a folder as OUT, for tables on disk.", code=BAD_USAGE)
    if kind in (".pt", ".pth") and util.find_spec("torch") is None:
        raise Problem(f"{out}: PyTorch, which writes such files, is not installed.", "pip install 'rowgrad[torch]'")
    if not is_folder:
        targets.check_place(out, "", force=force)
    elif not out.absolute().parent.is_dir():
        raise Problem(f"{out}: there is no folder {out.parent}.")
    try:
        plan = writing.plan(loaded, settings, state=state)
    except InvalidArgumentError as error:
        hint = "--set lr=… sets it." if error.argument == "lr" else "--no-state leaves the optimizer's state out."
        raise Problem(error.message, hint) from error
    tables = _tables(writing, loaded, patterns) if is_folder else []
    folders: dict[str, str] = {}
    with _bar("writing", plan.nbytes) as advance:
        if kind == ".safetensors":
            writing.write_safetensors(loaded, plan, out, advance)
        elif is_folder:
            folders = writing.write_tables(loaded, plan, out, advance, tables, overwrite=force)
        else:
            writing.write_torch(loaded, plan, out, advance)
    told = show.errors()
    lines = [f"wrote {out}: {len(plan.variables)} variables, {len(plan.moved)} with the optimizer's state"]
    lines += [f"table {_shown(name)}: {out / folder}" for name, folder in folders.items()]
    lines += [f"left out: {_shown(name)} ({loaded.variables[name].dtype})" for name in plan.left_out]
    for line in lines:
        told.print(line, style="dim", markup=False, soft_wrap=True)


def _tables(writing: Any, loaded: Any, patterns: list[str]) -> list[str]:
    """The variables that become tables: those that are asked for, or those that are called embeddings."""
    names = [name for name, each in loaded.variables.items() if each.variable is None]
    if not patterns:
        found = [name for name in names if "embedding" in name.casefold() and len(loaded.variables[name].shape) == 2]
        if not found:
            raise Problem(
                f"{loaded.path} has no matrix named like an embedding.",
                "name the tables: --table NAME, or --table '*' for all matrices.",
                code=BAD_USAGE,
            )
        return found
    chosen: list[str] = []
    for pattern in patterns:
        if pattern in names:
            chosen.append(pattern)
            continue
        matching = [n for n in names if fnmatchcase(n, pattern) and len(loaded.variables[n].shape) == 2]
        if not matching:
            raise Problem(f"--table {pattern}: no matrix of {loaded.path} is called so.",
                          f"rowgrad migrate {loaded.path} lists them.", code=BAD_USAGE)  # fmt: skip
        chosen += matching
    writing.check_tables(loaded, chosen)
    return chosen


def _shown(name: str) -> str:
    """Quoted if it has characters that steer a terminal: names come from a file."""
    return name if name.isprintable() else repr(name)


def _settings(given: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in given:
        name, is_there, value = each.partition("=")
        try:
            if not is_there:
                raise ValueError
            found[name] = json.loads(value.lower())
        except ValueError:
            raise Problem(f"--set {each}: settings are given as NAME=VALUE, such as lr=0.1.", code=BAD_USAGE) from None
    return found


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar, if the output is a terminal."""
    console = show.errors()
    if not console.is_terminal:
        yield lambda count: None
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
