"""Pins: what an operator takes and gives, and how a caller's value is made to fit.

What fits is passed on as it is. What a caller would expect to be converted is, where nothing is lost: lists, smaller
integers, other byte orders. Everything else is refused by name.

Shapes are written as users read them: ``[N]``, ``[S, ...]``, ``[]``. The same letter is the same size everywhere in
an operator; the name of a scalar input (``[output_dim0, ...]``) is its value; ``dense_shape[0]`` is an element.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rowgrad._runtime import arrays, dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.memory import check_room
from rowgrad._runtime.text_columns import are_text
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfRangeError, RowgradError

INT64_MAX = 2**63 - 1
DEEPEST = 64  # NumPy has no arrays of more dimensions
# The kinds of types that a number written in Python may take, by its own kind.
WRITTEN_AS = {"i": "iufc", "u": "iufc", "f": "fc", "c": "c"}
SEQUENCES = (list, tuple)
UNTYPED = (list, tuple, bool, int, float, complex, str, bytes)


@dataclass(frozen=True)
class Pin:
    """One input or output: `dtype` is a type's name, or a variable that the operator's `types` spell out.

    `many` pins take a list of arrays, one after the other; those that are `mixed` take any number of them, each of a
    type of its own. Objects are passed on `unread` where the operator tells itself whether they are text.
    """

    name: str
    dtype: str
    shape: str
    doc: str
    many: bool = False
    mixed: bool = False
    unread: bool = False


class Input:
    """An input pin together with the types it takes; `fit` makes an ndarray of what a caller passes."""

    __slots__ = ("allowed", "is_count", "is_ids", "names", "pin")

    def __init__(self, pin: Pin, names: tuple[str, ...]) -> None:
        self.pin = pin
        self.names = names
        self.allowed = frozenset(dtypes.NUMPY[name] for name in names if name != "string")
        self.is_ids = set(names) <= set(dtypes.IDS)
        self.is_count = self.is_ids and pin.shape == "[]"

    def fit(self, value: Any, bound: "np.dtype[Any] | None" = None) -> Any:
        """`value` as an ndarray of a type this pin takes (a single whole number stays an int).

        `bound` is the type that an earlier pin of the same type variable has settled.
        """
        if self.is_count and type(value) is int:
            return self._in_64_bits(value)
        if type(value) is np.ndarray:
            array, untyped = value, False
        elif isinstance(value, np.generic) and value.dtype in self.allowed:
            array, untyped = np.array(value), False
        else:
            array, untyped = self._adopt(value), arrays.kind_of(value) is None and is_untyped(value)
        if untyped and self.is_ids and array.dtype.kind != "b" and _holds_bool(value):
            raise self._wrong_dtype(np.empty(0, bool))  # NumPy makes a 1 of a True among numbers
        if untyped or array.dtype not in self.allowed or (bound is not None and array.dtype != bound):
            check_room(array.size * 8, self.pin.name)
            array = self._convert(array, untyped, bound)
        if not array.flags.carray:
            if not array.flags.c_contiguous:
                check_room(array.nbytes, self.pin.name)
            array = arrays.settle(array)
        if self.is_count and array.ndim == 0:
            return int(array)
        return array

    def fits_as_they_are(self, values: Any) -> bool:
        """Whether a list of arrays can be passed on; this pin takes none."""
        return False

    def _adopt(self, value: Any) -> Array:
        array = arrays.adopt_as(self.pin.name, value)
        if array.dtype.kind in "SU" and is_untyped(value):
            # NumPy cuts zeros off the ends of texts of one width.
            texts = np.array(value, object)
            if any(text[-1:] in ("\0", b"\0") for text in texts.flat if isinstance(text, str | bytes)):
                return texts
        return array

    def _convert(self, array: Array, untyped: bool, bound: "np.dtype[Any] | None") -> Array:
        if bound is not None and not (self.is_ids and array.dtype.kind == "b"):
            return self._convert_to(array, untyped, bound)
        if self.is_ids:
            return self._convert_ids(array, untyped)
        if "string" in self.names and ((self.pin.unread and array.dtype.kind == "O") or _is_text(array)):
            return array
        if untyped:
            return self._convert_untyped(array)
        native = array.dtype if array.dtype.kind == "T" else array.dtype.newbyteorder("=")
        if native in self.allowed:
            return array.astype(native)
        raise self._wrong_dtype(array)

    def _convert_ids(self, array: Array, untyped: bool) -> Array:
        narrow = dtypes.NUMPY[self.names[0]]
        if untyped and array.size == 0:
            return array.astype(narrow)
        if array.dtype.kind not in "iu":
            raise self._wrong_dtype(array)
        if array.dtype == np.uint64 and array.size and array.max() > INT64_MAX:
            raise self._past_64_bits(int(array.argmax()), int(array.max()))
        if np.can_cast(array.dtype, narrow) or (untyped and _fits(array, narrow)):
            # Lists of ids are int32, as in TensorFlow, unless they need more.
            return array.astype(narrow)
        return array.astype(np.int64)

    def _convert_untyped(self, array: Array) -> Array:
        """Lists get the types they have in TensorFlow: whole numbers int32, others float32."""
        kind = array.dtype.kind
        if array.size == 0:
            candidates = ("float32", *self.names)
        elif kind in "iu":
            candidates = ("int32", "int64", "uint64", "float32", "float64")
        else:
            candidates = {"f": ("float32",), "c": ("complex128",), "b": ("bool",)}.get(kind, ())
        for name in candidates:
            if name in self.names and name != "string":
                with np.errstate(over="ignore"):
                    converted = array.astype(dtypes.NUMPY[name])
                if kind in "fc" and not np.array_equal(np.isinf(converted), np.isinf(array)):
                    raise self._too_large(array, name)
                if kind not in "iu" or np.array_equal(converted.astype(object), array.astype(object)):
                    return converted
        raise self._wrong_dtype(array)

    def _convert_to(self, array: Array, untyped: bool, bound: "np.dtype[Any]") -> Array:
        """A second value of the same type variable: exact, or a number written in Python that rounds to it."""
        if bound.kind in "USOT" and _is_text(array):
            return array
        if np.can_cast(array.dtype.newbyteorder("="), bound, "safe") or (untyped and array.size == 0):
            return array.astype(bound)
        if untyped and ("f" if bound == dtypes.BFLOAT16 else bound.kind) in WRITTEN_AS.get(array.dtype.kind, ""):
            with np.errstate(over="ignore"):
                converted = array.astype(bound)
            if np.array_equal(np.isinf(converted), np.isinf(array)) and (
                array.dtype.kind in "fc" or np.array_equal(converted.astype(object), array.astype(object))
            ):
                return converted
        raise DTypeError(
            f"{self.pin.name} is {_described(array)}, which {dtypes.name_of(bound)} cannot hold exactly; "
            f"it must have the type of the values. Convert it first.",
            code="wrong-dtype",
            argument=self.pin.name,
            value=dtypes.name_of(array.dtype),
        )

    def _wrong_dtype(self, array: Array) -> DTypeError:
        return DTypeError(
            f"{self.pin.name} is {_described(array)}; allowed: {', '.join(self.names)}. Convert it first.",
            code="wrong-dtype",
            argument=self.pin.name,
            value=dtypes.name_of(array.dtype),
        )

    def _too_large(self, array: Array, name: str) -> OutOfRangeError:
        largest = array.flat[int(np.argmax(np.abs(array)))]
        return OutOfRangeError(
            f"{self.pin.name} has {largest!s} in it, which is too large for {name}. Give it as an array of float64.",
            code="too-large",
            argument=self.pin.name,
            value=largest,
        )

    def _in_64_bits(self, value: int) -> int:
        if not -INT64_MAX - 1 <= value <= INT64_MAX:
            raise self._past_64_bits(None, value)
        return value

    def _past_64_bits(self, position: int | None, value: int) -> OutOfRangeError:
        where = self.pin.name if position is None else f"{self.pin.name}[{position}]"
        return OutOfRangeError(
            f"{where} is {value}, outside the range of 64-bit integers. Use a smaller number.",
            code="index-out-of-range",
            argument=self.pin.name,
            position=position,
            value=value,
        )


class ManyInputs(Input):
    """A pin that takes a list of arrays, all of one type."""

    __slots__ = ()

    def fit(self, value: Any, bound: "np.dtype[Any] | None" = None) -> tuple[Array, ...]:
        """Each of the arrays as `Input` makes it; numbers written in Python take the type of the others."""
        if (as_they_are := self._as_they_are(value, bound)) is not None:
            return as_they_are
        if not isinstance(value, list | tuple) or not value:
            raise InvalidArgumentError(
                f"{self.pin.name} must be a list of one or more arrays.",
                code="not-a-list",
                argument=self.pin.name,
                value=type(value).__name__,
            )
        typed = [item for item in value if not is_untyped(item)]
        if bound is None:
            bound = super().fit(typed[0] if typed else value[0]).dtype
        return tuple(super(ManyInputs, self).fit(item, bound) for item in value)

    def fits_as_they_are(self, values: Any) -> bool:
        """Whether they are arrays that nothing is to be done to."""
        return self._as_they_are(values, None) is not None

    def _as_they_are(self, values: Any, bound: "np.dtype[Any] | None") -> tuple[Array, ...] | None:
        """The arrays, if nothing is to be done to any of them."""
        if type(values) not in SEQUENCES or not values or type(values[0]) is not np.ndarray:
            return None
        dtype = bound or values[0].dtype
        if dtype not in self.allowed:
            return None
        for value in values:
            if type(value) is not np.ndarray or value.dtype is not dtype or not value.flags.carray:
                return None
        return tuple(values)


class MixedInputs(ManyInputs):
    """A pin that takes a list of arrays, each of any type that it takes; the list may be empty."""

    __slots__ = ()

    def fit(self, value: Any, bound: "np.dtype[Any] | None" = None) -> tuple[Array, ...]:
        """Each of the arrays as `Input` makes it."""
        if not isinstance(value, list | tuple):
            raise InvalidArgumentError(
                f"{self.pin.name} must be a list of arrays.",
                code="not-a-list",
                argument=self.pin.name,
                value=type(value).__name__,
            )
        return tuple(Input.fit(self, item) for item in value)

    def fits_as_they_are(self, values: Any) -> bool:
        """Whether they are arrays that nothing is to be done to."""
        if type(values) not in SEQUENCES:
            return False
        for value in values:
            if type(value) is not np.ndarray or value.dtype not in self.allowed or not value.flags.carray:
                return False
        return True


def fit_out(value: Any) -> Array:
    """The ndarray that shares memory with `out`, the array a caller wants the result in."""
    kind = arrays.kind_of(value)
    if kind is None or kind in (arrays.JAX, arrays.TENSORFLOW):
        raise DTypeError(
            f"out is a {type(value).__name__}, which cannot be written to. Pass a NumPy array or a PyTorch tensor.",
            code="bad-out",
            argument="out",
            value=type(value).__name__,
        )
    try:
        array = kind.adopt(value)
    except RowgradError as error:
        error.argument = "out"
        error.message = f"out: {error.message}"
        raise
    if not array.flags.carray:
        raise InvalidArgumentError(
            "out is read-only, not contiguous or not aligned; results are written row after row. Pass a new array.",
            code="bad-out",
            argument="out",
        )
    return array


def _fits(array: Array, dtype: "np.dtype[Any]") -> bool:
    limits = np.iinfo(dtype)
    return limits.min <= int(array.min()) and int(array.max()) <= limits.max


def _described(array: Array) -> str:
    if array.dtype.kind == "O" and array.size:
        odd = next((x for x in array.flat if not isinstance(x, str | bytes)), array.flat[0])
        return f"of objects ({type(odd).__name__})"
    return dtypes.name_of(array.dtype)


def _is_text(array: Array) -> bool:
    return are_text(array) if array.dtype.kind == "O" else array.dtype.kind in "UST"


def _holds_bool(value: Any) -> bool:
    """Whether there is a boolean in nested lists; they are known to be nested evenly."""
    if isinstance(value, list | tuple):
        kinds = set(map(type, value))
        return any(map(_holds_bool, value)) if kinds & {list, tuple} else bool(kinds & {bool, np.bool_})
    return isinstance(value, bool | np.bool_)


def is_untyped(value: Any) -> bool:
    """Whether `value` is made of Python's own lists and numbers, which carry no type of their own."""
    for _ in range(DEEPEST):  # a list may hold itself
        if not isinstance(value, SEQUENCES) or not value:
            break
        value = value[0]
    return isinstance(value, UNTYPED) and not isinstance(value, np.generic)
