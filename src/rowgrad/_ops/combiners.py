"""The ways to pool the rows of a bag, by the names that look-ups, layers, tables and optimizers share."""

from collections.abc import Iterable
from typing import NamedTuple

from rowgrad._kernels.kinds import MEAN, SQRT_N, SUM
from rowgrad.errors import InvalidArgumentError


class Combiner(NamedTuple):
    """One way: its number in kernels, and how it stands in the names of operators (`Mean`) and functions (`mean`)."""

    kind: int
    name: str
    snake: str

    @property
    def function(self) -> str:
        """The function that pools so."""
        return f"sparse_segment_{self.snake}"


COMBINERS = {
    "sum": Combiner(SUM, "Sum", "sum"),
    "mean": Combiner(MEAN, "Mean", "mean"),
    "sqrtn": Combiner(SQRT_N, "SqrtN", "sqrt_n"),
}
WITH_MAX = (*COMBINERS, "max")


def check(combiner: str, allowed: Iterable[str] = COMBINERS) -> None:
    """`combiner` must be one of `allowed`."""
    if not isinstance(combiner, str) or combiner not in allowed:
        raise InvalidArgumentError(
            f"combiner is {combiner!r}; it must be one of {', '.join(allowed)}.",
            code="bad-combiner",
            argument="combiner",
            value=combiner,
        )
