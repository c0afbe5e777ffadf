"""How kernels are compiled and where the compiled code is kept.

Every kernel is a Numba function that releases the GIL, rounds each operation on its own (no fastmath, no fused
multiply-add) and is kept on disk, so that only the first process on a machine compiles it. Numba notices a
change only in the file of the function itself; kernels here call helpers from other files, so the stamp of
each cached kernel covers all files of this folder.
"""

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import caching, event

FOLDER = Path(__file__).parent
KERNELS: dict[str, Any] = {}
PATIENCE = 1.0  # seconds of compiling after which a person is told


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` at its first call for each combination of argument types, and keep the result on disk."""
    dispatcher = numba.njit(nogil=True, error_model="numpy")(function)
    if cache_folder() is not None:
        dispatcher._cache = _KernelCache(function)
    KERNELS[f"{function.__module__.rpartition('.')[2]}.{function.__name__}"] = dispatcher
    return dispatcher


def inline(function: Callable[..., Any]) -> Any:
    """Compile `function` into the kernels that call it."""
    return numba.njit(nogil=True, error_model="numpy", forceinline=True)(function)


class _Notice(event.Listener):  # type: ignore[misc]
    """Tells people at a terminal why a first call takes its time."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"] in KERNELS.values() and sys.stderr is not None and sys.stderr.isatty():
            self._timer = threading.Timer(PATIENCE, self._tell)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, event: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @staticmethod
    def _tell() -> None:
        kept = "" if cache_folder() is None else "; this happens once on this machine"
        print(f"rowgrad: compiling kernels{kept} (`rowgrad doctor --warm` compiles all)", file=sys.stderr)


event.register("numba:compile", _Notice())


@cache
def source_stamp() -> str:
    """A digest of all kernel sources and of the versions that shape the compiled code."""
    digest = hashlib.sha256(f"{numba.__version__} {sys.version}".encode())
    for path in sorted(FOLDER.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def cache_folder() -> Path | None:
    """The folder for compiled kernels: the first writable of those below, or None if there is none.

    `ROWGRAD_CACHE_DIR`, the user's cache folder, the package's own `__pycache__`. A shared temporary folder is
    not among them: whoever can write there could plant code.
    """
    for folder in _candidates():
        target = folder / source_stamp()
        try:
            target.mkdir(parents=True, exist_ok=True)
            probe = target / f".probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError:
            continue
        return target
    return None


def _candidates() -> Iterator[Path]:
    chosen = os.environ.get("ROWGRAD_CACHE_DIR")
    if chosen:
        yield Path(chosen)
    user = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    if user:
        yield Path(user) / "rowgrad"
    else:
        try:
            yield Path.home() / ".cache" / "rowgrad"
        except RuntimeError:  # no home folder can be found
            pass
    yield FOLDER / "__pycache__"


class _Locator(caching._CacheLocator):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any]) -> None:
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        return source_stamp()

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "_Locator":
        return cls(py_func)


class _KernelCacheImpl(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _KernelCache(caching.FunctionCache):  # type: ignore[misc]
    _impl_class = _KernelCacheImpl
