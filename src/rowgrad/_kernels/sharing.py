"""How threads share one kernel call.

All threads that work on a call run the same kernel on the same arrays. Work comes in phases, each phase in chunks:
`for chunk in share(workers, phase, chunks)` claims chunks by adding to a shared counter until none is left, then waits
until all are finished, by whichever thread. One thread can do everything, so a helper that comes late, or never,
costs time and nothing else.

A helper may come so late that the call is over. It then finds no chunk to claim and passes all phases. Outside the
body of a `share` loop a kernel therefore reads nothing but `workers`, its plain arguments and arrays that the call owns
(`bad`, `info`, …), which a late helper keeps alive; it writes nothing, and touches none of the caller's arrays.

Which thread takes which chunk is left to chance; what a chunk computes is not. So results never depend on it.

Waking a thread takes longer than a small kernel. Between the kernels of an operator, helpers therefore stay awake for
a moment and watch the wake-up counter that a kernel raises when it begins. They do both without the GIL, and so never
stand in the way of the thread that called.
"""

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import RefType, iternext_impl, lower_builtin
from numba.extending import intrinsic, models, register_model

from rowgrad._kernels.compile import inline, kernel

PHASES = 40
# Claimed and finished counts of a phase lie on cache lines of their own.
LINE = 8
STRIDE = 2 * LINE
ARRIVALS = PHASES * STRIDE  # how many threads have begun
# If threads of another library run a call: what starts them, how many they are, whether they have been started, the
# clock when the first had nothing left to do, and whether they let the caller wait after that.
START, THREADS, RUNNING, FINISHED, LATE = range(ARRIVALS + LINE, ARRIVALS + LINE + 5)
NEW_THREADS, MOST_NEW_THREADS = 1, 16  # the former stands for threads made for the call, instead of what starts a team
LONG = 1_000_000  # cycles; such a team may take less to come together after the work is done: half a millisecond
SPINS = 2000  # looks at a counter before another thread may have the core

INT64 = ir.IntType(64)
BYTE = ir.IntType(8)

Counters = np.ndarray[Any, np.dtype[np.int64]]
Workers = tuple[Counters, Counters]
NO_COUNTS: Counters = np.zeros((PHASES + 1) * STRIDE, np.int64)


def new_workers(wakeups: Counters) -> Workers:
    """The shared counters of one kernel call, and the wake-up counter that it raises."""
    return NO_COUNTS.copy(), wakeups  # faster than to ask NumPy for zeros


def has_begun(workers: Workers) -> bool:
    """Whether the caller has entered the machine code of its kernel, which begins with `enter`."""
    return bool(workers[0][ARRIVALS])


def new_wakeups() -> Counters:
    """A wake-up counter, and, on a line of its own, how often helpers look at it before they sleep."""
    return np.zeros(2 * LINE, np.int64)


class Shares(types.SimpleIteratorType):  # type: ignore[misc]
    """The chunks of a phase that this thread gets."""

    def __init__(self) -> None:
        super().__init__("Shares", types.int64)


SHARES = Shares()


@register_model(Shares)
class SharesModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: Shares) -> None:
        members = [
            ("claimed", types.CPointer(types.int64)),
            ("chunks", types.int64),
            ("has_chunk", types.EphemeralPointer(types.boolean)),
        ]
        super().__init__(dmm, fe_type, members)


