"""What a `Table` and a `TableSet` share: a folder that this process holds open, for writing or for reading."""

import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol

from rowgrad.errors import InvalidArgumentError
from rowgrad.tables._dirty import Dirty
from rowgrad.tables._opening import View
from rowgrad.tables._store import Store


class Owner(Protocol):
    """What a set of tables is to each of them."""

    dirty: Dirty


class OpenFolder:
    """A folder with one table or several; `_store` has its files, mapped."""

    _called: ClassVar[str]  # what messages call it
    _content: ClassVar[tuple[str, str]]  # what is in it, and the pronoun for that
    _closed = True  # until all is there
    _owner: Owner | None = None  # the set that a table belongs to

    def __init__(self, path: Path, store: "Store | View", guard: threading.RLock, recovered: str | None,
                 auto_flush: bool) -> None:  # fmt: skip
        self.path = path
        self.recovered = recovered
        self.auto_flush = auto_flush
        self._store = store
        self._guard = guard  # one step or flush at a time
        self._process = os.getpid()

    def close(self, *, flush: bool = True) -> None:
        """Let others open it."""
        raise NotImplementedError

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._closed or self._owner is not None or is_finalizing():  # the system gives up the lock
            return
        if self._is_writer():
            warnings.warn(f"{self!r} in {self.path} was never closed", ResourceWarning, stacklevel=2, source=self)
        self.close(flush=False)

    def _is_writer(self) -> bool:
        return isinstance(self._store, Store) and self._process == os.getpid()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgumentError(f"the {self._called} in {self.path} is closed. Open it again.", code="closed")

    def _check_reader(self) -> View:
        self._check_open()
        if not isinstance(self._store, View):
            raise InvalidArgumentError(
                f"{self.path} is open for writing, and is what it shows. Refresh {self._called}s that are open for "
                "reading.",
                code="not-a-reader",
            )
        return self._store

    def _check_writer(self) -> Store:
        self._check_open()
        if not isinstance(self._store, Store):
            raise InvalidArgumentError(
                f'{self.path} is open for reading only. Open it with mode="r+".', code="read-only", argument="mode"
            )
        if self._process != os.getpid():
            content, them = self._content
            raise InvalidArgumentError(
                f"the {self._called} was opened by process {self._process}, and this is a child of it, which can read "
                f"the {content} but not change {them}. Change {them} there.",
                code="forked",
            )
        return self._store
