"""Join sparse tensors along a dimension, and cut one into parts: SparseConcat and SparseSplit.

TensorFlow's SparseSplit gives lists, which no block can have as a result; blocks give one part each.
"""

from typing import Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.broadcasting import Known, Result, of_rank, one_axis
from rowgrad._ops.catalogue import OPERATORS, REQUIRED, Attribute, Example, Operator, declare, first_kind
from rowgrad._ops.pins import INT64_MAX, Pin
from rowgrad._ops.reorder import reorder, reorder_grad
from rowgrad._ops.results import SparseEntries
from rowgrad._ops.sparse_groups import check_entries, outside, sizes_of
from rowgrad._runtime import arrays, dtypes
from rowgrad._runtime.dtypes import PLAIN, Array
from rowgrad._runtime.limits import available
from rowgrad._runtime.memory import LARGE, allocate, check_room, scratch
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError, OutOfMemoryError, OutOfRangeError, RowgradError

PART = 512  # bytes, about, that a part takes, whatever its entries
TABLE = 1 << 17  # the most indices that a table of parts is made for
APART = 8  # words; a cache line

# SparseConcat


def _concat(indices: tuple[Array, ...], values: tuple[Array, ...], shapes: tuple[Array, ...], *,
            concat_dim: int) -> SparseEntries:  # fmt: skip
    joined, output_shape = _moved(indices, values, shapes, concat_dim)
    return SparseEntries(*reorder(joined, np.concatenate([*values]), output_shape), output_shape)


def _moved(indices: tuple[Array, ...], values: tuple[Array, ...], shapes: tuple[Array, ...],
           concat_dim: int) -> tuple[Array, Array]:  # fmt: skip
    """The indices of all entries in the result, not yet in order, and its shape."""
    shape, offsets = _joined(indices, values, shapes, concat_dim)
    axis = concat_dim % len(shape)
    total = sum(map(len, indices))
    check_room(total * 8 * (len(shape) + 1), "indices")
    joined = np.concatenate([*indices]).astype(np.int64, copy=False)
    start = 0
    for part, offset in zip(indices, offsets, strict=True):
        if offset:
            joined[start : start + len(part), axis] += offset
        start += len(part)
    return joined, np.array(shape, np.int64)


def _concat_places(indices: tuple[Array, ...], shapes: tuple[Array, ...], *, concat_dim: int, index: int = 0) -> Array:
    checks.same_length("shapes", len(shapes), "indices", len(indices))
    if not 0 <= index < len(indices):
        raise OutOfRangeError(
            f"index is {index}; allowed: 0 to {len(indices) - 1} (there are {len(indices)} tensors). Choose one.",
            code="bad-split",
            argument="index",
            value=index,
        )
    nothing = tuple(np.empty(part.shape[:1], np.int8) for part in indices)
    joined, output_shape = _moved(indices, nothing, shapes, concat_dim)
    places: Array = reorder_grad(np.arange(len(joined)), joined, output_shape)
    start = sum(map(len, indices[:index]))
    return np.array(places[start : start + len(indices[index])])


def _places_shape(shapes: Known, values: Known, attributes: Known) -> Result:
    parts, index = shapes.get("indices") or (), attributes.get("index") or 0
    part = parts[index] if 0 <= index < len(parts) else None
    return {"places": (of_rank("indices", part, 2)[0],)}


