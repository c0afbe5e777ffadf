"""Slice a sparse tensor, and send gradients back to the entries that were kept."""

from functools import partial
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.catalogue import Example, Operator, declare
from rowgrad._ops.pins import Pin
from rowgrad._ops.quick import CODE
from rowgrad._ops.results import SparseEntries
from rowgrad._runtime import dtypes, threads
from rowgrad._runtime.dtypes import NUMBERS, PLAIN, QUANTISED, Array
from rowgrad._runtime.memory import POOLED, allocate, place
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError

INT64 = np.dtype(np.int64)
MOST_DIMENSIONS = 254
TEXT = "USOT"  # kinds of types that kernels know nothing of
# A call that moves fewer bytes, in grains of work (see `threads`), is one thread's: it is done before others wake.
MANY_GRAINS = 3


def _slice(indices: Array, values: Array, shape: Array, start: Array, size: Array) -> SparseEntries:
    rank = shape.size
    if not (
        values.ndim == shape.ndim == start.ndim == size.ndim == 1
        and indices.shape == (values.size, rank)
        and start.size == size.size == rank
    ):
        _check_slice(indices, values, shape, start, size)
    if values.dtype.kind in TEXT:
        # Kernels know nothing of text: it is taken by position afterwards.
        found = _slice(indices, np.arange(values.size), shape, start, size)
        return SparseEntries(found[0], values[found[1]], found[2])
    flat, entries = indices.ravel(), values.size
    if rank > MOST_DIMENSIONS:
        window_shape(shape, start, size)
    word, width = dtypes.WORDS[values.itemsize]
    columns, words = (None, None) if rank == 2 and width == 1 else (rank, width)  # what most calls have, as constants
    work = entries * (rank * 8 + 8)
    if work < MANY_GRAINS * threads.GRAIN:
        workers = None
        output_shape, window = np.empty(rank, INT64), np.empty(rank, INT64)
        count = CODE[kernels.sparse_slice.count_window, columns is None]
        total = count(flat, entries, columns, shape, start, size, output_shape, window)
        if total < 0:
            window_shape(shape, start, size)
            raise checks.changed("shape")
    else:
        workers = Workers(work)
        output_shape, window = window_shape(shape, start, size), np.maximum(size, 0)
        kept = np.empty(workers.chunks + 1, np.int64)
        workers.run(kernels.sparse_slice.count_window_together, flat, entries, columns, start, window, kept)
        total = int(kept[-1])
    new: Any = np.empty if total * max(rank, 2) * 8 < POOLED else allocate
    output_indices, output_values = new((total, rank), INT64), new(total, values.dtype)
    ways = values.view(word), words, output_indices.ravel(), output_values.view(word)
    if workers is None:
        copy = CODE[kernels.sparse_slice.copy_window, columns is None, word]
        copy(flat, entries, columns, start, window, total, *ways)
    else:
        workers.run(kernels.sparse_slice.copy_window_together, flat, entries, columns, start, window, kept, *ways)
    return SparseEntries(output_indices, output_values, output_shape)


def _check_slice(indices: Array, values: Array, shape: Array, start: Array, size: Array) -> None:
    """Raise the error for arrays whose shapes do not belong together."""
    checks.rank("indices", indices, 2)
    checks.rank("values", values, 1)
    checks.rank("shape", shape, 1)
    checks.same_length("values", values.size, "indices", indices.shape[0])
    checks.same_length("shape", shape.size, "a row of indices", indices.shape[1])
    checks.rank("start", start, 1)
    checks.rank("size", size, 1)
    checks.same_length("start", start.size, "shape", shape.size)
    checks.same_length("size", size.size, "shape", shape.size)


def window_shape(shape: Array, start: Array, size: Array) -> Array:
    """The shape of the slice; in Python's whole numbers, which no start or size can overflow."""
    if shape.size > MOST_DIMENSIONS:
        raise InvalidArgumentError(
            f"shape has {shape.size} dimensions; at most {MOST_DIMENSIONS} are allowed. Join some of them.",
            code="wrong-rank",
            argument="shape",
            value=shape.size,
        )
    for d in range(shape.size):
        checks.not_negative("shape", shape, d)
    result = []
    for d, (n, s, z) in enumerate(zip(shape.tolist(), start.tolist(), size.tolist(), strict=True)):
        if s < n - z:
            result.append(checks.not_negative("size", size, d))
        else:
            result.append(max(n - s, 0))
    return np.array(result, np.int64)


