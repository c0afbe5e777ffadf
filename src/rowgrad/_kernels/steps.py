"""The steps of TensorFlow's SparseApply… operators, operation by operation: `formulas` calls them for blocks of a row.

Each gives the new value of a block of columns, and stores the new state. Results are TensorFlow's to the bit, where
TensorFlow does not itself use an approximation of the processor (the reciprocal root of long rows) or a power that
depends on the length of a row. TensorFlow has formulas of their own for rows of one element.

`numbers` are as in `formulas`, except where a step says otherwise; numbers are rounded to the type of the row before
they are used, as TensorFlow's are.
"""

import numpy as np

from rowgrad._kernels.compile import inline
from rowgrad._kernels.kinds import (
    ADADELTA,
    ADAGRAD_DA,
    CENTRED,
    CENTRED_MOMENTUM,
    FTRL,
    FTRL_POWER,
    PROXIMAL_ADAGRAD,
    PROXIMAL_DESCENT,
    RMSPROP,
    RMSPROP_MOMENTUM,
    TF_MOMENTUM,
    TF_NESTEROV,
)
from rowgrad._kernels.lanes import clamp, fill, first_of, load, power, put, root, where_greater


@inline
def _sign(lanes):
    nothing = fill(lanes, 0.0)
    below = where_greater(nothing, lanes, fill(lanes, -1.0), lanes)
    return where_greater(lanes, nothing, fill(lanes, 1.0), below)


@inline
def _positive_part(lanes):
    return where_greater(lanes, fill(lanes, 0.0), lanes, fill(lanes, 0.0))


@inline
def _size(lanes):
    return where_greater(fill(lanes, 0.0), lanes, fill(lanes, 0.0) - lanes, lanes)


@inline
def _inverse_root(lanes):
    return fill(lanes, 1.0) / root(lanes)


@inline
def _followed(linear, accum, total, powers, new_powers, numbers, value, grad, width):
    """FTRL's new sum of gradients, and the value that belongs to it; l1, l2 and shrinkage are one, two and eps."""
    rate, two = fill(value, numbers[0]), fill(value, 2.0)
    if numbers[7] != 0:
        grad = grad + two * fill(value, numbers[7]) * value
    moved = (new_powers - powers) / rate * value
    quotient = new_powers / rate + two * fill(value, numbers[5])
    bound = fill(value, numbers[3])
    if width == 1:
        linear = linear + grad - moved
        signed = where_greater(fill(value, 0.0), linear, fill(value, -1.0), fill(value, 1.0)) * bound
        return linear, where_greater(_size(linear), bound, (signed - linear) / quotient, fill(value, 0.0))
    linear = linear + (grad - moved)
    return linear, (clamp(linear, numbers[3]) - linear) / quotient


def _ftrl(rule, lanes, numbers, value, grad, row, width, start, fresh, first, second):
    here = row * width + start
    accum = load(lanes, first, here)
    total = accum + grad * grad
    linear, new = _followed(load(lanes, second, here), accum, total, root(accum), root(total), numbers, value, grad,
                            width)  # fmt: skip
    put(first, here, total, fresh)
    put(second, here, linear, fresh)
    return new


def _ftrl_power(rule, lanes, numbers, value, grad, row, width, start, fresh, first, second):
    """Its lr_power is the correction."""
    here = row * width + start
    accum = load(lanes, first, here)
    total = accum + grad * grad
    linear, new = _followed(load(lanes, second, here), accum, total, power(accum, -numbers[8]),
                            power(total, -numbers[8]), numbers, value, grad, width)  # fmt: skip
    put(first, here, total, fresh)
    put(second, here, linear, fresh)
    return new


def _momentum(rule, lanes, numbers, value, grad, row, width, start, fresh, first, second):
    memory = load(lanes, first, row * width + start) * fill(lanes, numbers[3]) + grad
    put(first, row * width + start, memory, fresh)
    return value - fill(lanes, numbers[0]) * memory


def _nesterov(rule, lanes, numbers, value, grad, row, width, start, fresh, first, second):
    rate, share = fill(lanes, numbers[0]), fill(lanes, numbers[3])
    memory = load(lanes, first, row * width + start) * share + grad
    put(first, row * width + start, memory, fresh)
    return value - (rate * grad + rate * share * memory)


@inline
def _average(old, share, new):
    return old * share + new * (fill(old, 1.0) - share)


def _rmsprop(rule, lanes, numbers, value, grad, row, width, start, fresh, first, second):
    """Without momentum TensorFlow adds 0, which turns -0 into +0."""
    here = row * width + start
    square = _average(load(lanes, first, here), fill(lanes, numbers[5]), grad * grad)
    put(first, here, square, fresh)
    step = _inverse_root(square + fill(lanes, numbers[7])) * fill(lanes, numbers[0]) * grad
    return value - (fill(lanes, 0.0) + step)


def _rmsprop_momentum(rule, lanes, numbers, value, grad, row, width, start, fresh, first, second):
    here = row * width + start
    square = _average(load(lanes, first, here), fill(lanes, numbers[5]), grad * grad)
    put(first, here, square, fresh)
    step = _inverse_root(square + fill(lanes, numbers[7])) * fill(lanes, numbers[0]) * grad
    memory = load(lanes, second, here) * fill(lanes, numbers[3]) + step
    put(second, here, memory, fresh)
    return value - memory


