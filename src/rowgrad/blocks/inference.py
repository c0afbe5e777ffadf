"""What is known of a block before it runs: types, shapes and, where they are certain, values.

A size that only running can tell gets a name, the block's and the catalogue's letter (``unique.U``); equal names are
equal sizes. A wire or literal that does not fit is refused here, with the block and the pin.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rowgrad._ops import Operator, Pin
from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.pins import Input
from rowgrad._ops.shapes import Shape, infer, size_names
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.blocks.literals import Literal, fitting
from rowgrad.blocks.model import Block, Wire
from rowgrad.errors import PageError, RowgradError

LARGEST_KNOWN = 1024  # elements of values that are computed before anything runs


class Signal(NamedTuple):
    """What is known of a value before running: type, shape and, if it is constant and small, the value itself."""

    dtype: str | None = None
    shape: Shape | None = None
    value: Any = None

    def __str__(self) -> str:
        sizes = "[?]" if self.shape is None else f"[{', '.join(map(str, self.shape))}]"
        return f"{self.dtype or '?'} {sizes}"


class Inferred(NamedTuple):
    """A block after inference: the signals at its pins, and its literals as the arrays they are here."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Signal]
    literals: Mapping[tuple[str, int], Any]
    attributes: Mapping[str, Any]


SignalOf = Callable[[Wire], Signal]


def infer_block(block: Block, signal_of: SignalOf, held: Array | None = None) -> Inferred:
    """Check what arrives at `block`, and find what leaves it.

    `signal_of` tells of wires; `held` is the array that a constant or a file holds.
    """
    operator = block.operator
    try:
        attributes = check_attributes(operator, block.attributes)
    except RowgradError as error:
        raise PageError.of(error, block.id, block.op) from error
    walk = _Inference(block, operator, signal_of, attributes)
    walk.bind_wires()
    inputs = {pin.name: walk.signals(pin) for pin in operator.inputs if pin.name in block.inputs}
    if held is not None:
        known = held if held.size <= LARGEST_KNOWN else None
        (output,) = operator.outputs
        signal = Signal(dtypes.name_of(held.dtype), held.shape, known)
        return Inferred(inputs, {output.name: signal}, walk.literals, attributes)
    return Inferred(inputs, walk.outputs(inputs), walk.literals, attributes)


