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
    "value": "a literal",
}


def check_attributes(operator: Operator, given: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a call: those `given`, checked and in their plain form, and the defaults of the others."""
    known = {attribute.name: attribute for attribute in operator.attributes}
    for name in given:
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise _wrong(operator, name, given[name], f"{name} is no attribute of {operator.name}; it has: {allowed}.")
    checked = {}
    for attribute in operator.attributes:
        value = given.get(attribute.name, attribute.default)
        if value is REQUIRED:
            raise _wrong(operator, attribute.name, None, f"{attribute.name} is missing; give {WHAT[attribute.kind]}.")
        is_default = attribute.name not in given or (value is None and attribute.default is None)
        checked[attribute.name] = value if is_default else check_attribute(operator, attribute, value)
    return checked


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
        case "list" if isinstance(value, list | tuple | np.ndarray) and _is_plain_list(value):
            return [item if isinstance(item, str) else int(item) for item in value]
        case "value":
            return value
    raise _wrong(operator, attribute.name, value, f"{attribute.name} is {value!r}; it must be {WHAT[attribute.kind]}.")


def _is_plain_list(items: Any) -> bool:
    return all(isinstance(item, int | np.integer | str) and not isinstance(item, bool) for item in items)


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
