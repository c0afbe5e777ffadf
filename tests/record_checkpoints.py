"""Record the checkpoints of tests/data/checkpoints anew: `python tests/record_checkpoints.py`, where TensorFlow is.

One of each kind: Keras with three optimizers, objects with values of all types, a SavedModel, TensorFlow 1 with a
partitioned variable, several data files, files of Keras. `expected.npz` has what TensorFlow itself reads in them, by
checkpoint and key, and one more step of each optimizer.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Keras looks for these, and would find the folders of their tests.
for _framework in ("jax", "torch"):
    sys.modules.setdefault(_framework, None)  # type: ignore[arg-type]

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from rowgrad._runtime import files  # noqa: E402

FOLDER = Path(__file__).parent / "data" / "checkpoints"
TYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
         "uint64", "complex64", "complex128", "bool")  # fmt: skip


def recommender() -> Any:
    """Two tables and two dense layers."""
    user, items = keras.Input((), dtype="int32", name="user"), keras.Input((None,), dtype="int32", name="items")
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(20, 4, name="item_table")(items))
    both = keras.layers.Concatenate()([keras.layers.Embedding(12, 4, name="user_table")(user), pooled])
    hidden = keras.layers.Dense(3, activation="relu", name="hidden")(both)
    return keras.Model([user, items], keras.layers.Dense(1, name="score")(hidden), name="recommender")


def record_keras(folder: Path, name: str, expected: dict[str, Any]) -> None:
    """A model after a few steps; its variables after one more step, and the gradients of that."""
    keras.utils.set_random_seed(7)
    rng = np.random.default_rng(3)
    inputs = [rng.integers(0, 12, (16,)).astype("int32"), rng.integers(0, 20, (16, 5)).astype("int32")]
    labels = rng.random((16, 1)).astype("float32")
    model, file = recommender(), f"keras_{name.lower()}"
    model.compile(getattr(keras.optimizers, name)(0.05), loss="mse")
    model.fit(inputs, labels, batch_size=8, epochs=2, verbose=0)
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(folder / file))
    if name == "Adagrad":
        tf.saved_model.save(model, str(folder / "saved"))
        for unused in ("saved_model.pb", "fingerprint.pb"):
            (folder / "saved" / unused).unlink()
        shutil.rmtree(folder / "saved" / "assets", ignore_errors=True)
        for each in ("recommender.keras", "recommender.h5"):
            model.save(folder / each)
        model.save_weights(folder / "recommender.weights.h5")
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs) - labels))
    gradients = tape.gradient(loss, [each.value for each in model.trainable_variables])
    gradients = [tf.convert_to_tensor(each) for each in gradients]
    model.optimizer.apply(gradients, model.trainable_variables)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        expected[f"{file}|gradient|{variable.path}"] = gradient.numpy()
        expected[f"{file}|next|{variable.path}"] = np.asarray(variable)


def record_objects(folder: Path) -> None:
    """Values of all types, names that are there twice, slots of TensorFlow's own optimizers, a list, and no rows."""
    root = tf.train.Checkpoint(
        first=tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="twice"), second=tf.Variable([[5.0]], name="twice"),
        only=tf.Variable([7, 8], name="scope/only"), texts=tf.Variable(["α", "", "long " * 40]),
        empty=tf.Variable(tf.zeros([0, 3]), name="empty"),
    )  # fmt: skip
    root.all = [tf.Variable(tf.cast([1, 0, 1], each), name=f"of_{each}") for each in TYPES]
    adam, adagrad = tf.compat.v1.train.AdamOptimizer(0.1), tf.compat.v1.train.AdagradOptimizer(0.1)
    for _ in range(3):
        adam.apply_gradients([(tf.ones([2, 2]), root.first)])
        adagrad.apply_gradients([(tf.ones([1, 1]), root.second)])
    root.adam, root.adagrad = adam, adagrad
    root.write(str(folder / "objects"))


def record_partitioned(folder: Path) -> None:
    """TensorFlow 1: a table in three parts, with FTRL."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        v1.set_random_seed(5)
        with v1.variable_scope("", partitioner=v1.fixed_size_partitioner(3)):
            table = v1.get_variable("table", [10, 4])
        weights = v1.get_variable("weights", [4, 1])
        loss = tf.reduce_sum(v1.nn.embedding_lookup(table, [1, 5, 9], partition_strategy="div") @ weights)
        train = v1.train.FtrlOptimizer(0.1).minimize(loss, global_step=v1.train.get_or_create_global_step())
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(train)
            v1.train.Saver().save(session, str(folder / "partitioned"), write_meta_graph=False, write_state=False)


def record_sharded(folder: Path) -> None:
    """Two data files; a matrix in slices of both dimensions, which no variable of TensorFlow has, but files may."""
    whole = tf.reshape(tf.range(20.0), [4, 5])
    parts = {"4 5 0,2:0,3": whole[:2, :3], "4 5 0,2:3,2": whole[:2, 3:], "4 5 2,2:-": whole[2:]}
    shards = [str(folder / f"shard{number}") for number in (0, 1)]
    names, slices, tensors = ["grid"] * 2, list(parts)[:2], list(parts.values())[:2]
    tf.raw_ops.SaveV2(prefix=shards[0], tensor_names=names, shape_and_slices=slices, tensors=tensors)
    tf.raw_ops.SaveV2(prefix=shards[1], tensor_names=["grid", "plain"], shape_and_slices=[list(parts)[2], ""],
                      tensors=[list(parts.values())[2], tf.constant([1, 2])])  # fmt: skip
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=shards, destination_prefix=str(folder / "sharded"))


def read(folder: Path, expected: dict[str, Any]) -> None:
    """What TensorFlow reads in all of them."""
    for index in sorted(folder.rglob("*.index")):
        prefix = index.with_suffix("")
        reader = tf.train.load_checkpoint(str(prefix))
        for key in reader.get_variable_to_shape_map():
            if key != "_CHECKPOINTABLE_OBJECT_GRAPH":
                value = np.asarray(reader.get_tensor(key))
                expected[f"{prefix.relative_to(folder)}|{key}"] = value


def record(folder: Path) -> None:
    """All of them."""
    folder.mkdir(parents=True, exist_ok=True)
    expected: dict[str, Any] = {}
    for name in ("Adagrad", "Adam", "Ftrl"):
        record_keras(folder, name, expected)
    record_objects(folder)
    record_partitioned(folder)
    record_sharded(folder)
    read(folder, expected)
    files.write(folder / "expected.npz", expected)


if __name__ == "__main__":
    record(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
