"""The operators in JAX's own operations, for devices that kernels do not run on.

A form in `FORMS` takes the inputs of its operator in order (counts as ints) and the `Sizes` of the results, and gives
the results and whether the ids are right. What is wrong with them, the operator itself says (`host.blame`). An operator
without a form is computed by the kernels on the host, from any device and back.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rowgrad._runtime import dtypes
from rowgrad.jax import _host as host
from rowgrad.jax._call import Call
from rowgrad.jax._forms import entries, segments, weighted
from rowgrad.jax._forms.common import Sizes

FORMS: dict[str, Callable[..., Any]] = {**segments.FORMS, **entries.FORMS, **weighted.FORMS}


def run(call: Call, *values: Any) -> list[Any]:
    """The results of `call`, traced or not, with bad ids reported."""
    form = FORMS.get(call.name)
    if form is None:
        return host.from_any_device(call, *values)
    results, ok = form(*call.inputs(values), Sizes(call))
    results = results if isinstance(results, tuple) else (results,)
    typed = [jnp.asarray(r, dtypes.NUMPY[name]) for r, (_, name) in zip(results, call.results, strict=True)]
    return _report(call, ok, values, typed)


def _report(call: Call, ok: Any, values: tuple[Any, ...], results: list[Any]) -> list[Any]:
    """Raise what is wrong; in a traced program, when it runs, by a callback that is reached only then.

    Where a program does not end at that, its numbers are NaN.
    """
    if ok is True:
        return results
    ids = [value for value, (_, name) in zip(values, call.shapes, strict=True) if name in dtypes.INTEGERS]
    if not isinstance(ok, jax.core.Tracer):
        host.blame(call, bool(ok), *ids)
        return results

    kinds = [array.dtype for array in ids]

    def blame(ok: Any, *words: Any) -> None:
        # Under vmap both branches run.
        given = [host.joined(np.asarray(array), kind) for array, kind in zip(words, kinds, strict=True)]
        host.blame(call, bool(ok), *given)

    def report(*given: Any) -> None:
        jax.debug.callback(blame, ok, *map(host.split, given))

    jax.lax.cond(ok, lambda *_: None, report, *ids)
    return [
        jnp.where(ok, result, jnp.asarray(jnp.nan, result.dtype))
        if jnp.issubdtype(result.dtype, jnp.inexact)
        else result
        for result in results
    ]


__all__ = ["FORMS", "run"]
