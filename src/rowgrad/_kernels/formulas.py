"""How an optimizer changes one row of a table: called by the kernels, for each row that has a gradient.

Which optimizer it is, is told by the type of an argument, `rule_for`, so that a kernel is compiled for each optimizer
that is in use and holds the formula of no other. Half and bfloat16 rows are computed in float32, as the state is, and
rounded once.

`numbers` are 11 float64: learning rate, weight decay added to gradients, factor of the row (decoupled weight
decay), share of the first average that is kept and 1 minus it, the same of the second, eps, correction of averages,
largest element of a gradient, largest norm of a row's gradient.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba.extending import overload

from rowgrad._kernels.compile import INLINE_LATE, inline_late
from rowgrad._kernels.kinds import (
    ADAGRAD,
    ADAM,
    DESCENT,
    LAMB,
    MOMENTUM,
    NESTEROV,
    PARTIAL_ROW_WISE_ADAM,
    ROW_WISE_ADAGRAD,
)
from rowgrad._kernels.lanes import block_start, count, fetch, fill, load, narrowed, put, root
from rowgrad._kernels.raw import peek, poke, prefetch
from rowgrad._kernels.row_sums import average_row, direction, gradient, squares_of
from rowgrad._kernels.steps import NEXT_VALUES, WITH_TWO_STATES, WITHOUT_STATE


@cache
def rule_for(kind: int, adjusted: bool) -> "np.ndarray[Any, Any]":
    """What tells a kernel the optimizer, and whether gradients are `adjusted`: clipped, or with weight decay.

    It is an array without elements whose number of dimensions says it.
    """
    return np.empty((0,) * (1 + 2 * kind + adjusted), np.bool_)


def _by_rule(choose: Callable[[int, bool], Callable[..., Any]], place: int = 0) -> Any:
    """A function for kernels whose body is chosen by its argument at `place`, a `rule_for`, when one is compiled."""

    def chosen(*args: Any) -> Any:
        raise NotImplementedError("called by kernels only")

    @overload(chosen, strict=False, jit_options=INLINE_LATE)  # type: ignore[misc]
    def form(*args: Any) -> Any:
        kind, adjusted = divmod(args[place].ndim - 1, 2)
        return choose(kind, bool(adjusted))

    return chosen


@inline_late
def _norm_scale(rule, lanes, numbers, table, row, grads, place, width):
    """What a row's gradient is multiplied by so that its norm is not too large."""
    if numbers[10] == np.inf:
        return 1.0
    norm = np.sqrt(squares_of(lanes, rule, numbers, 1.0, 0.0, table, row, grads, place, width))
    return numbers[10] / norm if norm > numbers[10] else 1.0


def _plain_rate(rule, lanes, numbers, scale, table, row, grads, place, width, first, second):
    return numbers[0]


def _row_wise_adagrad_rate(rule, lanes, numbers, scale, table, row, grads, place, width, first, second):
    squares = squares_of(lanes, rule, numbers, scale, numbers[1], table, row, grads, place, width)
    poke(first, row, np.float64(peek(first, row)) + squares / width)
    return numbers[0] / (np.sqrt(np.float64(peek(first, row))) + numbers[7])


def _row_wise_adam_rate(rule, lanes, numbers, scale, table, row, grads, place, width, first, second):
    squares = squares_of(lanes, rule, numbers, scale, numbers[1], table, row, grads, place, width)
    poke(second, row, numbers[5] * np.float64(peek(second, row)) + numbers[6] * (squares / width))
    return numbers[0] / (np.sqrt(np.float64(peek(second, row))) + numbers[7])


def _lamb_rate(rule, lanes, numbers, scale, table, row, grads, place, width, first, second):
    """The averages are updated here, since the length of the step is needed before any column can change."""
    values, steps = average_row(lanes, rule, numbers, scale, table, row, grads, place, width, first, second)
    values, steps = np.sqrt(values), np.sqrt(steps)
    return numbers[0] * (values / steps) if values > 0 and steps > 0 else numbers[0]


