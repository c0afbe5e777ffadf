"""Pages to TensorFlow's graphs and back, without TensorFlow.

`export` writes, `importing` reads; both by the table in `names` and the small graphs in `recipes`. `tensors` has the
arrays.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rowgrad.blocks.page import Page


def to_graphdef(page: "Page", *, text: bool = False) -> bytes | str:
    """`page` as a GraphDef, binary or as text."""
    from rowgrad.blocks._graphdef.export import to_graph

    graph = to_graph(page)
    if text:
        from google.protobuf import text_format

        return str(text_format.MessageToString(graph))
    return bytes(graph.SerializeToString(deterministic=True))


def from_graphdef(data: bytes | str, name: str | None = None, folder: Path | None = None) -> "Page":
    """The page that a GraphDef holds; `folder` is where the files are that it was made from."""
    from rowgrad.blocks._graphdef.importing import to_page
    from rowgrad.blocks._graphdef.reading import parse

    return to_page(parse(data), name, folder)
