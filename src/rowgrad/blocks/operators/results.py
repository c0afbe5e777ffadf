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


class CrossEntropy(NamedTuple):
    """The loss of each row, and its gradient to the row's features."""

    loss: Any
    backprop: Any
