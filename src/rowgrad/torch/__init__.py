"""rowgrad for PyTorch: every operator of the catalogue as `torch.ops.rowgrad.…`, and under its Python name here.

CPU tensors share memory with the kernels; gradients flow to any order; `torch.compile`, `torch.func.vmap` and
`torch.func.grad` work. See `docs/torch.md`. Importing this registers the operators with PyTorch.
"""

from rowgrad.torch._embedding_bag import EmbeddingBag as EmbeddingBag
from rowgrad.torch._functions import functions
from rowgrad.torch._kernels import portable as portable
from rowgrad.torch._optim import RowOptimizer as RowOptimizer
from rowgrad.torch._register import register

register()
_functions = functions()
globals().update(_functions)

__all__ = sorted([*_functions, "EmbeddingBag", "RowOptimizer", "portable"])
