"""How kernels are compiled and where the compiled code is kept.

Every kernel is a Numba function that releases the GIL, rounds each operation on its own (no fastmath, no fused
multiply-add) and is kept on disk, so that only the first process on a machine compiles it. Numba notices a
change only in the file of the function itself; kernels here call helpers from other files, so the stamp of
each cached kernel covers its file and all files of this folder that it imports.
"""

import gc
import hashlib
import os
import pickle
import re
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from rowgrad._kernels import compile_lock, protect

protect.load_numba()

import llvmlite  # noqa: E402
import numba  # noqa: E402
from numba.core import caching, event, imputils, serialize  # noqa: E402
from numba.core.codegen import JITCodeLibrary  # noqa: E402
from numba.core.compiler import Compiler, CompileResult  # noqa: E402
from numba.core.compiler_lock import global_compiler_lock  # noqa: E402
from numba.core.registry import cpu_target  # noqa: E402
from numba.core.typed_passes import InlineOverloads, NopythonRewrites  # noqa: E402
from numba.core.typing import templates  # noqa: E402
from numba.core.untyped_passes import (  # noqa: E402
    InlineClosureLikes,
    InlineInlinables,
    LiteralUnroll,
    MakeFunctionToJitFunction,
    WithLifting,
)

FOLDER = Path(__file__).parent
KERNELS: dict[str, Any] = {}
PATIENCE = 1.0  # seconds of compiling after which a message is printed
SUFFIX = ".nbc"  # of the files that keep compiled code
CHECKSUM = hashlib.sha256().digest_size

_warned: set[str] = set()


class _InlinedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """A function that is part of the kernels that call it, and never run by itself: it gets no machine code."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, env: Any) -> None:
        """What Numba asks of `codegen` for functions that can be run."""


class _LateLibrary(_InlinedLibrary):
    """The same, optimized in the kernels that call it only, not by itself before."""

    def _optimize_final_module(self) -> None:
        made = self._codegen._module_pass_manager(loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap")
        passes, *builder = made if isinstance(made, tuple) else (made,)  # Numba 0.60 has no builder
        passes.run(self._final_module, *builder)


class KernelCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler without what kernels do not need: closures, comprehensions, and expressions of whole arrays."""

    LEFT_OUT = (
        WithLifting, InlineClosureLikes, MakeFunctionToJitFunction, InlineInlinables, LiteralUnroll, InlineOverloads,
        NopythonRewrites,
    )  # fmt: skip

    def define_pipelines(self) -> Any:
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [(step, text) for step, text in pipeline.passes if step not in self.LEFT_OUT]
        return pipelines


class _Inliner(KernelCompiler):
    library_class = _InlinedLibrary

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *rest: Any) -> None:
        super().__init__(typingctx, targetctx, self.library_class(targetctx.codegen(), "inlined"), *rest)


class _LateInliner(_Inliner):
    library_class = _LateLibrary


