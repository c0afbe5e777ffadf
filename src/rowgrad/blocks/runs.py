"""Runs: what a loop has recorded, kept under a name, to be compared with others and written as CSV.

A session keeps the runs of its loops that were given a name. A sweep makes one for each value of a literal.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import values as shown
from rowgrad.errors import InvalidArgumentError

MOST_COLUMNS = 1000  # elements of a recorded array that become columns of their own


@dataclass(eq=False)
class Run:
    """A named run.

    Attributes
    ----------
    name : str
        The name.
    steps : list of int
        The recorded steps, counted from 1.
    values : dict
        For each recorded output, ``"block:pin"``, its values at these steps.
    settings : dict
        The settings of this run: the literal of a sweep.
    problem : str or None
        Why it ended early.
    variables : dict
        The variables at its end.
    """

    name: str
    steps: list[int] = field(default_factory=list)
    values: dict[str, list[Array]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    variables: Mapping[str, Array] = field(default_factory=dict)

    def add(self, step: int, found: Mapping[str, Array]) -> None:
        """Record one step. For earlier steps, a newly recorded output has NaN or no values."""
        for name, value in found.items():
            before = self.values.setdefault(name, [])
            before += [np.full(value.shape, np.nan)] * (len(self.steps) - len(before))
            before.append(value)
        self.steps.append(step)
        for name, kept in self.values.items():
            if name not in found and kept:
                kept.append(np.full(kept[0].shape, np.nan))

    def scalars(self, name: str) -> Array:
        """A recorded output as one number for each step: the mean of its elements."""
        if name not in self.values:
            listed = ", ".join(self.values) or "nothing"
            raise InvalidArgumentError(f"{name!r} was not recorded in {self.name}; there is: {listed}.",
                                       code="unknown-output", argument="name", value=name)  # fmt: skip
        with np.errstate(all="ignore"):
            return np.array([_mean(value) for value in self.values[name]])

    def _repr_html_(self) -> str:
        from rowgrad.blocks._notebook import run_html

        return run_html(self)

    def __repr__(self) -> str:
        return f"<Run {self.name!r}: {len(self.steps)} steps of {', '.join(self.values) or 'nothing'}>"


def _mean(value: Array) -> float:
    plain = shown.plain(np.asarray(value))
    if plain.dtype.kind not in "biuf" or not plain.size:
        return float("nan")
    return float(plain.mean(dtype=np.float64))


def to_csv(runs: "Iterable[Run]") -> str:
    """Runs as CSV: a line for each run and step, a column for each recorded output, or for each of its elements.

    Texts that a spreadsheet would take for formulas are written with an apostrophe before them.
    """
    listed = list(runs)
    columns: dict[str, list[tuple[int, ...]]] = {}
    for run in listed:
        for name, found in run.values.items():
            shape = found[0].shape if found else ()
            places = list(np.ndindex(shape)) if np.prod(shape) <= MOST_COLUMNS else []
            if len(places) > len(columns.get(name, [])):
                columns[name] = places
    settings = list(dict.fromkeys(name for run in listed for name in run.settings))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = [f"{name}{list(place) if place else ''}" for name, places in columns.items() for place in places]
    writer.writerow(map(_harmless, ["run", *settings, "step", *heads]))
    for run in listed:
        for position, step in enumerate(run.steps):
            row: list[Any] = [run.name, *(run.settings.get(name, "") for name in settings), step]
            for name, places in columns.items():
                value = run.values[name][position] if name in run.values else None
                row += [_cell(value, place) for place in places]
            writer.writerow(map(_harmless, row))
    return text.getvalue()


def _cell(value: Array | None, place: tuple[int, ...]) -> Any:
    if value is None or len(place) != value.ndim or any(i >= n for i, n in zip(place, value.shape, strict=True)):
        return ""
    item = np.asarray(value)[place]
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    return item.item() if isinstance(item, np.generic) else item


def _harmless(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
