"""Fill empty rows, sparse and ragged: every row gets at least one entry, and the gradients find the way back.

A ragged tensor is a sparse one with a single column, so both forms share everything but their names.
"""

from functools import partial
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.catalogue import Example, Operator, declare
from rowgrad._ops.order import order_ids
from rowgrad._ops.pins import Pin
from rowgrad._ops.quick import CODE, NDARRAY, first_call, is_plain
from rowgrad._ops.results import FilledRagged, FilledRows, FillGradient
from rowgrad._ops.row_sums import Factors, sum_rows
from rowgrad._runtime import dtypes, threads
from rowgrad._runtime.dtypes import NUMBERS, PLAIN, Array
from rowgrad._runtime.memory import POOLED, allocate, place, scratch
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError

BOOL, INT64 = np.dtype(bool), np.dtype(np.int64)
TEXT = "USOT"  # kinds of types that kernels know nothing of
# A call that moves fewer bytes, in grains of work (see `threads`), is one thread's: it is done before others wake.
MANY_GRAINS = 20
MANY_ROWS = 1 << 14  # and as many entries: beyond, what a call takes beside its kernels does not count
# With so many values, of which more than one in so many is a default, the defaults are listed before they are summed.
LISTED, OFTEN = 1000, 16
# Empty arrays tell kernels the types that sums are made in.
_code: dict[tuple[Any, bool], list[Any]] = {}  # compiled code by the type of values, and whether calls are usual
NO_CODE = [None, None]
NO_SUMS = {sums: np.empty(0, sums) for sums in (dtypes.summing(dtypes.NUMPY[name]).sums for name in NUMBERS)}


def _fill_sparse(indices: Array, values: Array, dense_shape: Array, default_value: Array) -> FilledRows:
    if not (
        dense_shape.ndim == values.ndim == 1
        and indices.ndim == 2
        and default_value.ndim == 0
        and indices.shape == (values.size, dense_shape.size)
        and dense_shape.size
    ):
        _check_sparse(indices, values, dense_shape, default_value)
    rows = int(dense_shape[0])
    if rows < 0:
        checks.not_negative("dense_shape", dense_shape, 0)
    return FilledRows(*_fill(indices, values, rows, default_value, "indices", "dense_shape"))


def _fill_small(indices: Any, values: Any, dense_shape: Any, default_value: Any) -> FilledRows | None:
    """A small call on arrays of two columns, once its kernels are compiled; None for all others."""
    if type(indices) is not NDARRAY or type(values) is not NDARRAY or type(dense_shape) is not NDARRAY:
        return None
    dtype, size = values.dtype, values.size
    inspect, fill = _code.get((dtype, True), NO_CODE)
    if fill is None or not size or values.ndim != 1 or indices.shape != (size, 2) or dense_shape.shape != (2,):
        return None
    if type(default_value) is dtype.type:
        default_value = np.array(default_value)
    elif type(default_value) is not NDARRAY or default_value.dtype != dtype or default_value.ndim:
        return None
    rows = dense_shape.item(0)
    if not (
        0 < rows < MANY_ROWS and size < MANY_ROWS and indices.dtype == INT64 and dense_shape.dtype == INT64
        and is_plain(indices) and is_plain(values)
    ):  # fmt: skip
        return None
    flat = indices.ravel()
    distinct = inspect(flat, None, size, rows)
    if distinct < 0:
        return None
    full = size + rows - distinct
    output_indices, output_values = np.empty((full, 2), INT64), np.empty(full, dtype)
    empty, reverse = np.empty(rows, BOOL), np.empty(size, INT64)
    word = dtypes.WORDS[dtype.itemsize][0]
    end = fill(flat, None, size, rows, values.view(word), None, default_value.ravel().view(word), full,
               output_indices.ravel(), output_values.view(word), empty, reverse)  # fmt: skip
    if end != full:
        raise checks.changed("indices")
    return FilledRows(output_indices, output_values, empty, reverse)


