"""Gradients of a page against finite differences.

The page is rebuilt in float64 with what is fed and kept in the session, up to the output in question, so that what is
compared are the rules and the wiring, not the rounding of float32.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad._ops.results import RowGradient
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.blocks.literals import Literal
from rowgrad.blocks.model import Block, Wire
from rowgrad.blocks.page import Page

if TYPE_CHECKING:
    from rowgrad.blocks._session import Session

MOST_ELEMENTS = 200  # of one array; of larger ones so many are chosen at random
STEP = 1e-5
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Difference:
    """One element of a gradient: by the rules, and by finite differences."""

    x: str
    position: tuple[int, ...]
    analytic: float
    numeric: float

    @property
    def error(self) -> float:
        """How far apart they are, relative to the larger, or to 1."""
        scale = max(1.0, abs(self.analytic), abs(self.numeric))
        difference = abs(self.analytic - self.numeric)
        return difference / scale if np.isfinite(difference) else float("inf")

    def __str__(self) -> str:
        place = f"[{', '.join(map(str, self.position))}]" if self.position else ""
        return f"{self.x}{place}: {self.analytic:.9g} by the rules, {self.numeric:.9g} by differences"


@dataclass(frozen=True)
class GradientCheck:
    """The outcome: whether all agree, how many elements were compared, and the worst of them."""

    ok: bool
    checked: int
    worst: Difference | None

    def __str__(self) -> str:
        verdict = "agree" if self.ok else "DISAGREE"
        worst = f"; the worst is {self.worst} (error {self.worst.error:.2g})" if self.worst else ""
        return f"{self.checked} elements {verdict}{worst}"


def check_gradients(
    session: "Session", y: Any, xs: list[Any], *, step: float = STEP, tolerance: float = TOLERANCE, seed: int = 0
) -> GradientCheck:
    """Compare the gradients of `y` to each of `xs` with central differences.

    Parameters
    ----------
    session : Session
        Whose page, feeds and variables are taken.
    y, xs : outputs
        As for `Page.add_gradients`; an output `y` of several elements is weighted at random.
    step, tolerance : float
        Of the differences, and the error that is let pass, relative to the larger value or to 1.
    seed : int
        For the weights, and for the elements of large arrays that are compared.

    Returns
    -------
    GradientCheck
    """
    source = session.page.wire(y)
    differences = []
    for x in xs:
        differences += _compare(session, source, session.page.wire(x), step, np.random.default_rng(seed))
    worst = max(differences, key=lambda difference: difference.error, default=None)
    return GradientCheck(worst is None or worst.error <= tolerance, len(differences), worst)


def _compare(session: "Session", y: Wire, x: Wire, step: float, rng: np.random.Generator) -> list[Difference]:
    from rowgrad.blocks._session import Session

    page, probe, source, copied = _in_double(session, y, x)
    trial = Session(page)
    feeds = {id: _wide(array) for id, array in session.feeds.items() if id in page}
    # What is at the probe comes from the page itself.
    value = np.array(trial.run(source, feeds).raise_first()[str(source)])
    shape = trial.run(copied, {probe.block: value}).raise_first()[str(copied)].shape
    weights = rng.standard_normal(shape)
    loss = page.add("ReduceSum", input=page.add("Mul", x=copied, y=weights), axis=list(range(len(shape))))["output"]
    (gradient,) = page.add_gradients(loss, [probe]).values()

    def run(at: Array, fetch: Any) -> Any:
        return trial.run([str(fetch)], {probe.block: at}).raise_first()[str(fetch)]

    analytic = _dense(gradient, value, run)
    differences = []
    for flat in _chosen(value.size, rng):
        position = tuple(int(i) for i in np.unravel_index(flat, value.shape))
        sides = []
        for sign in (1, -1):
            moved = value.copy()
            moved[position] += sign * step * max(1.0, abs(value[position]))
            sides.append((float(run(moved, loss)), float(moved[position])))
        numeric = (sides[0][0] - sides[1][0]) / (sides[0][1] - sides[1][1])
        differences.append(Difference(str(x), position, float(analytic[position]), numeric))
    return differences


def _dense(gradient: Any, value: Array, run: Any) -> Array:
    if not isinstance(gradient, RowGradient):
        return np.asarray(run(value, gradient))
    dense = np.zeros_like(value)
    dense[run(value, gradient.sorted_unique_indices)] = run(value, gradient.output)
    return dense


def _chosen(size: int, rng: np.random.Generator) -> Any:
    return range(size) if size <= MOST_ELEMENTS else rng.choice(size, MOST_ELEMENTS, replace=False)


def _in_double(session: "Session", y: Wire, x: Wire) -> tuple[Page, Wire, Wire, Wire]:
    """The part of the page that `y` needs, in float64, with a placeholder where `x` is used; and all three there."""
    source = session.page
    page = Page(source.name, folder=source.folder)
    needed = {y.block, x.block}
    for id in reversed(source.order()):
        if id in needed:
            needed.update(wire.block for _, wire in source[id].wires())
    signal = source.signal(x)
    name = "probe"
    while name in source:
        name += "_"
    # Sizes that only running tells have the names of their blocks, which are not to be given to others.
    shape = signal.shape and [size if _is_given(size) else f"{name}_{axis}" for axis, size in enumerate(signal.shape)]
    probe = page.add("Placeholder", name, dtype="float64", shape=shape)["output"]
    copies: dict[Wire, Wire] = {}
    for id in source.order():
        block = source[id]
        if id in needed and block.operator.role in ("file", "restore"):
            (pin,) = block.operator.outputs
            value = session.run(id).raise_first()[id][pin.name]
            held = page.add("Const", id, value=np.array(_wide(value)))["output"]
            copies[Wire(id, pin.name)] = held
        elif id in needed and block.operator.role == "batches":
            for pin, value in session.run(id).raise_first()[id].outputs.items():
                held = page.add("Const", value=np.array(_wide(value)))["output"]
                copies[Wire(id, pin)] = held
        elif id in needed:
            _copy(session, block, page, {**copies, x: probe})
    return page, probe, copies.get(x, x), probe if y == x else copies.get(y, y)


def _is_given(size: int | str | None) -> bool:
    return isinstance(size, int) or (size is not None and size.isidentifier())


def _copy(session: "Session", block: Block, page: Page, instead: dict[Wire, Wire]) -> None:
    inferred = session.page.inferred(block.id)
    given: dict[str, Any] = {}
    for pin, source in block.inputs.items():
        items: list[Wire | Literal] = []
        for position, item in enumerate(block.sources(pin)):
            if isinstance(item, Wire):
                items.append(instead.get(item, item))
            else:
                array = _wide(inferred.literals[pin, position])
                items.append(Literal(array, dtypes.name_of(array.dtype)))
        given[pin] = items if isinstance(source, tuple) else items[0]
    if block.operator.role == "variable" and block.id in session.variables:
        given["initial_value"] = np.array(_wide(session.variables[block.id]))
    for attribute in block.operator.attributes:
        value = inferred.attributes[attribute.name]
        if attribute.kind == "dtype" and value in dtypes.FLOATS:
            value = "float64"
        if attribute.kind == "value":
            value = np.array(_wide(session.page.constant(block.id)))
            given.pop("dtype", None)
        if value is not None and not (attribute.name == "dtype" and "value" in given):
            given[attribute.name] = value
    page.add(block.op, block.id, **given)


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if dtypes.name_of(array.dtype) in dtypes.FLOATS else array
