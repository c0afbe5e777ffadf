"""Kernels that PyTorch's own threads run, and kernels on plain addresses.

Between PyTorch's operators its OpenMP threads stay awake for a while, on the cores that helpers of our own would need.
Where PyTorch is loaded, that team therefore runs kernels (docs/decisions/threads.md has the measurements): `on_team`
where a kernel asks for it, and by `SharedCompiler` each kernel that shares its work by `Workers`.

A layer holds tensors and makes many small calls, so its kernels take addresses as integers: describing a tensor to
NumPy takes longer than a small kernel. `at` makes an array of an address, within the kernel.
"""

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, lowering
from numba.core.callconv import RETCODE_OK
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import BaseNativeLowering, NativeLowering
from numba.extending import intrinsic

from rowgrad._kernels import sharing
from rowgrad._kernels.compile import KernelCompiler, inline
from rowgrad._kernels.raw import peek, poke
from rowgrad._kernels.sharing import LINE, STRIDE, atomic_add, clock, read_clock, waits_since

INT64, INT32, BYTES = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
MOST_PHASES = 4
COUNTERS = (MOST_PHASES + 1) * STRIDE  # those of phases, and room for what kernels count themselves
FINISHED = COUNTERS - LINE  # the clock when the first thread had nothing left to do
STARTED = FINISHED + 1  # the clock before the team was asked
CLAIMED = COUNTERS  # from here on, on a line of its own for each range of chunks: how many of them are claimed
MOST_RANGES = 16  # threads beyond so many share them
WITH_RANGES = CLAIMED + MOST_RANGES * LINE  # words of counters, these included


def _array_at(context: Any, builder: Any, array: Any, address: Any) -> Any:
    made = context.make_array(array)(context, builder)
    size = context.get_constant(types.intp, array.dtype.bitwidth // 8)
    context.populate_array(
        made,
        data=builder.inttoptr(address, context.get_data_type(array.dtype).as_pointer()),
        shape=[context.get_constant(types.intp, 1 << 62)],
        strides=[size],
        itemsize=size,
        meminfo=None,
    )
    return made._getvalue()


@intrinsic
def at(typingctx: Any, like: Any, address: Any) -> Any:
    """What lies at `address`, as an array of the type of `like`; its size must not be used."""
    array = types.Array(like.dtype, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _array_at(context, builder, array, args[1])

    return array(like, types.int64), codegen


@intrinsic
def at_if(typingctx: Any, wanted: Any, like: Any, address: Any) -> Any:
    """The same, or None if `wanted` is None."""
    found = types.none if isinstance(wanted, types.NoneType) else types.Array(like.dtype, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if found is types.none:
            return context.get_dummy_value()
        return _array_at(context, builder, found, args[2])

    return found(wanted, like, types.int64), codegen


@intrinsic(prefer_literal=True)
def room(typingctx: Any, words: Any) -> Any:
    """The address of that many zeros of int64, on a cache line of their own; they last until the kernel returns."""
    size = words.literal_value

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        counters = cgutils.alloca_once(builder, ir.ArrayType(INT64, size + LINE))
        first = builder.and_(builder.add(builder.ptrtoint(counters, INT64), INT64(63)), INT64(-64))
        cgutils.memset(builder, builder.inttoptr(first, BYTES), INT64(8 * size), 0)
        return first

    return types.int64(words), codegen


@intrinsic
def on_team(typingctx: Any, run_parallel: Any, threads: Any, body: Any, args: Any) -> Any:
    """Let `threads` threads call ``body(*args)``; it returns when all calls have ended.

    `run_parallel` is where the addresses of GOMP_parallel and omp_get_thread_num stand; if it is 0, this thread alone
    does.
    """
    signature = body.get_call_type(typingctx, tuple(args), {})

    def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
        compiled = body.dispatcher.get_compile_result(signature)
        context.add_linking_libs([compiled.library])
        packer = context.get_arg_packer(args)
        given = packer.as_arguments(builder, [builder.extract_value(values[3], i) for i in range(len(args))])

        def call(inner: Any, loaded: Any) -> None:
            context.call_internal_no_propagate(inner, compiled.fndesc, signature, packer.from_arguments(inner, loaded))

        task, address = _make_task(builder, given, call)
        with builder.if_else(builder.icmp_unsigned("==", values[0], INT64(0))) as (here, there):
            with here:
                builder.call(task, [address])
            with there:
                _run(builder, values[0], values[1], task, address)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, body, args), codegen


def _make_task(builder: Any, given: Any, call: Any) -> tuple[Any, Any]:
    """A function that is passed the address of `given`, and calls what `call` writes; and that address."""
    packed = ir.LiteralStructType([value.type for value in given])
    task = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [BYTES]), builder.module.get_unique_name("task"))
    task.linkage = "internal"
    inner = ir.IRBuilder(task.append_basic_block())
    data = inner.bitcast(task.args[0], packed.as_pointer())
    call(inner, [inner.load(inner.gep(data, [INT32(0), INT32(i)])) for i in range(len(given))])
    inner.ret_void()
    shared = cgutils.alloca_once(builder, packed)
    for i, value in enumerate(given):
        builder.store(value, builder.gep(shared, [INT32(0), INT32(i)]))
    return task, builder.bitcast(shared, BYTES)


