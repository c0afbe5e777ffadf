"""The operators: one file per family, each with its checks, shapes, gradient rules and the call into the kernels.

`OPERATORS` holds all of them by name, in the order in which users meet them; `BLOCKS` also what only pages have.
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
    "offsets": "Segments by offsets",
    "fill_empty_rows": "Filling empty rows",
    "sparse_slice": "Slicing sparse tensors",
    "elementwise": "Elementwise arithmetic",
    "shaping": "Shapes and axes",
    "joining": "Joining and cutting",
    "gathering": "Rows and elements by index",
    "reductions": "Sums, means and products",
    "losses": "Losses",
    "sparse_dense": "From sparse to dense",
    "updates": "New values of variables",
    "page": "Data on pages",
}
for _family in FAMILIES:
    import_module(f"{__name__}.{_family}")

# Everything a page may hold, and, of these, what is a function of arrays.
BLOCKS = dict(sorted(catalogue.OPERATORS.items(), key=lambda item: list(FAMILIES).index(item[1].family)))
OPERATORS = {name: operator for name, operator in BLOCKS.items() if operator.role == "operator"}

__all__ = ["BLOCKS", "FAMILIES", "OPERATORS", "Attribute", "Example", "Operator", "Pin"]
