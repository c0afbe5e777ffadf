"""A bag-of-tokens text classifier in JAX, trained with compact gradients under jit.

The text is made up from a seed: each text has one of four topics, most of its tokens are common words, and a few are
words of its topic. A table of 20,000 tokens is pooled by mean and a linear layer tells the topic. Each step takes the
rows that its texts name out of the table, differentiates with respect to these rows alone, and updates them, and
their Adagrad sums, in place.

    python examples/jax_text.py --plot jax_text.png
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import Progress

import rowgrad.jax as rj

TOKENS, WIDTH, TOPICS = 20_000, 32, 4
BATCH, LONGEST = 128, 40
PADDING = 0  # fills texts up to the longest, and stands for nothing
COMMON = 15_000  # tokens of every topic; each topic has words of its own behind them


class Model(NamedTuple):
    """What is learned, and the sums of squares that Adagrad keeps of it."""

    table: jax.Array
    table_sums: jax.Array
    layer: dict[str, jax.Array]
    layer_sums: dict[str, jax.Array]


def make_texts(random: np.random.Generator, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids [number, LONGEST], padded, and the topic of each text; frequent words are frequent, as in any text."""
    topics = random.integers(0, TOPICS, number)
    tokens = 1 + (random.zipf(1.3, (number, LONGEST)) - 1) % (COMMON - 1)
    words = (TOKENS - COMMON) // TOPICS
    own = COMMON + topics[:, None] * words + random.integers(0, words, (number, LONGEST))
    tokens = np.where(random.random((number, LONGEST)) < 0.15, own, tokens)
    lengths = random.integers(8, LONGEST + 1, number)
    return np.where(np.arange(LONGEST) < lengths[:, None], tokens, PADDING).astype(np.int32), topics.astype(np.int32)


def make_model(random: np.random.Generator) -> Model:
    table = jnp.asarray(random.standard_normal((TOKENS, WIDTH)) * 0.1, jnp.float32)
    layer = {"weights": jnp.zeros((WIDTH, TOPICS), jnp.float32), "bias": jnp.zeros(TOPICS, jnp.float32)}
    return Model(table, jnp.zeros_like(table), layer, jax.tree.map(jnp.zeros_like, layer))


def logits(table: jax.Array, layer: dict[str, jax.Array], tokens: jax.Array, padding: Any) -> jax.Array:
    pooled = rj.embedding_bag(table, tokens, combiner="mean", padding_idx=padding)
    return pooled @ layer["weights"] + layer["bias"]


def adagrad(values: jax.Array, sums: jax.Array, gradient: jax.Array, rate: float) -> tuple[jax.Array, jax.Array]:
    sums = sums + gradient**2
    return values - rate * gradient / (jnp.sqrt(sums) + 1e-10), sums


@partial(jax.jit, donate_argnums=0, static_argnames="rate")
def train_step(model: Model, tokens: jax.Array, topics: jax.Array, rate: float) -> tuple[Model, jax.Array]:
    # The padding token is in every batch but the first row that it takes is never looked up: its gradient is 0.
    with_padding = jnp.concatenate([tokens.reshape(-1), jnp.array([PADDING])])
    taken = rj.take_rows(model.table, with_padding, max_unique=BATCH * LONGEST)
    positions = taken.positions[:-1].reshape(tokens.shape)

    def loss(rows: jax.Array, layer: dict[str, jax.Array]) -> jax.Array:
        # Rows are sorted by token, so that the padding token's is the first.
        scores = jax.nn.log_softmax(logits(rows, layer, positions, 0))
        return -scores[jnp.arange(len(topics)), topics].mean()

    value, (d_rows, d_layer) = jax.value_and_grad(loss, argnums=(0, 1))(taken.rows, model.layer)
    sums = model.table_sums.at[taken.sorted_unique_indices].get(mode="fill", fill_value=0)
    rows, sums = adagrad(taken.rows, sums, d_rows, rate)
    layer, layer_sums = {}, {}
    for name, gradient in d_layer.items():
        layer[name], layer_sums[name] = adagrad(model.layer[name], model.layer_sums[name], gradient, rate)
    table, table_sums = taken.put_into(model.table, rows), taken.put_into(model.table_sums, sums)
    return Model(table, table_sums, layer, layer_sums), value


@jax.jit
def accuracy(model: Model, tokens: jax.Array, topics: jax.Array) -> jax.Array:
    return (logits(model.table, model.layer, tokens, PADDING).argmax(1) == topics).mean()


def train(steps: int, seed: int, console: Console, rate: float = 0.2) -> tuple[list[float], float]:
    """The loss of each step, and the accuracy on texts that were not trained on."""
    random = np.random.default_rng(seed)
    model = make_model(random)
    losses = []
    with Progress(console=console) as progress:
        for _ in progress.track(range(steps), description="training"):
            model, loss = train_step(model, *make_texts(random, BATCH), rate)
            losses.append(float(loss))
    return losses, float(accuracy(model, *make_texts(random, 2000)))


def plot(losses: list[float], right: float, file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    span = max(len(losses) // 20, 1)
    smooth = np.convolve(losses, np.ones(span) / span, "valid")
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(losses, color="0.75", linewidth=1, label="each step")
    axes.plot(np.arange(len(smooth)) + span - 1, smooth, color="C0", linewidth=2, label=f"mean of {span} steps")
    axes.axhline(np.log(TOPICS), color="C3", linestyle="--", linewidth=1, label="guessing")
    axes.set(xlabel="step", ylabel="loss (cross-entropy)", ylim=(0, None), xlim=(0, len(losses) - 1),
             title=f"Topics of texts: {100 * right:.1f} % right on new texts")  # fmt: skip
    axes.legend()
    figure.savefig(file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300, help="how many batches to train on")
    parser.add_argument("--seed", type=int, default=0, help="of the texts and of the table")
    parser.add_argument("--plot", type=Path, help="a file for a picture of the loss (.png, .svg)")
    given = parser.parse_args()
    if given.steps < 1:
        parser.error("--steps must be 1 or more")
    losses, right = train(given.steps, given.seed, Console(stderr=True))
    print(f"loss: {losses[0]:.3f} at first, {np.mean(losses[-20:]):.3f} at the end (mean of the last 20 steps)")
    print(f"accuracy on 2000 new texts: {100 * right:.1f} %")
    if given.plot:
        plot(losses, right, given.plot)
        print(f"plot: {given.plot}")


if __name__ == "__main__":
    main()
