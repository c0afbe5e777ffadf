"""Which rank holds which row of a table. Rows are put in an order, and each rank holds one piece of it.

The order depends on the number of rows alone and the pieces are those of `torch.chunk`, so a table that was saved by
some number of ranks can be loaded by any other.
"""

from math import gcd, isqrt
from typing import Any

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.errors import InvalidArgumentError

SHARDINGS = ("range", "hash")
MOST_HASHED = isqrt(2**63 - 1)  # rows up to which products of two of them fit into 64 bits
GOLDEN = (5**0.5 - 1) / 2


class Ownership:
    """Which rank holds which row of a table.

    Parameters
    ----------
    rows, ranks : int
        The rows of the table, and how many ranks hold them.
    sharding : {"range", "hash"}
        "range" gives each rank consecutive ids. "hash" spreads consecutive ids, such as the most frequent ones of a
        sorted vocabulary, over all ranks.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.torch.distributed import Ownership
    >>> Ownership(10, 4, "range").pieces
    [(0, 3), (3, 6), (6, 9), (9, 10)]
    >>> Ownership(10, 4, "hash").positions(np.arange(10)).tolist()
    [0, 7, 4, 1, 8, 5, 2, 9, 6, 3]
    """

    def __init__(self, rows: int, ranks: int, sharding: str = "range") -> None:
        if sharding not in SHARDINGS:
            raise InvalidArgumentError(
                f"sharding is {sharding!r}; it must be one of {', '.join(SHARDINGS)}.",
                code="bad-sharding",
                argument="sharding",
                value=sharding,
            )
        if sharding == "hash" and rows > MOST_HASHED:
            raise InvalidArgumentError(
                f"the table has {rows} rows; at most {MOST_HASHED} can be spread. Use sharding='range'.",
                code="too-large",
                argument="sharding",
                value=rows,
            )
        self.rows, self.ranks, self.sharding = rows, ranks, sharding
        self.chunk = max(-(-rows // ranks), 1)
        self.factor = 1 if sharding == "range" else _spreading(rows)

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """The range of positions that each rank holds: first, and last + 1."""
        return [self.piece(rank) for rank in range(self.ranks)]

    def piece(self, rank: int) -> tuple[int, int]:
        """The positions that `rank` holds."""
        return min(rank * self.chunk, self.rows), min((rank + 1) * self.chunk, self.rows)

    def positions(self, ids: Array) -> Array:
        """The positions of rows in the order that is divided among the ranks."""
        ids = ids.astype(np.int64, copy=False)
        return ids if self.factor == 1 else ids * self.factor % self.rows

    def ids(self, rank: int) -> Array:
        """The ids of the rows that `rank` holds, in the order it holds them."""
        return self.ids_at(*self.piece(rank))

    def ids_at(self, first: int, last: int) -> Array:
        """The ids of the rows at the positions `first` to `last` − 1."""
        positions = np.arange(first, last)
        if self.factor == 1:
            return positions
        return positions * pow(self.factor, -1, self.rows) % self.rows

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Ownership) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.rows, self.ranks, self.sharding))

    def __repr__(self) -> str:
        return f"Ownership({self.rows}, {self.ranks}, {self.sharding!r})"


def _spreading(rows: int) -> int:
    """A number without a common divisor with `rows`, near its golden section, which spreads neighbours far."""
    if rows < 3:
        return 1
    near = round(rows * GOLDEN)
    return next(n for step in range(rows) for n in (near + step, near - step) if 0 < n < rows and gcd(n, rows) == 1)


def owners(ranks: int, ids_per_bag: float) -> float:
    """On how many ranks the ids of a bag live, where they are spread evenly.

    Examples
    --------
    >>> from rowgrad.torch.distributed import cost
    >>> cost.owners(2, 1), cost.owners(2, 2), round(cost.owners(1024, 30), 1)
    (1.0, 1.5, 29.6)
    """
    return float(ranks * (1 - (1 - 1 / ranks) ** ids_per_bag))
