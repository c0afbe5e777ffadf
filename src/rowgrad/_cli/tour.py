"""`rowgrad tour`: five gradient operators, each behind its forward operator, on examples small enough to follow.

Every number printed comes out of a call of the public functions. Inputs are those of the catalogue's worked examples;
what the forward operator gets follows from its gradient rule, so that the gradient meets the ids of the look-up.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from rowgrad._cli import examples, pictures, show
from rowgrad._ops import OPERATORS, Operator
from rowgrad._ops.gradients import Namespace, each, mentioned
from rowgrad._runtime.dtypes import Array


@dataclass
class Stop:
    """One gradient operator of the tour: a sentence, the calls, what came out of them, and how to draw it."""

    forward: Operator
    gradient: Operator
    sentence: str
    draw: Callable[[Any, Console], None]
    forward_inputs: dict[str, Any]
    inputs: dict[str, Any]
    forward_results: dict[str, Array] = field(default_factory=dict)
    results: dict[str, Array] = field(default_factory=dict)

    def call(self) -> None:
        """Run both operators."""
        self.forward_results = examples.call(self.forward, self.forward_inputs)
        self.results = examples.call(self.gradient, self.inputs)

    def differing(self) -> list[str]:
        """What is not as the catalogue states it, or not what the forward operator handed on."""
        handed_on = {name: array for name, array in self.forward_results.items() if name in self.inputs}
        return examples.differing(self.gradient, self.results) + [
            name for name, array in handed_on.items() if not examples.agrees(array, self.inputs[name])
        ]


def stops() -> list[Stop]:
    """The way of the tour."""
    rows = OPERATORS["SparseSegmentMeanGradV2"].example.inputs["dense_output_dim0"]
    # Large enough for the ids, and each row can be recognised by its numbers: row 7 is 7.1, 7.2, 7.3.
    table = (np.arange(rows)[:, None] + [0.1, 0.2, 0.3]).astype(np.float32)
    return [
        _stop(
            "SparseSegmentSqrtN", "SparseSegmentSqrtNGrad", pictures.pooled,
            "Rows of a table were added up by segment and divided by the square root of their number. Each row gets "
            "the gradient of its segment, divided likewise.",
        ),
        _stop(
            "SparseSegmentMean", "SparseSegmentMeanGrad", pictures.pooled,
            "All rows were averaged into one segment. Each gets an equal share of that segment's gradient; the "
            "gradients of empty segments are not used.",
        ),
        _stop(
            "SparseSegmentMean", "SparseSegmentMeanGradV2", pictures.pooled,
            f"The same for a table of {rows} rows: only the rows that were looked up come back, together with their "
            "numbers. A row that was used twice gets two shares.",
            data=table,
        ),
        _stop(
            "SparseFillEmptyRows", "SparseFillEmptyRowsGrad", pictures.filled,
            "An empty row got the default value. The gradient of that entry goes to the default, and every other one "
            "to the value it belongs to.",
            dense_shape=[4, 6],  # the example without its last row, which the gradient's example has not
        ),
        _stop(
            "SparseSlice", "SparseSliceGrad", pictures.sliced,
            "A window was cut out of a sparse tensor. The entries in the window get their gradients, the others get 0.",
        ),
    ]  # fmt: skip


def _arguments(operator: Operator, gradient: str) -> tuple[str, ...]:
    """The names that a rule of `operator` hands on to `gradient`: it is called with names in place of arrays."""
    calls: dict[str, tuple[str, ...]] = {}

    def recorded(called: Operator) -> Callable[..., Any]:
        def call(*names: str) -> Any:
            calls.setdefault(called.name, names)
            return called.result(*names[:1] * len(called.outputs)) if called.result else ""

        return call

    op = Namespace(OPERATORS, recorded, rows=lambda name: f"rows of {name}")
    for rule in (*operator.gradient.values(), *operator.compact_gradient.values()):
        for one in each(rule):
            one(op, *mentioned(one))
    return calls[gradient]


def _stop(forward: str, gradient: str, draw: Callable[[Any, Console], None], sentence: str, **changes: Any) -> Stop:
    """A stop at the worked example of `gradient`; `changes` make the example of `forward` fit where it does not."""
    operator, backward = OPERATORS[forward], OPERATORS[gradient]
    inputs = dict(backward.example.inputs)
    forward_inputs = dict(operator.example.inputs)
    for name, pin in zip(_arguments(operator, gradient), backward.inputs, strict=True):
        if name in forward_inputs:
            forward_inputs[name] = inputs[pin.name]
    return Stop(operator, backward, sentence, draw, {**forward_inputs, **changes}, inputs)


def tour() -> None:
    """See five sparse gradients at work: which row gets which gradient, and why."""
    console = show.output()
    started = time.perf_counter()
    way = stops()
    wrong = 0
    for number, stop in enumerate(way, 1):
        with show.waiting(f"running {stop.gradient.name}"):
            stop.call()
        _print(console, number, stop)
        wrong += bool(stop.differing())
    console.print(Rule(style="dim"))
    console.print(
        f"Ran {2 * len(way)} operators, {len(way)} forward and {len(way)} backward, in "
        f"{time.perf_counter() - started:.2f} s; {len(way) - wrong} of {len(way)} gradients as the catalogue states."
    )
    if wrong:
        raise typer.Exit(1)


def _print(console: Console, number: int, stop: Stop) -> None:
    title = Text.assemble((f"{number}  {stop.gradient.name}", "bold cyan"), (f"  after {stop.forward.name}", "dim"))
    console.print(Rule(title, align="left", style="dim"))
    console.print(Text(stop.sentence))
    console.print()
    console.print(Padding(Text(stop.gradient.formula, "italic"), (0, 0, 0, 2), expand=False))
    console.print()
    stop.draw(stop, console)
    differing = stop.differing()
    if differing:
        console.print(Text(f"  ✗ not as the catalogue states: {', '.join(differing)}", "bold red"))
    else:
        console.print(Text(f"  ✓ {' and '.join(stop.results)} as the catalogue states", "green"))
    console.print()
