"""Operators as functions that JAX can differentiate, trace and batch: the gradient rules of the catalogue, evaluated.

A call goes down three steps: `apply` (rules, by `jax.custom_vjp`), `_run` (at once, or traced) and, when traced,
`_batched` (`vmap`) and `_traced` (kernels on CPUs, JAX's own operations elsewhere).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.extend import backend

from rowgrad._ops import OPERATORS, Operator
from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.gradients import Namespace, each, evaluate, rules
from rowgrad._ops.rule_text import needed
from rowgrad._ops.shapes import is_open
from rowgrad._runtime import dtypes
from rowgrad.errors import RowgradError
from rowgrad.jax import _host as host
from rowgrad.jax._call import Call, bind, results_of
from rowgrad.jax._forms import run as run_portable

_portable: ContextVar[bool] = ContextVar("portable", default=False)


@contextmanager
def portable() -> Iterator[None]:
    """Within it, operators are made of JAX's own operations on CPUs too, as they are on other devices.

    What `jit` has traced already stays as it is.

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
    settings = check_attributes(operator, attributes) if attributes else {}
    call, given = bind(operator, values, settings, most, _portable.get())
    return call.wrap(_differentiable(call)(*given))


def _applied(operator: Operator) -> Callable[..., Any]:
    """`operator` as rules call it."""
    return lambda *values, **attributes: apply(operator, values, attributes)


# The dense operators that rules call, which JAX differentiates itself.
DENSE = {
    "Mul": jnp.multiply,
    "Div": jnp.divide,
    "Sub": jnp.subtract,
    "OnesLike": jnp.ones_like,
    "Reshape": jnp.reshape,
}
OP = Namespace(OPERATORS, _applied, lambda array: array.shape[0], DENSE)


@lru_cache(maxsize=4096)
def _differentiable(call: Call) -> Callable[..., Any]:
    @jax.custom_vjp
    def function(*values: Any) -> tuple[Any, ...]:
        return tuple(_run(call, values))

    names = [pin.name for pin, count in zip(call.operator.inputs, call.counts, strict=True) if count is None]

    def forward(*values: Any) -> tuple[Any, Any]:
        results = function(*values)
        named = {**dict(zip(names, values, strict=True)), **results_of(call.operator, results)}
        return results, {name: _held(named[name]) for name in sorted(_needed(call.operator)) if name in named}

    def backward(saved: Mapping[str, Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
        with _as_in(call):
            return tuple(_gradient(call, name, saved, cotangents) for name in names)

    function.defvjp(forward, backward)
    differentiable: Callable[..., Any] = function
    return differentiable


@contextmanager
def _as_in(call: Call) -> Iterator[None]:
    """Gradients take the path that their operator took."""
    token = _portable.set(call.is_portable)
    try:
        yield
    finally:
        _portable.reset(token)


def _gradient(call: Call, name: str, saved: Mapping[str, Any], cotangents: Sequence[Any]) -> Any:
    """What flows back to the input `name`; None for nothing."""
    operator = call.operator
    shapes = dict(zip((p.name for p, c in zip(operator.inputs, call.counts, strict=True) if c is None), call.shapes,
                      strict=True))  # fmt: skip
    flowing = {pin.name: cotangent for pin, cotangent in zip(operator.outputs, cotangents, strict=True)
               if cotangent.dtype != jax.dtypes.float0}  # fmt: skip
    stated = rules(operator, name, frozenset(flowing))
    if not stated or shapes[name][1] in dtypes.INTEGERS:
        return None
    known: dict[str, Any] = {pin.dtype: shapes[pin.name][1] for pin in operator.inputs if pin.name in shapes}
    known |= {other: jax.ShapeDtypeStruct(shape, dtypes.NUMPY[dtype]) for other, (shape, dtype) in shapes.items()}
    known |= {pin.name: count for pin, count in zip(operator.inputs, call.counts, strict=True) if count is not None}
    known |= {f"d_{output}": cotangent for output, cotangent in flowing.items()} | call.settings | dict(saved)
    terms = [evaluate(rule, OP, known) for rule in stated]
    return sum(terms[1:], start=terms[0])


@cache
def _needed(operator: Operator) -> frozenset[str]:
    """The names whose values the rules use."""
    return frozenset[str]().union(*(needed(rule) for stated in operator.gradient.values() for rule in each(stated)))


def _run(call: Call, values: Sequence[Any]) -> Sequence[Any]:
    if any(isinstance(value, jax.core.Tracer) for value in values):
        call.structs()  # sizes that are missing are an error here, not inside JAX
        return list(_batched(call)(*values))
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


def _traced(call: Call, *values: Any) -> tuple[Any, ...]:
    if call.is_portable:
        return tuple(run_portable(call, *values))
    kernels = partial(host.traced, call)
    if _only_cpus():
        return tuple(kernels(*values))
    return tuple(jax.lax.platform_dependent(*values, cpu=kernels, default=partial(run_portable, call)))


def _only_cpus() -> bool:
    """Whether programs can run on CPUs only; then there is nothing to choose when they are compiled."""
    return set(backend.backends()) == {"cpu"}


# vmap


@lru_cache(maxsize=4096)
def _batched(call: Call) -> Callable[..., Any]:
    function: Any = custom_vmap(partial(_traced, call))

    @function.def_vmap  # type: ignore[untyped-decorator, unused-ignore]
    def batch(size: int, is_batched: list[bool], *values: Any) -> tuple[Any, Any]:
        if _in_columns(call, is_batched):
            return _call_in_columns(call, size, is_batched, values)
        return _call_in_turn(call, is_batched, values)

    batched: Callable[..., Any] = function
    return batched


def _in_columns(call: Call, is_batched: Sequence[bool]) -> bool:
    """Whether the batch can stand in further columns of one call: ids and results that have none are shared."""
    operator = call.operator
    arrays = [pin for pin, count in zip(operator.inputs, call.counts, strict=True) if count is None]
    batched = [pin for pin, is_it in zip(arrays, is_batched, strict=True) if is_it]
    return all(is_open(pin) and pin.name in operator.gradient for pin in batched) and all(
        is_open(pin) or name in dtypes.INTEGERS for pin, (_, name) in zip(operator.outputs, call.results, strict=True)
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
        elif is_open(pin):  # as many columns as the others
            moved.append(jnp.broadcast_to(value[:, None], (len(value), size, *value.shape[1:])))
        else:
            moved.append(value)
    wide, given = bind(operator, call.inputs(moved), call.settings, call.most, call.is_portable)
    results = _batched(wide)(*given)
    is_out = tuple(map(is_open, operator.outputs))
    return tuple(jnp.moveaxis(r, 1, 0) if o else r for r, o in zip(results, is_out, strict=True)), is_out


def _call_in_turn(
    call: Call, is_batched: Sequence[bool], values: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[bool, ...]]:
    parts = [value for value, is_it in zip(values, is_batched, strict=True) if is_it]

    def one(each: Sequence[Any]) -> Any:
        rest = iter(each)
        return _batched(call)(*(next(rest) if is_it else v for v, is_it in zip(values, is_batched, strict=True)))

    return tuple(jax.lax.map(one, parts)), (True,) * len(call.results)


__all__ = ["apply", "portable"]
