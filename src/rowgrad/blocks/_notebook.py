"""What pages, sessions and results show of themselves in notebooks, and a progress bar for them."""

import sys
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad._runtime import notebooks
from rowgrad.blocks.results import DONE, BlockResult, History, Progress, Results

if TYPE_CHECKING:
    from rowgrad.blocks._session import Session
    from rowgrad.blocks.explaining import Explanation
    from rowgrad.blocks.runs import Run

MOST_BLOCKS = 200  # of a page that is drawn in a notebook
OFTEN = 0.1  # seconds from one drawing of a progress bar to the next
WIDTH = 30  # characters of a bar on a terminal


def results_html(results: Results) -> str:
    """A row for each output, and for each block that has none."""
    rows = []
    for id, result in results.items():
        if result.status != DONE:
            rows.append([id, result.op, "", result.reason])
        rows += [[id, result.op, pin, _brief(array)] for pin, array in result.outputs.items()]
    return notebooks.table(repr(results).strip("<>"), ["block", "operator", "output", "value"], rows)


def result_html(result: BlockResult) -> str:
    """The arrays of one block."""
    if result.status != DONE:
        return f"<p>{notebooks.escaped(f'{result.block}: {result.reason}')}</p>"
    return "".join(notebooks.array(f"{result.block}:{pin}", array) for pin, array in result.outputs.items())


def session_html(session: "Session") -> str:
    """The variables, and what is there of the blocks."""
    variables = [[id, _brief(value)] for id, value in session.variables.items()]
    parts = [notebooks.table(f"Session of {session.page.name}", ["variable", "value"], variables)]
    if session.runs:
        parts.append(notebooks.table("runs", ["run", "steps", "recorded"], [
            [run.name, len(run.steps), ", ".join(run.values)] for run in session.runs.values()]))  # fmt: skip
    return "".join([*parts, results_html(session.results())])


def run_html(run: "Run | History") -> str:
    """First, least and last of what was recorded."""
    name = f"{run.name}: {len(run.steps)} steps" if not isinstance(run, History) else f"{run.steps} steps"
    rows = []
    for output, found in run.values.items():
        if found and found[0].size == 1 and found[0].dtype.kind in "biuf":
            numbers = [float(value.reshape(())) for value in found]
            rows.append([output, *map(notebooks.element, (numbers[0], min(numbers), max(numbers), numbers[-1]))])
        else:
            rows.append([output, "", "", "", _brief(found[-1]) if found else ""])
    return notebooks.table(name, ["output", "first", "least", "largest", "last"], rows)


def explanation_html(found: "Explanation") -> str:
    """The formula, and a row for each part."""
    rows = []
    for part in found.parts[:100]:
        ids = ", ".join(f"{place.input}[{', '.join(map(str, place.index))}] = {notebooks.element(place.value)}"
                        for place, _ in part.because)  # fmt: skip
        factor = f"· {part.factor_text}" if part.product is not None else ""
        total = "" if part.total is None else notebooks.element(part.total)
        rows.append([part.name, notebooks.element(part.place.value), factor, total, ids, part.source or "literal"])
    lines = "".join(f"<p>{notebooks.escaped(line)}</p>" for line in str(found).splitlines())
    heads = ["entry", "value", "factor", "sum so far", "because", "from"]
    return lines + (notebooks.table("", heads, rows) if rows else "")


def _brief(array: Any) -> str:
    from rowgrad.blocks.values import brief

    return brief(np.asarray(array), notebooks.LONGEST)


class ProgressBar:
    """A progress bar for ``progress=`` of a session's methods: in a notebook, on a terminal, or nowhere.

    Examples
    --------
    >>> from rowgrad.blocks import Page, ProgressBar, Session
    >>> page = Page()
    >>> _ = page.add("Const", value=1.0)
    >>> Session(page).loop(3, progress=ProgressBar()).steps
    3
    """

    def __init__(self, label: str = "step") -> None:
        self.label = label
        self._last = 0.0
        self._begun = monotonic()
        self._shown: Any = None  # what IPython shows, to be exchanged

    def __call__(self, progress: Progress) -> None:
        """Draw the bar, unless it was drawn a moment ago."""
        is_over = progress.step >= progress.steps
        if monotonic() - self._last < OFTEN and not is_over:
            return
        self._last = monotonic()
        if _in_notebook():
            self._draw_in_notebook(progress)
        elif sys.stderr is not None and sys.stderr.isatty():
            filled = WIDTH * progress.step // max(progress.steps, 1)
            bar = "━" * filled + " " * (WIDTH - filled)
            sys.stderr.write(f"\r{self.label} {bar} {progress.step}/{progress.steps}" + "\n" * is_over)
            sys.stderr.flush()

    def _draw_in_notebook(self, progress: Progress) -> None:
        shown = import_module("IPython.display")
        found = shown.HTML(self.html(progress))
        if self._shown is None:
            self._shown = shown.display(found, display_id=True)
        else:
            self._shown.update(found)

    def html(self, progress: Progress) -> str:
        """The bar as HTML."""
        text = notebooks.escaped(f"{self.label} {progress.step} of {progress.steps}, {monotonic() - self._begun:.1f} s")
        return (f'<progress value="{int(progress.step)}" max="{max(int(progress.steps), 1)}" '
                f'aria-label="{notebooks.escaped(self.label)}"></progress> {text}')  # fmt: skip


def _in_notebook() -> bool:
    """Whether a kernel of IPython runs this; it is not imported to find out."""
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None and hasattr(shell, "get_ipython") else None
    return found is not None and hasattr(found, "kernel")
