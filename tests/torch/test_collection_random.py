"""Collections of any tables beside single layers, and beside the way table by table: the same bits."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rowgrad
from optional import framework
from rowgrad import optim

torch = framework("torch")

from rowgrad.torch import EmbeddingBag, EmbeddingBagCollection, EmbeddingBagConfig  # noqa: E402

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@st.composite
def tables(draw: Any) -> list[EmbeddingBagConfig]:
    """A few tables of odd widths, some of them with several features; types are mixed in some collections."""
    dtypes = draw(st.sampled_from([[torch.float32], [torch.float32], [torch.float32], FLOATS]))
    found: list[EmbeddingBagConfig] = []
    for i in range(draw(st.integers(1, 4))):
        names = [f"f{i}{j}" for j in range(draw(st.integers(1, 3)))]
        found.append(EmbeddingBagConfig(
            f"t{i}", draw(st.sampled_from([1, 2, 5, 40, 300])), draw(st.sampled_from([1, 3, 16, 40, 70])), names,
            draw(st.sampled_from(["sum", "mean", "sqrtn"])), data_type=draw(st.sampled_from(dtypes)),
        ))  # fmt: skip
    return found


@st.composite
def bags(draw: Any, configs: list[EmbeddingBagConfig]) -> tuple[Any, Any, Any]:
    """Values, offsets and, in some cases, weights; repeated ids, empty bags and empty features among them."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size, longest = draw(st.sampled_from([0, 1, 2, 9, 40])), draw(st.sampled_from([0, 1, 2, 12, 30]))
    exactly_one = draw(st.booleans())
    lengths, values = [], []
    for config in configs:
        for _ in config.feature_names:
            own = np.ones(size, np.int64) if exactly_one else random.integers(0, longest + 1, size)
            lengths.append(own)
            values.append(random.integers(0, config.num_embeddings, own.sum()))
    ids, ends = (draw(st.sampled_from([torch.int64, torch.int32])) for _ in range(2))
    flat, offsets = np.concatenate(values), np.concatenate([[0], np.concatenate(lengths).cumsum()])
    weights = torch.tensor(random.uniform(-1, 1, flat.size)).float() if draw(st.booleans()) else None
    return torch.tensor(flat).to(ids), torch.tensor(offsets).to(ends), weights


def filled(configs: list[EmbeddingBagConfig], **others: Any) -> Any:
    torch.manual_seed(5)
    return EmbeddingBagCollection(configs, **others)


def layers(module: Any) -> dict[str, Any]:
    return {
        name: EmbeddingBag(
            *bag.weight.shape, combiner=bag.combiner, sparse=module.sparse, include_last_offset=True,
            _weight=bag.weight.detach().clone(), fused_optimizer=bag.fused_optimizer,
        )
        for name, bag in module.embedding_bags.items()
    }  # fmt: skip


def one_by_one(singles: dict[str, Any], module: Any, values: Any, offsets: Any, weights: Any) -> Any:
    """What single layers give, each called with the bags of all features of its table."""
    configs = module.embedding_bag_configs()
    count = (offsets.shape[0] - 1) // sum(config.num_features() for config in configs)
    parts, first = [], 0
    for config in configs:
        own = offsets[first * count : (first + config.num_features()) * count + 1]
        begin, end = int(own[0]), int(own[-1])
        pooled = singles[config.name](values[begin:end], own - begin, None if weights is None else weights[begin:end])
        parts += [pooled[i * count : (i + 1) * count] for i in range(config.num_features())]
        first += config.num_features()
    return torch.cat(parts, 1)


def step(module: Any, pooled: Any) -> list[Any]:
    """The gradients of tables, or the tables that a fused optimizer has changed."""
    torch.manual_seed(6)
    pooled.backward(torch.randn(pooled.shape).to(pooled.dtype))
    bags = module if isinstance(module, dict) else module.embedding_bags
    found = []
    for bag in bags.values():
        grad = bag.weight.grad
        found.append(bag.weight if grad is None else grad.to_dense() if grad.is_sparse else grad)
    return found


@pytest.mark.parametrize("way", [{"sparse": True}, {"sparse": False}, {"fused_optimizer": optim.SGD(lr=0.5)},
                                 {"fused_optimizer": optim.RowWiseAdagrad(lr=0.5)}], ids=str)  # fmt: skip
@settings(max_examples=12)
@given(data=st.data())
def test_any_collection(way: Any, data: Any) -> None:
    configs = data.draw(tables())
    batch = data.draw(bags(configs))
    rowgrad.set_num_threads(data.draw(st.sampled_from([1, 3])))
    module, by_table = filled(configs, **way), filled(configs, **way)
    singles = layers(module)
    count = (batch[1].shape[0] - 1) // len(module.feature_names())
    expected = one_by_one(singles, module, *batch)
    found = step(singles, expected)
    for each, pooled in ((module, module.pool(*batch)), (by_table, by_table._pool_tables(*batch, count))):
        assert pooled.dtype == expected.dtype and torch.equal(pooled, expected)
        for ours, theirs in zip(step(each, pooled), found, strict=True):
            assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    with torch.no_grad():
        assert torch.equal(module.pool(*batch), by_table._pool_tables(*batch, count))
