"""Results as pictures: how many times longer the peers take, and how near our operators come to the memory's speed.

matplotlib is loaded when a picture is drawn, and is no dependency of rowgrad.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from bench.contestants import PEERS
from bench.report import Results
from bench.work import OURS

COLOURS = {"tensorflow": "#d97a2b", "torch": "#c23b3b", "fbgemm": "#7a5bb0", "jax": "#3f8fb5", "scipy": "#6b8f3f"}
INK, FAINT = "#26303a", "#c9d0d6"
MARKERS = "osD^v<>P"
PANELS = (
    ("Compact gradient", ("mean_grad_v2", "row_update")),
    ("Training step", ("train_row_wise", "train_adagrad", "train_adam")),
    ("Dense gradient", ("mean_grad", "sum_grad")),
    ("Forward", ("mean",)),
    ("Fill and slice", ("fill", "fill_grad", "slice", "slice_grad")),
)
# What FBGEMM and SciPy do is another piece of work than their panel's; the legend says so.
NOTES = {"fbgemm": "FBGEMM (with row update)", "scipy": "SciPy (sum)"}


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw both pictures; gives the files."""
    import_module("matplotlib").use("Agg")
    plt: Any = import_module("matplotlib.pyplot")
    folder.mkdir(parents=True, exist_ok=True)
    style = {"font.size": 9, "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK}
    files = []
    with plt.rc_context(style):
        for name, paint in (("benchmark", draw_ratios), ("roofline", draw_roofline)):
            figure = paint(results, plt)
            files.append(folder / f"{name}.png")
            # Without dates and versions, the same figures give the same file.
            figure.savefig(files[-1], dpi=140, bbox_inches="tight", metadata={"Software": None})
            plt.close(figure)
    return files


def bars(results: Results, groups: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """The ratios of the peers by what they were measured on, for one panel."""
    found: dict[str, dict[str, float]] = {}
    for one in results["contests"]:
        if one["group"] in groups:
            label = one["input"] if "entries" not in one["input"] else f"{one['operator'][6:]}, {one['input']}"
            peers = {name: ratio for name, ratio in one["ratios"].items() if name in PEERS}
            if peers:
                found.setdefault(label, {}).update(peers)
    return found


def draw_ratios(results: Results, plt: Any) -> Any:
    """Bars of ratios, one panel for each kind of operator, on one logarithmic scale."""
    panels = [(title, found) for title, groups in PANELS if (found := bars(results, groups))]
    heights = [sum(len(ratios) + 0.8 for ratios in found.values()) for _, found in panels] or [1.0]
    figure, axes = plt.subplots(
        len(heights), 1, sharex=True, squeeze=False, layout="constrained",
        figsize=(9, 1.2 + 0.17 * sum(heights)), height_ratios=heights,
    )  # fmt: skip
    drawn: dict[str, Any] = {}
    for axis, (title, found) in zip(axes[:, 0], panels, strict=False):
        drawn.update(_panel(axis, title, found))
    axes[-1, 0].set_xlabel("time of the peer / time of rowgrad, logarithmic; right of 1 rowgrad is faster")
    if drawn:
        figure.legend(
            list(drawn.values()), [NOTES.get(name, PEERS[name].title) for name in drawn],
            loc="outside upper center", ncols=len(drawn), frameon=False,
        )  # fmt: skip
    return figure


def _panel(axis: Any, title: str, found: dict[str, dict[str, float]]) -> dict[str, Any]:
    drawn: dict[str, Any] = {}
    ticks, place = [], 0.0
    for ratios in found.values():
        first = place
        for peer in PEERS:
            if peer in ratios:
                ratio = ratios[peer]
                drawn[peer] = axis.barh(place, ratio - 1, left=1, height=0.85, color=COLOURS[peer])
                side = {"ha": "left"} if ratio >= 1 else {"ha": "right"}
                axis.annotate(
                    f"{ratio:.1f}", (ratio, place), xytext=(3 if ratio >= 1 else -3, 0), textcoords="offset points",
                    va="center", fontsize=7.5, **side,
                )  # fmt: skip
                place += 1
        ticks.append((first + place - 1) / 2)
        place += 0.8
    axis.set_xscale("log")
    axis.margins(x=0.08, y=0.02)
    axis.axvline(1, color=INK, linewidth=1)
    axis.set_yticks(ticks, list(found))
    axis.invert_yaxis()
    axis.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _plain(axis)
    return drawn


def speeds(results: Results) -> dict[str, dict[str, float]]:
    """GB/s of our operators by what they were measured on, in the groups that are plain calls."""
    groups = {group for _, groups in PANELS for group in groups}
    found: dict[str, dict[str, float]] = {}
    for one in results["contests"]:
        if one["group"] in groups:
            rate = one["bytes"] / one["timings"][OURS]["ms"] / 1e6
            found.setdefault(one["operator"].replace(" and ", "\nand "), {})[one["input"]] = rate
    return found


def draw_roofline(results: Results, plt: Any) -> Any:
    """Points of bytes per second, one row for each operator, under the machine's own speeds."""
    found = speeds(results)
    inputs = list(dict.fromkeys(name for rates in found.values() for name in rates))
    figure, axis = plt.subplots(layout="constrained", figsize=(9, 1.8 + 0.42 * max(len(found), 1)))
    for position, name in enumerate(inputs):
        places = [place for place, rates in enumerate(found.values()) if name in rates]
        rates = [rates[name] for rates in found.values() if name in rates]
        marker = MARKERS[position % len(MARKERS)]
        axis.plot(rates, places, marker, color=f"C{position}", label=name, markersize=7, markeredgecolor="white")
    facts = results["machine"]
    for key, text, colour in (
        ("copy_gb_s", "copying memory", INK),
        ("fresh_gb_s", "writing fresh pages", COLOURS["torch"]),
    ):
        if key in facts:
            axis.axvline(facts[key], color=colour, linewidth=1.2, linestyle="--")
            axis.annotate(
                f"{text}, {facts[key]:.3g} GB/s", (facts[key], 1), xycoords=("data", "axes fraction"), xytext=(0, 3),
                textcoords="offset points", ha="center", fontsize=8, color=colour,
            )  # fmt: skip
    axis.set_xlim(left=0)
    axis.set_yticks(range(len(found)), list(found))
    axis.invert_yaxis()
    axis.set_xlabel(f"GB/s that must be read and written, on {results['method']['threads']} threads")
    if inputs:
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    _plain(axis)
    return figure


def _plain(axis: Any) -> None:
    axis.grid(axis="x", color=FAINT, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(which="both", length=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(FAINT)
