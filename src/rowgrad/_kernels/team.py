"""Kernels on plain addresses, run by PyTorch's own threads.

A layer holds tensors and makes many small calls, so its kernels take addresses as integers: describing a tensor to
NumPy takes longer than a small kernel. `at` makes an array of an address, within the kernel.

Between PyTorch's operators its OpenMP threads stay awake for a while, on the cores that helpers of our own would need.
`on_team` therefore lets that team run a kernel (docs/decisions/threads.md has the measurements).
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline
from rowgrad._kernels.raw import peek
from rowgrad._kernels.sharing import LINE, STRIDE, atomic_add

INT64, INT32, BYTES = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
MOST_PHASES = 4
COUNTERS = (MOST_PHASES + 1) * STRIDE  # those of phases, and room for what kernels count themselves
FINISHED = COUNTERS - LINE  # the clock when the first thread had nothing left to do
LATE = -1  # what kernels return if all is well, but PyTorch's team let the caller wait
PATIENCE = 1_000_000  # cycles that the team may take to come together after the work is done: less than a millisecond


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
    """What lies at `address`, as an array of the type of `like`; nothing that is used with it asks for its size."""
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
    """Let `threads` threads call ``body(*args)``, by the function GOMP_parallel at the address `run_parallel`.

    If that is 0, this thread alone does. It returns when all calls have ended.
    """
    signature = body.get_call_type(typingctx, tuple(args), {})

    def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
        compiled = body.dispatcher.get_compile_result(signature)
        context.add_linking_libs([compiled.library])
        packed = context.get_value_type(args)
        task = ir.Function(
            builder.module, ir.FunctionType(ir.VoidType(), [BYTES]), builder.module.get_unique_name("task")
        )
        task.linkage = "internal"
        inner = ir.IRBuilder(task.append_basic_block())
        given = inner.load(inner.bitcast(task.args[0], packed.as_pointer()))
        context.call_internal_no_propagate(
            inner, compiled.fndesc, signature, [inner.extract_value(given, i) for i in range(len(args))]
        )
        inner.ret_void()
        data = builder.bitcast(cgutils.alloca_once_value(builder, values[3]), BYTES)
        alone = builder.icmp_unsigned("==", values[0], INT64(0))
        with builder.if_else(alone) as (here, there):
            with here:
                builder.call(task, [data])
            with there:
                kind = ir.FunctionType(ir.VoidType(), [task.type, BYTES, INT32, INT32])
                builder.call(
                    builder.inttoptr(values[0], kind.as_pointer()),
                    [task, data, builder.trunc(values[1], INT32), INT32(0)],
                )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, body, args), codegen


@intrinsic
def _clock(typingctx: Any) -> Any:
    """The cycle counter."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.call(
            builder.module.declare_intrinsic("llvm.readcyclecounter", (), ir.FunctionType(INT64, [])), []
        )

    return types.int64(), codegen


@inline
def leave_team(counters):
    """Note when the work was done; each thread calls it last."""
    if peek(counters, FINISHED) == 0:
        atomic_add(counters, FINISHED, _clock())


@inline
def has_waited(counters):
    """Whether the team took long to come together after the work was done, as it does where cores are busy.

    If two threads noted the end at the same time, the sum of both lies in the future, and says no.
    """
    return _clock() - peek(counters, FINISHED) > PATIENCE
