"""Why numbers of page operators are what they are: moves, plain arithmetic, and what depends on elements by a function.

A function that is no sum of products is told by the elements that it depends on, with its derivative to each: the
gradient rules give both.
"""

from functools import partial
from typing import Any

import numpy as np

from rowgrad._ops.gradients import backward
from rowgrad._runtime.dtypes import Array
from rowgrad.blocks._explain.calls import Call, Explainer, moved, whole
from rowgrad.blocks._explain.terms import Term, accumulator, combine, function, rounded
from rowgrad.blocks.operators import OPERATORS
from rowgrad.errors import RowgradError

MOST_ELEMENTS = 1 << 22  # of inputs that are differentiated to explain one element
MOST_TERMS = 10_000


def _broadcast_place(array: Array, index: tuple[int, ...]) -> tuple[int, ...]:
    tail = index[len(index) - array.ndim :]
    return tuple(0 if size == 1 else int(i) for size, i in zip(array.shape, tail, strict=True))


def _arithmetic(kind: str, call: Call, pin: str, index: tuple[int, ...]) -> Term:
    """Two arrays element by element, with broadcasting."""
    terms = [call.entry(name, _broadcast_place(np.asarray(call[name]), index)) for name in ("x", "y")]
    dtype = call.outputs[pin].dtype
    width = accumulator(dtype)
    found = rounded(combine(kind, terms, width), dtype)
    return found if _same(found.value, call.outputs[pin][index]) else _depending(call, pin, index)


def _same(left: Any, right: Any) -> bool:
    one, other = np.asarray(left), np.asarray(right)
    return one.dtype == other.dtype and bool(one.tobytes() == other.tobytes() or (one != one and other != other))


def _added(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    """AddN: the arrays in their order."""
    dtype = call.outputs[pin].dtype
    terms = [call.entry("inputs", index, (), part) for part in range(len(call["inputs"]))]
    return rounded(combine("sum", terms, accumulator(dtype)), dtype)


def _depending(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    """The elements that the gradient rules say an element depends on, each with the derivative."""
    operator = call.operator
    value = call.outputs[pin][index]
    output = call.outputs[pin]
    size = sum(np.size(part) for value in call.inputs.values()
               for part in (value if isinstance(value, tuple) else (value,)))  # fmt: skip
    if not operator.gradient or output.dtype.kind not in "fV" or size > MOST_ELEMENTS:
        return _beside(call, pin, index)
    seed = np.zeros(output.shape, output.dtype)
    seed[index] = 1
    try:
        found = backward(operator, call.inputs, {pin: seed}, attributes=call.attributes, operators=OPERATORS)
    except RowgradError:
        return _beside(call, pin, index)
    terms = []
    for name, gradient in found.items():
        for part, one in enumerate(gradient if isinstance(gradient, list) else [gradient]):
            array = np.asarray(one)
            for place in np.argwhere(array != 0)[:MOST_TERMS]:
                where = tuple(int(i) for i in place)
                entry = call.entry(name, where, (), part if isinstance(gradient, list) else None)
                derivative = float(np.asarray(array[where]).astype(np.float64))
                terms.append(Term("entry", entry.value, dtype=entry.dtype, place=entry.place, derivative=derivative))
    return function(_right_side(operator.formula), value, terms)


def _beside(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    """Of an operator without a gradient that works element by element: the elements at the same place."""
    shape = call.outputs[pin].shape
    terms = []
    for name, array in call.inputs.items():
        if isinstance(array, list | tuple) or len(np.shape(array)) > len(shape):
            continue
        try:
            fits = np.broadcast_shapes(np.shape(array), shape) == shape
        except ValueError:
            fits = False
        if fits:
            terms.append(call.entry(name, _broadcast_place(np.asarray(array), index)))
    if not terms:
        return whole(call, pin, index)
    return function(_right_side(call.operator.formula), call.outputs[pin][index], terms)


def _right_side(formula: str) -> str:
    """What an operator computes, without the name of its result."""
    line = formula.splitlines()[0]
    return line.partition(" = ")[2] or line


DENSE: dict[str, Explainer] = {
    "Identity": moved("input"),
    "StopGradient": moved("input"),
    "Reshape": moved("tensor"),
    "Transpose": moved("x"),
    "ExpandDims": moved("input"),
    "BroadcastTo": moved("input"),
    "Concat": moved("values"),
    "Slice": moved("input"),
    "Pad": moved("input"),
    "Gather": moved("params"),
    "GatherNd": moved("params"),
    "SelectV2": moved("t", "e"),
    "Add": partial(_arithmetic, "sum"),
    "Sub": partial(_arithmetic, "difference"),
    "Mul": partial(_arithmetic, "product"),
    "Div": partial(_arithmetic, "quotient"),
    "AddN": _added,
}


def explain_dense(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    """The explanation of an element of any page operator."""
    return DENSE.get(call.operator.name, _depending)(call, pin, index)
