"""Compiled kernels on disk: damaged files are replaced, a full disk is no error, many processes write at once."""

import errno
import gc
import os
import pickle
import signal
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from numba.core import caching, serialize

from rowgrad._kernels import compile, compile_lock


def double(x):
    return x + x


def half(x):
    return x / 2


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compile, "KERNELS", {})
    monkeypatch.setattr(compile, "_warned", set(), raising=False)
    monkeypatch.setattr(compile, "cache_folder", lambda: tmp_path)
    return tmp_path


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def misses(kernel: Any) -> int:
    return sum(kernel.stats.cache_misses.values())


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut within the checksum": lambda content: content[:10],
    "cut in half": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "first bit": lambda content: bytes([content[0] ^ 1]) + content[1:],
    "a bit of the code": lambda content: (
        content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 4]) + content[len(content) // 2 + 1 :]
    ),
    "something else": lambda content: b"\x80garbage" * 100,
    "an unknown pickle": lambda content: (payload := pickle.dumps(7)) and sha256(payload).digest() + payload,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_replaced(damage: Callable[[bytes], bytes], folder: Path) -> None:
    assert compile.kernel(double)(3) == 6
    paths = list(folder.iterdir())
    whole = {path: path.read_bytes() for path in paths}
    for path, content in whole.items():
        path.write_bytes(damage(content))
    with pytest.warns(RuntimeWarning, match="compiled again"):
        assert compile.kernel(double)(3) == 6
    assert list(folder.iterdir()) == paths
    again = compile.kernel(double)
    assert again(3) == 6
    assert misses(again) == 0


def test_a_file_that_belongs_to_other_types_is_not_loaded(folder: Path) -> None:
    assert compile.kernel(double)(3) == 6
    (integers,) = folder.iterdir()
    assert compile.kernel(double)(1.5) == 3.0
    (floats,) = set(folder.iterdir()) - {integers}
    floats.write_bytes(integers.read_bytes())
    assert compile.kernel(double)(1.5) == 3.0


def test_a_full_disk_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.warns(RuntimeWarning, match=os.strerror(errno.EFBIG)) as told:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        try:
            results = compile.kernel(double)(3), compile.kernel(half)(3)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert results == (6, 1.5)
    assert len(told) == 1
    assert not list(folder.iterdir())


def test_a_folder_that_is_gone_is_made_again(folder: Path) -> None:
    folder.rmdir()
    assert compile.kernel(double)(3) == 6
    again = compile.kernel(double)
    assert again(3) == 6
    assert misses(again) == 0


def test_a_file_in_place_of_the_folder_is_no_error(folder: Path) -> None:
    folder.rmdir()
    folder.touch()
    with pytest.warns(RuntimeWarning, match="each process compiles"):
        assert compile.kernel(double)(3) == 6


def test_without_any_folder_people_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile, "cache_folder", lambda: None)
    with pytest.warns(RuntimeWarning, match="ROWGRAD_CACHE_DIR") as told:
        assert compile.kernel(double)(3) == 6
        assert compile.kernel(half)(3) == 1.5
    assert len(told) == 1


def test_processes_that_write_at_the_same_time_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process keeps another form of the same kernel, while this one is about to write its own."""
    original, others = serialize.dumps, [compile.kernel(double)]

    def interleaved(value: Any) -> bytes:
        while others:
            assert others.pop()(1.5) == 3.0
        return original(value)

    monkeypatch.setattr(serialize, "dumps", interleaved)
    monkeypatch.setattr(caching, "dumps", interleaved)
    assert compile.kernel(double)(3) == 6
    assert not others
    again = compile.kernel(double)
    assert (again(3), again(1.5)) == (6, 3.0)
    assert misses(again) == 0


class Other:
    """A forked process that stops when it has compiled `double`, and is about to keep it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stopped, here = os.pipe()
        there, self._told = os.pipe()
        original = serialize.dumps

        def dumps(value: Any) -> bytes:
            os.write(here, b".")
            os.read(there, 1)
            return original(value)

        self._process = os.fork()
        if self._process == 0:
            signal.alarm(120)
            monkeypatch.setattr(serialize, "dumps", dumps)
            os._exit(compile.kernel(double)(3) != 6)
        assert os.read(stopped, 1) == b"."

    def go_on(self) -> None:
        os.write(self._told, b".")
        assert os.waitpid(self._process, 0)[1] == 0

    def kill(self) -> None:
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


@needs_fork
def test_a_kernel_that_another_process_compiles_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    other, waits = Other(monkeypatch), [0]

    def sleep(seconds: float) -> None:
        waits[0] += 1
        if waits[0] == 3:
            other.go_on()

    monkeypatch.setattr(compile_lock.time, "sleep", sleep)
    kernel = compile.kernel(double)
    assert kernel(3) == 6
    assert (waits[0], misses(kernel)) == (3, 0)


@needs_fork
def test_a_process_that_ends_while_it_compiles_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Other(monkeypatch)
    monkeypatch.setattr(compile_lock.time, "sleep", lambda seconds: other.kill())
    kernel = compile.kernel(double)
    assert kernel(3) == 6
    assert misses(kernel) == 1


@needs_fork
def test_a_process_that_stands_still_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Other(monkeypatch)
    monkeypatch.setattr(compile_lock, "PATIENCE", 0.02)
    kernel = compile.kernel(double)
    assert kernel(3) == 6
    assert misses(kernel) == 1
    other.go_on()


def test_where_files_cannot_be_locked_kernels_are_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(compile_lock.fcntl, "lockf", refuse)
    assert compile.kernel(double)(3) == 6
    monkeypatch.setattr(compile_lock, "fcntl", None)
    assert compile.kernel(half)(3) == 1.5
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("is_on", [True, False])
def test_garbage_is_collected_as_before(is_on: bool) -> None:
    """But not while a kernel is compiled."""
    found: list[bool] = []

    def work(fails: bool) -> None:
        found.append(gc.isenabled())
        if fails:
            raise ZeroDivisionError

    try:
        gc.enable() if is_on else gc.disable()
        assert compile.kernel(double)(1.5) == 3.0
        compile._without_collection(compile._without_collection, work, False)
        with pytest.raises(ZeroDivisionError):
            compile._without_collection(work, True)
        assert gc.isenabled() == is_on
        assert found == [False, False]
    finally:
        gc.enable()
