"""The TensorFlow original of `from_tensorflow.py`: trains it and records its numbers.

Whoever moves a model has this half already. Here it is run once, where TensorFlow is installed, and its data, first
parameters, losses, predictions and gradients go into `data/from_tensorflow.npz`; the other half needs only that file.

    python examples/record_from_tensorflow.py            # writes the file
    python examples/record_from_tensorflow.py --check    # compares it with what this TensorFlow gives
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

FILE = Path(__file__).parent / "data" / "from_tensorflow.npz"
SEED = 11
VISITS, BATCH, EPOCHS = 512, 64, 12
PAGES, TERMS, WIDTH, NUMBERS, HIDDEN = 240, 160, 8, 4, 16
DEFAULT_TERM = 3  # what visits without a search are looked up with
LEARNING_RATE = 0.125
# Losses of another machine's TensorFlow: matrix products round differently from processor to processor.
SAME = {"float32": 1e-4, "float64": 1e-10}

Record = dict[str, np.ndarray]


def make_data(rng: np.random.Generator) -> Record:
    """Visits to a shop: pages seen, with seconds; words searched for, with weights; numbers; whether they bought.

    Some pages are unknown (−1), some visits have no page or no word, some words have weight 0: what the safe look-up is
    for. Buying depends on hidden vectors of pages and words, so that there is something to learn.
    """
    hidden = {"pages": rng.normal(0, 1.5, PAGES), "terms": rng.normal(0, 1.5, TERMS)}
    score = np.zeros(VISITS)
    data: Record = {}
    for name, rows, longest in (("pages", PAGES, 7), ("terms", TERMS, 4)):
        lengths = rng.integers(0, longest + 1, VISITS)
        visits = np.repeat(np.arange(VISITS), lengths)
        columns = np.concatenate([np.arange(length) for length in lengths])
        ids = np.minimum(rng.zipf(1.3, visits.size) - 1, rows - 1)
        weights = rng.gamma(2.0, 1.0, visits.size).astype(np.float32)
        if name == "pages":
            ids[rng.random(ids.size) < 0.1] = -1
        else:
            weights[rng.random(ids.size) < 0.1] = 0
        known = ids >= 0
        np.add.at(score, visits[known], hidden[name][ids[known]])
        data[f"{name}_indices"] = np.stack([visits, columns], axis=1).astype(np.int64)
        data[f"{name}_ids"], data[f"{name}_weights"] = ids.astype(np.int64), weights
    numbers = rng.normal(size=(VISITS, NUMBERS)).astype(np.float32)
    score += numbers @ rng.normal(0, 0.7, NUMBERS)
    bought = rng.random(VISITS) < 1 / (1 + np.exp(-score))
    return {**data, "numbers": numbers, "bought": bought.astype(np.float32)}


def first_parameters(rng: np.random.Generator) -> Record:
    """The parameters to begin with, in float32."""
    shapes = {"pages": (PAGES, WIDTH), "terms": (TERMS, WIDTH), "hidden": (2 * WIDTH + NUMBERS, HIDDEN),
              "hidden_bias": (HIDDEN,), "out": (HIDDEN, 1), "out_bias": (1,)}  # fmt: skip
    drawn = {name: rng.normal(0, 0.3, shape) * ("bias" not in name) for name, shape in shapes.items()}
    return {name: values.astype(np.float32) for name, values in drawn.items()}


class Shop(tf.Module):
    """Two pooled look-ups and the numbers, a hidden layer, one logit."""

    def __init__(self, parameters: Record, dtype: str) -> None:
        super().__init__()
        self.parameters = {name: tf.Variable(x, name=name, dtype=dtype) for name, x in parameters.items()}

    def __call__(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        p = self.parameters
        pages = tf.nn.safe_embedding_lookup_sparse(p["pages"], batch["pages"], batch["pages_weights"], combiner="mean")
        terms = tf.nn.safe_embedding_lookup_sparse(
            p["terms"], batch["terms"], batch["terms_weights"], combiner="sqrtn", default_id=DEFAULT_TERM
        )
        inputs = tf.concat([pages, terms, batch["numbers"]], axis=1)
        hidden = tf.nn.relu(tf.matmul(inputs, p["hidden"]) + p["hidden_bias"])
        return (tf.matmul(hidden, p["out"]) + p["out_bias"])[:, 0]


def batches(data: Record, dtype: str, size: int) -> Iterator[dict[str, tf.Tensor]]:
    """The visits in order, `size` at a time."""
    for begin in range(0, VISITS, size):
        end = begin + size
        batch = {name: tf.constant(data[name][begin:end], dtype) for name in ("numbers", "bought")}
        for name in ("pages", "terms"):
            indices = data[f"{name}_indices"]
            here = (indices[:, 0] >= begin) & (indices[:, 0] < end)
            places = indices[here] - [begin, 0]
            shape = [size, int(indices[:, 1].max()) + 1]
            batch[name] = tf.SparseTensor(places, data[f"{name}_ids"][here], shape)
            weights = tf.constant(data[f"{name}_weights"][here], dtype)
            batch[f"{name}_weights"] = tf.SparseTensor(places, weights, shape)
        yield batch


def train(data: Record, parameters: Record, dtype: str) -> Record:
    """Twelve passes over the visits, with Keras' Adagrad as it comes."""
    model = Shop(parameters, dtype)
    variables = list(model.parameters.values())
    optimizer = tf.keras.optimizers.Adagrad(learning_rate=LEARNING_RATE)
    optimizer.build(variables)
    # As it is, not as it was asked for: Keras makes it in float32, so that it is not 0.1 in float64.
    accumulator = np.asarray(optimizer.variables[-1]).flat[0]
    losses: list[float] = []
    gradients: Record = {}
    for _ in range(EPOCHS):
        for batch in batches(data, dtype, BATCH):
            with tf.GradientTape() as tape:
                logits = model(batch)
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(batch["bought"], logits))
            found = tape.gradient(loss, variables)
            if not losses:
                assert isinstance(found[0], tf.IndexedSlices)
                gradients = {
                    name: tf.convert_to_tensor(g).numpy() for name, g in zip(model.parameters, found, strict=True)
                }
            optimizer.apply_gradients(zip(found, variables, strict=True))
            losses.append(float(loss))
    (everything,) = batches(data, dtype, VISITS)
    return {
        "initial_accumulator": np.array(accumulator, np.float64),
        f"{dtype}_losses": np.array(losses),
        f"{dtype}_predictions": tf.sigmoid(model(everything)).numpy(),
        **{f"{dtype}_gradient_{name}": gradients[name] for name in ("pages", "terms")},
        **{f"{dtype}_last_{name}": model.parameters[name].numpy() for name in ("pages", "terms")},
    }


