"""`rowgrad convert PAGE OUT`: a page in another format, by the endings of the files."""

from pathlib import Path
from typing import Annotated

import typer

from rowgrad._cli import formats, show, targets
from rowgrad._cli.problems import BAD_USAGE, Problem
from rowgrad.blocks import Session

FORMATS = """[bold]Formats[/bold], by ending:

  .page.json     a page file
  .py            a Python script that runs without pages (written only)
  .svg .png      a picture, which carries the page and can be opened again
  .pb .pbtxt     a TensorFlow GraphDef, binary or text
"""


def convert(
    page: Annotated[Path, typer.Argument(metavar="PAGE", help="A page, in any of these formats but .py.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")],
    run: Annotated[bool, typer.Option("--run", help="Run the page first, and draw its results.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite an existing file.")] = False,
) -> None:
    """Convert a page to another format."""
    kind = out.suffix.lower()
    if kind not in formats.WRITTEN:
        raise Problem(f"{out}: pages are written as {', '.join(formats.WRITTEN)}.", code=BAD_USAGE)
    if run and kind not in formats.PICTURES:
        raise Problem("--run needs a picture format, .svg or .png.", code=BAD_USAGE)
    targets.check_place(out, "", force=force)
    drawn = formats.load(page)
    session = None
    if run:
        session = Session(drawn)
        with show.waiting("running"):
            session.run()
    formats.write(drawn, out, session)
    show.errors().print(f"wrote {out}", style="dim", markup=False, soft_wrap=True)
