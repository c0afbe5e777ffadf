"""The entries of a sparse tensor in the order of rows, and the same entries in another shape."""

from math import prod

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.catalogue import Example, Operator, declare
from rowgrad._ops.order import WORD_BITS, order_ids
from rowgrad._ops.pins import INT64_MAX, Pin
from rowgrad._ops.results import OrderedEntries, ReshapedEntries
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import NUMBERS, PLAIN, Array
from rowgrad._runtime.memory import allocate, place
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError

SMALL = 4096  # entries up to which one kernel puts them in order


def _check(name: str, values: Array, indices: Array, shape: Array) -> None:
    checks.rank("input_indices", indices, 2)
    checks.rank(name, values, 1)
    checks.rank("input_shape", shape, 1)
    checks.same_length(name, values.size, "input_indices", indices.shape[0])
    checks.same_length("input_shape", shape.size, "a row of input_indices", indices.shape[1])


def _positions(workers: Workers, indices: Array) -> tuple[Array, int] | None:
    """The entries in order, as words and the mask that cuts positions out of them; None if they are in order.

    Entries with the same index stay in the order in which they came.
    """
    entries, rank = indices.shape
    if entries < 2 or rank == 0:
        return None
    flat, chunks = indices.reshape(-1), workers.chunks
    if chunks == 1 and entries <= SMALL:
        words = np.empty(2 * entries + kernels.sparse_reduce.BUCKETS, np.int64)
        bits = kernels.sparse_reduce.order_small(flat, entries, rank, np.arange(rank), np.empty(2 * rank, np.int64),
                                                 words[:entries], words[entries:])  # fmt: skip
        if bits >= 0:
            return (words[:entries], (1 << bits) - 1) if bits else None
    lows, highs = np.empty((2, chunks, rank), np.int64)
    falls = np.empty(chunks, np.int64)
    workers.run(kernels.reorder.survey, flat, entries, rank, lows.reshape(-1), highs.reshape(-1), falls)
    if not falls.any():
        return None
    low = lows.min(axis=0)
    spans = [int(high) - int(lowest) + 1 for high, lowest in zip(highs.max(axis=0), low, strict=True)]
    if (prod(spans) - 1).bit_length() + (entries - 1).bit_length() > WORD_BITS:
        return np.lexsort(indices.T[::-1]), -1  # too far apart for one word; NumPy copies them first
    keys = allocate((entries,), np.int64)
    workers.run(kernels.reorder.make_keys, flat, entries, rank, low, np.array(spans), keys)
    order = order_ids(workers, keys, None, prod(spans), entries)
    return order.words, (1 << order.shift) - 1


def reorder(input_indices: Array, input_values: Array, input_shape: Array) -> OrderedEntries:
    _check("input_values", input_values, input_indices, input_shape)
    entries, rank = input_indices.shape
    is_text = input_values.dtype.kind in "USOT"
    # Text is taken by position afterwards; kernels know nothing of it.
    source = np.arange(entries) if is_text else input_values
    words, width = dtypes.as_words(source)
    workers = Workers(entries * (8 * rank + 8 * width + 24))
    found = _positions(workers, input_indices)
    if found is None:
        return OrderedEntries(input_indices.copy(), input_values.copy())
    output_indices = allocate((entries, rank), np.int64, argument="input_indices")
    output_values = allocate((entries,), source.dtype, argument="input_values")
    workers.run(
        kernels.reorder.take_entries, *found, input_indices.reshape(-1), rank, words, width,
        output_indices.reshape(-1), dtypes.as_words(output_values)[0],
    )  # fmt: skip
    return OrderedEntries(output_indices, input_values[output_values] if is_text else output_values)


def reorder_grad(grad: Array, input_indices: Array, input_shape: Array, *, out: Array | None = None) -> Array:
    _check("grad", grad, input_indices, input_shape)
    output = place(out, grad.shape, grad.dtype, argument="grad", zero=False)
    words, width = dtypes.as_words(grad)
    workers = Workers(grad.size * (8 * input_indices.shape[1] + 8 * width + 24))
    found = _positions(workers, input_indices)
    if found is None:
        output[...] = grad
    else:
        workers.run(kernels.reorder.send_back, *found, words, width, dtypes.as_words(output)[0])
    return output