# Only kernels call inlined functions, so the wrappers that Numba would compile for other callers are left out.
INLINE = {
    "nogil": True, "error_model": "numpy", "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True,
    "pipeline_class": _Inliner,
}  # fmt: skip
# For functions without loops: LLVM optimizes them as well inside the kernel, in half the time.
INLINE_LATE = INLINE | {"pipeline_class": _LateInliner}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` at its first call for each combination of argument types, and keep the result on disk.

    One whose first argument is `workers` may be run by threads of another library (see `team`); one whose first is
    `frame` is called by XLA, never by Python (see `xla_frame`).
    """
    return _kernel(function, nogil=True)


def kernel_with_gil(function: Callable[..., Any]) -> Any:
    """The same, for a kernel that reads objects of Python: no other thread of Python runs meanwhile."""
    return _kernel(function, nogil=False)


def _kernel(function: Callable[..., Any], *, nogil: bool) -> Any:
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
    options: dict[str, Any] = {}
    if "workers" in function.__code__.co_varnames[:1]:
        from rowgrad._kernels.team import SharedCompiler

        options["pipeline_class"] = SharedCompiler
    if "frame" in function.__code__.co_varnames[:1]:
        options = {"pipeline_class": KernelCompiler, "no_cpython_wrapper": True}
    dispatcher = numba.njit(nogil=nogil, error_model="numpy", no_cfunc_wrapper=True, **options)(function)
    KERNELS[name] = dispatcher
    dispatcher._cache = _KernelCache(name, source_stamp(Path(function.__code__.co_filename)))
    compile_for_args = dispatcher._compile_for_args

    def load_or_compile(*args: Any) -> Any:
        try:
            if global_compiler_lock.is_locked():  # by this thread, so another one would wait for ever
                return compile_for_args(*args)
            return protect.preparing(protect.uninterrupted, _without_collection, compile_for_args, *args)
        finally:
            dispatcher._cache.unlock()
            for action in protect.after_compilation:
                action()

    dispatcher._compile_for_args = load_or_compile
    return dispatcher


def ready(dispatcher: Any, signature: tuple[Any, ...]) -> int:
    """Load or compile a kernel for arguments of these Numba types; gives the address of its machine code."""

    def prepare() -> int:
        try:
            dispatcher.compile(signature)
        finally:
            dispatcher._cache.unlock()
        made = dispatcher.overloads[signature]
        return int(made.library.get_pointer_to_function(made.fndesc.llvm_func_name))

    if global_compiler_lock.is_locked():
        return prepare()
    return protect.uninterrupted(_without_collection, prepare)  # type: ignore[no-any-return]


def compiled(dispatcher: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
    """The code of a kernel that was called with arguments of these types.

    To call it saves the look at the type of each argument, which a small call spends more time on than on its work;
    the types must be the same.
    """
    found: Callable[..., Any] = dispatcher.overloads[tuple(map(dispatcher.typeof_pyval, args))].entry_point
    return found


def _load_when_grown(context: Any) -> None:
    """Have a context of Numba read its own registries when they have grown, and not at each call of an intrinsic.

    The two registries that intrinsics and overloads are added to are read elsewhere, and still each time.
    """
    load, seen = context.load_additional_registries, -1

    def load_if_grown() -> None:
        nonlocal seen
        size = sum(
            len(getattr(registry, name))
            for registry, loader in tuple(context._registries.items())
            if registry not in (imputils.builtin_registry, templates.builtin_registry)
            for name in loader.registry_items
        )
        if size != seen or size == 0:
            load()
            seen = size

    context.load_additional_registries = load_if_grown


_load_when_grown(cpu_target.target_context)
_load_when_grown(cpu_target.typing_context)


_compiling = 0  # threads that have stopped the collection of garbage
_collects = False  # whether it was on before
_collection = threading.Lock()


def _without_collection(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function` while no garbage is collected: it makes many objects, and each round looks at all there are."""
    global _compiling, _collects
    with _collection:
        if _compiling == 0:
            _collects = gc.isenabled()
            gc.disable()
        _compiling += 1
    try:
        return function(*args)
    finally:
        with _collection:
            _compiling -= 1
            if _compiling == 0 and _collects:
                gc.enable()


def inline(function: Callable[..., Any]) -> Any:
    """Compile `function` into the kernels that call it."""
    return numba.njit(**INLINE)(function)


def inline_late(function: Callable[..., Any]) -> Any:
    """The same, with `INLINE_LATE`."""
    return numba.njit(**INLINE_LATE)(function)


def part_of(dispatcher: Any) -> Any:
    """A kernel as a part of other kernels: no machine code is made of it alone."""
    return inline_late(dispatcher.py_func)


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
def versions_stamp() -> str:
    """A digest of the versions that shape the compiled code."""
    return hashlib.sha256(f"{numba.__version__} {llvmlite.__version__} {sys.version}".encode()).hexdigest()[:16]


@cache
def source_stamp(file: Path) -> str:
    """A digest of a file with kernels, and of all files of this folder that it imports."""
    sources, found = {}, [file]
    while found:
        path = found.pop()
        if path not in sources:
            sources[path] = path.read_bytes()
            names = re.findall(r"^\s*from rowgrad\._kernels\.(\w+) import", sources[path].decode(), re.MULTILINE)
            found += [FOLDER / f"{name}.py" for name in names]
    return hashlib.sha256(b"".join(sources[path] for path in sorted(sources))).hexdigest()[:16]


@cache
def cache_folder() -> Path | None:
    """The folder for compiled kernels: the first writable of those below, or None if there is none.

    `ROWGRAD_CACHE_DIR`, the user's cache folder, the package's own `__pycache__`. A shared temporary folder is
    not among them: other users can write there, and could plant code.
    """
    for folder in _candidates():
        target = folder / versions_stamp()
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


class _KernelCache(caching.NullCache):  # type: ignore[misc]
    """The compiled forms of one kernel on disk, each in a file of its own.

    A file holds a checksum and what it covers: the source, the argument types, the machine and the code. Files are
    written elsewhere and renamed, and there is no index, so any number of processes may read and write at the same
    time. A file that is damaged is replaced; where nothing can be written, kernels are compiled and not kept. What one
    process is compiling, others wait for (`compile_lock`).
    """

    def __init__(self, name: str, stamp: str) -> None:
        self._name, self._stamp = name, stamp
        self._lock: compile_lock.CompileLock | None = None

    @property
    def cache_path(self) -> str | None:
        folder = cache_folder()
        return None if folder is None else str(folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        key = self._stamp, sig, target_context.codegen().magic_tuple()
        path = self._path(key)
        if path is None:
            return None
        found = self._load(path, key, target_context)
        if found is None:
            self.unlock()
            self._lock = compile_lock.CompileLock(path)
            if not self._lock.acquire():
                found = self._load(path, key, target_context)
        return found

    def unlock(self) -> None:
        """Let other processes compile the kernel, whether it was kept or not."""
        if self._lock is not None:
            self._lock.release()

    def _load(self, path: Path, key: Any, target_context: Any) -> Any:
        try:
            content = path.read_bytes()
            checksum, payload = content[:CHECKSUM], content[CHECKSUM:]
            if hashlib.sha256(payload).digest() != checksum:
                raise ValueError("its checksum is wrong")
            kept_key, code = pickle.loads(payload)
            return CompileResult._rebuild(target_context, *code) if kept_key == key else None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception as error:
            _warn_once("damaged", f"{path} cannot be loaded and is compiled again: {error}")
            return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        if cres.library.has_dynamic_globals:  # addresses that mean nothing in another process
            return
        key = self._stamp, sig, cres.codegen.magic_tuple()
        path = self._path(key)
        if path is None:
            _warn_once("unkept", "no folder for compiled kernels is writable, so each process compiles them again; "
                                 "set ROWGRAD_CACHE_DIR to one that is")  # fmt: skip
            return
        payload = serialize.dumps((key, cres._reduce()))
        part = path.with_name(f".{uuid.uuid4().hex}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(hashlib.sha256(payload).digest() + payload)
            part.replace(path)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            _warn_once("unkept", f"{path.parent} takes no compiled kernel, so each process compiles it again: {error}")

    def _path(self, key: Any) -> Path | None:
        folder = cache_folder()
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:32]
        return None if folder is None else folder / f"{self._name}.{digest}{SUFFIX}"


def _warn_once(subject: str, message: str) -> None:
    if subject not in _warned:
        _warned.add(subject)
        warnings.warn(f"rowgrad: {message}", RuntimeWarning, stacklevel=2)
