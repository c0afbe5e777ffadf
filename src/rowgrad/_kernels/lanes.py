"""Short vectors for kernels, and the way between how a value is stored and how it is summed.

`Lanes` is a Numba type that LLVM keeps in vector registers: a kernel that accumulates in `Lanes` touches memory
only to gather, whatever the automatic vectoriser thinks of the loop. Each lane is computed by itself, rounding
after every operation, so the width of the vectors never shows in the results.

Half travels through kernels as int16 and bfloat16 as uint16; both are summed in float32. The pair of stored
type and summing type therefore tells all apart: (int16, float32) is half, (uint16, float32) is bfloat16,
(int16, int16) is an integer.
"""

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model

from rowgrad._kernels.compile import inline

INT32 = ir.IntType(32)
LINE = 64  # bytes in a cache line


class Lanes(types.Type):  # type: ignore[misc]
    """`count` values of `dtype` side by side."""

    def __init__(self, dtype: Any, count: int) -> None:
        self.dtype = dtype
        self.count = count
        super().__init__(name=f"Lanes({dtype}, {count})")


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: Lanes) -> None:
        element = dmm.lookup(fe_type.dtype).get_value_type()
        vectors = [ir.VectorType(element, count) for _, count in _parts(fe_type)]
        super().__init__(dmm, fe_type, vectors[0] if len(vectors) == 1 else ir.LiteralStructType(vectors))


def _parts(lanes: Lanes) -> list[tuple[int, int]]:
    """Where the vectors begin that lanes are kept in, and how long they are: 40 lanes are a vector of 32 and one of 8.

    LLVM would keep a vector of 40 as such only within a block, and take it apart element by element between blocks.
    """
    found, start = [], 0
    for bit in reversed(range(lanes.count.bit_length())):
        if lanes.count >> bit & 1:
            found.append((start, 1 << bit))
            start += 1 << bit
    return found


def _each(builder: Any, lanes: Lanes, code: Callable[..., Any], *values: Any) -> Any:
    """Code for each of the vectors of `lanes`, given where it begins, how long it is, and its part of the values."""
    parts = _parts(lanes)
    if len(parts) == 1:
        return code(*parts[0], *values)
    made = None
    for number, part in enumerate(parts):
        vector = code(*part, *(builder.extract_value(value, number) for value in values))
        if vector is not None:
            made = ir.Constant(_struct(vector, lanes), ir.Undefined) if made is None else made
            made = builder.insert_value(made, vector, number)
    return made


def _struct(vector: Any, lanes: Lanes) -> Any:
    return ir.LiteralStructType([ir.VectorType(vector.type.element, count) for _, count in _parts(lanes)])


WIDTHS = (256, 128, 64, 32, 16)  # bytes in a vector; wider ones would not stay in registers
# Bytes of a row that can be summed in one pass (see `lanes_for_rows`): half of the vector registers hold its sums.
WIDEST = 512 if get_host_cpu_features().get("avx512f") else 256
STEP = 32  # bytes; rows of a multiple of it have vectors of their own width
PASS = 96  # what a further pass over a segment costs, in bytes of a row
UNEVEN = 16  # dimensions of what stands for a width that is no power of two, beside its steps


