"""Runs that are kept: what loops have recorded, under names, and what came out, so that several can be compared.

A recording grows while its loop runs, ends when that ends, and can be paused: then the page can be changed, and the
loop goes on in the same recording, which remembers at which step what was changed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import BlockResult
from rowgrad.blocks.page import State
from rowgrad.blocks.results import DONE
from rowgrad_studio.history import same_state
from rowgrad_studio.problems import Refusal

MOST_RUNS = 60  # that a document keeps; then the oldest goes
MOST_BYTES = 2**29  # of results of ended runs; then those of the oldest go, and what it recorded stays
LONGEST_NAME = 80
BEFORE = "before"  # what stood on the page before the last run

Arrays = Mapping[tuple[str, str], Array]


@dataclass(eq=False)
class Recording:
    """One run: its name, how far it is, what it recorded."""

    id: int
    name: str
    asked: int  # steps
    outputs: list[str]
    about: str = ""
    steps: int = 0
    paused: bool = False
    values: dict[str, list[float | None]] = field(default_factory=dict)
    marks: list[tuple[int, str]] = field(default_factory=list)  # after which step what was changed
    results: Arrays = field(default_factory=dict)
    seen: State | None = None  # the page when it was paused

    @property
    def recorded(self) -> int:
        """How many steps it has values of."""
        return len(next(iter(self.values.values()), ()))

    def extend(self, recorded: Mapping[str, list[float | None]]) -> int:
        """Add values of the next steps; gives how many there were before."""
        before = self.recorded
        for name, found in recorded.items():
            self.values.setdefault(name, []).extend(found)
        return before

    def view(self, whole: bool) -> dict[str, Any]:
        """The `Run` of the protocol; without its values where those who listen have them."""
        return {
            "id": self.id,
            "name": self.name,
            "asked": self.asked,
            "steps": self.steps,
            "paused": self.paused,
            "about": self.about,
            "outputs": self.outputs,
            "marks": [{"step": step, "text": text} for step, text in self.marks],
            "compared": bool(self.results),
            "values": {name: list(found) for name, found in self.values.items()} if whole else None,
        }


class Recordings:
    """The runs of a document, the oldest first."""

    def __init__(self) -> None:
        self._runs: dict[int, Recording] = {}
        self._numbers = count(1)
        self.before: Arrays = {}

    def __iter__(self) -> Any:
        return iter(self._runs.values())

    def begin(self, name: str | None, steps: int, outputs: Iterable[str], about: str = "") -> Recording:
        """A new recording; without a name it is called by its number."""
        number = next(self._numbers)
        run = Recording(number, self._free(name or f"run {number}"), steps, list(outputs), about)
        self._runs[number] = run
        while len(self._runs) > MOST_RUNS:
            del self._runs[next(iter(self._runs))]
        return run

    def _free(self, name: str) -> str:
        taken = {run.name for run in self._runs.values()}
        name = _checked(name)
        numbered = (f"{name} ({number})" for number in count(2))
        return next(one for one in chain([name], numbered) if one not in taken)

    def find(self, id: int) -> Recording:
        """The run of that number."""
        if id not in self._runs:
            raise Refusal(f"there is no run {id}; it was removed, or the studio was started again.", "unknown-run",
                          argument="run", value=id)  # fmt: skip
        return self._runs[id]

    def rename(self, id: int, name: str) -> None:
        """Call a run by another name."""
        run = self.find(id)
        if _checked(name) != run.name:
            run.name = self._free(name)

    def remove(self, ids: Iterable[int]) -> None:
        """Forget runs."""
        for run in [self.find(id) for id in ids]:
            self._runs.pop(run.id, None)

    def paused(self, id: int, page: State, last: str | None) -> Recording:
        """A run that is to go on; if the page was changed since, that is marked by the `last` gesture."""
        run = self.find(id)
        if not run.paused:
            raise Refusal(f"{run.name} is not paused; it cannot resume.", "not-paused", argument="run", value=id)
        if run.seen is not None and not same_state(run.seen, page):
            run.marks.append((run.steps, last or "changed"))
        run.paused = False
        return run

    def end(self, run: Recording, results: Mapping[str, BlockResult]) -> None:
        """Keep what came out, as long as there is room for it."""
        run.results = arrays_of(results)
        held = 0
        for one in reversed(self._runs.values()):
            held += sum(array.nbytes for array in one.results.values())
            if held > MOST_BYTES and one is not run:
                one.results = {}

    def result(self, which: str, block: str, pin: str) -> Array:
        """An output as it was in another run: its number, or `BEFORE`."""
        known = self.before if which == BEFORE else self.find(int(which)).results if which.isdecimal() else {}
        if (block, pin) not in known:
            raise Refusal(f"that run has no result {block}:{pin} any more.", "unknown-run", argument="against",
                          value=which)  # fmt: skip
        return known[block, pin]

    def event(self, whole: bool = False) -> dict[str, Any]:
        """All runs, as they are told to tabs."""
        return {"event": "runs", "whole": whole, "runs": [run.view(whole) for run in list(self._runs.values())],
                "before": bool(self.before)}  # fmt: skip


def arrays_of(results: Mapping[str, BlockResult]) -> Arrays:
    """All outputs that are there; arrays of results never change."""
    return {(id, pin): array for id, result in results.items() if result.status == DONE
            for pin, array in result.outputs.items()}  # fmt: skip


def _checked(name: str) -> str:
    name = " ".join(name.split())
    if not 1 <= len(name) <= LONGEST_NAME:
        raise Refusal(f"the name of a run has 1 to {LONGEST_NAME} characters.", argument="name")
    return name