@intrinsic
def share(typingctx: Any, workers: Any, phase: Any, chunks: Any) -> Any:
    """The chunks of `phase` that this thread gets; the loop over them ends when all are finished, by any thread."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        counters = builder.extract_value(args[0], 0)
        first = context.make_array(workers[0])(context, builder, counters).data
        number = context.cast(builder, args[1], phase, types.int64)
        made = cgutils.create_struct_proxy(SHARES)(context, builder)
        made.claimed = builder.gep(first, [builder.mul(number, INT64(STRIDE))])
        made.chunks = context.cast(builder, args[2], chunks, types.int64)
        made.has_chunk = cgutils.alloca_once(builder, BYTE)
        builder.store(BYTE(0), made.has_chunk)
        return made._getvalue()

    return SHARES(workers, phase, chunks), codegen


@lower_builtin("getiter", Shares)
def _shares(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return args[0]


@lower_builtin("iternext", Shares)
@iternext_impl(RefType.UNTRACKED)
def _next_share(context: Any, builder: Any, signature: Any, args: Any, result: Any) -> None:
    """Say that the chunk before is finished, and claim the next; if there is none, wait for those of others."""
    shares = cgutils.create_struct_proxy(SHARES)(context, builder, value=args[0])
    finished = builder.gep(shares.claimed, [INT64(LINE)])
    with builder.if_then(builder.icmp_unsigned("!=", builder.load(shares.has_chunk), BYTE(0))):
        builder.atomic_rmw("add", finished, INT64(1), "seq_cst")
    builder.store(BYTE(1), shares.has_chunk)
    chunk = builder.atomic_rmw("add", shares.claimed, INT64(1), "seq_cst")
    is_one = builder.icmp_signed("<", chunk, shares.chunks)
    result.set_valid(is_one)
    with builder.if_else(is_one) as (one, none):
        with one:
            result.yield_(chunk)
        with none:
            _wait(builder, finished, shares.chunks)


def _wait(builder: Any, counter: Any, target: Any) -> None:
    """Look at a counter until it has reached its target; after a while, let other threads run in between."""
    spins = cgutils.alloca_once(builder, INT64)
    builder.store(INT64(0), spins)
    look, again = builder.append_basic_block("look"), builder.append_basic_block("again")
    done = builder.append_basic_block("done")
    builder.branch(look)
    builder.position_at_end(look)
    reached = builder.icmp_signed(">=", builder.load_atomic(counter, "acquire", 8), target)
    builder.cbranch(reached, done, again)
    builder.position_at_end(again)
    count = builder.add(builder.load(spins), INT64(1))
    builder.store(count, spins)
    if sys.platform != "win32":
        with builder.if_then(builder.icmp_signed(">", count, INT64(SPINS)), likely=False):
            function = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, function, "sched_yield"), [])
    builder.branch(look)
    builder.position_at_end(done)


@intrinsic
def atomic_add(typingctx: Any, array: Any, position: Any, value: Any) -> Any:
    """Add to an element that other threads add to as well; returns what it was before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.gep(context.make_array(array)(context, builder, args[0]).data, [args[1]])
        amount = context.cast(builder, args[2], value, array.dtype)
        return builder.atomic_rmw("add", pointer, amount, "seq_cst")

    return array.dtype(array, types.intp, value), codegen


@intrinsic
def atomic_load(typingctx: Any, array: Any, position: Any) -> Any:
    """Read an element that another thread may be writing."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.gep(context.make_array(array)(context, builder, args[0]).data, [args[1]])
        return builder.load_atomic(pointer, "acquire", array.dtype.bitwidth // 8)

    return array.dtype(array, types.intp), codegen


@intrinsic
def clock(typingctx: Any) -> Any:
    """The cycle counter."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return read_clock(builder)

    return types.int64(), codegen


def read_clock(builder: Any) -> Any:
    """Code that reads it."""
    return builder.call(builder.module.declare_intrinsic("llvm.readcyclecounter", (), ir.FunctionType(INT64, [])), [])


@inline
def enter(workers):
    """Begin a kernel. The first to come, the caller, raises the wake-up counter; helpers get to know how high it is."""
    counters, wakeups = workers
    if atomic_add(counters, ARRIVALS, 1) == 0:
        atomic_add(wakeups, 0, 1)
        return np.int64(-1)
    return atomic_load(wakeups, 0)


@inline
def leave(workers, seen):
    """End a kernel; helpers watch a moment for the next one, in which the GIL will be free."""
    counters = workers[0]
    if counters[START] != 0:
        if atomic_load(counters, FINISHED) == 0:
            atomic_add(counters, FINISHED, clock())
    elif seen >= 0:
        _watch(workers[1], seen)


@inline
def waits_since(finished):
    """Whether work was finished long ago."""
    return finished != 0 and clock() - finished > LONG


@inline
def _watch(wakeups, seen):
    patience = atomic_load(wakeups, LINE)
    while atomic_load(wakeups, 0) == seen and patience > 0:
        patience -= 1


@kernel
def watch(wakeups, seen):
    """Wait a moment for the counter to rise above what was `seen`; tells how high it is."""
    _watch(wakeups, seen)
    return atomic_load(wakeups, 0)


@inline
def lowest(positions, chunks):
    """The first position that a chunk has found, or -1 if none has."""
    for chunk in range(chunks):
        if positions[chunk] >= 0:
            return positions[chunk]
    return np.int64(-1)


@inline
def add_up(counts, chunks):
    """Turn the count of each chunk into the sum of those before it; returns the sum of all."""
    total = np.int64(0)
    for chunk in range(chunks):
        here = counts[chunk]
        counts[chunk] = total
        total += here
    return total


@intrinsic
def chunk_start(typingctx: Any, chunk: Any, chunks: Any, size: Any) -> Any:
    """Where `chunk` of `chunks` equal parts of `size` entries begins."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sdiv(builder.mul(args[0], args[2]), args[1])

    return types.int64(types.int64, types.int64, types.int64), codegen
