"""Sparse tensors made dense, multiplied, joined, cut and counted, in plain loops; `naive` has them too."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from naive_types import Array, accumulator, quiet


def sparse_to_dense(
    sparse_indices: Array, output_shape: Array, sparse_values: Array, default_value: Any, validate_indices: bool = True
) -> Array:
    values, shape = np.asarray(sparse_values), tuple(np.asarray(output_shape).tolist())
    dense = np.full(shape, default_value, values.dtype)
    for i, index in enumerate(np.reshape(sparse_indices, (-1, len(shape)))):
        dense[tuple(index.tolist())] = values.item() if values.dtype.kind == "O" and not values.ndim else (
            values if values.ndim == 0 else values[i])  # fmt: skip
    return dense


@quiet
def sparse_tensor_dense_mat_mul(
    a_indices: Array, a_values: Array, a_shape: Array, b: Array, adjoint_a: bool = False, adjoint_b: bool = False
) -> Array:
    """Each sum is made in the order of the entries."""
    A = accumulator(b.dtype)
    dense = (b.T.conj() if adjoint_b else b).astype(A)
    weights = (a_values.conj() if adjoint_a else a_values).astype(A)
    rows = int(a_shape[1 if adjoint_a else 0])
    product = np.zeros((rows, dense.shape[1]), A)
    for (row, column), weight in zip(a_indices[:, ::-1] if adjoint_a else a_indices, weights, strict=True):
        product[row] = product[row] + times(weight, dense[column])
    return product.astype(b.dtype)


def times(weight: Any, row: Array) -> Array:
    """Products of complex numbers by the plain formula."""
    if row.dtype.kind != "c":
        return np.asarray(weight * row)
    found = np.empty_like(row)
    found.real = weight.real * row.real - weight.imag * row.imag
    found.imag = weight.real * row.imag + weight.imag * row.real
    return found


# ---------------------------------------------------------------- joined and cut


def joined(indices: list[Array], shapes: list[Array], concat_dim: int) -> tuple[list[tuple[list[int], int, int]], Any]:
    """The index of each entry in the result, and which tensor and entry it is, in order."""
    entries, shape = [], np.array(shapes[0], np.int64)
    axis, offset = concat_dim % len(shape), 0
    for part, (found, sizes) in enumerate(zip(indices, shapes, strict=True)):
        for i, index in enumerate(found.tolist()):
            index[axis] += offset
            entries.append((index, part, i))
        offset += int(sizes[axis])
    shape[axis] = offset
    return sorted(entries, key=lambda entry: entry[0]), shape


def sparse_concat(indices: list[Array], values: list[Array], shapes: list[Array], concat_dim: int) -> Any:
    entries, shape = joined(indices, shapes, concat_dim)
    output_values = np.empty(len(entries), values[0].dtype)
    for place, (_, part, i) in enumerate(entries):
        output_values[place] = values[part][i]
    output_indices = np.array([index for index, _, _ in entries], np.int64).reshape(-1, len(shape))
    return output_indices, output_values, shape


def sparse_concat_places(indices: list[Array], shapes: list[Array], concat_dim: int, index: int = 0) -> Array:
    entries, _ = joined(indices, shapes, concat_dim)
    places = np.zeros(len(indices[index]), np.int64)
    for place, (_, part, i) in enumerate(entries):
        if part == index:
            places[i] = place
    return places


def sparse_split_part(
    split_dim: int, indices: Array, values: Array, shape: Array, num_split: int, index: int = 0
) -> Any:
    axis, lengths = int(split_dim) % len(shape), []
    for part in range(num_split):
        lengths.append(int(shape[axis]) // num_split + (part < int(shape[axis]) % num_split))
    begin = sum(lengths[:index])
    kept = [i for i, found in enumerate(indices.tolist()) if begin <= found[axis] < begin + lengths[index]]
    output_indices, output_shape = indices[kept].copy(), np.array(shape, np.int64)
    output_indices[:, axis] -= begin
    output_shape[axis] = lengths[index]
    return output_indices, values[kept], output_shape


# ---------------------------------------------------------------- counts


@quiet
def counted(rows: Any, values: Array, weights: Array, is_binary: bool) -> dict[tuple[int, int], Any]:
    """By row and number, summed in their order."""
    dtype, flat = weights.dtype.type, weights.reshape(-1)
    found: dict[tuple[int, int], Any] = {}
    for i, (row, value) in enumerate(zip(rows, values.reshape(-1), strict=True)):
        key = (int(row), int(value))
        found[key] = dtype(1) if is_binary else found.get(key, dtype(0)) + (flat[i] if flat.size else dtype(1))
    return dict(sorted(found.items()))


def in_bins(rows: Any, values: Array, weights: Array, shape: tuple[int, ...], is_binary: bool) -> Array:
    output = np.zeros(shape, weights.dtype)
    for (row, value), total in counted(rows, values, weights, is_binary).items():
        if 0 <= value < shape[-1]:
            output[(row, value)[-len(shape) :]] = total
    return output


def as_entries(
    rows: Any, values: Array, weights: Array, before: list[int], minlength: int, maxlength: int, is_binary: bool
) -> Any:
    totals = {key: total for key, total in counted(rows, values, weights, is_binary).items()
              if maxlength < 0 or key[1] < maxlength}  # fmt: skip
    width = maxlength if maxlength >= 0 else max(int(values.max(initial=0)) + 1, minlength)
    rank = len(before) + 1
    indices = np.array([key[-rank:] for key in totals], np.int64).reshape(-1, rank)
    return indices, np.array(list(totals.values()), weights.dtype), np.array([*before, width], np.int64)


def rows_of(splits: Array) -> list[int]:
    return [row for row, (start, end) in enumerate(itertools.pairwise(splits.tolist())) for _ in range(start, end)]


def sparse_bincount(
    indices: Array, values: Array, dense_shape: Array, size: int, weights: Array, binary_output: bool = False
) -> Array:
    shape = (int(size),) if len(dense_shape) == 1 else (int(dense_shape[0]), int(size))
    rows = [0] * len(values) if len(dense_shape) == 1 else indices[:, 0]
    return in_bins(rows, values, weights, shape, binary_output)


def ragged_bincount(splits: Array, values: Array, size: int, weights: Array, binary_output: bool = False) -> Array:
    return in_bins(rows_of(splits), values, weights, (len(splits) - 1, int(size)), binary_output)


def dense_count_sparse_output(
    values: Array, weights: Array, binary_output: bool, minlength: int = -1, maxlength: int = -1
) -> Any:
    columns = values.shape[1] if values.ndim == 2 else 1
    rows = [row for row in range(len(values)) for _ in range(columns)] if values.ndim == 2 else [0] * len(values)
    before = list(values.shape[:-1])
    return as_entries(rows, values, weights, before, minlength, maxlength, binary_output)


def sparse_count_sparse_output(
    indices: Array,
    values: Array,
    dense_shape: Array,
    weights: Array,
    binary_output: bool,
    minlength: int = -1,
    maxlength: int = -1,
) -> Any:
    has_rows = len(dense_shape) > 1
    before = [int(dense_shape[0])] if has_rows else []
    rows = indices[:, 0] if has_rows else [0] * len(values)
    return as_entries(rows, values, weights, before, minlength, maxlength, binary_output)


def ragged_count_sparse_output(
    splits: Array, values: Array, weights: Array, binary_output: bool, minlength: int = -1, maxlength: int = -1
) -> Any:
    before = [len(splits) - 1]
    return as_entries(rows_of(splits), values, weights, before, minlength, maxlength, binary_output)
