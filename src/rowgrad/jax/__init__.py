"""rowgrad for JAX: the operators under `jit`, `grad` and `vmap`, pooled look-ups, and training on the rows that occur.

On CPUs the kernels do the work, called back from XLA; elsewhere JAX's own operations do, with the same results up to
rounding. The functions are made from the catalogue: names and arguments are those of `rowgrad`'s own.
"""

from typing import Any

from rowgrad.jax._bags import embedding_bag
from rowgrad.jax._differentiable import portable
from rowgrad.jax._functions import FUNCTIONS
from rowgrad.jax._rows import TakenRows, take_rows, value_and_row_grad

globals().update(FUNCTIONS)

__all__ = ["TakenRows", "embedding_bag", "portable", "take_rows", "value_and_row_grad"]
__all__ += sorted(FUNCTIONS)


def __getattr__(name: str) -> Any:  # tells type checkers that there are more names than are written here
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
