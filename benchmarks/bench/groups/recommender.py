"""The embedding part of a recommender: pooled look-ups of many tables, forward and in training steps.

PyTorch does it with one `EmbeddingBag` for each table, sparse gradients and `torch.optim.SGD`; FBGEMM with its
table-batched bags and a fused optimizer; we with an `EmbeddingBagCollection`. Each gets the batch in the form it likes
best before the clock starts: PyTorch ids, offsets and gradients of each table by themselves, and it need not
concatenate its results. Tables, ids and gradients are tensors that PyTorch allocated; each has tables of its own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from bench import lookups
from bench.case import OURS, Case
from bench.contest import Entry
from rowgrad import optim
from rowgrad._runtime.dtypes import Array

NAME, UNTUNED = "recommender", "not tuned on"
MOST_ROWS = 500_000  # of a table, so that all contestants' tables fit a small machine's memory
LEARNING_RATE = 0.01
BATCHES = 16  # that rotate


@dataclass(frozen=True)
class Model:
    """The tables of a model, and its batches: for each table `batch` bags of `fewest` to `most` ids."""

    batch: int
    widths: tuple[int, ...]  # repeated for as many tables as there are
    fewest: int
    most: int
    distribution: str = "zipf"
    batches: int = 1
    tables: tuple[int, ...] = tuple(min(rows, MOST_ROWS) for rows in lookups.CRITEO)
    pooling: str = "sum"
    weighted: bool = False
    ids: str = "int64"

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Rows and width of each table."""
        return [(rows, self.widths[place % len(self.widths)]) for place, rows in enumerate(self.tables)]

    @property
    def columns(self) -> list[int]:
        """Where the columns of each table begin in the result, and where they end."""
        return [0, *np.cumsum([width for _, width in self.sizes]).tolist()]

    @property
    def title(self) -> str:
        """For tables that people read."""
        widths = "/".join(str(width) for width in self.widths)
        number = str(self.most) if self.fewest == self.most else f"{self.fewest}–{self.most}"
        return f"batch {self.batch}, width {widths}, {number} id{'s' * (self.most > 1)}"


class Batch(NamedTuple):
    """A batch as tensors: for all tables together, and for each by itself."""

    values: Any
    offsets: Any
    weights: Any
    each: list[tuple[Any, Any, Any]]  # ids, offsets from 0, weights


@dataclass(frozen=True)
class Inputs:
    """What all contestants of a case share."""

    model: Model
    batches: list[Batch]
    grad: Any  # of the result, [batch, Σ widths]
    grads: list[Any]  # of each table's part of it
    rows: Any  # the first values of every table
    touched: list[Any]  # the rows of each table that the first batch looks up


@lookups.remembered
def inputs(model: Model) -> Inputs:
    """The batches of `model`, and values for its tables."""
    torch: Any = import_module("torch")
    random = np.random.default_rng(lookups.SEED)
    batches = [_batch(torch, model, random) for _ in range(model.batches)]
    grad = torch.tensor(lookups.values(model.batch, model.columns[-1], seed=2))
    parts = zip(model.columns[:-1], model.columns[1:], strict=True)
    return Inputs(
        model,
        batches,
        grad,
        [grad[:, begin:end].contiguous() for begin, end in parts],
        torch.tensor(lookups.values(max(model.tables), max(model.widths))),
        [ids.long().unique() for ids, _, _ in batches[0].each],
    )


class Contestant:
    """The tables and the layers of one contestant. A subclass has `pool`, which looks a batch up, and `step`."""

    weights: list[Any]  # the tables

    def __init__(self, given: Inputs) -> None:
        self.given = given

    def fill(self, weight: Any) -> None:
        """Give a table its first values."""
        weight.copy_(self.given.rows[: weight.shape[0], : weight.shape[1]])

    def pool(self, batch: Batch) -> Any:
        """The pooled rows of all tables: one tensor, or one for each."""
        raise NotImplementedError

    def step(self, batch: Batch) -> None:
        """Forward, backward, and a step of the optimizer."""
        self.pool(batch).backward(self.given.grad)

    def entry(self, work: str) -> Entry:
        """Its way to do `work`."""
        torch: Any = import_module("torch")
        batches: Iterator[Batch] = cycle(self.given.batches)
        if work == "forward":

            def forward() -> Any:
                with torch.no_grad():
                    return self.pool(next(batches))

            return Entry(forward, lambda: [self._joined(forward())])

        def answer() -> list[Array]:
            self.step(self.given.batches[0])
            pairs = zip(self.weights, self.given.touched, strict=True)
            return [weight.detach()[rows].numpy() for weight, rows in pairs]

        return Entry(lambda: self.step(next(batches)), answer)

    def _joined(self, pooled: Any) -> Array:
        torch: Any = import_module("torch")
        joined: Array = (torch.cat(pooled, 1) if isinstance(pooled, list) else pooled).numpy()
        return joined


