"""Operators as functions that TensorFlow can differentiate and trace: the gradient rules of the catalogue, evaluated.

Eager tensors lend their memory to the kernels; in a `tf.function` the kernels are called when the program runs. A
gradient that has a compact form is a `tf.IndexedSlices`, with each row once, ascending.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from rowgrad._ops import OPERATORS, Operator
from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.gradients import Namespace, each, evaluate, rules
from rowgrad._ops.results import RowGradient
from rowgrad._ops.rule_text import needed
from rowgrad._ops.shapes import infer
from rowgrad._runtime import arrays, dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import RowgradError

Layout = tuple[int | None, ...]  # for each input, how many arrays it takes; None for the usual one


@tf.autograph.experimental.do_not_convert
def apply(operator: Operator, values: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> Any:
    """Run `operator` on TensorFlow's tensors and whatever else has values; all inputs in order."""
    settings = check_attributes(operator, attributes or {}) if attributes or operator.is_unsettled else {}
    try:
        tensors, layout, types = _tensors(operator, values)
        results = _differentiable(operator, settings, layout, types)(*tensors)
    except RowgradError as error:
        error.op = error.op or operator.name
        raise
    results = results if isinstance(results, tuple | list) else [results]
    return results[0] if operator.result is None else operator.result(*results)


def _applied(operator: Operator) -> Callable[..., Any]:
    """`operator` as rules call it."""
    return lambda *values, **attributes: apply(operator, values, attributes)


def _rows(array: Any) -> Any:
    known = array.shape[0] if array.shape.rank is not None else None
    return tf.shape(array, tf.int64)[0] if known is None else known


# The dense operators that rules call, which TensorFlow differentiates itself.
DENSE = {
    "Mul": tf.multiply,
    "Div": tf.divide,
    "Sub": tf.subtract,
    "OnesLike": tf.ones_like,
    "ZerosLike": tf.zeros_like,
    "Reshape": tf.reshape,
    "Transpose": tf.transpose,
    "Gather": tf.gather,
    "GatherNd": tf.gather_nd,
    "ReduceSum": tf.reduce_sum,
    "BroadcastGradientArgs": lambda s0, s1: tf.raw_ops.BroadcastGradientArgs(s0=s0, s1=s1),
    "Concat": tf.concat,
    "Shape": tf.shape,
    "Slice": tf.slice,
}
OP = Namespace(OPERATORS, _applied, _rows, DENSE)


def is_tensor(value: Any) -> bool:
    """Whether it is TensorFlow's: a tensor, or a variable of it or of Keras."""
    return arrays.kind_of(value) is arrays.TENSORFLOW


def _tensors(operator: Operator, values: Sequence[Any]) -> tuple[list[Any], Layout, dict[str, "np.dtype[Any]"]]:
    """The inputs as tensors, one after the other; how many each pin has; and what type variables stand for.

    Types are settled by empty arrays that stand for tensors, which may have no values yet.
    """
    kept = _kept(operator)
    held = [[_held(part) for part in value] if pin.many else _held(value, is_kept=pin.name in kept)
            for pin, value in zip(operator.inputs, values, strict=True)]  # fmt: skip
    counts = [fitter.is_count for fitter in operator.fitters]
    stand_ins = [
        [_stand_in(part) for part in value] if isinstance(value, list) and pin.many
        else 0 if is_count and is_tensor(value) else _stand_in(value)
        for pin, value, is_count in zip(operator.inputs, held, counts, strict=True)
    ]  # fmt: skip
    fitted = operator._fit(tuple(stand_ins))
    tensors: list[Any] = []
    layout: list[int | None] = []
    types: dict[str, np.dtype[Any]] = {}
    for pin, value, fit, is_count in zip(operator.inputs, held, fitted, counts, strict=True):
        layout.append(len(value) if pin.many else None)
        for one, like in zip(value if pin.many else [value], fit if pin.many else [fit], strict=True):
            if is_count:
                tensors.append(value if is_tensor(one) else tf.constant(int(like), tf.int64))
                continue
            types.setdefault(pin.dtype, like.dtype)
            tensors.append(_typed(one, like.dtype) if is_tensor(one) else tf.convert_to_tensor(like))
    return tensors, tuple(layout), types


