"""Kernels that PyTorch's own threads run, and kernels on plain addresses.

Between PyTorch's operators its OpenMP threads stay awake for a while, on the cores that helpers of our own would need.
Where PyTorch is loaded, that team therefore runs kernels (docs/decisions/threads.md has the measurements): `on_team`
where a kernel asks for it, `run_shared` around every kernel that shares its work by `Workers`.

A layer holds tensors and makes many small calls, so its kernels take addresses as integers: describing a tensor to
NumPy takes longer than a small kernel. `at` makes an array of an address, within the kernel.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline
from rowgrad._kernels.raw import peek
from rowgrad._kernels.sharing import LINE, START, STRIDE, THREADS, atomic_add, clock, waits_since

INT64, INT32, BYTES = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
MOST_PHASES = 4
COUNTERS = (MOST_PHASES + 1) * STRIDE  # those of phases, and room for what kernels count themselves
FINISHED = COUNTERS - LINE  # the clock when the first thread had nothing left to do


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
        _call(context, builder, body, signature, args, values[3], values[0], values[1])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, body, args), codegen


def _call(
    context: Any, builder: Any, body: Any, signature: Any, args: Any, given: Any, start: Any, threads: Any
) -> Any:
    """Code that calls `body` with the tuple `given`: here if `start` is 0, else in each thread of the team.

    Gives what the call gave that ended last, which is what each gives.
    """
    compiled = body.dispatcher.get_compile_result(signature)
    context.add_linking_libs([compiled.library])
    packed = ir.LiteralStructType([context.get_value_type(args), context.get_value_type(signature.return_type)])
    task = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [BYTES]), builder.module.get_unique_name("task"))
    task.linkage = "internal"
    inner = ir.IRBuilder(task.append_basic_block())
    data = inner.bitcast(task.args[0], packed.as_pointer())
    loaded = inner.load(inner.gep(data, [INT32(0), INT32(0)]))
    _, result = context.call_internal_no_propagate(
        inner, compiled.fndesc, signature, [inner.extract_value(loaded, i) for i in range(len(args))]
    )
    inner.store(result, inner.gep(data, [INT32(0), INT32(1)]))
    inner.ret_void()
    shared = cgutils.alloca_once(builder, packed)
    builder.store(given, builder.gep(shared, [INT32(0), INT32(0)]))
    address = builder.bitcast(shared, BYTES)
    with builder.if_else(builder.icmp_unsigned("==", start, INT64(0))) as (here, there):
        with here:
            builder.call(task, [address])
        with there:
            kind = ir.FunctionType(ir.VoidType(), [task.type, BYTES, INT32, INT32]).as_pointer()
            builder.call(builder.inttoptr(start, kind), [task, address, builder.trunc(threads, INT32), INT32(0)])
    return builder.load(builder.gep(shared, [INT32(0), INT32(1)]))


@intrinsic
def run_shared(typingctx: Any, workers: Any, body: Any, args: Any) -> Any:
    """``body(*args)``, by this thread, or by the team that the counters of `workers` name."""
    signature = body.get_call_type(typingctx, tuple(args), {})

    def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
        counters = context.make_array(workers[0])(context, builder, builder.extract_value(values[0], 0)).data
        start, threads = (builder.load(builder.gep(counters, [INT64(place)])) for place in (START, THREADS))
        return _call(context, builder, body, signature, args, values[2], start, threads)

    return signature.return_type(workers, body, args), codegen


@inline
def leave_team(counters):
    """Note when the work was done; each thread calls it last."""
    if peek(counters, FINISHED) == 0:
        atomic_add(counters, FINISHED, clock())


@inline
def has_waited(counters):
    """Whether the team took long to come together after the work was done, as it does where cores are busy.

    If two threads noted the end at the same time, the sum of both lies in the future, and says no.
    """
    return waits_since(peek(counters, FINISHED))
