"""Layers take a `RaggedTensor` for ids, and for weights, with the results of offsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optional import framework
from rowgrad import RaggedTensor
from rowgrad.errors import InvalidArgumentError

torch = framework("torch")
from rowgrad.torch import EmbeddingBag, EmbeddingBagCollection, EmbeddingBagConfig  # noqa: E402

IDS, SPLITS = [5, 3, 8, 3], [0, 2, 2, 3, 4]


def ragged(kind: str, values: Any = IDS) -> RaggedTensor:
    return RaggedTensor(torch.tensor(values) if kind == "torch" else np.array(values), SPLITS)


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("last", [False, True])
def test_embedding_bag(kind: str, mode: str, last: bool) -> None:
    bag = EmbeddingBag(10, 4, mode=mode, include_last_offset=last)
    offsets = torch.tensor(SPLITS if last else SPLITS[:-1])
    expected = bag(torch.tensor(IDS), offsets)
    found = bag(ragged(kind))
    assert torch.equal(found, expected)
    found.sum().backward()
    assert bag.weight.grad is not None


def test_weights_may_be_ragged() -> None:
    bag = EmbeddingBag(10, 4, mode="sum")
    weights = torch.tensor([0.5, 1.0, 2.0, -1.0], requires_grad=True)
    expected = bag(torch.tensor(IDS), torch.tensor(SPLITS[:-1]), weights)
    for given in (weights, RaggedTensor(weights, SPLITS)):
        assert torch.equal(bag(ragged("torch"), per_sample_weights=given), expected)
    with pytest.raises(InvalidArgumentError, match="other row splits"):
        bag(ragged("torch"), per_sample_weights=RaggedTensor(weights, [0, 1, 2, 3, 4]))
    with pytest.raises(InvalidArgumentError, match="leave out offsets"):
        bag(ragged("torch"), torch.tensor([0]))
    with pytest.raises(InvalidArgumentError, match="not vectors"):
        bag(RaggedTensor(ragged("torch"), [0, 4]))


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_collection(kind: str) -> None:
    tables = [EmbeddingBagConfig(name="t", num_embeddings=10, embedding_dim=4, feature_names=["a", "b"])]
    bags = EmbeddingBagCollection(tables)
    plain = (torch.tensor(IDS), torch.tensor(SPLITS))
    expected = bags({"a": plain, "b": plain}).values()
    assert torch.equal(bags({"a": ragged(kind), "b": plain}).values(), expected)
