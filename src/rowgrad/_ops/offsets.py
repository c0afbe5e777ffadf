"""Bags that are given by where each begins, as PyTorch's are: which bag does each entry belong to?"""

from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.catalogue import Example, Operator, declare
from rowgrad._ops.order import one_id_type
from rowgrad._ops.pins import Pin
from rowgrad._runtime.dtypes import IDS, Array
from rowgrad._runtime.memory import place
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError, OutOfRangeError, RowgradError

MOST_BAGS = np.iinfo(np.int32).max


def _spread(offsets: Array, count: Any, *, out: Array | None = None) -> Array:
    checks.rank("offsets", offsets, 1)
    size = checks.count("size", count)
    bags = offsets.size
    if bags == 0 and size > 0:
        raise InvalidArgumentError(
            f"offsets is empty, but there are {size} entries; each must belong to a bag. Begin with the offset 0.",
            code="bad-offset",
            argument="offsets",
        )
    if bags > MOST_BAGS:
        raise InvalidArgumentError(
            f"offsets has {bags} bags; at most {MOST_BAGS} can be numbered. Use fewer.",
            code="too-large",
            argument="offsets",
            value=bags,
        )
    segment_ids = place(out, (size,), np.dtype(np.int32), argument="size", zero=False)
    workers = Workers(4 * size + offsets.nbytes)
    bad = workers.run(
        kernels.offsets.spread, *one_id_type(offsets), size, segment_ids, np.empty(workers.chunks, np.int64)
    )
    if bad >= 0:
        raise _diagnose(offsets, int(bad), size)
    return segment_ids


def _diagnose(offsets: Array, position: int, size: int) -> RowgradError:
    value = int(offsets[position])
    if position == 0 and value != 0:
        return InvalidArgumentError(
            f"offsets[0] is {value}; the first bag begins at entry 0. Put a 0 in front.",
            code="bad-offset",
            argument="offsets",
            position=0,
            value=value,
        )
    if not 0 <= value <= size:
        return OutOfRangeError(
            f"offsets[{position}] is {value}; allowed: 0 to {size}, the number of entries. Fix the offset, or pass "
            "all entries.",
            code="bad-offset",
            argument="offsets",
            position=position,
            value=value,
        )
    if position == 0 or value >= int(offsets[position - 1]):
        return checks.changed("offsets")
    return InvalidArgumentError(
        f"offsets[{position}] is {value}, smaller than {int(offsets[position - 1])} before it; bags follow one "
        "another. Sort the offsets.",
        code="bad-offset",
        argument="offsets",
        position=position,
        value=value,
    )


declare(Operator(
    name="SegmentIdsFromOffsets",
    function="segment_ids_from_offsets",
    family="offsets",
    summary="The segment of each entry, from where each segment begins.",
    inputs=(
        Pin("offsets", "Tidx", "[S]", "Where each segment begins: 0 first, not decreasing, at most size."),
        Pin("size", "int64", "[]", "The number of entries."),
    ),
    outputs=(Pin("segment_ids", "int32", "[size]", "The segment of each entry, ascending."),),
    types={"Tidx": IDS},
    formula="segment_ids[i] = the last s with offsets[s] ≤ i",
    errors=(
        "InvalidArgumentError: offsets is not a vector, or empty while size is not 0",
        "InvalidArgumentError: size is not a scalar, or negative",
        "InvalidArgumentError: the first offset is not 0, or the offsets decrease",
        "InvalidArgumentError: there are more than 2**31 − 1 segments",
        "OutOfMemoryError: the result does not fit into memory",
        "OutOfRangeError: an offset is larger than size",
        "DTypeError: a type that is not listed",
    ),
    cost="O(S + size).",
    example=Example({"offsets": [0, 2, 2], "size": 5}, {"segment_ids": [0, 0, 2, 2, 2]},
                    note="Two offsets that are the same begin an empty segment."),
    compute=_spread,
    options=("out",),
    in_tensorflow=False,
))  # fmt: skip
