"""Optimizers that touch only the rows of a table that a gradient has.

`step` takes a compact gradient, `step_pooled` what the gradient is made of: then each row is summed and changed in
one pass, and the gradient is never in memory.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad import dtypes, kernels
from rowgrad.errors import DTypeError, InvalidArgumentError, RowgradError
from rowgrad.kernels.kinds import MEAN, SQRT_N, SUM
from rowgrad.memory import small_work
from rowgrad.ops import OPERATORS, checks
from rowgrad.ops.pins import fit_out
from rowgrad.ops.sparse_segment_grad import check_pairs, factors_of, sort_pairs
from rowgrad.threads import Crew

if TYPE_CHECKING:
    from rowgrad.dtypes import Array
    from rowgrad.ops.results import RowGradient
    from rowgrad.plan import Plan

COMBINERS = {"sum": SUM, "mean": MEAN, "sqrtn": SQRT_N}


class SGD:
    """Gradient descent: row −= lr · gradient.

    Half and bfloat16 rows are computed in float32 and rounded once.

    Parameters
    ----------
    lr : float
        The learning rate.

    Examples
    --------
    >>> import numpy as np
    >>> import rowgrad
    >>> from rowgrad.optim import SGD
    >>> table = np.zeros((4, 2), np.float32)
    >>> SGD(lr=0.5).step_pooled(table, [[2.0, 4.0]], [1, 3], [0, 0], combiner="mean")
    >>> print(table)
    [[ 0.   0. ]
     [-0.5 -1. ]
     [ 0.   0. ]
     [-0.5 -1. ]]
    """

    def __init__(self, lr: float) -> None:
        if isinstance(lr, bool) or not isinstance(lr, int | float) or not np.isfinite(lr):
            raise InvalidArgumentError(
                f"lr is {lr!r}; the learning rate is a finite number.", code="bad-lr", argument="lr", value=lr
            )
        self.lr = float(lr)

    def __repr__(self) -> str:
        return f"SGD(lr={self.lr})"

    def step(self, table: Any, gradient: "RowGradient") -> None:
        """Change the rows of `table` (a NumPy array or PyTorch tensor, in place) by a compact gradient.

        Raises `InvalidArgumentError` or `OutOfRangeError` if the gradient's rows do not ascend or do not fit the
        table; then nothing is changed.
        """
        operator = OPERATORS["SparseSegmentSumGradV2"]
        grad_pin, rows_pin = operator.fitters[0], operator.fitters[1]
        target, grads, rows = _table(table), grad_pin.fit(gradient.output), rows_pin.fit(gradient.sorted_unique_indices)
        checks.rank("sorted_unique_indices", rows, 1)
        checks.at_least_vector("output", grads)
        checks.same_length("output", grads.shape[0], "sorted_unique_indices", rows.size)
        _check_table(target, grads)
        if rows.size == 0 or target.size == 0:
            return
        stored, sums, _ = dtypes.summing(target.dtype)
        crew = Crew(2 * grads.nbytes)
        bad = crew.run(
            kernels.optim.descend, *kernels.ids.halves(rows), rows.size, target.shape[0],
            grads.reshape(-1).view(stored), target.size // target.shape[0], self.lr, small_work(sums)[1],
            target.reshape(-1).view(stored), np.empty(crew.chunks, np.int64),
        )  # fmt: skip
        if bad >= 0:
            raise _bad_row(rows, bad, target.shape[0])

    def step_pooled(self, table: Any, grad: Any, indices: Any, segment_ids: Any, *, combiner: str = "mean",
                    plan: "Plan | None" = None) -> None:  # fmt: skip
        """Change the rows of `table` by the gradient of its pooled look-up, without making the gradient.

        The table ends as after `step` with `sparse_segment_…_grad_v2(grad, indices, segment_ids, len(table))`, bit for
        bit for float32 and float64; for half and bfloat16 the sums are not rounded in between. `plan` is as there.
        """
        if combiner not in COMBINERS:
            raise InvalidArgumentError(
                f"combiner is {combiner!r}; it must be one of {', '.join(COMBINERS)}.",
                code="bad-combiner",
                argument="combiner",
                value=combiner,
            )
        target = _table(table)
        operator = OPERATORS["SparseSegmentMeanGradV2"]
        if plan is not None:
            _, indices, segment_ids, _ = plan.complete(operator, (grad, indices, segment_ids, 0))
        grads, rows, segments = (
            fitter.fit(value) for fitter, value in zip(operator.fitters, (grad, indices, segment_ids), strict=False)
        )
        check_pairs(grads, rows, segments, "rows", target.shape[0])
        _check_table(target, grads)
        if rows.size == 0 or target.size == 0:
            return
        kind = COMBINERS[combiner]
        crew, order = sort_pairs(kind, grads, rows, segments, target.shape[0], "rows of the table", plan)
        factors = factors_of(crew, kind, order, grads.dtype)
        if order.row_names is not None:
            raise InvalidArgumentError("table and grad have too many rows for one pass.", code="too-large")
        stored, sums, _ = dtypes.summing(target.dtype)
        width = target.size // target.shape[0]
        block = kernels.optim.BLOCK * crew.chunks
        crew.run(
            kernels.optim.descend_pooled, order.words, order.shift, grads.reshape(-1).view(stored), width, *factors,
            self.lr, target.reshape(-1).view(stored), np.empty(block * width, sums), np.empty(2 * block, np.int32),
        )  # fmt: skip


def _table(table: Any) -> "Array":
    try:
        array = fit_out(table)
    except RowgradError as error:
        error.argument = "table"
        error.message = error.message.replace("out", "table", 1)
        raise
    checks.at_least_vector("table", array)
    return array


def _check_table(table: "Array", grad: "Array") -> None:
    if table.dtype != grad.dtype:
        raise DTypeError(
            f"the table is {dtypes.name_of(table.dtype)} and the gradient {dtypes.name_of(grad.dtype)}; they must be "
            "of the same type. Convert the gradient.",
            code="wrong-dtype",
            argument="grad",
            value=dtypes.name_of(grad.dtype),
        )
    if table.shape[1:] != grad.shape[1:]:
        raise InvalidArgumentError(
            f"a row of the table has shape {list(table.shape[1:])}, a row of the gradient {list(grad.shape[1:])}; they "
            "must be the same.",
            code="wrong-shape",
            argument="grad",
            value=grad.shape,
        )
    if np.may_share_memory(table, grad):
        raise InvalidArgumentError(
            "the table shares memory with the gradient, which would change while it is read. Pass a copy.",
            code="bad-out",
            argument="table",
        )


def _bad_row(rows: "Array", position: int, limit: int) -> RowgradError:
    row = int(rows[position])
    if 0 <= row < limit:
        return InvalidArgumentError(
            f"sorted_unique_indices[{position}] is {row}, not larger than {int(rows[position - 1])} before it; rows "
            "must ascend. Pass what a compact gradient gives.",
            code="unsorted-rows",
            argument="sorted_unique_indices",
            position=position,
            value=row,
        )
    return checks.out_of_range("sorted_unique_indices", position, row, limit, "the number of rows of the table",
                               "index-out-of-range", "Pass the gradient of this table.")  # fmt: skip
