"""After `rowgrad doctor --warm`, the first step of a sharded collection compiles nothing of its own."""

import numpy as np
import pytest

from optional import framework

torch = framework("torch")
from rowgrad import _kernels as kernels  # noqa: E402
from rowgrad import optim  # noqa: E402
from rowgrad.torch import EmbeddingBagConfig  # noqa: E402
from rowgrad.torch._warm import tasks  # noqa: E402
from rowgrad.torch.distributed import ShardedEmbeddingBagCollection  # noqa: E402

WIDTH = 16
PLACEMENT = {"t0": "row", "t1": "table", "t2": "column", "t3": "replicated"}


def compiled():
    return {(name, signature) for name, kernel in kernels.compile.KERNELS.items() for signature in kernel.signatures}


def first_steps(group, ids):
    """The kernels that steps with these ids compile after the tasks for their width."""
    for _, task in tasks([WIDTH, WIDTH // 2], ["Adagrad"]):
        task()
    tables = [EmbeddingBagConfig(name, 50, WIDTH, pooling=("sum", "mean")[i % 2]) for i, name in enumerate(PLACEMENT)]
    before = compiled()
    for exact, optimizer, is_weighted in ((False, "Adagrad", False), (True, "Adagrad", False), (False, None, True)):
        collection = ShardedEmbeddingBagCollection(
            tables, is_weighted, group=group, placement=PLACEMENT, exact=exact,
            fused_optimizer=None if optimizer is None else optim.Adagrad(0.1),
        )  # fmt: skip
        offsets = torch.from_numpy(np.arange(0, 4 * 3 * 5 + 1, 5).astype(ids))
        values = torch.from_numpy((np.arange(60) % 50).astype(ids))
        weights = torch.ones(60) if is_weighted else None
        collection.pool(values, offsets, weights).sum().backward()
    return sorted(f"{name} {signature}" for name, signature in compiled() - before)


@pytest.mark.slow
@pytest.mark.parametrize("ids", ["int64", "int32"])
def test_steps_after_the_tasks_compile_nothing(ranks, ids):
    for found in ranks.run(2, first_steps, ids):
        assert found == []
