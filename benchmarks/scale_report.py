"""What `scale.py` measured, as tables for `docs/scale.md` and as a picture, beside what the cost model says.

Nothing is measured here. A table goes between `<!-- scale:begin NAME -->` and `<!-- scale:end -->`.
"""

import re
from pathlib import Path
from typing import Any

import scale_contest as contest
from rowgrad.torch.distributed import cost

MARKED = re.compile(r"^(<!-- scale:begin (\w+) -->)\n.*?^(<!-- scale:end -->)$", re.MULTILINE | re.DOTALL)
NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
# A cluster that many have: one rank a node, 25 Gbit/s that are 80 % used. Kernels and messages as measured here.
NETWORK = 25e9 / 8 * 0.8
LATENCY = 100e-6  # seconds, between machines of a data centre, through the kernel and Gloo
KINDS = {"table": "by table", "row": "by row"}
SHAPES = {shape.title: shape for shape in contest.SHAPES}
LARGE = contest.SHAPES[-1]


def batch(shape: contest.Shape) -> cost.Batch:
    """The bags of one table on a rank."""
    return cost.Batch(shape.bags, shape.ids, contest.WIDTH, rows=contest.ROWS)


def kernel(results: dict[str, Any], kind: str, title: str) -> float:
    """Seconds that the plain collection needs for an id."""
    shape = SHAPES[title]
    seconds: float = results[kind][title]["seconds"]["plain"]
    return seconds / (contest.TABLES * shape.bags * shape.ids)


def machine(results: dict[str, Any], kind: str, title: str, by_gloo: bool, ranks: int = 2) -> cost.Machine:
    """This machine, whose ranks share memory, or exchange everything by Gloo."""
    found, packing = results["constants"], results["packing"][kind][title]
    here = {"kernel": kernel(results, kind, title), "cores": found["cores"], "step": own_time(results, kind, by_gloo)}
    if not by_gloo:
        latency = found["near" if ranks <= found["cores"] else "near_crowded"]
        return cost.Machine(latency=latency, copy=packing["near_copy"], pack=packing["near_pack"], **here)
    return cost.Machine(latency=found["latency"], message=found["message"], bandwidth=found["bandwidth"],
                        copy=packing["copy"], pack=packing["pack"], **here)  # fmt: skip


def own_time(results: dict[str, Any], kind: str, by_gloo: bool) -> float:
    """Seconds of a rank for a step however small: what one bag takes on two ranks, without its exchanges."""
    found, count = results["constants"], cost.exchanges(batch(contest.LEAST))
    if by_gloo:
        exchanges, name = count * (found["latency"] + found["message"]), "2 gloo"
    else:
        exchanges, name = count * found["near"], "2"
    seconds: float = results[kind][contest.LEAST.title]["seconds"][name] - exchanges
    return max(0.0, seconds)


def cluster(results: dict[str, Any], kind: str) -> cost.Machine:
    """Nodes with this machine's kernels and another network."""
    found, packing = results["constants"], results["packing"][kind][LARGE.title]
    return cost.Machine(kernel=kernel(results, "table", LARGE.title), bandwidth=NETWORK, latency=LATENCY,
                        message=found["message"], copy=packing["copy"], pack=packing["pack"],
                        step=own_time(results, kind, by_gloo=True))  # fmt: skip


def torchrec_bytes(ranks: int, kind: str) -> float:
    """Bytes that a rank of TorchRec sends in a step, by what its collectives are given.

    Ids are int64 and lengths int32. By table, the bags of tables elsewhere come pooled, and their gradients go back. By
    row, each rank gives each other one the sums of all of its bags (reduce-scatter), and gathers all gradients.
    """
    part, others = batch(LARGE), (ranks - 1) / ranks
    pooled = contest.TABLES * part.bags * contest.WIDTH * 4
    ids, lengths = contest.TABLES * part.ids * 8, contest.TABLES * part.bags * 4
    if kind == "table":
        return (ids + lengths + 2 * pooled) * others
    return ids * others + lengths * (ranks - 1) + 2 * pooled * (ranks - 1)


