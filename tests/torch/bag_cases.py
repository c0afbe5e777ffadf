"""A table and a batch for tests of one layer, and what compares layers that hold them."""

from typing import Any

import numpy as np

from optional import framework

torch = framework("torch")

from rowgrad.torch import EmbeddingBag  # noqa: E402

ROWS, WIDTH = 12, 5
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def table(dtype: Any = torch.float32) -> Any:
    return torch.tensor(np.random.default_rng(7).normal(size=(ROWS, WIDTH))).to(dtype)


def pair(dtype: Any = torch.float32, **settings: Any) -> tuple[Any, Any]:
    theirs = torch.nn.EmbeddingBag(ROWS, WIDTH, _weight=table(dtype), **settings)
    return theirs, EmbeddingBag(ROWS, WIDTH, _weight=table(dtype), **settings)


def batch(ids: Any = torch.int64) -> tuple[Any, Any]:
    """Ids with repeats, and bags of which the first, one in the middle and the last are empty."""
    random = np.random.default_rng(3)
    return torch.tensor(random.integers(0, ROWS, 20)).to(ids), torch.tensor([0, 0, 4, 9, 9, 20]).to(ids)


def train(layer: Any, *inputs: Any, **more: Any) -> tuple[Any, Any]:
    """The pooled rows, and the gradient of the table for a gradient that differs from place to place."""
    pooled = layer(*inputs, **more)
    torch.manual_seed(1)
    pooled.backward(torch.randn(pooled.shape).to(pooled.dtype))
    grad = layer.weight.grad
    return pooled.detach(), grad.to_dense() if grad.is_sparse else grad


def assert_equal(theirs: Any, ours: Any) -> None:
    tolerance = TOLERANCE[theirs.dtype]
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
