"""Values as they are typed on the command line: a file, or JSON, with an optional type in front.

`grad.npy`, `batch.npz:grad`, `log.parquet:ids`, `[[1, 2], [3, 4]]`, `float64:[1, 2]`, `bfloat16:grad.npy`.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from rowgrad._cli.problems import BAD_USAGE, Problem
from rowgrad._runtime import dtypes, files, texts
from rowgrad._runtime.dtypes import BFLOAT16, NUMPY, QUANTISED, Array
from rowgrad.errors import RowgradError

FORMS = "a file (x.npy, x.npz:member, x.parquet:column, x.csv:column) or JSON (5, '[1, 2]', '[\"a\", \"b\"]')"

_FILE = re.compile(r"(?P<path>.+?\.(?:npy|npz|parquet|csv))(?::(?P<part>.*))?", re.IGNORECASE | re.DOTALL)


def parse(text: str) -> Any:
    """The value that `text` stands for: an ndarray, or, for JSON without a type, the lists and numbers as written.

    Lists without a type are left to the operator, which types them as TensorFlow would.
    """
    before, colon, rest = text.partition(":")
    dtype = before.strip() if colon and before.strip() in (*NUMPY, "string") else None
    source = rest if dtype else text
    named = _FILE.fullmatch(source)
    if named is None:
        literal = _literal(source)
        return literal if dtype is None else _typed(_exact(literal), dtype, source)
    if named["part"] is not None and named["path"].lower().endswith(".npy"):
        raise Problem(f"{source}: an .npy file has no parts to name.", code=BAD_USAGE)
    array = files.read(Path(named["path"]), named["part"])
    if dtype is not None:
        return _typed(array, dtype, source)
    if array.dtype.type is np.void and array.dtype.names is None:
        raise Problem(
            f"{source} holds raw {array.dtype.itemsize}-byte items without a type.",
            f"if they are bfloat16, which NumPy's files do not know, write bfloat16:{source}",
        )
    return array


def _literal(text: str) -> Any:
    try:
        texts.check_json(text)
        value = json.loads(text, parse_float=_number)
        np.array(value)
        kinds = {type(item) for item in np.array(value, object).flat}
    except json.JSONDecodeError:
        hint = f"a string is written '\"{text}\"'." if re.fullmatch(r"[\w .+-]+", text) else ""
        raise Problem(f"{text!r} is not {FORMS}.", hint, code=BAD_USAGE) from None
    except RowgradError as error:
        raise Problem(f"{_short(text)}: {error.message}", code=BAD_USAGE) from None
    except (ValueError, RecursionError):
        raise Problem(f"{_short(text)}: the lists must be nested evenly.", code=BAD_USAGE) from None
    if not kinds <= {bool, int, float, str} or (str in kinds and len(kinds) > 1):
        raise Problem(f"{_short(text)}: numbers, booleans, or strings, and lists of them are allowed.", code=BAD_USAGE)
    return value


def _number(digits: str) -> float:
    number = float(digits)
    if np.isinf(number):
        raise Problem(f"{_short(digits)} is too large a number; infinity is written Infinity.", code=BAD_USAGE)
    return number


def _exact(literal: Any) -> Array:
    """A literal as an array; whole numbers stay Python's, lest those past 64 bits become floating-point ones."""
    objects = np.array(literal, object)
    return objects if _is_whole_numbers(objects) else np.array(literal)


def _typed(array: Array, name: str, source: str) -> Array:
    """`array` as the type `name`; floating-point numbers may round, nothing else may change."""
    if name == "string":
        if array.dtype.kind in "UST" or all(isinstance(item, str | bytes) for item in array.flat):
            return array
        raise _cannot(array, name, source, "it is not text")
    target = NUMPY[name]
    if array.dtype == target:
        return array
    if name in QUANTISED:
        base = np.dtype(target[0])
        return np.ascontiguousarray(_cast(array, base, name, source)).view(target)
    if target == BFLOAT16 and array.dtype in (np.dtype("V2"), np.dtype(np.uint16)):
        return np.ascontiguousarray(array).view(BFLOAT16)
    return _cast(array, target, name, source)


def _cast(array: Array, target: "np.dtype[Any]", name: str, source: str) -> Array:
    kind, wanted = array.dtype.kind, target.kind
    if array.size and array.dtype != BFLOAT16:
        is_text = kind in "USOT" and not _is_whole_numbers(array)
        # JSON has no complex numbers; as text, "1+2j", they can be written.
        if (is_text and wanted != "c") or kind == "V":
            raise _cannot(array, name, source, "it does not hold numbers")
        if kind == "c" and wanted != "c":
            raise _cannot(array, name, source, "the imaginary parts would be lost")
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            converted = array.astype(target)
    except OverflowError:
        raise _cannot(array, name, source, "a number is too large for it") from None
    except (ValueError, TypeError):
        raise _cannot(array, name, source, "it does not hold numbers") from None
    if wanted not in "iub" and kind not in "USOT" and np.isinf(converted).sum() > np.isinf(array).sum():
        raise _cannot(array, name, source, "a number is too large for it")
    if wanted in "iub" and not np.array_equal(converted.astype(object), array.astype(object)):
        position = int((converted.astype(object) != array.astype(object)).argmax())
        raise _cannot(array, name, source, f"{array.reshape(-1)[position]} would change")
    return converted


def _cannot(array: Array, name: str, source: str, why: str) -> Problem:
    was = "" if array.dtype.kind == "O" else f" is {dtypes.name_of(array.dtype)} and"
    return Problem(f"{_short(source)}{was} cannot be converted to {name}: {why}.")


def _is_whole_numbers(array: Array) -> bool:
    """Whether these are Python's whole numbers."""
    return array.dtype.kind == "O" and all(type(item) is int for item in array.flat)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
