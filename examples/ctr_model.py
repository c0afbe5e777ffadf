"""A small click model in the manner of DLRM, and the clicks it learns: what the `*_ctr.py` examples share.

Batch k of a seed is a function of (seed, k) alone, and so are the first tables: a run can stop and go on, or be spread
over processes, and see the same data. Which layer looks up and pools the rows is the caller's choice.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

WIDTH = 16  # of every embedding
NUMBERS = 8  # dense features
TRAINING, HELD_OUT, TRUTH, TABLES, LAYERS = range(5)  # streams of random numbers of one seed
SPREAD = 2654435761  # a prime: multiplying by it modulo the rows moves the hot ones apart, each to a place of its own


@dataclass(frozen=True)
class Feature:
    """A sparse feature: rows of its table, the length of its longest bag, how its bags are pooled."""

    name: str
    number: int
    rows: int
    longest: int
    combiner: str


@dataclass(frozen=True)
class Batch:
    """Some examples: ids and offsets of each feature by name, numbers, and whether each was clicked.

    `chance` is the true probability of a click, which no model sees.
    """

    ids: dict[str, torch.Tensor]
    offsets: dict[str, torch.Tensor]
    numbers: torch.Tensor
    clicked: torch.Tensor
    chance: np.ndarray


class Clicks:
    """Clicks drawn from a hidden model: a score for every row of every table, and weights of the numbers.

    Parameters
    ----------
    seed : int
        The same seed, the same clicks.
    rows : int
        Rows of the largest table; the others are smaller by fixed factors.
    batch : int
        Examples a batch.
    """

    def __init__(self, seed: int, rows: int, batch: int) -> None:
        self.seed, self.batch = seed, batch
        kinds = (("history", 1, 40, "mean"), ("product", 2, 1, "sum"), ("words", 4, 12, "sum"), ("shop", 40, 1, "sum"),
                 ("tags", 100, 8, "mean"), ("hour", 1000, 1, "sum"))  # fmt: skip
        self.features = [
            Feature(name, number, max(rows // part, 24), longest, combiner)
            for number, (name, part, longest, combiner) in enumerate(kinds)
        ]
        rng = np.random.default_rng([seed, TRUTH])
        self._scores = [rng.normal(size=feature.rows) for feature in self.features]
        self._weights = rng.normal(0, 0.4, NUMBERS)

    def training(self, k: int) -> Batch:
        """Batch k of those to learn from."""
        return self._drawn(np.random.default_rng([self.seed, TRAINING, k]), self.batch)

    def held_out(self, examples: int) -> Batch:
        """Examples to judge by, which no batch holds."""
        return self._drawn(np.random.default_rng([self.seed, HELD_OUT]), examples)

    def _drawn(self, rng: np.random.Generator, examples: int) -> Batch:
        ids, offsets, liking = {}, {}, []
        for feature, scores in zip(self.features, self._scores, strict=True):
            lengths = rng.integers(1 if feature.longest == 1 else 0, feature.longest + 1, examples)
            ends = np.cumsum(lengths)
            # Rank r with a probability of about 1 / (r + 1): Zipf's law, by the inverse of its distribution.
            ranks = np.floor((feature.rows + 1.0) ** rng.random(int(ends[-1]))).astype(np.int64) - 1
            rows = np.minimum(ranks, feature.rows - 1) * SPREAD % feature.rows
            sums = np.zeros(examples)
            np.add.at(sums, np.repeat(np.arange(examples), lengths), scores[rows])
            liking.append(sums / np.sqrt(np.maximum(lengths, 1)))
            ids[feature.name] = torch.from_numpy(rows)
            offsets[feature.name] = torch.from_numpy(ends - lengths)
        numbers = rng.normal(size=(examples, NUMBERS))
        # Some taste of its own for each feature, and one feature that matters by what it meets.
        logit = 0.7 * sum(liking) + 0.7 * liking[1] * liking[3] + numbers @ self._weights - 0.5
        chance = 1 / (1 + np.exp(-logit))
        clicked = torch.from_numpy((rng.random(examples) < chance).astype(np.float32))
        return Batch(ids, offsets, torch.from_numpy(numbers.astype(np.float32)), clicked, chance)


def first_table(seed: int, feature: Feature) -> torch.Tensor:
    """The rows that training begins with, a function of the seed and the feature."""
    rng = np.random.default_rng([seed, TABLES, feature.number])
    return torch.from_numpy(rng.normal(0, 0.05, (feature.rows, WIDTH)).astype(np.float32))


class ClickModel(nn.Module):
    """Pooled embeddings and the numbers' own vector meet pair by pair; a small network judges what comes of it.

    Parameters
    ----------
    features : list of Feature
        One table each.
    make_bag : function
        Of a feature; gives the module that is called with ids and offsets and pools rows of WIDTH columns.
    seed : int
        Of the layers that are not tables.
    """

    def __init__(self, features: list[Feature], make_bag: Callable[[Feature], nn.Module], seed: int) -> None:
        super().__init__()
        self.bags = nn.ModuleDict({feature.name: make_bag(feature) for feature in features})
        vectors = len(features) + 1
        pairs = vectors * (vectors - 1) // 2
        self.bottom = nn.Sequential(nn.Linear(NUMBERS, 32), nn.ReLU(), nn.Linear(32, WIDTH), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(pairs + WIDTH * vectors, 32), nn.ReLU(), nn.Linear(32, 1))
        self.register_buffer("pairs", torch.tril_indices(vectors, vectors, -1), persistent=False)
        rng = np.random.default_rng([seed, LAYERS])
        with torch.no_grad():
            for values in self.dense_parameters():
                drawn = rng.normal(0, values.shape[-1] ** -0.5, values.shape) * (values.dim() == 2)
                values.copy_(torch.from_numpy(drawn))

    def dense_parameters(self) -> list[nn.Parameter]:
        """Those that are not tables."""
        return [*self.bottom.parameters(), *self.top.parameters()]

    def forward(self, batch: Batch) -> torch.Tensor:
        """The logit of a click, for each example."""
        numbers = self.bottom(batch.numbers)
        pooled = [bag(batch.ids[name], batch.offsets[name]) for name, bag in self.bags.items()]
        vectors = torch.stack([numbers, *pooled], dim=1)
        products = vectors @ vectors.transpose(1, 2)
        dots = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([vectors.flatten(1), dots], dim=1))[:, 0]


def auc(scores: np.ndarray, clicked: np.ndarray) -> float:
    """How often a click is scored above what was not clicked; equal scores count half."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]  # from 1; equal scores share the middle one
    clicks = int(clicked.sum())
    others = len(clicked) - clicks
    return float((ranks[clicked > 0].sum() - clicks * (clicks + 1) / 2) / (clicks * others))
