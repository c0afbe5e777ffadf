"""Row splits: where each row of a ragged tensor begins, and where the last one ends.

The checks of row splits, and what the families of ragged tensors say of their errors.
"""

from collections.abc import Sequence

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.memory import check_fits
from rowgrad.errors import InvalidArgumentError

NO_ROOM = "OutOfMemoryError: the result does not fit into memory"
TYPES = "DTypeError: a type that is not listed"
BAD_SPLITS = "InvalidArgumentError: row splits do not begin with 0, decrease, or do not end with the number of values"


def check_splits(name: str, row_splits: Array, values: int | None) -> Array:
    """The row splits as int64: from 0, not decreasing, up to the number of values where that is known."""
    checks.rank(name, row_splits, 1)
    splits = np.empty(row_splits.size, np.int64)
    longest = kernels.ragged_rows.copy_splits(row_splits, splits)
    if longest >= 0 and splits.size and (values is None or splits[-1] == values):
        return splits
    if splits.size == 0:
        raise bad_splits(name, "is empty; it must begin with 0", None, None)
    if splits[0] != 0:
        raise bad_splits(name, f"begins with {splits[0]}; it must begin with 0", 0, int(splits[0]))
    falls = splits[1:] < splits[:-1]
    if falls.any():
        at = int(falls.argmax()) + 1
        raise bad_splits(
            name, f"decreases from {splits[at - 1]} to {splits[at]} at {at}; it must not decrease", at, int(splits[at])
        )
    if values is not None and splits[-1] != values:
        raise bad_splits(name, f"ends with {splits[-1]}, but there are {values} values; both must be the same",
                          splits.size - 1, int(splits[-1]))  # fmt: skip
    return splits


def bad_splits(name: str, what: str, position: int | None, value: int | None) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{name} {what}. Pass the row splits of these values.",
        code="bad-offsets",
        argument=name.partition("[")[0],
        position=position,
        value=value,
    )


def row_ids(splits: Array, argument: str = "row_splits") -> Array:
    """The row of each value."""
    check_fits((int(splits[-1]),), splits.dtype, argument)
    return np.repeat(np.arange(splits.size - 1), np.diff(splits))


def check_nested(name: str, nested: Sequence[Array], values: int) -> list[Array]:
    """The splits of several levels, outermost first: each counts the rows of the next one."""
    if not nested:
        raise InvalidArgumentError(
            f"{name} is empty; a ragged tensor has row splits for one dimension or more.",
            code="bad-offsets",
            argument=name,
        )
    inner = [*(splits.size - 1 for splits in nested[1:]), values]
    return [
        check_splits(f"{name}[{at}]", splits, count)
        for at, (splits, count) in enumerate(zip(nested, inner, strict=True))
    ]
