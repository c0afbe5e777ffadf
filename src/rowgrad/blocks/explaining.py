"""Why this number? The chain of a page that made an element of a result, entry by entry, and where it goes on to.

`explain` tells of one element: the entries of the inputs that made it, with factors and partial sums, in the order in
which they were added up. Each entry knows the output that it came from, so that the chain can be followed through the
forward and the backward half of a page. `uses` looks the other way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad.blocks import values
from rowgrad.blocks._explain import Call, Term, explain_element
from rowgrad.blocks._explain.calls import run
from rowgrad.blocks._explain.orders import START
from rowgrad.blocks._explain.terms import Place, plain, type_name, work_out, written
from rowgrad.blocks.batches import ROWS
from rowgrad.blocks.model import Block, Wire
from rowgrad.blocks.results import DONE
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfRangeError, PageError, RowgradError

if TYPE_CHECKING:
    from rowgrad.blocks._session import Session

MOST_PARTS = 200  # that `to_dict` writes
MOST_CHAIN = 100  # explanations of one chain
MOST_PROBED = 1 << 22  # elements of an operator's inputs that `uses` looks through


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a result of the page."""

    block: str
    pin: str
    index: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.block}:{self.pin}[{', '.join(map(str, self.index))}]"


@dataclass(frozen=True, eq=False)
class Part:
    """One entry of a number: an element of an input, what it is multiplied with, and the sum so far.

    `source` is the element of the page that it is, or None for a literal. `because` are the ids that brought it here,
    each with its source. `is_chosen` marks the one that a largest or smallest value is. `derivative` is told where the
    number is a function of the entry, not a sum.
    """

    place: Place
    source: Element | None
    because: tuple[tuple[Place, Element | None], ...] = ()
    factor: Any = None
    factor_text: str = ""
    product: Any = None
    total: Any = None
    is_chosen: bool | None = None
    derivative: float | None = None

    @property
    def name(self) -> str:
        """The entry as a formula writes it: ``grad[0, 1]``."""
        return _name(self.place)

    def to_dict(self) -> dict[str, Any]:
        """The part for JSON."""
        found: dict[str, Any] = {**_place(self.place, self.source), "name": self.name}
        found["because"] = [_place(place, source) for place, source in self.because]
        if self.product is not None:
            found |= {"factor": plain(self.factor), "factor_text": self.factor_text, "product": plain(self.product)}
        if self.total is not None:
            found["total"] = plain(self.total)
        if self.is_chosen is not None:
            found["is_chosen"] = self.is_chosen
        if self.derivative is not None:
            found["derivative"] = plain(self.derivative)
        return found


@dataclass(frozen=True, eq=False)
class Explanation:
    """An element of a result, and how it was computed.

    `term` is the tree of the arithmetic; `parts` are its entries in order. `formula` has their names, `numbers` their
    values, and `reason` explains in words if there is nothing to add up.
    """

    element: Element
    op: str
    value: Any
    dtype: str
    term: Term
    parts: tuple[Part, ...]
    formula: str
    numbers: str
    reason: str
    _session: "Session" = field(repr=False)

    def back(self, part: int = 0) -> "Explanation | None":
        """The explanation of a part, which is itself an element; None for a literal."""
        if not isinstance(part, int | np.integer) or not -len(self.parts) <= part < len(self.parts):
            raise OutOfRangeError(
                f"part is {part!r}, and there are {len(self.parts)} parts; give one of 0 to {len(self.parts) - 1}.",
                code="out-of-range", argument="part", value=part,
            )  # fmt: skip
        source = self.parts[part].source
        return None if source is None else explain(self._session, f"{source.block}:{source.pin}", source.index)

    def chain(self, depth: int = 10) -> "list[Explanation]":
        """This explanation and those of its parts, up to `depth` steps back, each element once."""
        _check_count("depth", depth)
        found = {self.element: self}
        row = [self]
        for _ in range(depth):
            if not row:
                break
            row = [
                found.setdefault(source, explain(self._session, f"{source.block}:{source.pin}", source.index))
                for source in dict.fromkeys(part.source for one in row for part in one.parts)
                if source is not None and source not in found and len(found) < MOST_CHAIN
            ]
        return list(found.values())

    def work_out(self) -> Any:
        """Compute the number again from the entries alone; it equals `value` bit for bit."""
        return work_out(self.term)

    def to_dict(self, most: int = MOST_PARTS) -> dict[str, Any]:
        """The explanation for JSON, with at most `most` of its parts."""
        _check_count("most", most)
        return {
            "block": self.element.block,
            "pin": self.element.pin,
            "index": list(self.element.index),
            "op": self.op,
            "value": plain(self.value),
            "dtype": self.dtype,
            "computed_in": type_name(_inner(self.term).dtype),
            "formula": self.formula,
            "numbers": self.numbers,
            "reason": self.reason,
            "parts": [part.to_dict() for part in self.parts[:most]],
            "left_out": max(len(self.parts) - most, 0),
        }

    def _repr_html_(self) -> str:
        from rowgrad.blocks._notebook import explanation_html

        return explanation_html(self)

    def __str__(self) -> str:
        lines = [f"{self.element} = {values.element(self.value)}", f"  {self.formula}", f"  {self.numbers}"]
        return "\n".join(lines + ([f"  {self.reason}"] if self.reason else []))


