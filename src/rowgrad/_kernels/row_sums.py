"""The parts of optimizers' formulas that are written for LLVM directly: blocks of a row, and sums over a whole row.

A sum over a row has three loops, for vectors of 64 bytes, of 16 bytes and for single elements (the order of additions
is in docs/exactness.md). As functions for Numba, each loop would be compiled by itself before it becomes part of a
kernel, which took a third of the first step of some optimizers. `formulas` calls what is here.

`rule` and `numbers` are as there.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rowgrad._kernels.lanes import Lanes, across, clamped, read, rooted, spread, write

INT64, DOUBLE = ir.IntType(64), ir.DoubleType()
BLOCKS = (64, 16, 1)  # bytes; the last one stands for an element
NUMBER = types.float64


@intrinsic
def gradient(typingctx: Any, rule: Any, lanes: Any, most: Any, scale: Any, decay: Any, value: Any, grads: Any,
             there: Any) -> Any:  # fmt: skip
    """A block of a row's gradient; if they are adjusted, clipped, and with `decay` times the row's `value` added."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        step = read(context, builder, lanes, grads, args[6], args[7])
        return _adjusted(context, builder, rule, lanes, step, args[2:5], args[5])

    return lanes(rule, lanes, NUMBER, NUMBER, NUMBER, value, grads, types.intp), codegen


@intrinsic
def direction(typingctx: Any, lanes: Any, correction: Any, eps: Any, decay: Any, value: Any, mean: Any,
              square: Any) -> Any:  # fmt: skip
    """The step of LAMB before it is scaled: correction · mean / (√square + eps) + decay · value."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _directed(context, builder, lanes, args[1:4], *args[4:])

    return lanes(lanes, NUMBER, NUMBER, NUMBER, lanes, lanes, lanes), codegen


@intrinsic
def squares_of(typingctx: Any, lanes: Any, rule: Any, numbers: Any, scale: Any, decay: Any, table: Any, row: Any,
               grads: Any, place: Any, width: Any) -> Any:  # fmt: skip
    """Σ of the squares of a row's gradient."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, _, given, factor, share, rows, row, gradients, place, width = args
        most = _number(context, builder, numbers, given, 9)

        def add(lanes: Lanes, column: Any) -> list[Any]:
            value = read(context, builder, lanes, table, rows, _there(builder, row, width, column))
            step = read(context, builder, lanes, grads, gradients, _there(builder, place, width, column))
            step = _adjusted(context, builder, rule, lanes, step, (most, factor, share), value)
            return [builder.fmul(step, step)]

        return _sums_of_blocks(builder, lanes.dtype, width, 1, add)[0]

    return NUMBER(lanes, rule, numbers, NUMBER, NUMBER, table, types.int64, grads, types.int64, types.int64), codegen


