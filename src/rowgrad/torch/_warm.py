"""Compile the kernels of layers, which the operators do not have: `rowgrad doctor --warm`."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import torch

from rowgrad._runtime import dtypes
from rowgrad.optim import from_dict
from rowgrad.torch._embedding_bag import EmbeddingBag


def tasks(widths: Sequence[int], optimizers: Iterable[str]) -> list[tuple[str, Callable[[], Any]]]:
    """Layers with a sparse gradient and with each optimizer, for float32 in every width, with a label for each."""
    found: list[tuple[str, Callable[[], Any]]] = []
    updates = (None, *optimizers)
    for width in widths:
        for mode in ("sum", "mean"):
            found += [(f"EmbeddingBag {mode} {name or 'sparse'} float32, {width} wide",
                       partial(_train, "float32", width, mode, name)) for name in updates]  # fmt: skip
        found.append((f"EmbeddingBag weighted float32, {width} wide",
                      partial(_train, "float32", width, "sum", None, weighted=True)))  # fmt: skip
    found += [(f"EmbeddingBag mean {name or 'sparse'} {dtype}", partial(_train, dtype, 16, "mean", name))
              for dtype in dtypes.FLOATS if dtype != "float32" for name in updates]  # fmt: skip
    if torch.distributed.is_available():
        found += import_module("rowgrad.torch.distributed._warm").tasks(widths, updates[1:])
    return found


def _train(dtype: str, width: int, mode: str, name: str | None, *, weighted: bool = False) -> None:
    fused = None if name is None else from_dict({"name": name, "lr": 0.0})
    kind = getattr(torch, dtype)
    bag = EmbeddingBag(4, width, mode=mode, sparse=fused is None, fused_optimizer=fused, dtype=kind)
    ids = torch.zeros(2, 2, dtype=torch.int64)
    bag(ids, None, torch.ones(2, 2, dtype=kind) if weighted else None).sum().backward()