def explain(session: "Session", output: "str | Wire | Block", index: int | Sequence[int] = ()) -> Explanation:
    """Explain how an element of a result was computed.

    Parameters
    ----------
    session : Session
        A session that has run the block.
    output : output
        ``"block:pin"``, or ``"block"`` where it has one output.
    index : int or ints
        Which element.

    Returns
    -------
    Explanation

    Raises
    ------
    PageError
        The block has not run, or something it depends on has changed since: run the page again.
    OutOfRangeError
        The result has no such element.

    Examples
    --------
    >>> from rowgrad.blocks import Page, Session, explain
    >>> page = Page()
    >>> _ = page.add("SparseSegmentMeanGrad", id="d_table", grad=[[4.0], [6.0]], indices=[2, 0, 2],
    ...              segment_ids=[0, 0, 1], output_dim0=3)
    >>> session = Session(page)
    >>> _ = session.run()
    >>> print(explain(session, "d_table:output", (2, 0)))
    d_table:output[2, 0] = 8
      output[2, 0] = grad[0, 0] · 1/2 + grad[1, 0] · 1/1
      8 = 4 · 0.5 + 6 · 1
    """
    _check_session(session)
    with session._looking():
        page = session._seen
        wire = page.wire(output)
        block = page[wire.block]
        result = session.results()[block.id]
        if result.status != DONE:
            raise PageError(f"it has no results to explain: {result.reason}. Run it first.", block=block.id,
                            pin=wire.pin, code=result.status)  # fmt: skip
        if result.stale:
            raise PageError("the page has changed since it ran. Run it again.", block=block.id, pin=wire.pin,
                            code="stale")  # fmt: skip
        array = result[wire.pin]
        place = _checked(array, index, wire)
        term = _term(session, block, wire.pin, place, result.outputs)
        parts = tuple(_parts(term, lambda at: _source(block, at)))
    names = f"{wire.pin}[{', '.join(map(str, place))}]" if place else wire.pin
    reason = _inner(term).text if not parts or _inner(term).kind == "function" else ""
    value = array[place]
    return Explanation(
        Element(block.id, wire.pin, place), block.op, value, str(type_name(array.dtype)), term, parts,
        f"{names} = {written(term, _symbol)}", _in_numbers(value, term), reason, session,
    )  # fmt: skip


def uses(
    session: "Session", output: "str | Wire | Block", index: int | Sequence[int] = (), most: int = 100
) -> list[Element]:
    """The elements of results that directly depend on an element, found by following a NaN placed there.

    Only floating-point numbers are followed; elements that do not change a result, such as one that is not the largest
    of a segment, are left out.
    """
    found: list[Element] = []
    _check_session(session)
    _check_count("most", most)
    with session._looking():
        wire = session._seen.wire(output)
        results = session.results()
        array = results[wire.block][wire.pin]
        place = _checked(array, index, wire)
        if array.dtype.kind not in "fcV":
            return []
        marked = np.array(array)
        marked[place] = np.nan
        for block in session._seen:
            is_ready = block.operator.role == "operator" and results[block.id].status == DONE
            if not is_ready or results[block.id].stale or all(wire != other for _, other in block.wires()):
                continue
            for element in _reached(session, block, wire, marked, results[block.id].outputs):
                found.append(element)
                if len(found) >= most:
                    return found
    return found


def _reached(session: "Session", block: Block, wire: Wire, marked: Any, outputs: Any) -> Iterator[Element]:
    inputs = dict(zip((pin.name for pin in block.operator.inputs), session._inputs(block), strict=True))
    if sum(np.size(each) for value in inputs.values() for each in (value if isinstance(value, list) else [value])) > (
        MOST_PROBED
    ):
        return
    for pin in block.operator.inputs:
        found = [marked if source == wire else value for source, value in
                 zip(block.sources(pin.name), _each(inputs[pin.name]), strict=True)]  # fmt: skip
        inputs[pin.name] = found if pin.many else found[0]
    try:
        results = run(block.operator, inputs, session._seen.inferred(block.id).attributes)
    except RowgradError:
        return
    for name, after in results.items():
        before = outputs[name]
        if after.dtype.kind not in "fcV" or after.shape != before.shape:
            continue
        for place in np.argwhere((after != after) & (before == before)):
            yield Element(block.id, name, tuple(int(i) for i in place))


# Inside


