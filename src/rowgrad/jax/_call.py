"""One call of an operator as JAX sees it: what is fixed when a program is traced, apart from the arrays.

`bind` makes it from whatever a caller passes, by the operator's declaration: types, counts and shapes are checked
here, before anything is traced, so that these errors are plain `RowgradError`s under `jit` too.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.export
import numpy as np

from rowgrad._ops import OPERATORS, Operator, Pin, checks
from rowgrad._ops.results import RowGradient
from rowgrad._ops.shapes import has_columns, infer
from rowgrad._runtime import arrays, dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfRangeError, RowgradError

Shape = tuple[int, ...]
SIZES = ("[rank]", "[axes]")  # inputs that hold sizes or dimensions
AXES = ("split_dim",)  # counts that number dimensions, and may be negative
STAND_IN = 1 << 30  # what stands for a size that is a symbol, while shapes are inferred


class Call(NamedTuple):
    """What does not change from run to run of a traced program; hashable.

    `counts` holds, for each input, its number if it is a count, else None; `shapes` those of the arrays, in order;
    `results` the shape and type of each output, with None for a size that only running tells. `most` is the size
    that a compact gradient is padded to, `is_portable` whether kernels are not to be used. `many` holds, for each
    input, how many arrays it takes, None for the usual one; it is empty if there is no input that takes a list.
    """

    name: str
    counts: tuple[int | None, ...]
    shapes: tuple[tuple[Shape, str], ...]
    attributes: tuple[tuple[str, Any], ...]
    results: tuple[tuple[tuple[int | None, ...], str], ...]
    most: int | None
    is_portable: bool
    many: tuple[int | None, ...] = ()

    @property
    def operator(self) -> Operator:
        """The declaration."""
        return OPERATORS[self.name]

    @property
    def settings(self) -> dict[str, Any]:
        """The attributes by name."""
        return dict(self.attributes)

    def inputs(self, values: Sequence[Any]) -> list[Any]:
        """All inputs in order: the counts, and between them `values`, those of one input as a list."""
        rest = iter(values)
        if not self.many:
            return [next(rest) if count is None else count for count in self.counts]
        return [count if count is not None else next(rest) if size is None else [next(rest) for _ in range(size)]
                for count, size in zip(self.counts, self.many, strict=True)]  # fmt: skip

    def arrays(self) -> list[tuple[str, int | None]]:
        """The name of the input that each array is of, and its position among those of that input, if it takes many."""
        many = self.many or (None,) * len(self.counts)
        pins = zip(self.operator.inputs, self.counts, many, strict=True)
        return [(pin.name, position) for pin, count, size in pins if count is None
                for position in ([None] if size is None else range(size))]  # fmt: skip

    def by_name(self, values: Sequence[Any]) -> dict[str, Any]:
        """The arrays, or what there is for each, by the names of the inputs."""
        found: dict[str, Any] = {}
        for (name, position), value in zip(self.arrays(), values, strict=True):
            if position is None:
                found[name] = value
            else:
                found.setdefault(name, []).append(value)
        return found

    def structs(self) -> list[jax.ShapeDtypeStruct]:
        """The outputs as a traced program must know them; sizes that only running tells are an error here."""
        return [jax.ShapeDtypeStruct(self._sizes(shape), dtypes.NUMPY[name]) for shape, name in self.results]

    def _sizes(self, shape: tuple[int | None, ...]) -> Shape:
        if None not in shape:
            return shape  # type: ignore[return-value]
        if self.most is None:
            raise no_size(self.operator)
        return tuple(self.most if size is None else size for size in shape)

    def wrap(self, results: Sequence[Any]) -> Any:
        """The outputs as the function gives them: one array, or the operator's named tuple."""
        result = self.operator.result
        return results[0] if result is None else result(*results)


def is_compact(operator: Operator) -> bool:
    """Whether it gives a compact gradient, which can be padded to a size known beforehand."""
    return operator.result is RowGradient


def bind(operator: Operator, values: Sequence[Any], settings: Mapping[str, Any], most: Any = None,
         is_portable: bool = False) -> tuple[Call, list[jax.Array]]:  # fmt: skip
    """What is fixed in this call, and its arrays; `values` are all inputs in order."""
    try:
        return _bind(operator, values, settings, most, is_portable)
    except RowgradError as error:
        error.op = error.op or operator.name
        raise