def _check_sparse(indices: Array, values: Array, dense_shape: Array, default_value: Array) -> None:
    """Raise the error for arrays whose shapes do not belong together."""
    checks.rank("dense_shape", dense_shape, 1)
    checks.rank("indices", indices, 2)
    checks.rank("values", values, 1)
    checks.same_length("values", values.size, "indices", indices.shape[0])
    checks.same_length("dense_shape", dense_shape.size, "a row of indices", indices.shape[1])
    checks.rank("default_value", default_value, 0)
    raise InvalidArgumentError(
        "dense_shape is empty; its first element must be the number of rows. Pass the shape of the tensor.",
        code="wrong-rank",
        argument="dense_shape",
        value=(),
    )


def _fill_ragged(value_rowids: Array, values: Array, nrows: Any, default_value: Array) -> FilledRagged:
    checks.rank("value_rowids", value_rowids, 1)
    checks.rank("values", values, 1)
    number = checks.count("nrows", nrows, least=None)
    checks.same_length("values", values.size, "value_rowids", value_rowids.size)
    checks.rank("default_value", default_value, 0)
    rows = checks.count("nrows", number)
    output_rowids, *others = _fill(value_rowids.reshape(-1, 1), values, rows, default_value, "value_rowids", "nrows")
    return FilledRagged(output_rowids.reshape(-1), *others)


def _fill(
    indices: Array, values: Array, rows: int, default_value: Array, argument: str, rows_from: str
) -> tuple[Array, Array, Array, Array]:
    size, rank = indices.shape
    if rows == 0 and size > 0:
        raise _bad_row(indices, 0, rows, argument)
    if values.dtype.kind in TEXT:
        # Kernels know nothing of text: it follows the map that they make.
        nothing, default = np.empty(size, np.uint8), np.zeros((), np.uint8)
        found, _, empty, reverse = _fill(indices, nothing, rows, default, argument, rows_from)
        output = np.full(found.shape[0], default_value, np.result_type(values.dtype, default_value.dtype))
        output[reverse] = values
        return found, output, empty, reverse
    (source, width), (default, _) = dtypes.as_words(values), dtypes.as_words(default_value)
    columns, words = (None, None) if rank == 2 and width == 1 else (rank, width)  # what most calls have, as constants
    flat, work = indices.ravel(), (size + rows) * (rank * 16 + 24)
    workers = Workers(work) if size > 0 and work >= MANY_GRAINS * threads.GRAIN else None
    code = _code.setdefault((values.dtype, columns is None), [None, None])
    if workers is None:
        args: tuple[Any, ...] = flat, columns, size, rows
        if code[0] is None:
            distinct, code[0] = first_call(kernels.fill_empty_rows.inspect, args)
        else:
            distinct = code[0](*args)
    else:
        starts = np.empty(workers.chunks, INT64)
        distinct = _inspect_together(workers, indices, columns, rows, starts)
    in_order = distinct != -1
    if not in_order:
        # One thread that counts is faster than several that sort.
        rows_of, counts = allocate(size, INT64), allocate(rows, INT64, argument=rows_from, zero=True)
        distinct = kernels.fill_empty_rows.count_rows(flat, columns, size, rows, rows_of, counts)
    if distinct < 0:
        raise _bad_row(indices, -2 - distinct, rows, argument)
    full = size + rows - distinct
    new: Any = np.empty if full * max(rank, 2) * 8 < POOLED else partial(allocate, argument=rows_from)
    output_indices, output_values = new((full, rank), INT64), new(full, values.dtype)
    empty, reverse = new(rows, BOOL), new(size, INT64)
    results = output_indices.ravel(), dtypes.as_words(output_values)[0], empty, reverse
    if not in_order:
        kernels.fill_empty_rows.fill_counted(flat, columns, rows_of, counts, source, words, default, full, *results)
    elif workers is None:
        args = flat, columns, size, rows, source, words, default, full, *results
        if code[1] is None:
            end, code[1] = first_call(kernels.fill_empty_rows.fill, args)
        else:
            end = code[1](*args)
        if end != full:
            raise checks.changed(argument)
    else:
        empty[:] = False
        begins, ends = np.full((2, workers.chunks), -1)
        workers.run(
            kernels.fill_empty_rows.fill_together, flat, columns, size, rows, starts, source, words, default, full,
            *results, begins, ends,
        )  # fmt: skip
        begins, ends = begins[begins >= 0], ends[begins >= 0]  # where there are entries
        if ends[-1] != full or (begins[1:] != ends[:-1]).any():
            raise checks.changed(argument)
    return output_indices, output_values, empty, reverse