class Collection(Contestant):
    """Ours."""

    def __init__(self, given: Inputs, optimizer: str) -> None:
        super().__init__(given)
        layers: Any = import_module("rowgrad.torch")
        model = given.model
        rule = optim.SGD if optimizer == "SGD" else optim.RowWiseAdagrad
        configs = [
            layers.EmbeddingBagConfig(
                name=f"t{place}", num_embeddings=rows, embedding_dim=width, feature_names=[f"f{place}"],
                pooling=model.pooling, init_fn=self.fill,
            )
            for place, (rows, width) in enumerate(model.sizes)
        ]  # fmt: skip
        self.layer = layers.EmbeddingBagCollection(tables=configs, fused_optimizer=rule(LEARNING_RATE))
        self.weights = [self.layer.embedding_bags[f"t{place}"].weight for place in range(len(model.tables))]

    def pool(self, batch: Batch) -> Any:
        return self.layer.pool(batch.values, batch.offsets, batch.weights)


class Torch(Contestant):
    """PyTorch."""

    def __init__(self, given: Inputs, optimizer: str) -> None:
        super().__init__(given)
        torch: Any = import_module("torch")
        tables = [torch.empty(rows, width) for rows, width in given.model.sizes]
        for table in tables:
            self.fill(table)
        options = {"mode": given.model.pooling, "sparse": True, "include_last_offset": True}
        self.layers = [torch.nn.EmbeddingBag(*table.shape, _weight=table, **options) for table in tables]
        self.weights = [layer.weight for layer in self.layers]
        self.optimizer = torch.optim.SGD(self.weights, lr=LEARNING_RATE)
        self.backward = torch.autograd.backward

    def pool(self, batch: Batch) -> Any:
        return [layer(*each) for layer, each in zip(self.layers, batch.each, strict=True)]

    def step(self, batch: Batch) -> None:
        self.optimizer.zero_grad()
        self.backward(self.pool(batch), self.given.grads)
        self.optimizer.step()


class Fbgemm(Contestant):
    """FBGEMM."""

    def __init__(self, given: Inputs, optimizer: str) -> None:
        super().__init__(given)
        torch: Any = import_module("torch")
        training: Any = import_module("fbgemm_gpu.split_table_batched_embeddings_ops_training")
        kind = {"SGD": "EXACT_SGD", "row-wise Adagrad": "EXACT_ROWWISE_ADAGRAD"}[optimizer]
        place = (training.EmbeddingLocation.HOST, training.ComputeDevice.CPU)
        index = getattr(torch, given.model.ids)
        self.layer = training.SplitTableBatchedEmbeddingBagsCodegen(
            [(rows, width, *place) for rows, width in given.model.sizes],
            optimizer=training.OptimType[kind],
            learning_rate=LEARNING_RATE,
            eps=1e-8,
            pooling_mode=training.PoolingMode[given.model.pooling.upper()],
            device=torch.device("cpu"),
            embedding_table_index_type=index,
            embedding_table_offset_type=index,
        )
        self.weights = self.layer.split_embedding_weights()
        for weight in self.weights:
            self.fill(weight)

    def pool(self, batch: Batch) -> Any:
        return self.layer(batch.values, batch.offsets, batch.weights)


CONTESTANTS: dict[str, Callable[[Inputs, str], Contestant]] = {OURS: Collection, "torch": Torch, "fbgemm": Fbgemm}
# What is timed: its column, who takes part beside us, and the optimizer.
WORKS = {
    "forward": (("torch", "fbgemm"), "SGD"),
    "step, SGD": (("torch", "fbgemm"), "SGD"),
    "step, row-wise Adagrad": (("fbgemm",), "row-wise Adagrad"),
}
MODELS = (
    Model(128, (16,), 1, 20),
    Model(512, (64,), 1, 20),
    Model(2048, (16,), 1, 1),
    Model(2048, (64,), 1, 8),
    Model(8192, (32,), 1, 4),
)
# PyTorch's time / that of Intel's merged bags on these models, forward and step, as measured with torch 2.8.
INTEL = {"forward": (5.5, 2.4, 2.4, 1.35, 1.3), "step, SGD": (4.7, 2.7, 2.0, 2.6, 2.2)}
Limits = dict[str, tuple[float, ...]]  # by work, in the order of its peers
ZIPF: Limits = {"forward": (1.8, 2.2), "step, SGD": (4.0, 2.8), "step, row-wise Adagrad": (2.0,)}
ROTATING: Limits = {"forward": (1.3, 1.7), "step, SGD": (2.5, 2.5)}
AHEAD: Limits = {"forward": (1.0, 1.0), "step, SGD": (1.0, 1.0), "step, row-wise Adagrad": (1.0,)}
ONE_THREAD: Limits = {"forward": (1.4, 1.3), "step, SGD": (3.0, 1.7)}
_MORE_TABLES = tuple(min(rows, 100_000) for rows in (*lookups.CRITEO, *lookups.CRITEO, *lookups.CRITEO[:8]))
OTHER_MODELS = {
    "mixed widths": Model(333, (8, 24, 40, 128), 1, 12),
    "60 tables": Model(1000, (32,), 1, 6, tables=_MORE_TABLES),
    "int32 ids": Model(1000, (40,), 1, 10, ids="int32"),
    "mean pooling": Model(333, (24,), 1, 12, pooling="mean"),
    "per-sample weights": Model(1000, (16,), 1, 10, weighted=True),
}


