"""Pictures of operators, drawn by the library while the site is built, so that none can be stale.

Two directives, each with the name of an operator: `block-symbol` is its block with its pins, `block-page` the page of
its worked example with the results of a run.
"""

from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

from rowgrad.blocks import Session, worked_example
from rowgrad.blocks._picture.symbol import symbol
from rowgrad.blocks.operators import BLOCKS

FOLDER = Path(__file__).parent.parent / "_generated"
NOT_RUN = {"Placeholder", "File"}  # their examples need a fed value or a file


class BlockSymbol(Directive):
    """The block of an operator."""

    required_arguments = 1
    kind = "symbol"

    def run(self) -> list[nodes.Node]:
        """An image of the drawing."""
        (name,) = self.arguments
        if name not in BLOCKS:
            raise self.error(f"there is no operator {name!r}")
        FOLDER.mkdir(exist_ok=True)
        path = FOLDER / f"{name}-{self.kind}.svg"
        path.write_text(self.draw(name))
        words = f"{self.words} {name}"
        image = nodes.image(uri=f"/_generated/{path.name}", alt=words, classes=["dark-light", "rowgrad-picture"])
        return [image]

    words = "The block of"

    def draw(self, name: str) -> str:
        """The picture as SVG."""
        return symbol(name)


class BlockPage(BlockSymbol):
    """The worked example of an operator, drawn with its results."""

    kind = "page"
    words = "A page with its results:"

    def draw(self, name: str) -> str:
        """The picture as SVG."""
        page = worked_example(name)
        session = Session(page)
        if name not in NOT_RUN:
            with TemporaryDirectory() as folder, chdir(folder):  # blocks may write files
                session.run()
        return page.to_svg(session)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("block-symbol", BlockSymbol)
    app.add_directive("block-page", BlockPage)
    return {"parallel_read_safe": False}
