"""rowgrad for PyTorch: every function of rowgrad as `torch.ops.rowgrad.…`, and under its Python name here.

CPU tensors share memory with the kernels; gradients flow to any order; `torch.compile`, `torch.func.vmap` and
`torch.func.grad` work. See `docs/torch.md`. Importing this registers the operators with PyTorch.
"""

from rowgrad.torch.embedding_bag import EmbeddingBag as EmbeddingBag
from rowgrad.torch.functions import functions
from rowgrad.torch.kernels import portable as portable
from rowgrad.torch.optim import RowOptimizer as RowOptimizer
from rowgrad.torch.register import register

register()
_functions = functions()
globals().update(_functions)

__all__ = sorted([*_functions, "EmbeddingBag", "RowOptimizer", "portable"])
