"""The operators as blocks on a page, which a session runs; gradients are derived from the forward blocks.

Names are loaded when they are first used: code that only uses `rowgrad.blocks.raw_ops` loads no pages or sessions.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rowgrad.blocks import raw_ops
    from rowgrad.blocks._examples import worked_example
    from rowgrad.blocks._kept import Snapshot
    from rowgrad.blocks._notebook import ProgressBar
    from rowgrad.blocks._session import Session
    from rowgrad.blocks._training import OPTIMIZERS
    from rowgrad.blocks.explaining import Explanation, explain, uses
    from rowgrad.blocks.groups import Group, GroupPins
    from rowgrad.blocks.inference import Signal
    from rowgrad.blocks.model import Block, Wire
    from rowgrad.blocks.page import Gradients, Page
    from rowgrad.blocks.results import BlockResult, History, Printed, Progress, Results
    from rowgrad.blocks.runs import Run
    from rowgrad.blocks.windows import Window
__all__ = [
    "OPTIMIZERS",
    "Block",
    "BlockResult",
    "Explanation",
    "Gradients",
    "Group",
    "GroupPins",
    "History",
    "Page",
    "Printed",
    "Progress",
    "ProgressBar",
    "Results",
    "Run",
    "Session",
    "Signal",
    "Snapshot",
    "Window",
    "Wire",
    "explain",
    "raw_ops",
    "uses",
    "worked_example",
]

_MODULES = {
    "inference": ("Signal",),
    "model": ("Block", "Wire"),
    "groups": ("Group", "GroupPins"),
    "page": ("Gradients", "Page"),
    "results": ("BlockResult", "History", "Printed", "Progress", "Results"),
    "runs": ("Run",),
    "_examples": ("worked_example",),
    "_kept": ("Snapshot",),
    "_notebook": ("ProgressBar",),
    "_session": ("Session",),
    "_training": ("OPTIMIZERS",),
    "explaining": ("Explanation", "explain", "uses"),
    "windows": ("Window",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "raw_ops":
        return import_module("rowgrad.blocks.raw_ops")
    if name in _MODULE_OF:
        return getattr(import_module(f"rowgrad.blocks.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