@intrinsic
def average_row(typingctx: Any, lanes: Any, rule: Any, numbers: Any, scale: Any, table: Any, row: Any, grads: Any,
                place: Any, width: Any, first: Any, second: Any) -> Any:  # fmt: skip
    """Update both averages of a row for LAMB; gives Σ of the squares of the row and of its step."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, _, given, factor, rows, row, gradients, place, width, means, squares = args
        number = [_number(context, builder, numbers, given, i) for i in range(11)]

        def add(lanes: Lanes, column: Any) -> list[Any]:
            here = _there(builder, row, width, column)
            value = read(context, builder, lanes, table, rows, here)
            grad = read(context, builder, lanes, grads, gradients, _there(builder, place, width, column))
            grad = _adjusted(context, builder, rule, lanes, grad, (number[9], factor, DOUBLE(0.0)), value)
            kept, new, kept_square, new_square = (
                spread(builder, one, lanes.count) for one in _rounded(context, builder, lanes, number[3:7])
            )
            old = read(context, builder, lanes, first, means, here)
            mean = builder.fadd(builder.fmul(kept, old), builder.fmul(new, grad))
            old = read(context, builder, lanes, second, squares, here)
            square = builder.fadd(builder.fmul(kept_square, old), builder.fmul(new_square, builder.fmul(grad, grad)))
            write(context, builder, lanes, first, means, here, mean)
            write(context, builder, lanes, second, squares, here, square)
            step = _directed(context, builder, lanes, (number[8], number[7], number[1]), value, mean, square)
            return [builder.fmul(value, value), builder.fmul(step, step)]

        return context.make_tuple(builder, result, _sums_of_blocks(builder, lanes.dtype, width, 2, add))

    result = types.UniTuple(NUMBER, 2)
    given = lanes, rule, numbers, NUMBER, table, types.int64, grads, types.int64, types.int64, first, second
    return result(*given), codegen


def _adjusted(context: Any, builder: Any, rule: Any, lanes: Lanes, step: Any, numbers: Sequence[Any],
              value: Any) -> Any:  # fmt: skip
    """Code for `gradient`; the numbers are the largest element, the scale and the decay."""
    _, is_adjusted = divmod(rule.ndim - 1, 2)
    if not is_adjusted:
        return step
    high, factor, share = _rounded(context, builder, lanes, numbers)
    step = builder.fmul(clamped(builder, step, high), spread(builder, factor, lanes.count))
    decayed = builder.fadd(step, builder.fmul(spread(builder, share, lanes.count), value))
    return builder.select(builder.fcmp_unordered("!=", numbers[2], DOUBLE(0.0)), decayed, step)


def _directed(context: Any, builder: Any, lanes: Lanes, numbers: Sequence[Any], value: Any, mean: Any,
              square: Any) -> Any:  # fmt: skip
    """Code for `direction`."""
    rounded = _rounded(context, builder, lanes, numbers)
    factor, small, share = (spread(builder, number, lanes.count) for number in rounded)
    step = builder.fdiv(builder.fmul(factor, mean), builder.fadd(rooted(builder, lanes, square), small))
    return builder.fadd(step, builder.fmul(share, value))


def _rounded(context: Any, builder: Any, lanes: Lanes, numbers: Sequence[Any]) -> list[Any]:
    """Numbers of float64 in the type of the row."""
    return [context.cast(builder, number, NUMBER, lanes.dtype) for number in numbers]


def _number(context: Any, builder: Any, numbers: Any, given: Any, position: int) -> Any:
    return context.cast(builder, builder.extract_value(given, position), numbers[position], NUMBER)


def _there(builder: Any, row: Any, width: Any, column: Any) -> Any:
    return builder.add(builder.mul(row, width), column)


def _sums_of_blocks(builder: Any, dtype: Any, width: Any, count: int,
                    add: Callable[[Lanes, Any], list[Any]]) -> list[Any]:  # fmt: skip
    """Code for the sums of what `add` writes for each block of a row, in float64."""
    column, totals = INT64(0), [None] * count
    for nbytes in BLOCKS:
        lanes = Lanes(dtype, max(1, nbytes // (dtype.bitwidth // 8)))
        element = ir.FloatType() if dtype == types.float32 else DOUBLE
        vector = ir.VectorType(element, lanes.count)
        before = builder.block
        look, block, done = (builder.append_basic_block(name) for name in ("columns", "block", "summed"))
        builder.branch(look)
        builder.position_at_end(look)
        here, sums = builder.phi(INT64), [builder.phi(vector) for _ in range(count)]
        after = builder.add(here, INT64(lanes.count))
        builder.cbranch(builder.icmp_signed("<=", after, width), block, done)
        builder.position_at_end(block)
        added = [builder.fadd(total, part) for total, part in zip(sums, add(lanes, here), strict=True)]
        builder.branch(look)
        here.add_incoming(column, before)
        here.add_incoming(after, block)
        for phi, new in zip(sums, added, strict=True):
            phi.add_incoming(ir.Constant(vector, None), before)
            phi.add_incoming(new, block)
        builder.position_at_end(done)
        column = here
        for number, total in enumerate(sums):
            part = builder.extract_element(across(builder, lanes, total), ir.IntType(32)(0))
            part = part if element == DOUBLE else builder.fpext(part, DOUBLE)
            totals[number] = part if totals[number] is None else builder.fadd(totals[number], part)
    return totals
