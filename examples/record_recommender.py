"""The Keras original of docs/leaving_tensorflow.md: trains a recommender, saves it, trains on, and records the losses.

Run once where TensorFlow is installed. The checkpoint goes to `data/recommender.*`, and the losses of the steps after
it to `data/recommender.json`; the guide needs only these.

    python examples/record_recommender.py            # writes the files
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).parent / "data"
USERS, ITEMS, WIDTH, BATCH = 50, 80, 8, 64

Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


def batches() -> list[Batch]:
    """Who saw which four items, and whether they bought; four batches of 64."""
    rows = np.arange(4 * BATCH)
    user = rows * 37 % USERS
    items = (rows[:, None] * np.array([3, 7, 11, 19]) + np.array([0, 5, 9, 2])) % ITEMS
    label = ((user % 3 + items.sum(axis=1) % 5) % 2).astype(np.float32)
    return [
        (user[at : at + BATCH], items[at : at + BATCH], label[at : at + BATCH]) for at in range(0, rows.size, BATCH)
    ]


def make_model() -> keras.Model:
    """Two tables, one of them pooled, and two dense layers."""
    user, items = keras.Input((), dtype="int64", name="user"), keras.Input((4,), dtype="int64", name="items")
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(ITEMS, WIDTH, name="items_table")(items))
    both = keras.layers.Concatenate()([keras.layers.Embedding(USERS, WIDTH, name="users_table")(user), pooled])
    hidden = keras.layers.Dense(16, activation="relu", name="hidden")(both)
    return keras.Model([user, items], keras.layers.Dense(1, name="score")(hidden))


def step(model: keras.Model, optimizer: keras.optimizers.Optimizer, batch: Batch) -> float:
    """One step, with dense gradients: Keras' Adagrad would square the parts of rows that are looked up twice."""
    user, items, label = batch
    with tf.GradientTape() as tape:
        score = model([user, items])[:, 0]
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, score))
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    optimizer.apply([tf.convert_to_tensor(each) for each in gradients], model.trainable_variables)
    return float(loss)


def record(folder: Path) -> None:
    """Two rounds over the data, the checkpoint, and two more."""
    keras.utils.set_random_seed(20)
    model, optimizer = make_model(), keras.optimizers.Adagrad(0.1)
    before = [step(model, optimizer, batch) for _ in range(2) for batch in batches()]
    tf.train.Checkpoint(model=model, optimizer=optimizer).write(str(folder / "recommender"))
    after = [step(model, optimizer, batch) for _ in range(2) for batch in batches()]
    (folder / "recommender.json").write_text(json.dumps({"before": before, "after": after}, indent=1) + "\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
