"""The named results of the operators of pages that give more than one array."""

from typing import Any, NamedTuple


class AdagradUpdate(NamedTuple):
    """The new values of a variable and of the sums of squares that belong to it."""

    out: Any
    accum_out: Any


class AdamUpdate(NamedTuple):
    """The new values of a variable and of the two moments that belong to it."""

    out: Any
    m_out: Any
    v_out: Any


class BroadcastAxes(NamedTuple):
    """The axes over which the gradients of two arrays that were broadcast have to be summed."""

    r0: Any
    r1: Any


class Counted(NamedTuple):
    """The values that occur, where each element is among them, and how often each occurs."""

    y: Any
    idx: Any
    count: Any


class CrossEntropy(NamedTuple):
    """The loss of each row, and its gradient to the row's features."""

    loss: Any
    backprop: Any


class Found(NamedTuple):
    """The values that occur, and where each element is among them."""

    y: Any
    idx: Any


class FtrlUpdate(NamedTuple):
    """The new values of a variable, of its sums of squares, and of FTRL's sums of gradients."""

    out: Any
    accum_out: Any
    linear_out: Any


class MomentumUpdate(NamedTuple):
    """The new values of a variable and of its momentum."""

    out: Any
    accum_out: Any


class RMSPropUpdate(NamedTuple):
    """The new values of a variable, of the means of squares, and of its momentum."""

    out: Any
    ms_out: Any
    mom_out: Any


class CenteredRMSPropUpdate(NamedTuple):
    """The new values of a variable, of the means of gradients and of their squares, and of its momentum."""

    out: Any
    mg_out: Any
    ms_out: Any
    mom_out: Any


class AdadeltaUpdate(NamedTuple):
    """The new values of a variable, and of the means of the squares of gradients and of steps."""

    out: Any
    accum_out: Any
    accum_update_out: Any


class AdagradDAUpdate(NamedTuple):
    """The new values of a variable, and of the sums of gradients and of their squares."""

    out: Any
    gradient_accumulator_out: Any
    gradient_squared_accumulator_out: Any
