"""Every operator again, in plain loops nobody would optimise.

The tests hold the library against these functions; the recorded TensorFlow answers hold these functions
themselves. Nothing is checked here: the input is taken to be good. Values and roundings are exact: one
rounding an operation, in the order that the loops are written in, half and bfloat16 summed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from naive_segments import *  # noqa: F403
from naive_sparse import *  # noqa: F403
from naive_tensors import *  # noqa: F403
from naive_types import Array, accumulator, quiet

# ---------------------------------------------------------------- segments, forward


def sum_of_segment(rows: Array, divisor: float | None) -> Array:
    """Sum the rows in TensorFlow's order; `divisor` is None (sum), n (mean) or sqrt(n)."""
    n, A = len(rows), rows.dtype.type
    if n == 1:
        return rows[0]
    first = {0: 8, 1: 9}.get(n % 8, n % 8)
    total = rows[0]
    for row in rows[1:first]:
        total = total + row
    if n < 10 and divisor is not None:
        total = total * (A(1) / A(divisor))
    for start in range(first, n, 8):
        block = rows[start]
        for row in rows[start + 1 : start + 8]:
            block = block + row
        total = total + block
    if n >= 10 and divisor is not None:
        total = total / A(divisor)
    return total


@quiet
def segment(
    divisor: Callable[[int], float | None],
    data: Array,
    indices: Array,
    segment_ids: Array,
    num_segments: int | None,
) -> Array:
    if num_segments is None:
        num_segments = segment_ids[-1] + 1 if len(segment_ids) else 0
    rows = int(num_segments)
    output = np.zeros((rows, *data.shape[1:]), data.dtype)
    A = accumulator(data.dtype)
    for s in range(rows):
        members = [int(indices[i]) for i in range(len(indices)) if segment_ids[i] == s]
        if members:
            output[s] = sum_of_segment(data[members].astype(A), divisor(len(members))).astype(data.dtype)
    return output


def sparse_segment_sum(data: Array, indices: Array, segment_ids: Array, num_segments: Any = None) -> Array:
    return segment(lambda n: None, data, indices, segment_ids, num_segments)


def sparse_segment_mean(data: Array, indices: Array, segment_ids: Array, num_segments: Any = None) -> Array:
    return segment(lambda n: n, data, indices, segment_ids, num_segments)


def sparse_segment_sqrt_n(data: Array, indices: Array, segment_ids: Array, num_segments: Any = None) -> Array:
    return segment(math.sqrt, data, indices, segment_ids, num_segments)


# ---------------------------------------------------------------- segments, backward

Scale = Callable[[int], float]


def sum_scale(count: int) -> float:
    return 1.0


def mean_scale(count: int) -> float:
    return 1.0 / max(count, 1)


def sqrt_n_scale(count: int) -> float:
    return 1.0 / math.sqrt(max(count, 1))


@quiet
def scatter(scale: Scale, rows: int, grad: Array, sources: list[int], targets: list[int], segment_ids: Array) -> Array:
    """output[targets[i]] += grad[sources[i]] * scale[segment_ids[i]], one after the other."""
    A = accumulator(grad.dtype)
    count = {int(s): sum(1 for t in segment_ids if t == s) for s in segment_ids}
    output = np.zeros((rows, *grad.shape[1:]), A)
    for source, target, s in zip(sources, targets, segment_ids, strict=True):
        product = grad[source].astype(A) * A.type(scale(count[int(s)]))
        output[target] = output[target] + product
    return output.astype(grad.dtype)


def segment_grad(scale: Scale, grad: Array, indices: Array, segment_ids: Array, output_dim0: Any) -> Array:
    rows = int(output_dim0)
    if rows == 0:
        return np.zeros((0, *grad.shape[1:]), grad.dtype)
    return scatter(scale, rows, grad, [int(s) for s in segment_ids], [int(i) for i in indices], segment_ids)


def segment_grad_v2(
    scale: Scale, grad: Array, indices: Array, segment_ids: Array, dense_output_dim0: Any
) -> tuple[Array, Array]:
    if int(dense_output_dim0) == 0:
        return np.zeros((0, *grad.shape[1:]), grad.dtype), np.zeros(0, indices.dtype)
    unique = sorted({int(i) for i in indices})
    targets = [unique.index(int(i)) for i in indices]
    output = scatter(scale, len(unique), grad, [int(s) for s in segment_ids], targets, segment_ids)
    return output, np.array(unique, indices.dtype)


