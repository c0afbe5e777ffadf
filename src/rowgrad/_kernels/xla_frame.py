"""What kernels that XLA calls share: reading a call frame, memory of their own, and help from XLA's threads.

Such a kernel gets the address of the frame, how many threads it may use, a number that its operator sets, and types:
arguments of the type `Told`, which have no value. It returns `DONE`, or `LEFT` for Python to do the call again, from
the start: because an id is wrong, and Python names it, or because the kernel is not made for such a call.

A frame is read by position, in words of 8 bytes, as XLA's `c_api.h` lays it out. Memory that XLA owns is not changed by
other threads during a call, but the kernels that are called here bound each id all the same.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from rowgrad._kernels.compile import inline, inline_late
from rowgrad._kernels.kinds import CHUNKS_PER_THREAD, GRAIN
from rowgrad._kernels.raw import peek
from rowgrad._kernels.sharing import PHASES, STRIDE
from rowgrad._kernels.team import at
from rowgrad._kernels.xla_entry import usual_environment

DONE, LEFT = 0, 1
WORDS = np.empty(0, np.int64)
LINE = 8
COUNTERS = (PHASES + 1) * STRIDE  # words that one kernel shares its work by
MOST_THREADS = 16

INT64, BYTES = ir.IntType(64), ir.IntType(8).as_pointer()
CONTEXT = 3
ARGUMENTS, RESULTS, ATTRIBUTES = 9, 14, 20  # where their addresses stand
BUFFER_DATA, BUFFER_RANK, BUFFER_SIZES = 3, 4, 5
API, ERROR_DESTROY, SCHEDULE, NUM_THREADS = 2, 8, 17, 18


class Told(types.Type):  # type: ignore[misc]
    """Tells a kernel a type: an argument without a value."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        super().__init__(name=f"Told({kind})")


@register_model(Told)
class ToldModel(models.OpaqueModel):  # type: ignore[misc]
    pass


@intrinsic
def empty(typingctx: Any, told: Any) -> Any:
    """An array of the told type without elements."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(told.kind), None)

    return told.kind(told), codegen


@intrinsic
def sized(typingctx: Any, like: Any, address: Any, size: Any) -> Any:
    """`size` elements at `address`, as an array of the type of `like`."""
    array = types.Array(like.dtype, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.make_array(array)(context, builder)
        step = context.get_constant(types.intp, array.dtype.bitwidth // 8)
        context.populate_array(
            made,
            data=builder.inttoptr(args[1], context.get_data_type(array.dtype).as_pointer()),
            shape=[args[2]],
            strides=[step],
            itemsize=step,
            meminfo=None,
        )
        return made._getvalue()

    return array(like, types.int64, types.int64), codegen


@inline_late
def word(address, position):
    """The word of 8 bytes at a position."""
    return peek(at(WORDS, address), position)


@inline_late
def argument(frame, number):
    return word(word(frame, ARGUMENTS), number)


@inline_late
def result(frame, number):
    return word(word(frame, RESULTS), number)


@inline_late
def data_of(buffer):
    return word(buffer, BUFFER_DATA)


@inline_late
def size_of(buffer, axis):
    return word(word(buffer, BUFFER_SIZES), axis)


@inline_late
def product_of(buffer, first):
    """The product of the sizes from axis `first` on."""
    total = np.int64(1)
    for axis in range(first, word(buffer, BUFFER_RANK)):
        total *= size_of(buffer, axis)
    return total


@inline_late
def count_of(frame, number):
    """The count that stands at this place among the inputs; where it is not told, the rows of the first result."""
    told = word(word(word(word(frame, ATTRIBUTES), 1), 2), number)
    return told if told >= 0 else size_of(result(frame, 0), 0)


@intrinsic
def reserve(typingctx: Any, size: Any) -> Any:
    """The address of `size` bytes and a few more; 0 if there are none."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(BYTES, [INT64]), "malloc")
        return builder.ptrtoint(builder.call(function, [builder.add(args[0], INT64(64))]), INT64)

    return types.int64(types.int64), codegen


