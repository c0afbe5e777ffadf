"""Ctrl-C and forks in the middle of imports and compilations: nothing breaks, hangs or goes on behind one's back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from signals import heed_ctrl_c

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

# What the scripts share. A child that hangs is ended by the alarm, and its exit code tells.
SHARED = """
import os, signal, sys, threading
import numpy as np
import rowgrad
from rowgrad import _kernels as kernels
from rowgrad._runtime import threads
threads.GRAIN = 1
rowgrad.set_num_threads(2)

def clear():
    out = np.ones(1000, np.uint8)
    threads.Workers(out.nbytes).run(kernels.clear.clear, out)
    return not out.any()

class WhenImporting:
    def __init__(self, module, action):
        self.module, self.action = module, action
        sys.meta_path.insert(0, self)
    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            sys.meta_path.remove(self)
            self.action()

def when_compiling(action, moment):
    from numba.core import event
    kernels.clear
    actions = [action]
    class Listener(event.Listener):
        def on_start(self, event):
            if moment == "start" and actions:
                actions.pop()()
        def on_end(self, event):
            if moment == "end" and actions:
                actions.pop()()
    event.register("numba:compile", Listener())

def fork_and_clear():
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if clear() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def run(code: str, cache: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SHARED + code], env={**os.environ, "ROWGRAD_CACHE_DIR": str(cache)},
        capture_output=True, text=True, timeout=300, preexec_fn=heed_ctrl_c,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


INTERRUPTED_COMPILATION = """
threads.Workers(1000).run(lambda workers, chunks: None)  # starts the helper
def idle():
    while not (threads._helpers and threads._helpers[0].asleep and not any(threads._jobs)):
        threading.Event().wait(0.01)
idle()
when_compiling(lambda: signal.raise_signal(signal.SIGINT), "end")
out = np.ones(1000, np.uint8)
try:
    threads.Workers(out.nbytes).run(kernels.clear.clear, out)
except KeyboardInterrupt:
    idle()
    print("interrupted", out.all(), clear())
"""


def test_an_interrupted_compilation_writes_nothing(tmp_path: Path) -> None:
    assert run(INTERRUPTED_COMPILATION, tmp_path) == "interrupted True True"


INTERRUPTED_IMPORT = """
WhenImporting("numba.core.typing", lambda: signal.raise_signal(signal.SIGINT))
try:
    clear()
except KeyboardInterrupt:
    print("interrupted", clear())
"""


def test_an_interrupted_import_can_be_repeated(tmp_path: Path) -> None:
    assert run(INTERRUPTED_IMPORT, tmp_path) == "interrupted True"


INTERRUPTED_LOADING = """
from numba.core.imputils import builtin_registry
armed = []
class Functions(list):
    def __len__(self):  # Numba asks for it when it prepares to load or compile
        if armed:
            armed.pop()
            signal.raise_signal(signal.SIGINT)
        return super().__len__()
builtin_registry.functions = Functions(builtin_registry.functions)
kernels.clear
armed.append(True)
try:
    clear()
except KeyboardInterrupt:
    print("interrupted", clear())
"""


def test_an_interrupted_loading_can_be_repeated(tmp_path: Path) -> None:
    assert run(INTERRUPTED_LOADING, tmp_path) == "interrupted True"


INTERRUPTED_ELSEWHERE = """
import _imp
signal.alarm(120)
_imp.acquire_lock()  # as an exception in the middle of any import may leave it
print(clear(), _imp.lock_held())
"""


def test_an_import_lock_that_an_interrupt_left_held_hangs_nothing(tmp_path: Path) -> None:
    assert run(INTERRUPTED_ELSEWHERE, tmp_path) == "True False"


IN_THE_IMPORT_LOCK = """
import _imp
signal.alarm(120)
code = compile("_imp.acquire_lock(); done = call(); held = _imp.lock_held(); _imp.release_lock()",
               "<frozen importlib._bootstrap>", "exec")
scope = {"_imp": _imp, "call": clear}
exec(code.replace(co_name="_get_module_lock"), scope)
print(scope["done"], scope["held"])
"""


def test_a_signal_handler_in_the_middle_of_an_import_can_call(tmp_path: Path) -> None:
    assert run(IN_THE_IMPORT_LOCK, tmp_path) == "True True"


FORK_WHILE_COMPILING = """
begun = threading.Event()
when_compiling(begun.set, "start")
other = threading.Thread(target=clear)
other.start()
begun.wait()
print(fork_and_clear())
other.join()
"""

FORK_WHILE_IMPORTING = """
begun, forking = threading.Event(), threading.Event()
WhenImporting("numba.core.typing", lambda: (begun.set(), forking.wait()))
other = threading.Thread(target=clear)
other.start()
begun.wait()
forking.set()
print(fork_and_clear())
other.join()
"""

FORK_IN_SIGNAL_HANDLER = """
children = []
def fork(*_):
    children.append(os.fork())
    if not children[0]:
        signal.alarm(60)
signal.signal(signal.SIGUSR1, fork)
when_compiling(lambda: signal.raise_signal(signal.SIGUSR1), "start")
done = clear()
if not children[0]:
    os._exit(0 if done else 1)
print(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) if done else "wrong")
"""

FORK_THAT_CANNOT_WAIT = """
from rowgrad._kernels import protect
protect.PATIENCE = 0.0
kernels.clear
from numba.core.compiler_lock import global_compiler_lock
held = threading.Event()
def hold():
    with global_compiler_lock:
        held.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
print(fork_and_clear(), flush=True)
os._exit(0)
"""


@needs_fork
@pytest.mark.parametrize(
    "code",
    [FORK_WHILE_COMPILING, FORK_WHILE_IMPORTING, FORK_IN_SIGNAL_HANDLER, FORK_THAT_CANNOT_WAIT],
    ids=["while compiling", "while importing", "in a signal handler", "without waiting"],
)
def test_a_forked_child_can_call(code: str, tmp_path: Path) -> None:
    assert run(code, tmp_path) == "0"


def test_an_exception_while_the_work_begins_leaves_nothing_behind_that_hangs(tmp_path: Path) -> None:
    """It is raised at each bytecode in turn; the process must still end."""
    code = """
from rowgrad._kernels import protect

class Stop(BaseException):
    pass

def reaches(number):
    count = 0
    def trace(frame, event, arg):
        nonlocal count
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == number:
                raise Stop
        return trace
    sys.settrace(trace)
    try:
        protect.uninterrupted(lambda: None)
    except Stop:
        return True
    finally:
        sys.settrace(None)
    return False

number = 1
while reaches(number):
    number += 1
print(number > 20)
"""
    assert run(code, tmp_path) == "True"
