"""A look-up of TensorFlow and its gradient, with and without `rowgrad.tensorflow.patch`.

    python benchmarks/tensorflow_patch.py            # where TensorFlow is installed

Best of many runs, one after the other in turn; results are compared to the bit first.
"""

import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import rowgrad.tensorflow

ROWS, WIDTH = 100_000, 32
CASES = ((8, 4, 300), (256, 8, 100), (8192, 30, 9))  # bags, ids in each, runs


def make_step(bags: int, length: int) -> Callable[[], Any]:
    """A mean of `length` rows for each of `bags`, and what flows back to the table."""
    rng = np.random.default_rng(1)
    table = tf.Variable(rng.random((ROWS, WIDTH), np.float32))
    ids = tf.RaggedTensor.from_uniform_row_length(tf.constant(rng.integers(0, ROWS, bags * length)), length).to_sparse()
    flow = tf.constant(rng.random((bags, WIDTH), np.float32))

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup_sparse(table, ids, None, combiner="mean") * flow)
        return loss, tape.gradient(loss, table)

    return step


def seconds(function: Callable[[], Any]) -> float:
    """One run."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    """Print a line for each size and mode."""
    for bags, length, runs in CASES:
        step = make_step(bags, length)
        for mode, wrap in (("tf.function", tf.function), ("eager", lambda function: function)):
            plain, patched = wrap(step), wrap(make_step(bags, length))

            def ours(patched: Callable[[], Any] = patched) -> Any:
                with rowgrad.tensorflow.patch():
                    return patched()

            one, other = plain(), ours()
            assert np.array_equal(one[0], other[0])
            assert np.array_equal(tf.convert_to_tensor(one[1]), tf.convert_to_tensor(other[1]))
            times = [(seconds(plain), seconds(ours)) for _ in range(runs)]
            theirs, mine = (min(each) * 1e3 for each in zip(*times, strict=True))
            print(
                f"{bags} × {length}, {mode}: TensorFlow {theirs:.2f} ms, patched {mine:.2f} ms, {theirs / mine:.1f} ×"
            )


if __name__ == "__main__":
    main()
