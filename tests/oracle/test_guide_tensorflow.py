"""What docs/from_tensorflow.md says of TensorFlow is true of TensorFlow, and the recorded numbers are its own."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import rowgrad
from rowgrad import RowGradient, optim

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "from_tensorflow.md"
KERAS = tf.keras.optimizers
LR = 0.125
ROWS, WIDTH, STEPS = 12, 3, 20
# Keras' optimizer, ours set as the guide says, and how far apart they may be after the steps. Keras' are made in the
# test: one starts TensorFlow, whose number of threads other tests set before.
SAME = {
    "sgd": (lambda: KERAS.SGD(LR), optim.SGD(LR), 1e-6),
    "momentum": (lambda: KERAS.SGD(LR, momentum=0.9), optim.SGD(LR, momentum=0.9, decay_untouched=True), 2e-5),
    "adagrad": (lambda: KERAS.Adagrad(LR), optim.Adagrad(LR, eps=0, initial_accumulator=0.1 + 1e-7), 1e-6),
    "adam": (lambda: KERAS.Adam(LR), optim.Adam(LR, eps=1e-7, decay_untouched=True), 1e-4),
    "adamw": (lambda: KERAS.AdamW(LR), optim.AdamW(LR, eps=1e-7, weight_decay=0.004, decay_untouched=True), 1e-4),
}


def slices(gradient: Any, rows: Any) -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.constant(gradient), tf.constant(rows), tf.constant([ROWS, WIDTH]))


@pytest.mark.parametrize("name", SAME)
def test_optimizers_are_set_as_the_guide_says(name: str) -> None:
    make_keras, ours, allowed = SAME[name]
    keras = make_keras()
    rng = np.random.default_rng(5)
    table = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    variable, state = tf.Variable(table), ours.init(table)
    for _ in range(STEPS):
        rows = np.flatnonzero(rng.random(ROWS) < 0.4)
        gradient = rng.normal(size=(rows.size, WIDTH)).astype(np.float32)
        keras.apply_gradients([(slices(gradient, rows), variable)])
        ours.step(table, RowGradient(gradient, rows), state)
    np.testing.assert_allclose(table, variable.numpy(), rtol=0, atol=allowed)


def test_keras_adds_squares_of_the_parts_of_a_row() -> None:
    """The surprise that the guide tells of: dense and sparse forms of one gradient differ in Keras."""
    found = []
    for gradient in (slices([[1.0] * WIDTH] * 2, [0, 0]), tf.constant([[2.0] * WIDTH] + [[0.0] * WIDTH] * (ROWS - 1))):
        variable = tf.Variable(np.ones((ROWS, WIDTH), np.float32))
        KERAS.Adagrad(0.1).apply_gradients([(gradient, variable)])
        found.append(float(variable[0, 0]))
    np.testing.assert_allclose(found, [1 - 0.2 / 2.1**0.5, 1 - 0.2 / 4.1**0.5], rtol=1e-5)


def test_first_sum_of_keras_is_float32() -> None:
    variable = tf.Variable(np.ones(2))
    adagrad = KERAS.Adagrad(0.1)
    adagrad.build([variable])
    assert np.asarray(adagrad.variables[-1]).tolist() == [0.10000000149011612] * 2


def test_compact_gradients_are_indexed_slices() -> None:
    table = tf.Variable([[1.0], [2.0], [3.0], [4.0]])
    with tf.GradientTape() as tape:
        pooled = tf.reduce_sum(tf.sparse.segment_mean(table, [2, 0, 2], [0, 0, 1], sparse_gradient=True))
    theirs = tape.gradient(pooled, table)
    ours = rowgrad.sparse_segment_mean_grad_v2(np.ones((2, 1), np.float32), [2, 0, 2], [0, 0, 1], 4)
    np.testing.assert_array_equal(theirs.values, ours.output)
    np.testing.assert_array_equal(theirs.indices, ours.sorted_unique_indices)


def test_fill_and_slice_are_called_as_the_guide_says() -> None:
    indices, values, shape = np.array([[0, 0], [2, 1]]), np.array([5.0, 6.0], np.float32), np.array([4, 3])
    sparse = tf.SparseTensor(indices, values, shape)
    filled, indicator = tf.sparse.fill_empty_rows(sparse, 7.0)
    ours = rowgrad.sparse_fill_empty_rows(indices, values, shape, 7.0)
    for theirs, found in ((filled.indices, ours[0]), (filled.values, ours[1]), (indicator, ours[2])):
        np.testing.assert_array_equal(theirs, found)
    cut = tf.sparse.slice(sparse, [1, 0], [2, 2])
    for theirs, found in zip(
        (cut.indices, cut.values, cut.dense_shape),
        rowgrad.sparse_slice(indices, values, shape, [1, 0], [2, 2]),
        strict=True,
    ):
        np.testing.assert_array_equal(theirs, found)


def test_the_record_is_what_tensorflow_gives() -> None:
    """Matrix products round differently from processor to processor, so up to that."""
    script = ROOT / "examples" / "record_from_tensorflow.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("largest difference") == 12


class Pooled(tf.keras.Model):  # type: ignore[misc]
    """A look-up in the way of feature columns, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = tf.Variable(tf.ones([50, 4])), tf.keras.layers.Dense(1, kernel_initializer="ones")

    def call(self, ids: Any) -> Any:
        return self.head(tf.nn.safe_embedding_lookup_sparse(self.table, tf.sparse.from_dense(ids), combiner="mean"))


@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")  # Keras says so of every data set
def test_the_snippet_of_patch_trains_as_tensorflow_does() -> None:
    (code,) = re.findall(r"^```py\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    found = []
    for source in (code, "model.fit(batches)"):
        model = Pooled()
        model.compile("sgd", "mse")
        ids = np.random.default_rng(1).integers(1, 50, (1024, 4))
        batches = tf.data.Dataset.from_tensor_slices((ids, np.ones((1024, 1), np.float32))).batch(512)
        exec(compile(source, "from_tensorflow.md", "exec"), {"model": model, "batches": batches})
        found.append(model.head.kernel.numpy())
    np.testing.assert_allclose(*found, rtol=1e-5)
    assert (found[0] != 1).all()