def _held(value: Any, *, is_kept: bool = True) -> Any:
    """TensorFlow's values as tensors; a variable that the gradient does not use is read without a copy."""
    if not is_tensor(value) and not hasattr(value, "read_value_no_copy"):
        return value
    inner = value.value if hasattr(value, "constraint") and not callable(value.value) else value  # of Keras' variables
    if not is_kept and hasattr(inner, "read_value_no_copy"):
        return inner.read_value_no_copy()
    return tf.convert_to_tensor(value)


@cache
def _kept(operator: Operator) -> frozenset[str]:
    """The inputs and outputs whose values the gradient rules use."""
    return frozenset[str]().union(*(needed(rule) for stated in operator.gradient.values() for rule in each(stated)))


def _stand_in(value: Any) -> Any:
    if not is_tensor(value):
        return value
    dtype = np.dtype(object) if value.dtype == tf.string else value.dtype.as_numpy_dtype
    return np.empty((0,) * (1 if value.shape.rank is None else value.shape.rank), dtype)


def _typed(tensor: Any, dtype: "np.dtype[Any]") -> Any:
    wanted = _of_tensorflow(dtype)
    return tensor if tensor.dtype == wanted else tf.cast(tensor, wanted)


def _of_tensorflow(dtype: "np.dtype[Any]") -> Any:
    return tf.string if dtype.kind in "USOT" else tf.as_dtype(dtype)


def _differentiable(
    operator: Operator, settings: Mapping[str, Any], layout: Layout, types: Mapping[str, "np.dtype[Any]"]
) -> Callable[..., Any]:
    def run(*tensors: Any) -> list[Any]:
        if all(hasattr(tensor, "numpy") for tensor in tensors):
            results = _compute(operator, settings, layout, [_array(tensor) for tensor in tensors])
            return [tf.convert_to_tensor(result) for result in results]
        return _traced(operator, settings, layout, types, tensors)

    if not operator.gradient:
        return run

    @tf.custom_gradient
    def function(*tensors: Any) -> tuple[Any, Callable[..., list[Any]]]:
        results = run(*tensors)

        def gradient(*cotangents: Any) -> list[Any]:
            return _gradients(operator, settings, layout, types, tensors, results, cotangents)

        return results if len(results) > 1 else results[0], gradient

    found: Callable[..., Any] = function
    return found


def _array(tensor: Any) -> Array:
    """The memory of an eager tensor: read, and never written to."""
    try:
        return np.asarray(memoryview(tensor))
    except (BufferError, TypeError, ValueError):  # of types that buffers do not know
        return np.asarray(tensor.numpy())


def _compute(operator: Operator, settings: Mapping[str, Any], layout: Layout, values: Sequence[Array]) -> list[Array]:
    given = _unflattened(layout, values)
    for position, fitter in enumerate(operator.fitters):
        if fitter.is_count and given[position].ndim == 0:
            given[position] = given[position].item()  # what operators take fastest
    results = operator(*given, **settings)
    return [np.asarray(result) for result in ([results] if operator.result is None else results)]


def _unflattened(layout: Layout, values: Sequence[Any]) -> list[Any]:
    rest = iter(values)
    return [next(rest) if count is None else [next(rest) for _ in range(count)] for count in layout]


# In a program that is traced


