"""The recommender as a picture: how many times longer the peers take.

matplotlib is loaded when a picture is drawn, and is no dependency of rowgrad.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from bench.case import PEERS
from bench.groups import recommender
from bench.report import Results

COLOURS = {"torch": "#c23b3b", "fbgemm": "#7a5bb0"}
INK, FAINT = "#26303a", "#c9d0d6"


def draw(results: Results, folder: Path) -> Path:
    """Draw the picture; gives the file."""
    import_module("matplotlib").use("Agg")
    plt: Any = import_module("matplotlib.pyplot")
    folder.mkdir(parents=True, exist_ok=True)
    style = {"font.size": 9, "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK}
    path = folder / "benchmark.png"
    with plt.rc_context(style):
        figure = _figure(results, plt)
        # Without dates and versions, the same figures give the same file.
        figure.savefig(path, dpi=140, bbox_inches="tight", metadata={"Software": None})
        plt.close(figure)
    return path


def panels(results: Results) -> dict[str, dict[str, dict[str, float]]]:
    """By panel and model: the ratios of the peers, of the recommender on two threads."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for table in recommender.tables(2):
        for one in results["contests"]:
            if (one["group"], one["table"]) == (recommender.NAME, table) and one["ratios"]:
                found.setdefault(f"{one['column']}; {table}", {})[one["row"]] = one["ratios"]
    return found


def _figure(results: Results, plt: Any) -> Any:
    """Bars of ratios on one logarithmic scale."""
    found = panels(results)
    heights = [sum(len(ratios) + 0.8 for ratios in panel.values()) for panel in found.values()] or [1.0]
    figure, axes = plt.subplots(
        len(heights), 1, sharex=True, squeeze=False, layout="constrained",
        figsize=(9, 1.2 + 0.17 * sum(heights)), height_ratios=heights,
    )  # fmt: skip
    drawn: dict[str, Any] = {}
    for axis, (title, panel) in zip(axes[:, 0], found.items(), strict=False):
        drawn.update(_panel(axis, title, panel))
    axes[-1, 0].set_xlabel("time of the peer / time of rowgrad, logarithmic; right of 1 rowgrad is faster")
    if drawn:
        titles = [PEERS[name].title for name in drawn]
        figure.legend(list(drawn.values()), titles, loc="outside upper center", ncols=len(drawn), frameon=False)
    return figure


def _panel(axis: Any, title: str, panel: dict[str, dict[str, float]]) -> dict[str, Any]:
    drawn: dict[str, Any] = {}
    ticks, place = [], 0.0
    for ratios in panel.values():
        first = place
        for peer, ratio in ratios.items():
            drawn[peer] = axis.barh(place, ratio - 1, left=1, height=0.85, color=COLOURS[peer])
            side, shift = ("left", 3) if ratio >= 1 else ("right", -3)
            axis.annotate(
                f"{ratio:.2g}", (ratio, place), xytext=(shift, 0), textcoords="offset points", va="center",
                fontsize=7.5, ha=side,
            )  # fmt: skip
            place += 1
        ticks.append((first + place - 1) / 2)
        place += 0.8
    axis.set_xscale("log")
    axis.margins(x=0.08, y=0.02)
    axis.axvline(1, color=INK, linewidth=1)
    axis.set_yticks(ticks, list(panel))
    axis.invert_yaxis()
    axis.set_title(title, loc="left", fontsize=10, fontweight="bold")
    for formatted in (axis.xaxis.set_major_formatter, axis.xaxis.set_minor_formatter):
        formatted(lambda value, _: f"{value:g}")
    axis.grid(axis="x", color=FAINT, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(which="both", length=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(FAINT)
    return drawn
