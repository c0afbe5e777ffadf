"""What follows from the plan of a sharded collection, and stays: which features each rank serves, and where they stand.

A *part* is one feature on one rank. Messages between ranks have the parts of the receiver, or of the sender where it
answers, in the order of features. `_message.py` and `_rows.py` fill them.
"""

from typing import NamedTuple

import numpy as np

from rowgrad._kernels.kinds import MEAN, SQRT_N, SUM
from rowgrad._runtime.dtypes import Array
from rowgrad.torch.distributed._placement import REPLICATED, ROW, Placed, Plan

COMBINERS = {"sum": SUM, "mean": MEAN, "sqrtn": SQRT_N}


class Feature(NamedTuple):
    """A feature of the collection: its table, where its columns begin in the result, and whether rows are spread."""

    table: int
    column: int
    width: int
    kind: int
    spread: bool
    replicated: bool


class Part(NamedTuple):
    """A feature on a rank: which one, and which columns of the result it gives."""

    feature: int
    column: int
    width: int
    spread: bool


class Layout:
    """The parts of all ranks.

    Attributes
    ----------
    features : list of Feature
        Those of the collection in their order.
    parts : list of list of Part
        For each rank, what it serves. Tables that each rank holds whole are not among them.
    tables : list of int
        The tables that this rank holds shards of, in their order, without replicated ones.
    columns : int
        Columns of the result.
    numbers : list of array
        For each rank, the features of its parts.
    exact : bool
        Whether rows travel instead of their sums, where rows are spread; each row once.
    """

    def __init__(self, plan: Plan, rank: int, exact: bool = False) -> None:
        self.plan, self.rank, self.ranks, self.exact = plan, rank, plan.ranks, exact
        self.features: list[Feature] = []
        self.parts: list[list[Part]] = [[] for _ in range(plan.ranks)]
        column = 0
        for number, placed in enumerate(plan.tables):
            table = placed.table
            for _ in table.feature_names:
                one = Feature(number, column, table.embedding_dim, COMBINERS[table.pooling], placed.kind == ROW,
                              placed.kind == REPLICATED)  # fmt: skip
                if not one.replicated:
                    for shard in placed.shards:
                        self.parts[shard.rank].append(
                            Part(len(self.features), column + shard.first_column, shard.columns, one.spread)
                        )
                self.features.append(one)
                column += table.embedding_dim
        self.columns = column
        self.tables = [i for i, placed in enumerate(plan.tables) if placed.kind != REPLICATED and placed.on(rank)]
        self.copies = [i for i, placed in enumerate(plan.tables) if placed.kind == REPLICATED]
        # Where all bags of all features go to a rank, what it answers is a matrix with a row for each bag.
        self.is_matrix = [not any(part.spread for part in parts) for parts in self.parts]
        self.numbers = [np.array([part.feature for part in parts], np.int64) for parts in self.parts]
        self.widths = [np.array([part.width for part in parts], np.int64) for parts in self.parts]
        self.described = np.array(
            [(one.spread, plan.tables[one.table].table.num_embeddings, plan.tables[one.table].chunk)
             for one in self.features], np.int64,
        )  # fmt: skip
        self.place_of = [{part.feature: i for i, part in enumerate(parts)} for parts in self.parts]

    def placed(self, feature: int) -> Placed:
        """Where the table of a feature lives."""
        return self.plan.tables[self.features[feature].table]

    def blocks(self, rank: int, counts: Array) -> tuple[Array, Array, int]:
        """Where the rows of each part begin in a message with so many rows for each, how far these are apart, and the
        size of all, in elements.
        """
        widths = self.widths[rank]
        if self.is_matrix[rank]:
            columns = int(widths.sum())
            return np.cumsum(widths) - widths, np.full(widths.size, columns), int(counts[:1].sum()) * columns
        sizes = counts * widths
        return np.cumsum(sizes) - sizes, widths, int(sizes.sum())
