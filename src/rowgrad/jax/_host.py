"""The kernels as JAX calls them: at once on arrays that are there, by callback in a traced program.

The callback sees XLA's own buffers as ndarrays: nothing is copied in, and a dense result is written in place.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.jax._call import Call, to_jax, too_small
from rowgrad.jax._rounding import keeping_subnormals

HALVED = (np.int64, np.uint64, np.float64, np.complex128)  # what JAX has with 64-bit types enabled only


def at_once(call: Call, values: Sequence[Any]) -> list[jax.Array]:
    """Run on arrays that are there; errors are rowgrad's own."""
    results = _results(call, [np.asarray(value) for value in values])
    if call.most is not None:
        results = _padded(call, results)
    pins = call.operator.outputs
    return [to_jax(pin.name, np.asarray(result), is_ours=True) for pin, result in zip(pins, results, strict=True)]


def traced(call: Call, *values: Any) -> list[jax.Array]:
    """The same in a traced program, when it runs."""
    run = buffer_callback(partial(_fill_buffers, call), call.structs())
    return list(run(*values))


def from_any_device(call: Call, *values: Any) -> list[jax.Array]:
    """The same where arrays are on another device: they come here, and the results go there."""
    if not any(isinstance(value, jax.core.Tracer) for value in values):
        return [jax.device_put(result, values[0].device) for result in at_once(call, values)]

    kinds, structs = [value.dtype for value in values], call.structs()

    def run(*words: Any) -> list[Array]:
        with keeping_subnormals():
            arrays = [joined(np.asarray(array), kind) for array, kind in zip(words, kinds, strict=True)]
            results = _results(call, arrays)
            found = results if call.most is None else _padded(call, results)
            return [split(np.asarray(result, kind.dtype)) for result, kind in zip(found, structs, strict=True)]

    shapes = jax.eval_shape(lambda: [split(jnp.empty(kind.shape, kind.dtype)) for kind in structs])
    words = jax.pure_callback(run, shapes, *map(split, values), vmap_method="sequential")
    return [joined(array, kind.dtype) for array, kind in zip(words, structs, strict=True)]


# JAX turns what a callback takes and gives into 32 bits if the thread that runs it does not know about
# `jax.enable_x64`, which may be set for the calling thread only. So 64 bits are handed over as two words of 32.


def split(array: Any) -> Any:
    """An array, JAX's or NumPy's, as it is passed to callbacks and back."""
    return array[..., None].view(np.uint32) if array.dtype in HALVED else array


def joined(words: Any, dtype: Any) -> Any:
    """The array of this type that was split."""
    return words.view(dtype)[..., 0] if dtype in HALVED else words


def _fill_buffers(call: Call, context: Any, outs: Sequence[Any], *buffers: Any) -> None:
    with keeping_subnormals():
        fill(call, outs, buffers)


def fill(call: Call, outs: Sequence[Any], buffers: Sequence[Any]) -> None:
    """Run the operator on arrays or buffers, and write its results to `outs`."""
    values = [np.asarray(buffer) for buffer in buffers]
    targets = [np.asarray(out) for out in outs]
    operator = call.operator
    if len(targets) == 1 and "out" in operator.options and targets[0].flags.carray:
        operator(*call.inputs(values), out=targets[0], **call.settings)
        return
    results = _results(call, values)
    if call.most is not None:
        _pad_into(call, results, targets)
        return
    for target, result in zip(targets, results, strict=True):
        target[...] = result


def _results(call: Call, values: Sequence[Array]) -> list[Array]:
    results = call.operator(*call.inputs(values), **call.settings)
    return [results] if call.operator.result is None else list(results)


def _padded(call: Call, results: Sequence[Array]) -> list[Array]:
    targets = [np.empty(struct.shape, struct.dtype) for struct in call.structs()]
    _pad_into(call, results, targets)
    return targets


def _pad_into(call: Call, results: Sequence[Array], targets: Sequence[Array]) -> None:
    for target, result, padding in zip(targets, results, paddings(call), strict=True):
        size = len(result)
        if size > len(target):
            raise too_small(call, size)
        target[:size] = result
        target[size:] = padding


def paddings(call: Call) -> list[int]:
    """What fills each output of a compact gradient: rows of zeros, and an id that no row has."""
    rows = next(count for count in call.counts if count is not None)
    return [rows if name in dtypes.IDS else 0 for _, name in call.results]


def blame(call: Call, ok: Any, *ids: Any) -> None:
    """Raise the error for ids that the portable path found wrong: the operator itself names it.

    Of the other inputs only the shapes matter.
    """
    if ok:
        return
    given = iter(ids)
    values = [
        np.asarray(next(given)) if name in dtypes.INTEGERS else np.zeros(shape, dtypes.NUMPY[name])
        for shape, name in call.shapes
    ]
    results = _results(call, values)
    if call.most is not None:
        _padded(call, results)