@cache
def lanes_for(sums: "np.dtype[Any]", width: int) -> "np.ndarray[Any, Any]":
    """What tells a kernel how wide its vectors are: as wide as fits `width` columns, or single elements.

    It is an array without elements whose number of dimensions says it, so that a kernel is compiled once for each
    vector width that is in use, and holds code for no other.
    """
    counts = [nbytes // sums.itemsize for nbytes in WIDTHS if nbytes <= width * sums.itemsize]
    return np.empty((0,) * max(counts, default=1).bit_length(), sums)


@cache
def lanes_for_rows(sums: "np.dtype[Any]", width: int) -> "np.ndarray[Any, Any]":
    """The same for kernels that sum whole rows: in as few passes, and with as few columns twice, as can be.

    Kernels are compiled for more widths then.
    """
    row = width * sums.itemsize
    wide = [nbytes for nbytes in range(STEP, WIDEST + 1, STEP) if nbytes <= row]
    if not wide:
        return lanes_for(sums, width)
    best = min(wide, key=lambda nbytes: (-(-row // nbytes) * (nbytes + PASS), -nbytes))
    if best in WIDTHS:
        return lanes_for(sums, best // sums.itemsize)
    return np.empty((0,) * (UNEVEN + best // STEP), sums)


def lane_count(lanes_for: Any) -> int:
    """How many lanes a vector has, by what `lanes_for` gave, or by the Numba type of that."""
    if lanes_for.ndim > UNEVEN:
        size = lanes_for.dtype.bitwidth // 8 if isinstance(lanes_for, types.Array) else lanes_for.itemsize
        return int((lanes_for.ndim - UNEVEN) * STEP // size)
    return 1 << int(lanes_for.ndim - 1)


@intrinsic
def zeros(typingctx: Any, lanes_for: Any) -> Any:
    """Zeros in the type and number that `lanes_for` tells."""
    lanes = Lanes(lanes_for.dtype, lane_count(lanes_for))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(lanes), None)

    return lanes(lanes_for), codegen


def _zeros(nbytes: int) -> Any:
    @intrinsic
    def zeros(typingctx: Any, sums: Any) -> Any:
        lanes = Lanes(sums.dtype, max(1, nbytes // (sums.dtype.bitwidth // 8)))

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return ir.Constant(context.get_value_type(lanes), None)

        return lanes(sums), codegen

    return zeros


# Zeros in the type of `sums`, an array or lanes, in widths that are part of how a sum is made (see docs/exactness.md).
zeros64 = _zeros(64)
zeros16 = _zeros(16)
zeros1 = _zeros(1)


@intrinsic
def narrowed(typingctx: Any, lanes: Any) -> Any:
    """Zeros in the type of `lanes`, in vectors of at most 64 bytes."""
    narrow = Lanes(lanes.dtype, min(lanes.count, 64 // (lanes.dtype.bitwidth // 8)))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(narrow), None)

    return narrow(lanes), codegen


@intrinsic
def block_start(typingctx: Any, lanes: Any, column: Any, width: Any) -> Any:
    """Where the block of columns from `column` on begins: there, or earlier, if fewer columns than lanes are left.

    Columns are computed by themselves, so the few that are computed twice get the same result twice.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        last = builder.sub(args[2], ir.IntType(64)(lanes.count))
        return builder.select(builder.icmp_signed("<", args[1], last), args[1], last)

    return types.int64(lanes, types.int64, types.int64), codegen


@intrinsic
def take_last(typingctx: Any, new: Any, old: Any, fresh: Any) -> Any:
    """The last `fresh` lanes of `new`, behind the first ones of `old`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        numbers = ir.Constant(ir.VectorType(INT32, new.count), list(range(new.count)))
        stays = spread(builder, builder.sub(INT32(new.count), builder.trunc(args[2], INT32)), new.count)
        return builder.select(builder.icmp_signed("<", numbers, stays), args[1], args[0])

    return new(new, old, types.int64), codegen


@intrinsic
def count(typingctx: Any, lanes: Any) -> Any:
    """How many values `lanes` holds."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.intp, lanes.count)

    return types.intp(lanes), codegen


@intrinsic
def fill(typingctx: Any, lanes: Any, value: Any) -> Any:
    """`value` in every lane."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scalar = context.cast(builder, args[1], value, lanes.dtype)
        return _each(builder, lanes, lambda start, count: spread(builder, scalar, count))

    return lanes(lanes, value), codegen


@intrinsic
def load(typingctx: Any, lanes: Any, array: Any, start: Any) -> Any:
    """`count(lanes)` values of `array` from `start`, as the type they are summed in."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return read(context, builder, lanes, array, args[1], args[2])

    return lanes(lanes, array, types.intp), codegen


def read(context: Any, builder: Any, lanes: Lanes, array: Any, value: Any, start: Any) -> Any:
    """Code for `load`."""

    def load(offset: int, count: int) -> Any:
        pointer, size = _pointer(context, builder, array, value, start, offset, count)
        return _widen(builder, builder.load(pointer, align=size), array.dtype, Lanes(lanes.dtype, count))

    return _each(builder, lanes, load)


@intrinsic
def fetch(typingctx: Any, lanes: Any, array: Any, start: Any) -> Any:
    """Have the cache lines of `count(lanes)` values of `array` from `start` fetched; the position may be anything.

    They come into the first-level cache and, on AMD's processors, not into the second: rows that are used once do not
    evict there what is used again.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, INT32, INT32, INT32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        size = array.dtype.bitwidth // 8
        first = builder.gep(context.make_array(array)(context, builder, args[1]).data, [args[2]])
        # The last one too: arrays of NumPy do not begin where a cache line does.
        for position in (*range(0, lanes.count, LINE // size), lanes.count - 1):
            pointer = builder.bitcast(builder.gep(first, [INT32(position)]), byte)
            builder.call(function, [pointer, INT32(0), INT32(0), INT32(1)])
        return context.get_dummy_value()

    return types.void(lanes, array, types.intp), codegen


def _store(nontemporal: bool) -> Any:
    @intrinsic
    def store(typingctx: Any, array: Any, start: Any, lanes: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            write(context, builder, lanes, array, *args, nontemporal=nontemporal)
            return context.get_dummy_value()

        return types.void(array, types.intp, lanes), codegen

    return store


def write(context: Any, builder: Any, lanes: Lanes, array: Any, memory: Any, start: Any, value: Any, *,
          nontemporal: bool = False) -> None:  # fmt: skip
    """Code for `store`."""

    def store(offset: int, count: int, vector: Any) -> None:
        pointer, size = _pointer(context, builder, array, memory, start, offset, count)
        # x86 has only non-temporal stores of at most 32 bytes, and they must be aligned.
        align = min(32, size * count) if nontemporal else size
        narrow = _narrow(builder, vector, array.dtype, Lanes(lanes.dtype, count))
        stored = builder.store(narrow, pointer, align=align)
        if nontemporal:
            stored.set_metadata("nontemporal", builder.module.add_metadata([INT32(1)]))

    _each(builder, lanes, store, value)


# Write lanes to an array from a position on, rounded once to the type the array stores.
store = _store(nontemporal=False)
# The same by non-temporal stores, which read no lines first; the place must be aligned like the lanes, up to 32 bytes.
store_nontemporal = _store(nontemporal=True)


@inline
def put_result(array, here, new, nontemporal):
    """Store lanes of a result, which nobody reads soon."""
    if nontemporal:
        store_nontemporal(array, here, new)
    else:
        store(array, here, new)


@inline
def put(array, here, new, fresh):
    """Store the last `fresh` lanes; those before them have been changed already."""
    if fresh < count(new):
        store(array, here, take_last(new, load(new, array, here), fresh))
    else:
        store(array, here, new)


@inline
def clear_nontemporal(nothing, array, first, last):
    """Zero the array by non-temporal stores, from `first` to `last`; both ends must be as `store_nontemporal` asks."""
    while first < last:
        store_nontemporal(array, block_start(nothing, first, last), nothing)
        first += count(nothing)


@inline
def copy_nontemporal(nothing, source, first, output, start, size):
    """Copy `size` elements by non-temporal stores; `start` must be as `store_nontemporal` asks for `nothing`."""
    whole = size - size % count(nothing)
    for at in range(0, whole, count(nothing)):
        store_nontemporal(output, start + at, load(nothing, source, first + at))
    for at in range(whole, size):
        output[start + at] = source[first + at]


@inline
def copy(nothing, source, first, output, start, size):
    """Copy `size` elements, or, if `source` is None, clear them."""
    whole = size - size % count(nothing)
    for at in range(0, whole, count(nothing)):
        store(output, start + at, nothing if source is None else load(nothing, source, first + at))
    for at in range(whole, size):
        output[start + at] = 0 if source is None else source[first + at]


@intrinsic
def keep_if(typingctx: Any, condition: Any, lanes: Any) -> Any:
    """`lanes` where the condition holds, else +0; without a branch, since the condition is unpredictable."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.sext(args[0], ir.IntType(lanes.dtype.bitwidth))

        def keep(start: int, count: int, vector: Any) -> Any:
            mask = spread(builder, bits, count)
            return builder.bitcast(builder.and_(builder.bitcast(vector, mask.type), mask), vector.type)

        return _each(builder, lanes, keep, args[1])

    return lanes(types.boolean, lanes), codegen


@intrinsic
def root(typingctx: Any, lanes: Any) -> Any:
    """The square root of each lane, rounded correctly."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return rooted(builder, lanes, args[0])

    return lanes(lanes), codegen


def rooted(builder: Any, lanes: Lanes, value: Any) -> Any:
    """Code for `root`."""
    name = f"llvm.sqrt.v{lanes.count}f{lanes.dtype.bitwidth}"
    kind = ir.FunctionType(value.type, [value.type])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [value])


@intrinsic
def clamp(typingctx: Any, lanes: Any, bound: Any) -> Any:
    """Each lane, or the nearest of -bound and bound if it is further from 0; NaN stays NaN."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return clamped(builder, args[0], context.cast(builder, args[1], bound, lanes.dtype))

    return lanes(lanes, bound), codegen


def clamped(builder: Any, value: Any, high: Any) -> Any:
    """Code for `clamp`."""
    highs = spread(builder, high, value.type.count)
    lows = spread(builder, builder.fneg(high), value.type.count)
    value = builder.select(builder.fcmp_ordered(">", value, highs), highs, value)
    return builder.select(builder.fcmp_ordered("<", value, lows), lows, value)


@intrinsic
def power(typingctx: Any, lanes: Any, exponent: Any) -> Any:
    """Each lane to the power of a number."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = args[0].type
        name = f"llvm.pow.v{lanes.count}f{lanes.dtype.bitwidth}"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector, vector]), name)
        high = context.cast(builder, args[1], exponent, lanes.dtype)
        return builder.call(function, [args[0], spread(builder, high, lanes.count)])

    return lanes(lanes, exponent), codegen


@intrinsic
def where_greater(typingctx: Any, left: Any, right: Any, then: Any, otherwise: Any) -> Any:
    """`then` in the lanes where `left` > `right`, else `otherwise`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[2], args[3])

    return left(left, right, then, otherwise), codegen


@intrinsic
def first_of(typingctx: Any, lanes: Any) -> Any:
    """The first lane, as a plain number."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.extract_element(args[0], INT32(0))

    return lanes.dtype(lanes), codegen


@intrinsic
def add_across(typingctx: Any, lanes: Any) -> Any:
    """The sum of all lanes, as one lane: each of the first half and its peer in the second, again and again."""
    total = Lanes(lanes.dtype, 1)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return across(builder, lanes, args[0])

    return total(lanes), codegen


def across(builder: Any, lanes: Lanes, value: Any) -> Any:
    """Code for `add_across`."""
    add, left = builder.add if isinstance(lanes.dtype, types.Integer) else builder.fadd, lanes.count
    while left > 1:
        left //= 2
        halves = [ir.Constant(ir.VectorType(INT32, left), list(range(at, at + left))) for at in (0, left)]
        value = add(*(builder.shuffle_vector(value, value, half) for half in halves))
    return value


def spread(builder: Any, scalar: Any, count: int) -> Any:
    """Code for `fill`."""
    vector = ir.Constant(ir.VectorType(scalar.type, count), ir.Undefined)
    vector = builder.insert_element(vector, scalar, INT32(0))
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(INT32, count), None))


def _pointer(context: Any, builder: Any, array: Any, value: Any, start: Any, more: int, count: int) -> tuple[Any, int]:
    first = builder.gep(context.make_array(array)(context, builder, value).data, [start])
    vector = ir.VectorType(context.get_data_type(array.dtype), count)
    first = builder.gep(first, [INT32(more)]) if more else first
    return builder.bitcast(first, vector.as_pointer()), array.dtype.bitwidth // 8


def _is_half(stored: Any, lanes: Lanes) -> bool:
    return bool(stored == types.int16 and lanes.dtype == types.float32)


def _is_bfloat16(stored: Any, lanes: Lanes) -> bool:
    return bool(stored == types.uint16 and lanes.dtype == types.float32)


def _widen(builder: Any, raw: Any, stored: Any, lanes: Lanes) -> Any:
    floats = ir.VectorType(ir.FloatType(), lanes.count)
    if _is_half(stored, lanes):
        return builder.fpext(builder.bitcast(raw, ir.VectorType(ir.HalfType(), lanes.count)), floats)
    if _is_bfloat16(stored, lanes):
        words = builder.zext(raw, ir.VectorType(INT32, lanes.count))
        return builder.bitcast(builder.shl(words, _words(lanes, 16)), floats)
    return raw


def _narrow(builder: Any, value: Any, stored: Any, lanes: Lanes) -> Any:
    shorts = ir.VectorType(ir.IntType(16), lanes.count)
    if _is_half(stored, lanes):
        return builder.bitcast(builder.fptrunc(value, ir.VectorType(ir.HalfType(), lanes.count)), shorts)
    if _is_bfloat16(stored, lanes):
        # Round to nearest even by adding just under half a unit, plus the last kept bit; NaN must stay NaN.
        bits = builder.bitcast(value, ir.VectorType(INT32, lanes.count))
        last = builder.and_(builder.lshr(bits, _words(lanes, 16)), _words(lanes, 1))
        rounded = builder.add(bits, builder.add(last, _words(lanes, 0x7FFF)))
        quiet = builder.or_(bits, _words(lanes, 0x400000))
        nan = builder.fcmp_unordered("uno", value, value)
        return builder.trunc(builder.lshr(builder.select(nan, quiet, rounded), _words(lanes, 16)), shorts)
    return value


def _words(lanes: Lanes, value: int) -> Any:
    return ir.Constant(ir.VectorType(INT32, lanes.count), [value] * lanes.count)


def _arithmetic(symbol: Callable[..., Any], on_floats: str, on_integers: str) -> None:
    """Lane by lane; declared to Numba's typing and lowering themselves, so that nothing has to be compiled for it.

    The right side may be one number for all lanes.
    """

    @infer_global(symbol)
    class Template(AbstractTemplate):  # type: ignore[misc]
        def generic(self, args: Any, kws: Any) -> Any:
            left, right = args
            if not isinstance(left, Lanes) or right not in (left, left.dtype):
                return None
            return signature(left, left, right)

    @lower_builtin(symbol, Lanes, Lanes)
    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = signature.return_type
        compute = getattr(builder, on_integers if isinstance(lanes.dtype, types.Integer) else on_floats)
        return _each(builder, lanes, lambda start, count, left, right: compute(left, right), *args)

    @lower_builtin(symbol, Lanes, types.Number)
    def lower_one(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = signature.return_type
        right = _each(builder, lanes, lambda start, count: spread(builder, args[1], count))
        return lower(context, builder, signature, (args[0], right))


_arithmetic(operator.add, "fadd", "add")
_arithmetic(operator.sub, "fsub", "sub")
_arithmetic(operator.mul, "fmul", "mul")
_arithmetic(operator.truediv, "fdiv", "udiv")
for _symbol, _name in ((operator.xor, "xor"), (operator.and_, "and_"), (operator.or_, "or_"), (operator.lshift, "shl"),
                       (operator.rshift, "lshr")):  # fmt: skip
    _arithmetic(_symbol, "", _name)  # of unsigned integers
