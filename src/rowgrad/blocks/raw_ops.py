"""The operators of pages as functions under TensorFlow's names: `rowgrad.blocks.raw_ops.MatMul`.

Those of `rowgrad.raw_ops` are here too, so that one module has all that a page may compute. Editors read `raw_ops.pyi`.
"""

from rowgrad import raw_ops
from rowgrad._ops.callables import make_raw_op
from rowgrad.blocks.operators import OPERATORS
from rowgrad.blocks.operators.joining import concat, concat_offset

_sparse = {name: getattr(raw_ops, name) for name in raw_ops.__all__}
_own = {operator.raw_name: make_raw_op(operator) for name, operator in OPERATORS.items() if name not in _sparse}
_all = {**_own, **_sparse, "Concat": concat, "ConcatOffset": concat_offset}
__all__ = sorted(_all)
globals().update(_all)
