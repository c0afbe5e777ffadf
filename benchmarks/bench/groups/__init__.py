"""The groups of cases, in the order of the report."""

from collections.abc import Callable

from bench.case import Case
from bench.groups import catalogue, dlrm, layer, operators, recommender, segments

SIZES = ("quick", "normal", "full")
GROUPS: dict[str, tuple[str, Callable[[str], list[Case]]]] = {
    recommender.NAME: ("The embedding part of a recommender, 26 tables", recommender.cases),
    recommender.UNTUNED: ("Recommenders that were not tuned on", recommender.untuned_cases),
    dlrm.NAME: ("DLRM: 26 tables, MLPs 13-512-256-64 and 512-256-1 with interaction", dlrm.cases),
    layer.NAME: ("One layer: bags × ids, rows × width of the table", layer.cases),
    segments.NAME: ("Sums over segments: bags × ids, rows × width of the table", segments.cases),
    operators.NAME: ("Operators", operators.cases),
    catalogue.NAME: ("Operators on sparse and ragged tensors", catalogue.cases),
}
# By group and table: what the geometric mean of a contestant's ratios must be.
MEANS = {(operators.NAME, table): limits for table, limits in operators.MEANS.items()}


def all_cases(size: str) -> list[Case]:
    """Every case of a "quick", "normal" or "full" run."""
    return [case for _, make in GROUPS.values() for case in make(size)]
