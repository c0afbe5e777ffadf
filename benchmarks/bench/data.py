"""The inputs of the work: arrays from a fixed seed, the same in every run.

Values are positive, so that sums in any order agree to few rounding errors and a wrong answer is easy to tell from a
rounded one. What is large is made once and shared by the work that follows; contestants must not write to it.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

import rowgrad
from bench.work import Bags, Entries, Work
from rowgrad._runtime.dtypes import NUMPY, Array

SEED = 20_240_607
ZIPF = 1.2
LINE = 64  # bytes of a cache line
DEFAULT = np.float32(0.25)  # for empty rows


class Batch(NamedTuple):
    """Pooled look-ups: the ids and their bags, the gradient of the pooled rows, where each bag begins."""

    ids: Array
    bags: Array
    grad: Array
    offsets: Array


class Matrix(NamedTuple):
    """A sparse matrix, and the window that slices cut out of it."""

    indices: Array
    values: Array
    shape: Array
    start: Array
    size: Array


@lru_cache(maxsize=2)
def batch(shape: Bags) -> Batch:
    """The look-ups of `shape`. `offsets` tells where bags begin while they are not shuffled."""
    random = np.random.default_rng(SEED)
    ids = _ids(random, shape).astype(shape.ids)
    bags = np.repeat(np.arange(shape.bags, dtype=np.int32), shape.ids_per_bag)
    grad = _values(random, (shape.bags, shape.width)).astype(NUMPY[shape.dtype])
    if shape.shuffled:
        order = random.permutation(shape.size)
        ids, bags = ids[order], bags[order]
    offsets = np.arange(0, shape.size, shape.ids_per_bag, dtype=np.int64)
    return Batch(*_frozen(ids, bags, grad, offsets))


@lru_cache(maxsize=1)
def table(rows: int, width: int, dtype: str) -> Array:
    """The embedding table."""
    values = _values(np.random.default_rng(SEED + 1), (rows, width))
    return _frozen(values if dtype == "float32" else aligned(values.astype(NUMPY[dtype])))[0]


@lru_cache(maxsize=1)
def fillable(entries: Entries) -> Matrix:
    """A matrix of about one entry a row, with empty rows."""
    return _matrix(entries.size, columns=8, gap=8)


@lru_cache(maxsize=1)
def filled(entries: Entries) -> rowgrad.FilledRows:
    """`fillable` with its empty rows filled."""
    matrix = fillable(entries)
    return rowgrad.sparse_fill_empty_rows(matrix.indices, matrix.values, matrix.shape, DEFAULT)


@lru_cache(maxsize=1)
def sliceable(entries: Entries) -> Matrix:
    """A matrix of about 250 entries a row; its window is the middle, a quarter of it."""
    return _matrix(entries.size, columns=1000, gap=4)


@lru_cache(maxsize=1)
def sliced(entries: Entries) -> rowgrad.SparseTensor:
    """The window of `sliceable`."""
    return rowgrad.sparse_slice(*sliceable(entries))


def upstream(length: int) -> Array:
    """The gradient of `length` values of a sparse matrix."""
    return _values(np.random.default_rng(SEED + 2), (length,))


def bytes_to_move(work: Work) -> int:
    """The bytes that `work` must read and write: ids, each row as often as it is used, each row of the result once.

    Rows of zeros in dense results are left out, because the operating system can give them.
    """
    if isinstance(work.input, Entries):
        return _bytes_of_entries(work.operation, work.input)
    inputs = batch(work.input)
    row = work.input.width * inputs.grad.itemsize
    ids = inputs.ids.nbytes + inputs.bags.nbytes
    if work.operation == "mean":
        return int(ids + len(inputs.ids) * row + work.input.bags * row)
    unique = len(np.unique(inputs.ids))
    if work.operation.startswith("train_"):
        # Forward and backward, and each row of the table, and of what the optimizer keeps, read and written.
        kept = {"train_row_wise": 4 / row, "train_adagrad": 1, "train_adam": 2}.get(work.operation, 0)
        return int(2 * (ids + len(inputs.ids) * row + work.input.bags * row) + 2 * unique * row * (1 + kept))
    results = {"mean_grad_v2": unique * (row + inputs.ids.itemsize), "row_update": 2 * unique * row}
    return int(ids + len(inputs.ids) * row + results.get(work.operation, unique * row))


def _bytes_of_entries(operation: str, entries: Entries) -> int:
    if operation in ("fill", "fill_grad"):
        result = filled(entries)
        if operation == "fill":
            matrix = fillable(entries)
            return int(matrix.indices.nbytes + matrix.values.nbytes + sum(array.nbytes for array in result))
        return int(result.reverse_index_map.nbytes + result.output_values.nbytes + 4 * entries.size)
    indices, values = sliceable(entries)[:2]
    window = sliced(entries)
    rest = window.output_indices.nbytes + window.output_values.nbytes
    # The gradient reads the window's gradients and indices, and writes one value for each entry.
    return int(indices.nbytes + rest + values.nbytes)


def _ids(random: np.random.Generator, shape: Bags) -> Array:
    if shape.distribution == "zipf":
        shares = np.cumsum(np.arange(1, shape.rows + 1, dtype=np.float64) ** -ZIPF)
        drawn = np.searchsorted(shares, random.random(shape.size) * shares[-1], side="right")
    else:
        drawn = random.integers(0, shape.rows, shape.size)
    ids: Array = np.minimum(drawn, shape.rows - 1)  # a product may round up to the last share
    return ids


def _values(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    values = aligned(np.broadcast_to(np.float32(0.5), shape))
    values += random.random(shape, dtype=np.float32)
    return values


def aligned(array: Array) -> Array:
    """A copy that begins with a cache line, as PyTorch's tensors do; NumPy's large arrays begin 16 bytes behind one."""
    memory = np.empty(array.nbytes + LINE, np.uint8)
    copy = memory[-memory.ctypes.data % LINE :][: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _matrix(size: int, *, columns: int, gap: int) -> Matrix:
    random = np.random.default_rng(SEED + 3)
    places = np.cumsum(random.integers(1, 2 * gap, size))  # sorted, and no two alike
    rows = int(places[-1]) // columns + 1
    indices = np.stack([places // columns, places % columns], axis=1)
    shape = np.array([rows, columns])
    return Matrix(*_frozen(indices, _values(random, (size,)), shape, shape // 4, np.maximum(shape // 2, 1)))


def _frozen(*arrays: Array) -> tuple[Array, ...]:
    for array in arrays:
        array.flags.writeable = False
    return arrays
