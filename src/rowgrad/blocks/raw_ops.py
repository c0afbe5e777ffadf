"""The operators of pages as functions under TensorFlow's names: `rowgrad.blocks.raw_ops.MatMul`.

Those of `rowgrad.raw_ops` are here too, so that one module has all that a page may compute. Editors read `raw_ops.pyi`.
"""

from rowgrad import raw_ops
from rowgrad._ops.callables import make_raw_op
from rowgrad.blocks.operators import OPERATORS

__all__ = sorted(OPERATORS)
globals().update({name: getattr(raw_ops, name, None) or make_raw_op(OPERATORS[name]) for name in OPERATORS})
