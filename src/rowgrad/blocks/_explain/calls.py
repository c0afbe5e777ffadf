"""One call of an operator, as explainers see it: its arrays, and what is common to many operators.

An explainer takes a `Call`, the name of an output and an index, and gives the tree of the element there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rowgrad._ops import Operator
from rowgrad._runtime.dtypes import IDS, NUMPY, Array
from rowgrad.blocks._explain.terms import Place, Term, accumulator, combine, function, number
from rowgrad.errors import PageError

MOST_ENTRIES = 50_000  # that one number may be made of, to be explained
LABELS = ("int64", "float64", "int32", "float32")


@dataclass(frozen=True)
class Call:
    """A call: arrays by the names of pins (lists of arrays where a pin takes many), and attributes."""

    operator: Operator
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Array]
    attributes: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.inputs[name]

    def place(self, name: str, index: Sequence[int], part: int | None = None) -> Place:
        """An element of an input."""
        array = self.inputs[name] if part is None else self.inputs[name][part]
        where = tuple(int(i) for i in index)
        return Place(name, where, np.asarray(array)[where], part)

    def entry(self, name: str, index: Sequence[int], because: Iterable[tuple[str, Any]] = (),
              part: int | None = None) -> Term:  # fmt: skip
        """An element of an input as a term; `because` are names and indices of the ids that brought it here."""
        place = self.place(name, index, part)
        ids = tuple(self.place(id, where if isinstance(where, tuple) else (int(where),)) for id, where in because)
        return Term("entry", place.value, dtype=np.asarray(place.value).dtype, place=place, because=ids)

    def width(self, name: str) -> Any:
        """The type that sums of an input are made in."""
        return accumulator(self.inputs[name].dtype)


Explainer = Callable[[Call, str, tuple[int, ...]], Term]


def members(mask: Array) -> list[int]:
    """The positions of the entries that belong together."""
    found = np.flatnonzero(mask)
    check_few(len(found))
    return [int(i) for i in found]


def check_few(count: int) -> None:
    """Refuse what is made of too many numbers to be told one by one."""
    if count > MOST_ENTRIES:
        raise PageError(f"this number is made of {count} entries; up to {MOST_ENTRIES} can be explained.",
                        code="too-large", value=count)  # fmt: skip


def nothing(dtype: Any, why: str, value: Any = 0) -> Term:
    """The value of an element that no entry reaches."""
    return number(value, dtype, why)


# What only moves values


def moved(*names: str) -> Explainer:
    """Of an operator that moves elements of these inputs: found by letting it move their numbers instead."""

    def explain(call: Call, pin: str, index: tuple[int, ...]) -> Term:
        found = origin(call, names, pin, index)
        dtype = call.outputs[pin].dtype
        if found is None:
            return nothing(dtype, "no entry comes here", call.outputs[pin][index])
        name, part, where = found
        return call.entry(name, where, ids_of(call, name, where) if part is None else (), part)

    return explain


def origin(
    call: Call, names: Sequence[str], pin: str, index: tuple[int, ...]
) -> tuple[str, int | None, tuple[int, ...]] | None:
    """Which element of which of the inputs `names` an operator has moved to `index` of `pin`; None for none of them."""
    pins = {input.name: input for input in call.operator.inputs}
    kind = next(label for label in LABELS if label in call.operator.dtypes_of(pins[names[0]]))
    at, spans = 1, []
    given = dict(call.inputs)
    for name in names:
        arrays = call.inputs[name] if pins[name].many else [call.inputs[name]]
        labels = []
        for part, array in enumerate(arrays):
            shape, size = np.shape(array), int(np.size(array))
            labels.append(np.arange(at, at + size).astype(NUMPY[kind]).reshape(shape))
            spans.append((at, at + size, name, part if pins[name].many else None, shape))
            at += size
        given[name] = labels if pins[name].many else labels[0]
    label = int(run(call.operator, given, call.attributes)[pin][index])
    for begin, end, name, which, shape in spans:
        if begin <= label < end:
            return name, which, tuple(int(i) for i in np.unravel_index(label - begin, shape))
    return None


def run(operator: Operator, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Array]:
    """The results of a call by the names of the outputs."""
    results = operator(*(inputs[pin.name] for pin in operator.inputs), **attributes)
    found = results if operator.result is not None else (results,)
    return dict(zip((pin.name for pin in operator.outputs), map(np.asarray, found), strict=True))


def ids_of(call: Call, name: str, index: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    """The ids that belong to an entry: rows of inputs that have as many rows by their declaration."""
    pins = {pin.name: pin for pin in call.operator.inputs}
    if not index or pins[name].shape.startswith("[..."):
        return []
    size = pins[name].shape[1:].partition(",")[0].rstrip("]")
    found: list[tuple[str, tuple[int, ...]]] = []
    for pin in call.operator.inputs:
        rows = pin.shape[1:].partition(",")[0].rstrip("]")
        if pin.name == name or pin.many or rows != size or not set(call.operator.dtypes_of(pin)) <= set(IDS):
            continue
        array = np.asarray(call.inputs[pin.name])
        if array.ndim == 1:
            found.append((pin.name, (index[0],)))
        elif array.ndim == 2:
            found += [(pin.name, (index[0], column)) for column in range(array.shape[1])]
    return found


def following(values: str, names: tuple[str, ...], ids: Mapping[str, str]) -> Explainer:
    """Of an output of ids that move with values: the ids of the entry that has moved there, shifted where they are.

    `values` is the output that the entries `names` go to, and `ids` the input that holds the ids of each of them.
    """

    def explain(call: Call, pin: str, index: tuple[int, ...]) -> Term:
        value = call.outputs[pin][index]
        found = origin(call, names, values, index[:1])
        if found is None or found[0] not in ids:
            return function("the row that was empty" if index[-1:] == (0,) else "a row that was empty", value)
        name, part, where = found
        entry = call.entry(ids[name], (where[0], *index[1:]), (), part)
        shift = int(value) - int(entry.value)
        if not shift:
            return entry
        return combine("sum", [entry, number(shift, np.int64, "shift")], np.int64)

    return explain


def whole(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    """Of what depends on all of the inputs, or on more of them than is told here."""
    names = ", ".join(input.name for input in call.operator.inputs) or "its attributes"
    return function(f"{call.operator.name} of {names}", call.outputs[pin][index])
