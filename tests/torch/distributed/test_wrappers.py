"""Layers inside DistributedDataParallel and fully_shard: they work as PyTorch's, or say why they cannot."""

import pytest

from optional import framework

torch = framework("torch")
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from rowgrad import RowgradError, optim  # noqa: E402
from rowgrad.torch._embedding_bag import EmbeddingBag  # noqa: E402
from rowgrad.torch.distributed import ShardedEmbeddingBag  # noqa: E402

ROWS, WIDTH = 10, 4


class Model(torch.nn.Module):
    """A table and a dense layer."""

    def __init__(self, bag):
        super().__init__()
        torch.manual_seed(0)
        self.bag, self.dense = bag, torch.nn.Linear(WIDTH, 1)

    def forward(self, ids):
        return self.dense(self.bag(ids))


def whole(**settings):
    return EmbeddingBag(ROWS, WIDTH, combiner="sum", _weight=torch.ones(ROWS, WIDTH), **settings)


def fused():
    return whole(fused_optimizer=optim.Adagrad(0.5))


def spread(group):
    return ShardedEmbeddingBag(ROWS, WIDTH, combiner="sum", group=group, _weight=torch.ones(ROWS, WIDTH))


def told(model, ids):
    """What the error of a step says, or None."""
    try:
        model(ids).sum().backward()
    except RowgradError as error:
        return error.code, str(error)


def in_ddp(group, kind):
    model = Model(fused() if kind == "fused" else spread(group))
    model = DistributedDataParallel(model, process_group=group)
    ids = torch.tensor([[dist.get_rank(group), 3]])
    found = told(model, ids)
    if kind == "fused":
        with torch.no_grad():
            model(ids)  # nothing is changed here
    return found


@pytest.mark.parametrize(
    ("kind", "code", "way_out"),
    [("fused", "fused-in-wrapper", "ShardedEmbeddingBag"), ("sharded", "sharded-in-wrapper", "dense part")],
)
def test_ddp_of_what_it_cannot_keep_the_same(ranks, kind, code, way_out):
    for found in ranks.run(2, in_ddp, kind):
        assert found is not None
        assert found[0] == code
        assert "DistributedDataParallel" in found[1] and way_out in found[1]


def alone_in_ddp(group):
    """On one rank there is nothing that could diverge."""
    bag = whole(fused_optimizer=optim.Adagrad(0.5), sparse=False)
    model = DistributedDataParallel(Model(bag), process_group=group)
    model(torch.tensor([[1, 3]])).sum().backward()
    return (model.module.bag.weight != 1).any(1).nonzero().flatten().tolist()


def test_fused_in_ddp_of_one_rank(ranks):
    assert ranks.run(1, alone_in_ddp) == [[1, 3]]


def ignored_by_ddp(group):
    """A sharded table that DDP was told to leave alone works inside it."""
    model = Model(ShardedEmbeddingBag(ROWS, WIDTH, combiner="sum", group=group, _weight=torch.ones(ROWS, WIDTH),
                                      fused_optimizer=optim.Adagrad(0.5)))  # fmt: skip
    names = [f"bag.{name}" for name in (*dict(model.bag.named_parameters()), *dict(model.bag.named_buffers()))]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
    DistributedDataParallel(model, process_group=group)(torch.tensor([[dist.get_rank(group), 9]])).sum().backward()
    return (model.bag.full_table() != 1).any(1).nonzero().flatten().tolist()


def test_what_ddp_ignores_is_not_refused(ranks):
    assert ranks.run(2, ignored_by_ddp) == [[0, 1, 9]] * 2


def in_fully_shard(group, kind):
    bags = {"sharded": lambda: spread(group), "fused": fused, "sparse": whole}
    model, mesh = Model(bags[kind]()), DeviceMesh.from_group(group, "cpu")
    fully_shard(model.bag, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return told(model, torch.tensor([[dist.get_rank(group), 3]]))


@pytest.mark.parametrize(
    ("kind", "way_out"), [("fused", "ShardedEmbeddingBag"), ("sparse", "sparse=False"), ("sharded", "dense part")]
)
def test_fully_shard_of_what_it_cannot_do(ranks, kind, way_out):
    for found in ranks.run(2, in_fully_shard, kind):
        assert found is not None
        assert found[0] == f"{kind}-in-wrapper"
        assert "fully_shard" in found[1] and way_out in found[1]


def dense_in_fully_shard(group, dtype):
    """The gradients of three steps, added up, of rowgrad's layer and of PyTorch's."""
    found = []
    for bag in (whole(sparse=False), torch.nn.EmbeddingBag(ROWS, WIDTH, mode="sum", _weight=torch.ones(ROWS, WIDTH))):
        model, mesh = Model(bag).to(getattr(torch, dtype)), DeviceMesh.from_group(group, "cpu")
        fully_shard(model.bag, mesh=mesh)  # and its whole table is freed after each pass
        fully_shard(model, mesh=mesh)
        for step in range(3):
            model(torch.tensor([[dist.get_rank(group), 3 + step]])).sum().backward()
        found.append(model.bag.weight.grad.full_tensor())
    return torch.equal(*found) and bool(found[0].any())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fully_shard_of_dense_gradients(ranks, dtype):
    assert ranks.run(2, dense_in_fully_shard, dtype) == [True] * 2
