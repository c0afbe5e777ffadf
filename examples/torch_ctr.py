"""A click model trained three ways: with PyTorch's EmbeddingBag, with rowgrad's, and with rowgrad's fused optimizer.

All three begin with the same parameters, see the same batches and follow the same formula (Adagrad), so their losses
are the same up to rounding, which is checked; what differs is the time, which is printed.

    python examples/torch_ctr.py --plot torch_ctr.png
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from ctr_model import WIDTH, Batch, ClickModel, Clicks, Feature, auc, first_table
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn
from torch.nn import functional

from rowgrad import optim
from rowgrad.torch import EmbeddingBag

LEARNING_RATE = 0.05
# What Adagrad's sums begin with. From 0, the first step of an element is lr in size however small its gradient is: one
# that is nothing but rounding decides where a parameter goes, and equal models part.
FIRST_SUM = 1e-6
HELD_OUT = 20_000
WARM_UP = 5  # steps whose time does not count: kernels are loaded, memory is taken
# How far the losses of a step may be apart, relative to PyTorch's: rounding, carried on through all the steps.
TOLERANCE = 1e-5
PYTORCH, ROWGRAD, FUSED = "PyTorch", "rowgrad", "rowgrad fused"


class Contestant:
    """A model with its optimizers, and what became of it."""

    def __init__(self, clicks: Clicks, make_bag: Callable[[Feature], nn.Module], tables_too: bool) -> None:
        self.model = ClickModel(clicks.features, make_bag, clicks.seed)
        parameters = self.model.parameters() if tables_too else self.model.dense_parameters()
        self.optimizer = torch.optim.Adagrad(parameters, lr=LEARNING_RATE, initial_accumulator_value=FIRST_SUM)
        self.losses: list[float] = []
        self.seconds: list[float] = []

    def step(self, batch: Batch) -> None:
        """Forward, backward, optimizer."""
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(self.model(batch), batch.clicked)
        loss.backward()
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - begin)
        self.losses.append(loss.item())

    @property
    def milliseconds(self) -> float:
        """The median of the steps, without the first ones."""
        return 1000 * float(np.median(self.seconds[WARM_UP:] or self.seconds))

    def judged(self, batch: Batch) -> tuple[float, float]:
        """Loss and AUC on examples it has not seen."""
        with torch.no_grad():
            logits = self.model(batch)
            loss = functional.binary_cross_entropy_with_logits(logits, batch.clicked)
        return loss.item(), auc(logits.numpy(), batch.clicked.numpy())


def contestants(clicks: Clicks) -> dict[str, Contestant]:
    """The three ways."""

    def pytorch(feature: Feature) -> nn.Module:
        table = first_table(clicks.seed, feature)
        return nn.EmbeddingBag(feature.rows, WIDTH, mode=feature.combiner, sparse=True, _weight=table)

    def rowgrad(feature: Feature) -> nn.Module:
        return EmbeddingBag(feature.rows, WIDTH, combiner=feature.combiner, _weight=first_table(clicks.seed, feature))

    def fused(feature: Feature) -> nn.Module:
        return EmbeddingBag(
            feature.rows,
            WIDTH,
            combiner=feature.combiner,
            fused_optimizer=optim.Adagrad(lr=LEARNING_RATE, initial_accumulator=FIRST_SUM),
            _weight=first_table(clicks.seed, feature),
        )

    return {
        PYTORCH: Contestant(clicks, pytorch, tables_too=True),
        ROWGRAD: Contestant(clicks, rowgrad, tables_too=True),
        FUSED: Contestant(clicks, fused, tables_too=False),
    }


def train(clicks: Clicks, steps: int, console: Console) -> dict[str, Contestant]:
    """All three, step by step in turn, so that what else the machine does hits all alike."""
    found = contestants(clicks)
    names = list(found)
    for k in track(range(steps), "training", console=console):
        batch = clicks.training(k)
        for turn in range(len(names)):
            found[names[(k + turn) % len(names)]].step(batch)
    return found


def apart(found: dict[str, Contestant], name: str) -> float:
    """The largest relative difference of its losses from PyTorch's; not a number where a loss is none."""
    theirs, ours = (np.array(found[way].losses) for way in (PYTORCH, name))
    return float(np.max(np.abs(ours - theirs) / theirs))


