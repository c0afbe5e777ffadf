"""What differs between the kinds of arrays: where their functions are, and how entries are taken and put.

A caller that has arrays of a framework has loaded it; nothing here loads one.
"""

import sys
from importlib import import_module
from typing import Any

import numpy as np

from rowgrad._runtime import arrays
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import DTypeError

LARGEST = 2**63 - 1


def kind_of(*values: Any) -> arrays.Kind:
    """The framework of the first array that has one."""
    for value in values:
        kind = arrays.kind_of(value)
        if kind is not None:
            return kind
    return arrays.NUMPY


def functions(*values: Any) -> Any:
    """The module whose operators take `values`: they are differentiable in PyTorch's and JAX's."""
    kind = kind_of(*values)
    name = {arrays.TORCH: "rowgrad.torch", arrays.JAX: "rowgrad.jax"}.get(kind, "rowgrad")
    return import_module(name)


def module(*values: Any) -> Any:
    """The module with `concatenate`, `stack`, … for arrays of this kind."""
    kind = kind_of(*values)
    if kind is arrays.TORCH:
        return sys.modules["torch"]
    if kind is arrays.JAX:
        return import_module("jax.numpy")
    return np


def as_kind(value: Any, *like: Any) -> Any:
    """`value`, an ndarray or a list, as an array of the kind, and on the device, of `like`."""
    kind = kind_of(*like)
    if arrays.kind_of(value) is kind and kind is not arrays.NUMPY:
        return value
    if kind is arrays.TORCH:
        torch = sys.modules["torch"]
        device = next(item.device for item in like if arrays.kind_of(item) is kind)
        return torch.as_tensor(
            plain(value) if not isinstance(value, list | tuple | float | int) else value, device=device
        )
    if kind is arrays.JAX:
        return import_module("jax.numpy").asarray(plain(value))
    return kind.hand_back(plain(value)) if kind is arrays.TENSORFLOW else arrays.adopt(value)


def plain(value: Any) -> Array:
    """`value` as an ndarray; gradients do not pass."""
    if arrays.kind_of(value) is arrays.TORCH:
        value = value.detach().cpu()
    elif arrays.kind_of(value) is arrays.JAX and value.dtype.kind in "iub":
        value = _untraced(value)
    return np.asarray(arrays.adopt(value))


def _untraced(value: Any) -> Any:
    """Whole numbers of JAX without the trace of a gradient, which they have none of."""
    while hasattr(value, "primal"):
        value = value.primal
    return value


def whole_numbers(name: str, value: Any) -> Array:
    """A vector of sizes or axes, as int64; a single number is one of length 1."""
    found = np.atleast_1d(plain(value))
    found = found.astype(np.int64) if found.size == 0 else found
    if found.dtype.kind not in "iu" or found.ndim != 1 or (found.dtype.kind == "u" and found.max() > LARGEST):
        raise DTypeError(
            f"{name} is {value!r}; it must be whole numbers of 64 bits, in one row.",
            code="wrong-dtype",
            argument=name,
            value=str(value),
        )
    return found.astype(np.int64)


def ids(value: Any, *like: Any) -> Any:
    """Whole numbers as 64-bit integers of the kind of `like` (of 32 bits where JAX has no others)."""
    kind = kind_of(*like)
    if arrays.kind_of(value) is kind is arrays.TORCH:
        return value if value.dtype == sys.modules["torch"].int64 else value.long()
    if arrays.kind_of(value) is kind is arrays.JAX:
        return _untraced(value)
    found = plain(value)
    return as_kind(found.astype(np.int64) if found.dtype.kind in "iu" or found.size == 0 else found, *like)


def take(values: Any, positions: Any) -> Any:
    """values[positions], differentiable where the framework is."""
    kind = kind_of(values)
    if kind is arrays.TENSORFLOW:
        return kind.hand_back(plain(values)[plain(positions)])
    if kind is arrays.NUMPY:
        return arrays.adopt(values)[plain(positions)]
    return values[as_kind(positions, values)]


def is_traced(value: Any) -> bool:
    """Whether `value` is an array of JAX that has no values yet."""
    return kind_of(value) is arrays.JAX and isinstance(value, import_module("jax").core.Tracer)
