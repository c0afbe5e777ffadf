"""rowgrad on NumPy arrays, or as a layer of PyTorch. Every other contestant is checked against it."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import rowgrad
from bench import data
from bench.contest import Entry
from bench.work import OURS, Bags, Entries, Work
from rowgrad._runtime.dtypes import Array
from rowgrad.optim import SGD, Adagrad, Adam, RowWiseAdagrad

LEARNING_RATE = 1.0  # so large that a missing update shows
OPTIMIZERS: dict[str, Any] = {
    "train_row_wise": RowWiseAdagrad,
    "train_adagrad": Adagrad,
    "train_adam": Adam,
    "train_sgd": SGD,
}


def start(threads: int) -> None:
    """Nothing to load: each entry sets its threads."""


def entry(work: Work, *, name: str = OURS) -> Entry:
    """Our way to do `work`."""
    run, answer = _of_bags(work, work.input) if isinstance(work.input, Bags) else _of_entries(work, work.input)
    return Entry(name, run, answer, prepare=lambda: rowgrad.set_num_threads(work.threads))


def variant(work: Work, name: str, other: Work) -> Entry:
    """Our way to do `other`, a variant of `work`: to the bit the same, unless it sums in another type."""
    plain = entry(other, name=name)
    if work.operation in OPTIMIZERS:
        return Entry(name, plain.run, plain.answer, plain.prepare)

    def answer(result: Any) -> list[Array]:
        output, rows = plain.answer(result)
        return [output, rows.astype(work.bags.ids)]  # the numbers of rows come in the type of the ids

    same = work.bags.dtype == other.bags.dtype
    return Entry(name, plain.run, answer, plain.prepare, exact=same, tolerance=1e-2)


def row_update(table: Array, grad: Array, ids: Array, bags: Array) -> None:
    """One step of plain gradient descent on the rows that were looked up."""
    SGD(lr=LEARNING_RATE).step_pooled(table, grad, ids, bags, combiner="mean")


def _of_training(work: Work, shape: Bags) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """A step of the layer with its optimizer fused; what needs no framework makes the same step by kernels alone."""
    inputs = data.batch(shape)
    optimizer = OPTIMIZERS[work.operation](lr=LEARNING_RATE)
    rows = data.aligned(data.table(shape.rows, shape.width, shape.dtype))
    if not work.needs:
        ids, bags, grad = (data.aligned(array) for array in inputs[:3])

        def bare() -> None:
            rowgrad.sparse_segment_mean(rows, ids, bags, shape.bags)
            optimizer.step_pooled(rows, grad, ids, bags, combiner="mean")

        return bare, lambda _: [rows]
    torch, layers = import_module("torch"), import_module("rowgrad.torch")
    layer = layers.EmbeddingBag(
        shape.rows, shape.width, combiner="mean", fused_optimizer=optimizer, _weight=torch.from_numpy(rows)
    )
    ids, offsets, grad = (torch.tensor(array) for array in (inputs.ids, inputs.offsets, inputs.grad))
    return lambda: layer(ids, offsets).backward(grad), lambda _: [rows]


def _of_bags(work: Work, shape: Bags) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    if work.operation in OPTIMIZERS:
        return _of_training(work, shape)
    # Writable, as users hold them; and placed as those of frameworks are, unless that is what is measured.
    held = data.aligned if shape.aligned else np.array
    ids, bags, grad = (held(array) for array in data.batch(shape)[:3])
    if work.operation == "row_update":
        table = data.aligned(data.table(shape.rows, shape.width, shape.dtype))
        return partial(row_update, table, grad, ids, bags), lambda _: [table]
    if work.operation == "mean":
        rows = data.table(shape.rows, shape.width, shape.dtype)
        rows = rows if shape.aligned else np.array(rows)
        return partial(rowgrad.sparse_segment_mean, rows, ids, bags), _alone
    function = getattr(rowgrad, f"sparse_segment_{work.operation}")
    return partial(function, grad, ids, bags, shape.rows), list if work.operation == "mean_grad_v2" else _alone


def _of_entries(work: Work, entries: Entries) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    if work.operation == "fill":
        matrix = data.fillable(entries)
        return partial(
            rowgrad.sparse_fill_empty_rows, matrix.indices, matrix.values, matrix.shape, data.DEFAULT
        ), list  # fmt: skip
    if work.operation == "fill_grad":
        way_back = data.filled(entries)
        grad = data.upstream(len(way_back.output_values))
        return partial(rowgrad.sparse_fill_empty_rows_grad, way_back.reverse_index_map, grad), list
    matrix = data.sliceable(entries)
    if work.operation == "slice":
        return partial(rowgrad.sparse_slice, *matrix), list
    window = data.sliced(entries)
    grad = data.upstream(len(window.output_values))
    return partial(rowgrad.sparse_slice_grad, grad, matrix.indices, matrix.start, window.output_indices), _alone


def _alone(result: Any) -> list[Array]:
    return [result]