def _each(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _check_session(session: Any) -> None:
    from rowgrad.blocks._session import Session

    if not isinstance(session, Session):
        raise DTypeError(
            f"session is a {type(session).__name__}; pass the Session that ran the page.",
            code="wrong-dtype", argument="session", value=type(session).__name__,
        )  # fmt: skip


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0:
        raise InvalidArgumentError(
            f"{name} is {value!r}; it must be a whole number, 0 or more.",
            code="wrong-argument", argument=name, value=value,
        )  # fmt: skip


def _checked(array: Any, index: int | Sequence[int], wire: Wire) -> tuple[int, ...]:
    several: Any = index
    is_several = isinstance(index, Sequence) or (isinstance(index, np.ndarray) and index.ndim == 1)
    given: tuple[Any, ...] = tuple(several) if is_several and not isinstance(index, str) else (index,)
    shape = array.shape
    if len(given) != len(shape) or not all(
        isinstance(i, int | np.integer) and not isinstance(i, bool) and 0 <= i < size
        for i, size in zip(given, shape, strict=True)
    ):
        raise OutOfRangeError(
            f"index is {list(given)}, and {wire} has shape {list(shape)}; give one whole number for each axis, from 0 "
            "to its size less one.", code="out-of-range", argument="index", value=given,
        )  # fmt: skip
    return tuple(int(i) for i in given)


def _term(session: "Session", block: Block, pin: str, place: tuple[int, ...], outputs: Any) -> Term:
    operator = block.operator
    if operator.role not in ("operator", "map"):
        return Term("function", outputs[pin][place], text=_given(block, pin, place, outputs))
    inputs = {
        name: value if isinstance(value, list) else np.asarray(value)
        for name, value in zip((pin.name for pin in operator.inputs), session._inputs(block), strict=True)
    }
    call = Call(operator, inputs, outputs, session._seen.inferred(block.id).attributes)
    if operator.role == "map":
        return Term("function", outputs[pin][place], text="kept in a map of the session")
    return explain_element(call, pin, place)


def _given(block: Block, pin: str, place: tuple[int, ...], outputs: Any) -> str:
    """What holds a value that nothing on the page has computed."""
    role = block.operator.role
    if role == "batches":
        if pin in block.attributes.get("columns", ()) and pin not in (block.attributes.get("ragged") or ()):
            return f"column {pin} of example {int(outputs[ROWS][place[0]])}"
        return f"{pin} of this batch"
    return {
        "const": "a constant",
        "placeholder": "fed to the session",
        "variable": f"the variable {block.id}, as it was at the beginning of the step",
        "file": f"read from {block.attributes.get('path')}",
        "restore": "read from a file",
    }.get(role, block.operator.summary)


def _source(block: Block, place: Place) -> Element | None:
    source = block.sources(place.input)[place.part or 0]
    return Element(source.block, source.pin, place.index) if isinstance(source, Wire) else None


def _inner(term: Term) -> Term:
    return term.terms[0] if term.kind == "rounded" else term


def _parts(term: Term, source: Any) -> Iterator[Part]:
    """The entries of a tree in order."""
    stack: list[tuple[Term, Any, dict[str, Any]]] = [(term, None, {})]
    while stack:
        at, total, fields = stack.pop()
        if at.place is not None or at.because:
            because = tuple((id, source(id)) for id in at.because)
            entry = at.place if at.place is not None else at.because[0]
            if at.place is None:
                fields = {"factor": at.value, "factor_text": "counts as", "product": at.value, **fields}
            yield Part(entry, source(entry), because if at.place is not None else (), total=total,
                       derivative=at.derivative, **fields)  # fmt: skip
        elif at.kind == "sum":
            pairs = zip(at.terms, at.totals(), strict=True)
            stack += [(part, partial, {}) for part, partial in list(pairs)[::-1]]
        elif at.kind == "product" and len(at.terms) == 2 and at.terms[0].kind == "entry":
            first, other = at.terms
            fields = {"factor": other.value, "factor_text": written(other, _symbol), "product": at.value}
            if other.kind not in ("number", "rounded"):
                stack.append((other, None, {}))
            stack.append((first, total, fields))
        elif at.kind == "choice":
            taken = [np.asarray(part.value).tobytes() == np.asarray(at.value).astype(
                np.asarray(part.value).dtype).tobytes() for part in at.terms]  # fmt: skip
            winner = taken.index(True) if True in taken else -1
            stack += [(part, None, {"is_chosen": i == winner} if part.place else {})
                      for i, part in list(enumerate(at.terms))[::-1]]  # fmt: skip
        else:
            stack += [(part, total if at.kind == "rounded" else None, {}) for part in at.terms[::-1]]


def _in_numbers(value: Any, term: Term) -> str:
    if _inner(term).kind == "function" and not _inner(term).rule:
        return values.element(value)
    return f"{values.element(value)} = {written(term, _digits)}"


def _name(place: Place) -> str:
    part = "" if place.part is None else f"[{place.part}]"
    return f"{place.input}{part}[{', '.join(map(str, place.index))}]" if place.index else place.input + part


def _place(place: Place, source: Element | None) -> dict[str, Any]:
    return {
        "input": place.input,
        "part": place.part,
        "index": list(place.index),
        "value": plain(place.value),
        "source": None if source is None else {"block": source.block, "pin": source.pin, "index": list(source.index)},
    }


def _symbol(term: Term) -> str:
    if term.place is not None:
        return _name(term.place)
    return term.text if term.text and term.text[0] in "1234567890√" else _digits(term)


def _digits(term: Term) -> str:
    return "0" if term.text == START and term.value == 0 else values.element(term.value)