def sparse_segment_sum_grad(grad: Array, indices: Array, segment_ids: Array, output_dim0: Any) -> Array:
    return segment_grad(sum_scale, grad, indices, segment_ids, output_dim0)


def sparse_segment_mean_grad(grad: Array, indices: Array, segment_ids: Array, output_dim0: Any) -> Array:
    return segment_grad(mean_scale, grad, indices, segment_ids, output_dim0)


def sparse_segment_sqrt_n_grad(grad: Array, indices: Array, segment_ids: Array, output_dim0: Any) -> Array:
    return segment_grad(sqrt_n_scale, grad, indices, segment_ids, output_dim0)


def sparse_segment_sum_grad_v2(
    grad: Array, indices: Array, segment_ids: Array, dense_output_dim0: Any
) -> tuple[Array, Array]:
    return segment_grad_v2(sum_scale, grad, indices, segment_ids, dense_output_dim0)


def sparse_segment_mean_grad_v2(
    grad: Array, indices: Array, segment_ids: Array, dense_output_dim0: Any
) -> tuple[Array, Array]:
    return segment_grad_v2(mean_scale, grad, indices, segment_ids, dense_output_dim0)


def sparse_segment_sqrt_n_grad_v2(
    grad: Array, indices: Array, segment_ids: Array, dense_output_dim0: Any
) -> tuple[Array, Array]:
    return segment_grad_v2(sqrt_n_scale, grad, indices, segment_ids, dense_output_dim0)


# ---------------------------------------------------------------- segments, the gradient of the gradient


def segment_grad_grad(scale: Scale, grad: Array, indices: Array, segment_ids: Array, num_segments: Any) -> Array:
    targets = [int(s) for s in segment_ids]
    return scatter(scale, int(num_segments), grad, [int(i) for i in indices], targets, segment_ids)


def sparse_segment_sum_grad_grad(grad: Array, indices: Array, segment_ids: Array, num_segments: Any) -> Array:
    return segment_grad_grad(sum_scale, grad, indices, segment_ids, num_segments)


def sparse_segment_mean_grad_grad(grad: Array, indices: Array, segment_ids: Array, num_segments: Any) -> Array:
    return segment_grad_grad(mean_scale, grad, indices, segment_ids, num_segments)


def sparse_segment_sqrt_n_grad_grad(grad: Array, indices: Array, segment_ids: Array, num_segments: Any) -> Array:
    return segment_grad_grad(sqrt_n_scale, grad, indices, segment_ids, num_segments)


def index_rank(sorted_unique_indices: Array, indices: Array) -> Array:
    """With these for indices, the operators above are the gradients of the compact gradients."""
    unique = [int(i) for i in sorted_unique_indices]
    return np.array([unique.index(int(i)) for i in indices], np.int64)


# ---------------------------------------------------------------- weighted sums


@quiet
def weighted_scatter(rows: int, values: Array, weights: Array, sources: list[int], targets: list[int]) -> Array:
    """output[targets[i]] += values[sources[i]] * weights[i], one after the other."""
    A = accumulator(values.dtype)
    output = np.zeros((rows, *values.shape[1:]), A)
    for source, target, weight in zip(sources, targets, weights, strict=True):
        output[target] = output[target] + values[source].astype(A) * weight.astype(A)
    return output.astype(values.dtype)


def sparse_segment_weighted_sum(
    data: Array, weights: Array, indices: Array, segment_ids: Array, num_segments: Any
) -> Array:
    sources, targets = [int(i) for i in indices], [int(s) for s in segment_ids]
    return weighted_scatter(int(num_segments), data, weights, sources, targets)


def sparse_segment_weighted_sum_grad_v2(
    grad: Array, weights: Array, indices: Array, segment_ids: Array, dense_output_dim0: Any
) -> tuple[Array, Array]:
    unique = sorted({int(i) for i in indices})
    targets = [unique.index(int(i)) for i in indices]
    output = weighted_scatter(len(unique), grad, weights, [int(s) for s in segment_ids], targets)
    return output, np.array(unique, indices.dtype)


@quiet
def row_dot(a: Array, b: Array, a_rows: Array, b_rows: Array) -> Array:
    A = accumulator(a.dtype)
    lanes = 64 // A.itemsize
    dots = np.zeros(len(a_rows), A)
    for i in range(len(a_rows)):
        left, right = a[a_rows[i]].astype(A).reshape(-1), b[b_rows[i]].astype(A).reshape(-1)
        whole = len(left) - len(left) % lanes
        sums = np.zeros(lanes, A)
        for start in range(0, whole, lanes):
            sums = sums + left[start : start + lanes] * right[start : start + lanes]
        while len(sums) > 1:
            sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
        rest = np.zeros(1, A)
        for column in range(whole, len(left)):
            rest = rest + left[column : column + 1] * right[column : column + 1]
        dots[i] = (sums + rest)[0]
    return dots.astype(a.dtype)


