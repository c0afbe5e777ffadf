"""What the portable forms share: the type sums are made in, rows by id, and which ids are in range."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from rowgrad._runtime import dtypes

if TYPE_CHECKING:
    from rowgrad.jax._call import Call


class Sizes:
    """How large results are: `rows` of the first one, unless only running tells.

    `most` is what a compact gradient is padded to, None where its size is to be exact; `dtypes` are those of results.
    """

    def __init__(self, call: "Call") -> None:
        shape, _ = call.results[0]
        self.rows = shape[0] if shape else None
        self.most = call.most
        self.dtypes = [dtypes.NUMPY[name] for _, name in call.results]

    def distinct(self, ids: Any, rows: int) -> tuple[Any, Any]:
        """The distinct ids below `rows`, ascending, padded with `rows`; and whether there is room for all."""
        if ids.size == 0:  # JAX takes nothing out of nothing
            return jnp.full(self.most or 0, rows, ids.dtype), True
        ordered = jnp.sort(ids)
        is_new = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]]) & (ordered < rows)
        number = jnp.sum(is_new)
        if self.most is None:
            return ordered[jnp.nonzero(is_new, size=int(number))[0]], True
        places = jnp.nonzero(is_new, size=self.most, fill_value=ids.size)[0]
        return ordered.at[places].get(mode="fill", fill_value=rows), number <= self.most


def widened(array: Any) -> Any:
    """`array` in the type that it is summed in: half and bfloat16 in float32."""
    if array.dtype in (jnp.float16, dtypes.BFLOAT16):
        return array.astype(jnp.float32)
    return array


def rows_at(array: Any, ids: Any) -> Any:
    """array[ids]; rows that there are not are 0."""
    if array.shape[0] == 0:
        return jnp.zeros((*ids.shape, *array.shape[1:]), array.dtype)
    return array.at[_or_past(ids, array.shape[0])].get(mode="fill", fill_value=0)


def sum_into(values: Any, ids: Any, rows: int) -> Any:
    """The sum of the values of each row; those of no row are left out."""
    return jnp.zeros((rows, *values.shape[1:]), values.dtype).at[_or_past(ids, rows)].add(values, mode="drop")


def _or_past(ids: Any, rows: int) -> Any:
    """Negative ids would count from the end: they become ids past it."""
    return jnp.where(ids < 0, rows, ids)


def all_in(ids: Any, rows: int, least: int = 0) -> Any:
    """Whether all ids are in [least, rows)."""
    return jnp.all((ids >= least) & (ids < rows))


def per_row(factors: Any, values: Any) -> Any:
    """`factors`, one a row, in the shape to be multiplied with `values`."""
    return factors.reshape(factors.shape + (1,) * (values.ndim - factors.ndim))


def rounded(sums: Any, like: Any) -> jax.Array:
    """The last step: from the type of the sums to that of the values, rounded once."""
    return jnp.asarray(sums, like.dtype)
