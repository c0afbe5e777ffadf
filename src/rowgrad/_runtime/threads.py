"""The threads that share kernel calls: how many, and how they are woken.

Kernels release the GIL and divide their work among the threads that run them (see `kernels.sharing`), so helpers are
ordinary daemon threads that wait for jobs. They are started when first needed, and again in a forked child. Any number
of threads may call rowgrad at once. In a process that uses PyTorch, its threads run kernels instead (see `team`).

A helper joins a call only after the caller's own thread has entered the machine code of the kernel: from there on no
signal handler runs in that thread, and the kernel returns when all work is done. So however an exception leaves `run`,
the kernel has either not begun, and never will, or has ended.
"""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from rowgrad import _kernels as kernels
from rowgrad._kernels import kinds, protect
from rowgrad._runtime import team
from rowgrad.errors import InvalidArgumentError

GRAIN, CHUNKS_PER_THREAD = kinds.GRAIN, kinds.CHUNKS_PER_THREAD
NEW_THREAD_GRAIN = 1 << 21  # bytes of work for which making another thread pays
MOST_THREADS = 256
# How many times a helper looks for more work before it sleeps: about as long as waking it would take.
PATIENCE = 100_000

_chosen: int | None = None
_default: int | None = None  # what calls use else; asking the system at each of them would take longer than a small one
_watchers: list[Callable[[int], None]] = []
_code: dict[tuple[Any, Any], Callable[..., Any]] = {}  # compiled kernels by what tells the types of their arguments
_jobs: deque[list[Any]] = deque()
_helpers: "list[_Helper]" = []
_lock = threading.RLock()  # a signal handler may call rowgrad while this thread holds it


def set_num_threads(n: int) -> None:
    """Set the number of threads of a call, including the calling thread.

    Results are the same to the bit for any number.

    Examples
    --------
    >>> import rowgrad
    >>> rowgrad.set_num_threads(2)
    >>> rowgrad.get_num_threads()
    2
    """
    global _chosen
    _chosen = _checked(n, "n")
    for tell in _watchers:
        tell(_chosen)


def get_num_threads() -> int:
    """The number of threads of a call: `set_num_threads`, else `ROWGRAD_NUM_THREADS`, else the available cores.

    The last two are read in the first call, and again whenever this function is called.
    """
    global _default
    if _chosen is not None:
        return _chosen
    text = os.environ.get("ROWGRAD_NUM_THREADS")
    if text:
        try:
            number: Any = int(text)
        except ValueError:
            number = text
        _default = _checked(number, "ROWGRAD_NUM_THREADS")
    else:
        _default = min(_cores(), MOST_THREADS)
    return _default


def watch_limit(tell: Callable[[int], None]) -> None:
    """Call `tell` with the number of threads, now and whenever it is set: for calls that do not come from Python."""
    _watchers.append(tell)
    tell(get_num_threads())


def most_threads() -> int:
    """The same, for calls."""
    return _chosen or _default or get_num_threads()


def _checked(n: Any, argument: str) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_THREADS:
        raise InvalidArgumentError(
            f"{argument} is {n!r}; the number of threads is a whole number from 1 to {MOST_THREADS}.",
            code="bad-thread-count",
            argument=argument,
            value=n,
        )
    return n


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


