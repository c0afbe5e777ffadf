"""Attributes: the settings of operators that are no arrays, and how what a caller gives is checked."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from rowgrad._ops.catalogue import REQUIRED, Attribute, Operator
from rowgrad._runtime import dtypes, texts
from rowgrad.errors import InvalidArgumentError

WHAT = {
    "bool": "True or False",
    "int": "a whole number",
    "float": "a number",
    "text": "a text",
    "dtype": "the name of a type, such as 'float32'",
    "shape": "a list of sizes: whole numbers, names for unknown ones",
    "list": "a list of whole numbers or texts",
    "numbers": "a list of numbers",
    "value": "a literal",
}
LISTS = (list, tuple, np.ndarray)  # to write them as a union would make it anew in each call
PLAIN_ITEMS = frozenset({int, str})
PLAIN = {"bool": bool, "int": int, "float": float}  # what is of this type has its plain form


def check_attributes(operator: Operator, given: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a call: those `given`, checked and in their plain form, and the defaults of the others."""
    checked, used = {}, 0
    for attribute in operator.attributes:
        name, default = attribute.name, attribute.default
        if name in given:
            used += 1
            value = given[name]
            if type(value) is not PLAIN.get(attribute.kind) and (value is not None or default is not None):
                value = check_attribute(operator, attribute, value)
        else:
            value = default
        if value is REQUIRED:
            _check_known(operator, given)  # it may have been misspelt
            raise _wrong(operator, name, None, f"{name} is missing; give {WHAT[attribute.kind]}.")
        checked[name] = value
    if used < len(given):
        _check_known(operator, given)
    return checked


def _check_known(operator: Operator, given: Mapping[str, Any]) -> None:
    known = [attribute.name for attribute in operator.attributes]
    for name in given:
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise _wrong(
                operator, name, given[name], f"{name} is not an attribute of {operator.name}; it has: {allowed}."
            )


def check_attribute(operator: Operator, attribute: Attribute, value: Any) -> Any:
    """What is given for one attribute, in its plain form."""
    match attribute.kind:
        case "bool" if isinstance(value, bool | np.bool_):
            return bool(value)
        case "int" if isinstance(value, int | np.integer) and not isinstance(value, bool):
            return int(value)
        case "float" if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
            return float(value)
        case "text" if isinstance(value, str):
            texts.check(value, attribute.name)
            return value
        case "dtype" if value is not None:
            return _dtype_name(operator, attribute, value)
        case "shape" if isinstance(value, list | tuple) and all(map(_is_size, value)):
            return tuple(size if isinstance(size, str) else int(size) for size in value)
        case "list" if isinstance(value, LISTS) and _is_plain_list(value):
            return [item if isinstance(item, str) else int(item) for item in value]
        case "numbers" if isinstance(value, LISTS) and _is_list_of_numbers(value):
            return [float(str(np.float32(item))) for item in value]  # what float32 keeps of them, in few digits
        case "value":
            return value
    raise _wrong(operator, attribute.name, value, f"{attribute.name} is {value!r}; it must be {WHAT[attribute.kind]}.")


def _is_plain_list(items: Any) -> bool:
    return PLAIN_ITEMS.issuperset(map(type, items)) or all(
        isinstance(item, int | np.integer | str) and not isinstance(item, bool) for item in items
    )


def _is_list_of_numbers(items: Any) -> bool:
    kinds = int | float | np.integer | np.floating
    return all(isinstance(item, kinds) and not isinstance(item, bool) and np.isfinite(item) for item in items)


def _is_size(size: Any) -> bool:
    if isinstance(size, str):
        return size.isidentifier()
    return isinstance(size, int | np.integer) and not isinstance(size, bool) and int(size) >= 0


def _dtype_name(operator: Operator, attribute: Attribute, value: Any) -> str:
    """Names and NumPy's dtypes are taken; the operator's `types` may allow fewer than there are."""
    name = value if isinstance(value, str) else repr(value)
    if not isinstance(value, str | list | tuple | dict):  # NumPy would read the others as types with fields
        with suppress(TypeError):
            name = dtypes.name_of(np.dtype(value))
    allowed = operator.types.get(attribute.name, (*dtypes.NUMPY, "string"))
    if name not in allowed:
        raise _wrong(operator, attribute.name, value, f"{attribute.name} is {name}; allowed: {', '.join(allowed)}.")
    return name


def _wrong(operator: Operator, name: str, value: Any, message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, code="wrong-attribute", argument=name, value=value, op=operator.name)
