"""FBGEMM's table-batched embedding bags on the CPU: the gradient and the update of the table in one fused pass.

The forward pass is done before the clock starts; what is timed is the backward pass, which ends with a new table.
"""

import logging
from importlib import import_module
from typing import Any

from rowgrad.bench import data
from rowgrad.bench.contest import Entry
from rowgrad.bench.contestants.ours import LEARNING_RATE
from rowgrad.bench.work import Work
from rowgrad.dtypes import Array

torch: Any = None
training: Any = None


def start(threads: int) -> None:
    """Load FBGEMM, on `threads` threads, which are PyTorch's."""
    global torch, training
    torch = import_module("torch")
    torch.set_num_threads(threads)
    import_module("fbgemm_gpu")
    training = import_module("fbgemm_gpu.split_table_batched_embeddings_ops_training")
    logging.getLogger().setLevel(logging.WARNING)  # it tells a lot about each table


def entry(work: Work) -> Entry:
    """FBGEMM's way to do `work`: a step of plain gradient descent."""
    shape = work.bags
    inputs = data.batch(shape)
    ids, grad = torch.tensor(inputs.ids), torch.tensor(inputs.grad)
    ends = torch.tensor([*inputs.offsets.tolist(), shape.size])
    layer = training.SplitTableBatchedEmbeddingBagsCodegen(
        [(shape.rows, shape.width, training.EmbeddingLocation.HOST, training.ComputeDevice.CPU)],
        optimizer=training.OptimType.EXACT_SGD,
        learning_rate=LEARNING_RATE,
        pooling_mode=training.PoolingMode.MEAN,
        device=torch.device("cpu"),
    )
    (weights,) = layer.split_embedding_weights()
    weights.copy_(torch.tensor(data.table(shape.rows, shape.width, shape.dtype)))
    pooled: list[Any] = []

    def prepare() -> None:
        pooled[:] = [layer(ids, ends)]

    def run() -> None:
        pooled[0].backward(grad)

    def answer(_: None) -> list[Array]:
        return [weights.detach().numpy()]

    return Entry("fbgemm", run, answer, prepare, once=True)