def _inspect_together(workers: Workers, indices: Array, columns: int | None, rows: int, starts: Array) -> int:
    """The number of distinct rows, as `inspect` tells it, by several threads."""
    info = np.empty(1, INT64)
    workers.run(kernels.fill_empty_rows.inspect_together, indices.ravel(), columns, indices.shape[0], starts, info)
    if info[0] >= 0 and (indices[0, 0] < 0 or indices[-1, 0] >= rows):
        return -2 - int(((indices[:, 0] < 0) | (indices[:, 0] >= rows)).argmax())
    return int(info[0])


def _bad_row(indices: Array, position: int, rows: int, argument: str) -> InvalidArgumentError:
    ragged = argument == "value_rowids"
    where, rows_name = (position, "nrows") if ragged else ((position, 0), "dense_shape[0]")
    return checks.out_of_range(argument, where, int(indices[position, 0]), rows, rows_name, "row-out-of-range",
                               f"Drop the entry, or raise {rows_name}.")  # fmt: skip


def _check_map(reverse_index_map: Array, values_name: str, values: Array) -> None:
    checks.rank("reverse_index_map", reverse_index_map, 1)
    checks.rank(values_name, values, 1)


def _fill_grad(reverse_index_map: Array, grad_values: Array, *, out: Array | None = None) -> FillGradient:
    if reverse_index_map.ndim != 1 or grad_values.ndim != 1:
        _check_map(reverse_index_map, "grad_values", grad_values)
    dtype = grad_values.dtype
    stored, sums, parts = dtypes.summing(dtype)
    full, size = grad_values.size, reverse_index_map.size
    work = (full + size) * (8 + dtype.itemsize)
    d_values = np.empty(size, dtype) if work < POOLED else allocate((size,), dtype)
    d_default_value = np.empty((), dtype)
    values, target, default = grad_values, d_values, d_default_value.ravel()
    if stored is not dtype:
        values, target, default = values.view(stored), target.view(stored), default.view(stored)
    words = None if parts == 1 else parts
    if size and work >= MANY_GRAINS * threads.GRAIN:
        bad = _fill_grad_together(reverse_index_map, values, full, words, NO_SUMS[sums], target, default)
    else:
        mapped = np.empty(full, np.uint8) if full < POOLED else allocate(full, np.uint8)
        listed = full >= LISTED and (full - size) * OFTEN > full
        unmapped = scratch(full + 1, INT64) if listed else None
        send = CODE[kernels.fill_empty_rows_grad.fill_grad, dtype, listed]
        bad = send(reverse_index_map, values, words, NO_SUMS[sums], unmapped, mapped, target, default)
    if bad >= 0:
        raise _bad_map(reverse_index_map, bad, full, "the length of grad_values")
    if out is not None:
        np.copyto(place(out, (size,), dtype, argument="out", zero=False), d_values)
    return FillGradient(d_values, d_default_value)


