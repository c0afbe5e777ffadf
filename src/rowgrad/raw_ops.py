"""The operators under TensorFlow's names, with its argument names and order: `rowgrad.raw_ops.SparseSegmentMeanGrad`.

As in `tf.raw_ops`, each takes all its inputs, and `name`, which means nothing here. Editors read `raw_ops.pyi`.
"""

from rowgrad._ops import OPERATORS
from rowgrad._ops.callables import make_raw_op
from rowgrad._ops.ragged_gather import gather
from rowgrad._ops.sparse_join import split_all
from rowgrad._ops.tensors_map import MAPS

# Some operators give lists, so that no block can be made of them; maps keep what they are given, so that they are no
# functions.
_lists = {"RaggedGather": gather, "SparseSplit": split_all}
__all__ = sorted([*OPERATORS, *MAPS, *_lists])
globals().update({name: make_raw_op(operator) for name, operator in {**OPERATORS, **MAPS}.items()}, **_lists)


def __dir__() -> list[str]:
    return __all__