def _joined(indices: tuple[Array, ...], values: tuple[Array, ...], shapes: tuple[Array, ...],
            concat_dim: int) -> tuple[tuple[int, ...], list[int]]:  # fmt: skip
    """The shape of the result, and where each part begins along the dimension that they are joined along."""
    for name, others in (("values", values), ("shapes", shapes)):
        checks.same_length(name, len(others), "indices", len(indices))
    rank = shapes[0].size
    for position, shape in enumerate(shapes):
        if shape.ndim == 1 and shape.size != rank:
            raise InvalidArgumentError(
                f"shapes[{position}] has {shape.size} elements, but shapes[0] has {rank}; all must have the same "
                "rank. Reshape one of them.",
                code="length-mismatch",
                argument="shapes",
                position=position,
                value=shape.size,
            )
    for position, (part, entries, shape) in enumerate(zip(indices, values, shapes, strict=True)):
        try:
            check_entries("values", entries, part, shape, "")
        except InvalidArgumentError as error:
            error.position = position
            error.message = f"tensor {position}: {error.message}".replace("shape has", "shapes has")
            error.argument = "shapes" if error.argument == "shape" else error.argument
            raise
    axis = one_axis("concat_dim", concat_dim, rank)
    first = sizes_of("shapes", shapes[0])
    offsets, total = [], 0
    for position, shape in enumerate(shapes):
        found = sizes_of("shapes", shape)
        for d in range(rank):
            if d != axis and found[d] != first[d]:
                raise InvalidArgumentError(
                    f"shapes[{position}] is {list(found)}, but shapes[0] is {list(first)}; they may differ in "
                    f"dimension {axis} only, along which they are joined.",
                    code="shape-mismatch",
                    argument="shapes",
                    position=position,
                    value=found,
                )
        offsets.append(total)
        total += found[axis]
    if total > INT64_MAX:
        raise InvalidArgumentError(
            f"the tensors have {total} places along dimension {axis}, more than can be counted. Join fewer of them.",
            code="too-large",
            argument="shapes",
            value=total,
        )
    return tuple(total if d == axis else size for d, size in enumerate(first)), offsets


def _concat_shapes(shapes: Known, values: Known, attributes: Known) -> Result:
    ranks = [of_rank("shapes", shape, 1)[0] for shape in shapes.get("shapes") or ()]
    rank = next((size for size in ranks if isinstance(size, int)), None)
    counts = [of_rank("values", shape, 1)[0] for shape in shapes.get("values") or (None,)]
    count = sum(n for n in counts if isinstance(n, int)) if all(isinstance(n, int) for n in counts) else None
    return {"output_indices": (count, rank), "output_values": (count,), "output_shape": (rank,)}


# SparseSplit


class SplitEntries(NamedTuple):
    """The parts of a sparse tensor: a list of each."""

    output_indices: Any
    output_values: Any
    output_shape: Any