def race(results: dict[str, Any]) -> str:
    """Two ranks beside the plain collection and beside TorchRec."""
    heads = ["bags a rank × ids", "plain on one core, ms", "auto, ms", "beside plain", "by table, ms", "beside plain",
             "by row, ms", "beside plain", "TorchRec by table, ms", "beside ours", "TorchRec by row, ms",
             "beside ours"]  # fmt: skip
    lines = []
    for title, times in results["contest"].items():
        line = [title, milliseconds(times["plain"])]
        for kind in ("auto", *KINDS):
            line += [milliseconds(times[kind]), f"{2 * times['plain'] / times[kind]:.2f} ×"]
        for kind in KINDS:
            theirs = times.get(f"torchrec-{kind}")
            line += ["", ""] if theirs is None else [milliseconds(theirs), f"{theirs / times[kind]:.2f} ×"]
        lines.append(line)
    return table(heads, lines)


def model(results: dict[str, Any]) -> str:
    """Bytes and seconds of the model beside those that were measured."""
    lines = []
    for kind, told in KINDS.items():
        for title, found in results[kind].items():
            if title == contest.LEAST.title:
                continue
            part, first = batch(SHAPES[title]), f"{told}, {title}"
            for name, seconds in found["seconds"].items():
                if name == "plain":
                    continue
                ranks, by_gloo = int(name.split()[0]), name.endswith("gloo")
                sent = cost.collection_bytes(ranks, part, kind, contest.TABLES, shared=not by_gloo)
                here = machine(results, kind, title, by_gloo, ranks)
                told_s = cost.collection_seconds(ranks, part, kind, contest.TABLES, here, shared=not by_gloo)
                way = "Gloo" if by_gloo else "shared memory" if ranks > 1 else ""
                lines.append([first, str(ranks), way, megabytes(found["sent"][name]), megabytes(sent),
                              milliseconds(seconds), milliseconds(told_s), f"{told_s / seconds - 1:+.0%}"])  # fmt: skip
                first = ""
    heads = ["26 tables, bags a rank × ids", "ranks", "exchange", "MB sent by a rank", "model", "ms a step", "model",
             "off"]  # fmt: skip
    return table(heads, lines)


def constants(results: dict[str, Any]) -> str:
    """The constants of this machine."""
    found = results["constants"]
    sizes = ", ".join(f"{int(size) // 1024} kB {int(size) / seconds / 1e9:.2f}"
                      for size, seconds in found["by_size"].items())  # fmt: skip
    kernels = ", ".join(f"{1e9 * kernel(results, 'table', title):.0f} ns ({title})" for title in results["table"]
                        if title != contest.LEAST.title)  # fmt: skip
    packing = "; ".join(
        f"{KINDS[kind]} {1e9 * of['near_pack']:.1f} ns and {of['near_copy'] / 1e9:.1f} GB/s, by Gloo "
        f"{1e9 * of['pack']:.1f} ns and {of['copy'] / 1e9:.1f} GB/s"
        for kind, of in ((kind, results["packing"][kind][LARGE.title]) for kind in KINDS)
    )
    own = ", ".join(f"{told} {1e3 * own_time(results, 'table', by_gloo):.2f} ms"
                    for told, by_gloo in (("through shared memory", False), ("by Gloo", True)))  # fmt: skip
    return "\n".join([
        f"- {found['processor']}, {found['cores']} cores; one thread and one core a rank",
        f"- a message of 8 bytes between two processes by Gloo: {1e6 * found['latency']:.0f} µs one way (half the "
        f"median of 500 round trips); a rank's own time for a message in an exchange: {1e6 * found['message']:.0f} µs "
        "of processor",
        f"- bandwidth by size, GB/s one way: {sizes}; the model uses what each byte more takes from 1 to 16 MB "
        f"where both send at once: {found['bandwidth'] / 1e9:.2f} GB/s",
        f"- an exchange of headers through shared memory: {1e6 * found['near']:.0f} µs; of four ranks on two cores: "
        f"{1e6 * found['near_crowded']:.0f} µs",
        f"- packing on one core ({LARGE.title}), for an id, and for bytes of rows and gradients: {packing}",
        f"- a step of one bag of one id in each table, without its exchanges: {own}",
        f"- the plain collection's time for an id, forward, backward and optimizer: {kernels}",
    ])  # fmt: skip


