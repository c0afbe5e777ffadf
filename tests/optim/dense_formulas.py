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
    "partial row-wise adam": lambda **options: optim.PartialRowWiseAdam(0.05, betas=(0.8, 0.95), **options),
    "lamb": lambda **options: optim.LAMB(0.05, betas=(0.8, 0.95), **options),
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
    one, columns = table.dtype.type, tuple(range(1, grad.ndim))
    lr, decay, new = one(optimizer.lr), one(optimizer.weight_decay), dict(state)

    def norms(rows: Any) -> Any:
        return np.sqrt(np.sum(rows**2, axis=columns, keepdims=True))

    if optimizer.clip_value is not None:
        grad = np.clip(grad, -one(optimizer.clip_value), one(optimizer.clip_value))
    if optimizer.clip_norm is not None:
        grad = grad * np.minimum(1, one(optimizer.clip_norm) / np.maximum(norms(grad), one(1e-30)))
    if getattr(optimizer, "weight_decay_mode", "") == "l2" and decay:
        grad = grad + decay * table
    kept = table * (1 - lr * decay) if getattr(optimizer, "weight_decay_mode", "") == "decoupled" else table
    if isinstance(optimizer, optim.SGD):
        if optimizer.momentum:
            new["momentum"] = one(optimizer.momentum) * state["momentum"] + grad
            grad = grad + one(optimizer.momentum) * new["momentum"] if optimizer.nesterov else new["momentum"]
        return kept - lr * grad, new
    eps = one(optimizer.eps)
    if isinstance(optimizer, optim.Adagrad):
        new["sum"] = state["sum"] + grad**2
        return kept - lr * grad / (np.sqrt(new["sum"]) + eps), new
    by_row = (-1, *[1] * (grad.ndim - 1))
    if isinstance(optimizer, optim.RowWiseAdagrad):
        new["sum"] = state["sum"] + np.mean(grad**2, axis=columns, dtype=table.dtype)
        return kept - (lr / (np.sqrt(new["sum"]) + eps)).reshape(by_row) * grad, new
    first, second = optimizer.betas
    squares = grad**2
    if isinstance(optimizer, optim.PartialRowWiseAdam):
        squares = np.mean(squares, axis=columns, dtype=table.dtype)
    new["m"] = one(first) * state["m"] + one(1 - first) * grad
    new["v"] = one(second) * state["v"] + one(1 - second) * squares
    m = new["m"] / one(1 - first**number)
    v = new["v"] / one(1 - second**number)
    step = m / (np.sqrt(v if v.ndim == m.ndim else v.reshape(by_row)) + eps)
    if isinstance(optimizer, optim.LAMB):
        step = step + decay * table
        lengths, steps = norms(table), norms(step)
        known = (lengths > 0) & (steps > 0)
        step = step * np.where(known, lengths / np.where(known, steps, one(1)), one(1))
    return kept - lr * step, new


def only(touched: Any, new: Any, old: Any) -> Any:
    """`new` in the rows that are touched, `old` in the others."""
    return np.where(touched.reshape(-1, *[1] * (new.ndim - 1)), new, old)
