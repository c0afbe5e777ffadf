"""Where XLA enters: the two functions that are registered as a typed handler of XLA's foreign function interface.

`execute` looks up the kernel that a call names by its number, and calls it with the address of the call frame. Whatever
that does not finish (a bad id, a type without a kernel of its own), a function of Python's does. Both run with the
floating-point environment that C begins with, and leave XLA's as it was: XLA takes numbers below the normal range
for 0. `instantiate` is called when a program is compiled, and calls a function of Python's too.

They are written in LLVM's own terms and made anew in each process, so addresses are in memory only, never in a file.
The layout of call frames is that of XLA's `c_api.h`; who registers the handler checks that (see `rowgrad.jax._layout`).
"""

import ctypes
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import binding, ir

INT8, INT32, INT64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
HANDLER = ir.FunctionType(INT64, [INT64])
TOLD = 12  # arguments of a kernel that are types only; each is passed a 0
KERNEL = ir.FunctionType(INT32, [INT64.as_pointer(), INT64.as_pointer(), INT64, INT64, INT64, *[INT64] * TOLD])
ENVIRONMENT = 256  # bytes, more than any system keeps of the floating-point environment
SLOTS = 1 << 13  # kernels in use, each a number, an address and a setting; at most half are taken
SLOT = 3
EXECUTE = 3

# Positions in a call frame, in words of 8 bytes.
FRAME_EXTENSION, FRAME_STAGE, FRAME_ATTRIBUTES = 1, 4, 20
EXTENSION_TYPE, EXTENSION_NEXT, EXTENSION_METADATA = 1, 2, 3
METADATA = 1
# The attributes are sorted by name: call, counts, kernel.
KERNEL_ATTRIBUTE = 2


class Entry:
    """The two functions, and what they read: kernels by number, and the functions of Python's."""

    def __init__(self, version: tuple[int, int], host: Callable[[int], int], prepare: Callable[[int], int]) -> None:
        """`host` and `prepare` get the address of a call frame, and give that of an error, or 0."""
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        module = binding.parse_assembly(str(_module(version)))
        machine = binding.Target.from_default_triple().create_target_machine(jit=True)
        self._engine = binding.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        self.execute = self._engine.get_function_address("execute")
        self.instantiate = self._engine.get_function_address("instantiate")
        kind = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)
        self._functions = kind(host), kind(prepare)
        words = self._words("functions", 2)
        words[:] = [ctypes.cast(function, ctypes.c_void_p).value for function in self._functions]
        self._threads = self._words("threads", 1)
        self._slots = self._words("slots", SLOTS * SLOT).reshape(SLOTS, SLOT)

    def _words(self, name: str, size: int) -> "np.ndarray[Any, Any]":
        address = self._engine.get_global_value_address(name)
        return np.ctypeslib.as_array((ctypes.c_int64 * size).from_address(address))

    def __len__(self) -> int:
        return SLOTS

    def add(self, number: int, address: int, setting: int) -> None:
        """Let calls that name `number` run the kernel at `address`; one thread at a time may do this."""
        place = number % SLOTS
        while self._slots[place, 0] not in (0, number):
            place = (place + 1) % SLOTS
        self._slots[place, 1:] = address, setting
        self._slots[place, 0] = number  # last: it may be looked for at this moment

    def set_threads(self, threads: int) -> None:
        """How many threads a call may use."""
        self._threads[0] = threads


def _module(version: tuple[int, int]) -> ir.Module:
    module = ir.Module("rowgrad_xla")
    module.triple = binding.get_default_triple()
    for name, size in (("functions", 2), ("threads", 1), ("slots", SLOTS * SLOT)):
        table = ir.GlobalVariable(module, ir.ArrayType(INT64, size), name)
        table.initializer = ir.Constant(table.value_type, None)
    for name, body in (("execute", _execute), ("instantiate", _instantiate)):
        function = ir.Function(module, HANDLER, name)
        builder = ir.IRBuilder(function.append_basic_block())
        _answer(builder, function.args[0], version)
        body(builder, function.args[0])
    return module


def _load(builder: ir.IRBuilder, address: Any, word: int) -> Any:
    return builder.load(builder.inttoptr(builder.add(address, INT64(8 * word)), INT64.as_pointer()))


def _store(builder: ir.IRBuilder, value: Any, address: Any, offset: int) -> None:
    builder.store(value, builder.inttoptr(builder.add(address, INT64(offset)), value.type.as_pointer()))


def _table(builder: ir.IRBuilder, name: str, position: Any) -> Any:
    return builder.load(builder.gep(builder.module.get_global(name), [INT64(0), position]))


