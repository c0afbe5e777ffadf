"""The operators made of PyTorch's own: the way for devices on which rowgrad has no kernels.

Results are those of the kernels up to rounding (sums are made in another order); half and bfloat16 are summed in
float32 and rounded once here too. Ids are checked by one question to the device, which waits for it. One file per
family; `PATHS` holds them by operator.
"""

from collections.abc import Callable
from typing import Any

from rowgrad._ops import Operator
from rowgrad.errors import RowgradError
from rowgrad.torch._portable import fill_empty_rows, offsets, segment_max, sparse_segment, sparse_slice, weighted_sum

PATHS: dict[str, Callable[..., Any]] = {
    name: path
    for family in (sparse_segment, fill_empty_rows, sparse_slice, weighted_sum, segment_max, offsets)
    for name, path in family.PATHS.items()
}


def call(operator: Operator, path: Callable[..., Any], values: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Run `path`; errors say which operator it was."""
    passed = {a.name: attributes[a.name] for a in operator.attributes if a.passed}
    try:
        return path(*values, **passed)
    except RowgradError as error:
        error.op = error.op or operator.name
        raise
