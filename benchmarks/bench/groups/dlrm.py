"""Whole training steps of a DLRM: 26 tables, dense layers below and above their interaction, log loss, SGD.

The dense part is the same PyTorch code for everyone; only the embedding part is exchanged. Losses of the first steps
are compared before anything is timed.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import cycle
from typing import Any

import numpy as np

from bench import lookups
from bench.case import OURS, Case
from bench.contest import Entry
from bench.groups.recommender import BATCHES, CONTESTANTS, LEARNING_RATE, Batch, Inputs, Model, inputs
from rowgrad._runtime.dtypes import Array

NAME = "dlrm"
DENSE, WIDTH = 13, 64
BOTTOM, TOP = (512, 256, WIDTH), (512, 256, 1)
STEPS = 8  # whose losses are compared
LIMIT = 1.5
MODELS = {
    "1-id": Model(2048, (WIDTH,), 1, 1, batches=BATCHES),
    "1-8-ids": Model(2048, (WIDTH,), 1, 8, batches=BATCHES),
    "1-20-ids": Model(2048, (WIDTH,), 1, 20, batches=BATCHES),
}
ALONE = "dense part alone"  # how long a step would take if look-ups and updates took no time


class Network:
    """A DLRM around the embedding layers of one contestant."""

    def __init__(self, given: Inputs, contestant: str) -> None:
        torch: Any = import_module("torch")
        self.torch = torch
        self.pool, weights = _embeddings(torch, given, contestant)
        for weight in weights:
            weight.data.sub_(1).mul_(0.2)  # from -0.1 to 0.1, so that the loss begins where training does
        model = given.model
        torch.manual_seed(lookups.SEED)
        vectors = 1 + len(model.tables)
        pairs = vectors * (vectors - 1) // 2
        self.bottom = _layers(torch, DENSE, BOTTOM)
        self.top = _layers(torch, WIDTH + pairs, TOP)
        self.first, self.second = torch.tril_indices(vectors, vectors, -1)
        self.loss = torch.nn.BCEWithLogitsLoss()
        # Tables with a fused optimizer take their step in the backward pass.
        tables = weights if contestant == "torch" else []
        dense = [*self.bottom.parameters(), *self.top.parameters()]
        self.optimizer = torch.optim.SGD([*dense, *tables], lr=LEARNING_RATE)
        random = np.random.default_rng(lookups.SEED)
        self.features = torch.tensor(random.random((model.batch, DENSE), dtype=np.float32))
        self.labels = torch.tensor((random.random((model.batch, 1)) < 0.25).astype(np.float32))

    def step(self, batch: Batch) -> Any:
        """Forward, backward, and a step of the optimizers; gives the loss."""
        torch = self.torch
        self.optimizer.zero_grad()
        dense = self.bottom(self.features)
        pooled = self.pool(batch)
        vectors = torch.cat([dense, *(pooled if isinstance(pooled, list) else [pooled])], 1)
        vectors = vectors.view(len(dense), -1, WIDTH)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.first, self.second]
        loss = self.loss(self.top(torch.cat([dense, products], 1)), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss


def cases(size: str) -> list[Case]:
    """A training step with one id a feature, as in Criteo's data, and with several."""
    return [
        Case(
            group=NAME,
            key=key,
            table="training step",
            row=f"{model.title}, Zipf ids",
            column="step",
            entries={name: partial(_entry, name, model) for name in (OURS, "torch", "fbgemm", ALONE)},
            limits={"torch": LIMIT},
            needs=("torch",),
        )
        for key, model in MODELS.items()
        if size != "quick" or key == "1-8-ids"
    ]


def _entry(contestant: str, model: Model) -> Entry:
    given = inputs(model)
    network = Network(given, contestant)
    batches: Iterator[Batch] = cycle(given.batches)

    def answer() -> list[Array]:
        return [np.array([network.step(batch).item() for batch in given.batches[:STEPS]])]

    return Entry(lambda: network.step(next(batches)), None if contestant == ALONE else answer, tolerance=1e-4)


def _embeddings(torch: Any, given: Inputs, contestant: str) -> tuple[Callable[[Batch], Any], list[Any]]:
    """What looks a batch up, and its tables."""
    if contestant == ALONE:
        fixed = torch.zeros(given.model.batch, given.model.columns[-1])
        return lambda batch: fixed.detach().requires_grad_(), []
    bags = CONTESTANTS[contestant](given, "SGD")
    return bags.pool, bags.weights


def _layers(torch: Any, width: int, widths: tuple[int, ...]) -> Any:
    layers: list[Any] = []
    for wider in widths:
        layers += [torch.nn.Linear(width, wider), torch.nn.ReLU()]
        width = wider
    return torch.nn.Sequential(*(layers if widths[-1] > 1 else layers[:-1]))