def _traced(
    operator: Operator,
    settings: Mapping[str, Any],
    layout: Layout,
    types: Mapping[str, "np.dtype[Any]"],
    tensors: Sequence[Any],
) -> list[Any]:
    wanted = [_result_type(operator, pin.dtype, types, settings) for pin in operator.outputs]

    def run(*values: Array) -> list[Array]:
        results = _compute(operator, settings, layout, values)
        return [
            result if result.dtype == dtype or dtype.kind == "O" else result.astype(dtype)
            for result, dtype in zip(results, wanted, strict=True)
        ]

    results = tf.numpy_function(run, tensors, [_of_tensorflow(dtype) for dtype in wanted], stateful=False)
    results = list(results) if isinstance(results, list | tuple) else [results]
    for result, shape in zip(results, _shapes(operator, settings, layout, tensors), strict=True):
        if shape is not None:
            result.set_shape([size if isinstance(size, int) and size >= 0 else None for size in shape])
    return results


def _result_type(
    operator: Operator, name: str, types: Mapping[str, "np.dtype[Any]"], settings: Mapping[str, Any]
) -> "np.dtype[Any]":
    if name in types:
        return types[name]
    if name not in operator.types:
        return np.dtype(object) if name == "string" else dtypes.NUMPY[name]
    return dtypes.NUMPY[settings[name]] if settings.get(name) is not None else types["T"]


def _shapes(operator: Operator, settings: Mapping[str, Any], layout: Layout, tensors: Sequence[Any]) -> list[Any]:
    """What is known of the results' shapes; None for nothing."""
    given = dict(zip((pin.name for pin in operator.inputs), _unflattened(layout, tensors), strict=True))
    shapes = {
        name: [_shape(part) for part in value] if isinstance(value, list) else _shape(value)
        for name, value in given.items()
    }
    values = {name: found for name, value in given.items()
              if not isinstance(value, list) and (found := tf.get_static_value(value)) is not None}  # fmt: skip
    try:
        found = infer(operator, shapes, values, settings)
    except RowgradError:
        raise
    except (TypeError, KeyError, IndexError, AttributeError):  # a rule that needs what is not known yet
        return [None] * len(operator.outputs)
    return [found[pin.name] for pin in operator.outputs]


def _shape(tensor: Any) -> Any:
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())


# Gradients


def _gradients(
    operator: Operator,
    settings: Mapping[str, Any],
    layout: Layout,
    types: Mapping[str, "np.dtype[Any]"],
    tensors: Sequence[Any],
    results: Sequence[Any],
    cotangents: Sequence[Any],
) -> list[Any]:
    """What flows back to each tensor; None for nothing."""
    pins = [pin.name for pin in operator.outputs]
    flowing = {
        f"d_{name}": tf.convert_to_tensor(cotangent)
        for name, cotangent, result in zip(pins, cotangents, results, strict=True)
        if cotangent is not None and (result.dtype.is_floating or result.dtype.is_complex)
    }
    inputs = dict(zip((pin.name for pin in operator.inputs), _unflattened(layout, tensors), strict=True))
    known = {name: dtypes.name_of(dtype) for name, dtype in types.items()}
    known |= check_attributes(operator, settings)
    known |= {**dict(zip(pins, results, strict=True)), **inputs, **flowing}
    flows = frozenset(name.removeprefix("d_") for name in flowing)
    found: list[Any] = []
    for pin, count in zip(operator.inputs, layout, strict=True):
        stated = rules(operator, pin.name, flows, compact=True)
        for position in range(1 if count is None else count):
            part = inputs[pin.name] if count is None else inputs[pin.name][position]
            if not stated or not (part.dtype.is_floating or part.dtype.is_complex):
                found.append(None)
                continue
            names = known if count is None else {**known, "part": part, "position": position}
            terms = [_as_gradient(evaluate(rule, OP, names), part) for rule in stated]
            found.append(terms[0] if len(terms) == 1 else tf.add_n([tf.convert_to_tensor(term) for term in terms]))
    return found


def _as_gradient(value: Any, of: Any) -> Any:
    """A compact gradient as TensorFlow has it: rows and their numbers."""
    if isinstance(value, RowGradient):
        return tf.IndexedSlices(value.output, value.sorted_unique_indices, tf.shape(of, tf.int64))
    return value
