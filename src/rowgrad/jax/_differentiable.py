"""Operators as one primitive of JAX: run at once, traced, batched, and differentiated by the catalogue's rules.

`apply` binds the primitive to a `Call`. What JAX asks of it stands below, in this order: its value, its type, its
derivatives forward and backward, batches of it (`vmap`), and the program that it becomes: kernels on CPUs, JAX's own
operations elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from rowgrad._ops import OPERATORS, Operator, size_lists
from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.gradients import Namespace, each, evaluate, rules
from rowgrad._ops.rule_text import needed
from rowgrad._ops.shapes import has_columns
from rowgrad._runtime import dtypes
from rowgrad.errors import RowgradError
from rowgrad.jax import _host as host
from rowgrad.jax import _targets as targets
from rowgrad.jax._call import Call, bind, results_of
from rowgrad.jax._forms import run as run_portable

_portable: ContextVar[bool] = ContextVar("portable", default=False)

OPERATOR = Primitive("rowgrad")
OPERATOR.multiple_results = True


@contextmanager
def portable() -> Iterator[None]:
    """Context manager that computes operators with JAX's own operations on CPUs too, as on other devices.

    It does not affect functions that `jit` has already traced.

    Examples
    --------
    >>> import rowgrad.jax
    >>> with rowgrad.jax.portable():
    ...     print(rowgrad.jax.sparse_segment_sum([[1.0], [2.0]], [0, 1, 1], [0, 0, 1], 2).tolist())
    [[3.0], [2.0]]
    """
    token = _portable.set(True)
    try:
        yield
    finally:
        _portable.reset(token)


def apply(
    operator: Operator, values: Sequence[Any], attributes: Mapping[str, Any] | None = None, *, most: Any = None
) -> Any:
    """Run `operator` on JAX's arrays, traced or not; all inputs in order."""
    settings = check_attributes(operator, attributes or {}) if attributes or operator.is_unsettled else {}
    call, given = bind(operator, values, settings, most, _portable.get())
    return call.wrap(OPERATOR.bind(*_varying_alike(given), call=call))


def _applied(operator: Operator) -> Callable[..., Any]:
    """`operator` as rules call it."""
    return lambda *values, **attributes: apply(operator, values, attributes)


# The dense operators that rules call, which JAX differentiates itself.
DENSE = {
    **size_lists.FUNCTIONS,
    "Mul": jnp.multiply,
    "Div": jnp.divide,
    "Sub": jnp.subtract,
    "OnesLike": jnp.ones_like,
    "ZerosLike": jnp.zeros_like,
    "Reshape": jnp.reshape,
    "Transpose": jnp.transpose,
    "Gather": lambda params, indices: params[indices],
    "GatherNd": lambda params, indices: params[tuple(jnp.moveaxis(indices, -1, 0))],
    "ReduceSum": lambda values, axes: jnp.sum(values, tuple(axes)),
}
OP = Namespace(OPERATORS, _applied, lambda array: array.shape[0], DENSE)


def _varying_alike(values: Sequence[Any]) -> list[Any]:
    """In `shard_map`, values that are the same on all devices count as different on each, if any of the others is."""
    varying = [_axes(value) for value in values]
    most = frozenset[Any]().union(*varying)
    return [
        jax.lax.pcast(value, tuple(most - axes), to="varying") if most - axes else value
        for value, axes in zip(values, varying, strict=True)
    ]


def _axes(value: Any) -> frozenset[Any]:
    """The axes of a mesh along which `value` differs; JAX has had two names for that."""
    if not isinstance(value, jax.core.Tracer):
        return frozenset()
    kind = jax.typeof(value)
    return frozenset(kind.mat.varying if hasattr(kind, "mat") else getattr(kind, "vma", ()))


# Its value


@OPERATOR.def_impl
def _run(*values: Any, call: Call) -> Sequence[Any]:
    if call.is_portable or not all(_is_on_cpu(value) for value in values):
        return run_portable(call, *map(_held, values))
    try:
        return host.at_once(call, values)
    except RowgradError as error:
        error.op = error.op or call.name
        raise


def _held(array: Any) -> Any:
    """`array` in JAX's hands: an ndarray is copied, for its owner may change it."""
    return array if isinstance(array, jax.Array) else jax.device_put(np.asarray(array))


def _is_on_cpu(array: Any) -> bool:
    # What JAX wraps ndarrays in, on the way through its transformations, is on no device.
    return not isinstance(array, jax.Array) or all(device.platform == "cpu" for device in array.devices())


# Its type


@OPERATOR.def_abstract_eval
def _types(*given: Any, call: Call) -> list[Any]:
    """The types of the results; a size that only running tells is an error here."""
    return [_typed_as(struct, given) for struct in call.structs()]