def split(split_dim: Any, indices: Array, values: Array, shape: Array, *, num_split: int) -> list[SparseEntries]:
    """All parts, in one pass."""
    check_entries("values", values, indices, shape, "")
    lengths = sizes_of("shape", shape)
    axis = one_axis("split_dim", checks.count("split_dim", split_dim, least=None), len(lengths))
    if not 1 <= num_split <= lengths[axis]:
        raise OutOfRangeError(
            f"num_split is {num_split}; allowed: 1 to {lengths[axis]} (shape[{axis}]). Choose fewer parts.",
            code="bad-split",
            argument="num_split",
            value=num_split,
        )
    entries, rank = indices.shape
    if num_split * PART >= LARGE and num_split * PART > (free := available()):
        raise OutOfMemoryError(
            f"num_split is {num_split}; so many parts need {num_split * PART:,} bytes, and about {free:,} are free.",
            code="out-of-memory",
            argument="num_split",
            value=num_split,
        )
    size, longer = divmod(lengths[axis], num_split)
    workers = Workers(entries * (16 * rank + 24))
    counts = -(-(num_split + 1) // APART) * APART + APART  # of a chunk, so that no two threads write to one line
    check_room(counts * workers.chunks * 8, "num_split")
    kind = np.uint8 if num_split <= 256 else np.int32 if num_split < 2**31 else np.int64
    # A small table of parts is faster than a division for each entry.
    table = np.empty(lengths[axis] if lengths[axis] <= TABLE else 0, kind)
    is_text = values.dtype.kind in "USOT"
    source = np.arange(entries) if is_text else values
    words, width = dtypes.as_words(source)
    found, taken = allocate((entries, rank), np.int64), allocate((entries,), source.dtype)
    limits, ends = np.array(lengths), np.empty(num_split, np.int64)
    if workers.run(kernels.sparse_join.cut, indices.reshape(-1), None if rank == 2 else rank, axis, limits, size,
                   longer, num_split, table, scratch(entries, kind),
                   np.empty(workers.chunks * counts, np.int64), words, None if width == 1 else width, ends,
                   found.reshape(-1), dtypes.as_words(taken)[0]):  # fmt: skip
        raise outside("indices", indices, lengths, range(rank), "shape")
    shapes = np.empty((num_split, rank), np.int64)
    shapes[:] = limits
    shapes[:, axis] = size
    shapes[:longer, axis] += 1
    results, start = [], 0
    for end, after in zip(ends.tolist(), shapes, strict=True):
        kept = values[taken[start:end]] if is_text else taken[start:end]
        results.append(SparseEntries(found[start:end], kept, after))
        start = end
    return results


def _check_part(index: int, num_split: int) -> None:
    if not 0 <= index < num_split:
        raise OutOfRangeError(
            f"index is {index}; allowed: 0 to {num_split - 1} (num_split is {num_split}). Choose one of the parts.",
            code="bad-split",
            argument="index",
            value=index,
        )


def _one_part(split_dim: Any, indices: Array, values: Array, shape: Array, *, num_split: int,
              index: int = 0) -> SparseEntries:  # fmt: skip
    parts = split(split_dim, indices, values, shape, num_split=num_split)
    _check_part(index, num_split)
    return SparseEntries(*(np.array(array) for array in parts[index]))


def split_all(split_dim: Any, indices: Any, values: Any, shape: Any, *, num_split: int, name: Any = None) -> Any:
    """Cut a sparse tensor into parts along one dimension, as TensorFlow's SparseSplit: a list of each output.

    Parameters
    ----------
    split_dim : scalar
        The dimension along which to split; negative ones count from the last.
    indices : array
        The index of each entry, in any order.
    values : array
        The value of each entry.
    shape : array
        The shape of the tensor.
    num_split : int
        The number of parts; with a remainder, the first parts are longer by one.

    Returns
    -------
    SplitEntries
        `output_indices`, `output_values` and `output_shape`, a list of `num_split` arrays each.

    Examples
    --------
    >>> from rowgrad import raw_ops
    >>> raw_ops.SparseSplit(0, [[0], [3]], [1.0, 2.0], [4], num_split=2).output_values
    [array([1.], dtype=float32), array([2.], dtype=float32)]
    """
    operator = OPERATORS["SparseSplitPart"]
    given = (split_dim, indices, values, shape)
    try:
        settings = check_attributes(operator, {"num_split": num_split})
        parts = split(*operator.fitted(given), num_split=settings["num_split"])
    except RowgradError as error:
        error.op = "SparseSplit"
        raise
    kind = first_kind(given)
    if kind is arrays.NUMPY:
        return SplitEntries(*map(list, zip(*parts, strict=True)))
    return SplitEntries(*([kind.hand_back(array) for array in each] for each in zip(*parts, strict=True)))


def _split_shapes(shapes: Known, values: Known, attributes: Known) -> Result:
    _, rank = of_rank("indices", shapes.get("indices"), 2)
    return {"output_indices": (None, rank), "output_values": (None,), "output_shape": (rank,)}


# Declarations

NO_ROOM = "OutOfMemoryError: the result does not fit into memory"
WRONG_TYPE = "DTypeError: a type that is not listed"
OUTPUTS = (
    Pin("output_indices", "int64", "[M, rank]", "The index of each entry of the result."),
    Pin("output_values", "T", "[M]", "Its value."),
    Pin("output_shape", "int64", "[rank]", "The shape of the result."),
)

declare(Operator(
    name="SparseConcat",
    function="sparse_concat",
    family="sparse_join",
    summary="Join sparse tensors along one dimension.",
    inputs=(
        Pin("indices", "int64", "[N, rank]", "The indices of each tensor, in any order.", many=True),
        Pin("values", "T", "[N]", "The values of each tensor.", many=True),
        Pin("shapes", "int64", "[rank]", "The shape of each tensor; equal except along concat_dim.", many=True),
    ),
    outputs=OUTPUTS,
    types={"T": PLAIN},
    attributes=(
        Attribute("concat_dim", REQUIRED, "The dimension along which to join; negative ones count from the last.",
                  kind="int"),
    ),
    formula="entry i of tensor p comes to indices[p][i] + the lengths of the tensors before it along concat_dim\n"
    "output_indices ascend; entries with the same index stay in their order",
    errors=(
        "InvalidArgumentError: there are not equally many indices, values and shapes, or their shapes do not fit",
        "InvalidArgumentError: a length is negative or too large, or one other than that of concat_dim differs",
        "OutOfRangeError: concat_dim is not within the dimensions",
        NO_ROOM,
        WRONG_TYPE,
    ),
    cost="O(N · rank · log(places)); a sorted result is detected and not sorted again.",
    example=Example(
        {"indices": [[[0, 2], [1, 0]], [[0, 1], [1, 0]]], "values": [[1.0, 2.0], [3.0, 4.0]],
         "shapes": [[2, 3], [2, 2]]},
        {"output_indices": [[0, 2], [0, 4], [1, 0], [1, 3]], "output_values": [1.0, 3.0, 2.0, 4.0],
         "output_shape": [2, 5]},
        attributes={"concat_dim": 1},
    ),
    compute=_concat,
    shape_rule=_concat_shapes,
    gradient={
        "values": lambda op, d_output_values, indices, shapes, position, concat_dim: op.Gather(
            d_output_values,
            op.SparseConcatPlaces(list(indices), list(shapes), concat_dim=concat_dim, index=position),
        )
    },
    result=SparseEntries,
    notes="A single tensor is allowed too; TensorFlow requires two. Indices are not compared with shapes, as in "
    "TensorFlow, which has no gradient for this operator; here it is that of entries within their shapes.",
))  # fmt: skip

declare(Operator(
    name="SparseConcatPlaces",
    function="sparse_concat_places",
    raw_only=True,
    family="sparse_join",
    summary="The places of one sparse tensor's entries among those of all that are joined.",
    inputs=(
        Pin("indices", "int64", "[N, rank]", "The indices of each tensor, in any order.", many=True),
        Pin("shapes", "int64", "[rank]", "The shape of each tensor; equal except along concat_dim.", many=True),
    ),
    outputs=(Pin("places", "int64", "[M]", "The number of each entry of the tensor among those of the result."),),
    types={},
    attributes=(
        Attribute("concat_dim", REQUIRED, "The dimension along which to join; negative ones count from the last.",
                  kind="int"),
        Attribute("index", 0, "Which tensor, counted from 0.", kind="int"),
    ),
    formula="SparseConcat(indices, values, shapes).output_values[places[i]] = values[index][i]",
    errors=(
        "InvalidArgumentError: there are not equally many indices and shapes, or their shapes do not fit",
        "InvalidArgumentError: a length is negative or too large, or one other than that of concat_dim differs",
        "OutOfRangeError: concat_dim is not within the dimensions, or index is not one of the tensors",
        NO_ROOM,
        WRONG_TYPE,
    ),
    cost="O(N · rank · log(places)), for all N entries.",
    example=Example(
        {"indices": [[[0, 2], [1, 0]], [[0, 1], [1, 0]]], "shapes": [[2, 3], [2, 2]]},
        {"places": [1, 3]},
        attributes={"concat_dim": 1, "index": 1},
    ),
    compute=_concat_places,
    shape_rule=_places_shape,
    in_tensorflow=False,
))  # fmt: skip

declare(Operator(
    name="SparseSplitPart",
    function="sparse_split_part",
    family="sparse_join",
    summary="One part of a sparse tensor that is split along one dimension.",
    inputs=(
        Pin("split_dim", "int64", "[]", "The dimension along which to split; negative ones count from the last."),
        Pin("indices", "int64", "[N, rank]", "The index of each entry, in any order."),
        Pin("values", "T", "[N]", "The value of each entry."),
        Pin("shape", "int64", "[rank]", "The shape of the tensor."),
    ),
    outputs=OUTPUTS,
    types={"T": PLAIN},
    attributes=(
        Attribute("num_split", REQUIRED, "The number of parts; with a remainder, the first parts are longer by one.",
                  kind="int"),
        Attribute("index", 0, "Which part, counted from 0.",
                  kind="int"),
    ),
    formula="part p has the entries with begin[p] ≤ index[split_dim] < begin[p + 1], and counts from begin[p]",
    errors=(
        "InvalidArgumentError: indices is not a matrix, values or shape not a vector, or their lengths do not match",
        "InvalidArgumentError: split_dim is not a scalar, or a length of shape is negative",
        "OutOfRangeError: split_dim is not within the dimensions, num_split not within the length, or an index not "
        "within shape",
        "OutOfRangeError: index is not one of the parts",
        NO_ROOM,
        WRONG_TYPE,
    ),
    cost="O(N · rank + num_split).",
    example=Example(
        {"split_dim": 1, "indices": [[0, 0], [0, 3], [1, 4], [2, 6]], "values": [1.0, 2.0, 3.0, 4.0], "shape": [3, 7]},
        {"output_indices": [[1, 0], [2, 2]], "output_values": [3.0, 4.0], "output_shape": [3, 3]},
        attributes={"num_split": 2, "index": 1},
    ),
    compute=_one_part,
    bounds_ids=True,
    shape_rule=_split_shapes,
    gradient={
        "values": lambda op, d_output_values, output_indices, indices, split_dim, shape, num_split, index: (
            op.SparseSliceGrad(
                d_output_values, indices,
                op.SparseSplitOffset(split_dim, shape, num_split=num_split, index=index), output_indices,
            )
        )
    },
    result=SparseEntries,
    notes="`raw_ops.SparseSplit` returns all parts, as in TensorFlow: a list of each output.",
    in_tensorflow=False,
))  # fmt: skip


def _offset(split_dim: Any, shape: Array, *, num_split: int, index: int = 0) -> Array:
    nothing = np.empty((0, shape.size), np.int64)
    split(split_dim, nothing, np.empty(0, np.float32), shape, num_split=num_split)
    _check_part(index, num_split)
    start = np.zeros(shape.size, np.int64)
    axis = int(split_dim) % shape.size
    size, longer = divmod(int(shape[axis]), num_split)
    start[axis] = size * index + min(index, longer)
    return start


declare(Operator(
    name="SparseSplitOffset",
    function=None,
    family="sparse_join",
    summary="Where one part of a split sparse tensor begins.",
    inputs=(
        Pin("split_dim", "int64", "[]", "The dimension along which to split; negative ones count from the last."),
        Pin("shape", "int64", "[rank]", "The shape of the tensor."),
    ),
    outputs=(Pin("offset", "int64", "[rank]", "Where the part begins in each dimension."),),
    types={},
    attributes=(
        Attribute("num_split", REQUIRED, "How many parts there are.", kind="int"),
        Attribute("index", 0, "Which of them, counted from 0.", kind="int"),
    ),
    formula="offset[split_dim] = the lengths of the parts before; 0 elsewhere",
    errors=(
        "InvalidArgumentError: split_dim is not a scalar, shape not a vector, or a length negative",
        "OutOfRangeError: split_dim is not within the dimensions, or num_split not within the length",
        WRONG_TYPE,
    ),
    cost="O(rank).",
    example=Example({"split_dim": 1, "shape": [3, 7]}, {"offset": [0, 4]}, attributes={"num_split": 2, "index": 1}),
    compute=_offset,
    in_tensorflow=False,
))  # fmt: skip
