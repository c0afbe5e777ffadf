"""`rowgrad studio [PAGE]`: draw pages in the browser. The studio is a package of its own, loaded only here."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from rowgrad._cli import names
from rowgrad._cli.problems import BAD_USAGE, Problem

HOW = "pip install rowgrad-studio, or, in a checkout, make studio."


def studio(
    page: Annotated[Path | None, typer.Argument(metavar="PAGE", help="A page to open.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="The folder of pages; by default that of PAGE."),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(
            "--example",
            metavar="OPERATOR",
            help="Open the worked example of an operator, saved as OPERATOR.page.json unless that exists.",
            autocompletion=names.complete,
        ),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port; 0 for any free one.")
    ] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
) -> None:
    """Draw pages and run them, in a browser on this machine."""
    if page is not None and example is not None:
        raise Problem("PAGE and --example cannot be used together.", "pass only one of them.", code=BAD_USAGE)
    root = folder if folder is not None else page.parent if page is not None else Path()
    if not root.is_dir():
        raise Problem(f"{root}: there is no such folder.", code=BAD_USAGE)
    name = None
    if example is not None:
        page = _saved_example(example, root)
    if page is not None:
        if not page.is_file():
            raise Problem(f"{page}: there is no such file.")
        if not page.resolve().is_relative_to(root.resolve()):
            raise Problem(f"{page} is not in {root}.", "the studio opens only files in its folder.", code=BAD_USAGE)
        name = page.resolve().relative_to(root.resolve()).as_posix()
    launch = _launch()
    launch.serve(root, name, port=port, browser=browser)


def _saved_example(operator: str, folder: Path) -> Path:
    """The file with the worked example of `operator`; one that is there, with changes or without, stays as it is."""
    from rowgrad.blocks import worked_example

    name = names.find(operator, blocks=True)[0].name
    path = folder / f"{name}.page.json"
    if not path.exists():
        worked_example(name).save(path)
    return path


def _launch() -> Any:
    try:
        return import_module("rowgrad_studio.launch")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("rowgrad_studio"):
            raise Problem(f"the studio lacks the package {error.name}.", HOW) from error
        raise Problem("the studio is not installed.", HOW) from error
