"""Collections inside DistributedDataParallel and fully_shard: they work as PyTorch's layers, or say why they cannot."""

import pytest

from optional import framework

torch = framework("torch")
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from rowgrad import RowgradError, optim  # noqa: E402
from rowgrad.torch import EmbeddingBagCollection, EmbeddingBagConfig  # noqa: E402

ROWS, WIDTH = 10, 4


class Model(torch.nn.Module):
    """Two tables and a dense layer."""

    def __init__(self, **settings):
        super().__init__()
        torch.manual_seed(0)
        self.tables = EmbeddingBagCollection(
            [EmbeddingBagConfig(name, ROWS, WIDTH, init_fn=torch.nn.init.ones_) for name in ("x", "y")], **settings
        )
        self.dense = torch.nn.Linear(2 * WIDTH, 1)

    def forward(self, ids):
        return self.dense(self.tables({"x": ids, "y": ids}).values())


def told(model, ids):
    """What the error of a step says, or None."""
    try:
        model(ids).sum().backward()
    except RowgradError as error:
        return error.code, str(error)


def in_ddp(group, is_fused):
    settings = {"fused_optimizer": optim.Adagrad(0.5)} if is_fused else {}
    model = Model(**settings)
    wrapped = DistributedDataParallel(model, process_group=group)
    found = told(wrapped, torch.tensor([[dist.get_rank(group), 3]]))
    if is_fused:
        with torch.no_grad():
            wrapped(torch.tensor([[1]]))  # nothing is changed here
        return found
    grads = [bag.weight.grad.coalesce().indices().flatten().tolist() for bag in model.tables.embedding_bags.values()]
    return found, grads


def test_fused_in_ddp_is_refused(ranks):
    for code, message in ranks.run(2, in_ddp, True):
        assert code == "fused-in-wrapper" and "DistributedDataParallel" in message


def test_sparse_gradients_in_ddp(ranks):
    assert ranks.run(2, in_ddp, False) == [(None, [[0, 1, 3]] * 2)] * 2


def in_fully_shard(group, kind):
    settings = {"fused": {"fused_optimizer": optim.Adagrad(0.5)}, "sparse": {}, "dense": {"sparse": False}}[kind]
    model, mesh = Model(**settings), DeviceMesh.from_group(group, "cpu")
    fully_shard(model.tables, mesh=mesh)
    fully_shard(model, mesh=mesh)
    found = told(model, torch.tensor([[dist.get_rank(group), 3]]))
    if kind != "dense":
        return found
    return found, [bag.weight.grad.full_tensor()[:, 0].nonzero().flatten().tolist()
                   for bag in model.tables.embedding_bags.values()]  # fmt: skip


@pytest.mark.parametrize(("kind", "way_out"), [("fused", "ShardedEmbeddingBag"), ("sparse", "sparse=False")])
def test_fully_shard_of_what_it_cannot_do(ranks, kind, way_out):
    for code, message in ranks.run(2, in_fully_shard, kind):
        assert code == f"{kind}-in-wrapper"
        assert "fully_shard" in message and way_out in message


def test_fully_shard_of_dense_gradients(ranks):
    assert ranks.run(2, in_fully_shard, "dense") == [(None, [[0, 1, 3]] * 2)] * 2
