"""Which kernel XLA calls for an operator, and for which types: the calls that are finished without Python.

An entry of `KERNELS` is made from the types of a call's arrays (inputs, then outputs), the vectors that fit its columns
and whether its result is padded. It names a kernel, the number that the kernel is passed, and the types that it is
compiled for; None leaves such calls to Python.
"""

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._kernels.kinds import MEAN, SQRT_N, SUM
from rowgrad._ops.shapes import is_open
from rowgrad._runtime import dtypes
from rowgrad.jax._call import Call

KINDS = {"Sum": SUM, "Mean": MEAN, "SqrtN": SQRT_N}


class Types(NamedTuple):
    """The types of a call: of its arrays, those that values are stored and summed in, and the vectors for its columns.

    `vector` is the number of lanes, negative if that is the number of columns.
    """

    arrays: tuple[str, ...]
    stored: "np.dtype[Any]"
    sums: "np.dtype[Any]"
    vector: int
    is_padded: bool

    def stored_in(self, position: int) -> "np.dtype[Any]":
        """How the array at `position` is stored, as kernels see it."""
        dtype = dtypes.NUMPY[self.arrays[position]]
        return dtypes.summing(dtype).stored if dtype.kind in "fiuV" or dtype == dtypes.BFLOAT16 else dtype

    @property
    def is_in_place(self) -> bool:
        """Whether sums are made in the type that values are stored in."""
        return self.stored == self.sums

    @property
    def lanes(self) -> "Lanes":
        """What tells a kernel how wide its vectors are."""
        return Lanes(self.sums, abs(self.vector).bit_length())


class Lanes(NamedTuple):
    """An array whose number of dimensions tells the width of vectors (see `lanes.lanes_for`)."""

    dtype: "np.dtype[Any]"
    ndim: int


class Native(NamedTuple):
    """A kernel, its module, the number that it is passed, and what it is told: types, None or True."""

    module: str
    name: str
    setting: int
    told: tuple[Any, ...]


Choice = Callable[[Types, dict[str, Any]], Native | None]
KERNELS: dict[str, Choice] = {}


def vector(call: Call) -> int:
    """How many lanes vectors have that fit the columns of a call; negative if there are as many columns."""
    pins = call.operator.inputs
    arrays = [pin for pin, count in zip(pins, call.counts, strict=True) if count is None]
    if call.name not in KERNELS or not arrays or call.shapes[0][1] not in (*dtypes.FLOATS, *dtypes.INTEGERS):
        return 0
    known = [*zip(arrays, call.shapes, strict=True), *zip(call.operator.outputs, call.results, strict=True)]
    rests = [shape[1:] for pin, (shape, _) in known if is_open(pin)]
    if not all(isinstance(size, int) for rest in rests for size in rest):
        return 1
    width = min((prod(map(int, rest)) for rest in rests), default=1)  # type: ignore[arg-type]
    lanes: int = kernels.lanes.lane_count(
        kernels.lanes.lanes_for(dtypes.summing(dtypes.NUMPY[call.shapes[0][1]]).sums, width)
    )
    return -lanes if lanes == width else lanes


@lru_cache(maxsize=4096)
def _address(native: Native) -> int:
    from numba import from_dtype, types

    told = kernels.xla_frame.Told

    def typed(kind: Any) -> Any:
        if kind is None:
            return types.none
        if kind is True:
            return types.boolean
        if isinstance(kind, Lanes):
            return told(types.Array(from_dtype(kind.dtype), kind.ndim, "C"))
        return told(types.Array(from_dtype(kind), 1, "C"))

    dispatcher = getattr(getattr(kernels, native.module), native.name)
    return int(kernels.compile.ready(dispatcher, (types.int64,) * 3 + tuple(map(typed, native.told))))


def kernel_for(name: str, settings: dict[str, Any], arrays: list[str], is_padded: bool, lanes: int) -> (
        tuple[int, int] | None):  # fmt: skip
    """The address of the kernel for such a call, and its setting; None where Python does it."""
    if name not in KERNELS or not lanes:
        return None
    stored, sums, _ = dtypes.summing(dtypes.NUMPY[arrays[0]])
    native = KERNELS[name](Types(tuple(arrays), stored, sums, lanes, is_padded), settings)
    return None if native is None else (_address(native), native.setting)


def _pooled(kind: str) -> Choice:
    def choose(types: Types, settings: dict[str, Any]) -> Native:
        wide, scaled = None if types.vector < 0 else True, None if kind == "Sum" else True
        told = types.stored, types.stored_in(1), types.stored_in(2), types.lanes, wide, scaled
        return Native("xla_pool", "pool", KINDS[kind], told)

    return choose


def _gradient(kind: str, further: int, is_swapped: bool = False) -> Choice:
    def choose(types: Types, settings: dict[str, Any]) -> Native:
        rows, partners = types.stored_in(1), types.stored_in(2)
        if is_swapped:
            rows, partners = partners, rows
        unique = types.stored_in(4) if types.is_padded else None
        told = types.stored, rows, partners, types.lanes, unique, True if types.is_in_place else None
        return Native("xla_gradients", "gradient", KINDS[kind] | further, told)

    return choose


