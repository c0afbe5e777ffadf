"""What `scale.py` measured, as tables for `docs/scale.md` and as a picture, beside what the cost model says.

Nothing is measured here. A table goes between `<!-- scale:begin NAME -->` and `<!-- scale:end -->`.
"""

import re
from pathlib import Path
from typing import Any

from rowgrad.torch.distributed import cost

MARKED = re.compile(r"^(<!-- scale:begin (\w+) -->)\n.*?^(<!-- scale:end -->)$", re.MULTILINE | re.DOTALL)
NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
# A cluster that many have: one rank a node, 25 and 10 Gbit/s that are 80 % used. Kernels and messages as measured here.
NETWORKS = {"25 Gbit/s": 25e9 / 8 * 0.8, "10 Gbit/s": 10e9 / 8 * 0.8}
LATENCY = 100e-6  # seconds, between machines of a data centre, through the kernel and Gloo


def machine(results: dict[str, Any], shape: dict[str, Any]) -> cost.Machine:
    """The constants for a shape: what one rank needs for an id, and how fast ranks of this machine exchange."""
    alone = shape["ranks"]["1"]["seconds"] / (shape["bags"] * shape["ids_per_bag"])
    return cost.Machine(kernel=alone, cores=results["machine"]["cores"], **results["constants"])


def batch(shape: dict[str, Any], ranks: int) -> cost.Batch:
    """A rank's part, where the batch of the shape is spread over `ranks`, with what was found in the ids."""
    known = shape["ranks"].get(str(ranks), {})
    return cost.Batch(shape["bags"] / ranks, shape["ids_per_bag"], shape["width"], shape["dtype"], rows=shape["rows"],
                      owners=known.get("owners"), unique=known.get("unique"))  # fmt: skip


def whole(shape: dict[str, Any]) -> cost.Batch:
    """The batch of the shape on each of many nodes, with ids that are spread evenly."""
    return cost.Batch(shape["bags"], shape["ids_per_bag"], shape["width"], shape["dtype"])


def speed(results: dict[str, Any]) -> str:
    """Steps a second on one and on two ranks."""
    lines = []
    for shape in results["shapes"]:
        one, two = (shape["ranks"][n]["seconds"] for n in "12")
        plain = shape["ranks"]["1"]["plain"]
        lines.append([shape["title"], f"{1 / plain:.1f}", f"{1 / one:.1f}", f"{1 / two:.1f}", f"{one / two:.2f} ×",
                      f"{plain / two:.2f} ×"])  # fmt: skip
    heads = ["table, bags × ids", "EmbeddingBag, steps/s", "1 rank, steps/s", "2 ranks, steps/s", "speed",
             "beside EmbeddingBag"]  # fmt: skip
    return table(heads, lines)


def model(results: dict[str, Any]) -> str:
    """Bytes and seconds of the model beside those that were measured."""
    lines = []
    for shape in results["shapes"]:
        for name, one in shape["ranks"].items():
            ranks = int(name)
            part = batch(shape, ranks)
            sent = sum(cost.wire_bytes(ranks, part).values())
            seconds = cost.step_seconds(ranks, part, machine(results, shape))
            off = "" if ranks == 1 else f"{seconds / one['seconds'] - 1:+.0%}"
            lines.append([shape["title"] if ranks == 1 else "", name, megabytes(one["sent"]), megabytes(sent),
                          milliseconds(one["seconds"]), milliseconds(seconds), off])  # fmt: skip
    return table(["table, bags × ids", "ranks", "MB sent by a rank", "model", "ms a step", "model", "off"], lines)


def constants(results: dict[str, Any]) -> str:
    """The constants of this machine."""
    found, facts = results["constants"], results["machine"]
    kernels = ", ".join(f"{1e9 * machine(results, shape).kernel:.0f} ns ({shape['title']})"
                        for shape in results["shapes"])  # fmt: skip
    load = facts["load"]  # None where nobody looked
    told = "unknown" if load is None else f"{load:.1f}"
    busy = load is None or load > 0.7
    doubt = [f"- **others used the machine (load {told}): times are too long**"] if busy else []
    return "\n".join([
        *doubt,
        f"- {facts['processor']}, {facts['cores']} cores; one thread and one core a rank; Gloo over the loopback",
        f"- latency of an exchange {1e6 * found['latency']:.0f} µs, each message in it {1e6 * found['message']:.0f} "
        f"µs, bandwidth {found['bandwidth'] / 1e9:.2f} GB/s a rank",
        f"- time for an id, forward, backward and optimizer: {kernels}",
    ])  # fmt: skip


