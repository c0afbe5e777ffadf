"""What the tests of collections share: tables of different widths and poolings, batches, single layers beside them."""

from typing import Any

import numpy as np

from optional import framework

torch = framework("torch")

from rowgrad.torch import EmbeddingBag, EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor  # noqa: E402

FEATURES = ["a", "b", "c", "d"]
# name, rows, width, features, pooling
TABLES = [("t0", 12, 5, ["a"], "sum"), ("t1", 7, 3, ["b", "c"], "mean"), ("t2", 9, 4, ["d"], "sqrtn")]
ROWS = {"a": 12, "b": 7, "c": 7, "d": 9}
BATCH = 6


def rows(seed: int, count: int, width: int, dtype: Any) -> Any:
    return torch.tensor(np.random.default_rng(seed).normal(size=(count, width))).to(dtype)


def collection(dtype: Any = torch.float32, tables: Any = TABLES, **settings: Any) -> Any:
    configs = [EmbeddingBagConfig(*table, data_type=dtype) for table in tables]
    made = EmbeddingBagCollection(tables=configs, **settings)
    with torch.no_grad():
        for i, bag in enumerate(made.embedding_bags.values()):
            bag.weight.copy_(rows(i, *bag.weight.shape, dtype))
    return made


def layers(module: Any, **settings: Any) -> dict[str, Any]:
    """For each table a layer of its own, with a copy of its rows."""
    made = {}
    for config in module.embedding_bag_configs():
        weight = module.embedding_bags[config.name].weight.detach().clone()
        made[config.name] = EmbeddingBag(*weight.shape, combiner=config.pooling, include_last_offset=True,
                                         _weight=weight, **settings)  # fmt: skip
    return made


def batch(seed: int = 0, dtype: Any = torch.int64, weighted: bool = False, size: int = BATCH, longest: int = 5) -> Any:
    """Bags of 0 to 4 ids, and none at all for the feature c."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, longest, (len(FEATURES), size))
    lengths[2] = 0 if seed == 0 else lengths[2]
    values = [random.integers(0, ROWS[name], lengths[i].sum()) for i, name in enumerate(FEATURES)]
    total = int(lengths.sum())
    weights = torch.tensor(random.uniform(0.5, 1.5, total).astype("float32")) if weighted else None
    return KeyedJaggedTensor(FEATURES, torch.tensor(np.concatenate(values)).to(dtype), weights,
                             lengths=torch.tensor(lengths.reshape(-1)).to(dtype))  # fmt: skip


def one_by_one(bags: dict[str, Any], module: Any, features: Any) -> Any:
    """What the layers of single tables give: all features of a table in one call, so that they make one step."""
    parts = []
    for config in module.embedding_bag_configs():
        own = KeyedJaggedTensor.concat(
            [features.permute([features.keys().index(name)]) for name in config.feature_names]
        )
        pooled = bags[config.name](own.values(), own.offsets(), own.weights_or_none())
        parts += pooled.split(features.stride())
    return torch.cat(parts, 1)


def upstream(pooled: Any) -> Any:
    """A gradient that differs from place to place."""
    random = np.random.default_rng(9)
    return torch.tensor(random.normal(size=tuple(pooled.shape))).to(pooled.dtype)


def tables_of(module: Any) -> dict[str, Any]:
    return {name: bag.weight.detach().clone() for name, bag in module.embedding_bags.items()}


def assert_same_state(first: Any, second: Any) -> None:
    """Two modules have the same parameters and buffers, bit for bit."""
    theirs, ours = first.state_dict(), second.state_dict()
    assert theirs.keys() == ours.keys()
    for name, array in theirs.items():
        assert array.dtype == ours[name].dtype and torch.equal(array, ours[name]), name
