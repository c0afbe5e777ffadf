"""What rowgrad promises to be, line by line, and whether the figures of a run say so.

A line is judged only when everything it speaks of was measured; a part of it gives a figure without a verdict.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log
from typing import Any

from bench import memory
from bench.work import BARE, ENTRIES, LARGE, OURS, SHAPES, SIZES, SPARSE

Results = dict[str, Any]


def geometric_mean(values: list[float]) -> float:
    """The mean of ratios."""
    return exp(sum(log(value) for value in values) / len(values))


MEANS: dict[str, Callable[[list[float]], float]] = {
    "geometric mean": geometric_mean,
    "lowest": min,
    "highest": max,
}


@dataclass(frozen=True)
class Target:
    """One line: `mean` of the figures must be at least, or at most, `limit`; `aim` is where to go beyond it."""

    line: str
    figures: Callable[[Results], dict[str, float]]  # by what they were measured on
    expected: int  # how many figures there are when all was measured
    limit: float
    mean: str = "lowest"
    at_least: bool = True
    aim: float | None = None
    unit: str = "×"

    def judge(self, results: Results) -> dict[str, Any]:
        """The line as plain data."""
        figures = self.figures(results)
        measured = float(f"{MEANS[self.mean](list(figures.values())):.4g}") if figures else None
        met = None
        if measured is not None and len(figures) == self.expected:
            met = measured >= self.limit if self.at_least else measured <= self.limit
        return {
            "line": self.line,
            "target": f"{'≥' if self.at_least else '≤'} {self.limit:g} {self.unit}",
            "aim": self.aim,
            "mean": self.mean,
            "measured": measured,
            "met": met,
            "figures": figures,
        }


def judge(results: Results) -> list[dict[str, Any]]:
    """All lines."""
    return [target.judge(results) for target in TARGETS]


def _ratios(rival: str, *groups: str, sizes: tuple[int, ...] = ()) -> Callable[[Results], dict[str, float]]:
    """The rival's time as a multiple of ours, on all inputs of `groups`, or on those of `sizes`."""

    def figures(results: Results) -> dict[str, float]:
        return {
            f"{one['operator']}, {one['input']}" if len(groups) > 1 else one["input"]: one["ratios"][rival]
            for one in results["contests"]
            if one["group"] in groups and rival in one["ratios"] and (not sizes or one["size"] in sizes)
        }

    return figures


def _inverse(figures: Callable[[Results], dict[str, float]]) -> Callable[[Results], dict[str, float]]:
    """Our time as a multiple of the other's."""
    return lambda results: {name: float(f"{1 / ratio:.4g}") for name, ratio in figures(results).items()}


def _growth(results: Results) -> dict[str, float]:
    """Time per id, of most ids as a multiple of that of 100,000."""
    times = {}
    for one in results["contests"]:
        if one["group"] == "ids":
            times[one["size"]] = one["timings"][OURS]["ms"] / one["size"]
    few, many = 100_000, SIZES[-1]
    if few not in times or many not in times:
        return {}
    return {f"{many:,} against {few:,} ids": float(f"{times[many] / times[few]:.4g}")}


def _overhead(results: Results) -> dict[str, float]:
    """The microseconds that a step of the layer takes beside its kernels."""
    return {
        one["input"]: float(f"{1e3 * (one['timings'][OURS]['ms'] - one['timings'][BARE]['ms']):.4g}")
        for one in results["contests"]
        if one["group"] == "layer" and BARE in one["ratios"]
    }


def _peaks(results: Results) -> dict[str, float]:
    return {peak["operator"]: peak["bytes_per_id"] for peak in results["memory"]}


_EACH = len(SHAPES)
_MANY = tuple(size for size in ENTRIES if size >= 1_000_000)

TARGETS = [
    Target("SparseSegmentMeanGradV2 against TensorFlow", _ratios("tensorflow", "mean_grad_v2"), _EACH, 12,
           "geometric mean", aim=20),
    Target("SparseSegmentMeanGradV2 against TensorFlow, each shape", _ratios("tensorflow", "mean_grad_v2"), _EACH, 8),
    Target("SparseSegmentMeanGradV2 against PyTorch, sparse and coalesced", _ratios("torch", "mean_grad_v2"), _EACH, 8,
           "geometric mean", aim=12),
    Target("gradient and row update against FBGEMM", _ratios("fbgemm", "row_update"), _EACH, 2,
           "geometric mean", aim=4),
    Target("gradient and row update against FBGEMM, each shape", _ratios("fbgemm", "row_update"), _EACH, 1.3),
    Target("training step with row-wise Adagrad against FBGEMM, each shape", _ratios("fbgemm", "train_row_wise"), _EACH,
           2),
    Target("training step with Adagrad against PyTorch, each shape", _ratios("torch", "train_adagrad"), _EACH, 8),
    Target("training step with Adam on rows against PyTorch's SparseAdam, each shape", _ratios("torch", "train_adam"),
           _EACH, 8),
    Target("a layer's step beside its kernels", _overhead, 1, 60, "highest", at_least=False, unit="µs"),
    Target("SparseSegmentMeanGrad against TensorFlow, each shape", _ratios("tensorflow", "mean_grad"), _EACH, 5),
    Target("SparseSegmentMeanGrad against PyTorch, each shape", _ratios("torch", "mean_grad"), _EACH, 4),
    Target("SparseSegmentMean against TensorFlow, each shape", _ratios("tensorflow", "mean"), _EACH, 4),
    Target("SparseSegmentMean against PyTorch, each shape", _ratios("torch", "mean"), _EACH, 0.8),
    Target("fill and slice, forward and gradient, from 1,000,000 entries, against TensorFlow",
           _ratios("tensorflow", *SPARSE, sizes=_MANY), len(SPARSE) * len(_MANY), 3),
    Target("the small call against TensorFlow", _ratios("tensorflow", "small"), 1, 2),
    Target("the small call against PyTorch", _ratios("torch", "small"), 1, 5),
    Target("time of bfloat16 to float32, each shape", _inverse(_ratios("float32", "bfloat16")), _EACH, 1.1,
           "highest", at_least=False),
    Target("time of int32 ids to int64 ids", _inverse(_ratios("int64", "int32")), _EACH, 1.0,
           "geometric mean", at_least=False),
    Target("time per id of 10,000,000 ids to 100,000 ids", _growth, 1, 2, "highest", at_least=False),
    Target("peak memory beside the results", _peaks, len(memory.OPERATIONS), 24, "highest", at_least=False,
           unit="bytes an id"),
    Target("two threads against one, large shapes",
           _ratios("one thread", "threads", sizes=tuple(shape.size for shape in LARGE)), len(LARGE), 1.6),
]  # fmt: skip
