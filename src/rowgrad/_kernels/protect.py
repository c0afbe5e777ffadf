"""Importing and compiling kernels so that neither a signal nor a fork cuts the work in half.

Python runs signal handlers in the main thread, between any two bytecodes. A KeyboardInterrupt in the middle of Numba's
work leaves Numba broken for the rest of the process. `uninterrupted` therefore moves the work to another thread. One in
the middle of `threading.Thread.start` leaves a lock held that the new thread needs to begin, so threads are started
without it. One in the middle of an import may leave Python's import lock held by the main thread, for which the other
thread would wait for ever: it is given up while that works.

A forked child has no thread but the one that forked. Locks that another thread held at that moment stay locked in the
child for ever, so a fork waits until no other thread imports or compiles kernels.
"""

import _imp
import _thread
import atexit
import logging  # noqa: F401 (its fork hook, if registered after ours, would hold a lock that imports need)
import operator
import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

PATIENCE = 60.0  # seconds that a fork waits for other threads
PAUSE = 0.001  # seconds between two looks at what they do

T = TypeVar("T")

_working: dict[_thread.LockType, int] = {}  # held by the threads, by their ids, that work for `uninterrupted`
# The ids of threads that import or compile kernels. Their frames would tell as well, but walking the frames of a thread
# that is running crashed Python 3.11.
_preparing: set[int] = set()

after_compilation: list[Callable[[], None]] = []  # called in the thread that needs the kernel, before it is run


def uninterrupted(function: Callable[..., T], *args: Any) -> T:
    """Call `function` where no signal handler runs.

    An exception from a signal handler leaves this function at once. The work is then finished in the background, and
    the interpreter does not exit before.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return preparing(function, *args)
    outcome: list[tuple[T, None] | tuple[None, BaseException]] = []
    done = _thread.allocate_lock()
    done.acquire()

    def work() -> None:
        _working[done] = threading.get_ident()
        try:
            outcome.append((function(*args), None))
        except BaseException as error:
            outcome.append((None, error))
        finally:
            _working.pop(done, None)
            done.release()

    held = _give_up_imports()
    if not start(work):
        return preparing(function, *args)
    done.acquire()
    if held and _is_in_import_lock():
        for _ in range(held):
            _imp.acquire_lock()
    result, error = outcome.pop()
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def _give_up_imports() -> int:
    """Release Python's import lock if this thread holds it; gives how many times it did."""
    held = 0
    while _imp.lock_held():
        try:
            _imp.release_lock()
        except RuntimeError:  # another thread holds it, for a moment
            break
        held += 1
    return held


def _is_in_import_lock() -> bool:
    """Whether this runs in a signal handler, in the middle of what Python does under its import lock."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_filename == "<frozen importlib._bootstrap>" and code.co_name in ("_get_module_lock", "cb"):
            return True
        frame = frame.f_back
    return False


def preparing(function: Callable[..., T], *args: Any) -> T:
    """Call `function`, which imports or compiles kernels; a fork in another thread waits until it has ended."""
    thread = threading.get_ident()
    is_outermost = thread not in _preparing
    try:
        _preparing.add(thread)
        return function(*args)
    finally:
        if is_outermost:
            _preparing.discard(thread)


def load_numba() -> None:
    """Import Numba and let it prepare LLVM for this machine, so that later imports of kernels are plain Python."""

    def load() -> None:
        import numba
        import numpy as np

        numba.njit(lambda: None)
        numba.typeof(np.empty(0))  # loads what NumPy would load when the first kernel is called

    numba = sys.modules.get("numba")
    if numba is not None and not hasattr(numba, "njit"):  # this thread may be importing it
        load()
    else:
        uninterrupted(load)


def start(function: Callable[[], None]) -> bool:
    """Run `function` in a new thread; False if the system or an ending interpreter allows none."""
    try:
        _thread.start_new_thread(function, ())
    except RuntimeError as error:
        if "new thread" not in str(error):
            raise  # by a signal handler
        return False
    return True


@atexit.register
def _finish() -> None:
    """Let work that was left by an exception end before the interpreter does."""
    for done in tuple(_working):
        done.acquire(timeout=PATIENCE)


_take = operator.methodcaller("acquire", True, 1.0)
_forks = threading.local()  # .held: for each fork under way in this thread, the locks taken for it


def _before_fork() -> None:
    """Wait for the imports and compilations of other threads, and let no new compilation begin."""
    held: list[Any] = []
    _forks.__dict__.setdefault("held", []).append(held)
    locks, deadline = _locks(), time.monotonic() + PATIENCE
    while True:
        held.extend(filter(_take, locks))  # one step: no signal handler runs between taking a lock and noting it
        if (len(held) == len(locks) and not _busy()) or time.monotonic() > deadline:
            return
        _release(held)  # an import may need a lock
        time.sleep(PAUSE)


def _after_fork_in_parent() -> None:
    _release(_forks.held.pop())


def _after_fork_in_child() -> None:
    _working.clear()  # those threads do not exist here
    _preparing.intersection_update({threading.get_ident()})
    held = _forks.held.pop()
    for lock in _locks():
        if lock not in held:  # waiting took too long; its owner does not exist here
            lock._at_fork_reinit()
    _release(held)


def _release(held: list[Any]) -> None:
    for lock in reversed(held):
        lock.release()
    held.clear()


def _locks() -> list[Any]:
    """The re-entrant locks of Numba's compiler and of LLVM, in the order in which Numba takes them, if it is loaded."""
    compiler, llvm = sys.modules.get("numba.core.compiler_lock"), sys.modules.get("llvmlite.binding.ffi")
    try:
        return [compiler.global_compiler_lock._lock, llvm.lib._lock._lock]  # type: ignore[union-attr]
    except AttributeError:  # not loaded, or not yet
        return []


def _busy() -> bool:
    """Whether another thread works for `uninterrupted`, or imports or compiles kernels by itself.

    The latter does not count while this thread is about that too: others may be waiting for it.
    """
    mine = threading.get_ident()
    if any(thread != mine for thread in tuple(_working.values())):
        return True
    return mine not in _preparing and any(thread != mine for thread in tuple(_preparing))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
