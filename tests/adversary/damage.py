"""The attack on the kernel cache: the files that a call loads its kernels from are damaged, and the call is made again.

Kernels are forgotten in between, so that one process can attack all targets. Files are those of a folder of its own,
to which the ones of the user's cache are copied when they are asked for: what is compiled once need not be again.
"""

import atexit
import os
import pickle
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from adversary.targets import Target, check
from rowgrad._kernels import compile

DAMAGES: tuple[Callable[[bytes, np.random.Generator], bytes], ...] = (
    lambda content, random: b"",
    lambda content, random: content[: int(random.integers(1, len(content)))],
    lambda content, random: _flipped(content, int(random.integers(8 * len(content)))),
    lambda content, random: random.bytes(len(content)),
    lambda content, random: sha256(pickle.dumps(7)).digest() + pickle.dumps(7),
)
PATIENCE = 120  # seconds
_attacked: set[str] = set()  # names of files, or of kernels
_asked: list[Path] = []
_kept: list[Any] = []  # machine code that a late helper thread may still be running


def _flipped(content: bytes, bit: int) -> bytes:
    return content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :]


def damage(target: Target, seconds: float, random: np.random.Generator) -> None:
    """Every kernel file that the call needs is damaged once; results stay right, and files are replaced.

    With no seconds, one file of each kernel: the forms for other types are compiled again in the same way.
    """
    _use_own_folder()
    expected = target.results()
    _forget()
    check(target, target.results(), expected, "with kernels from the cache")
    names = {path.name if seconds else path.name.rsplit(".", 2)[0]: path for path in _asked if path.exists()}
    paths = [path for name, path in names.items() if name not in _attacked]
    if not paths:
        return
    _attacked.update(names)
    for path in paths:
        path.write_bytes(DAMAGES[int(random.integers(len(DAMAGES)))](path.read_bytes(), random))
    _forget()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        check(target, target.results(), expected, "with a damaged cache")
    # Only a helper thread that finds nothing to do needs `watch`, which is not in every call.
    unread = set(paths) - set(_asked)
    assert all(path.name.startswith("sharing.watch.") for path in unread), f"{target.name}: {unread} not read again"
    # A helper thread may still be compiling it when the call has ended.
    deadline = time.monotonic() + PATIENCE
    for path in set(paths) - unread:
        while not _is_sound(path):
            assert time.monotonic() < deadline, f"{target.name}: {path.name} was not replaced"
            time.sleep(0.01)


def _is_sound(path: Path) -> bool:
    content = path.read_bytes()
    return len(content) > 1000 and sha256(content[compile.CHECKSUM :]).digest() == content[: compile.CHECKSUM]


def _forget() -> None:
    """Let kernels be loaded again when they are called next."""
    _asked.clear()
    for kernel in compile.KERNELS.values():
        _kept.extend(kernel.overloads.values())
        kernel._reset_overloads()


@cache
def _use_own_folder() -> None:
    root = Path(tempfile.mkdtemp(prefix="rowgrad-adversary-"))
    folder = root / "kernels"
    folder.mkdir()
    home, users = os.getpid(), compile.cache_folder()
    atexit.register(lambda: shutil.rmtree(root, ignore_errors=True) if os.getpid() == home else None)
    compile.cache_folder = lambda: folder
    path_of = compile._KernelCache._path

    def path(self: Any, key: Any) -> Path | None:
        found = path_of(self, key)
        if found is not None:
            _asked.append(found)
            if not found.exists() and users is not None and (users / found.name).exists():
                shutil.copy(users / found.name, found)
        return found

    compile._KernelCache._path = path
    # Small calls keep machine code, which would never be loaded again.
    compile.compiled = lambda dispatcher, args: dispatcher