def _check_grad(values_name: str, values: Array, along: str, inputs: Array, start: Array, outputs: Array) -> None:
    if inputs.ndim == outputs.ndim == 2:
        (entries, rank), (selected, width) = inputs.shape, outputs.shape
        length = selected if along == "output_indices" else entries
        if width == rank and selected <= entries and start.shape == (rank,) and values.shape == (length,):
            return
    checks.rank("input_indices", inputs, 2)
    checks.rank("output_indices", outputs, 2)
    checks.rank(values_name, values, 1)
    checks.same_width("output_indices", outputs.shape[1], "input_indices", inputs.shape[1])
    if outputs.shape[0] > inputs.shape[0]:
        raise InvalidArgumentError(
            f"output_indices has {outputs.shape[0]} entries, more than the {inputs.shape[0]} of input_indices that "
            "they were sliced from. Pass the indices of the slice and of its input.",
            code="length-mismatch",
            argument="output_indices",
            value=outputs.shape[0],
        )
    length = {"output_indices": outputs, "input_indices": inputs}[along].shape[0]
    checks.same_length(values_name, values.size, along, length)
    checks.rank("input_start", start, 1)
    checks.same_length("input_start", start.size, "a row of input_indices", inputs.shape[1])


def _send(values: Array, inputs: Array, start: Array, outputs: Array, out: Array | None, *, forwards: bool) -> Array:
    """Copy values from each output to the input that it came from, or, `forwards`, from the input to the output."""
    entries, selected = inputs.shape[0], outputs.shape[0]
    shape = (selected if forwards else entries,)
    new: Any = np.empty if shape[0] * 16 < POOLED and selected > 0 else partial(allocate, zero=selected == 0)
    target: Array = new(shape, values.dtype)
    if selected > 0:
        _send_some(values, inputs, start, outputs, target, forwards)
    if out is None:
        return target
    out = place(out, shape, values.dtype, argument="out", zero=False)
    np.copyto(out, target)
    return out


def _send_some(values: Array, inputs: Array, start: Array, outputs: Array, target: Array, forwards: bool) -> None:
    entries, rank = inputs.shape
    selected = outputs.shape[0]
    word, width = dtypes.WORDS[values.itemsize]
    columns, words = (None, None) if rank == 2 and width == 1 else (rank, width)  # what most calls have, as constants
    pairs = inputs.ravel(), entries, outputs.ravel(), selected, columns, start
    ways = forwards or None, values.view(word), words, target.view(word)
    matched = -1
    if entries * rank * 8 >= MANY_GRAINS * threads.GRAIN:
        workers = Workers(entries * rank * 8)
        scratch = np.empty((3, workers.chunks + 1), np.int64)
        matched = workers.run(kernels.sparse_slice.send_together, *pairs, *scratch, *ways)
    if matched != selected:  # alone, if together it does not work out
        matched = CODE[kernels.sparse_slice.send, columns is None, word, forwards](*pairs, *ways)
    if matched == selected:
        return
    raise InvalidArgumentError(
        f"output_indices[{matched}] is {outputs[matched].tolist()}, and no entry of input_indices behind the match "
        f"before it is that plus input_start {start.tolist()}. The outputs must be inputs, in the same order.",
        code="unmatched-values",
        argument="output_indices",
        position=matched,
        value=tuple(outputs[matched].tolist()),
    )


def _slice_grad(backprop_val_grad: Array, input_indices: Array, input_start: Array, output_indices: Array, *,
                out: Array | None = None) -> Array:  # fmt: skip
    _check_grad("backprop_val_grad", backprop_val_grad, "output_indices", input_indices, input_start, output_indices)
    return _send(backprop_val_grad, input_indices, input_start, output_indices, out, forwards=False)


def _slice_grad_grad(grad: Array, input_indices: Array, input_start: Array, output_indices: Array, *,
                     out: Array | None = None) -> Array:  # fmt: skip
    _check_grad("grad", grad, "input_indices", input_indices, input_start, output_indices)
    return _send(grad, input_indices, input_start, output_indices, out, forwards=True)


# Declarations

INPUT_INDICES = Pin("input_indices", "int64", "[N, rank]", "The indices of the tensor that was sliced.")
INPUT_START = Pin("input_start", "int64", "[rank]", "The start of the slice.")
OUTPUT_INDICES = Pin("output_indices", "int64", "[K, rank]", "The indices of the slice, in the order of the input.")
GRAD_ERRORS = (
    "InvalidArgumentError: input_indices or output_indices is not a matrix, {values} or input_start not a vector",
    "InvalidArgumentError: the ranks differ, there are more outputs than inputs, or lengths do not match",
    "InvalidArgumentError: an output is left that matches no input behind the one before it",
    "DTypeError: a type that is not listed",
)
MATCHING = (
    "One pass over the inputs: the next output matches the first input that equals it plus input_start; repeats pair "
    "off in order."
)
A = [[0, 0], [0, 3], [0, 4], [3, 0]]