class Workers:
    """The threads for one operator call: how many, and `chunks`, how many parts its work comes in.

    They are `helpers` of ours and this thread, or the `team` of PyTorch (the address of what starts it), or this one.
    """

    __slots__ = ("chunks", "helpers", "team", "threads")

    def __init__(self, work: int) -> None:
        """`work` is about how many bytes the call moves."""
        self.team, self.helpers, self.threads, self.chunks = 0, 0, 1, 1
        if work < team.GRAIN and work < 2 * GRAIN:
            return
        most = most_threads()
        self.team, self.threads = team.team(work, most)
        if not self.team and work >= 2 * GRAIN:
            self.threads = min(most, work // GRAIN)
            self.helpers = self.threads - 1
        if self.threads > 1:
            self.chunks = self.threads * CHUNKS_PER_THREAD
        if self.helpers:
            _wake(self.helpers)  # they are up by the time there is work

    @classmethod
    def with_gil(cls, work: int) -> "Workers":
        """Those for a kernel that holds the GIL, which helpers could not enter.

        PyTorch's team does not need the GIL. Without it, a large call makes threads of its own, which end with it:
        no fork can come between, since that takes the GIL.
        """
        made = cls(0)
        if work >= team.GRAIN:
            most = most_threads()
            made.team, made.threads = team.team(work, most)
            if not made.team and most > 1 and work >= 2 * NEW_THREAD_GRAIN and sys.platform != "win32":
                made.team = kernels.sharing.NEW_THREADS
                made.threads = min(most, work // NEW_THREAD_GRAIN, kernels.sharing.MOST_NEW_THREADS)
            made.chunks = made.threads * CHUNKS_PER_THREAD if made.threads > 1 else 1
        return made

    def run(self, kernel: Any, *args: Any, key: Any = None) -> Any:
        """Call `kernel` with new counters to share its work by, the number of chunks, and `args`.

        A `key` that tells the types of all `args`, which must be contiguous, saves a small call the look at each.
        """
        if self.team:
            return self._run_on_team(kernel, *args)
        args = (kernels.sharing.new_workers(_wakeups()), self.chunks, *args)
        if self.helpers == 0:
            code = None if key is None else _code.get((kernel, key))
            if code is not None:
                return code(*args)
            result = kernel(*args)
            if key is not None:
                _code[kernel, key] = kernels.compile.compiled(kernel, args)
            return result
        job = [kernel, args]
        try:
            _jobs.extend([job] * self.helpers)
            _wake(self.helpers)
            return kernel(*args)
        finally:
            job.clear()  # a helper that comes now finds nothing, and no array is kept alive for it

    def _run_on_team(self, kernel: Any, *args: Any) -> Any:
        sharing = kernels.sharing
        workers = sharing.new_workers(_nobody())
        counters = workers[0]
        counters[sharing.START], counters[sharing.THREADS] = self.team, self.threads
        result = kernel(workers, self.chunks, *args)
        if self.team != sharing.NEW_THREADS:
            team.note(bool(counters[sharing.LATE]))
        return result


class _Helper:
    """A thread that works on jobs, watches a moment for the next one, then sleeps."""

    def __init__(self) -> None:
        self.wakeups = _wakeups()  # here, so that the helper has nothing to import
        self.asleep = False
        self.sleep = threading.Lock()
        self.sleep.acquire()

    def run(self) -> None:
        wakeups, jobs, seen = self.wakeups, _jobs, 0
        while True:
            seen = kernels.sharing.watch(wakeups, seen)
            if self._work(jobs):
                continue
            self.asleep = True
            if jobs:  # a caller is about to begin, unless it has to compile first
                seen = kernels.sharing.watch(wakeups, seen)
            if not self._work(jobs):  # nothing came between watching and falling asleep
                self.sleep.acquire()
            self.asleep = False

    def _work(self, jobs: "deque[list[Any]]") -> bool:
        """Work on one job, if there is any that has begun; tells whether one has, or is over already."""
        found = False
        for _ in range(len(jobs)):
            try:
                job = jobs.popleft()
                kernel, args = job
            except IndexError:  # other helpers were faster
                break
            except ValueError:  # the call is over
                found = True
                continue
            if kernels.sharing.has_begun(args[0]):
                kernel(*args)
                return True
            jobs.append(job)
        return found

    def wake(self) -> None:
        if self.asleep and self.sleep.locked():
            with suppress(RuntimeError):  # another thread was faster
                self.sleep.release()


def call_helpers() -> None:
    """Wake the helpers for jobs that they left because the kernel was still to be compiled."""
    if _jobs:
        _wake(len(_helpers))


protect.after_compilation.append(call_helpers)


def _wake(wanted: int) -> None:
    if len(_helpers) < wanted:
        with _lock:
            while len(_helpers) < wanted:
                helper = _Helper()
                if not protect.start(helper.run):
                    break  # one thread can do everything
                _helpers.append(helper)
    for helper in _helpers[:wanted]:
        if helper.asleep:
            helper.wake()


@cache
def _wakeups() -> Any:
    kernels.compile  # noqa: B018 (first, since it imports Numba where no signal interrupts it)
    wakeups = kernels.sharing.new_wakeups()
    wakeups[kernels.sharing.LINE] = PATIENCE
    return wakeups


@cache
def _nobody() -> Any:
    """A wake-up counter that no thread watches."""
    return kernels.sharing.new_wakeups()


def _after_fork() -> None:
    """A forked child has none of its parent's threads."""
    global _jobs, _helpers, _lock, _default
    _jobs, _helpers, _lock, _default = deque(), [], threading.RLock(), None
    _wakeups.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
