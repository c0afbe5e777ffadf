"""What kernels over many tables read of features, tables and items of work: rows of plain numbers.

This module does without Numba, so that layers can be imported quickly.
"""

from typing import NamedTuple


class Feature(NamedTuple):
    """Bags of ids for one table."""

    table: int  # the address
    rows: int
    width: int
    column: int  # of the result, where its own columns begin
    kind: int  # of the combiner
    ahead: int  # entries; rows are fetched so long before they are needed
    number: int  # its place among all features


class Table(NamedTuple):
    """A table whose rows are changed, or whose gradient is computed."""

    table: int  # the address
    rows: int
    width: int
    first: int  # the address of what an optimizer keeps for each row; or of the rows that a gradient has
    second: int  # the same for what else it keeps; or of the gradient
    feature: int  # the first of those that look rows up here
    features: int
    most: int  # entries that there is room for
    steps: int  # the address of the count of steps, or 0


FEATURE_FIELDS, TABLE_FIELDS = len(Feature._fields), len(Table._fields)
TABLE, ROWS, WIDTH, COLUMN, KIND, AHEAD, NUMBER = range(FEATURE_FIELDS)
FIRST, SECOND, FEATURE, FEATURES, MOST, STEPS = range(WIDTH + 1, TABLE_FIELDS)

# What is noted of an item: from where to where its entries are, where their words begin, which rows are its own, how
# many entries have these, and how many different rows that are.
BEGIN, END, START, LOW, HIGH, SIZE, UNIQUE = range(7)
ITEM_FIELDS = 7
ROOM = 8  # words behind those of each item, as bags are numbered eight entries at a time