# SparseReshape


def _reshape(input_indices: Array, input_shape: Array, new_shape: Array) -> ReshapedEntries:
    checks.rank("input_indices", input_indices, 2)
    checks.rank("input_shape", input_shape, 1)
    checks.rank("new_shape", new_shape, 1)
    entries, rank = input_indices.shape
    checks.same_length("input_shape", input_shape.size, "a row of input_indices", rank)
    before = [checks.not_negative("input_shape", input_shape, axis) for axis in range(rank)]
    after = _completed(new_shape, _product("input_shape", before))
    output_shape = np.array(after, np.int64)
    if before == after:
        return ReshapedEntries(input_indices.copy(), output_shape)
    if entries and 0 in before:
        raise InvalidArgumentError(
            f"input_indices has {entries} entries, but input_shape is {before}, which has room for none. Fix "
            "input_shape, or pass no entries.",
            code="shape-mismatch",
            argument="input_shape",
            value=tuple(before),
        )
    output = allocate((entries, len(after)), np.int64, argument="new_shape")
    if output.size:
        workers = Workers(entries * 8 * (rank + len(after)))
        workers.run(kernels.reorder.renumber, input_indices.reshape(-1), entries, rank, _strides(before), len(after),
                    _strides(after), output.reshape(-1))  # fmt: skip
    return ReshapedEntries(output, output_shape)


def _strides(shape: list[int]) -> Array:
    return np.array([prod(shape[axis + 1 :]) for axis in range(len(shape))], np.int64)


def _product(name: str, shape: list[int]) -> int:
    size = 1
    for length in shape:
        size *= length
        if size > INT64_MAX:
            raise InvalidArgumentError(
                f"{name} is {shape}; that are more places than can be counted. Use a shape of fewer than 2**63 places.",
                code="too-large",
                argument=name,
                value=tuple(shape),
            )
    return size


def _completed(new_shape: Array, size: int) -> list[int]:
    """The new shape, with the length that follows from the others for a -1."""
    after: list[int] = new_shape.tolist()
    open_axes = [axis for axis, length in enumerate(after) if length == -1]
    for axis, length in enumerate(after):
        if length < -1 or axis in open_axes[1:]:
            what = "it must be 0 or more, or -1 in one place." if length < -1 else "only one length may be -1."
            raise InvalidArgumentError(
                f"new_shape[{axis}] is {length}; {what}",
                code="negative-size",
                argument="new_shape",
                position=axis,
                value=length,
            )
    others = _product("new_shape", [length for length in after if length != -1])
    if open_axes and others and size % others == 0:
        after[open_axes[0]] = size // others
    elif open_axes or others != size:
        raise InvalidArgumentError(
            f"new_shape is {after}, which does not match the {size} places of input_shape. The products of both must "
            "be equal.",
            code="shape-mismatch",
            argument="new_shape",
            value=tuple(after),
        )
    return after


# Declarations

SHAPE = Pin("input_shape", "int64", "[rank]", "The shape of the sparse tensor.")
WRONG_TYPE = "DTypeError: a type that is not listed"
NO_ROOM = "OutOfMemoryError: the result does not fit into memory"
ERRORS = (
    "InvalidArgumentError: input_indices is not a matrix, or {values} or input_shape not a vector",
    "InvalidArgumentError: {values} is not as long as input_indices, or input_shape not as long as its rows",
    NO_ROOM,
    WRONG_TYPE,
)

