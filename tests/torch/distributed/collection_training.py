"""The same training of 26 tables in one process and on several ranks: batches with all that is awkward."""

import numpy as np
import torch
import torch.distributed as dist

from rowgrad import optim
from rowgrad.torch import EmbeddingBagCollection, EmbeddingBagConfig
from rowgrad.torch.distributed import ShardedEmbeddingBagCollection

TABLES, BAGS, STEPS = 26, 17, 5
POOLINGS = ("sum", "mean", "sqrtn")
OPTIMIZERS = {
    "Adagrad": lambda: optim.Adagrad(0.05, eps=1e-3),
    "RowWiseAdagrad": lambda: optim.RowWiseAdagrad(0.05, eps=1e-3),
    "Adam": lambda: optim.Adam(0.01),
    "SGD": lambda: optim.SGD(0.05),
}


def tables(dtype=torch.float32, pooling=None):
    """Tables of many sizes: some with fewer rows than ranks, some with two features."""
    found = []
    for i in range(TABLES):
        rows, width = (2, 5, 40, 333)[i % 4], (4, 7, 16, 33)[i // 4 % 4]
        names = [f"f{i}", f"g{i}"] if i % 5 == 3 else [f"f{i}"]
        found.append(EmbeddingBagConfig(f"t{i}", rows, width, names, pooling or POOLINGS[i % 3], data_type=dtype))
    return found


def mixed():
    """Every placement in one collection."""
    return {f"t{i}": ("row", "table", "replicated", "column", "auto")[i % 5] for i in range(TABLES)}


def weights_of(configs):
    random = np.random.default_rng(1)
    return {
        t.name: torch.from_numpy(random.normal(size=(t.num_embeddings, t.embedding_dim))).to(t.data_type)
        for t in configs
    }


def batch(step, configs):
    """For each feature: the ids of each bag, and a weight of each id; and the numbers that the loss is made of."""
    random = np.random.default_rng([2, step])
    features = [t for t in configs for _ in t.feature_names]
    most = 0 if step == 3 else 5
    bags = [[random.integers(0, t.num_embeddings, random.integers(0, most + 1)) for _ in range(BAGS)] for t in features]
    weights = [[random.normal(1, 0.3, ids.size) for ids in of_feature] for of_feature in bags]
    columns = sum(t.embedding_dim for t in features)
    return bags, weights, random.normal(size=(2, BAGS, columns))


def parts(step, ranks):
    """Which bags each rank has, from one to before the other; at times a rank has none."""
    cuts = np.sort(np.random.default_rng([3, step]).integers(0, BAGS + 1, ranks - 1))
    if step % 3 == 0:
        cuts[:1] = 0
    return list(zip([0, *cuts], [*cuts, BAGS], strict=True))


def given(step, configs, first, last, case):
    bags, weights, slopes = batch(step, configs)
    mine = [ids for of_feature in bags for ids in of_feature[first:last]]
    values = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *mine])).to(
        getattr(torch, case.get("ids", "int64"))
    )
    offsets = torch.from_numpy(np.cumsum([0, *(ids.size for ids in mine)]))
    factors = None
    if case.get("weighted"):
        flat = np.concatenate([np.empty(0), *(w for of_feature in weights for w in of_feature[first:last])])
        factors = torch.from_numpy(flat).float().requires_grad_(case["weighted"] == "learn")
    return values, offsets, factors, slopes[:, first:last]


def made(group, case, configs):
    optimizer = OPTIMIZERS[case["optimizer"]]() if case.get("optimizer") else None
    if case.get("some_fused"):
        optimizer = {t.name: optimizer if i % 2 else None for i, t in enumerate(configs)}
    if group is None:
        collection = EmbeddingBagCollection(configs, fused_optimizer=optimizer)
        with torch.no_grad():
            for name, weight in weights_of(configs).items():
                collection.embedding_bags[name].weight.copy_(weight)
        return collection
    placement = mixed() if case["placement"] == "mixed" else case["placement"]
    collection = ShardedEmbeddingBagCollection(
        configs, group=group, placement=placement, exact=case.get("exact", False), fused_optimizer=optimizer
    )
    collection.load_tables(weights_of(configs))
    return collection


def train(group, case):
    """The tables, what each step gave this rank, and the exchanges of the last step."""
    dtype = getattr(torch, case.get("dtype", "float32"))
    configs = tables(dtype, case.get("pooling"))
    collection = made(group, case, configs)
    plain = None
    if not case.get("optimizer") or case.get("some_fused"):
        loose = [bag.weight for bag in collection.embedding_bags.values() if bag.fused_optimizer is None]
        plain = torch.optim.SGD(loose, lr=0.05)
    rank, ranks = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    outputs, gradients, exchanges, sent, request = [], [], 0, {}, None
    for step in range(STEPS):
        first, last = (0, BAGS) if group is None else parts(step, ranks)[rank]
        values, offsets, factors, slopes = given(step, configs, first, last, case)
        if group is not None:
            collection.traffic.reset()
        if request is None:
            output = collection.pool(values, offsets, factors)
        else:
            output, factors = collection(request[0]).values(), request[1]
        if group is not None and case.get("prefetch") and step + 1 < STEPS:
            following = given(step + 1, configs, *parts(step + 1, ranks)[rank], case)
            request = collection.prefetch(following[:3]), following[2]
        slope, curve = (torch.from_numpy(x).to(dtype) for x in slopes)
        (output * slope + 0.5 * curve * output * output).sum().backward()
        if plain:
            plain.step()
            plain.zero_grad()
        outputs.append(output.detach().double().numpy())
        gradients.append(factors.grad.double().numpy() if case.get("weighted") == "learn" else np.empty(0))
        if group is not None:
            exchanges, sent = collection.traffic.exchanges.total(), dict(collection.traffic.sent)
    found = collection.gather_tables() if group is not None else {
        name: bag.weight.detach() for name, bag in collection.embedding_bags.items()
    }  # fmt: skip
    return {"tables": {name: table.double().numpy() for name, table in found.items()}, "outputs": outputs,
            "gradients": gradients, "exchanges": exchanges, "sent": sent, "order": parts}  # fmt: skip


def train_here(group, cases):
    return [{key: value for key, value in train(group, case).items() if key != "order"} for case in cases]