def _bind(operator: Operator, values: Sequence[Any], settings: Mapping[str, Any], most: Any,
          is_portable: bool) -> tuple[Call, list[jax.Array]]:  # fmt: skip
    # JAX's arrays are fitted by an empty array of their type and rank: a traced one has no values yet.
    is_count = [fitter.is_count for fitter in operator.fitters]
    symbols = {pin.name: value for pin, value in zip(operator.inputs, values, strict=True)
               if jax.export.is_symbolic_dim(value)}  # fmt: skip
    values = [STAND_IN + i if pin.name in symbols else value
              for i, (pin, value) in enumerate(zip(operator.inputs, values, strict=True))]  # fmt: skip
    stand_ins = [
        _number(operator, pin.name, value) if count else _stand_in(value, pin.many)
        for pin, value, count in zip(operator.inputs, values, is_count, strict=True)
    ]
    fitted = operator._fit(tuple(stand_ins))
    counts, given = [], []
    known: dict[str, Any] = {}
    shapes: dict[str, Any] = {}
    bound: dict[str, np.dtype[Any]] = {}
    for pin, value, fit, count in zip(operator.inputs, values, fitted, is_count, strict=True):
        counts.append(checks.count(pin.name, fit, least=None if pin.name in AXES else 0) if count else None)
        if count:
            known[pin.name], shapes[pin.name] = fit, ()
            continue
        if pin.many:
            parts = [_array(pin, part, like) for part, like in zip(value, fit, strict=True)]
            bound.setdefault(pin.dtype, fit[0].dtype)
            shapes[pin.name] = [part.shape for part in parts]
            given.extend(parts)
            continue
        array = _array(pin, value, fit)
        bound.setdefault(pin.dtype, fit.dtype)
        if not isinstance(array, jax.core.Tracer) and _tells_sizes(pin, operator):
            known[pin.name] = np.asarray(array)
        shapes[pin.name] = array.shape
        given.append(array)
    _check_rows(operator, shapes)
    results = _results(operator, infer(operator, shapes, known, settings), bound, settings)
    if symbols:
        counts, results = _with_symbols(operator, symbols, counts, results)
    most = _checked_most(operator, most, counts, results_of(operator, results))
    call = Call(operator.name, tuple(counts), tuple((a.shape, dtypes.name_of(a.dtype)) for a in given),
                tuple(sorted(settings.items())), tuple(results), most, is_portable,
                _layout(operator, fitted))  # fmt: skip
    return call, given


def _layout(operator: Operator, fitted: Sequence[Any]) -> tuple[int | None, ...]:
    if not any(pin.many for pin in operator.inputs):
        return ()
    return tuple(len(fit) if pin.many else None for pin, fit in zip(operator.inputs, fitted, strict=True))


def _array(pin: Pin, value: Any, fit: Array) -> Any:
    """A caller's array as one that JAX takes; `fit` is it, or stands for it."""
    is_jax = arrays.kind_of(value) is arrays.JAX
    return _typed(value, _canonical(fit.dtype)) if is_jax else in_jax_types(pin.name, fit)


def _with_symbols(operator: Operator, symbols: Mapping[str, Any], counts: list[Any], results: list[Any]) -> (
        tuple[list[Any], list[Any]]):  # fmt: skip
    """Counts and results with the sizes that are symbols while a program is exported, in place of their stand-ins."""
    if is_compact(operator):
        name = next(iter(symbols))
        raise InvalidArgumentError(
            f"{name} is {symbols[name]}, a symbol; compact gradients are padded with the number of rows. Pass one.",
            code="no-value",
            argument=name,
        )
    places = {STAND_IN + i: symbols[pin.name] for i, pin in enumerate(operator.inputs) if pin.name in symbols}
    counts = [places.get(count, count) for count in counts]
    return counts, [(tuple(places.get(size, size) for size in shape), name) for shape, name in results]


def results_of(operator: Operator, results: Sequence[Any]) -> dict[str, Any]:
    """Results by the names of the output pins."""
    return {pin.name: result for pin, result in zip(operator.outputs, results, strict=True)}


def _check_rows(operator: Operator, shapes: Mapping[str, Shape]) -> None:
    """Rows of several inputs have one shape, as operators find when they run; a traced program would broadcast."""
    pins = [pin for pin in operator.inputs if has_columns(pin)]
    for first, pin in itertools.pairwise(pins):
        if shapes[pin.name][1:] != shapes[first.name][1:]:
            raise InvalidArgumentError(
                f"the rows of {pin.name} have shape {list(shapes[pin.name][1:])}, but those of {first.name} have "
                f"{list(shapes[first.name][1:])}; they must be the same. Reshape one of them.",
                code="length-mismatch",
                argument=pin.name,
                value=shapes[pin.name],
            )


def _results(operator: Operator, shapes: Mapping[str, Any], bound: Mapping[str, "np.dtype[Any]"],
             settings: Mapping[str, Any]) -> list[tuple[tuple[int | None, ...], str]]:  # fmt: skip
    """The shape and type of each output."""
    results = []
    for pin in operator.outputs:
        dtype = bound.get(pin.dtype) or _settled(operator, pin, bound, settings)
        if shapes[pin.name] is None:
            raise no_size(operator)
        # A negative last id is found wrong later; until then there are no rows.
        shape = tuple(max(size, 0) if isinstance(size, int) else size for size in shapes[pin.name])
        results.append((shape, dtypes.name_of(_canonical(dtype))))
    return results


def _settled(operator: Operator, pin: Pin, bound: Mapping[str, "np.dtype[Any]"],
             settings: Mapping[str, Any]) -> "np.dtype[Any]":  # fmt: skip
    """A type that no input has: it is fixed, or an attribute; functions leave that to the type of the values."""
    if pin.dtype not in operator.types:
        return dtypes.NUMPY[pin.dtype]
    return dtypes.NUMPY[settings[pin.dtype]] if settings.get(pin.dtype) is not None else bound["T"]


