"""The operators as one typed handler of XLA's foreign function interface, registered as "rowgrad".

A traced program holds calls of that handler. Each names its operator, attributes and counts in a text, so that a
program that was exported runs in any process that has imported `rowgrad.jax`, and its kernel by a number. Most calls
are finished by machine code (`_native` says which); the others, and all that go wrong, end up in `_finish`, in Python.
"""

import _thread
import ctypes
import hashlib
import json
import threading
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from rowgrad._kernels.xla_entry import Entry
from rowgrad._runtime import dtypes, threads
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import RowgradError
from rowgrad.jax import _host as host
from rowgrad.jax import _layout, _native
from rowgrad.jax._call import Call

TARGET = "rowgrad"
INVALID_ARGUMENT, CANCELLED, INTERNAL = 3, 1, 13
# XLA's numbers for data types.
DTYPES = {1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16", 8: "uint32", 9: "uint64",
          10: "float16", 11: "float32", 12: "float64", 15: "complex64", 16: "bfloat16", 18: "complex128"}  # fmt: skip
# Positions in words of 8 bytes: of the numbers and the addresses of arguments and results, and of the attributes.
API, CONTEXT, ARGUMENTS, RESULTS, ATTRIBUTES = 2, 3, (7, 9), (12, 14), (17, 19, 20)
ERROR_CREATE = 6  # among the functions of the interface

_lock = threading.RLock()
_entry: Entry | None = None
_known: set[int] = set()


def register() -> None:
    """Register the handler, where the installed jaxlib has the interface; else traced programs call back."""
    global _entry
    version = _layout.version()
    if version is None or _entry is not None:
        return
    entry = Entry(version, _finish, _prepare)
    capsule = jax.ffi.pycapsule
    jax.ffi.register_ffi_target(
        TARGET, {"instantiate": capsule(entry.instantiate), "execute": capsule(entry.execute)}, platform="cpu"
    )
    threads.watch_limit(entry.set_threads)
    _entry = entry


def is_registered() -> bool:
    """Whether traced programs can hold calls of the handler."""
    return _entry is not None


def traced(call: Call, *values: Any) -> list[Any]:
    """The results of `call` in a traced program, by the handler."""
    # A size that is a symbol while a program is exported is told by the shape of the result when it runs.
    counts = [-1 if count is None or not isinstance(count, int) else count for count in call.counts]
    text = _text(call)
    run = jax.ffi.ffi_call(TARGET, call.structs())
    # NumPy's scalars keep their 64 bits, whatever JAX makes of Python's.
    return list(run(*values, call=text, counts=np.array(counts, np.int64), kernel=np.int64(_number(text))))


def _text(call: Call) -> str:
    """What a program must say of a call so that another process can run it: all that its shapes do not tell."""
    types = [name for _, name in (*call.shapes, *call.results)]
    counted = [i for i, count in enumerate(call.counts) if count is not None]
    width = _native.vector(call)
    said: dict[str, Any] = {
        "op": call.name,
        "settings": call.settings,
        "most": call.most,
        "types": types,
        "counted": counted,
    }
    said |= {"many": call.many} if call.many else {}
    return json.dumps(said | {"width": width}, sort_keys=True)


@lru_cache(maxsize=4096)
def _number(text: str) -> int:
    """The number of the kernel for such calls, which is made ready here; 0 if Python has to do them."""
    said = json.loads(text)
    found = _native.kernel_for(said["op"], said["settings"], said["types"], said["most"] is not None, said["width"])
    if found is None or _entry is None:
        return 0
    address, setting = found
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 2 | 1
    with _lock:
        if number not in _known and 2 * len(_known) < len(_entry):
            _entry.add(number, address, setting)
            _known.add(number)
    return number


# What Python does for XLA. Both get the address of a call frame, and give that of an error, or 0.


def _prepare(frame: int) -> int:
    """A program is being compiled: make its kernel ready, for it may come from another process."""
    return _guarded(frame, lambda: _number(str(_attributes(frame)["call"])))


def _finish(frame: int) -> int:
    """Do a call that the kernel did not finish; what is wrong with it becomes an error of XLA's."""
    return _guarded(frame, lambda: _run(frame))


def _guarded(frame: int, action: Any) -> int:
    try:
        action()
    except RowgradError as error:
        return _error(frame, INVALID_ARGUMENT, f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        _thread.interrupt_main()  # it cannot pass through XLA, so it is raised again after the call
        return _error(frame, CANCELLED, "KeyboardInterrupt")
    except BaseException as error:
        return _error(frame, INTERNAL, f"{type(error).__name__}: {error}")
    return 0


def _run(frame: int) -> None:
    values, outs = _buffers(frame, *ARGUMENTS), _buffers(frame, *RESULTS)
    attributes = _attributes(frame)
    said, told = json.loads(attributes["call"]), attributes["counts"].tolist()
    counts = [
        (outs[0].shape[0] if told[i] < 0 else told[i]) if i in said["counted"] else None for i in range(len(told))
    ]
    shapes, results = ([(array.shape, dtypes.name_of(array.dtype)) for array in arrays] for arrays in (values, outs))
    call = Call(said["op"], tuple(counts), tuple(shapes), tuple(sorted(said["settings"].items())), tuple(results),
                said["most"], False, tuple(said.get("many", ())))  # fmt: skip
    try:
        host.fill(call, outs, values)
    except RowgradError as error:
        error.op = error.op or call.name
        raise


def _words(address: int, size: int) -> Any:
    return (ctypes.c_uint64 * size).from_address(address)


def _buffers(frame: int, number: int, addresses: int) -> list[Array]:
    words = _words(frame, ATTRIBUTES[-1] + 1)
    found = []
    for address in _words(words[addresses], words[number]) if words[number] else ():
        _, _, kind, data, rank, sizes = _words(address, 6)
        shape = tuple(_words(sizes, rank)) if rank else ()
        dtype = dtypes.NUMPY[DTYPES[kind & 0xFFFFFFFF]]
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        memory: Any = (ctypes.c_uint8 * size).from_address(data) if size else bytearray()
        found.append(np.frombuffer(memory, dtype).reshape(shape))
    return found


def _attributes(frame: int) -> dict[str, Any]:
    """The attributes of the call, texts and arrays of numbers."""
    number, names, values = (_words(frame, ATTRIBUTES[-1] + 1)[i] for i in ATTRIBUTES)
    found: dict[str, Any] = {}
    for name, value in zip(_words(names, number), _words(values, number), strict=True):
        key = ctypes.string_at(*_words(name, 2)).decode()
        if key == "call":
            found[key] = ctypes.string_at(*_words(value, 2)).decode()
        elif key == "counts":
            _, size, data = _words(value, 3)
            found[key] = np.array(_words(data, size) if size else [], np.uint64).view(np.int64)
    return found


def _error(frame: int, code: int, message: str) -> int:
    text = ctypes.create_string_buffer(message.encode("utf-8", "replace"))
    arguments = (ctypes.c_uint64 * 4)(28, 0, ctypes.addressof(text), code)
    create = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(_words(_words(frame, 3)[API], 7)[ERROR_CREATE])
    return int(create(ctypes.addressof(arguments)))
