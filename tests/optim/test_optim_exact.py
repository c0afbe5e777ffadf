"""Each optimizer, to the bit, as a loop over rows in plain NumPy: which products are rounded, and in which order."""

from typing import Any

import numpy as np
import pytest
from dense_formulas import EVERY

from rowgrad import optim
from rowgrad._ops.results import RowGradient

ROWS = 12
ADJUSTMENTS: dict[str, dict[str, Any]] = {
    "plain": {"weight_decay": 0.0},
    "l2": {"weight_decay": 0.1, "weight_decay_mode": "l2"},
    "decoupled": {"weight_decay": 0.1, "weight_decay_mode": "decoupled", "clip_value": 0.8},
    "clipped": {"weight_decay": 0.1, "weight_decay_mode": "l2", "clip_value": 1.1, "clip_norm": 1.3},
}


def sum_of_squares(row: Any) -> float:
    """In vectors of 64 bytes, then of 16, then one by one; each kind of vectors is added up pairwise, in its type."""
    total, column = 0.0, 0
    for count in (64 // row.itemsize, 16 // row.itemsize, 1):
        squares = np.zeros(count, row.dtype)
        while column + count <= row.size:
            squares = squares + row[column : column + count] ** 2
            column += count
        while squares.size > 1:
            squares = squares[: squares.size // 2] + squares[squares.size // 2 :]
        total += float(squares[0])
    return total


def stepped(optimizer: Any, row: Any, grad: Any, state: dict[str, Any], at: int, number: int) -> Any:
    """The new row; its state is changed."""
    one = row.dtype.type
    lr, decay, mode = optimizer.lr, optimizer.weight_decay, getattr(optimizer, "weight_decay_mode", "")
    if optimizer.clip_value is not None:
        grad = np.clip(grad, -one(optimizer.clip_value), one(optimizer.clip_value))
    if optimizer.clip_norm is not None:
        norm = np.sqrt(sum_of_squares(grad))
        grad = grad * one(optimizer.clip_norm / norm if norm > optimizer.clip_norm else 1)
    if mode == "l2" and decay:
        grad = grad + one(decay) * row
    kept = one(1 - lr * decay) * row if mode == "decoupled" and decay else row
    if isinstance(optimizer, optim.SGD):
        if optimizer.momentum:
            share = one(optimizer.momentum)
            state["momentum"][at] = share * state["momentum"][at] + grad
            grad = grad + share * state["momentum"][at] if optimizer.nesterov else state["momentum"][at]
        return kept - one(lr) * grad
    if isinstance(optimizer, optim.Adagrad):
        state["sum"][at] += grad * grad
        return kept - one(lr) * grad / (np.sqrt(state["sum"][at]) + one(optimizer.eps))
    if isinstance(optimizer, optim.RowWiseAdagrad):
        state["sum"][at] = float(state["sum"][at]) + sum_of_squares(grad) / row.size
        return kept - one(lr / (np.sqrt(float(state["sum"][at])) + optimizer.eps)) * grad
    first, second = optimizer.betas
    root = (1 - second**number) ** 0.5
    correction, eps = root / (1 - first**number), optimizer.eps * root
    m, v = state["m"], state["v"]
    m[at] = one(first) * m[at] + one(1 - first) * grad
    if isinstance(optimizer, optim.PartialRowWiseAdam):
        v[at] = second * float(v[at]) + (1 - second) * (sum_of_squares(grad) / row.size)
        return kept - one(lr * root / (1 - first**number) / (np.sqrt(float(v[at])) + eps)) * m[at]
    v[at] = one(second) * v[at] + one(1 - second) * (grad * grad)
    if isinstance(optimizer, optim.LAMB):
        step = one(correction) * m[at] / (np.sqrt(v[at]) + one(eps)) + one(decay) * row
        length, reach = np.sqrt(sum_of_squares(row)), np.sqrt(sum_of_squares(step))
        return row - one(lr * (length / reach) if length > 0 and reach > 0 else lr) * step
    return kept - one(lr * root / (1 - first**number)) * m[at] / (np.sqrt(v[at]) + one(eps))


@pytest.mark.parametrize("width, dtype", [(1, np.float32), (23, np.float32), (70, np.float32), (13, np.float64)])
@pytest.mark.parametrize("adjustment", ADJUSTMENTS)
@pytest.mark.parametrize("name", EVERY)
def test_to_the_bit(name: str, adjustment: str, width: int, dtype: Any) -> None:
    optimizer = EVERY[name]()
    for setting, value in ADJUSTMENTS[adjustment].items():
        if setting in optimizer.settings():
            setattr(optimizer, setting, value)
    rng = np.random.default_rng(width)
    table = rng.standard_normal((ROWS, width)).astype(dtype)
    table[3] = 0  # LAMB has no length to keep in proportion to
    state = optimizer.init(table)
    expected, wanted = table.copy(), {key: value.copy() for key, value in state.items()}
    for number in range(1, 4):
        rows = np.sort(rng.choice(ROWS, 5, replace=False))
        grads = rng.standard_normal((5, width)).astype(dtype)
        grads[0] = 0
        optimizer.step(table, RowGradient(grads, rows), state)
        for row, grad in zip(rows, grads, strict=True):
            expected[row] = stepped(optimizer, expected[row], grad, wanted, row, number)
    np.testing.assert_array_equal(table, expected)
    for key in wanted.keys() - {"step"}:
        np.testing.assert_array_equal(state[key], wanted[key])


def test_clipping_keeps_nan_and_what_is_short() -> None:
    table = np.zeros((3, 2), np.float32)
    grads = np.array([[np.nan, 5], [0.3, -0.4], [np.inf, 1]], np.float32)
    optim.SGD(1.0, clip_value=2.0).step(table, RowGradient(grads, np.arange(3)))
    np.testing.assert_array_equal(table, -np.array([[np.nan, 2], [0.3, -0.4], [2, 1]], np.float32))
    table[:] = 0
    optim.SGD(1.0, clip_norm=0.5).step(table, RowGradient(grads[1:2] * 4, np.array([1])))
    np.testing.assert_allclose(table[1], [-0.3, 0.4], rtol=1e-6)
