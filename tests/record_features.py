"""Record what TensorFlow makes of features, for machines without it: `python tests/record_features.py`.

The hashes of strings of many lengths, and crosses of columns. `tests/ops/test_hashing.py` and `test_cross.py` read
the file.
"""

import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

FILE = Path(__file__).parent / "data" / "features-tensorflow-2.21.json"
LARGEST = 2**63 - 1


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
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
