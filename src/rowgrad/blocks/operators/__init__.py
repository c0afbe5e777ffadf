"""What a page may hold: the sparse operators, and those that only pages have, one file per family here.

The latter (dense arithmetic, losses, updates of variables, data) are there so that a page can hold a whole small model.
They are declared as the sparse ones are, with the means of `rowgrad._ops`.
"""

from importlib import import_module

from rowgrad import _ops
from rowgrad.blocks.operators.catalogue import DECLARED

# The families of operators that only pages have, with their titles, after those of sparse operators.
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
# Each has a module of its name in this folder, and these modules declare further operators of them.
_MORE = ("optimizers", "batches", "slicing", "stacking", "rearranging", "counting", "watching")
for _module in (*_ONLY_PAGES, *_MORE):
    import_module(f"{__name__}.{_module}")

FAMILIES = {**_ops.FAMILIES, **_ONLY_PAGES}
# Everything a page may hold, and, of these, what is a function of arrays.
BLOCKS = {
    **_ops.OPERATORS,
    **dict(sorted(DECLARED.items(), key=lambda item: list(_ONLY_PAGES).index(item[1].family))),
}
OPERATORS = {name: operator for name, operator in BLOCKS.items() if operator.role == "operator"}

__all__ = ["BLOCKS", "FAMILIES", "OPERATORS"]
