"""What is typed into a pin: numbers, texts and evenly nested lists, strict and, where a type is given, typed.

A literal without a type takes that of its pin when the page is checked. Values that JSON has no words for are written
as text in a typed literal: ``"NaN"``, ``"Infinity"``, ``"-Infinity"``, ``"1+2j"``.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rowgrad._runtime import arrays, dtypes, texts
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import PageError, RowgradError

DEEPEST = 32  # lists within lists; NumPy's own limit is not far beyond
ODD_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


@dataclass(frozen=True, eq=False)
class Literal:
    """A literal: an ndarray where `dtype` is given, else Python's own numbers and lists.

    `file` is the name of the file beside the page that holds it, for a large one.
    """

    value: Any
    dtype: str | None = None
    file: str | None = None

    def __post_init__(self) -> None:
        texts.check(self.value, "it", PageError)


def literal(value: Any, dtype: str | None = None) -> Literal:
    """A literal made of what a user has written or holds; errors name no block, the caller adds it."""
    if arrays.kind_of(value) is not None or isinstance(value, np.generic):
        array = _plain_array(_adopt(value))
        name = dtypes.name_of(array.dtype)
        if dtype is not None and dtype != name:
            return Literal(_frozen(typed(array.tolist(), dtype)), dtype)
        if name not in dtypes.NUMPY and name != "string":
            raise _wrong(f"it is of type {name}, which no pin takes.", value=name)
        return Literal(_frozen(np.array(array)), name)
    if dtype is not None:
        return Literal(_frozen(typed(value, dtype)), dtype)
    _, leaves = _flat(value)
    kinds = {_kind(leaf) for leaf in leaves}
    if len(kinds) > 1 and not kinds <= {"int", "float"}:
        raise _wrong(f"it mixes {' and '.join(sorted(kinds))} values; write one kind.")
    return Literal(_own(value))


def _adopt(value: Any) -> Array:
    try:
        return np.asarray(value) if isinstance(value, np.generic) else arrays.adopt(value)
    except RowgradError as error:
        raise _wrong(error.message, value=error.value) from error


def _plain_array(array: Array) -> Array:
    """`array` in the forms that pages know: this machine's byte order, and objects for texts of any kind."""
    if array.ndim > DEEPEST:
        raise _wrong(f"it has {array.ndim} dimensions; at most {DEEPEST} are allowed.", value=array.ndim)
    if array.dtype.kind in "UST":
        return array.astype(object)
    if array.dtype.kind == "O":
        for position, item in enumerate(array.flat):
            if not isinstance(item, str | bytes):
                raise _wrong(f"{_at(position, array.shape)}{_named(item)} is not text.", value=type(item).__name__)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _own(value: Any) -> Any:
    """A copy that nobody else can change, of lists, numbers of NumPy among them, as Python has them."""
    if isinstance(value, list | tuple):
        return [_own(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def fitting(value: Any) -> Any:
    """What is typed in, for a pin to fit: texts as objects, because NumPy's own texts lose NULs at their ends."""
    first = value
    while isinstance(first, list) and first:
        first = first[0]
    return typed(value, "string") if isinstance(first, str) else value


def typed(value: Any, dtype: str) -> Array:
    """Nested lists as an array of `dtype`: floating-point numbers may round, nothing else may change."""
    shape, leaves = _flat(value)
    if dtype == "string":
        for position, leaf in enumerate(leaves):
            if not isinstance(leaf, str):
                raise _wrong(f"{_at(position, shape)}{leaf!r} is not text.", value=leaf)
        return np.array(leaves, object).reshape(shape)
    target = dtypes.NUMPY[dtype]
    base = target[0] if target.names else target
    flat = np.empty(len(leaves), base)
    convert = _CONVERT["f" if base == dtypes.BFLOAT16 else base.kind]
    for position, leaf in enumerate(leaves):
        try:
            with np.errstate(over="ignore"):
                flat[position] = convert(leaf)
        except (TypeError, ValueError, OverflowError):
            raise _wrong(f"{_at(position, shape)}{leaf!r} cannot be {dtype}.", value=leaf) from None
        if base.kind not in "iub" and _became_infinite(leaf, flat[position]):
            raise _wrong(f"{_at(position, shape)}{leaf!r} is too large for {dtype}.", value=leaf)
    return flat.view(target).reshape(shape)


def _became_infinite(leaf: Any, stored: Any) -> bool:
    return isinstance(leaf, int | float) and bool(np.isinf(stored)) and abs(leaf) != float("inf")


def _float(leaf: Any) -> float:
    if isinstance(leaf, str):
        return ODD_NUMBERS[leaf] if leaf in ODD_NUMBERS else _refuse()
    return float(leaf) if isinstance(leaf, int | float) and not isinstance(leaf, bool) else _refuse()


def _complex(leaf: Any) -> complex:
    if isinstance(leaf, str | complex):
        return complex(leaf)
    return complex(_float(leaf))


def _bool(leaf: Any) -> bool:
    return leaf if isinstance(leaf, bool) else _refuse()


def _whole(leaf: Any) -> int:
    return leaf if isinstance(leaf, int) and not isinstance(leaf, bool) else _refuse()


def _refuse() -> Any:
    raise TypeError


_CONVERT: dict[str, Callable[[Any], Any]] = {"f": _float, "c": _complex, "b": _bool, "i": _whole, "u": _whole}


def _flat(value: Any) -> tuple[tuple[int, ...], list[Any]]:
    """The shape of nested lists and their leaves; uneven ones are refused, with the place."""
    shape: list[int] = []
    inner = value
    while isinstance(inner, list | tuple):
        if len(shape) == DEEPEST:
            raise _wrong(f"the lists are nested more than {DEEPEST} deep.")
        shape.append(len(inner))
        inner = inner[0] if inner else None
    leaves: list[Any] = []
    _collect(value, tuple(shape), (), leaves)
    return tuple(shape), leaves


def _collect(value: Any, shape: tuple[int, ...], place: tuple[int, ...], leaves: list[Any]) -> None:
    is_list = isinstance(value, list | tuple)
    if not shape:
        if is_list:
            raise _ragged(place, "a list where the others are single values")
        value = value.item() if isinstance(value, np.generic) else value
        if not isinstance(value, bool | int | float | complex | str):
            raise _wrong(
                f"{_place(place)}{_named(value)} is not a number, boolean or text.", value=type(value).__name__
            )
        leaves.append(value)
        return
    if not is_list:
        raise _ragged(place, "a single value where the others are lists")
    if len(value) != shape[0]:
        raise _ragged(place, f"a list of {len(value)} where the others have {shape[0]}")
    for position, item in enumerate(value):
        _collect(item, shape[1:], (*place, position), leaves)


def _ragged(place: tuple[int, ...], what: str) -> PageError:
    return _wrong(f"the lists are nested unevenly: at {_place(place)}there is {what}.", code="ragged", position=place)


def _kind(leaf: Any) -> str:
    return "text" if isinstance(leaf, str) else type(leaf).__name__


def _named(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"


def _place(place: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, place))}] " if place else ""


