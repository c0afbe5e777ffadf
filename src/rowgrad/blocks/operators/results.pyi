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

class Counted(NamedTuple, Generic[A]):
    """The values that occur, where each element is among them, and how often each occurs."""

    y: A
    idx: A
    count: A  # type: ignore[assignment]

class CrossEntropy(NamedTuple, Generic[A]):
    """The loss of each row, and its gradient to the row's features."""

    loss: A
    backprop: A

class Found(NamedTuple, Generic[A]):
    """The values that occur, and where each element is among them."""

    y: A
    idx: A

class FtrlUpdate(NamedTuple, Generic[A]):
    """The new values of a variable, of its sums of squares, and of FTRL's sums of gradients."""

    out: A
    accum_out: A
    linear_out: A

class MomentumUpdate(NamedTuple, Generic[A]):
    """The new values of a variable and of its momentum."""

    out: A
    accum_out: A

class RMSPropUpdate(NamedTuple, Generic[A]):
    """The new values of a variable, of the means of squares, and of its momentum."""

    out: A
    ms_out: A
    mom_out: A

class CenteredRMSPropUpdate(NamedTuple, Generic[A]):
    """The new values of a variable, of the means of gradients and of their squares, and of its momentum."""

    out: A
    mg_out: A
    ms_out: A
    mom_out: A

class AdadeltaUpdate(NamedTuple, Generic[A]):
    """The new values of a variable, and of the means of the squares of gradients and of steps."""

    out: A
    accum_out: A
    accum_update_out: A

class AdagradDAUpdate(NamedTuple, Generic[A]):
    """The new values of a variable, and of the sums of gradients and of their squares."""

    out: A
    gradient_accumulator_out: A
    gradient_squared_accumulator_out: A