def _fill_grad_together(reverse: Array, values: Array, full: int, words: int | None, no_sums: Array, target: Array,
                        default: Array) -> int:  # fmt: skip
    """By several threads: as a map that ascends in long runs, if there are few defaults, and as any map otherwise."""
    workers = Workers((full + reverse.size) * (8 + values.itemsize))
    begins, ends, bad = np.full((3, workers.chunks), -1)
    unmapped = scratch(full + 2 * workers.chunks, np.int64)
    if (full - reverse.size) * OFTEN <= full:
        falls = workers.run(
            kernels.fill_empty_rows_grad.fill_grad_together, reverse, values, full, words, no_sums, unmapped, begins,
            ends, target, default, bad,
        )  # fmt: skip
        if falls < 0:
            return -1
        ends.fill(-1)
    mapped = allocate(full, np.uint8)
    return int(workers.run(
        kernels.fill_empty_rows_grad.fill_grad_scattered, reverse, values, words, no_sums, unmapped, begins, ends,
        mapped, target, default, bad,
    ))  # fmt: skip


def _bad_map(reverse_index_map: Array, position: int, full: int, name: str) -> InvalidArgumentError:
    return checks.out_of_range("reverse_index_map", position, int(reverse_index_map[position]), full, name,
                               "index-out-of-range", "Pass the map that the fill operator returned.")  # fmt: skip


def _fill_grad_grad(
    reverse_index_map: Array,
    d_values_grad: Array,
    d_default_value_grad: Array,
    full_size: Any,
    *,
    out: Array | None = None,
) -> Array:
    _check_map(reverse_index_map, "d_values_grad", d_values_grad)
    checks.rank("d_default_value_grad", d_default_value_grad, 0)
    checks.same_length("d_values_grad", d_values_grad.size, "reverse_index_map", reverse_index_map.size)
    full, size = checks.count("full_size", full_size), reverse_index_map.size
    if size == 0:
        output = place(out, (full,), d_values_grad.dtype, argument="full_size", zero=False)
        output.fill(d_default_value_grad)
        return output
    workers = Workers(size * (16 + d_values_grad.itemsize))
    order = order_ids(workers, reverse_index_map, None, full, size)
    if order.bad >= 0:
        raise _bad_map(reverse_index_map, order.bad, full, "full_size")
    factors = Factors(np.ones(1, dtypes.summing(d_values_grad.dtype).sums), 0, 0)
    output = sum_rows(workers, order, d_values_grad, factors, rows=full, argument="full_size", out=out)
    unmapped = np.ones(full, bool)
    unmapped[order.words >> order.shift] = False
    output[unmapped] = d_default_value_grad
    return output


# Declarations

FORWARD_FORMULA = (
    "count[r] = entries in row r;  first[r] = Σ over earlier rows of max(count, 1)\n"
    "entry i moves to reverse_index_map[i] = first[row of i] + earlier entries of the same row\n"
    "an empty row r gets, at first[r], {entry} and default_value"
)
GRAD_FORMULA = (
    "d_values[j] = grad_values[reverse_index_map[j]]\n"
    "d_default_value = Σ grad_values[k] over the k that are not in reverse_index_map, ascending"
)
ROW_ERROR = "OutOfRangeError: a row is not in [0, {rows}); with no rows there can be no entries"
REVERSE = Pin("reverse_index_map", "int64", "[N]", "Where each entry of the input went.")
FORWARD_COST = "O(N + rows); entries whose rows do not come sorted are sorted once, in O(N · log rows)."

