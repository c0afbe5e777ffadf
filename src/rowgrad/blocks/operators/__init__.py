"""What a page may hold: the sparse operators, and those that only pages have, one file per family here.

The latter (dense arithmetic, losses, updates of variables, data) are there so that a page can hold a whole small model.
They are declared as the sparse ones are, with the means of `rowgrad._ops`.
"""

from importlib import import_module

from rowgrad import _ops
from rowgrad.blocks.operators.catalogue import DECLARED

# The modules of this folder that declare operators, with their titles, after the families of sparse operators.
_ONLY_PAGES = {
    "elementwise": "Elementwise arithmetic",
    "shaping": "Shapes and axes",
    "joining": "Joining and cutting",
    "gathering": "Rows and elements by index",
    "reductions": "Sums, means and products",
    "choosing": "Comparisons and choices",
    "losses": "Losses",
    "random": "Random numbers",
    "updates": "New values of variables",
    "page": "Data on pages",
}
for _family in (*_ONLY_PAGES, "optimizers", "batches"):  # the latter are of the families "updates" and "page"
    import_module(f"{__name__}.{_family}")

FAMILIES = {**_ops.FAMILIES, **_ONLY_PAGES}
# Everything a page may hold, and, of these, what is a function of arrays.
BLOCKS = {
    **_ops.OPERATORS,
    **dict(sorted(DECLARED.items(), key=lambda item: list(_ONLY_PAGES).index(item[1].family))),
}
OPERATORS = {name: operator for name, operator in BLOCKS.items() if operator.role == "operator"}

__all__ = ["BLOCKS", "FAMILIES", "OPERATORS"]