def _answer(builder: ir.IRBuilder, frame: Any, version: tuple[int, int]) -> None:
    """If the frame asks what this handler is, tell it, and return."""
    before, look, found = builder.block, builder.append_basic_block("look"), builder.append_basic_block("found")
    further, done = builder.append_basic_block("further"), builder.append_basic_block("done")
    first = _load(builder, frame, FRAME_EXTENSION)
    builder.branch(look)
    builder.position_at_end(look)
    extension = builder.phi(INT64)
    extension.add_incoming(first, before)
    is_one = builder.append_basic_block("is_one")
    builder.cbranch(builder.icmp_unsigned("==", extension, INT64(0)), done, is_one)
    builder.position_at_end(is_one)
    kind = builder.trunc(_load(builder, extension, EXTENSION_TYPE), INT32)
    builder.cbranch(builder.icmp_unsigned("==", kind, INT32(METADATA)), found, further)
    builder.position_at_end(further)
    extension.add_incoming(_load(builder, extension, EXTENSION_NEXT), further)
    builder.branch(look)
    builder.position_at_end(found)
    metadata = _load(builder, extension, EXTENSION_METADATA)
    # Size of the version (as C counts it), its extensions, major and minor; then the handler's traits: none.
    for value, offset in ((INT64(24), 8), (INT64(0), 16), (INT32(version[0]), 24), (INT32(version[1]), 28),
                          (INT32(0), 32)):  # fmt: skip
        _store(builder, value, metadata, offset)
    with builder.if_then(builder.icmp_unsigned(">=", _load(builder, metadata, 0), INT64(48))):
        _store(builder, INT64(0), metadata, 40)  # no type of state
    builder.ret(INT64(0))
    builder.position_at_end(done)


def _ask_python(builder: ir.IRBuilder, which: int, frame: Any) -> Any:
    function = builder.inttoptr(_table(builder, "functions", INT64(which)), HANDLER.as_pointer())
    return builder.call(function, [frame])


def _instantiate(builder: ir.IRBuilder, frame: Any) -> None:
    builder.ret(_ask_python(builder, 1, frame))


def _execute(builder: ir.IRBuilder, frame: Any) -> None:
    stage = builder.trunc(_load(builder, frame, FRAME_STAGE), INT32)
    with builder.if_then(builder.icmp_unsigned("!=", stage, INT32(EXECUTE))):
        builder.ret(INT64(0))
    attribute = _load(builder, _load(builder, frame, FRAME_ATTRIBUTES), KERNEL_ATTRIBUTE)
    number = _load(builder, _load(builder, attribute, 1), 0)
    address, setting = _find(builder, number)
    given = builder.alloca(INT64)
    builder.store(INT64(1), given)
    with usual_environment(builder):
        with builder.if_then(builder.icmp_unsigned("!=", address, INT64(0))):
            result, problem = builder.alloca(INT64), builder.alloca(INT64)
            arguments = [result, problem, frame, _table(builder, "threads", INT64(0)), setting, *[INT64(0)] * TOLD]
            status = builder.call(builder.inttoptr(address, KERNEL.as_pointer()), arguments)
            is_done = builder.and_(
                builder.icmp_unsigned("==", status, INT32(0)),
                builder.icmp_unsigned("==", builder.load(result), INT64(0)),
            )
            builder.store(builder.select(is_done, INT64(0), INT64(1)), given)
        with builder.if_then(builder.icmp_unsigned("!=", builder.load(given), INT64(0)), likely=False):
            builder.store(_ask_python(builder, 0, frame), given)
    builder.ret(builder.load(given))


def _find(builder: ir.IRBuilder, number: Any) -> tuple[Any, Any]:
    """The address and the setting of the kernel with this number; 0 and 0 if there is none."""
    before, look = builder.block, builder.append_basic_block("search")
    again, done = builder.append_basic_block("again"), builder.append_basic_block("end")
    start = builder.and_(number, INT64(SLOTS - 1))
    builder.branch(look)
    builder.position_at_end(look)
    place = builder.phi(INT64)
    place.add_incoming(start, before)
    here = _table(builder, "slots", builder.mul(place, INT64(SLOT)))
    is_here = builder.icmp_unsigned("==", here, number)
    is_end = builder.or_(is_here, builder.icmp_unsigned("==", here, INT64(0)))
    builder.cbranch(is_end, done, again)
    builder.position_at_end(again)
    place.add_incoming(builder.and_(builder.add(place, INT64(1)), INT64(SLOTS - 1)), again)
    builder.branch(look)
    builder.position_at_end(done)
    base = builder.mul(place, INT64(SLOT))
    address = _table(builder, "slots", builder.add(base, INT64(1)))
    setting = _table(builder, "slots", builder.add(base, INT64(2)))
    return builder.select(is_here, address, INT64(0)), setting


@contextmanager
def usual_environment(builder: ir.IRBuilder) -> Any:
    """Code that runs with the floating-point environment C begins with; afterwards it is as it was before."""
    kind = ir.FunctionType(INT32, [INT8.as_pointer()])
    room = builder.alloca(ir.ArrayType(INT8, ENVIRONMENT))
    room.align = 16
    before = builder.bitcast(room, INT8.as_pointer())
    builder.call(_function(builder.module, "fegetenv", kind), [before])
    if sys.platform == "darwin":
        try:
            default: Any = builder.module.get_global("_FE_DFL_ENV")
        except KeyError:
            default = ir.GlobalVariable(builder.module, ir.ArrayType(INT8, ENVIRONMENT), "_FE_DFL_ENV")
        default = builder.bitcast(default, INT8.as_pointer())
    else:
        default = builder.inttoptr(INT64(-1), INT8.as_pointer())  # glibc and musl
    change = _function(builder.module, "fesetenv", kind)
    builder.call(change, [default])
    yield
    builder.call(change, [before])


def _function(module: ir.Module, name: str, kind: ir.FunctionType) -> Any:
    known = module.globals.get(name)
    return ir.Function(module, kind, name) if known is None else known
