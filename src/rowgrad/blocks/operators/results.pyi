"""Written by `make docs` from the catalogue; do not edit."""

from typing import Any, Generic, NamedTuple

from typing_extensions import TypeVar

A = TypeVar("A", default=Any)

class AdagradUpdate(NamedTuple, Generic[A]):
    """The new values of a variable and of the sums of squares that belong to it."""

    out: A
    accum_out: A

class AdamUpdate(NamedTuple, Generic[A]):
    """The new values of a variable and of the two moments that belong to it."""

    out: A
    m_out: A
    v_out: A

class BroadcastAxes(NamedTuple, Generic[A]):
    """The axes over which the gradients of two arrays that were broadcast have to be summed."""

    r0: A
    r1: A

class CrossEntropy(NamedTuple, Generic[A]):
    """The loss of each row, and its gradient to the row's features."""

    loss: A
    backprop: A