def draw(path: Path, found: dict[str, Contestant]) -> None:
    """The losses over the steps, and over the time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
    styles = {
        PYTORCH: {"color": "#e69f00", "linewidth": 6, "alpha": 0.6},
        ROWGRAD: {"color": "#56b4e9", "linewidth": 3},
        FUSED: {"color": "#004a80", "linewidth": 1.2, "linestyle": "--"},
    }
    for name, way in found.items():
        losses = smoothed(way.losses)
        left.plot(np.arange(1, len(losses) + 1), losses, label=name, **styles[name])
        seconds = np.arange(1, len(losses) + 1) * way.milliseconds / 1000
        right.plot(seconds, losses, label=f"{name}: {way.milliseconds:.1f} ms a step", **styles[name])
    worst = max(apart(found, name) for name in (ROWGRAD, FUSED))
    left.set(xlabel="step", ylabel="loss (mean of the last ten batches)")
    left.set_title(f"Step by step, the losses are the same (within {worst:.0e})")
    ratio = found[PYTORCH].milliseconds / found[FUSED].milliseconds
    right.set(xlabel="seconds of training (median step × steps)")
    right.set_title(f"The fused step takes 1/{ratio:.1f} of PyTorch's time")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def smoothed(losses: list[float]) -> np.ndarray:
    """The mean of the last ten, or of as many as there are."""
    sums = np.cumsum([0.0, *losses])
    ends = np.arange(1, len(losses) + 1)
    begins = np.maximum(ends - 10, 0)
    return (sums[ends] - sums[begins]) / (ends - begins)


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1024, help="examples a step")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the largest table")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="save a picture of the losses")
    parser.add_argument("--json", type=Path, metavar="FILE.json", help="save losses, AUC and times")
    asked = parser.parse_args()
    for name in ("steps", "batch", "rows"):
        if getattr(asked, name) < 1:
            parser.error(f"--{name} must be 1 or more")
    return asked


def main() -> int:
    """Train, judge, print, draw; 1 if the losses differ."""
    asked = options()
    torch.sparse.check_sparse_tensor_invariants.disable()  # PyTorch's Adagrad asks to choose
    clicks = Clicks(asked.seed, asked.rows, asked.batch)
    held_out = clicks.held_out(HELD_OUT)
    best = auc(held_out.chance, held_out.clicked.numpy())
    tables = ", ".join(f"{feature.name} {feature.rows}" for feature in clicks.features)
    print(f"seed {asked.seed}: {asked.steps} steps of {asked.batch} examples; rows of the tables: {tables}")
    found = train(clicks, asked.steps, Console(stderr=True))
    report = {}
    table = Table("", "ms a step", "speed", "last loss", "held out", "AUC", "apart")
    for name, way in found.items():
        loss, area = way.judged(held_out)
        faster = found[PYTORCH].milliseconds / way.milliseconds
        report[name] = {"losses": way.losses, "held_out_loss": loss, "auc": area, "apart": apart(found, name),
                        "milliseconds": way.milliseconds}  # fmt: skip
        table.add_row(name, f"{way.milliseconds:.1f}", f"{faster:.1f} ×", f"{way.losses[-1]:.4f}", f"{loss:.4f}",
                      f"{area:.4f}", f"{apart(found, name):.0e}")  # fmt: skip
    Console().print(table)
    print(f"ms a step: median; last loss: of the last batch; held out: loss on {HELD_OUT} new examples;")
    print("apart: largest relative difference of a step's loss from PyTorch's")
    print(f"AUC of the hidden model that drew the clicks, the best there can be: {best:.4f}")
    if asked.plot is not None:
        draw(asked.plot, found)
        print(f"picture: {asked.plot}")
    if asked.json is not None:
        settings = {name: getattr(asked, name) for name in ("steps", "seed", "batch", "rows")}
        asked.json.write_text(json.dumps({**settings, "best_auc": best, "ways": report}), encoding="utf-8")
    same = all(apart(found, name) <= TOLERANCE for name in (ROWGRAD, FUSED))
    print(f"losses equal within {TOLERANCE:.0e} at every step" if same else f"DIFFERENT: more than {TOLERANCE:.0e}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