declare(Operator(
    name="SparseReorder",
    function="sparse_reorder",
    family="reorder",
    summary="Sort the entries of a sparse tensor in row-major order, which most operators require.",
    inputs=(
        Pin("input_indices", "int64", "[N, rank]", "The index of each entry, in any order."),
        Pin("input_values", "T", "[N]", "The value of each entry."),
        SHAPE,
    ),
    outputs=(
        Pin("output_indices", "int64", "[N, rank]", "The same indices, ascending."),
        Pin("output_values", "T", "[N]", "The values, each with its index."),
    ),
    types={"T": PLAIN},
    formula="output_indices = input_indices, sorted by the first column, then by the second, …; entries with the same "
    "index stay in their order\noutput_values[k] = input_values[i] for the i that comes to k",
    errors=tuple(text.format(values="input_values") for text in ERRORS),
    cost="O(N · rank · log(places)); sorted entries are detected and only copied.",
    example=Example(
        {"input_indices": [[2, 0], [0, 1], [0, 0]], "input_values": [1.0, 2.0, 3.0], "input_shape": [3, 2]},
        {"output_indices": [[0, 0], [0, 1], [2, 0]], "output_values": [3.0, 2.0, 1.0]},
    ),
    compute=reorder,
    gradient={
        "input_values": lambda op, d_output_values, input_indices, input_shape: op.SparseReorderGrad(
            d_output_values, input_indices, input_shape
        )
    },
    result=OrderedEntries,
    notes="Indices are not compared with input_shape, as in TensorFlow.",
))  # fmt: skip

declare(Operator(
    name="SparseReorderGrad",
    function="sparse_reorder_grad",
    raw_only=True,
    family="reorder",
    summary="The gradient of SparseReorder: each entry gets the gradient of its sorted position.",
    inputs=(
        Pin("grad", "T", "[N]", "The gradient of each sorted entry."),
        Pin("input_indices", "int64", "[N, rank]", "The indices before sorting."),
        SHAPE,
    ),
    outputs=(Pin("output", "T", "[N]", "The gradient of each entry, in the original order."),),
    types={"T": NUMBERS},
    formula="output[i] = grad[k], where entry i came to k",
    errors=tuple(text.format(values="grad") for text in ERRORS),
    cost="O(N · rank · log(places)).",
    example=Example(
        {"grad": [1.0, 2.0, 3.0], "input_indices": [[2, 0], [0, 1], [0, 0]], "input_shape": [3, 2]},
        {"output": [3.0, 2.0, 1.0]},
    ),
    compute=reorder_grad,
    options=("out",),
    gradient={
        "grad": lambda op, d_output, input_indices, input_shape: (
            op.SparseReorder(input_indices, d_output, input_shape).output_values
        )
    },
    in_tensorflow=False,
))  # fmt: skip

declare(Operator(
    name="SparseReshape",
    function="sparse_reshape",
    family="reorder",
    summary="Reshape a sparse tensor to a shape with the same number of elements.",
    inputs=(
        Pin("input_indices", "int64", "[N, rank]", "The index of each entry."),
        SHAPE,
        Pin("new_shape", "int64", "[new_rank]", "The new shape; one length may be -1, which follows from the others."),
    ),
    outputs=(
        Pin("output_indices", "int64", "[N, new_rank]", "The index of each entry in the new shape."),
        Pin("output_shape", "int64", "[new_rank]", "The new shape, without -1."),
    ),
    types={},
    formula="output_indices[i] = the index in the new shape of the place of input_indices[i], in the order of rows",
    errors=(
        "InvalidArgumentError: input_indices is not a matrix, or input_shape or new_shape not a vector",
        "InvalidArgumentError: input_shape is not as long as the rows of input_indices",
        "InvalidArgumentError: a length is negative, -1 occurs twice, or there are more places than can be counted",
        "InvalidArgumentError: the shapes do not have equally many places, or none where there are entries",
        NO_ROOM,
        WRONG_TYPE,
    ),
    cost="O(N · (rank + new_rank)).",
    example=Example(
        {"input_indices": [[0, 1], [1, 2]], "input_shape": [2, 3], "new_shape": [3, -1]},
        {"output_indices": [[0, 1], [2, 1]], "output_shape": [3, 2]},
    ),
    compute=_reshape,
    result=ReshapedEntries,
    notes="Indices are not compared with input_shape, as in TensorFlow.",
))  # fmt: skip
