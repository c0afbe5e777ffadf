"""The operators on tensors: on the CPU by rowgrad's kernels, which share the tensors' memory, else by `portable`.

These functions run below autograd, batching and compilation: what comes in are plain tensors.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rowgrad._ops import Operator
from rowgrad.torch import _portable as paths
from rowgrad.torch._schema import Role, roles, settings

_forced = 0  # how many `portable` blocks are open


@contextmanager
def portable() -> Iterator[None]:
    """Context manager that computes with PyTorch's own operators on CPUs too, as on other devices, without our kernels.

    It is meant for tests and comparisons, and applies to the whole process, not only to this thread.

    Examples
    --------
    >>> import torch
    >>> import rowgrad.torch
    >>> ids = torch.tensor([0, 1, 1])
    >>> with rowgrad.torch.portable():
    ...     rowgrad.torch.sparse_segment_sum(torch.ones(2, 1), ids, ids).tolist()
    [[1.0], [2.0]]
    """
    global _forced
    _forced += 1
    try:
        yield
    finally:
        _forced -= 1


def is_portable() -> bool:
    """Whether a `portable` block is open."""
    return _forced > 0


def cpu_kernel(operator: Operator) -> Callable[..., Any]:
    """`operator` on CPU tensors."""
    here, elsewhere = _by_kernels(operator), device_kernel(operator)

    def kernel(*values: Any, **given: Any) -> Any:
        return elsewhere(*values, **given) if _forced else here(*values, **given)

    return kernel


def _by_kernels(operator: Operator) -> Callable[..., Any]:
    in_tuple = operator.result is not None
    has_sizes = Role.SIZES in roles(operator)

    def kernel(*values: Any, **given: Any) -> Any:
        if has_sizes:
            values = tuple(_shaped(operator, values))
        results = operator(*values, **settings(operator, given)) if operator.attributes else operator(*values)
        return tuple(results) if in_tuple else results

    return kernel


def _shaped(operator: Operator, values: tuple[Any, ...]) -> list[Any]:
    """Lists of whole numbers as arrays, of the type of the ids that they go with."""
    pins = [(pin, value) for pin, value in zip(operator.inputs, values, strict=True) if isinstance(value, torch.Tensor)]
    narrow = {pin.dtype for pin, value in pins if pin.dtype in operator.types and value.dtype == torch.int32}
    return [np.array(value, np.int32 if pin.dtype in narrow else np.int64) if role is Role.SIZES else value
            for pin, role, value in zip(operator.inputs, roles(operator), values, strict=True)]  # fmt: skip


def device_kernel(operator: Operator) -> Callable[..., Any]:
    """`operator` on tensors of any device: there, if it has a portable form, else on the CPU and back."""
    path, elsewhere = paths.PATHS.get(operator.name), _by_way_of_cpu(operator)
    if path is None:
        return elsewhere

    def kernel(*values: Any, **given: Any) -> Any:
        for fitter, value in zip(operator.fitters, values, strict=True):
            if isinstance(value, torch.Tensor) and str(value.dtype).removeprefix("torch.") not in fitter.names:
                return elsewhere(*values, **given)  # a type that is converted, or refused
        return paths.call(operator, path, values, settings(operator, given) if operator.attributes else {})

    return kernel


def device_of(values: tuple[Any, ...]) -> torch.device:
    """The device of the first tensor."""
    parts = (part for value in values for part in (value if isinstance(value, list | tuple) else (value,)))
    device: torch.device = next(part.device for part in parts if isinstance(part, torch.Tensor))
    return device


def _on_cpu(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_on_cpu(part) for part in value]
    return value.cpu() if isinstance(value, torch.Tensor) else value


def _by_way_of_cpu(operator: Operator) -> Callable[..., Any]:
    compute = _by_kernels(operator)

    def kernel(*values: Any, **given: Any) -> Any:
        device = device_of(values)
        results = compute(*map(_on_cpu, values), **given)
        return tuple(result.to(device) for result in results) if isinstance(results, tuple) else results.to(device)

    return kernel
