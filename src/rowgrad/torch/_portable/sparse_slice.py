"""Slicing sparse tensors, and the gradients.

Which kept entry came from which input is found one after the other, so the gradients look for it on the CPU, where the
kernels are: the indices go there, the values stay on their device.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rowgrad._ops import OPERATORS
from rowgrad._ops.pins import INT64_MAX
from rowgrad._ops.sparse_slice import window_shape
from rowgrad.torch._portable.common import complain, signed


def cut(indices: Any, values: Any, shape: list[int], start: list[int], size: list[int]) -> Any:
    """Keep the entries in a window."""
    given = (indices, values, shape, start, size)
    shaped = indices.dim() == 2 and values.dim() == 1 and len(values) == len(indices)
    if not shaped or not len(shape) == len(start) == len(size) == indices.shape[1]:
        complain("SparseSlice", *given)
    output_shape = window_shape(*(np.array(x, np.int64) for x in (shape, start, size)))
    kept = torch.ones(len(indices), dtype=torch.bool, device=indices.device)
    for axis, (first, length) in enumerate(zip(start, size, strict=True)):
        kept &= indices[:, axis] >= first
        if first + max(length, 0) <= INT64_MAX:
            kept &= indices[:, axis] < first + max(length, 0)
    places = torch.nonzero(kept).reshape(-1)
    moved = indices.index_select(0, places) - torch.tensor(start, dtype=torch.int64, device=indices.device)
    output_values = signed(values).index_select(0, places).view(values.dtype)
    return moved, output_values, torch.from_numpy(output_shape).to(indices.device)


def _matches(input_indices: Any, input_start: list[int], output_indices: Any) -> Any:
    """For each input, 1 + the kept entry that it became; 0 for those that were not kept."""
    numbers = np.arange(1, len(output_indices) + 1)
    given = (numbers, input_indices.cpu().numpy(), np.array(input_start, np.int64), output_indices.cpu().numpy())
    return torch.from_numpy(OPERATORS["SparseSliceGrad"](*given)).to(input_indices.device)


def cut_grad(backprop_val_grad: Any, input_indices: Any, input_start: list[int], output_indices: Any) -> Any:
    """Send gradients back to the entries that were kept."""
    given = (backprop_val_grad, input_indices, input_start, output_indices)
    shaped = input_indices.dim() == output_indices.dim() == 2 and backprop_val_grad.dim() == 1
    if not shaped or len(backprop_val_grad) != len(output_indices):
        complain("SparseSliceGrad", *given)
    matches = _matches(input_indices, input_start, output_indices)
    plain = signed(backprop_val_grad)
    result = plain.new_zeros(len(input_indices))
    kept = matches > 0
    result[kept] = plain.index_select(0, matches[kept] - 1)
    return result.view(backprop_val_grad.dtype)


def cut_grad_grad(grad: Any, input_indices: Any, input_start: list[int], output_indices: Any) -> Any:
    """Take, for each kept entry, the gradient of the input that it came from."""
    given = (grad, input_indices, input_start, output_indices)
    shaped = input_indices.dim() == output_indices.dim() == 2 and grad.dim() == 1
    if not shaped or len(grad) != len(input_indices):
        complain("SparseSliceGradGrad", *given)
    matches = _matches(input_indices, input_start, output_indices)
    plain = signed(grad)
    result = plain.new_zeros(len(output_indices))
    kept = matches > 0
    result[matches[kept] - 1] = plain[kept]
    return result.view(grad.dtype)


PATHS: dict[str, Callable[..., Any]] = {
    "SparseSlice": cut,
    "SparseSliceGrad": cut_grad,
    "SparseSliceGradGrad": cut_grad_grad,
}