def _at(position: int, shape: tuple[int, ...]) -> str:
    return _place(tuple(int(i) for i in np.unravel_index(position, shape))) if shape else ""


def _wrong(message: str, *, code: str = "bad-literal", position: Any = None, value: Any = None) -> PageError:
    return PageError(message, code=code, position=position, value=value)


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


def odd_type(value: Any) -> str | None:
    """The type of a literal in which there is something that JSON has no words for; None if there is nothing."""
    if isinstance(value, list | tuple):
        found = {odd_type(item) for item in value}
        return "complex128" if "complex128" in found else "float32" if "float32" in found else None
    if isinstance(value, complex):
        return "complex128"
    return "float32" if isinstance(value, float) and not math.isfinite(value) else None


def plain(array: Array) -> Any:
    """`array` as nested lists that JSON can hold and that `typed` turns into the same bits again.

    What makes one NaN different from another is lost, and bytes become the text that they are as UTF-8, if they are.
    """
    if array.dtype.names:
        array = array[array.dtype.names[0]]
    if array.ndim:
        return [plain(item) for item in array] if array.ndim > 1 else [_leaf(item) for item in _items(array)]
    return _leaf(next(_items(array.reshape(1))))


def _items(array: Array) -> Iterator[Any]:
    return iter(array) if array.dtype.kind in "fcV" else iter(array.tolist())


def as_text(item: bytes) -> str:
    """Bytes as the text that they are as UTF-8."""
    try:
        return item.decode()
    except UnicodeDecodeError:
        shown = item if len(item) <= 40 else item[:37] + b"..."
        raise _wrong(f"{shown!r} is not UTF-8 text.", code="bad-text") from None


def _leaf(item: Any) -> Any:
    if isinstance(item, bytes):
        return as_text(item)
    if isinstance(item, bool | int | str):
        return item
    if isinstance(item, complex | np.complexfloating):
        return str(complex(item)).strip("()")
    with np.errstate(invalid="ignore"):
        number = float(item)
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    # The fewest digits that give this number again, also by way of a double.
    short = float(str(item))
    number = short if type(item)(short) == item else number
    return int(number) if number.is_integer() and abs(number) < 1e15 and str(number) != "-0.0" else number
