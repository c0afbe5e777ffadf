"""Looking at results of any size: windows of rows, regions of a heat-map, histograms, series, a projection.

`rowgrad.blocks.Window` does the reading; here is what a request may ask for, and how it is answered.
"""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import Window, values
from rowgrad_studio.problems import Refusal
from rowgrad_studio.values import cells, heat

MOST_WINDOW = 400  # rows of one window
MOST_COLUMNS = 64
MOST_TILES = 128  # rows and columns of one heat-map
MOST_POINTS = 2000  # of a plot or a projection

Given = Mapping[str, Any]


class Windows:
    """The windows on the arrays that were looked at last, so that scrolling a sorted table sorts it once."""

    def __init__(self, most: int = 6) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, tuple[weakref.ref[Array], Window]] = OrderedDict()

    def on(self, array: Array) -> Window:
        """The window on `array`."""
        with self._lock:
            known = self._kept.get(id(array))
            if known is not None and known[0]() is array:
                self._kept.move_to_end(id(array))
                return known[1]
            for key in [key for key, (held, _) in self._kept.items() if held() is None]:
                del self._kept[key]
            found = Window(array)
            self._kept[id(array)] = (weakref.ref(array), found)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
            return found


WINDOWS = Windows()


def difference(array: Array, other: Array) -> Array:
    """`array` minus `other` in double precision, for the comparison of two runs."""
    if values.is_text(array) or values.is_text(other):
        raise Refusal("texts cannot be subtracted; only numbers are compared.", "wrong-dtype", argument="against")
    if array.shape != other.shape:
        raise Refusal(f"the other run has shape {list(other.shape)} here, this one {list(array.shape)}; only results "
                      "of one shape are compared.", "wrong-shape", argument="against")  # fmt: skip
    left, right = values.plain(array), values.plain(other)
    kind = np.complex128 if "c" in (left.dtype.kind, right.dtype.kind) else np.float64
    with np.errstate(all="ignore"):
        return np.asarray(left.astype(kind) - right.astype(kind))


# What can be asked for: each takes the window and the checked fields of the request


def window(on: Window, given: Given) -> dict[str, Any]:
    """Some rows and columns, number by number, in the order of a column or as they are."""
    rows, columns = on.shape
    first = min(given["column"], max(columns - 1, 0))
    last = min(first + min(given["columns"], MOST_COLUMNS), columns)
    start = min(given["start"], rows)
    ids, part = on.slice(start, min(given["count"], MOST_WINDOW), by=given["sort"], descending=given["descending"],
                         columns=(first, last))  # fmt: skip
    return {
        "rows": rows,
        "columns": columns,
        "start": start,
        "column": first,
        "ids": [int(row) for row in ids],
        "cells": cells(part if values.is_text(part) else values.plain(part)),
    }


def find(on: Window, given: Given) -> dict[str, Any]:
    """Where a row stands (`row`), or the next row after `after` that holds a value (`value`), and then from the top."""
    row = given["row"]
    if row is None:
        wanted = _wanted(on, given["value"] or "")
        found = on.find(wanted, after=given["after"], most=1)
        found = found if len(found) else on.find(wanted, most=1)
        if not len(found):
            return {"row": None, "position": None}
        row = int(found[0])
    if row >= on.shape[0]:
        raise Refusal(f"there is no row {row}; there are rows 0 to {on.shape[0] - 1}.", "bad-request", argument="row",
                      value=row)  # fmt: skip
    if given["sort"] is None:
        return {"row": row, "position": row}
    order = on.order(given["sort"], descending=given["descending"])
    return {"row": row, "position": int(np.flatnonzero(order == row)[0])}


