"""Numbers as trees of the arithmetic that made them: entries of inputs, sums, products, choices.

A tree says in which order numbers are added and where they are rounded, so that working it out again (`work_out`) gives
the same bits as the operator.
"""

import ctypes
import ctypes.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import BFLOAT16

SHORT = 8  # terms of a sum that are written out
quiet = np.errstate(all="ignore")


@dataclass(frozen=True, slots=True)
class Place:
    """An element of an input; `part` tells which of the arrays of a pin that takes many."""

    input: str
    index: tuple[int, ...]
    value: Any
    part: int | None = None


@dataclass(frozen=True, eq=False)
class Term:
    """A number and how it came about.

    `kind` is ``"entry"`` (an element of an input, `place`), ``"number"`` (see `text`), ``"sum"``, ``"difference"``,
    ``"product"``, ``"quotient"``, ``"choice"`` (the largest or smallest, by `rule`), ``"rounded"`` or ``"function"``
    (`text` says of what). `dtype` is the type that it is worked out in; with `rounds`, each step is rounded to that
    type. A sum `from_zero` begins with +0. `because` are the ids that brought an entry here.
    """

    kind: str
    value: Any
    terms: "tuple[Term, ...]" = ()
    dtype: Any = None
    place: Place | None = None
    because: tuple[Place, ...] = ()
    text: str = ""
    rule: str = ""
    rounds: Any = None
    from_zero: bool = False
    derivative: float | None = None

    def totals(self) -> list[Any]:
        """The partial results of a sum or product, after each of its terms."""
        return _partial(self, [term.value for term in self.terms])


def accumulator(dtype: Any) -> Any:
    """The type that numbers of `dtype` are added up in."""
    return np.dtype(np.float32) if dtype == np.float16 or dtype == BFLOAT16 else np.dtype(dtype)


# Making terms


def number(value: Any, dtype: Any, text: str = "") -> Term:
    """A number that is no element of an input."""
    with np.errstate(all="ignore"):
        return Term("number", np.asarray(value).astype(dtype)[()], dtype=np.dtype(dtype), text=text)


def combine(kind: str, terms: Sequence[Term], dtype: Any, **fields: Any) -> Term:
    """A sum, product, quotient, difference or choice of terms, from left to right."""
    made = Term(kind, None, tuple(terms), np.dtype(dtype), **fields)
    return replace(made, value=_fold(made, [term.value for term in terms]))


def add_up(terms: Sequence[Term], dtype: Any, **fields: Any) -> Term:
    """The sum of terms; one term is itself, unless it is added to +0."""
    if len(terms) == 1 and not fields.get("from_zero"):
        return terms[0]
    return combine("sum", terms, dtype, **fields)


def rounded(term: Term, dtype: Any) -> Term:
    """`term`, rounded to `dtype`, where that is another type than the one it was worked out in."""
    if np.asarray(term.value).dtype == dtype:
        return term
    with np.errstate(all="ignore"):
        return Term("rounded", np.asarray(term.value).astype(dtype)[()], (term,), np.dtype(dtype))


def function(text: str, value: Any, terms: Sequence[Term] = (), dtype: Any = None) -> Term:
    """A value that is no sum or product of terms; `text` says what it is."""
    return Term("function", value, tuple(terms), dtype, text=text)


def exponential(term: Term) -> Term:
    """e to the power of `term`."""
    return Term("function", _exp(term.value), (term,), term.dtype, text="exp", rule="exp")


# Working out


def work_out(term: Term) -> Any:
    """The value of `term`, computed again from its entries and numbers alone."""
    done: dict[int, Any] = {}
    stack = [(term, False)]
    while stack:
        at, is_ready = stack.pop()
        if not at.terms or (at.kind == "function" and not at.rule):
            done[id(at)] = at.value
        elif is_ready:
            done[id(at)] = _again(at, [done[id(part)] for part in at.terms])
        else:
            stack.append((at, True))
            stack += [(part, False) for part in at.terms if id(part) not in done]
    return done[id(term)]


def _again(term: Term, values: list[Any]) -> Any:
    if term.kind == "rounded":
        with np.errstate(all="ignore"):
            return np.asarray(values[0]).astype(term.dtype)[()]
    if term.kind == "function":
        return _exp(values[0])
    return _fold(term, values)


def _fold(term: Term, values: Sequence[Any]) -> Any:
    found = _partial(term, values)
    return found[-1] if found else None


@quiet
def _partial(term: Term, values: Sequence[Any]) -> list[Any]:
    """The results after each of the values."""
    found: list[Any] = []
    total = None
    kind = term.dtype.type
    is_plain = term.kind == "sum" and term.rounds is None and term.dtype.kind in "fiu"
    for value in values:
        is_ready = is_plain and total is not None and type(value) is kind  # both are of one type already
        total = total + value if is_ready else _step(term, total, value)
        found.append(total)
    return found