@intrinsic
def release(typingctx: Any, address: Any) -> Any:
    """Give back what was reserved."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _free(builder, builder.inttoptr(args[0], BYTES))
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def _free(builder: Any, address: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [BYTES])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, "free"), [address])


@inline_late
def threads_for(work, threads):
    """How many threads share a call that moves `work` bytes; one more than that never pays."""
    return max(min(min(threads, MOST_THREADS), work // GRAIN), 1)


@inline_late
def chunks_for(threads):
    """How many parts the work of so many threads comes in."""
    return threads * CHUNKS_PER_THREAD if threads > 1 else np.int64(1)


@intrinsic
def together(typingctx: Any, frame: Any, threads: Any, shared: Any, body: Any, args: Any) -> Any:
    """What ``body(shared, *args)`` returns, which XLA's threads may help with.

    `shared` is the number of words, all 0 at first, that the body gets the address of, and that lives as long as any
    thread uses it. A helper may come late, when the call is over: what else the body touches, it touches in `share`
    loops only (see `sharing`). This thread needs no helper, so one that never comes does no harm.
    """
    call_args = (types.int64, *args)
    signature = body.get_call_type(typingctx, call_args, {})

    def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
        frame, threads, words, _, packed_args = values
        compiled = body.dispatcher.get_compile_result(signature)
        context.add_linking_libs([compiled.library])
        packer = context.get_arg_packer(args)
        given = packer.as_arguments(builder, [builder.extract_value(packed_args, i) for i in range(len(args))])
        packed = ir.LiteralStructType([value.type for value in given])
        head = INT64(8 * LINE)

        def load(inner: Any, record: Any) -> Any:
            place = inner.bitcast(inner.gep(record, [head]), packed.as_pointer())
            return [inner.load(inner.gep(place, [ir.IntType(32)(0), ir.IntType(32)(i)])) for i in range(len(given))]

        room = INT64(context.get_abi_sizeof(packed) // 64 * 64 + 64)

        # Both this thread and helpers call it: as a function of its own it is compiled once.
        run = ir.Function(builder.module, ir.FunctionType(INT64, [BYTES]), builder.module.get_unique_name("body"))
        run.linkage = "internal"
        run.attributes.add("noinline")
        inner = ir.IRBuilder(run.append_basic_block())
        first = inner.ptrtoint(inner.gep(run.args[0], [inner.add(head, room)]), INT64)
        arguments = [first, *packer.from_arguments(inner, load(inner, run.args[0]))]
        inner.ret(context.call_internal_no_propagate(inner, compiled.fndesc, signature, arguments)[1])

        def leave(inner: Any, record: Any) -> None:
            users = inner.bitcast(record, INT64.as_pointer())
            before = inner.atomic_rmw("sub", users, INT64(1), "seq_cst")
            with inner.if_then(inner.icmp_signed("==", before, INT64(1))):
                _free(inner, record)

        helper = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [BYTES]),
                             builder.module.get_unique_name("helper"))  # fmt: skip
        helper.linkage = "internal"
        inner = ir.IRBuilder(helper.append_basic_block())
        with usual_environment(inner):
            inner.call(run, [helper.args[0]])
            leave(inner, helper.args[0])
        inner.ret_void()

        kind = ir.FunctionType(BYTES, [INT64, INT64])
        calloc = cgutils.get_or_insert_function(builder.module, kind, "calloc")
        size = builder.add(builder.mul(words, INT64(8)), builder.add(head, room))
        record = builder.call(calloc, [size, INT64(1)])
        outcome = cgutils.alloca_once_value(builder, INT64(LEFT))
        with builder.if_then(builder.icmp_unsigned("!=", builder.ptrtoint(record, INT64), INT64(0))):
            place = builder.bitcast(builder.gep(record, [head]), packed.as_pointer())
            for i, value in enumerate(given):
                builder.store(value, builder.gep(place, [ir.IntType(32)(0), ir.IntType(32)(i)]))
            users = builder.bitcast(record, INT64.as_pointer())
            builder.store(INT64(1), users)
            with cgutils.for_range(builder, builder.sub(threads, INT64(1))):
                builder.atomic_rmw("add", users, INT64(1), "seq_cst")
                _schedule(builder, frame, helper, record)
            builder.store(builder.call(run, [record]), outcome)
            leave(builder, record)
        return builder.load(outcome)

    return types.int64(types.int64, types.int64, types.int64, body, args), codegen


def _schedule(builder: Any, frame: Any, helper: Any, record: Any) -> None:
    """Ask XLA for a thread that calls the helper; if there is none, it has one user less."""

    def load(address: Any, position: int) -> Any:
        return builder.load(builder.inttoptr(builder.add(address, INT64(8 * position)), INT64.as_pointer()))

    def fill(*values: Any) -> Any:
        room = cgutils.alloca_once(builder, ir.ArrayType(INT64, len(values)))
        for i, value in enumerate(values):
            builder.store(value, builder.gep(room, [INT64(0), INT64(i)]))
        return builder.ptrtoint(room, INT64)

    def call(function: int, arguments: Any) -> Any:
        kind = ir.FunctionType(INT64, [INT64]).as_pointer()
        return builder.call(builder.inttoptr(load(load(frame, API), function), kind), [arguments])

    task, data = builder.ptrtoint(helper, INT64), builder.ptrtoint(record, INT64)
    error = call(SCHEDULE, fill(INT64(40), INT64(0), load(frame, CONTEXT), task, data))
    with builder.if_then(builder.icmp_unsigned("!=", error, INT64(0)), likely=False):
        call(ERROR_DESTROY, fill(INT64(24), INT64(0), error))
        builder.atomic_rmw("sub", builder.bitcast(record, INT64.as_pointer()), INT64(1), "seq_cst")


@inline
def workers_at(shared, number):
    """The counters that the kernel with this number in a body shares its work by; nobody watches for its start."""
    counters = sized(WORDS, shared + 8 * number * (COUNTERS + STRIDE), COUNTERS)
    return counters, sized(WORDS, shared + 8 * (number * (COUNTERS + STRIDE) + COUNTERS), STRIDE)


@inline_late
def kept_at(shared, kernels):
    """The address of the words that a body keeps behind the counters of so many kernels."""
    return shared + 8 * kernels * (COUNTERS + STRIDE)


def shared_words(kernels: int, further: int) -> int:
    """How many words a body shares that calls so many kernels, one after the other, and keeps further words."""
    return kernels * (COUNTERS + STRIDE) + further
