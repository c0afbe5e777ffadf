"""rowgrad for JAX: the operators under `jit`, `grad` and `vmap`, pooled look-ups, and training on the rows that occur.

On CPUs the kernels do the work, called back from XLA; elsewhere JAX's own operations do, with the same results up to
rounding. The functions are made from the catalogue: names and arguments are those of `rowgrad`'s own. Type checkers
and editors read `__init__.pyi`.
"""

from rowgrad._ops.callables import top_level as _top_level
from rowgrad.jax._bags import embedding_bag
from rowgrad.jax._differentiable import portable
from rowgrad.jax._functions import FUNCTIONS as _FUNCTIONS
from rowgrad.jax._rows import TakenRows, take_rows, value_and_row_grad
from rowgrad.jax._targets import register as _register

_register()

globals().update({name: _FUNCTIONS[name] for name in _top_level()})

__all__ = ["TakenRows", "embedding_bag", "portable", "take_rows", "value_and_row_grad"]
__all__ += _top_level()
__all__.sort()


def __dir__() -> list[str]:
    return __all__