def _run(builder: Any, functions: Any, threads: Any, task: Any, address: Any) -> None:
    """Code that lets the team run the task."""
    kind = ir.FunctionType(ir.VoidType(), [task.type, BYTES, INT32, INT32])
    builder.call(_function(builder, functions, 0, kind), [task, address, builder.trunc(threads, INT32), INT32(0)])


def _function(builder: Any, functions: Any, number: int, kind: Any) -> Any:
    """Code that reads one of the team's functions."""
    first = builder.inttoptr(functions, kind.as_pointer().as_pointer())
    return builder.load(builder.gep(first, [INT64(number)]))


@intrinsic
def thread_number(typingctx: Any, run_parallel: Any) -> Any:
    """The number of this thread in the team, from 0 on: the same in each call, so that it finds its caches warm."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = cgutils.alloca_once_value(builder, INT64(0))
        with builder.if_then(builder.icmp_unsigned("!=", args[0], INT64(0))):
            number = builder.call(_function(builder, args[0], 1, ir.FunctionType(INT32, [])), [])
            builder.store(builder.zext(number, INT64), found)
        return builder.load(found)

    return types.int64(types.int64), codegen


def _run_on_new(builder: Any, threads: Any, task: Any, address: Any) -> None:
    """Code that lets this thread and new ones run the task, and waits for these; fewer if the system gives no more."""
    handles = cgutils.alloca_once(builder, ir.ArrayType(INT64, sharing.MOST_NEW_THREADS))
    made = cgutils.alloca_once(builder, INT64)
    builder.store(INT64(0), made)
    result, begin = ir.IntType(32), task.type
    kinds = {"pthread_create": [INT64.as_pointer(), BYTES, begin, BYTES], "pthread_join": [INT64, BYTES.as_pointer()]}
    create, join = (
        cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, kind), name)
        for name, kind in kinds.items()
    )

    def handle(number: Any) -> Any:
        return builder.gep(handles, [INT32(0), number])

    with cgutils.for_range(builder, builder.sub(threads, INT64(1))) as loop:
        failed = builder.call(create, [handle(loop.index), BYTES(None), task, address])
        with builder.if_then(builder.icmp_signed("!=", failed, result(0)), likely=False):
            loop.do_break()
        builder.store(builder.add(loop.index, INT64(1)), made)
    builder.call(task, [address])
    with cgutils.for_range(builder, builder.load(made)) as loop:
        builder.call(join, [builder.load(handle(loop.index)), BYTES.as_pointer()(None)])


class _SharedLower(lowering.Lower):  # type: ignore[misc]
    """Writes a kernel whose first argument is `workers`, and which begins by asking the team that they name, if any.

    Each thread of the team then calls the kernel with the same arguments, and the place of its result: all give the
    same. It comes before anything else, while no references are counted.
    """

    def lower_function_body(self) -> Any:
        builder = self.builder
        builder.position_at_end(super().lower_function_body())
        workers = self.fndesc.argtypes[0]
        counters = self.context.make_array(workers[0])(
            self.context, builder, builder.extract_value(self.fnargs[0], 0)
        ).data

        def place(number: int) -> Any:
            return builder.gep(counters, [INT64(number)])

        start = builder.load(place(sharing.START))
        is_new = builder.icmp_unsigned("==", builder.load(place(sharing.RUNNING)), INT64(0))
        with builder.if_then(builder.and_(builder.icmp_unsigned("!=", start, INT64(0)), is_new), likely=False):
            builder.store(INT64(1), place(sharing.RUNNING))
            task, address = _make_task(builder, self.function.args, self._call)
            threads = builder.load(place(sharing.THREADS))
            if self.flags.release_gil or sys.platform == "win32":
                _run(builder, start, threads, task, address)
            else:
                makes_threads = builder.icmp_unsigned("==", start, INT64(sharing.NEW_THREADS))
                with builder.if_else(makes_threads) as (new, team):
                    with new:
                        _run_on_new(builder, threads, task, address)
                    with team:
                        _run(builder, start, threads, task, address)
            # Whether the team took long to come together after the work was done, as it does where cores are busy. If
            # two threads noted the end at the same time, the sum of both lies in the future, and says no.
            ended = builder.load(place(sharing.FINISHED))
            since = builder.sub(read_clock(builder), ended)
            is_late = builder.and_(
                builder.icmp_unsigned("!=", ended, INT64(0)), builder.icmp_signed(">", since, INT64(sharing.LONG))
            )
            builder.store(builder.zext(is_late, INT64), place(sharing.LATE))
            self.call_conv._return_errcode_raw(builder, RETCODE_OK)
        return builder.basic_block

    def _call(self, builder: Any, args: Any) -> None:
        builder.call(self.function, args)


@register_pass(mutates_CFG=True, analysis_only=False)
class _SharedLowering(BaseNativeLowering):  # type: ignore[misc]
    _name = "shared_lowering"

    @property
    def lowering_class(self) -> Any:
        return _SharedLower


class SharedCompiler(KernelCompiler):
    """Compiles kernels that `_SharedLower` writes."""

    def define_pipelines(self) -> Any:
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [
                (_SharedLowering if step is NativeLowering else step, text) for step, text in pipeline.passes
            ]
        return pipelines


@inline
def ranges_for(threads, chunks):
    """Into how many ranges chunks are divided: one for each thread."""
    return max(min(threads, MOST_RANGES, chunks), 1)


@inline
def claim(counters, number, ranges, chunks):
    """The next chunk for the thread of this number: of its own range, then of what is left of others; -1 if none is.

    A thread so begins with the same chunks in each call, and has in its core's caches what it needed for them before.
    """
    for turn in range(ranges):
        part = (number + turn) % ranges
        begin, end = part * chunks // ranges, (part + 1) * chunks // ranges
        chunk = begin + atomic_add(counters, CLAIMED + part * LINE, 1)
        if chunk < end:
            return chunk
    return np.int64(-1)


@inline
def ask_team(counters):
    """Note when the team is asked; the caller does so before `on_team`."""
    poke(counters, STARTED, clock())


@inline
def leave_team(counters):
    """Note when the work was done; each thread calls it last."""
    if peek(counters, FINISHED) == 0:
        atomic_add(counters, FINISHED, clock())


@inline
def has_waited(counters):
    """Whether the team took long to come together after the work was done, as it does where cores are busy.

    After `ask_team`, that is also longer than the work took: else the team has gained more than it has lost. If two
    threads noted the end at the same time, the sum of both lies in the future, and says no.
    """
    started, ended = peek(counters, STARTED), peek(counters, FINISHED)
    return waits_since(ended) and (started == 0 or clock() - ended > ended - started)
