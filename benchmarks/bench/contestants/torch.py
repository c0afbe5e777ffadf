"""PyTorch's `embedding_bag`: forward, dense backward, sparse backward with the gradient coalesced, training steps.

Only a coalesced gradient has each row once, as ours has. The forward pass of a backward contest is done before the
clock starts, and `autograd.grad` accumulates nothing.
"""

from importlib import import_module
from typing import Any

from bench import data
from bench.contest import Entry
from bench.contestants.ours import LEARNING_RATE
from bench.work import Work
from rowgrad._runtime.dtypes import Array

torch: Any = None
OPTIMIZERS = {"train_adagrad": "Adagrad", "train_adam": "SparseAdam"}


def start(threads: int) -> None:
    """Load PyTorch, on `threads` threads."""
    global torch
    torch = import_module("torch")
    torch.set_num_threads(threads)


def entry(work: Work) -> Entry:
    """PyTorch's way to do `work`."""
    shape = work.bags
    inputs = data.batch(shape)
    ids, grad, offsets = (torch.tensor(array) for array in (inputs.ids, inputs.grad, inputs.offsets))
    weight = torch.tensor(data.table(shape.rows, shape.width, shape.dtype))
    if work.operation in OPTIMIZERS:
        return _training(work, ids, offsets, grad, weight)
    pool = torch.nn.functional.embedding_bag
    if work.operation == "mean":

        def forward() -> Any:
            with torch.no_grad():
                return pool(ids, weight, offsets, mode="mean")

        return Entry("torch", forward, lambda result: [result.numpy()])
    is_sparse = work.operation == "mean_grad_v2"
    weight.requires_grad_()
    pooled = pool(ids, weight, offsets, mode="mean", sparse=is_sparse)

    def backward() -> Any:
        (gradient,) = torch.autograd.grad(pooled, weight, grad, retain_graph=True)
        return gradient.coalesce() if is_sparse else gradient

    return Entry("torch", backward, _sparse_arrays if is_sparse else lambda result: [result.numpy()])


def _training(work: Work, ids: Any, offsets: Any, grad: Any, weight: Any) -> Entry:
    """Forward, backward with a sparse gradient, and a step of the optimizer."""
    layer = torch.nn.EmbeddingBag(*weight.shape, mode="mean", sparse=True, _weight=weight)
    optimizer = getattr(torch.optim, OPTIMIZERS[work.operation])(layer.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad()
        layer(ids, offsets).backward(grad)
        optimizer.step()

    return Entry("torch", step, lambda _: [weight.numpy()])


def _sparse_arrays(result: Any) -> list[Array]:
    return [result.values().numpy(), result.indices()[0].numpy()]
