"""rowgrad: TensorFlow's sparse-segment, fill-empty-rows and slice operators and their gradients, without TensorFlow.

Give the functions NumPy, PyTorch, JAX or TensorFlow arrays, or lists; results come back as the kind that went in.
`rowgrad.raw_ops` has the same operators under TensorFlow's names. `rowgrad.torch`, `rowgrad.jax`, `rowgrad.tensorflow`,
`rowgrad.blocks` and the other submodules are loaded when they are first used. Type checkers read `__init__.pyi`.
"""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from typing import Any as _Any

from rowgrad import errors as errors
from rowgrad._ops import functions as _functions
from rowgrad._ops.callables import top_level as _top_level
from rowgrad._ops.embedding_lookup import embedding_lookup, embedding_lookup_sparse, safe_embedding_lookup_sparse
from rowgrad._ops.from_ragged import RaggedIds, from_ragged
from rowgrad._ops.plan import Plan, plan
from rowgrad._ops.ragged_tensor import RaggedTensor, row_splits_to_segment_ids, segment_ids_to_row_splits
from rowgrad._ops.results import (
    ChosenEntries,
    CountedEntries,
    FilledRagged,
    FilledRows,
    FillGradient,
    OrderedEntries,
    ReshapedEntries,
    RowGradient,
    SegmentMax,
    SparseEntries,
    SparseSum,
    SumGradient,
)
from rowgrad._runtime.threads import get_num_threads, set_num_threads
from rowgrad.errors import (
    DTypeError,
    FileError,
    InvalidArgumentError,
    OutOfMemoryError,
    OutOfRangeError,
    PageError,
    RowgradError,
)

__version__ = "0.1.0"

_SUBMODULES = ("blocks", "features", "optim", "raw_ops", "sparse", "tables")
# Not in `__all__`: a star import loads no framework, and hides none.
_FRONT_ENDS = {"jax": "JAX", "keras": "Keras", "tensorflow": "TensorFlow", "torch": "PyTorch"}

globals().update({name: getattr(_functions, name) for name in _top_level()})

__all__ = [
    "ChosenEntries",
    "CountedEntries",
    "DTypeError",
    "FileError",
    "FillGradient",
    "FilledRagged",
    "FilledRows",
    "InvalidArgumentError",
    "KeyTable",
    "OrderedEntries",
    "OutOfMemoryError",
    "OutOfRangeError",
    "PageError",
    "Plan",
    "RaggedIds",
    "RaggedTensor",
    "ReshapedEntries",
    "RowGradient",
    "RowgradError",
    "SegmentMax",
    "SparseEntries",
    "SparseSum",
    "SparseTensor",
    "SumGradient",
    "Table",
    "TableSet",
    "embedding_lookup",
    "embedding_lookup_sparse",
    "errors",
    "from_ragged",
    "get_num_threads",
    "plan",
    "row_splits_to_segment_ids",
    "safe_embedding_lookup_sparse",
    "segment_ids_to_row_splits",
    "set_num_threads",
]
__all__ += [*_SUBMODULES, *_top_level()]
__all__.sort()


def __getattr__(name: str) -> _Any:
    if name in ("KeyTable", "Table", "TableSet"):
        globals()[name] = table = getattr(_import_module("rowgrad.tables"), name)
        return table
    if name == "SparseTensor":
        globals()["SparseTensor"] = tensor = _import_module("rowgrad.sparse").SparseTensor
        return tensor
    if name in _SUBMODULES:
        return _import_module(f"rowgrad.{name}")
    if name in _FRONT_ENDS:
        try:
            return _import_module(f"rowgrad.{name}")
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            hint = f"rowgrad.{name} needs {_FRONT_ENDS[name]}, which is not installed: pip install 'rowgrad[{name}]'"
            raise AttributeError(hint) from error
    raise AttributeError(f"module 'rowgrad' has no attribute {name!r}")


def __dir__() -> list[str]:
    # That of TensorFlow reads checkpoints without it.
    return sorted([*__all__, *(name for name in _FRONT_ENDS if name == "tensorflow" or _find_spec(name))])
