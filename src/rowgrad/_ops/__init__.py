"""The sparse operators: one file per family, each with its checks, shapes, gradient rules and calls into the kernels.

`OPERATORS` holds them by name, in the order in which users meet them. Pages have more (`rowgrad.blocks.operators`),
declared by the same means; nothing here depends on them.
"""

from importlib import import_module

from rowgrad._ops import catalogue
from rowgrad._ops.catalogue import Attribute, Example, Operator
from rowgrad._ops.pins import Pin

# The modules of this folder that declare operators, with their titles.
FAMILIES = {
    "sparse_segment": "Pooled look-ups",
    "sparse_segment_grad": "Gradients of pooled look-ups",
    "weighted_sum": "Weighted look-ups",
    "segment_max": "Largest of a segment",
    "segments": "Segments of rows",
    "segments_grad": "Gradients of segments of rows",
    "offsets": "Segments by offsets",
    "fill_empty_rows": "Filling empty rows",
    "sparse_slice": "Slicing sparse tensors",
    "reorder": "Order and shape of sparse tensors",
    "sparse_reduce": "Reductions of sparse tensors",
    "sparse_merge": "Two sparse tensors, entry by entry",
    "sparse_cwise": "A sparse tensor and a dense one",
    "sparse_softmax": "Softmax of sparse tensors",
    "sparse_counts": "Counting whole numbers",
    "serialize": "Sparse tensors as text",
    "sparse_join": "Joining and cutting sparse tensors",
    "hashing": "Hashes and joins of text",
    "cross": "Crossed features",
    "ragged": "Ragged tensors",
    "ragged_counts": "Counting in the rows of ragged tensors",
    "ragged_gather": "Rows of ragged tensors",
    "sparse_dense": "From sparse to dense",
}
for _family in FAMILIES:
    import_module(f"{__name__}.{_family}")

OPERATORS = dict(sorted(catalogue.OPERATORS.items(), key=lambda item: list(FAMILIES).index(item[1].family)))

__all__ = ["FAMILIES", "OPERATORS", "Attribute", "Example", "Operator", "Pin"]