def record() -> Record:
    """Everything that the file holds."""
    rng = np.random.default_rng(SEED)
    data, parameters = make_data(rng), first_parameters(rng)
    adagrad = tf.keras.optimizers.Adagrad(learning_rate=LEARNING_RATE)
    settings = {"seed": SEED, "batch": BATCH, "epochs": EPOCHS, "default_term": DEFAULT_TERM,
                "learning_rate": LEARNING_RATE, "epsilon": adagrad.epsilon,
                "tensorflow": tf.__version__}  # fmt: skip
    return {
        **{name: np.array(value) for name, value in settings.items()},
        **data,
        **{f"first_{name}": values for name, values in parameters.items()},
        **train(data, parameters, "float32"),
        **train(data, parameters, "float64"),
    }


def check(found: Record) -> None:
    """Fail unless the file holds what was found."""
    with np.load(FILE, allow_pickle=False) as file:
        kept = dict(file)
    assert kept.keys() == found.keys()
    for name, values in found.items():
        if name == "tensorflow":
            continue
        dtype = name.partition("_")[0]
        if dtype in SAME:
            difference = float(np.abs(kept[name] - values).max())
            print(f"{name}: largest difference {difference:.1e}")
            assert difference <= SAME[dtype], name
        else:
            np.testing.assert_array_equal(kept[name], values, err_msg=name)


def main() -> None:
    """Write the file, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    options = parser.parse_args()
    found = record()
    if options.check:
        check(found)
    else:
        FILE.parent.mkdir(exist_ok=True)
        np.savez_compressed(FILE, **found)
        losses = found["float32_losses"]
        print(
            f"{len(losses)} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}; {FILE.name}: {FILE.stat().st_size} bytes"
        )


if __name__ == "__main__":
    main()