# ---------------------------------------------------------------- the largest of a segment


@quiet
def sparse_segment_max(data: Array, indices: Array, segment_ids: Array, num_segments: Any) -> tuple[Array, Array]:
    output = np.zeros((int(num_segments), *data.shape[1:]), data.dtype)
    chosen = np.full(output.shape, -1, np.int64)
    for i in range(len(indices)):
        for place in np.ndindex(data.shape[1:]):
            value, at = data[(int(indices[i]), *place)], (int(segment_ids[i]), *place)
            if chosen[at] == -1 or value > output[at] or (value != value and output[at] == output[at]):
                output[at], chosen[at] = value, indices[i]
    return output, chosen


@quiet
def sparse_segment_max_grad(grad: Array, chosen: Array, output_dim0: Any) -> Array:
    output = np.zeros((int(output_dim0), *grad.shape[1:]), accumulator(grad.dtype))
    for at in np.ndindex(grad.shape):
        if chosen[at] >= 0:
            target = (int(chosen[at]), *at[1:])
            output[target] = output[target] + grad[at].astype(output.dtype)
    return output.astype(grad.dtype)


def sparse_segment_max_grad_v2(grad: Array, chosen: Array, dense_output_dim0: Any) -> tuple[Array, Array]:
    unique = sorted({int(row) for row in chosen.reshape(-1)} - {-1})
    ranks = chosen_rank(np.array(unique, np.int64), chosen)
    return sparse_segment_max_grad(grad, ranks, len(unique)), np.array(unique, np.int64)


def sparse_segment_max_grad_grad(grad: Array, chosen: Array) -> Array:
    output = np.zeros(chosen.shape, grad.dtype)
    for at in np.ndindex(chosen.shape):
        if chosen[at] >= 0:
            output[at] = grad[(int(chosen[at]), *at[1:])]
    return output


def chosen_rank(sorted_unique_indices: Array, chosen: Array) -> Array:
    unique = [int(i) for i in sorted_unique_indices]
    flat = [unique.index(int(row)) if row >= 0 else -1 for row in chosen.reshape(-1)]
    return np.array(flat, np.int64).reshape(chosen.shape)


# ---------------------------------------------------------------- offsets


def segment_ids_from_offsets(offsets: Array, size: Any) -> Array:
    return np.array([max(s for s in range(len(offsets)) if offsets[s] <= i) for i in range(int(size))], np.int32)


# ---------------------------------------------------------------- fill empty rows


def sparse_fill_empty_rows(
    indices: Array, values: Array, dense_shape: Array, default_value: Any
) -> tuple[Array, Array, Array, Array]:
    default = default_value[()] if isinstance(default_value, np.ndarray) else default_value
    sources: list[int | None] = []  # for each output entry, the input entry that moves there, or None
    rows: list[int] = []
    empty: list[bool] = []
    for r in range(int(dense_shape[0])):
        entries = [i for i in range(len(indices)) if indices[i, 0] == r]
        sources += entries or [None]
        rows += [r] * max(len(entries), 1)
        empty.append(not entries)
    output_indices = np.zeros((len(sources), indices.shape[1]), np.int64)
    output_values = np.empty(len(sources), values.dtype)
    reverse_index_map = np.zeros(len(indices), np.int64)
    for k, i in enumerate(sources):
        if i is None:
            output_indices[k, 0] = rows[k]
            output_values[k] = default
        else:
            output_indices[k] = indices[i]
            output_values[k] = values[i]
            reverse_index_map[i] = k
    return output_indices, output_values, np.array(empty, np.bool_), reverse_index_map


def ragged_fill_empty_rows(
    value_rowids: Array, values: Array, nrows: Any, default_value: Any
) -> tuple[Array, Array, Array, Array]:
    column = np.reshape(value_rowids, (-1, 1))
    out_indices, *rest = sparse_fill_empty_rows(column, values, np.array([nrows]), default_value)
    return out_indices[:, 0], *rest


