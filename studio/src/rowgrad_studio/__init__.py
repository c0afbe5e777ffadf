"""The studio: a local web page on which pages of blocks are drawn, run and kept, and the same in a notebook's cell.

The server owns the truth (pages, sessions, history, files) and knows operators only by the catalogue of `rowgrad`; the
page in the browser, built from `studio/web`, shows it. What they say to each other stands in `studio/PROTOCOL.md`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rowgrad_studio.widget import PageWidget

__all__ = ["PageWidget"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`PageWidget`, when it is asked for: it needs anywidget, which the server does not."""
    if name != "PageWidget":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from rowgrad_studio.widget import PageWidget
    except ModuleNotFoundError as error:
        if error.name not in ("anywidget", "ipywidgets", "traitlets"):
            raise
        raise ImportError("PageWidget needs anywidget: pip install 'rowgrad-studio[notebook]'") from error
    return PageWidget
