"""The operators under TensorFlow's names, with its argument names and order: `rowgrad.raw_ops.SparseSegmentMeanGrad`.

As in `tf.raw_ops`, each takes all its inputs, and `name`, which means nothing here. Editors read `raw_ops.pyi`.
"""

from rowgrad._ops import OPERATORS
from rowgrad._ops.callables import make_raw_op
from rowgrad._ops.sparse_join import split_all

__all__ = sorted([*OPERATORS, "SparseSplit"])  # which gives lists, so that no block can be made of it
globals().update({name: make_raw_op(operator) for name, operator in OPERATORS.items()}, SparseSplit=split_all)


def __dir__() -> list[str]:
    return __all__
