"""The operators as blocks on a page, run by a session: draw forward, get backward."""

from rowgrad.blocks._session import Session, Snapshot
from rowgrad.blocks.inference import Signal
from rowgrad.blocks.model import Block, Wire
from rowgrad.blocks.page import Page
from rowgrad.blocks.results import BlockResult, History, Progress, Results

__all__ = ["Block", "BlockResult", "History", "Page", "Progress", "Results", "Session", "Signal", "Snapshot", "Wire"]


def __dir__() -> list[str]:
    return __all__
