"""rowgrad for users of TensorFlow, and for those who migrate from it.

`load_checkpoint` reads checkpoints, SavedModels and Keras files, and does not need TensorFlow. The rest does, and is
loaded when it is first used: the operators and look-ups as differentiable functions of tensors, eager and inside
`tf.function`, and `patch`, which replaces TensorFlow's own look-ups. Type checkers read `__init__.pyi`.
"""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from typing import Any as _Any

from rowgrad._ops.callables import top_level as _top_level
from rowgrad.tensorflow._checkpoint import Checkpoint, Variable, load_checkpoint

_LOOKUPS = ("embedding_lookup_sparse", "patch", "safe_embedding_lookup_sparse")

__all__ = ["Checkpoint", "Variable", "load_checkpoint"]
__all__ += [*_LOOKUPS, *_top_level()] if _find_spec("tensorflow") is not None else []
__all__.sort()


def __getattr__(name: str) -> _Any:
    if name not in _LOOKUPS and name not in _top_level():
        raise AttributeError(f"module 'rowgrad.tensorflow' has no attribute {name!r}")
    try:
        _import_module("tensorflow")
    except ModuleNotFoundError as error:
        hint = f"rowgrad.tensorflow.{name} needs TensorFlow, which is not installed: pip install 'rowgrad[tensorflow]'"
        raise AttributeError(hint) from error
    module: _Any = _import_module("rowgrad.tensorflow._lookups")
    found = globals()[name] = getattr(module, name) if name in _LOOKUPS else module.FUNCTIONS[name]
    return found


def __dir__() -> list[str]:
    return __all__
