"""What the tests of `rowgrad.jax` share: calls of every operator, made at once, traced, or in portable form."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from optional import framework

jax = framework("jax")

import jax.numpy as jnp  # noqa: E402

import rowgrad.jax as rj  # noqa: E402
from rowgrad._ops import OPERATORS, Operator  # noqa: E402
from rowgrad._ops.callables import by_function, function_attributes  # noqa: E402
from rowgrad._ops.results import RowGradient  # noqa: E402
from rowgrad.jax._call import SIZES  # noqa: E402
from rowgrad.jax._functions import FUNCTIONS as CALLS  # noqa: E402

Array = np.ndarray[Any, Any]
Args = dict[str, Any]
FUNCTIONS = by_function()
# The size of what these give depends on values, and nothing pads it.
AT_ONCE = {"sparse_fill_empty_rows", "ragged_fill_empty_rows", "segment_mean", "sparse_slice"} | {
    "sparse_reduce_sum_sparse", "sparse_reduce_max_sparse", "sparse_add", "sparse_sparse_maximum",
    "sparse_sparse_minimum", "sparse_split_part", "dense_count_sparse_output", "sparse_count_sparse_output",
    "ragged_count_sparse_output",
}  # fmt: skip
PATHS = ["kernels", "portable"]
# What JAX raises for an error in a callback depends on which of its ways into a program it took.
STOPPED = (jax.errors.JaxRuntimeError, ValueError)


@contextmanager
def wide() -> Iterator[None]:
    """64-bit types, for one test only."""
    with jax.enable_x64(True):
        yield


def path(name: str) -> AbstractContextManager[None]:
    return rj.portable() if name == "portable" else nullcontext()


def operator_of(function: str) -> Operator:
    return FUNCTIONS[function][-1]


def as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


def is_count(operator: Operator, name: str) -> bool:
    return next(f.is_count for f in operator.fitters if f.pin.name == name)


def split(function: str, args: Args) -> tuple[Args, Args]:
    """The arrays, which are traced, and the counts and sizes, which are not."""
    operator = operator_of(function)
    pins = {pin.name for pin in operator.inputs}
    counts: Args = {name: value for name, value in args.items() if name not in pins}  # attributes
    counts |= {name: int(value) for name, value in args.items() if name in pins and is_count(operator, name)}
    if operator.shape_rule is not None:
        counts |= {pin.name: np.asarray(args[pin.name]) for pin in operator.inputs
                   if pin.shape in SIZES and not pin.many}  # fmt: skip
    arrays = {name: value for name, value in args.items() if name not in counts}
    return jax.tree.map(lambda value: jax.device_put(np.asarray(value)), arrays), counts


def call(function: str, args: Args) -> tuple[Any, ...]:
    return as_tuple(CALLS[function](**args))


def call_jitted(function: str, args: Args, expected: tuple[Array, ...]) -> tuple[Any, ...]:
    """Traced, with the sizes that `jit` must know taken from what is expected; padding is cut off again."""
    arrays, counts = split(function, args)
    operator = operator_of(function)
    if len(FUNCTIONS[function]) > 1:
        counts["num_segments"] = len(expected[0])
    is_compact = operator.result is RowGradient
    if is_compact:
        counts["max_unique"] = len(expected[1]) + 2
    found = as_tuple(jax.jit(lambda given: CALLS[function](**given, **counts))(arrays))
    if not is_compact:
        return found
    rows = int(next(args[pin.name] for pin in operator.inputs if is_count(operator, pin.name)))
    size = len(expected[1])
    assert (np.asarray(found[0][size:]) == 0).all()
    assert found[1][size:].tolist() == [rows, rows]
    return found[0][:size], found[1][:size]


def example(operator: Operator, seed: int = 5) -> Args:
    """The worked example, random float64 numbers in place of what can be differentiated."""
    random = np.random.default_rng(seed)
    many = {pin.name for pin in operator.inputs if pin.many}

    def drawn(name: str, value: Any) -> Any:
        if name not in operator.gradient:
            return [np.asarray(part) for part in value] if name in many else value
        return [random.standard_normal(np.shape(part)) for part in value] if name in many else (
            random.standard_normal(np.shape(value)))  # fmt: skip

    inputs = {name: drawn(name, value) for name, value in operator.example.inputs.items()}
    settings = function_attributes(operator)
    return inputs | {name: value for name, value in operator.example.attributes.items() if name in settings}


def differentiated(operator: Operator, args: Args, most: int | None = None) -> tuple[Callable[..., Any], list[Any]]:
    """A function from what can be differentiated to the results that are no ids, and where to take its gradient."""
    names = list(operator.gradient)
    rest = {name: value for name, value in args.items() if name not in names}
    extra = {"max_unique": most} if most is not None and operator.result is RowGradient else {}
    assert operator.function is not None
    function = CALLS[operator.function]

    def run(*values: Any) -> Any:
        results = as_tuple(function(**dict(zip(names, values, strict=True)), **rest, **extra))
        return [result for result in results if jnp.issubdtype(result.dtype, jnp.inexact)]

    return run, [jax.tree.map(jax.device_put, args[name]) for name in names]


DIFFERENTIABLE = [operator for operator in OPERATORS.values() if operator.function and operator.gradient]
