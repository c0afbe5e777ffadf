"""Where the planner puts tables."""

from optional import framework

framework("torch")
from rowgrad.torch import EmbeddingBagConfig  # noqa: E402
from rowgrad.torch.distributed import Planner  # noqa: E402


def held_by(tables: list[EmbeddingBagConfig], ranks: int, **options: object) -> list[int]:
    """The rank that holds each table."""
    fixed = {table.name: ("table", None) for table in tables}
    plan = Planner(**options).plan(tables, [None] * len(tables), ranks, fixed)
    return [placed.shards[0].rank for placed in plan.tables]


def test_equal_tables_lie_side_by_side() -> None:
    tables = [EmbeddingBagConfig(f"t{i}", 1000, 8) for i in range(7)]
    assert held_by(tables, 3) == [0, 0, 0, 1, 1, 2, 2]


def test_only_equal_tables_change_places() -> None:
    """A large table stays with the rank that it was given to, and each rank keeps its share of the work."""
    sizes = [100, 9000, 100, 100, 9000, 100]
    tables = [EmbeddingBagConfig(f"t{i}", rows, 64 if rows > 100 else 8) for i, rows in enumerate(sizes)]
    ranks = held_by(tables, 2)
    assert ranks[1] != ranks[4]
    assert sorted(ranks[i] for i in (0, 2, 3, 5)) == [0, 0, 1, 1]
    assert ranks[0] == ranks[2]
    assert ranks[3] == ranks[5]


def test_tables_that_are_asked_for_on_a_rank_stay_there() -> None:
    tables = [EmbeddingBagConfig(f"t{i}", 1000, 8) for i in range(4)]
    fixed = {"t0": ("table", 1), "t3": ("table", 0)}
    plan = Planner(memory=1e9).plan(tables, [None] * 4, 2, {**{t.name: ("table", None) for t in tables}, **fixed})
    ranks = [placed.shards[0].rank for placed in plan.tables]
    assert ranks[0] == 1
    assert ranks[3] == 0
    assert sorted(ranks) == [0, 0, 1, 1]