def _sizes_told(operator: Operator) -> str:
    return " ".join(pin.shape for pin in operator.outputs)


def _tells_sizes(pin: Pin, operator: Operator) -> bool:
    """Whether the size of an output follows from the values of an input."""
    if operator.shape_rule is not None and pin.shape in SIZES:
        return True
    return f"{pin.name}[" in _sizes_told(operator) or f"last({pin.name})" in _sizes_told(operator)


def _stand_in(value: Any, many: bool) -> Any:
    """What types are settled by: an empty array for one of JAX's, everything else as it is."""
    if many and isinstance(value, list | tuple):
        return [_stand_in(part, False) for part in value]
    return np.empty((0,) * value.ndim, value.dtype) if arrays.kind_of(value) is arrays.JAX else value


def _canonical(dtype: "np.dtype[Any]") -> "np.dtype[Any]":
    """`dtype`, or its 32-bit form where JAX has no 64 bits."""
    known: np.dtype[Any] = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    return known


def _typed(array: Any, dtype: "np.dtype[Any]") -> Any:
    return array if array.dtype == dtype else array.astype(dtype)


def in_jax_types(name: str, array: Array) -> Array:
    """An ndarray of a type that JAX has; without 64 bits, of one half as wide if nothing but precision is lost."""
    if array.dtype.kind in "USOTV" and array.dtype != dtypes.BFLOAT16:
        raise DTypeError(
            f"{name} is {dtypes.name_of(array.dtype)}, which JAX has no arrays of. Call rowgrad's own function.",
            code="wrong-dtype",
            argument=name,
            value=dtypes.name_of(array.dtype),
        )
    narrow = _canonical(array.dtype)
    if narrow == array.dtype:
        return array
    if narrow.kind in "iu" and array.size:
        limits = np.iinfo(narrow)
        if not limits.min <= array.min() <= array.max() <= limits.max:
            raise OutOfRangeError(
                f"{name} needs 64-bit integers, which this JAX cuts to 32 bits. Set `jax_enable_x64`.",
                code="needs-x64",
                argument=name,
            )
    return array.astype(narrow)


def to_jax(name: str, array: Array, *, is_ours: bool = False) -> jax.Array:
    """An ndarray as one of JAX; what `is_ours` nobody else holds, and it need not be copied.

    (`jnp.asarray` would compile a program for each new shape.)
    """
    return jax.device_put(in_jax_types(name, array), may_alias=is_ours)


def _number(operator: Operator, name: str, value: Any) -> Any:
    """A count must be a number when the program is traced, because shapes follow from it."""
    if isinstance(value, jax.core.Tracer):
        raise InvalidArgumentError(
            f"{name} is traced; under `jit` and `vmap` sizes must be known beforehand. Pass a Python int: close over "
            "it, or name it in static_argnames.",
            code="no-value",
            argument=name,
            value=type(value).__name__,
            op=operator.name,
        )
    return value


def no_size(operator: Operator) -> InvalidArgumentError:
    """The error for a result whose size would have to be known before it is made."""
    names = {pin.name for pin in operator.inputs}
    if is_compact(operator):
        argument, remedy = "max_unique", "Pass max_unique, the most distinct rows that may occur; results are padded."
    elif "last(segment_ids)" in _sizes_told(operator):
        argument, remedy = "num_segments", "Pass num_segments, a Python int."
    else:
        argument = "values" if "values" in names else operator.inputs[0].name
        remedy = "Call it outside `jit` and `vmap`, and pass its result into the traced function."
    return InvalidArgumentError(
        f"under `jit` and `vmap` the size of the result must be known beforehand, and it depends on values. {remedy}",
        code="no-static-size",
        argument=argument,
        op=operator.name,
    )


def _checked_most(operator: Operator, most: Any, counts: Sequence[int | None], results: Mapping[str, Any]) -> Any:
    if most is None:
        return None
    if isinstance(most, jax.core.Tracer | bool) or not isinstance(most, int | np.integer):
        wrong = f"max_unique is {most!r}; it must be a Python int, known before the program is traced."
    elif most < 0:
        wrong = f"max_unique is {most}; it must be 0 or more."
    else:
        rows = next(count for count in counts if count is not None)
        _, dtype = results["sorted_unique_indices"]
        if rows <= np.iinfo(dtypes.NUMPY[dtype]).max:
            return int(most)
        wrong = f"max_unique pads with the number of rows, {rows}, which {dtype} cannot hold. Pass int64 indices."
    raise InvalidArgumentError(wrong, code="bad-max-unique", argument="max_unique", value=most)


def too_small(call: Call, needed: int) -> InvalidArgumentError:
    """The error for more distinct rows than there is room for."""
    return InvalidArgumentError(
        f"max_unique is {call.most}, but {needed} distinct rows occur. Pass {needed} or more.",
        code="max-unique-too-small",
        argument="max_unique",
        value=call.most,
        op=call.name,
    )
