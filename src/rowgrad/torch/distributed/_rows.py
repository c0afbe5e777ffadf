"""The sum of compact gradients over ranks, for tables that every rank holds whole."""

from typing import Any

import numpy as np
import torch

from rowgrad._ops import OPERATORS, checks
from rowgrad._ops.results import RowGradient
from rowgrad._runtime import arrays
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import InvalidArgumentError, RowgradError
from rowgrad.torch.distributed._exchange import Exchange, Place
from rowgrad.torch.distributed._traffic import Traffic


def all_reduce_rows(
    gradient: RowGradient, rows: int, group: Any = None, *, timeout: float | None = None, traffic: Traffic | None = None
) -> RowGradient:
    """Sum the compact gradients of all ranks; each rank gets the whole sum, compact again.

    Each rank sums one range of rows, in the order of the ranks, and sends the sums to all others. The dense gradient is
    never made: the bytes sent are about twice those of the gradients.

    Parameters
    ----------
    gradient : RowGradient
        This rank's gradient: rows [n, ...] and their ascending ids [n], NumPy arrays or PyTorch tensors, of half,
        bfloat16, float32 or float64. It may be empty, but then still has the width and types of the others.
    rows : int
        The rows of the table.
    group : process group, optional
        The ranks that take part; by default all. Each must call this.
    timeout : float, optional
        Seconds after which an exchange fails, for the group of all ranks; by default the group's own timeout.
    traffic : Traffic, optional
        Counts the bytes sent.

    Returns
    -------
    RowGradient
        The sums of the rows that occur on any rank, the same bits on all. Half and bfloat16 are summed in float32.

    Raises
    ------
    InvalidArgumentError
        The ids do not ascend, or do not fit the rows or the table.
    PeerError
        This happened on another rank, or widths, types or tables differ.
    CommunicationError
        Another rank does not answer.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import torch.distributed as dist
    >>> from rowgrad import RowGradient
    >>> from rowgrad.torch.distributed import all_reduce_rows
    >>> path = os.path.join(tempfile.mkdtemp(), "meeting")
    >>> dist.init_process_group("gloo", init_method=f"file://{path}", rank=0, world_size=1)
    >>> all_reduce_rows(RowGradient(np.ones((2, 1)), np.array([3, 5])), rows=8).sorted_unique_indices
    array([3, 5])
    >>> dist.destroy_process_group()
    """
    exchange = Exchange(group, timeout=timeout, traffic=traffic)
    kind = arrays.kind_of(gradient.output)
    error = None
    try:
        values, ids = _checked(gradient, rows)
        settings = _settings(values, ids, rows)
    except RowgradError as wrong:
        error, settings = wrong, dict.fromkeys(_SETTINGS, 0)
    exchange.compare(settings, error)

    chunk = max(-(-rows // exchange.size), 1)
    ends = np.searchsorted(ids, np.arange(1, exchange.size + 1) * chunk)
    given = np.diff(ends, prepend=0).tolist()
    taken = [count for count, _, _ in exchange.headers(Place.SUMS, 1, [[count, 0, 0] for count in given])]
    to_sum = exchange.swap(arrays.TORCH.hand_back(ids), given, taken, "ids")
    parts = exchange.swap(arrays.TORCH.hand_back(values), given, taken, "gradients")
    exchange.done()
    total, found = OPERATORS["SparseSegmentSumGradV2"](parts, to_sum, torch.arange(len(to_sum)), rows)

    sizes = [count for count, _, _ in exchange.headers(Place.SUMS, 2, [[len(found), 0, 0]] * exchange.size)]
    output, ids_of_all = exchange.gather(total, sizes, "gradients"), exchange.gather(found, sizes, "ids")
    exchange.done()
    if kind is arrays.TORCH:
        return RowGradient(output, ids_of_all)
    adopted = arrays.TORCH.adopt
    back = arrays.NUMPY.hand_back if kind is None else kind.hand_back
    return RowGradient(back(adopted(output)), back(adopted(ids_of_all)))


_SETTINGS = ("rows", "the width of rows", "the type of rows", "the type of ids")


def _settings(values: Array, ids: Array, rows: int) -> dict[str, int]:
    # Types by their digits, so that the numbers do not depend on the process, as Python's hashes do.
    types = (int.from_bytes(str(array.dtype).encode()[:8]) for array in (values, ids))
    return dict(zip(_SETTINGS, (rows, _width(values), *types), strict=True))


def _width(values: Array) -> int:
    return int(np.prod(values.shape[1:], dtype=np.int64))


def _checked(gradient: RowGradient, rows: int) -> tuple[Array, Array]:
    operator = OPERATORS["SparseSegmentSumGradV2"]
    values, ids = operator.fitters[0].fit(gradient.output), operator.fitters[1].fit(gradient.sorted_unique_indices)
    checks.at_least_vector("output", values)
    checks.rank("sorted_unique_indices", ids, 1)
    checks.same_length("output", len(values), "sorted_unique_indices", len(ids))
    checks.count("rows", rows)
    if ids.size and not 0 <= ids[0] <= ids[-1] < rows:
        position = 0 if ids[0] < 0 else len(ids) - 1
        raise checks.out_of_range("sorted_unique_indices", position, int(ids[position]), rows, "rows",
                                  "index-out-of-range", "Pass the gradient of this table.")  # fmt: skip
    down = ids[1:] <= ids[:-1]
    if down.any():
        position = int(down.argmax()) + 1
        raise InvalidArgumentError(
            f"sorted_unique_indices[{position}] is {int(ids[position])}, not larger than {int(ids[position - 1])} "
            "before it; rows must ascend. Pass the result of a compact gradient.",
            code="unsorted-rows",
            argument="sorted_unique_indices",
            position=position,
            value=int(ids[position]),
        )
    return values, ids