@inline
def _centred_step(lanes, numbers, grad, mean, square):
    variance = square + fill(lanes, numbers[7]) - mean * mean
    return _inverse_root(variance) * fill(lanes, numbers[0]) * grad


def _centred(rule, lanes, numbers, value, grad, row, width, start, fresh, first, second):
    here, share = row * width + start, fill(lanes, numbers[5])
    mean, square = _average(load(lanes, first, here), share, grad), load(lanes, second, here)
    square = _average(square, share, grad * grad)
    put(first, here, mean, fresh)
    put(second, here, square, fresh)
    return value - (fill(lanes, 0.0) + _centred_step(lanes, numbers, grad, mean, square))


def _centred_momentum(rule, lanes, numbers, value, grad, row, width, start, fresh, first, second):
    """The second state has two rows for each of the table: the averages of squares, and the momentum."""
    here, share = row * width + start, fill(lanes, numbers[5])
    there = here + row * width
    mean = _average(load(lanes, first, here), share, grad)
    square = _average(load(lanes, second, there), share, grad * grad)
    step = _centred_step(lanes, numbers, grad, mean, square)
    memory = load(lanes, second, there + width) * fill(lanes, numbers[3]) + step
    put(first, here, mean, fresh)
    put(second, there, square, fresh)
    put(second, there + width, memory, fresh)
    return value - memory


def _adadelta(rule, lanes, numbers, value, grad, row, width, start, fresh, first, second):
    here, share, eps = row * width + start, fill(lanes, numbers[5]), fill(lanes, numbers[7])
    square = _average(load(lanes, first, here), share, grad * grad)
    steps = load(lanes, second, here)
    step = root(steps + eps) * _inverse_root(square + eps) * grad
    put(first, here, square, fresh)
    put(second, here, _average(steps, share, step * step), fresh)
    return value - step * fill(lanes, numbers[0])


@inline
def _double(lanes):
    return np.float64(first_of(lanes))


def _dual_averaging(rule, lanes, numbers, value, grad, row, width, start, fresh, first, second):
    """l1 and l2 are one and two, the number of the step the correction; rows of one element are divided in float64."""
    here, number, rate = row * width + start, fill(lanes, numbers[8]), fill(lanes, numbers[0])
    total, squares = load(lanes, first, here) + grad, load(lanes, second, here)
    put(first, here, total, fresh)
    if width == 1:
        squares = fill(lanes, _double(squares) + _double(grad) * _double(grad))
        put(second, here, squares, fresh)
        bound, weight = fill(lanes, numbers[3]), fill(lanes, numbers[5])
        quotient = _double(weight) * _double(number * rate) + _double(root(squares))
        wanted = _double(total)
        if numbers[3] > 0:
            wanted = np.sign(wanted) * max(abs(wanted) - numbers[8] * _double(bound), 0.0)
        return fill(lanes, -wanted * _double(rate) / quotient)
    squares = squares + grad * grad
    put(second, here, squares, fresh)
    quotient = fill(lanes, numbers[5]) + root(squares) / (number * rate)
    if numbers[3] > 0:
        part = _positive_part(_size(total) / number - fill(lanes, numbers[3]))
        return fill(lanes, -1.0) * _sign(total) * part / quotient
    return fill(lanes, -1.0) * (total / number) / quotient


@inline
def _shrunk(value, rate, numbers, width):
    """What is left of a value by l1 and l2, which are one and two; rows of one element are divided in float64."""
    if numbers[3] > 0:
        value = _sign(value) * _positive_part(_size(value) - rate * fill(value, numbers[3]))
    if width == 1:
        return fill(value, _double(value) / (1.0 + _double(fill(value, numbers[5]) * rate)))
    return value / (fill(value, 1.0) + rate * fill(value, numbers[5]))


def _proximal_adagrad(rule, lanes, numbers, value, grad, row, width, start, fresh, first, second):
    here, rate = row * width + start, fill(lanes, numbers[0])
    squares = load(lanes, first, here) + grad * grad
    put(first, here, squares, fresh)
    rate = rate / root(squares) if width == 1 else _inverse_root(squares) * rate
    return _shrunk(value - rate * grad, rate, numbers, width)


def _proximal_descent(rule, lanes, numbers, value, grad, row, width, start, fresh, first, second):
    rate = fill(lanes, numbers[0])
    return _shrunk(value - rate * grad, rate, numbers, width)


NEXT_VALUES = {
    FTRL: _ftrl,
    FTRL_POWER: _ftrl_power,
    TF_MOMENTUM: _momentum,
    TF_NESTEROV: _nesterov,
    RMSPROP: _rmsprop,
    RMSPROP_MOMENTUM: _rmsprop_momentum,
    CENTRED: _centred,
    CENTRED_MOMENTUM: _centred_momentum,
    ADADELTA: _adadelta,
    ADAGRAD_DA: _dual_averaging,
    PROXIMAL_ADAGRAD: _proximal_adagrad,
    PROXIMAL_DESCENT: _proximal_descent,
}
WITHOUT_STATE = (PROXIMAL_DESCENT,)
WITH_TWO_STATES = (FTRL, FTRL_POWER, RMSPROP_MOMENTUM, CENTRED, CENTRED_MOMENTUM, ADADELTA, ADAGRAD_DA)
