"""rowgrad for PyTorch: every function of rowgrad as `torch.ops.rowgrad.…`, and under its Python name here.

CPU tensors share memory with the kernels; gradients flow to any order; `torch.compile`, `torch.func.vmap` and
`torch.func.grad` work. See `docs/torch.md`. Importing this registers the operators with PyTorch; `distributed` is
loaded when it is first used. Type checkers and editors read `__init__.pyi`.
"""

from importlib import import_module as _import_module
from typing import Any as _Any

from rowgrad._ops.callables import top_level as _top_level
from rowgrad.torch._collection import EmbeddingBagCollection
from rowgrad.torch._configs import EmbeddingBagConfig
from rowgrad.torch._embedding_bag import EmbeddingBag
from rowgrad.torch._functions import functions as _functions
from rowgrad.torch._jagged import JaggedTensor
from rowgrad.torch._kernels import portable
from rowgrad.torch._keyed import KeyedTensor
from rowgrad.torch._keyed_jagged import KeyedJaggedTensor
from rowgrad.torch._optim import RowOptimizer
from rowgrad.torch._register import register as _register

_register()
globals().update({name: function for name, function in _functions().items() if name in _top_level()})

__all__ = [
    "EmbeddingBag",
    "EmbeddingBagCollection",
    "EmbeddingBagConfig",
    "JaggedTensor",
    "KeyedJaggedTensor",
    "KeyedTensor",
    "RowOptimizer",
    "distributed",
    "portable",
]
__all__ += _top_level()
__all__.sort()


def __getattr__(name: str) -> _Any:
    if name == "distributed":
        return _import_module("rowgrad.torch.distributed")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