def _step(term: Term, total: Any, value: Any) -> Any:
    value = np.asarray(value).astype(term.dtype)
    if total is None:
        total = np.zeros((), term.dtype) + value if term.from_zero else value
    else:
        total = _STEPS[term.kind](np.asarray(total).astype(term.dtype), value, term.rule)
    if term.rounds is not None:
        return np.asarray(total).astype(term.rounds)[()]
    return np.asarray(total).astype(term.dtype)[()]


def _product(left: Any, right: Any, rule: str) -> Any:
    if np.asarray(left).dtype.kind != "c":
        return left * right
    found = np.empty((), left.dtype)
    found.real = left.real * right.real - left.imag * right.imag
    found.imag = left.real * right.imag + left.imag * right.real
    return found


def _quotient(left: Any, right: Any, rule: str) -> Any:
    kind = np.asarray(left).dtype.kind
    if kind in "iu":  # cut towards 0, and wrapped as the machine does
        x, y = int(left), int(right)
        cut = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return np.asarray(cut % 2 ** (8 * left.dtype.itemsize), np.uint64).astype(left.dtype)
    if kind == "c" and rule == "real":
        found = np.empty((), left.dtype)
        found.real, found.imag = left.real / right.real, left.imag / right.real
        return found
    return left / right


# Which of two numbers is taken: what is equal, and what is no number, is decided by the order.
_CHOICES: dict[str, Callable[[Any, Any], Any]] = {
    "larger, the later of equals": lambda left, right: np.where(right < left, left, right),
    "larger, the earlier of equals": lambda left, right: np.where(left < right, right, left),
    "smaller, the later of equals": lambda left, right: np.where(left < right, left, right),
    "smaller, the earlier of equals": lambda left, right: np.where(right < left, right, left),
    "largest, the first of equals, NaN first": lambda left, right: np.where(
        (right > left) | ((right != right) & (left == left)), right, left
    ),
    "larger, the first of equals, NaN first": lambda left, right: np.where(
        (left != left) | ((right == right) & (left >= right)), left, right
    ),
    "larger, the second of equals, NaN first": lambda left, right: np.where(
        (left != left) | ((right == right) & (left > right)), left, right
    ),
    "smaller, the first of equals, NaN first": lambda left, right: np.where(
        (left != left) | ((right == right) & (left <= right)), left, right
    ),
    "smaller, the second of equals, NaN first": lambda left, right: np.where(
        (left != left) | ((right == right) & (left < right)), left, right
    ),
}
_STEPS: dict[str, Callable[[Any, Any, str], Any]] = {
    "sum": lambda left, right, _: left + right,
    "difference": lambda left, right, _: left - right,
    "product": _product,
    "quotient": _quotient,
    "choice": lambda left, right, rule: _CHOICES[rule](left, right),
}


@cache
def _exponentials() -> Any:
    """The C library's, which kernels use; NumPy has its own, which rounds otherwise."""
    name = ctypes.util.find_library("m")
    if name is None:
        return None
    library = ctypes.CDLL(name)
    for function, kind in ((library.exp, ctypes.c_double), (library.expf, ctypes.c_float)):
        function.argtypes, function.restype = [kind], kind
    return library


def _exp(value: Any) -> Any:
    library, dtype = _exponentials(), np.asarray(value).dtype
    if library is None:
        return np.exp(value)
    found = library.exp(float(value)) if dtype == np.float64 else library.expf(float(value))
    return dtype.type(found)


# As text


def written(term: Term, show: Callable[[Term], str], outer: str = "") -> str:
    """`term` as a formula; `show` writes entries and numbers."""
    if term.kind in ("entry", "number"):
        return show(term)
    if term.kind == "rounded":
        return written(term.terms[0], show, outer)
    if term.kind == "function" and not term.rule:
        return term.text
    parts = list(term.terms)
    own = {"sum": " + ", "difference": " − ", "product": " · ", "quotient": " / "}.get(term.kind)
    few = parts if len(parts) <= SHORT else [*parts[: SHORT - 2], None, parts[-1]]
    texts = ["…" if part is None else written(part, show, term.kind) for part in few]
    if own is None:
        name = term.text if term.kind == "function" else "max" if term.rule.startswith("large") else "min"
        return f"{name}({', '.join(texts)})"
    text = own.join(texts)
    needs = len(parts) > 1 and outer not in ("", "choice", "function") and not (
        term.kind == "product" and outer in ("sum", "difference", "product")
    )  # fmt: skip
    return f"({text})" if needs else text


def plain(value: Any) -> Any:
    """`value` as JSON holds it; what JSON has no numbers for are texts, as are complex numbers."""
    item = value.item() if isinstance(value, np.generic | np.ndarray) else value
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    if isinstance(item, complex):
        return str(item)
    if isinstance(item, float) and not np.isfinite(item):
        return "NaN" if item != item else "Infinity" if item > 0 else "-Infinity"
    if isinstance(item, bool | int | float | str) or item is None:
        return item
    return float(item)  # bfloat16


def type_name(dtype: Any) -> str | None:
    """The name of the type, as the catalogue spells it."""
    return None if dtype is None else dtypes.name_of(np.dtype(dtype))