@quiet
def sparse_fill_empty_rows_grad(reverse_index_map: Array, grad_values: Array) -> tuple[Array, Array]:
    d_values = np.zeros(len(reverse_index_map), grad_values.dtype)
    for j, k in enumerate(reverse_index_map):
        d_values[j] = grad_values[k]
    total = np.zeros(1, accumulator(grad_values.dtype))
    visited = {int(k) for k in reverse_index_map}
    for k in range(len(grad_values)):
        if k not in visited:
            total = total + grad_values[k : k + 1].astype(total.dtype)
    return d_values, total.astype(grad_values.dtype).reshape(())


ragged_fill_empty_rows_grad = sparse_fill_empty_rows_grad


@quiet
def sparse_fill_empty_rows_grad_grad(
    reverse_index_map: Array, d_values_grad: Array, d_default_value_grad: Any, full_size: Any
) -> Array:
    output = np.zeros(int(full_size), d_values_grad.dtype)
    for k in range(len(output)):
        entries = [j for j in range(len(reverse_index_map)) if reverse_index_map[j] == k]
        total = np.zeros(1, accumulator(d_values_grad.dtype))
        for j in entries:
            total = total + d_values_grad[j : j + 1].astype(total.dtype)
        output[k] = total.astype(output.dtype)[0] if entries else d_default_value_grad
    return output


# ---------------------------------------------------------------- order and shape


def in_order(indices: Array) -> list[int]:
    """The entries by their indices; `sorted` keeps those with the same index in their order."""
    return sorted(range(len(indices)), key=lambda i: [int(x) for x in indices[i]])


def sparse_reorder(input_indices: Array, input_values: Array, input_shape: Array) -> tuple[Array, Array]:
    order = np.array(in_order(input_indices), np.int64)
    return input_indices[order], input_values[order]


def sparse_reorder_grad(grad: Array, input_indices: Array, input_shape: Array) -> Array:
    output = np.zeros(len(grad), grad.dtype)
    for k, i in enumerate(in_order(input_indices)):
        output[i] = grad[k]
    return output


def sparse_reshape(input_indices: Array, input_shape: Array, new_shape: Array) -> tuple[Array, Array]:
    before, after = [int(n) for n in input_shape], [int(n) for n in new_shape]
    if -1 in after:
        others = math.prod(n for n in after if n != -1)
        after[after.index(-1)] = math.prod(before) // others
    output = np.zeros((len(input_indices), len(after)), np.int64)
    for i, index in enumerate(input_indices):
        place = sum(int(x) * math.prod(before[d + 1 :]) for d, x in enumerate(index))
        for d in range(len(after)):
            stride = math.prod(after[d + 1 :])
            output[i, d] = place // stride
            place %= stride
    return output, np.array(after, np.int64)


# ---------------------------------------------------------------- slice


def sparse_slice(indices: Array, values: Array, shape: Array, start: Array, size: Array) -> tuple[Array, Array, Array]:
    windows = [(int(n), int(s), int(z)) for n, s, z in zip(shape, start, size, strict=True)]
    output_shape = [z if s < n - z else n - s if s < n else 0 for n, s, z in windows]
    kept = [
        i
        for i in range(len(indices))
        if all(s <= int(x) < s + z for x, (_, s, z) in zip(indices[i], windows, strict=True))
    ]
    out_indices = [[int(x) - s for x, (_, s, _) in zip(indices[i], windows, strict=True)] for i in kept]
    return (
        np.array(out_indices, np.int64).reshape(len(kept), len(windows)),
        values[kept],
        np.array(output_shape, np.int64),
    )


def matches(input_indices: Array, input_start: Array, output_indices: Array) -> list[int]:
    """For each output entry, the input entry that it came from."""
    inputs: list[int] = []
    for i, index in enumerate(input_indices):
        if len(inputs) == len(output_indices):
            break
        wanted = [int(o) + int(s) for o, s in zip(output_indices[len(inputs)], input_start, strict=True)]
        if [int(x) for x in index] == wanted:
            inputs.append(i)
    return inputs


def sparse_slice_grad(
    backprop_val_grad: Array, input_indices: Array, input_start: Array, output_indices: Array
) -> Array:
    val_grad = np.zeros(len(input_indices), backprop_val_grad.dtype)
    for j, i in enumerate(matches(input_indices, input_start, output_indices)):
        val_grad[i] = backprop_val_grad[j]
    return val_grad


def sparse_slice_grad_grad(grad: Array, input_indices: Array, input_start: Array, output_indices: Array) -> Array:
    return np.array([grad[i] for i in matches(input_indices, input_start, output_indices)], grad.dtype).reshape(
        len(output_indices)
    )
