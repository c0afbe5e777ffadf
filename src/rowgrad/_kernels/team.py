"""How threads share one kernel call.

All threads of a team run the same kernel on the same arrays. Work comes in phases, each phase in chunks; a
thread claims the next chunk by adding to a shared counter, and passes on to the next phase when all chunks are
done. One thread can do everything, so a helper that comes late, or never, costs time and nothing else. A helper
may come so late that the call is over: outside a claimed chunk a kernel therefore reads nothing but the team
itself and its plain arguments, and writes nothing.

Which thread takes which chunk is left to chance; what a chunk computes is not. So results never depend on it.

Waking a thread takes longer than a small kernel. Between the kernels of an operator, helpers therefore stay awake
for a moment and listen to the bell that a kernel rings when it begins. They do both without the GIL, and so never
stand in the way of the thread that called.
"""

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, kernel

PHASES = 40
ARRIVALS = PHASES
# Claimed and finished counts of a phase lie on cache lines of their own.
LINE = 8
STRIDE = 2 * LINE

Counters = np.ndarray[Any, np.dtype[np.int64]]
Team = tuple[Counters, Counters]


def new_team(bell: Counters) -> Team:
    """The shared counters of one kernel call, and the bell that it rings."""
    return np.zeros((PHASES + 1) * STRIDE, np.int64), bell


def new_bell() -> Counters:
    """How often it has rung, and, on a line of its own, how long helpers listen."""
    return np.zeros(2 * LINE, np.int64)


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
def give_way(typingctx: Any) -> Any:
    """Let another thread run on this core."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if sys.platform != "win32":
            function = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, function, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), codegen


@inline
def enter(team):
    """Join the team. The first to come, the caller, rings the bell; others get to know how often it has rung."""
    counters, bell = team
    if atomic_add(counters, ARRIVALS * STRIDE, 1) == 0:
        atomic_add(bell, 0, 1)
        return np.int64(-1)
    return atomic_load(bell, 0)


@inline
def leave(team, heard):
    """Leave the team; helpers wait a moment for the bell of the next kernel, in which the GIL will be free."""
    if heard >= 0:
        _listen(team[1], heard)


@inline
def _listen(bell, heard):
    patience = atomic_load(bell, LINE)
    while atomic_load(bell, 0) == heard and patience > 0:
        patience -= 1


@kernel
def listen(bell, heard):
    """Wait a moment for the bell to ring once more than it was `heard`; tells how often it has."""
    _listen(bell, heard)
    return atomic_load(bell, 0)


@inline
def claim(team, phase):
    """The number of the next chunk of `phase`; it may be past the last one."""
    return atomic_add(team[0], phase * STRIDE, 1)


@inline
def finish(team, phase):
    """Say that one claimed chunk of `phase` is done."""
    atomic_add(team[0], phase * STRIDE + LINE, 1)


@inline
def wait(team, phase, chunks):
    """Return when all chunks of `phase` are done, by whomever."""
    spins = 0
    while atomic_load(team[0], phase * STRIDE + LINE) < chunks:
        spins += 1
        if spins > 2000:
            give_way()


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


@inline
def chunk_start(chunk, chunks, size):
    """Where `chunk` of `chunks` equal parts of `size` entries begins."""
    return chunk * size // chunks