def _weighted(is_swapped: bool) -> Choice:
    def choose(types: Types, settings: dict[str, Any]) -> Native | None:
        if dtypes.summing(dtypes.NUMPY[types.arrays[1]]).sums != types.sums:
            return None
        targets, sources = types.stored_in(2), types.stored_in(3)
        if is_swapped:
            targets, sources = sources, targets
        unique = types.stored_in(5) if types.is_padded else None
        told = types.stored, targets, sources, types.lanes, unique, types.stored_in(1)
        return Native("xla_gradients", "weighted", SWAPPED if is_swapped else 0, told)

    return choose


def _dots(types: Types, settings: dict[str, Any]) -> Native | None:
    output = dtypes.NUMPY[types.arrays[4]]
    if output not in (types.sums, dtypes.NUMPY[types.arrays[0]]):
        return None
    told = types.stored, types.stored_in(2), types.stored_in(3), types.sums, types.stored_in(4)
    return Native("xla_pool", "dots", 0, told)


def _largest(types: Types, settings: dict[str, Any]) -> Native:
    chosen = None if types.arrays[4] == "int64" else types.stored_in(4)
    told = types.stored, types.stored_in(1), types.stored_in(2), types.lanes, chosen
    return Native("xla_pool", "largest", 0, told)


def _segment_types(types: Types) -> tuple[Any, ...]:
    reduction = Lanes(np.dtype(bool), kernels.segments.ADD + 1)  # as `segments.kind_of` tells it
    return types.stored, types.stored_in(1), types.lanes, reduction, types.sums


def _sorted_sum(types: Types, settings: dict[str, Any]) -> Native | None:
    if types.arrays[0] not in dtypes.FLOATS:
        return None
    is_packed = types.is_in_place and abs(types.vector) * types.sums.itemsize >= kernels.xla_segments.PACKET
    return Native("xla_segments", "sum_sorted", 0, (*_segment_types(types), True if is_packed else None))


def _unsorted_sum(kind: str) -> Choice:
    def choose(types: Types, settings: dict[str, Any]) -> Native | None:
        if types.arrays[0] not in dtypes.FLOATS:
            return None
        in_place = True if types.is_in_place and kind == "Sum" else None
        return Native("xla_segments", "sum_unsorted", KINDS[kind], (*_segment_types(types), in_place))

    return choose


def _taken(kind: str) -> Choice:
    def choose(types: Types, settings: dict[str, Any]) -> Native | None:
        if types.arrays[0] not in dtypes.FLOATS:
            return None
        return Native("xla_segments", "take", KINDS[kind], (types.stored, types.stored_in(1), types.lanes, types.sums))

    return choose


def _filled(types: Types, settings: dict[str, Any]) -> Native | None:
    if types.arrays[1] not in dtypes.FLOATS:
        return None
    stored, sums, _ = dtypes.summing(dtypes.NUMPY[types.arrays[1]])
    return Native("xla_segments", "fill_gradient", 0, (stored, types.stored_in(0), sums))


def _sliced(*, forwards: bool) -> Choice:
    def choose(types: Types, settings: dict[str, Any]) -> Native | None:
        if types.arrays[0] not in dtypes.FLOATS or len(set(types.arrays[1:4])) > 1:
            return None
        words = np.dtype(f"u{types.stored.itemsize}")  # values are copied, never looked at
        return Native("xla_segments", "sliced", 0, (words, types.stored_in(1), True if forwards else None))

    return choose


BY_ROW, SWAPPED = 4, 8  # as in `xla_gradients`
for _kind in KINDS:
    KERNELS[f"SparseSegment{_kind}"] = KERNELS[f"SparseSegment{_kind}WithNumSegments"] = _pooled(_kind)
    KERNELS[f"SparseSegment{_kind}Grad"] = KERNELS[f"SparseSegment{_kind}GradV2"] = _gradient(_kind, 0)
    KERNELS[f"UnsortedSegment{_kind}"], KERNELS[f"Segment{_kind}Grad"] = _unsorted_sum(_kind), _taken(_kind)
    KERNELS[f"SparseSegment{_kind}GradGrad"] = _gradient(_kind, BY_ROW | SWAPPED, is_swapped=True)
KERNELS["SparseSegmentWeightedSum"] = _weighted(is_swapped=True)
KERNELS["SparseSegmentWeightedSumGradV2"] = _weighted(is_swapped=False)
KERNELS["RowDot"] = _dots
KERNELS["SparseSegmentMax"] = _largest
KERNELS["SegmentSumV2"] = _sorted_sum
KERNELS["SparseFillEmptyRowsGrad"] = KERNELS["RaggedFillEmptyRowsGrad"] = _filled
KERNELS["SparseSliceGrad"], KERNELS["SparseSliceGradGrad"] = _sliced(forwards=False), _sliced(forwards=True)
