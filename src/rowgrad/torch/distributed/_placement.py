"""Where the tables of a sharded collection live: which rank holds which rows and columns of each.

`placed` reads what a caller asks for; what is left to rowgrad is decided in `_planner.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowgrad import optim
from rowgrad.errors import InvalidArgumentError
from rowgrad.optim import Optimizer
from rowgrad.torch._configs import EmbeddingBagConfig

ROW, TABLE, COLUMN, REPLICATED = "row", "table", "column", "replicated"
KINDS = (ROW, TABLE, COLUMN, REPLICATED)
OF_ROWS = (optim.RowWiseAdagrad, optim.PartialRowWiseAdam, optim.LAMB)  # whose formulas need whole rows
FEW_COLUMNS = 4  # a rank holds multiples of as many, where there are enough


@dataclass(frozen=True)
class Shard:
    """What one rank holds of a table: rows and columns from one to before the other."""

    rank: int
    first_row: int
    last_row: int
    first_column: int
    last_column: int

    @property
    def rows(self) -> int:
        """How many rows these are."""
        return self.last_row - self.first_row

    @property
    def columns(self) -> int:
        """How many columns these are."""
        return self.last_column - self.first_column


@dataclass(frozen=True)
class Placed:
    """A table and its shards, at most one for each rank; and why it is placed so."""

    table: EmbeddingBagConfig
    kind: str
    shards: tuple[Shard, ...]
    reason: str

    @property
    def chunk(self) -> int:
        """Rows of a rank, where rows are spread."""
        return max(self.shards[0].rows, 1)

    def on(self, rank: int) -> Shard | None:
        """What a rank holds of it."""
        return next((shard for shard in self.shards if shard.rank == rank), None)


@dataclass(frozen=True)
class Plan:
    """The placement of the tables of a collection, with reasons; `print(plan)` shows it as a table.

    Attributes
    ----------
    tables : tuple of Placed
        In the order of the collection: `table`, `kind`, `shards` and `reason` of each.
    ranks : int
        How many ranks there are.
    notes : tuple of str
        The assumptions.
    """

    tables: tuple[Placed, ...]
    ranks: int
    notes: tuple[str, ...] = ()

    def kinds(self) -> dict[str, str]:
        """The kind of placement of each table, as a dict for `placement`."""
        return {placed.table.name: placed.kind for placed in self.tables}

    def __str__(self) -> str:
        heads = ("table", "rows", "columns", "placed by", "ranks", "because")
        lines = [heads]
        for placed in self.tables:
            where = "all" if len(placed.shards) == self.ranks else ", ".join(str(each.rank) for each in placed.shards)
            table = placed.table
            lines.append((table.name, f"{table.num_embeddings:,}", str(table.embedding_dim), placed.kind, where,
                          placed.reason))  # fmt: skip
        widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
        text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
                for line in lines]  # fmt: skip
        return "\n".join([*text, *self.notes])


def column_step(columns: int, ranks: int) -> int:
    """How many columns a rank holds of a table that is placed by column; the last one may have fewer."""
    step = -(-columns // ranks)
    return -(-step // FEW_COLUMNS) * FEW_COLUMNS if columns >= FEW_COLUMNS * ranks else step


def placed(table: EmbeddingBagConfig, kind: str, ranks: int, rank: int, reason: str) -> Placed:
    """A table, placed in one of the four ways; `rank` is where it lives, or where its first columns do."""
    rows, columns = table.num_embeddings, table.embedding_dim
    if kind == TABLE:
        shards = [Shard(rank, 0, rows, 0, columns)]
    elif kind == REPLICATED:
        shards = [Shard(each, 0, rows, 0, columns) for each in range(ranks)]
    elif kind == ROW:
        chunk = max(-(-rows // ranks), 1)
        shards = [Shard(each, min(each * chunk, rows), min((each + 1) * chunk, rows), 0, columns)
                  for each in range(ranks)]  # fmt: skip
    else:
        step = column_step(columns, ranks)
        shards = [Shard((rank + i) % ranks, 0, rows, begin, min(begin + step, columns))
                  for i, begin in enumerate(range(0, columns, step))]  # fmt: skip
    return Placed(table, kind, tuple(shards), reason)


def asked(placement: Any, tables: Sequence[EmbeddingBagConfig], ranks: int) -> dict[str, tuple[str, int | None]]:
    """What a caller asks for: the way, and the rank or None, of each table that is not left to the planner."""
    if not isinstance(placement, Mapping):
        is_auto = isinstance(placement, str) and placement == "auto"
        placement = {} if is_auto else {table.name: placement for table in tables}
    names = [table.name for table in tables]
    found: dict[str, tuple[str, int | None]] = {}
    for name, given in placement.items():
        if name not in names:
            raise InvalidArgumentError(
                f"placement has the table {name!r}; the tables are {', '.join(map(repr, names))}.",
                code="unknown-key",
                argument="placement",
                value=name,
            )
        kind, rank = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        if isinstance(kind, str) and kind == "auto" and rank is None:
            continue
        if (
            not isinstance(kind, str)
            or kind not in KINDS
            or not (rank is None or (kind == TABLE and type(rank) is int and 0 <= rank < ranks))
        ):
            raise InvalidArgumentError(
                f"placement is {given!r} for the table {name!r}; allowed: 'auto', 'row', 'table', 'column', "
                f"'replicated', or ('table', rank) with a rank from 0 to {ranks - 1}.",
                code="bad-placement",
                argument="placement",
                value=str(given),
            )
        found[name] = kind, rank
    return found


def splits_rows(optimizer: Optimizer | None) -> bool:
    """Whether an optimizer treats each column by itself, so that ranks may hold some of them."""
    return optimizer is None or not (isinstance(optimizer, OF_ROWS) or optimizer.clip_norm is not None)


def check(plan: Plan, optimizers: Sequence[Optimizer | None]) -> None:
    """Refuse what cannot be computed as one process does."""
    for table, optimizer in zip(plan.tables, optimizers, strict=True):
        if table.kind == COLUMN and not splits_rows(optimizer):
            raise InvalidArgumentError(
                f"the table {table.table.name!r} is placed by column, but {type(optimizer).__name__} "
                "needs whole rows (for their mean or norm). Place it by table or by row, or use another optimizer.",
                code="bad-placement",
                argument="placement",
                value=table.table.name,
            )