declare(Operator(
    name="SparseSlice",
    function="sparse_slice",
    family="sparse_slice",
    summary="Cut a window out of a sparse tensor.",
    inputs=(
        Pin("indices", "int64", "[N, rank]", "The index of each entry, in any order."),
        Pin("values", "T", "[N]", "The value of each entry."),
        Pin("shape", "int64", "[rank]", "The shape of the tensor."),
        Pin("start", "int64", "[rank]", "Where the window begins; may be negative."),
        Pin("size", "int64", "[rank]", "How large it is."),
    ),
    outputs=(
        Pin("output_indices", "int64", "[K, rank]", "The indices in the window, counted from its start."),
        Pin("output_values", "T", "[K]", "Their values."),
        Pin("output_shape", "int64", "[rank]", "The shape of the window, cut where it extends beyond the tensor."),
    ),
    types={"T": PLAIN},
    formula="an entry stays if start[d] ≤ index[d] < start[d] + size[d] for every d; its index becomes index − start\n"
    "output_shape[d] = size[d] if start[d] < shape[d] − size[d], else shape[d] − start[d], but at least 0",
    errors=(
        "InvalidArgumentError: indices is not a matrix, or values, shape, start or size not a vector",
        "InvalidArgumentError: indices and values differ in length, or shape, start, size and the width of indices do",
        "InvalidArgumentError: more than 254 dimensions, or a negative shape",
        "InvalidArgumentError: a negative size, unless the window lies outside the tensor",
        "DTypeError: a type that is not listed",
    ),
    cost="O(N · rank).",
    example=Example(
        {"indices": A, "values": ["a", "b", "c", "d"], "shape": [5, 6], "start": [0, 1], "size": [3, 3]},
        {"output_indices": [[0, 2]], "output_values": ["b"], "output_shape": [3, 3]},
    ),
    compute=_slice,
    gradient={
        "values": lambda op, d_output_values, indices, start, output_indices: op.SparseSliceGrad(
            d_output_values, indices, start, output_indices
        )
    },
    result=SparseEntries,
    notes="Only start and size decide which entries stay: an entry outside shape stays if it lies in the window.",
))  # fmt: skip

declare(Operator(
    name="SparseSliceGrad",
    function="sparse_slice_grad",
    family="sparse_slice",
    summary="The gradient of SparseSlice: the gradient of each entry that was kept, and 0 for the others.",
    inputs=(
        Pin("backprop_val_grad", "T", "[K]", "The gradient of each value of the slice."),
        INPUT_INDICES,
        INPUT_START,
        OUTPUT_INDICES,
    ),
    outputs=(Pin("val_grad", "T", "[N]", "The gradient of each value of the tensor that was sliced."),),
    types={"T": NUMBERS + QUANTISED},
    formula="val_grad[i] = backprop_val_grad[j] where input i matches output j, else 0\n"
    "input i matches output j if input_indices[i] = output_indices[j] + input_start, each j behind the one before",
    errors=tuple(text.format(values="backprop_val_grad") for text in GRAD_ERRORS),
    cost="O(N · rank).",
    example=Example(
        {"backprop_val_grad": [5.0, 7.0], "input_indices": A, "input_start": [0, 3],
         "output_indices": [[0, 0], [0, 1]]},
        {"val_grad": [0.0, 5.0, 7.0, 0.0]},
    ),
    compute=_slice_grad,
    options=("out",),
    gradient={
        "backprop_val_grad": lambda op, d_val_grad, input_indices, input_start, output_indices: op.SparseSliceGradGrad(
            d_val_grad, input_indices, input_start, output_indices
        )
    },
    notes=MATCHING,
))  # fmt: skip

declare(Operator(
    name="SparseSliceGradGrad",
    function="sparse_slice_grad_grad",
    raw_only=True,
    family="sparse_slice",
    summary="The gradient of SparseSliceGrad with respect to its backprop_val_grad: the entries that were kept.",
    inputs=(
        Pin("grad", "T", "[N]", "The upstream gradient of val_grad."),
        INPUT_INDICES,
        INPUT_START,
        OUTPUT_INDICES,
    ),
    outputs=(Pin("output", "T", "[K]", "The gradient of backprop_val_grad."),),
    types={"T": NUMBERS},
    formula="output[j] = grad[i] for the input i that output j matched",
    errors=tuple(text.format(values="grad") for text in GRAD_ERRORS),
    cost="O(N · rank).",
    example=Example(
        {"grad": [1.0, 2.0, 3.0, 4.0], "input_indices": A, "input_start": [0, 3], "output_indices": [[0, 0], [0, 1]]},
        {"output": [2.0, 3.0]},
    ),
    compute=_slice_grad_grad,
    options=("out",),
    gradient={
        "grad": lambda op, d_output, input_indices, input_start, output_indices: op.SparseSliceGrad(
            d_output, input_indices, input_start, output_indices
        )
    },
    in_tensorflow=False,
    notes=MATCHING,
))  # fmt: skip