declare(Operator(
    name="SparseFillEmptyRows",
    function="sparse_fill_empty_rows",
    family="fill_empty_rows",
    summary="Give each empty row of a sparse tensor one entry, with a default value.",
    inputs=(
        Pin("indices", "int64", "[N, rank]", "The index of each entry; only column 0, the row, is used."),
        Pin("values", "T", "[N]", "The value of each entry."),
        Pin("dense_shape", "int64", "[rank]", "The shape of the tensor; its first element is the number of rows."),
        Pin("default_value", "T", "[]", "The value for rows without an entry."),
    ),
    outputs=(
        Pin("output_indices", "int64", "[F, rank]", "The indices of all entries, grouped by row."),
        Pin("output_values", "T", "[F]", "Their values."),
        Pin("empty_row_indicator", "bool", "[dense_shape[0]]", "Whether each row was empty."),
        REVERSE,
    ),
    types={"T": PLAIN},
    formula=FORWARD_FORMULA.format(entry="the index [r, 0, …, 0]"),
    errors=(
        "InvalidArgumentError: indices is not a matrix, values or dense_shape not a vector, default_value not a scalar",
        "InvalidArgumentError: values and indices differ in length, or dense_shape and the width of indices do",
        "InvalidArgumentError: dense_shape is empty, or its first element negative",
        "OutOfMemoryError: the result does not fit into memory",
        ROW_ERROR.format(rows="dense_shape[0]"),
        "DTypeError: a type that is not listed",
    ),
    cost=FORWARD_COST,
    example=Example(
        {"indices": [[0, 0], [0, 3], [2, 0], [3, 0]], "values": ["a", "b", "c", "d"], "dense_shape": [5, 6],
         "default_value": "-"},
        {"output_indices": [[0, 0], [0, 3], [1, 0], [2, 0], [3, 0], [4, 0]],
         "output_values": ["a", "b", "-", "c", "d", "-"],
         "empty_row_indicator": [False, True, False, False, True], "reverse_index_map": [0, 1, 3, 4]},
    ),
    quick=_fill_small,
    compute=_fill_sparse,
    gradient={
        "values": lambda op, reverse_index_map, d_output_values: (
            op.SparseFillEmptyRowsGrad(reverse_index_map, d_output_values).d_values
        ),
        "default_value": lambda op, reverse_index_map, d_output_values: (
            op.SparseFillEmptyRowsGrad(reverse_index_map, d_output_values).d_default_value
        ),
    },
    result=FilledRows,
    notes="Columns and the other sizes of dense_shape may be anything, duplicates stay, and rows need not come sorted.",
))  # fmt: skip

declare(Operator(
    name="RaggedFillEmptyRows",
    function="ragged_fill_empty_rows",
    family="fill_empty_rows",
    summary="Give each empty row of a ragged tensor one default value.",
    inputs=(
        Pin("value_rowids", "int64", "[N]", "The row of each value."),
        Pin("values", "T", "[N]", "The values."),
        Pin("nrows", "int64", "[]", "The number of rows."),
        Pin("default_value", "T", "[]", "The value for rows without one."),
    ),
    outputs=(
        Pin("output_value_rowids", "int64", "[F]", "The rows of all values, ascending."),
        Pin("output_values", "T", "[F]", "The values."),
        Pin("empty_row_indicator", "bool", "[nrows]", "Whether each row was empty."),
        REVERSE,
    ),
    types={"T": PLAIN},
    formula=FORWARD_FORMULA.format(entry="the row r"),
    errors=(
        "InvalidArgumentError: value_rowids or values is not a vector, or they differ in length",
        "InvalidArgumentError: nrows or default_value is not a scalar, or nrows negative",
        "OutOfMemoryError: the result does not fit into memory",
        ROW_ERROR.format(rows="nrows"),
        "DTypeError: a type that is not listed",
    ),
    cost=FORWARD_COST,
    example=Example(
        {"value_rowids": [0, 0, 2], "values": [1.0, 2.0, 3.0], "nrows": 4, "default_value": 9.0},
        {"output_value_rowids": [0, 0, 1, 2, 3], "output_values": [1.0, 2.0, 9.0, 3.0, 9.0],
         "empty_row_indicator": [False, True, False, True], "reverse_index_map": [0, 1, 3]},
    ),
    compute=_fill_ragged,
    gradient={
        "values": lambda op, reverse_index_map, d_output_values: (
            op.RaggedFillEmptyRowsGrad(reverse_index_map, d_output_values).d_values
        ),
        "default_value": lambda op, reverse_index_map, d_output_values: (
            op.RaggedFillEmptyRowsGrad(reverse_index_map, d_output_values).d_default_value
        ),
    },
    result=FilledRagged,
))  # fmt: skip