_RATES = {
    ROW_WISE_ADAGRAD: _row_wise_adagrad_rate,
    PARTIAL_ROW_WISE_ADAM: _row_wise_adam_rate,
    LAMB: _lamb_rate,
}
# The learning rate of a row, whose state is updated where it is one number or needed before any column can change.
_rate = _by_rule(lambda kind, adjusted: _RATES.get(kind, _plain_rate))


def _descent(rule, lanes, numbers, rate, value, step, here, fresh, first, second):
    return fill(lanes, rate) * step


def _momentum(rule, lanes, numbers, rate, value, step, here, fresh, first, second):
    memory = fill(lanes, numbers[3]) * load(lanes, first, here) + step
    put(first, here, memory, fresh)
    return fill(lanes, rate) * memory


def _nesterov(rule, lanes, numbers, rate, value, step, here, fresh, first, second):
    memory = fill(lanes, numbers[3]) * load(lanes, first, here) + step
    put(first, here, memory, fresh)
    return fill(lanes, rate) * (step + fill(lanes, numbers[3]) * memory)


def _adagrad(rule, lanes, numbers, rate, value, step, here, fresh, first, second):
    squares = load(lanes, first, here) + step * step
    put(first, here, squares, fresh)
    return fill(lanes, rate) * step / (root(squares) + fill(lanes, numbers[7]))


def _adam(rule, lanes, numbers, rate, value, step, here, fresh, first, second):
    mean = fill(lanes, numbers[3]) * load(lanes, first, here) + fill(lanes, numbers[4]) * step
    square = fill(lanes, numbers[5]) * load(lanes, second, here) + fill(lanes, numbers[6]) * (step * step)
    put(first, here, mean, fresh)
    put(second, here, square, fresh)
    return fill(lanes, rate) * mean / (root(square) + fill(lanes, numbers[7]))


def _row_wise_adam(rule, lanes, numbers, rate, value, step, here, fresh, first, second):
    mean = fill(lanes, numbers[3]) * load(lanes, first, here) + fill(lanes, numbers[4]) * step
    put(first, here, mean, fresh)
    return fill(lanes, rate) * mean


def _lamb(rule, lanes, numbers, rate, value, step, here, fresh, first, second):
    mean, square = load(lanes, first, here), load(lanes, second, here)
    return fill(lanes, rate) * direction(lanes, numbers[8], numbers[7], numbers[1], value, mean, square)


_STEPS = {
    DESCENT: _descent,
    MOMENTUM: _momentum,
    NESTEROV: _nesterov,
    ADAGRAD: _adagrad,
    ROW_WISE_ADAGRAD: _descent,
    ADAM: _adam,
    PARTIAL_ROW_WISE_ADAM: _row_wise_adam,
    LAMB: _lamb,
}
# What is taken from a block of a row; state that is like the table is updated.
_step = _by_rule(lambda kind, adjusted: _STEPS[kind])


def _change_plain(lanes, rule, numbers, table, row, grads, place, width, first, second):
    rate = _rate(rule, lanes, numbers, 1.0, table, row, grads, place, width, first, second)
    column, narrow = np.int64(0), narrowed(lanes)  # wide vectors of all that a formula needs would leave the registers
    while column < width:
        start = block_start(narrow, column, width)
        fresh = count(narrow) - (column - start)
        here = row * width + start
        value, grad = load(narrow, table, here), load(narrow, grads, place * width + start)
        step = _step(rule, narrow, numbers, rate, value, grad, here, fresh, first, second)
        put(table, here, value - step, fresh)
        column += count(narrow)


