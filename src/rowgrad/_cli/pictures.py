"""The pictures of the tour: what goes in and comes out, side by side, with rows labelled by where they come from.

A colour follows a gradient from where it flows in to where it ends; the labels say the same without colour.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from rowgrad._cli import show
from rowgrad._ops import Operator

COLOURS = ("cyan", "magenta", "yellow", "green", "blue")
FILLED_IN = "bold red"
LEFT_OUT = "dim"


def _colour(position: int) -> str:
    return COLOURS[position % len(COLOURS)]


def _colours(count: int) -> list[str]:
    return [_colour(position) for position in range(count)]


def _labels(word: str, count: int) -> list[str]:
    return [f"{word} {position}" for position in range(count)]


def _heading(console: Console, direction: str, operator: Operator, inputs: Mapping[str, Any]) -> None:
    """The call, with the values of lone numbers and short vectors that no table shows."""
    small = {pin.name for pin in operator.inputs if pin.shape in ("[]", "[rank]")}
    arguments = ", ".join(f"{name}={inputs[name]!r}" if name in small else name for name in inputs)
    call = Text.assemble((f"{direction} ", "bold"), f"{operator.call_name}({arguments})")
    console.print(Padding(call, (0, 0, 0, 2), expand=False))


def pooled(stop: Any, console: Console) -> None:
    """The segment operators: a colour for each segment."""
    indices, segments = stop.inputs["indices"], stop.inputs["segment_ids"]
    pairs = list(zip(indices, segments, strict=True))
    data, output = np.asarray(stop.forward_inputs["data"]), stop.forward_results["output"]
    rows = range(len(data)) if len(data) <= show.MOST_ROWS else sorted(set(indices))
    title = "data" if len(rows) == len(data) else f"data, {len(rows)} of {len(data)} rows"
    entries = [
        (f"entry {i}", f"row {row}", "→", Text(f"segment {segment}", _colour(segment)))
        for i, (row, segment) in enumerate(pairs)
    ]
    _heading(console, "forward ", stop.forward, stop.forward_inputs)
    show.side_by_side(console, [
        show.matrix(title, data[list(rows)], [f"row {row}" for row in rows]),
        show.table("indices → segment_ids", entries, left=(1, 2, 3)),
        show.matrix("output", output, _labels("segment", len(output)), _colours(len(output))),
    ])  # fmt: skip

    grad, result = np.asarray(stop.inputs["grad"]), stop.results["output"]
    names = stop.results.get("sorted_unique_indices", np.arange(len(result))).tolist()
    labels, styles = [], []
    for name in names:
        sources = [segment for row, segment in pairs if row == name]
        labels.append(f"row {name} ← " + (" + ".join(f"segment {s}" for s in sources) or "nothing"))
        styles.append(_colour(sources[0]) if len(set(sources)) == 1 else "")
    counts = [f"segment {s} ({segments.count(s)} pooled)" for s in range(len(grad))]
    is_compact = "sorted_unique_indices" in stop.results
    console.print()
    _heading(console, "backward", stop.gradient, stop.inputs)
    show.side_by_side(console, [
        show.matrix("grad", grad, counts, _colours(len(grad))),
        show.matrix(f"output, sorted_unique_indices {names}" if is_compact else "output", result, labels, styles),
    ])  # fmt: skip


def filled(stop: Any, console: Console) -> None:
    """The fill operators: a colour for each entry that was there, another for what was filled in."""
    before, after = stop.forward_inputs, stop.forward_results
    came_from = {k: j for j, k in enumerate(after["reverse_index_map"].tolist())}
    styles = [_colour(came_from[k]) if k in came_from else FILLED_IN for k in range(len(after["output_values"]))]
    entries = [
        (f"entry {j}", str(index), Text(show.number(value), _colour(j)))
        for j, (index, value) in enumerate(zip(before["indices"], before["values"], strict=True))
    ]
    results = [
        (f"filled {k}", str(index.tolist()), Text(show.number(value), styles[k]),
         Text("← " + (f"entry {came_from[k]}" if k in came_from else "default_value"), styles[k]))
        for k, (index, value) in enumerate(zip(after["output_indices"], after["output_values"], strict=True))
    ]  # fmt: skip
    _heading(console, "forward ", stop.forward, before)
    show.side_by_side(console, [
        show.table("indices, values", entries, left=(1,)),
        show.table("output_indices, output_values", results, left=(1, 3)),
        _vector("reverse_index_map", after["reverse_index_map"], "entry"),
    ])  # fmt: skip

    flows = [
        (f"filled {k}", Text(show.number(value), styles[k]),
         Text("→ " + (f"entry {came_from[k]}" if k in came_from else "default_value"), styles[k]))
        for k, value in enumerate(stop.inputs["grad_values"])
    ]  # fmt: skip
    d_values, d_default = stop.results["d_values"], stop.results["d_default_value"]
    console.print()
    _heading(console, "backward", stop.gradient, stop.inputs)
    show.side_by_side(console, [
        show.table("grad_values", flows, left=(2,)),
        _vector("d_values", d_values, "entry"),
        show.table("d_default_value", [[Text(show.number(d_default[()]), FILLED_IN)]]),
    ])  # fmt: skip


def sliced(stop: Any, console: Console) -> None:
    """The slice operators: a colour for each entry of the slice."""
    before, after = stop.forward_inputs, stop.forward_results
    places = [tuple(index) for index in before["indices"]]
    kept = {tuple(index): j for j, index in enumerate((after["output_indices"] + before["start"]).tolist())}
    styles = [_colour(kept[place]) if place in kept else LEFT_OUT for place in places]
    entries = [
        (f"entry {i}", str(list(place)), Text(show.number(before["values"][i]), styles[i]))
        for i, place in enumerate(places)
    ]
    results = [
        (f"slice {j}", str(index.tolist()), Text(show.number(value), _colour(j)),
         Text(f"← entry {places.index(place)}", _colour(j)))
        for (place, j), index, value in zip(kept.items(), after["output_indices"], after["output_values"], strict=True)
    ]  # fmt: skip
    _heading(console, "forward ", stop.forward, before)
    show.side_by_side(console, [
        show.table("indices, values", entries, left=(1,)),
        _drawing(stop, dict(zip(places, zip(before["values"], styles, strict=True), strict=True))),
        show.table("output_indices, output_values", results, left=(1, 3)),
    ])  # fmt: skip

    sources = [f"entry {i} ← " + (f"slice {kept[place]}" if place in kept else "nothing")
               for i, place in enumerate(places)]  # fmt: skip
    console.print()
    _heading(console, "backward", stop.gradient, stop.inputs)
    show.side_by_side(console, [
        _vector("backprop_val_grad", stop.inputs["backprop_val_grad"], "slice"),
        show.matrix("val_grad", stop.results["val_grad"], sources, styles),
    ])  # fmt: skip


def _vector(title: str, values: Any, word: str) -> Panel:
    return show.matrix(title, np.asarray(values), _labels(word, len(values)), _colours(len(values)))


def _drawing(stop: Any, values: Mapping[tuple[int, ...], tuple[str, str]]) -> Panel:
    """The tensor as a drawing: dots are empty places, squares are empty places in the window."""
    rows, columns = stop.forward_inputs["shape"]
    start, size = stop.forward_inputs["start"], stop.forward_results["output_shape"].tolist()
    lines = []
    for r in range(rows):
        line: list[str | Text] = [Text(str(r), "dim")]
        for c in range(columns):
            inside = all(s <= i < s + z for i, s, z in zip((r, c), start, size, strict=True))
            value, style = values.get((r, c), ("□", "bold") if inside else ("·", "dim"))
            line.append(Text(value, style))
        lines.append(line)
    return show.table("the tensor, □ window", lines, headings=["", *map(str, range(columns))])
