"""One embedding layer from 1 to 65,536 bags: `torch.nn.EmbeddingBag` against ours, on the same table.

Both get ids and offsets as tensors. A step is forward, backward and an update of the table: with `torch.optim` and
sparse gradients for both, and with our fused optimizer against PyTorch's `torch.optim`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from bench import lookups
from bench.case import OURS, Case, short
from bench.contest import Entry
from rowgrad import optim
from rowgrad._runtime.dtypes import Array

NAME = "one layer"
LEARNING_RATE = 0.01
FIRST = 0.5  # of rows that no batch looks up; they only have to be in memory


@dataclass(frozen=True)
class Shape:
    """`bags` bags of `ids` ids each into a table of `rows` × `width`."""

    bags: int
    ids: int
    width: int
    rows: int

    @property
    def title(self) -> str:
        """For tables that people read."""
        return f"{self.bags:,} × {self.ids}, {short(self.rows)} × {self.width}"

    @property
    def key(self) -> str:
        """For `--only`."""
        return f"{self.bags}x{self.ids}/{short(self.rows)}x{self.width}"


AXES = {
    "bags": (1, 8, 64, 512, 4096, 65536),
    "ids": (1, 10, 50),
    "width": (8, 40, 64, 128),
    "rows": (100, 1000, 10_000, 100_000, 1_000_000, 10_000_000),
}
CENTRES = (Shape(512, 10, 64, 100_000), Shape(64, 1, 40, 1_000_000))
SMALL = Shape(8, 10, 64, 100_000)  # where what a call takes beside its kernels shows
MOST_US = {"forward": 15.0, "step": 60.0, "fused step": 60.0}
LARGEST = 6 << 30  # bytes of a table


def shapes(size: str) -> list[Shape]:
    """Each axis varied around both centres, but for "quick" the bags alone around the second; for "full" the grid."""
    if size == "full":
        grid = [Shape(*numbers) for numbers in product(*AXES.values())]
        return sorted(
            (one for one in grid if one.rows * one.width * 4 < LARGEST), key=lambda one: (one.rows, one.width)
        )
    axes = dict.fromkeys(CENTRES, AXES)
    if size == "quick":
        axes[CENTRES[1]] = {"bags": AXES["bags"]}
    found = (
        replace(centre, **{axis: number})
        for centre in CENTRES
        for axis, numbers in axes[centre].items()
        for number in numbers
    )
    return list(dict.fromkeys(found))


class Inputs(NamedTuple):
    """A batch and its table as tensors; `rows` are those that it looks up."""

    ids: Any
    offsets: Any
    grad: Any
    weight: Any
    rows: Any


@lookups.remembered
def inputs(shape: Shape) -> Inputs:
    """The batch of `shape`; the table is shared by all contestants."""
    torch: Any = import_module("torch")
    random = np.random.default_rng(lookups.SEED)
    ids = torch.tensor(lookups.ids(random, shape.rows, shape.bags * shape.ids, "uniform"))
    offsets = torch.arange(0, len(ids), shape.ids)
    grad = torch.tensor(lookups.values(shape.bags, shape.width, seed=2))
    return Inputs(ids, offsets, grad, _table(shape.rows, shape.width), ids.unique())


@lookups.remembered
def _table(rows: int, width: int) -> Any:
    return import_module("torch").full((rows, width), FIRST)


def cases(size: str) -> list[Case]:
    """Forward without gradients, a step by `torch.optim`, a fused step; other optimizers on the centres."""
    found: list[Case] = []
    for shape in shapes(size):
        for work in MOST_US:
            found.append(_case(shape, work, "sum of each bag; SGD", "SGD"))
    for shape in CENTRES:
        for optimizer in OTHERS:
            found.append(_case(shape, "fused step", "other fused optimizers", optimizer))
    return found


def _case(shape: Shape, work: str, table: str, optimizer: str) -> Case:
    return Case(
        group=NAME,
        key=f"{shape.key}/{work.replace(' ', '-')}" + f"/{optimizer}" * (optimizer != "SGD"),
        table=table,
        row=shape.title,
        column=work if optimizer == "SGD" else f"{work}, {optimizer}",
        entries={name: partial(make, shape, work, optimizer) for name, make in ((OURS, _ours), ("torch", _torch))},
        limits={"torch": 1.0},
        most_us=MOST_US[work] if shape == SMALL else None,
        needs=("torch",),
    )


# Our optimizers, and PyTorch's for sparse gradients that do the same.
OTHERS: dict[str, tuple[Callable[..., Any], str]] = {
    "Adagrad": (partial(optim.Adagrad, LEARNING_RATE), "Adagrad"),
    "Adam on rows": (partial(optim.Adam, LEARNING_RATE), "SparseAdam"),
}


def _ours(shape: Shape, work: str, optimizer: str) -> Entry:
    layers: Any = import_module("rowgrad.torch")
    rule = OTHERS[optimizer][0] if optimizer in OTHERS else partial(optim.SGD, LEARNING_RATE)
    given = inputs(shape)
    fused = {"fused_optimizer": rule()} if work == "fused step" else {}
    layer = layers.EmbeddingBag(shape.rows, shape.width, mode="sum", sparse=True, _weight=given.weight, **fused)
    return _entry(given, layer, work, None if fused else "SGD")


def _torch(shape: Shape, work: str, optimizer: str) -> Entry:
    torch: Any = import_module("torch")
    given = inputs(shape)
    layer = torch.nn.EmbeddingBag(shape.rows, shape.width, mode="sum", sparse=True, _weight=given.weight)
    return _entry(given, layer, work, OTHERS[optimizer][1] if optimizer in OTHERS else "SGD")


def _entry(given: Inputs, layer: Any, work: str, optimizer: str | None) -> Entry:
    torch: Any = import_module("torch")
    ids, offsets, grad, weight, rows = given

    def begin() -> None:
        with torch.no_grad():
            values = torch.tensor(lookups.values(len(rows), weight.shape[1]))
            weight[rows] = values

    if work == "forward":

        def forward() -> Any:
            with torch.no_grad():
                return layer(ids, offsets)

        def pooled() -> Iterator[Array]:
            begin()
            yield forward().numpy()

        return Entry(forward, lambda: list(pooled()))
    if optimizer is None:

        def step() -> None:
            layer(ids, offsets).backward(grad)

    else:
        updates = getattr(torch.optim, optimizer)(layer.parameters(), lr=LEARNING_RATE)

        def step() -> None:
            updates.zero_grad()
            layer(ids, offsets).backward(grad)
            updates.step()

    def changed() -> list[Array]:
        begin()
        step()
        return [weight.detach()[rows].numpy()]

    return Entry(step, changed)
