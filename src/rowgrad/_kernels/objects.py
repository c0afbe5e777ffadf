"""Kernels that read and make Python's own strings, in an array of objects.

They hold the GIL, so that no other thread changes or frees an object meanwhile, and read what CPython 3.11 and later
have in memory. Callers ask `text_columns` first whether this Python is one of these.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rowgrad._kernels.compile import kernel_with_gil
from rowgrad._kernels.hash_batches import BATCH, LONG, NUMBERS, ROOM, SHORT, finish, put
from rowgrad._kernels.raw import array_at, peek, poke, prefetch
from rowgrad._kernels.sharing import chunk_start, enter, leave, lowest, share
from rowgrad._kernels.team import room

WORDS, LETTERS = np.empty(0, np.int64), np.empty(0, np.uint8)
AHEAD = 16  # objects; the headers of later ones are fetched so long before they are needed
# What `gather` gets to know of this Python: the types `bytes` and `str`, where their data begin, where a string has
# its state, and the bit there that says that it is ASCII.
BYTES, TEXT, BYTES_DATA, TEXT_DATA, STATE, ASCII = range(6)
SHORT_END = 5  # the word of an object in which a short string ends, if not before: it may be on the next cache line
SIZE_WORD = 2  # where an object of either type has its length


@kernel_with_gil
def gather(address, count, layout, target, room, offsets):
    """Copy the strings of `count` objects one behind the other to the address `target`, each from `offsets[i]` on.

    Returns how many bytes they have; more than there is room for if nothing was copied; or -1 - i, if object i is
    neither `bytes` nor a `str` of ASCII alone.
    """
    objects = array_at(address, WORDS)
    total = np.int64(0)
    poke(offsets, 0, 0)
    for i in range(count):
        if i + AHEAD < count:
            prefetch(array_at(peek(objects, i + AHEAD), WORDS), 0)
        head = array_at(peek(objects, i), WORDS)
        if peek(objects, i) == 0:  # NumPy takes that for None
            return -1 - i
        kind = peek(head, 1)
        if kind != layout[BYTES] and (kind != layout[TEXT] or peek(head, layout[STATE]) & layout[ASCII] == 0):
            return -1 - i
        total += peek(head, SIZE_WORD)
        poke(offsets, i + 1, total)
    if total + 8 > room:
        return max(total, room)
    for i in range(count):
        if i + AHEAD < count:
            prefetch(array_at(peek(objects, i + AHEAD), WORDS), 4)
        start = peek(objects, i)
        head = array_at(start, WORDS)
        data = array_at(start + (layout[BYTES_DATA] if peek(head, 1) == layout[BYTES] else layout[TEXT_DATA]), WORDS)
        to = array_at(target + peek(offsets, i), WORDS)
        # Whole words: what is behind a string is overwritten by the next, and an aligned word is in one page.
        for word in range((peek(offsets, i + 1) - peek(offsets, i) + 7) // 8):
            poke(to, word, peek(data, word))
    return total


@kernel_with_gil
def are_text(address, count, layout):
    """Whether all objects are `bytes` or `str`, and of no class that was made of these."""
    objects = array_at(address, WORDS)
    for i in range(count):
        if i + AHEAD < count:
            prefetch(array_at(peek(objects, i + AHEAD), WORDS), 0)
        if peek(objects, i) == 0:
            return False
        kind = peek(array_at(peek(objects, i), WORDS), 1)
        if kind != layout[BYTES] and kind != layout[TEXT]:
            return False
    return True


@kernel_with_gil
def fingerprints(workers, chunks, address, count, layout, by, output, bad):
    """The fingerprint of each of `count` objects, or the remainder (see `hashes.remainder`).

    Returns -1, or the first object that is neither `bytes` nor a `str` of ASCII alone; `bad` has room for one a chunk.
    The threads of another library may share this, for the caller holds the GIL until all are done.
    """
    seen = enter(workers)
    batch = array_at(room(ROOM), NUMBERS)
    for chunk in share(workers, 0, chunks):
        wrong, start, stop = np.int64(-1), chunk_start(chunk, chunks, count), chunk_start(chunk + 1, chunks, count)
        objects = array_at(address, WORDS)
        while (start < stop) & (wrong < 0):
            strings, least = min(BATCH, stop - start), np.int64(LONG)
            for k in range(strings):
                if start + k + BATCH < stop:
                    ahead = array_at(peek(objects, start + k + BATCH), WORDS)
                    prefetch(ahead, 0)
                    prefetch(ahead, SHORT_END)
                here = peek(objects, start + k)
                if here == 0:
                    wrong = start + k
                    break
                head = array_at(here, WORDS)
                kind, begin = peek(head, 1), layout[BYTES_DATA]
                if kind != layout[BYTES]:
                    begin = layout[TEXT_DATA]
                    if kind != layout[TEXT] or peek(head, layout[STATE]) & layout[ASCII] == 0:
                        wrong = start + k
                        break
                size = peek(head, SIZE_WORD)
                least = min(least, put(batch, k, array_at(here + begin, LETTERS), 0, size, size <= SHORT))
            if wrong < 0:
                finish(batch, strings, least, by, output, start)
            start += strings
        bad[chunk] = wrong
    found = lowest(bad, chunks)
    leave(workers, seen)
    return found


# The functions of Python's C interface that `make_bytes` gets the addresses of.
NEW_BYTES, DROP, CLEAR_ERROR = range(3)


def _function(result: Any, *arguments: Any) -> Any:
    @intrinsic
    def call(typingctx: Any, address: Any, *given: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(context.get_value_type(result), [context.get_value_type(one) for one in arguments])
            values = [builder.extract_value(args[1], at) for at in range(len(arguments))]
            found = builder.call(builder.inttoptr(args[0], kind.as_pointer()), values)
            return context.get_dummy_value() if result is types.void else found

        return result(types.int64, types.StarArgTuple(arguments)), codegen

    return call


_new_bytes = _function(types.int64, types.int64, types.int64)
_drop = _function(types.void, types.int64)
_clear_error = _function(types.void)


@kernel_with_gil
def make_bytes(functions, layout, address, step, count, heads, head_ends, data, width, begins):
    """Put `count` new objects, each `bytes`, into an array of objects, `step` places apart; tells how many were made.

    Object i has the `width` bytes of each of the items from begins[i] to begins[i + 1], and before them the head for
    that number of items, which ends where `head_ends` says; there are none if that is empty.
    """
    objects = array_at(address, WORDS)
    for i in range(count):
        first, items = peek(begins, i), peek(begins, i + 1) - peek(begins, i)
        at, end = np.int64(0), np.int64(0)
        if head_ends.size > 0:
            at, end = peek(head_ends, items), peek(head_ends, items + 1)
        made = _new_bytes(functions[NEW_BYTES], np.int64(0), end - at + items * width)
        if made == 0:
            _clear_error(functions[CLEAR_ERROR])
            return np.int64(i)
        to = array_at(made + layout[BYTES_DATA], LETTERS)
        for byte in range(end - at):
            poke(to, byte, peek(heads, at + byte))
        for byte in range(items * width):
            poke(to, end - at + byte, peek(data, first * width + byte))
        before = peek(objects, i * step)
        poke(objects, i * step, made)
        if before != 0:
            _drop(functions[DROP], before)
    return np.int64(count)