def _change_adjusted(lanes, rule, numbers, table, row, grads, place, width, first, second):
    scale = _norm_scale(rule, lanes, numbers, table, row, grads, place, width)
    rate = _rate(rule, lanes, numbers, scale, table, row, grads, place, width, first, second)
    column, narrow = np.int64(0), narrowed(lanes)
    while column < width:
        start = block_start(narrow, column, width)
        fresh = count(narrow) - (column - start)
        here = row * width + start
        value = load(narrow, table, here)
        grad = gradient(rule, narrow, numbers[9], scale, numbers[1], value, grads, place * width + start)
        step = _step(rule, narrow, numbers, rate, value, grad, here, fresh, first, second)
        put(table, here, fill(narrow, numbers[2]) * value - step, fresh)
        column += count(narrow)


# The new value of a block of a row, by TensorFlow's formulas; state is updated.
_next_value = _by_rule(lambda kind, adjusted: NEXT_VALUES[kind])


def _change_plain_to_next(lanes, rule, numbers, table, row, grads, place, width, first, second):
    column, narrow = np.int64(0), narrowed(lanes)
    while column < width:
        start = block_start(narrow, column, width)
        fresh = count(narrow) - (column - start)
        value, grad = load(narrow, table, row * width + start), load(narrow, grads, place * width + start)
        new = _next_value(rule, narrow, numbers, value, grad, row, width, start, fresh, first, second)
        put(table, row * width + start, new, fresh)
        column += count(narrow)


def _change_adjusted_to_next(lanes, rule, numbers, table, row, grads, place, width, first, second):
    scale = _norm_scale(rule, lanes, numbers, table, row, grads, place, width)
    column, narrow = np.int64(0), narrowed(lanes)
    while column < width:
        start = block_start(narrow, column, width)
        fresh = count(narrow) - (column - start)
        value = load(narrow, table, row * width + start)
        grad = gradient(rule, narrow, numbers[9], scale, numbers[1], value, grads, place * width + start)
        new = _next_value(rule, narrow, numbers, value, grad, row, width, start, fresh, first, second)
        put(table, row * width + start, new, fresh)
        column += count(narrow)


def _change(kind, adjusted):
    if kind in NEXT_VALUES:
        return _change_adjusted_to_next if adjusted else _change_plain_to_next
    return _change_adjusted if adjusted else _change_plain


# Change one row of the table and of its state by row `place` of the gradients:
# change_row(lanes, rule, numbers, table, row, grads, place, width, first, second).
change_row = _by_rule(_change, 1)


@inline_late
def fetch_columns(lanes, array, row, width):
    """Have a row of an array fetched; the row may be any number."""
    column = np.int64(0)
    while column < width:
        fetch(lanes, array, row * width + block_start(lanes, column, width))
        column += count(lanes)


def _fetch_none(rule, lanes, row, width, first, second):
    pass


def _fetch_one(rule, lanes, row, width, first, second):
    fetch_columns(lanes, first, row, width)


def _fetch_number(rule, lanes, row, width, first, second):
    prefetch(first, row)


def _fetch_one_and_number(rule, lanes, row, width, first, second):
    fetch_columns(lanes, first, row, width)
    prefetch(second, row)


def _fetch_two(rule, lanes, row, width, first, second):
    fetch_columns(lanes, first, row, width)
    fetch_columns(lanes, second, row, width)


_FETCHES = {
    DESCENT: _fetch_none,
    ROW_WISE_ADAGRAD: _fetch_number,
    ADAM: _fetch_two,
    PARTIAL_ROW_WISE_ADAM: _fetch_one_and_number,
    LAMB: _fetch_two,
    **dict.fromkeys(WITH_TWO_STATES, _fetch_two),
    **dict.fromkeys(WITHOUT_STATE, _fetch_none),
}
# Have the state of a row fetched: fetch_state(rule, lanes, row, width, first, second).
fetch_state = _by_rule(lambda kind, adjusted: _FETCHES.get(kind, _fetch_one))


@inline_late
def fetch_row(lanes, rule, table, row, width, first, second):
    """Have a row and its state fetched; the row may be any number."""
    fetch_columns(lanes, table, row, width)
    fetch_state(rule, lanes, row, width, first, second)
