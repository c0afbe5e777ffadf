"""Every optimizer again, as its dense formula in plain NumPy, and random batches to run them on."""

from typing import Any

import numpy as np

from rowgrad import optim

ROWS, SEGMENTS, ENTRIES = 40, 12, 60

EVERY = {
    "sgd": lambda **options: optim.SGD(0.1, **options),
    "momentum": lambda **options: optim.SGD(0.05, momentum=0.8, **options),
    "nesterov": lambda **options: optim.SGD(0.05, momentum=0.8, nesterov=True, **options),
    "adagrad": lambda **options: optim.Adagrad(0.2, initial_accumulator=0.1, **options),
    "row-wise adagrad": lambda **options: optim.RowWiseAdagrad(0.2, eps=1e-3, **options),
    "adam": lambda **options: optim.Adam(0.05, betas=(0.8, 0.95), **options),
    "adamw": lambda **options: optim.AdamW(0.05, betas=(0.8, 0.95), **options),
}


def batch(rng: np.random.Generator, tail: tuple[int, ...], dtype: Any) -> tuple[Any, Any, Any]:
    """The gradient of pooled rows, with ids that repeat, and rows that are never looked up."""
    grad = rng.standard_normal((SEGMENTS, *tail)).astype(dtype)
    indices = rng.zipf(1.4, ENTRIES) % (ROWS - 3)
    return grad, indices, rng.integers(0, SEGMENTS, ENTRIES)


def scattered(grad: Any, indices: Any, segment_ids: Any, weights: Any = 1.0) -> Any:
    """The dense gradient of a sum, each row in the order of the entries."""
    total = np.zeros((ROWS, *grad.shape[1:]), grad.dtype)
    factors = np.broadcast_to(np.asarray(weights, grad.dtype), indices.shape)
    np.add.at(total, indices, grad[segment_ids] * factors.reshape(-1, *[1] * (grad.ndim - 1)))
    return total


def dense_step(optimizer: Any, table: Any, grad: Any, state: dict[str, Any], number: int) -> tuple[Any, dict[str, Any]]:
    """The new table and the new state of step `number`, counted from 1, in the type of the arguments."""
    one = table.dtype.type
    lr, new = one(optimizer.lr), dict(state)
    if optimizer.weight_decay and not isinstance(optimizer, optim.AdamW):
        grad = grad + one(optimizer.weight_decay) * table
    if isinstance(optimizer, optim.SGD):
        if optimizer.momentum:
            new["momentum"] = one(optimizer.momentum) * state["momentum"] + grad
            grad = grad + one(optimizer.momentum) * new["momentum"] if optimizer.nesterov else new["momentum"]
        return table - lr * grad, new
    eps = one(optimizer.eps)
    if isinstance(optimizer, optim.Adagrad):
        new["sum"] = state["sum"] + grad**2
        return table - lr * grad / (np.sqrt(new["sum"]) + eps), new
    if isinstance(optimizer, optim.RowWiseAdagrad):
        new["sum"] = state["sum"] + np.mean(grad**2, axis=tuple(range(1, grad.ndim)), dtype=table.dtype)
        factor = lr / (np.sqrt(new["sum"]) + eps)
        return table - factor.reshape(-1, *[1] * (grad.ndim - 1)) * grad, new
    first, second = optimizer.betas
    new["m"] = one(first) * state["m"] + one(1 - first) * grad
    new["v"] = one(second) * state["v"] + one(1 - second) * grad**2
    if isinstance(optimizer, optim.AdamW):
        table = table * one(1 - optimizer.lr * optimizer.weight_decay)
    m = new["m"] / one(1 - first**number)
    v = new["v"] / one(1 - second**number)
    return table - lr * m / (np.sqrt(v) + eps), new


def only(touched: Any, new: Any, old: Any) -> Any:
    """`new` in the rows that are touched, `old` in the others."""
    return np.where(touched.reshape(-1, *[1] * (new.ndim - 1)), new, old)