def nodes(results: dict[str, Any]) -> str:
    """The model for 1 to 1024 nodes, each with a batch of the largest shape, and what TorchRec would send."""
    part, lines = batch(LARGE), list[list[str]]()
    for ranks in NODES:
        line = [str(ranks)]
        for kind in KINDS:
            seconds = cost.collection_seconds(ranks, part, kind, contest.TABLES, cluster(results, kind))
            line += [megabytes(cost.collection_bytes(ranks, part, kind, contest.TABLES)),
                     megabytes(torchrec_bytes(ranks, kind)), milliseconds(seconds),
                     f"{ranks * LARGE.bags / seconds / 1e6:.2f}"]  # fmt: skip
        lines.append(line)
    heads = [head for told in KINDS.values()
             for head in (f"{told}: MB sent", "TorchRec", "ms a step", "million bags/s")]  # fmt: skip
    return table(["nodes", *heads], lines)


PARTS = {"race": race, "model": model, "constants": constants, "nodes": nodes}


def filled(text: str, results: dict[str, Any]) -> str:
    """The text with the marked parts written anew."""
    return MARKED.sub(lambda found: f"{found[1]}\n{PARTS[found[2]](results)}\n{found[3]}", text)


def table(heads: list[str], lines: list[list[str]]) -> str:
    """A table in Markdown; all but the first column to the right."""
    rule = ["---"] + ["---:"] * (len(heads) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [heads, rule, *lines])


def megabytes(number: float) -> str:
    """Bytes, to three digits."""
    return f"{number / 1e6:.3g}" if number < 1e9 else f"{number / 1e6:.0f}"


def milliseconds(number: float) -> str:
    """Seconds, to three digits."""
    return f"{1000 * number:.3g}" if number < 1 else f"{1000 * number:.0f}"


def draw(results: dict[str, Any], path: Path) -> None:
    """Measured beside the model on this machine, and where the time goes on many."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.8), layout="constrained")
    colours, title, part = {"table": "#004a80", "row": "#c23b3b"}, LARGE.title, batch(LARGE)
    sizes = (1, 2, 3, 4)
    for kind, colour in colours.items():
        for by_gloo, mark, style in ((False, "o", "-"), (True, "^", "--")):
            times = results[kind][title]["seconds"]
            measured = [n * times["plain"] / times[f"{n} gloo" if by_gloo and n > 1 else str(n)] for n in sizes]
            modelled = [
                n * times["plain"] / cost.collection_seconds(
                    n, part, kind, contest.TABLES, machine(results, kind, title, by_gloo, n), shared=not by_gloo)
                for n in sizes
            ]  # fmt: skip
            told = f"{KINDS[kind]}, {'Gloo' if by_gloo else 'shared memory'}"
            left.plot(sizes, measured, mark, color=colour, markersize=8, label=told)
            left.plot(sizes, modelled, style, color=colour, alpha=0.6, linewidth=1.5)
    left.axvline(results["constants"]["cores"], color="#c9d0d6", zorder=0)
    left.text(results["constants"]["cores"] + 0.05, 0.05, "no more cores from here on", color="#555555", fontsize=9)
    left.set(xlabel="ranks on this machine, each with a batch", ylabel="bags a second, times the plain collection's",
             xticks=sizes, ylim=(0, None))  # fmt: skip
    left.set_title(f"26 tables, {title}: measured (dots), model (lines)")
    left.legend(fontsize=8, loc="best")
    here = cluster(results, "table")
    computing = [1000 * contest.TABLES * part.ids * here.kernel] * len(NODES)
    moving = [1000 * cost.collection_bytes(n, part, "table", contest.TABLES) / NETWORK for n in NODES]
    waiting = [1000 * cost.collection_seconds(n, part, "table", contest.TABLES, here) - a - b
               for n, a, b in zip(NODES, computing, moving, strict=True)]  # fmt: skip
    right.stackplot(range(len(NODES)), computing, moving, waiting, colors=["#7fb2d9", "#e6b35a", "#c9d0d6"],
                    labels=["kernels", "bytes at 25 Gbit/s", "latency, messages, packing"])  # fmt: skip
    right.set_xticks(range(len(NODES)), [str(n) for n in NODES])
    right.set(xlabel="nodes, each with a batch of its own", ylabel="ms a step (model)", xlim=(0, len(NODES) - 1))
    right.set_title(f"Many nodes, tables placed by table, {title}")
    right.legend(loc="upper left")
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)
