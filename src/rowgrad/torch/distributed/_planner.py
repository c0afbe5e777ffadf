"""The planner of `placement="auto"`: the cheapest way for each table by the cost model, within the memory of ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from rowgrad.errors import InvalidArgumentError
from rowgrad.optim import Optimizer
from rowgrad.torch._configs import EmbeddingBagConfig
from rowgrad.torch.distributed import cost
from rowgrad.torch.distributed._placement import COLUMN, REPLICATED, ROW, TABLE, Placed, Plan, placed, splits_rows

UNEVEN = 1.25  # times its fair share of the work, a rank may have with one table


@dataclass(frozen=True)
class Planner:
    """Plans the placement of tables; pass one as `placement` to change its assumptions about batches and memory.

    Parameters
    ----------
    bags, ids_per_bag : float
        The number of bags of each feature on a rank, and of ids in a bag.
    memory : float, optional
        Bytes that each rank may use for tables and optimizer state; by default 80 % of the free memory.
    placement : dict, optional
        Fixed placements by table name; the other tables are planned.

    Examples
    --------
    >>> from rowgrad.torch import EmbeddingBagConfig
    >>> from rowgrad.torch.distributed import Planner
    >>> tables = [EmbeddingBagConfig("users", 50_000_000, 64), EmbeddingBagConfig("days", 7, 64)]
    >>> Planner(memory=8e9).plan(tables, [None, None], ranks=4).kinds()
    {'users': 'row', 'days': 'replicated'}
    """

    bags: float = 2048
    ids_per_bag: float = 10
    memory: float | None = None
    placement: dict[str, object] | None = None

    def __post_init__(self) -> None:
        for name in ("bags", "ids_per_bag", "memory"):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
            if not (is_number or (name == "memory" and value is None)):
                raise InvalidArgumentError(
                    f"{name} is {value!r}; it must be a number, 0 or more.",
                    code="wrong-argument",
                    argument=name,
                    value=value,
                )
        if not (self.placement is None or isinstance(self.placement, Mapping)):
            raise InvalidArgumentError(
                f"placement is {self.placement!r}; it must be a dict of table name to a way of placing it.",
                code="bad-placement",
                argument="placement",
                value=str(self.placement),
            )

    def plan(
        self,
        tables: Sequence[EmbeddingBagConfig],
        optimizers: Sequence[Optimizer | None],
        ranks: int,
        fixed: dict[str, tuple[str, int | None]] | None = None,
    ) -> Plan:
        """Return the plan for a number of ranks; `fixed` tables keep their placement."""
        fixed, memory = fixed or {}, self.memory or float("inf")
        free, work = [memory] * ranks, [0.0] * ranks
        total = sum(map(self._work, tables))
        found: dict[str, Placed] = {}
        alike: dict[tuple[object, ...], list[int]] = {}  # tables that may change places
        # Large ones first: small ones fit into what is left. Before them, those whose rank is given, then whose way is.
        order = sorted(range(len(tables)), key=lambda i: -self._work(tables[i]) * tables[i].num_embeddings)
        order.sort(key=lambda i: (fixed.get(tables[i].name, ("", None))[1] is None, tables[i].name not in fixed))
        for i in order:
            table = tables[i]
            nbytes = _bytes(table, optimizers[i])
            lightest = min(range(ranks), key=lambda rank: (work[rank] / total if total else 0, -free[rank], rank))
            kind, rank, reason = *fixed.get(table.name, ("", None)), "as asked"
            if not kind:
                kind, reason = self._choice(table, optimizers[i], ranks, nbytes, free, total)
            if kind == TABLE and rank is None:
                fitting = [each for each in range(ranks) if free[each] >= nbytes] or list(range(ranks))
                rank = lightest if lightest in fitting else min(fitting, key=lambda each: work[each])
                alike.setdefault((nbytes, self._work(table), reason), []).append(i)
            one = placed(table, kind, ranks, lightest if rank is None else rank, reason)
            for shard in one.shards:
                share = shard.rows * shard.columns / max(table.num_embeddings * table.embedding_dim, 1)
                free[shard.rank] -= nbytes * share
                work[shard.rank] += self._work(table) * (share if kind != REPLICATED else 1 / ranks)
            found[table.name] = one
        for places in alike.values():
            # Neighbours on one rank: what others need of a gradient then is few long runs of columns.
            held_by = sorted(found[tables[i].name].shards[0].rank for i in places)
            for i, rank in zip(sorted(places), held_by, strict=True):
                found[tables[i].name] = placed(tables[i], TABLE, ranks, rank, found[tables[i].name].reason)
        held = max(memory - each for each in free) if self.memory else 0
        notes = [f"planned for {self.bags:,.0f} bags a rank with {self.ids_per_bag:g} ids each"]
        if self.memory and total:
            notes[0] += (f"; the fullest rank holds {held / 1e9:.3g} of {memory / 1e9:.3g} GB, the busiest has "
                         f"{max(work) / total * ranks:.2f} × its share of the work")  # fmt: skip
        return Plan(tuple(found[table.name] for table in tables), ranks, tuple(notes))

    def _work(self, table: EmbeddingBagConfig) -> float:
        """Something like the bytes that kernels move for a table."""
        return table.num_features() * self.bags * (self.ids_per_bag + 1) * (table.embedding_dim * 4 + 64)

    def _choice(self, table: EmbeddingBagConfig, optimizer: Optimizer | None, ranks: int, nbytes: float,
                free: list[float], total: float) -> tuple[str, str]:  # fmt: skip
        if ranks == 1:
            return TABLE, "there is one rank"
        sent = {kind: self.sent(table, kind, ranks) for kind in (TABLE, ROW, REPLICATED)}
        told = {kind: f"{bytes_ / 1e6:.3g} MB" for kind, bytes_ in sent.items()}
        if nbytes > max(free):
            return ROW, f"its {nbytes / 1e9:.3g} GB with state do not fit on one rank"
        if sent[REPLICATED] < min(sent[TABLE], sent[ROW]) and nbytes < min(free) / 8:
            return REPLICATED, f"gradients of its rows are {told[REPLICATED]} a step, pooled rows {told[TABLE]}"
        if self._work(table) > UNEVEN * total / ranks:
            if splits_rows(optimizer) and table.embedding_dim >= 4 * ranks:
                return COLUMN, "one rank would have more than its share of the work"
            return ROW, "one rank would have more than its share of the work, and its columns stay together"
        if sent[ROW] < sent[TABLE]:
            return ROW, f"sends {told[ROW]} a step, by table {told[TABLE]}"
        return TABLE, f"sends {told[TABLE]} a step, by row {told[ROW]}"

    def sent(self, table: EmbeddingBagConfig, kind: str, ranks: int) -> float:
        """The bytes that one rank sends for a table in a step, on average."""
        batch = cost.Batch(self.bags, self.ids_per_bag, table.embedding_dim,
                           str(table.data_type).removeprefix("torch."), rows=table.num_embeddings)  # fmt: skip
        features = table.num_features()
        return sum(cost.placed_bytes(ranks, batch, kind, features).values())


def _bytes(table: EmbeddingBagConfig, optimizer: Optimizer | None) -> float:
    """The bytes of a table and of what its optimizer keeps."""
    one_row = torch.empty(1, table.embedding_dim, dtype=table.data_type)
    state = {} if optimizer is None else optimizer.init(one_row)
    return float(table.num_embeddings * sum(each.nbytes for each in (one_row, *state.values())))