def nodes(results: dict[str, Any]) -> str:
    """The model for 1 to 1024 nodes: the first shape's batch on each of them."""
    shape = results["shapes"][0]
    part = whole(shape)
    lines = []
    for ranks in NODES:
        line = [str(ranks), f"{ranks * shape['bags']:,}", megabytes(sum(cost.wire_bytes(ranks, part).values()))]
        for bandwidth in NETWORKS.values():
            seconds = cost.step_seconds(ranks, part, cluster(results, shape, bandwidth))
            line += [milliseconds(seconds), f"{ranks * shape['bags'] / seconds / 1e6:.2f}"]
        lines.append(line)
    heads = [head for name in NETWORKS for head in (f"{name}: ms a step", "million bags/s")]
    return table(["nodes", "bags a step", "MB sent by a node", *heads], lines)


def cluster(results: dict[str, Any], shape: dict[str, Any], bandwidth: float) -> cost.Machine:
    """Nodes with this machine's kernels and another network."""
    kernel = machine(results, shape).kernel
    return cost.Machine(kernel=kernel, bandwidth=bandwidth, latency=LATENCY, message=results["constants"]["message"])


PARTS = {"speed": speed, "model": model, "constants": constants, "nodes": nodes}


def filled(text: str, results: dict[str, Any]) -> str:
    """The text with the marked parts written anew."""
    return MARKED.sub(lambda found: f"{found[1]}\n{PARTS[found[2]](results)}\n{found[3]}", text)


def table(heads: list[str], lines: list[list[str]]) -> str:
    """A table in Markdown; all but the first column to the right."""
    rule = ["---"] + ["---:"] * (len(heads) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [heads, rule, *lines])


def megabytes(number: float) -> str:
    """Bytes, to three digits."""
    return f"{number / 1e6:.3g}"


def milliseconds(number: float) -> str:
    """Seconds, to three digits."""
    return f"{1000 * number:.3g}"


def draw(results: dict[str, Any], path: Path) -> None:
    """Measured beside the model on this machine, and where the time goes on many."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.8), layout="constrained")
    colours = ["#004a80", "#c23b3b", "#3f8f4f", "#b06a00"]
    for shape, colour in zip(results["shapes"], colours, strict=False):
        sizes = [int(n) for n in shape["ranks"]]
        one = shape["ranks"]["1"]["seconds"]
        measured = [one / shape["ranks"][str(n)]["seconds"] for n in sizes]
        here = machine(results, shape)
        modelled = [one / cost.step_seconds(n, batch(shape, n), here) for n in sizes]
        left.plot(sizes, measured, "o", color=colour, markersize=8, label=shape["title"])
        left.plot(sizes, modelled, "-", color=colour, alpha=0.6, linewidth=1.5)
    left.plot([1, 2], [1, 2], ":", color="#777777", linewidth=1)
    left.axvline(results["machine"]["cores"], color="#c9d0d6", zorder=0)
    left.text(results["machine"]["cores"] + 0.05, 0.08, "no more cores from here on", color="#555555", fontsize=9)
    left.set(
        xlabel="ranks on this machine", ylabel="steps a second, times those of one rank", xticks=sizes, ylim=(0, None)
    )
    left.set_title("One batch spread over ranks: measured (dots), model (lines)")
    left.legend(fontsize=8, loc="best")
    shape = results["shapes"][0]
    part = whole(shape)
    bandwidth = NETWORKS["25 Gbit/s"]
    place = cluster(results, shape, bandwidth)
    computing = [1000 * part.ids * place.kernel] * len(NODES)
    moving = [1000 * sum(cost.wire_bytes(n, part).values()) / bandwidth for n in NODES]
    waiting = [
        1000 * cost.step_seconds(n, part, place) - a - b for n, a, b in zip(NODES, computing, moving, strict=True)
    ]
    right.stackplot(range(len(NODES)), computing, moving, waiting, colors=["#7fb2d9", "#e6b35a", "#c9d0d6"],
                    labels=["kernels", "bytes at 25 Gbit/s", "latency and messages"])  # fmt: skip
    right.set_xticks(range(len(NODES)), [str(n) for n in NODES])
    right.set(xlabel="nodes, each with a batch of its own", ylabel="ms a step (model)", xlim=(0, len(NODES) - 1))
    right.set_title(f"Many nodes, each with the batch of {shape['title']}")
    right.legend(loc="upper left")
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)
