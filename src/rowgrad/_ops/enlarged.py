"""Worked examples made large, for what calls every operator of a catalogue: warming, attacks and measurements.

Each element is repeated along a named dimension (``[N]``, ``[S, …]``). Repeats keep ids in range and in order, so this
works for a new operator without a line written for it.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from rowgrad._ops.catalogue import Operator
from rowgrad._ops.pins import Input, Pin
from rowgrad._runtime import dtypes
from rowgrad.errors import InvalidArgumentError

NAMED = re.compile(r"\[([A-Z])[\],]")


def has_rows(pin: Pin) -> bool:
    """Whether the elements of `pin` are rows of any shape: a table, or a gradient of one."""
    return ", ..." in pin.shape


def entries(operator: Operator) -> int:
    """How many elements the largest dimension that `enlarged` repeats has in the worked example."""
    return max((len(operator.example.inputs[name]) for name in _letters(operator)), default=1)


def enlarged(operator: Operator, repeats: int, dtype: str | None = None, id_dtype: Any = None,
             width: int | None = None) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The arguments of the worked example, each element so many times.

    There are two forms: every named dimension is enlarged, or, as an operator may need some of them as they are (the
    rows of a matrix that is multiplied), those of the ids only. `first_accepted` takes the one that fits.

    `dtype` is that of the values, `id_dtype` of ids where they may have it, `width` the number of columns of rows.
    """
    arrays = {fitter.pin.name: _example(operator, fitter, dtype, id_dtype, width) for fitter in operator.fitters}
    letters = _letters(operator)
    of_ids = {letters[fitter.pin.name] for fitter in operator.fitters if fitter.is_ids and fitter.pin.name in letters}
    for grown in (set(letters.values()), of_ids):
        yield {
            name: np.repeat(array, repeats, axis=0) if letters.get(name) in grown else array
            for name, array in arrays.items()
        }


def backwards(operator: Operator, form: dict[str, Any]) -> dict[str, Any]:
    """The same entries, the last one first: in no order, where operators ask for none."""
    lists = {pin.name for pin in operator.inputs if pin.shape.startswith("[N") and not pin.many}
    return {name: array[::-1].copy() if name in lists else array for name, array in form.items()}


def first_accepted(call: Callable[[Any], Any], forms: Iterator[Any]) -> Any:
    """The first of the forms that the call accepts."""
    for form in forms:
        with suppress(InvalidArgumentError):
            call(form)
            return form
    raise AssertionError("the worked example cannot be enlarged so often")


def _letters(operator: Operator) -> dict[str, str]:
    """The named first dimension of each input that has one."""
    return {pin.name: found[1] for pin in operator.inputs if (found := NAMED.match(pin.shape)) and not pin.many}


def _example(operator: Operator, fitter: Input, dtype: str | None, id_dtype: Any, width: int | None) -> Any:
    value = operator.example.inputs[fitter.pin.name]
    if dtype is not None and fitter.pin.dtype == "T":
        value = [_in_type(part, dtype) for part in value] if fitter.pin.many else _in_type(value, dtype)
    fitted = fitter.fit(value)
    if fitter.pin.many:
        return list(fitted)
    if type(fitted) is int:  # a count has no type, so that ids of any type go with it
        return fitted
    if width is not None and has_rows(fitter.pin) and fitted.ndim > 1:
        fitted = np.repeat(fitted[:, :1], width, axis=1)
    takes = id_dtype is not None and fitter.is_ids and not fitter.is_count
    takes = takes and dtypes.name_of(np.dtype(id_dtype)) in fitter.names
    return np.array(fitted, id_dtype if takes else None)


def _in_type(value: Any, dtype: str) -> Any:
    if dtype == "string":
        return value
    target = dtypes.NUMPY[dtype]
    array = np.zeros(np.shape(value)) if np.array(value).dtype.kind == "U" else np.array(value)
    if target.names:  # quantised
        return array.astype(target[0]).view(target)
    return array.astype(target)
