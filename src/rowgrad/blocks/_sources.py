"""What users give for the pins and attributes of a block, as wires, literals and plain values."""

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad._ops import Operator, Pin
from rowgrad._ops.attributes import check_attribute
from rowgrad._ops.pins import Input
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.files import folder
from rowgrad.blocks.literals import Literal, fitting, literal, odd_type, plain, typed
from rowgrad.blocks.model import Block, Source, Wire
from rowgrad.errors import PageError, RowgradError

if TYPE_CHECKING:
    from rowgrad.blocks._looking import Looking

_ANYTHING = Input(Pin("value", "T", "[...]", "A constant."), (*dtypes.PLAIN, *dtypes.QUANTISED))


def sort_out(
    page: "Looking", id: str, operator: Operator, given: Mapping[str, Any]
) -> tuple[dict[str, Source], dict[str, Any]]:
    """What is given, as sources of input pins and as attributes."""
    pins = {pin.name: pin for pin in operator.inputs}
    known = {attribute.name: attribute for attribute in operator.attributes}
    inputs: dict[str, Source] = {}
    attributes: dict[str, Any] = {}
    for name, value in given.items():
        try:
            if name in pins and pins[name].many:
                if not isinstance(value, list | tuple):
                    raise PageError("it takes a list of wires and literals.", code="not-a-list")
                inputs[name] = tuple(_source(page, item) for item in value)
            elif name in pins:
                inputs[name] = _source(page, value)
            elif name in known and known[name].kind == "value":
                attributes[name] = _held(page, value, given)
            elif name in known:
                # In its plain form, which files can hold, and which is nobody else's.
                attributes[name] = None if value is None else check_attribute(operator, known[name], value)
            else:
                listed = ", ".join([*pins, *known]) or "none"
                raise PageError(f"{operator.name} has no pin or attribute {name}; it has: {listed}.",
                                code="unknown-pin")  # fmt: skip
        except RowgradError as error:
            raise PageError.of(error, id, operator.name, name) from error
    value = attributes.get("value")
    if isinstance(value, Literal) and value.dtype is not None:
        attributes["dtype"] = value.dtype  # an array brings its type along
    return inputs, attributes


def _source(page: "Looking", value: Any) -> Wire | Literal:
    if isinstance(value, str | Wire | Block):
        try:
            return page.wire(value)
        except PageError as error:
            if error.code == "unknown-block" and isinstance(value, str):
                error.message += f' (A text is a wire, "block:pin"; a literal text is {{"value": {value!r}}}.)'
            raise
    return _held(page, value, {})


def _held(page: "Looking", value: Any, given: Mapping[str, Any]) -> Literal:
    """A literal; bytes in it are the text that they are as UTF-8, because that is what page files can hold."""
    made = _made(page, value, given)
    if made.dtype != "string" or not any(isinstance(item, bytes) for item in made.value.flat):
        return made
    return replace(made, value=typed(plain(made.value), "string").reshape(made.value.shape))


def _made(page: "Looking", value: Any, given: Mapping[str, Any]) -> Literal:
    """A literal, or what its dictionary says: ``{"value": …, "dtype": …}`` or ``{"file": …}``."""
    dtype = _type_name(given.get("dtype"))
    if isinstance(value, Literal):
        return value
    if isinstance(value, Mapping):
        if set(value) == {"file"}:
            name = value["file"]
            array = folder.read(page.folder, name, None)
            return Literal(array, dtypes.name_of(array.dtype), name)
        if "value" not in value or not set(value) <= {"value", "dtype", "shape"}:
            known = '{"value": …, "dtype": …} or {"file": …}'
            raise PageError(f"a literal is written {known}, not {sorted(map(str, value))}.", code="bad-literal")
        dtype = _type_name(value.get("dtype", "string" if isinstance(value["value"], str) else dtype))
        if "shape" in value:
            return _empty(value["value"], dtype, value["shape"])
        value = value["value"]
    if dtype is not None and dtype not in (*dtypes.NUMPY, "string"):
        raise PageError(f"{dtype!r} is not a type.", code="wrong-dtype", value=dtype)
    made = literal(value, dtype)
    if made.dtype is None and given and (odd := odd_type(made.value)):
        return literal(value, odd)  # a constant that JSON has no words for needs a type, to be written as text
    return made


def _type_name(dtype: Any) -> Any:
    """NumPy's types by the names they have here; anything else as it is."""
    if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        return dtypes.name_of(np.dtype(dtype))
    return dtype


def _empty(value: Any, dtype: Any, shape: Any) -> Literal:
    """An array without elements, whose shape lists cannot tell."""
    sizes = shape if isinstance(shape, list) and all(type(n) is int and 0 <= n < 2**31 for n in shape) else []
    if (
        value != []
        or 0 not in sizes
        or math.prod(size or 1 for size in sizes) >= 2**59
        or dtype not in (*dtypes.NUMPY, "string")
    ):
        raise PageError(
            'a literal with a shape is one without elements, {"value": [], "dtype": …, "shape": [0, …]}.',
            code="bad-literal",
        )
    return literal(np.empty(sizes, object if dtype == "string" else dtypes.NUMPY[dtype]))


def constant(block: Block) -> Array | None:
    """What a constant holds, in its type."""
    held = block.attributes.get("value")
    if held is None:
        return None
    dtype = block.attributes.get("dtype")
    if isinstance(held.value, list | int | float | complex | str) or held.dtype != dtype:
        if dtype is not None:
            value = held.value if held.dtype is None else plain(held.value)
            return typed(value, dtype).reshape(np.shape(held.value))
        fitted: Array = _ANYTHING.fit(fitting(held.value))
        return fitted
    array: Array = held.value
    return array


def without(inputs: Mapping[str, Source], ids: Container[str]) -> dict[str, Source]:
    """Inputs without the wires that come from the blocks `ids`."""
    kept: dict[str, Source] = {}
    for pin, source in inputs.items():
        if isinstance(source, tuple):
            left = tuple(item for item in source if not (isinstance(item, Wire) and item.block in ids))
            if left:
                kept[pin] = left
        elif not (isinstance(source, Wire) and source.block in ids):
            kept[pin] = source
    return kept


def renamed(source: Source, change: Callable[[Wire], Wire]) -> Source:
    """`source` with other wires."""
    if isinstance(source, tuple):
        return tuple(change(item) if isinstance(item, Wire) else item for item in source)
    return change(source) if isinstance(source, Wire) else source
