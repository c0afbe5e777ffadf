"""Plans: the sorted order of a batch's ids, made once and used again.

Sorting is most of what a segment gradient costs for narrow tables. The order depends on the ids alone, so one plan
serves several tables that are fed by the same ids, dense and compact gradients, forward and backward, and every
batch that repeats.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad._ops import checks
from rowgrad._ops.order import COUNT_PARTNERS, Order, order_ids
from rowgrad._ops.pins import Input
from rowgrad._ops.row_sums import diagnose
from rowgrad._ops.sparse_segment_grad import INDICES, SEGMENT_IDS
from rowgrad._runtime.threads import Workers
from rowgrad.errors import DTypeError, InvalidArgumentError

if TYPE_CHECKING:
    from rowgrad._ops.catalogue import Operator
    from rowgrad._runtime.dtypes import Array

_INDICES = Input(INDICES, ("int32", "int64"))
_SEGMENT_IDS = Input(SEGMENT_IDS, ("int32", "int64"))


class Plan:
    """Sorted ids, made by `rowgrad.plan`. A plan is immutable, and threads may share it.

    Attributes
    ----------
    rows : int
        The number of rows of the table.
    segments : int
        The number of segments.
    size : int
        The number of entries.
    distinct : int
        The number of distinct rows that occur.
    """

    __slots__ = ("_indices", "_segment_ids", "order", "rows", "segments")

    def __init__(self, indices: "Array", segment_ids: "Array", rows: int, segments: int, order: Order) -> None:
        self._indices = indices
        self._segment_ids = segment_ids
        self.rows = rows
        self.segments = segments
        self.order = order

    @property
    def size(self) -> int:
        return self._indices.size

    @property
    def distinct(self) -> int:
        return self.order.distinct

    def __repr__(self) -> str:
        return f"Plan({self.size} entries, {self.distinct} of {self.rows} rows, {self.segments} segments)"

    def complete(self, operator: "Operator", values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of `operator` with the plan's ids in place of None; other ids must be the same."""
        own = {"indices": self._indices, "segment_ids": self._segment_ids}
        completed = []
        for fitter, value in zip(operator.fitters, values, strict=True):
            name = fitter.pin.name
            if name in own and value is not own[name]:
                if value is not None and not np.array_equal(fitter.fit(value), own[name]):
                    raise self._misfit(name, "are not the ids that the plan was made of")
                value = own[name]
            completed.append(value)
        return tuple(completed)

    def check(self, rows_name: str, rows: int, segments_name: str, segments: int) -> None:
        """The table must be the one that was planned for, and have room for all segments."""
        if rows != self.rows:
            raise self._misfit(rows_name, f"is {rows}, but the plan was made for {self.rows} rows")
        if segments < self.segments:
            raise self._misfit(segments_name, f"has {segments} rows, but the plan has {self.segments} segments")

    @staticmethod
    def _misfit(argument: str, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"{argument} {what}. Make a plan for this call, or leave it out.", code="wrong-plan", argument=argument
        )


def plan(indices: Any, segment_ids: Any, rows: int, segments: int | None = None) -> Plan:
    """Sort ids once, for many calls: pass the result as ``plan=`` to the segment functions.

    Parameters
    ----------
    indices : int32 or int64, shape [N]
        The table row of each entry.
    segment_ids : int32 or int64, shape [N]
        The segment of each entry.
    rows : int
        The number of rows of the table.
    segments : int, optional
        The number of segments; by default the largest id + 1.

    Returns
    -------
    Plan
        It refers to the ids; do not change them while it is in use.

    Raises
    ------
    InvalidArgumentError
        The ids are not vectors, differ in length, or a size is negative.
    OutOfRangeError
        An index is not in [0, rows), or a segment id not in [0, segments).
    DTypeError
        The ids are not integers.

    Examples
    --------
    >>> import rowgrad
    >>> made = rowgrad.plan([7, 1, 7], [0, 0, 1], rows=1000)
    >>> made
    Plan(3 entries, 2 of 1000 rows, 2 segments)
    >>> for grad in ([[1.0], [2.0]], [[3.0], [4.0]]):
    ...     print(rowgrad.sparse_segment_sum_grad_v2(grad, None, None, 1000, plan=made).output.tolist())
    [[1.0], [3.0]]
    [[3.0], [7.0]]
    """
    index_array, id_array = _INDICES.fit(indices), _SEGMENT_IDS.fit(segment_ids)
    checks.rank("indices", index_array, 1)
    checks.rank("segment_ids", id_array, 1)
    checks.same_length("segment_ids", id_array.size, "indices", index_array.size)
    if segments is None:
        segments = int(id_array.max(initial=-1)) + 1
    for name, number in (("rows", rows), ("segments", segments)):
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            raise DTypeError(f"{name} is {number!r}; it must be a whole number.", code="wrong-dtype", argument=name)
        checks.count(name, int(number))
    workers = Workers(index_array.size * 64)
    order = order_ids(workers, index_array, id_array, int(rows), int(segments), counted=COUNT_PARTNERS, keep=True)
    if order.bad >= 0:
        raise diagnose(order.bad, index_array, id_array, int(rows), "rows", int(segments), "segments")
    return Plan(index_array, id_array, int(rows), int(segments), order)
