"""A model around `tf.nn.safe_embedding_lookup_sparse`, moved to PyTorch with rowgrad, without TensorFlow.

The original is `record_from_tensorflow.py`; what it gave is in `data/from_tensorflow.npz`. This script trains the moved
model on the same data from the same parameters, prints both beside each other, and fails if they differ.

    python examples/from_tensorflow.py --plot from_tensorflow.png
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.nn import functional

import rowgrad

FILE = Path(__file__).parent / "data" / "from_tensorflow.npz"
# How far apart the two may be. In float64 the formulas show; in float32, matrix products that TensorFlow and PyTorch
# add up in different orders, over all the steps.
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
FEATURES = ("pages", "terms")

Record = dict[str, np.ndarray]


class Shop(torch.nn.Module):
    """Two pooled look-ups and the numbers, a hidden layer, one logit: the original, line by line."""

    def __init__(self, record: Record, dtype: torch.dtype) -> None:
        super().__init__()
        first = {name.removeprefix("first_"): x for name, x in record.items() if name.startswith("first_")}
        self.p = torch.nn.ParameterDict({name: torch.tensor(x, dtype=dtype) for name, x in first.items()})
        self.default_term = int(record["default_term"])

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        p = self.p
        pages = rowgrad.safe_embedding_lookup_sparse(
            p["pages"], batch["pages"], batch["pages_weights"], combiner="mean"
        )
        terms = rowgrad.safe_embedding_lookup_sparse(
            p["terms"], batch["terms"], batch["terms_weights"], combiner="sqrtn", default_id=self.default_term
        )
        inputs = torch.cat([pages, terms, batch["numbers"]], dim=1)
        hidden = torch.relu(inputs @ p["hidden"] + p["hidden_bias"])
        return (hidden @ p["out"] + p["out_bias"])[:, 0]


def batches(record: Record, dtype: torch.dtype, size: int) -> list[dict[str, Any]]:
    """The visits in order, `size` at a time; a sparse tensor is (indices, values, dense_shape)."""
    found = []
    for begin in range(0, len(record["bought"]), size):
        end = begin + size
        batch: dict[str, Any] = {
            name: torch.tensor(record[name][begin:end], dtype=dtype) for name in ("numbers", "bought")
        }
        for name in FEATURES:
            indices = record[f"{name}_indices"]
            here = (indices[:, 0] >= begin) & (indices[:, 0] < end)
            places = indices[here] - [begin, 0]
            shape = [size, int(indices[:, 1].max()) + 1]
            batch[name] = (places, record[f"{name}_ids"][here], shape)
            batch[f"{name}_weights"] = (places, torch.tensor(record[f"{name}_weights"][here], dtype=dtype), shape)
        found.append(batch)
    return found


def train(record: Record, name: str, console: Console) -> Record:
    """What the original recorded, found with the moved model."""
    dtype = getattr(torch, name)
    model = Shop(record, dtype)
    # Keras divides by sqrt(sum + epsilon), PyTorch by sqrt(sum) + eps: let Keras' epsilon be part of the first sum.
    optimizer = torch.optim.Adagrad(
        model.parameters(),
        lr=float(record["learning_rate"]),
        initial_accumulator_value=float(record["initial_accumulator"]) + float(record["epsilon"]),
        eps=0,
    )
    size, epochs = int(record["batch"]), int(record["epochs"])
    order = batches(record, dtype, size) * epochs
    losses: list[float] = []
    gradients: dict[str, torch.Tensor] = {}
    for batch in track(order, f"training in {name}", console=console):
        optimizer.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(model(batch), batch["bought"])
        loss.backward()
        if not losses:
            gradients = {table: model.p[table].grad.clone() for table in FEATURES}
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        (everything,) = batches(record, dtype, len(record["bought"]))
        predictions = torch.sigmoid(model(everything))
    return {
        f"{name}_losses": np.array(losses),
        f"{name}_predictions": predictions.numpy(),
        **{f"{name}_gradient_{table}": gradients[table].numpy() for table in FEATURES},
        **{f"{name}_last_{table}": model.p[table].detach().numpy() for table in FEATURES},
    }


def side_by_side(record: Record, ours: Record, console: Console) -> None:
    """Losses and predictions of both, in float32."""
    table = Table("", "TensorFlow " + str(record["tensorflow"]), "rowgrad + PyTorch")
    theirs, found = record["float32_losses"], ours["float32_losses"]
    for step in (*range(0, len(theirs), 16), len(theirs) - 1):
        table.add_row(f"loss, step {step + 1}", f"{theirs[step]:.7f}", f"{found[step]:.7f}")
    for visit in range(4):
        table.add_row(
            f"prediction, visit {visit + 1}",
            f"{record['float32_predictions'][visit]:.7f}",
            f"{ours['float32_predictions'][visit]:.7f}",
        )
    console.print(table)


def compare(record: Record, ours: Record, console: Console) -> bool:
    """Print the largest difference of each array that was recorded; whether all are within the tolerance."""
    kinds = {"losses": "losses", "predictions": "predictions", "gradient_pages": "first gradient, pages",
             "gradient_terms": "first gradient, terms", "last_pages": "table at the end, pages",
             "last_terms": "table at the end, terms"}  # fmt: skip
    table = Table("largest difference", *TOLERANCE)
    for kind, title in kinds.items():
        table.add_row(title, *(f"{difference(record, ours, f'{dtype}_{kind}'):.1e}" for dtype in TOLERANCE))
    table.add_row("allowed", *(f"{limit:.1e}" for limit in TOLERANCE.values()))
    console.print(table)
    return all(
        difference(record, ours, f"{dtype}_{kind}") <= limit for dtype, limit in TOLERANCE.items() for kind in kinds
    )


def difference(record: Record, ours: Record, name: str) -> float:
    """The largest of an array; not a number where either has one."""
    return float(np.abs(record[name] - ours[name]).max())


def draw(path: Path, record: Record, ours: Record) -> None:
    """Both losses, and how far apart they are."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (upper, lower) = plt.subplots(
        2, 1, figsize=(8, 6.4), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    theirs = record["float32_losses"]
    steps = np.arange(1, len(theirs) + 1)
    upper.plot(steps, theirs, color="#e69f00", linewidth=5, alpha=0.6, label=f"TensorFlow {record['tensorflow']}")
    upper.plot(steps, ours["float32_losses"], color="#004a80", linewidth=1.2, label="rowgrad + PyTorch")
    upper.set(ylabel="loss of the batch")
    upper.legend()
    worst = max(difference(record, ours, f"float32_{kind}") for kind in ("losses", "predictions"))
    upper.set_title(f"The moved model trains as the original: losses and predictions agree to {worst:.0e}")
    foot = 1e-18  # a logarithm has no place for 0: equal losses stand at the foot
    for dtype, color, marker in (("float32", "#004a80", "o"), ("float64", "#009e73", "x")):
        apart = np.abs(record[f"{dtype}_losses"] - ours[f"{dtype}_losses"])
        lower.semilogy(steps, np.maximum(apart, foot), marker, color=color, markersize=4, label=dtype)
    lower.set(xlabel="step", ylabel="difference of the losses", ylim=(foot / 4, 1e-4))
    ticks = (foot, 1e-16, 1e-12, 1e-8, 1e-4)
    lower.set_yticks(ticks, ["equal", *(f"{tick:.0e}" for tick in ticks[1:])])
    lower.minorticks_off()
    lower.legend(loc="center right")
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> int:
    """Train, compare, draw; 1 if the two differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="save a picture of the losses")
    options = parser.parse_args()
    results, progress = Console(), Console(stderr=True)
    with np.load(FILE, allow_pickle=False) as file:
        record = dict(file)
    print(f"data of seed {record['seed']}: {len(record['bought'])} visits, {len(record['float32_losses'])} steps")
    ours = train(record, "float32", progress) | train(record, "float64", progress)
    side_by_side(record, ours, results)
    same = compare(record, ours, results)
    if options.plot is not None:
        draw(options.plot, record, ours)
        print(f"picture: {options.plot}")
    print("the same" if same else "DIFFERENT: more than allowed")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
