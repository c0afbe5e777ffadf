"""Tables in several parts, and rows whose norm is bounded: what the embedding look-ups do before they pool.

Parts are joined by the operations of their framework, and rows are bounded by them, so that gradients flow.
"""

from importlib import import_module
from typing import Any

import numpy as np

from rowgrad._ops import checks
from rowgrad._runtime import arrays
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import InvalidArgumentError

STRATEGIES = ("div", "mod")


def is_partitioned(params: Any) -> bool:
    """Whether `params` are the parts of a table, and not a table in lists."""
    return isinstance(params, list | tuple) and len(params) > 0 and all(
        arrays.kind_of(part) is not None for part in params
    )  # fmt: skip


def check_strategy(strategy: str) -> None:
    """`div`: each part has successive rows; `mod`: row i is in part i mod n."""
    if strategy not in STRATEGIES:
        raise InvalidArgumentError(
            f"partition_strategy is {strategy!r}; it must be 'div' or 'mod'.",
            code="bad-setting",
            argument="partition_strategy",
            value=strategy,
        )


def places_in_parts(ids: Array, rows: list[int], strategy: str) -> Array:
    """Where each id stands in the parts joined one after the other."""
    parts, total = len(rows), sum(rows)
    numbers = ids.astype(np.int64)
    if strategy == "mod":
        part, row = numbers % parts, numbers // parts
    else:
        each, extra = divmod(total, parts)
        part = np.maximum(numbers // (each + 1), (numbers - extra) // max(each, 1))
        row = np.where(part < extra, numbers % (each + 1), (numbers - extra) % max(each, 1))
    sizes = np.array(rows, np.int64)
    wrong = (numbers < 0) | (part >= parts)
    wrong |= row >= sizes[np.clip(part, 0, parts - 1)]
    if wrong.any():
        position = int(wrong.reshape(-1).argmax())
        raise checks.out_of_range("ids", position, int(numbers.reshape(-1)[position]), total, "the rows of all params",
                                  "index-out-of-range", "Drop the id, or fix it.")  # fmt: skip
    starts = np.cumsum(sizes) - sizes
    places: Array = starts[part] + row
    return places


def joined(parts: Any) -> Any:
    """The parts as one table."""
    kind = arrays.kind_of(parts[0])
    if kind is arrays.TORCH:
        return import_module("torch").cat(list(parts))
    if kind is arrays.JAX:
        return import_module("jax.numpy").concatenate(list(parts))
    return np.concatenate([arrays.adopt(part) for part in parts])


def check_norm(max_norm: Any) -> float | None:
    """A bound above 0, or none."""
    if max_norm is None:
        return None
    if isinstance(max_norm, bool) or not isinstance(max_norm, int | float | np.number) or not max_norm > 0:
        raise InvalidArgumentError(
            f"max_norm is {max_norm!r}; it must be a number above 0, or None.",
            code="bad-setting",
            argument="max_norm",
            value=max_norm,
        )
    return float(max_norm)


def bounded_rows(rows: Any, max_norm: float) -> Any:
    """Rows of a larger norm shortened to `max_norm`, as `tf.clip_by_norm` does."""
    module: Any = {arrays.TORCH: "torch", arrays.JAX: "jax.numpy"}.get(arrays.kind_of(rows), "numpy")  # type: ignore[arg-type]
    module = import_module(module)
    axes = tuple(range(1, rows.ndim))
    squares = (rows * rows).sum(axes).reshape(-1, *[1] * len(axes)) if axes else rows * rows
    known = squares > 0
    # The root of 0 has no gradient, so it is not taken.
    norms = module.where(known, module.sqrt(module.where(known, squares, module.ones_like(squares))), squares)
    bound = module.ones_like(norms) * max_norm
    shortened = rows * max_norm / module.maximum(norms, bound)
    return shortened.astype(rows.dtype) if hasattr(shortened, "astype") else shortened
