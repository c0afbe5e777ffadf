"""The arithmetic of sizes in gradient rules: shapes stay whole numbers, and never become tensors.

A rule such as ``Reshape(ReduceSum(d_z, BroadcastGradientArgs(Shape(x), Shape(y)).r0), Shape(x))`` calls operators on
shapes. In PyTorch those are numbers, or symbols of a program that is compiled; here stand the few operators that rules
apply to them, and those that only move elements about, which are PyTorch's own.
"""

from math import prod
from typing import Any

import numpy as np
import torch

from rowgrad._ops.results import BroadcastAxes


def _objects(value: Any) -> Any:
    """Numbers and symbols as an array of objects, on which NumPy's arithmetic works as on numbers."""
    if isinstance(value, list | tuple) and not value:
        return np.empty(0, object)
    return np.array(value, object)


def _listed(array: Any) -> Any:
    return array.tolist() if isinstance(array, np.ndarray) else array


def _slice(values: Any, begin: Any, size: Any) -> Any:
    window = tuple(slice(b, None if s == -1 else b + s) for b, s in zip(begin, size, strict=True))
    return _listed(_objects(values)[window])


def _gradient_axes(s0: Any, s1: Any) -> BroadcastAxes:
    rank = max(len(s0), len(s1))
    left, right = ([1] * (rank - len(s)) + list(s) for s in (s0, s1))
    pairs = list(enumerate(zip(left, right, strict=True)))
    first = [d for d, (a, b) in pairs if d < rank - len(s0) or (a == 1 and b != 1)]
    second = [d for d, (a, b) in pairs if d < rank - len(s1) or (b == 1 and a != 1)]
    return BroadcastAxes(first, second)


def _offset(axis: int, shapes: Any, *, position: int) -> list[Any]:
    offset: list[Any] = [0] * len(shapes[0])
    offset[axis] = sum(shape[axis] for shape in shapes[:position])
    return offset


# On numbers and lists of them.
ON_NUMBERS: dict[str, Any] = {
    "Shape": lambda input, out_type=None: list(_objects(input).shape),
    "Size": lambda input, out_type=None: _objects(input).size,
    "Cast": lambda x, DstT=None: x,
    "Sub": lambda x, y: _listed(_objects(x) - _objects(y)),
    "Div": lambda x, y: x / y,
    "ExpandDims": lambda input, axis: _listed(np.expand_dims(_objects(input), axis)),
    "Concat": lambda values, axis: _listed(np.concatenate([_objects(value) for value in values], axis)),
    "Slice": _slice,
    "Reshape": lambda tensor, shape: _listed(_objects(tensor).reshape(shape)),
    "InvertPermutation": lambda x: [list(x).index(axis) for axis in range(len(x))],
    "BroadcastGradientArgs": _gradient_axes,
    "ConcatOffset": _offset,
}

# On tensors: sizes, and what changes no value.
ON_TENSORS: dict[str, Any] = {
    "Shape": lambda input, out_type=None: list(input.shape),
    "Size": lambda input, out_type=None: prod(input.shape),
    "Reshape": torch.reshape,
    "BroadcastTo": torch.broadcast_to,
}


def holds_tensors(values: Any) -> bool:
    """Whether there is a tensor among `values`, or in a list among them."""
    return any(
        isinstance(value, torch.Tensor) or (isinstance(value, list | tuple) and holds_tensors(value))
        for value in values
    )