def _typed_as(struct: jax.ShapeDtypeStruct, given: Sequence[Any]) -> Any:
    """The type of an array that varies along the axes of a mesh that the arguments, all alike, vary along."""
    like = next(iter(given), None)
    if like is None or not _varies(like):
        return jax.core.ShapedArray(struct.shape, struct.dtype)
    spec = jax.sharding.PartitionSpec(*(None,) * len(struct.shape))
    changes = {"shape": struct.shape, "dtype": struct.dtype, "weak_type": False}
    return like.update(**changes, sharding=like.sharding.update(spec=spec))


def _varies(kind: Any) -> bool:
    return bool(kind.mat.varying if hasattr(kind, "mat") else getattr(kind, "vma", ()))


# Its derivatives


def _push_forward(primals: Sequence[Any], tangents: Sequence[Any], *, call: Call) -> tuple[Any, Any]:
    """The results, and how they change: the transpose of what the rules say flows back, which is linear."""
    results = OPERATOR.bind(*primals, call=call)
    changing = [i for i, tangent in enumerate(tangents) if not isinstance(tangent, ad.Zero) and _flows(call, i)]
    numbers = [i for i, result in enumerate(results) if jnp.issubdtype(result.dtype, jnp.inexact)]
    found: list[Any] = [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
    if not changing or not numbers:
        return results, found
    saved = _by_name(call, primals) | results_of(call.operator, results)

    def pull_back(*cotangents: Any) -> tuple[Any, ...]:
        return tuple(_flowing_back(call, i, saved, dict(zip(numbers, cotangents, strict=True))) for i in changing)

    transposed = jax.linear_transpose(pull_back, *(results[i] for i in numbers))
    for i, tangent in zip(numbers, transposed(tuple(tangents[i] for i in changing)), strict=True):
        found[i] = tangent
    return results, found


def _pull_back(cotangents: Sequence[Any], *values: Any, call: Call) -> list[Any]:
    """What flows back to the arguments that a call is linear in, by the rules."""
    unknown = [ad.is_undefined_primal(value) for value in values]
    flowing = {
        i: ad.instantiate_zeros(cotangent)
        for i, (cotangent, (_, dtype)) in enumerate(zip(cotangents, call.results, strict=True))
        if jnp.issubdtype(dtypes.NUMPY[dtype], jnp.inexact)
    }
    if all(isinstance(cotangent, ad.Zero) for cotangent in cotangents):
        return [ad.Zero(value.aval) if is_it else None for value, is_it in zip(values, unknown, strict=True)]
    # A call is linear in what is unknown, so rules can ask for its shape only, and zeros do.
    saved = _by_name(call, [
        jnp.zeros(shape, dtypes.NUMPY[dtype]) if is_it and name in _needed(call.operator) else value
        for (name, _), value, (shape, dtype), is_it in zip(call.arrays(), values, call.shapes, unknown, strict=True)
    ])  # fmt: skip
    if any(pin.name in _needed(call.operator) for pin in call.operator.outputs):
        # Results that rules use, such as which rows occur, do not depend on what the call is linear in.
        known = [
            ad.instantiate_zeros(ad.Zero(v.aval)) if is_it else v for v, is_it in zip(values, unknown, strict=True)
        ]
        saved |= results_of(call.operator, OPERATOR.bind(*known, call=call))
    return [_flowing_back(call, i, saved, flowing) if is_it else None for i, is_it in enumerate(unknown)]


ad.primitive_jvps[OPERATOR] = _push_forward
ad.primitive_transposes[OPERATOR] = _pull_back


def _by_name(call: Call, values: Sequence[Any]) -> dict[str, Any]:
    """The arrays that are known, by the names of the inputs."""
    return {name: value for name, value in call.by_name(values).items()
            if not any(map(ad.is_undefined_primal, value if isinstance(value, list) else [value]))}  # fmt: skip


def _flows(call: Call, position: int) -> bool:
    """Whether anything flows back to an argument."""
    return call.arrays()[position][0] in call.operator.gradient and call.shapes[position][1] not in dtypes.INTEGERS


def _flowing_back(call: Call, position: int, saved: Mapping[str, Any], cotangents: Mapping[int, Any]) -> Any:
    """What flows back to an argument from the results that `cotangents` has; zeros if nothing does."""
    operator, (name, place) = call.operator, call.arrays()[position]
    shape, dtype = call.shapes[position]
    flowing = {operator.outputs[i].name: cotangent for i, cotangent in cotangents.items()}
    stated = rules(operator, name, frozenset(flowing))
    if not stated:
        return jnp.zeros(shape, dtypes.NUMPY[dtype])
    structs = [jax.ShapeDtypeStruct(shape, dtypes.NUMPY[dtype]) for shape, dtype in call.shapes]
    types = {other: dtype for (other, _), (_, dtype) in zip(call.arrays(), call.shapes, strict=True)}
    known: dict[str, Any] = {pin.dtype: types[pin.name] for pin in operator.inputs if pin.name in types}
    known |= call.by_name(structs) | {"position": place}
    known |= {pin.name: count for pin, count in zip(operator.inputs, call.counts, strict=True) if count is not None}
    known |= {f"d_{output}": cotangent for output, cotangent in flowing.items()}
    known |= check_attributes(operator, call.settings) | dict(saved)
    with _as_in(call):
        terms = [evaluate(rule, OP, known) for rule in stated]
    return sum(terms[1:], start=terms[0])


@contextmanager
def _as_in(call: Call) -> Iterator[None]:
    """Gradients take the path that their operator took."""
    token = _portable.set(call.is_portable)
    try:
        yield
    finally:
        _portable.reset(token)


@cache
def _needed(operator: Operator) -> frozenset[str]:
    """The names whose values the rules use."""
    return frozenset[str]().union(*(needed(rule) for stated in operator.gradient.values() for rule in each(stated)))


# Batches of it


def _batch(values: Sequence[Any], axes: Sequence[Any], *, call: Call) -> tuple[Sequence[Any], Sequence[Any]]:
    is_batched = [axis is not None for axis in axes]
    moved = [
        jnp.moveaxis(value, axis, 0) if is_it else value
        for value, axis, is_it in zip(values, axes, is_batched, strict=True)
    ]
    size = next(value.shape[0] for value, is_it in zip(moved, is_batched, strict=True) if is_it)
    run = _call_in_columns if _in_columns(call, is_batched) else _call_in_turn
    results, is_out = run(call, size, is_batched, moved)
    return results, [0 if is_it else None for is_it in is_out]


batching.primitive_batchers[OPERATOR] = _batch


def _in_columns(call: Call, is_batched: Sequence[bool]) -> bool:
    """Whether the batch can stand in further columns of one call: ids and results that have none are shared."""
    operator = call.operator
    if call.many:
        return False
    arrays = [pin for pin, count in zip(operator.inputs, call.counts, strict=True) if count is None]
    batched = [pin for pin, is_it in zip(arrays, is_batched, strict=True) if is_it]
    return all(has_columns(pin) and pin.name in operator.gradient for pin in batched) and all(
        has_columns(pin) or name in dtypes.INTEGERS
        for pin, (_, name) in zip(operator.outputs, call.results, strict=True)
    )


def _call_in_columns(
    call: Call, size: int, is_batched: Sequence[bool], values: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[bool, ...]]:
    operator = call.operator
    pins = [pin for pin, count in zip(operator.inputs, call.counts, strict=True) if count is None]
    moved = []
    for pin, is_it, value in zip(pins, is_batched, values, strict=True):
        if is_it:
            moved.append(jnp.moveaxis(value, 0, 1))
        elif has_columns(pin):  # as many columns as the others
            moved.append(jnp.broadcast_to(value[:, None], (len(value), size, *value.shape[1:])))
        else:
            moved.append(value)
    wide, given = bind(operator, call.inputs(moved), call.settings, call.most, call.is_portable)
    results = OPERATOR.bind(*given, call=wide)
    is_out = tuple(map(has_columns, operator.outputs))
    return tuple(jnp.moveaxis(r, 1, 0) if o else r for r, o in zip(results, is_out, strict=True)), is_out


def _call_in_turn(
    call: Call, size: int, is_batched: Sequence[bool], values: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[bool, ...]]:
    parts = [value for value, is_it in zip(values, is_batched, strict=True) if is_it]

    def one(each: Sequence[Any]) -> Any:
        rest = iter(each)
        given = [next(rest) if is_it else v for v, is_it in zip(values, is_batched, strict=True)]
        return OPERATOR.bind(*given, call=call)

    return tuple(jax.lax.map(one, parts)), (True,) * len(call.results)


# The program it becomes


def _on_cpu(*values: Any, call: Call) -> list[Any]:
    if call.is_portable:
        return run_portable(call, *values)
    return targets.traced(call, *values) if targets.is_registered() else host.traced(call, *values)


def _elsewhere(*values: Any, call: Call) -> list[Any]:
    return run_portable(call, *values)


mlir.register_lowering(OPERATOR, mlir.lower_fun(_elsewhere, multiple_results=True))
mlir.register_lowering(OPERATOR, mlir.lower_fun(_on_cpu, multiple_results=True), platform="cpu")

__all__ = ["apply", "portable"]
