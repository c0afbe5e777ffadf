"""FBGEMM's table-batched embedding bags on the CPU: the gradient and the update of the table in one fused pass.

For a row update, the forward pass is done before the clock starts; what is timed is the backward pass, which ends with
a new table. For a training step both are timed.
"""

import logging
from importlib import import_module
from typing import Any

from bench import data
from bench.contest import Entry
from bench.contestants.ours import LEARNING_RATE
from bench.work import Work
from rowgrad._runtime.dtypes import Array

torch: Any = None
training: Any = None
OPTIMIZERS = {"row_update": "EXACT_SGD", "train_row_wise": "EXACT_ROWWISE_ADAGRAD"}
EPSILON = 1e-8


def start(threads: int) -> None:
    """Load FBGEMM, on `threads` threads, which are PyTorch's."""
    global torch, training
    torch = import_module("torch")
    torch.set_num_threads(threads)
    import_module("fbgemm_gpu")
    training = import_module("fbgemm_gpu.split_table_batched_embeddings_ops_training")
    logging.getLogger().setLevel(logging.WARNING)  # it tells a lot about each table


def entry(work: Work) -> Entry:
    """FBGEMM's way to do `work`: a step of plain gradient descent, or of row-wise Adagrad."""
    shape = work.bags
    inputs = data.batch(shape)
    ids, grad = torch.tensor(inputs.ids), torch.tensor(inputs.grad)
    ends = torch.tensor([*inputs.offsets.tolist(), shape.size])
    layer = training.SplitTableBatchedEmbeddingBagsCodegen(
        [(shape.rows, shape.width, training.EmbeddingLocation.HOST, training.ComputeDevice.CPU)],
        optimizer=training.OptimType[OPTIMIZERS[work.operation]],
        learning_rate=LEARNING_RATE,
        eps=EPSILON,
        pooling_mode=training.PoolingMode.MEAN,
        device=torch.device("cpu"),
    )
    (weights,) = layer.split_embedding_weights()
    weights.copy_(torch.tensor(data.table(shape.rows, shape.width, shape.dtype)))

    def answer(_: None) -> list[Array]:
        return [weights.detach().numpy()]

    if work.operation == "train_row_wise":
        return Entry("fbgemm", lambda: layer(ids, ends).backward(grad), answer)
    pooled: list[Any] = []

    def prepare() -> None:
        pooled[:] = [layer(ids, ends)]

    def run() -> None:
        pooled[0].backward(grad)

    return Entry("fbgemm", run, answer, prepare, once=True)