class _Inference:
    def __init__(self, block: Block, operator: Operator, signal_of: SignalOf, attributes: Mapping[str, Any]) -> None:
        self.block = block
        self.operator = operator
        self.signal_of = signal_of
        self.attributes = attributes
        self.bound: dict[str, tuple[str, str]] = {}  # type variable → its type, and the pin that settled it
        self.literals: dict[tuple[str, int], Any] = {}
        self.fitters = {fitter.pin.name: Input(fitter.pin, fitter.names) for fitter in operator.fitters}

    def bind_wires(self) -> None:
        """Types come from wires first; literals follow them."""
        for pin in self.operator.inputs:
            for source in self.block.sources(pin.name):
                if isinstance(source, Wire):
                    self._bind(pin, source, self.signal_of(source).dtype)

    def _bind(self, pin: Pin, wire: Wire, dtype: str | None) -> None:
        if dtype is None:
            return
        allowed = self.operator.dtypes_of(pin)
        if dtype not in allowed:
            raise self._wrong(
                pin,
                f"{wire} is {dtype}; {pin.name} takes {', '.join(allowed)}. {_way_out(allowed)}",
                "wrong-dtype",
                dtype,
            )
        if pin.dtype not in self.operator.types or pin.mixed or self.operator.role == "save":
            return
        settled, by = self.bound.setdefault(pin.dtype, (dtype, pin.name))
        if settled != dtype:
            raise self._wrong(
                pin, f"{wire} is {dtype}, but {by} is {settled}, and both must be of one type. Put a Cast between.",
                "wrong-dtype", dtype,
            )  # fmt: skip

    def signals(self, pin: Pin) -> Any:
        """The signal at an input pin; a list of them where it takes many."""
        found = [self._signal(pin, item, position) for position, item in enumerate(self.block.sources(pin.name))]
        return found if pin.many else found[0]

    def _signal(self, pin: Pin, source: Wire | Literal, position: int) -> Signal:
        if isinstance(source, Wire):
            return self.signal_of(source)
        settled = self.bound.get(pin.dtype)
        fitter = self.fitters[pin.name]
        try:
            value = fitter.fit(fitting(source.value), _numpy(settled[0]) if settled else None)
        except RowgradError as error:
            raise PageError.of(error, self.block.id, self.block.op) from error
        if type(value) is int:
            narrow = fitter.names[0]
            value = np.array(value, narrow if np.can_cast(np.min_scalar_type(value), narrow) else np.int64)
        dtype = dtypes.name_of(value.dtype)
        if pin.dtype in self.operator.types and not pin.mixed and self.operator.role != "save":
            self.bound.setdefault(pin.dtype, (dtype, pin.name))
        self.literals[pin.name, position] = value
        return Signal(dtype, value.shape, value if value.size <= LARGEST_KNOWN else None)

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Signal]:
        """The signals at the output pins."""
        shapes = {name: _each(signal, lambda each: each.shape) for name, signal in inputs.items()}
        values = {name: _each(signal, lambda each: each.value) for name, signal in inputs.items()}
        known = {name: value for name, value in values.items() if _is_known(value)}
        try:
            sizes = infer(self.operator, shapes, known, self.attributes)
        except RowgradError as error:
            raise PageError.of(error, self.block.id, self.block.op) from error
        signals = {}
        for pin in self.operator.outputs:
            shape = sizes[pin.name]
            if shape is not None:
                names = size_names(pin, len(shape)) if self.operator.shape_rule is None else ()
                shape = tuple(
                    f"{self.block.id}.{names[axis] if axis < len(names) else f'{pin.name}{axis}'}"
                    if size is None
                    else size
                    for axis, size in enumerate(shape)
                )
            signals[pin.name] = Signal(self._output_dtype(pin), shape)
        return self._fold(inputs, known, signals)

    def _output_dtype(self, pin: Pin) -> str | None:
        if pin.dtype in self.bound:
            return self.bound[pin.dtype][0]
        if any(attribute.name == pin.dtype for attribute in self.operator.attributes):
            chosen: str | None = self.attributes.get(pin.dtype)
            return chosen or self.bound.get("T", (None,))[0]  # left open, it is the type of the values
        return None if pin.dtype in self.operator.types else pin.dtype

    def _fold(
        self, inputs: Mapping[str, Any], known: Mapping[str, Any], signals: dict[str, Signal]
    ) -> dict[str, Signal]:
        """Compute what is certain: sizes, axes and the like, which shapes further on depend on."""
        operator = self.operator
        if operator.role != "operator" or operator.updates or not signals or len(inputs) < len(operator.inputs):
            return signals
        if operator.name in ("Shape", "Size"):
            shape = inputs["input"].shape
            if shape is None or not all(isinstance(size, int) for size in shape):
                return signals
            (signal,) = signals.values()
            found = shape if operator.name == "Shape" else math.prod(shape)
            return {"output": signal._replace(value=np.array(found, signal.dtype))}
        if len(known) < len(operator.inputs) or not all(_is_small(signal) for signal in signals.values()):
            return signals
        if any(
            signal.dtype not in (*dtypes.IDS, "bool")
            for pin in inputs.values()
            for signal in (pin if isinstance(pin, list) else [pin])
        ):
            return signals
        try:
            results = operator(*(known[pin.name] for pin in operator.inputs), **self.attributes)
        except RowgradError:
            return signals  # running will tell
        results = results if operator.result else (results,)
        return {name: signal._replace(value=result)
                for (name, signal), result in zip(signals.items(), results, strict=True)}  # fmt: skip

    def _wrong(self, pin: Pin, message: str, code: str, value: Any) -> PageError:
        return PageError(message, block=self.block.id, pin=pin.name, code=code, value=value, op=self.block.op)


def _each(signal: Any, get: Callable[[Signal], Any]) -> Any:
    return [get(one) for one in signal] if isinstance(signal, list) else get(signal)


def _is_known(value: Any) -> bool:
    return all(item is not None for item in value) if isinstance(value, list) else value is not None


def _is_small(signal: Signal) -> bool:
    if signal.shape is None or not all(isinstance(size, int) for size in signal.shape):
        return False
    return math.prod(int(size) for size in signal.shape if size is not None) <= LARGEST_KNOWN


def _numpy(name: str) -> "np.dtype[Any]":
    return np.dtype(object) if name == "string" else dtypes.NUMPY[name]


def _way_out(allowed: tuple[str, ...]) -> str:
    return "Wire one of these." if allowed == ("string",) else "Put a Cast between, or wire another output."