def _declare_grad(prefix: str, function: str) -> None:
    declare(Operator(
        name=f"{prefix}FillEmptyRowsGrad",
        function=function,
        family="fill_empty_rows",
        summary=f"The gradient of {prefix}FillEmptyRows: each entry's own gradient, and the sum over the defaults.",
        inputs=(
            Pin("reverse_index_map", "int64", "[N]", "Where each entry went, from the fill operator; may repeat."),
            Pin("grad_values", "T", "[F]", "The gradient of each filled value."),
        ),
        outputs=(
            Pin("d_values", "T", "[N]", "The gradient of each value that was there."),
            Pin("d_default_value", "T", "[]", "The gradient of the default value."),
        ),
        types={"T": NUMBERS},
        formula=GRAD_FORMULA,
        errors=(
            "InvalidArgumentError: reverse_index_map or grad_values is not a vector",
            "OutOfRangeError: an entry of reverse_index_map is not in [0, length of grad_values)",
            "DTypeError: a type that is not listed",
        ),
        cost="O(N + F).",
        example=Example(
            {"reverse_index_map": [0, 1, 3, 4], "grad_values": [1.0, 2.0, 3.0, 4.0, 5.0]},
            {"d_values": [1.0, 2.0, 4.0, 5.0], "d_default_value": 3.0},
        ),
        compute=_fill_grad,
        options=("out",),
        gradient={
            "grad_values": lambda op, reverse_index_map, d_d_values, d_d_default_value, grad_values: (
                op.SparseFillEmptyRowsGradGrad(reverse_index_map, d_d_values, d_d_default_value, op.rows(grad_values))
            )
        },
        result=FillGradient,
        notes="Half and bfloat16 are summed in float32 and rounded once; TensorFlow rounds after each addition.",
    ))  # fmt: skip


_declare_grad("Sparse", "sparse_fill_empty_rows_grad")
_declare_grad("Ragged", "ragged_fill_empty_rows_grad")

declare(Operator(
    name="SparseFillEmptyRowsGradGrad",
    function="sparse_fill_empty_rows_grad_grad",
    raw_only=True,
    family="fill_empty_rows",
    summary="The gradient of a fill gradient with respect to grad_values: both results' gradients at their origins.",
    inputs=(
        Pin("reverse_index_map", "int64", "[N]", "The map passed to the fill gradient."),
        Pin("d_values_grad", "T", "[N]", "The upstream gradient of d_values."),
        Pin("d_default_value_grad", "T", "[]", "The upstream gradient of d_default_value."),
        Pin("full_size", "int64", "[]", "The length of the fill gradient's grad_values."),
    ),
    outputs=(Pin("output", "T", "[full_size]", "The gradient of grad_values."),),
    types={"T": NUMBERS},
    formula="output[k] = Σ d_values_grad[j] over the j with reverse_index_map[j] = k\n"
    "output[k] = d_default_value_grad where there is no such j",
    errors=(
        "InvalidArgumentError: an input has the wrong rank, or the map and d_values_grad differ in length",
        "InvalidArgumentError: full_size is negative",
        "OutOfMemoryError: the result does not fit into memory",
        "OutOfRangeError: an entry of reverse_index_map is not in [0, full_size)",
        "DTypeError: a type that is not listed",
    ),
    cost="O(N · log full_size + full_size).",
    example=Example(
        {"reverse_index_map": [0, 1, 3, 4], "d_values_grad": [1.0, 2.0, 3.0, 4.0], "d_default_value_grad": 9.0,
         "full_size": 5},
        {"output": [1.0, 2.0, 9.0, 3.0, 4.0]},
    ),
    compute=_fill_grad_grad,
    options=("out",),
    gradient={
        "d_values_grad": lambda op, reverse_index_map, d_output: (
            op.SparseFillEmptyRowsGrad(reverse_index_map, d_output).d_values
        ),
        "d_default_value_grad": lambda op, reverse_index_map, d_output: (
            op.SparseFillEmptyRowsGrad(reverse_index_map, d_output).d_default_value
        ),
    },
    in_tensorflow=False,
))  # fmt: skip
