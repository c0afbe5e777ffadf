"""TensorFlow's raw operators, called eagerly: the same operators under the same names, so answers agree to the bit."""

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from bench import data
from bench.contest import Entry
from bench.work import OPERATORS, Bags, Entries, Work
from rowgrad._runtime.dtypes import Array

tf: Any = None


def start(threads: int) -> None:
    """Load TensorFlow, without its greeting, on `threads` threads."""
    global tf
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    is_new, tf = tf is None, import_module("tensorflow")
    if is_new:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def entry(work: Work) -> Entry:
    """TensorFlow's way to do `work`."""
    inputs = _of_bags(work, work.input) if isinstance(work.input, Bags) else _of_entries(work, work.input)
    tensors = {name: tf.convert_to_tensor(array) for name, array in inputs.items()}
    run: Callable[[], Any] = partial(getattr(tf.raw_ops, OPERATORS[work.operation]), **tensors)
    return Entry("tensorflow", run, _arrays, exact=True)


def _of_bags(work: Work, shape: Bags) -> dict[str, Any]:
    ids, bags, grad, _ = data.batch(shape)
    if work.operation == "mean":
        return {"data": data.table(shape.rows, shape.width, shape.dtype), "indices": ids, "segment_ids": bags}
    size = "dense_output_dim0" if work.operation == "mean_grad_v2" else "output_dim0"
    return {"grad": grad, "indices": ids, "segment_ids": bags, size: shape.rows}


def _of_entries(work: Work, entries: Entries) -> dict[str, Any]:
    if work.operation == "fill":
        matrix = data.fillable(entries)
        default = {"default_value": data.DEFAULT}
        return {"indices": matrix.indices, "values": matrix.values, "dense_shape": matrix.shape, **default}
    if work.operation == "fill_grad":
        way_back = data.filled(entries)
        grad = data.upstream(len(way_back.output_values))
        return {"reverse_index_map": way_back.reverse_index_map, "grad_values": grad}
    matrix = data.sliceable(entries)
    if work.operation == "slice":
        return matrix._asdict()
    window = data.sliced(entries)
    return {
        "backprop_val_grad": data.upstream(len(window.output_values)),
        "input_indices": matrix.indices,
        "input_start": matrix.start,
        "output_indices": window.output_indices,
    }


def _arrays(result: Any) -> list[Array]:
    return [tensor.numpy() for tensor in (result if isinstance(result, tuple) else (result,))]
