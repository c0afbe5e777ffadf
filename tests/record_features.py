"""Record what TensorFlow makes of features, for machines without it: `python tests/record_features.py`.

The hashes of strings of many lengths, crosses of columns, and the model of docs/wide_and_deep.md, trained.
`tests/ops/test_hashing.py`, `test_cross.py` and `tests/docs/test_wide_and_deep.py` read the file.
"""

import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

FILE = Path(__file__).parent / "data" / "features-tensorflow-2.21.json"
LARGEST = 2**63 - 1


def wide_and_deep() -> dict[str, Any]:
    """The model of docs/wide_and_deep.md in TensorFlow: ids, losses, and the weights of the wide half at the end."""
    rows = np.arange(200)
    city = np.array(["Oslo", "Lima", "Cairo", "Quito", "Delhi"])[rows * 7 % 5]
    device = np.array(["phone", "tablet", "desktop"])[rows * rows % 3]
    age = 18 + rows * 37 % 50
    label = (((rows * 7 % 5) % 2 == 0) == (device == "phone")).astype(np.float32)
    bucket = tf.cast(tf.raw_ops.Bucketize(input=age, boundaries=[25, 35, 45, 55]), tf.int64)
    cities = tf.constant(city[:, None])
    wide_ids = {
        "city": tf.strings.to_hash_bucket_fast(city, 100),
        "city x device": tf.sparse.cross_hashed([cities, tf.constant(device[:, None])], 500).values,
        "city x age": tf.sparse.cross_hashed([cities, bucket[:, None]], 500).values,
    }
    devices = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["phone", "tablet", "desktop"], tf.range(3, dtype=tf.int64)), -1
    )
    deep_ids = {"city": wide_ids["city"], "device": devices.lookup(tf.constant(device))}

    def start(*shape: int) -> Any:
        return tf.Variable(tf.constant(0.1 * np.sin(np.arange(np.prod(shape))).reshape(shape), tf.float32))

    wide = {name: tf.Variable(tf.zeros([100 if name == "city" else 500, 1])) for name in wide_ids}
    deep = {"city": start(100, 8), "device": start(3, 4)}
    hidden, bias, last = start(12, 16), tf.Variable(tf.zeros(16)), start(16, 1)
    train = tf.compat.v1.train
    ftrl = train.FtrlOptimizer(0.2, initial_accumulator_value=0.1, l1_regularization_strength=0.001,
                               l2_regularization_strength=0.001)  # fmt: skip
    adagrad = train.AdagradOptimizer(0.05, initial_accumulator_value=0.1)
    losses = []
    for step in range(16):
        batch = slice(step % 4 * 50, step % 4 * 50 + 50)
        with tf.GradientTape() as tape:
            logits = tf.add_n([tf.gather(wide[name], ids[batch]) for name, ids in wide_ids.items()])
            inputs = tf.concat([tf.gather(deep[name], ids[batch]) for name, ids in deep_ids.items()], 1)
            logits += tf.nn.relu(inputs @ hidden + bias) @ last
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label[batch], logits=logits[:, 0]))
        halves = [*wide.values()], [*deep.values(), hidden, bias, last]
        gradients = tape.gradient(loss, halves)
        for optimizer, found, variables in zip((ftrl, adagrad), gradients, halves, strict=True):
            optimizer.apply_gradients(zip(found, variables, strict=True))
        losses.append(float(loss))
    return {
        "wide_ids": {name: ids.numpy().tolist() for name, ids in wide_ids.items()},
        "deep_ids": {name: ids.numpy().tolist() for name, ids in deep_ids.items()},
        "losses": losses,
        "wide": {name: table.numpy()[:, 0].tolist() for name, table in wide.items()},
    }


def main() -> None:
    rng = np.random.default_rng(0)
    strings = [rng.bytes(size) for size in (*range(70), 127, 128, 129, 200, 1000)]
    text = tf.constant(strings)
    indices, values, shape = [[0, 0], [0, 1], [1, 0], [3, 0]], [b"a", b"bb", b"", b"ccc"], [4, 2]
    numbers = [[7, -1], [8, 2**40], [9, 0], [10, 3]]
    columns = {
        "indices": [indices, indices], "values": [values, [1, 2, -3, 2**33]], "shapes": [shape, shape],
        "dense_inputs": [numbers],
    }  # fmt: skip
    given = {
        key: [np.array(part, object if part and isinstance(part[0], bytes) else np.int64) for part in parts]
        for key, parts in columns.items()
    }
    crossed = tf.raw_ops.SparseCross(**given, hashed_output=True, num_buckets=0, hash_key=956888297470,
                                     out_type=tf.int64, internal_type=tf.int64)  # fmt: skip
    hashed = tf.raw_ops.SparseCrossHashed(**given, num_buckets=1000, strong_hash=False, salt=[1, 2])
    joined = tf.raw_ops.SparseCrossV2(**given, sep="_X_")
    FILE.write_text(
        json.dumps(
            {
                "source": f"tensorflow-cpu {tf.__version__}",
                "strings": [string.hex() for string in strings],
                "fast": tf.strings.to_hash_bucket_fast(text, LARGEST).numpy().tolist(),
                "strong": tf.strings.to_hash_bucket_strong(text, LARGEST, [3, -4]).numpy().tolist(),
                "older": tf.strings.to_hash_bucket(text, LARGEST).numpy().tolist(),
                "columns": {
                    key: [[item.decode() if isinstance(item, bytes) else item for item in part] for part in parts]
                    for key, parts in columns.items()
                },
                "crossed": crossed.output_values.numpy().tolist(),
                "hashed": hashed.output_values.numpy().tolist(),
                "joined": [item.decode() for item in joined.output_values.numpy()],
                "indices": crossed.output_indices.numpy().tolist(),
                "shape": crossed.output_shape.numpy().tolist(),
                "wide_and_deep": wide_and_deep(),
            },
            separators=(",", ":"),
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
