"""`rowgrad studio [PAGE]`: draw pages in the browser. The studio is a package of its own, loaded only here."""

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from rowgrad._cli.problems import BAD_USAGE, Problem

HOW = "pip install rowgrad-studio, or, in a checkout, make studio."


def studio(
    page: Annotated[Path | None, typer.Argument(metavar="PAGE", help="A page to open.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Where pages are opened and saved; by default that of PAGE."),
    ] = None,
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 takes any free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
) -> None:
    """Draw pages and run them, in a browser on this machine."""
    root = folder if folder is not None else page.parent if page is not None else Path()
    if not root.is_dir():
        raise Problem(f"{root}: there is no such folder.", code=BAD_USAGE)
    name = None
    if page is not None:
        if not page.is_file():
            raise Problem(f"{page}: there is no such file.")
        if not page.resolve().is_relative_to(root.resolve()):
            raise Problem(f"{page} is not in {root}.", "the studio opens only what is in its folder.", code=BAD_USAGE)
        name = page.resolve().relative_to(root.resolve()).as_posix()
    try:
        launch = import_module("rowgrad_studio.launch")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("rowgrad_studio"):
            raise Problem(f"the studio lacks the package {error.name}.", HOW) from error
        raise Problem("the studio is not installed.", HOW) from error
    launch.serve(root, name, port=port, browser=browser)
