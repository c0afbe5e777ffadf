"""Arrays, calls and names as Python would have them written: for scripts that people read.

Lines are broken where ruff and black break them. An array is spelled as nested lists where these give the same bits
again, and as the base64 of its bytes where they do not or would go on for pages.
"""

import base64
import builtins
import keyword
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import BFLOAT16, Array
from rowgrad.blocks.literals import plain

WIDTH = 120
MOST_SPELLED = 1024  # elements; larger arrays are written as base64
UNPACK = "unpack"  # the function of the script that reads base64
LINE = 108  # characters of base64 on a line: 81 bytes
RESERVED = frozenset(keyword.kwlist) | frozenset(keyword.softkwlist) | frozenset(dir(builtins))


class Group(NamedTuple):
    """An expression in brackets: a call, or a collection."""

    opening: str
    items: tuple["str | Group", ...]
    closing: str

    @property
    def is_call(self) -> bool:
        """Collections that are too long for a line have one item on each; the arguments of calls may share one."""
        return self.opening.endswith("(")

    def __str__(self) -> str:
        return f"{self.opening}{', '.join(map(str, self.items))}{self.closing}"


Expression = str | Group


def call(function: str, *arguments: Expression) -> Group:
    """A call of `function`."""
    return Group(f"{function}(", arguments, ")")


def listed(items: Iterable[Expression]) -> Group:
    """A list."""
    return Group("[", tuple(items), "]")


def mapped(items: Iterable[tuple[Expression, Expression]]) -> Group:
    """A dictionary."""
    return Group("{", tuple(labelled(f"{key}: ", value) for key, value in items), "}")


def labelled(label: str, value: Expression) -> Expression:
    """``name=value``, ``key: value`` and the like: `value` with something in front."""
    return f"{label}{value}" if isinstance(value, str) else value._replace(opening=f"{label}{value.opening}")


def lines_of(statement: Expression, indent: int = 0) -> list[str]:
    """The lines of a statement; one that the formatters would tear apart is marked so that they do not."""
    lines, filled = _broken(statement, indent, 0)
    if filled:
        lines[-1] += "  # fmt: skip"
    return lines


def _broken(part: Expression, indent: int, after: int) -> tuple[list[str], bool]:
    """The lines of `part`, which `after` more characters will follow; and whether any was filled by hand."""
    margin, whole = " " * indent, str(part)
    if isinstance(part, str) or not part.items or indent + len(whole) + after <= WIDTH:
        return [margin + whole], False
    inner = whole[len(part.opening) : -len(part.closing)]
    if part.is_call and indent + 4 + len(inner) <= WIDTH:
        return [margin + part.opening, f"{margin}    {inner}", margin + part.closing], False
    if not part.is_call and all(isinstance(item, str) and len(item) < 30 and ":" not in item for item in part.items):
        return _filled(part, indent), True
    lines, filled = [], False
    for item in part.items:
        inside, inside_filled = _broken(item, indent + 4, 1)
        lines += [*inside[:-1], f"{inside[-1]},"]
        filled |= inside_filled
    return [margin + part.opening, *lines, margin + part.closing], filled


def _filled(part: Group, indent: int) -> list[str]:
    """Many numbers, as many on each line as there is room for."""
    lines = [" " * indent + part.opening]
    for item in part.items:
        if len(lines[-1]) + len(str(item)) + 3 > WIDTH:
            lines.append(" " * (indent + len(part.opening)))
        lines[-1] += f"{item}, "
    return [line.rstrip() for line in [*lines[:-1], f"{lines[-1][:-2]}{part.closing}"]]


# Names


class Names:
    """Names for blocks: valid, unique, and of nothing that Python or the script needs."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = {*RESERVED, *taken}

    def name(self, text: str, op: str = "") -> str:
        """A new name like `text`; what is called after its operator is called like a function."""
        if op and re.fullmatch(rf"{op}(_\d+)?", text):
            text = snake(text)
        wanted = re.sub(r"\W", "_", text).strip("_") or "block"
        if wanted[0].isdigit():
            wanted = f"block_{wanted}"
        name, number = (f"{wanted}_" if wanted in RESERVED else wanted), 1
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name


def snake(name: str) -> str:
    """``SparseSegmentSqrtN_1`` as ``sparse_segment_sqrt_n_1``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


# Arrays


def array_text(array: Array) -> Expression:
    """An expression for `array`, with its type."""
    base, view = array, ""
    if array.dtype.names:  # quantised values: NumPy writes them as whole numbers in a field
        (name,) = array.dtype.names
        base, view = array[name], f'.view([("{name}", "{array[name].dtype.str[1:]}")])'
    if base.size == 0:
        return Group("np.empty(", (str(array.shape), dtype_text(base.dtype)), f"){view}")
    if base.dtype.kind in "OUST" or base.size <= MOST_SPELLED:
        values = values_of(base)
        if base.dtype.kind in "OUST" or same_bits(np.array(values, base.dtype), base):
            return Group("np.array(", (spelled(values), dtype_text(base.dtype)), f"){view}")
    text = base64.b64encode(np.ascontiguousarray(base).tobytes()).decode()
    lines = [f'"{text[start : start + LINE]}"' for start in range(0, len(text), LINE)]
    return Group(f"{UNPACK}(", (dtype_text(base.dtype), str(array.shape), *lines), f"){view}")


def dtype_text(dtype: "np.dtype[Any]") -> str:
    """An expression for `dtype`."""
    if dtype == BFLOAT16:
        return "ml_dtypes.bfloat16"
    if dtype.kind == "T":
        return "np.dtypes.StringDType()"
    if dtype.kind in "US":
        return f'"{dtype.str}"'
    return {"O": "object", "b": "bool"}.get(dtype.kind) or f"np.{dtypes.name_of(dtype)}"


def values_of(array: Array) -> Any:
    """Nested lists of Python's own values, with the fewest digits that give the same numbers again."""
    if array.dtype.kind in "cOUST":
        return array.tolist()
    odd = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
    is_float = array.dtype.kind == "f" or array.dtype == BFLOAT16

    def proper(value: Any) -> Any:
        if isinstance(value, list):
            return [proper(item) for item in value]
        return odd[value] if isinstance(value, str) else float(value) if is_float else value

    return proper(plain(array))


def spelled(value: Any) -> Expression:
    """Numbers, texts and nested lists of them."""
    if isinstance(value, list | tuple):
        return listed(spelled(item) for item in value)
    if isinstance(value, str | bytes):
        return _quoted(value)
    if isinstance(value, complex):
        return str(value) if _is_usual(value) else f"complex({spelled(value.real)}, {spelled(value.imag)})"
    if isinstance(value, float) and not np.isfinite(value):
        return "np.nan" if np.isnan(value) else "np.inf" if value > 0 else "-np.inf"
    return repr(value)


def _is_usual(value: complex) -> bool:
    """Whether ``1+2j`` gives `value` again; signs of zeros are lost in the sum, infinities make it NaN."""
    return bool(np.isfinite(value)) and all(part != 0 or not np.signbit(part) for part in (value.real, value.imag))


def _quoted(value: str | bytes) -> str:
    text = repr(value)
    if '"' in text or "\\" in text:
        return text
    return text.replace("'", '"')


def same_bits(left: Array, right: Array) -> bool:
    """Whether two arrays are the same, to the last bit."""
    if (left.dtype, left.shape) != (right.dtype, right.shape):
        return False
    if left.dtype.kind in "OT":
        return bool(left.tolist() == right.tolist())
    return np.ascontiguousarray(left).tobytes() == np.ascontiguousarray(right).tobytes()