def cases(size: str) -> list[Case]:
    """The five models: Zipf ids and a fixed batch, then uniform ids and rotating batches; the same on one thread."""
    found: list[Case] = []
    for threads in (2,) if size == "quick" else (2, 1):
        fixed, rotating = tables(threads)
        for place, model in enumerate(MODELS):
            intel = {work: ratios[place] for work, ratios in INTEL.items()} if threads == 2 else {}
            limits = ZIPF if threads == 2 else ONE_THREAD
            found += _of_model(model, fixed, limits, threads, intel)
        for model in MODELS:
            other = replace(model, distribution="uniform", batches=BATCHES)
            found += _of_model(other, rotating, ROTATING if threads == 2 else {}, threads, {})
    return found


def tables(threads: int) -> tuple[str, str]:
    """The titles of the tables that the five models are shown in."""
    number = "two threads" if threads == 2 else "one thread"
    return f"Zipf ids, {number}", f"uniform ids, rotating batches, {number}"


def untuned_cases(size: str) -> list[Case]:
    """Models that no kernel was tuned on, with rotating batches."""
    found: list[Case] = []
    for name, model in OTHER_MODELS.items():
        for distribution in ("zipf",) if size == "quick" else ("zipf", "uniform"):
            rotating = replace(model, batches=BATCHES, distribution=distribution)
            title = f"{'Zipf' if distribution == 'zipf' else 'uniform'} ids, rotating batches"
            found += _of_model(rotating, title, AHEAD, 2, {}, group=UNTUNED, row=f"{name}: {model.title}", key=name)
    return [case for case in found if size != "quick" or case.column != "step, row-wise Adagrad"]


def _of_model(
    model: Model,
    table: str,
    limits: Limits,
    threads: int,
    intel: dict[str, float],
    *,
    group: str = NAME,
    row: str = "",
    key: str = "",
) -> Iterator[Case]:
    name = key or f"{model.batch}-w{model.widths[0]}"
    for work, (peers, optimizer) in WORKS.items():
        short = {"step, SGD": "sgd", "step, row-wise Adagrad": "adagrad"}.get(work, work)
        yield Case(
            group=group,
            key="/".join((name.replace(" ", "-"), model.distribution, short, f"{threads}-threads")),
            table=table,
            row=row or model.title,
            column=work,
            entries={peer: partial(_entry, peer, model, optimizer, work) for peer in (OURS, *peers)},
            limits=dict(zip(peers, limits.get(work, ()), strict=False)),
            intel=intel.get(work),
            threads=threads,
            needs=("torch",),
        )


def _entry(contestant: str, model: Model, optimizer: str, work: str) -> Entry:
    return CONTESTANTS[contestant](inputs(model), optimizer).entry(work)


def _batch(torch: Any, model: Model, random: np.random.Generator) -> Batch:
    ids, lengths, each = [], [], []
    kind = getattr(torch, model.ids)
    for rows in model.tables:
        ends = lookups.offsets(random, model.batch, model.fewest, model.most)
        drawn = lookups.ids(random, rows, int(ends[-1]), model.distribution)
        weights = torch.tensor(random.random(len(drawn), dtype=np.float32)) if model.weighted else None
        each.append((torch.tensor(drawn, dtype=kind), torch.tensor(ends, dtype=kind), weights))
        ids.append(drawn)
        lengths.append(np.diff(ends))
    return Batch(
        torch.tensor(np.concatenate(ids), dtype=kind),
        torch.tensor(np.concatenate([[0], *(np.cumsum(np.concatenate(lengths)),)]), dtype=kind),
        torch.cat([weights for _, _, weights in each]) if model.weighted else None,
        each,
    )