def _wanted(on: Window, typed: str) -> Any:
    if values.is_text(on.matrix):
        return typed
    text = typed.strip().replace("−", "-")
    kind = values.plain(on.matrix[:1]).dtype.kind
    for read in (int, float, complex) if kind == "c" else (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    raise Refusal(f"{text[:50]!r} is not a number; search for a number, nan or inf.", "bad-request", argument="value",
                  value=text[:100])  # fmt: skip


def region(on: Window, given: Given) -> dict[str, Any]:
    """A region as a heat-map: means of tiles, or the elements themselves where there are few enough."""
    _need_numbers(on, "a heat-map")
    top, bottom = _range(given["down"], on.shape[0])
    left, right = _range(given["across"], on.shape[1])
    shown = heat(on.matrix[top:bottom, left:right], min(max(given["most"], 1), MOST_TILES))
    return {"top": top, "bottom": bottom, "left": left, "right": right, "heat": shown}


def _range(given: Any, size: int) -> tuple[int, int]:
    first, last = given if given is not None else (0, size)
    first = min(first, size - 1)
    return first, min(max(last, first + 1), size)


def histogram(on: Window, given: Given) -> dict[str, Any]:
    """How often values are in each of equal ranges; what is not finite is counted apart."""
    _need_numbers(on, "a histogram")
    counts = on.counts(given["of"])
    found = on.histogram(min(max(given["bins"], 1), 200), column=given["of"])
    is_any = counts.least is not None
    return {
        "counts": [int(count) for count in found.counts] if is_any else [],
        "edges": [float(edge) for edge in found.edges] if is_any else [],
        "elements": counts.elements,
        "nans": counts.nan,
        "above": counts.positive_infinity,
        "below": counts.negative_infinity,
        "zeros": counts.zeros,
        "least": counts.least,
        "largest": counts.largest,
        "mean": counts.mean,
    }


def series(on: Window, given: Given) -> dict[str, Any]:
    """Columns as series of at most `MOST_POINTS` rows, taken evenly."""
    _need_numbers(on, "a plot")
    rows, columns = on.shape
    wanted = given["series"] if given["series"] is not None else [0]
    for column in wanted:
        if column >= columns:
            raise Refusal(f"there is no column {column}; there are columns 0 to {columns - 1}.", "bad-request",
                          argument="series", value=column)  # fmt: skip
    ids = np.arange(rows) if rows <= MOST_POINTS else np.arange(MOST_POINTS) * rows // MOST_POINTS
    return {
        "ids": [int(row) for row in ids],
        "columns": list(wanted),
        "values": [[_finite(item) for item in values.plain(on.matrix[ids, column])] for column in wanted],
    }


def projection(on: Window, given: Given) -> dict[str, Any]:
    """Rows projected onto their two principal components, with the `labels` that belong to them."""
    _need_numbers(on, "a projection")
    if min(on.shape) < 2:
        raise Refusal("a projection needs a matrix of at least two rows and two columns.", "wrong-shape")
    found = on.project(2, most=MOST_POINTS)
    labels: Array | None = given["labels"]
    return {
        "ids": [int(row) for row in found.rows],
        "points": [[float(f"{x:.6g}"), float(f"{y:.6g}")] for x, y in found.points],
        "labels": None if labels is None else [_label(labels, int(row)) for row in found.rows],
        "shares": [float(share) for share in found.shares],
        "rows": on.shape[0],
        "left_out": found.left_out,
    }


def _label(labels: Array, row: int) -> str:
    if row >= labels.size:
        return ""
    text = values.element(labels.reshape(-1)[row])
    return text[1:-1] if text.startswith('"') else text


def _need_numbers(on: Window, what: str) -> None:
    if values.is_text(on.matrix):
        raise Refusal(f"texts cannot be shown as {what}; look at them as a table.", "wrong-dtype")
    if not on.matrix.size:
        raise Refusal("the array has no elements.", "no-elements")


def _finite(number: Any) -> float | None:
    size: Any = abs(number) if isinstance(number, complex | np.complexfloating) else number
    return float(f"{float(size):.6g}") if np.isfinite(size) else None


LOOKS: dict[str, Callable[[Window, Given], dict[str, Any]]] = {
    "window": window,
    "find": find,
    "region": region,
    "histogram": histogram,
    "series": series,
    "projection": projection,
}
NUMBERS = {"start": 0, "count": 60, "column": 0, "columns": 16, "sort": None, "row": None, "after": 0, "of": None,
           "bins": 40, "most": 64}  # fmt: skip
LISTS = ("down", "across", "series")


def asked(query: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a request, as numbers; anything wrong is refused by name."""
    given: dict[str, Any] = {name: number(name, query[name]) if name in query else default
                             for name, default in NUMBERS.items()}  # fmt: skip
    for name in LISTS:
        given[name] = [number(name, part) for part in query[name].split(",")] if query.get(name) else None
    for name in ("down", "across"):
        if given[name] is not None and len(given[name]) != 2:
            raise Refusal(f"{name} must be two whole numbers, as 0,100.", "bad-request", argument=name)
    return given | {"descending": query.get("descending") == "true", "value": query.get("value")}


def number(name: str, text: str) -> int:
    """A whole number of a request."""
    if not text.isdecimal() or len(text) > 18:
        raise Refusal(f"{name} must be a whole number from 0.", "bad-request", argument=name, value=text[:100])
    return int(text)
