"""Training on the rows that occur: taken out of the table once, differentiated alone, put back.

JAX's gradient of a table is as large as the table. Whoever differentiates with respect to the rows that were taken
instead gets a compact gradient, under `jit` too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rowgrad._ops import OPERATORS
from rowgrad._ops.results import RowGradient
from rowgrad._runtime import arrays
from rowgrad.jax._call import to_jax
from rowgrad.jax._differentiable import apply


class TakenRows(NamedTuple):
    """Distinct rows of a table: row u is row sorted_unique_indices[u] of it; ``table[ids]`` is rows[positions]."""

    rows: Any
    sorted_unique_indices: Any
    positions: Any

    def put_into(self, table: jax.Array, rows: jax.Array) -> jax.Array:
        """Return `table` with `rows` written back to where they were taken from; padding is ignored.

        Under `jit` with the table donated (``donate_argnums``), the rest of the table is not copied.
        """
        return table.at[self.sorted_unique_indices].set(rows.astype(table.dtype), mode="drop", unique_indices=False)


def take_rows(table: Any, ids: Any, *, max_unique: int | None = None) -> TakenRows:
    """Take the distinct rows that `ids` name out of `table`.

    Parameters
    ----------
    table : array, shape [rows, ...]
        The table.
    ids : array of int, any shape
        Rows of the table; they may repeat.
    max_unique : int, optional
        The most distinct rows that may occur, which `jit` must know: `rows` is then padded to it with zeros and
        `sorted_unique_indices` with the number of rows of the table. More distinct rows than that are an error.

    Returns
    -------
    TakenRows
        rows [U, ...], sorted_unique_indices [U], and positions, in the shape of ids: ``table[ids]`` is
        ``rows[positions]``, so a look-up of ids in the table is a look-up of positions in rows.

    Raises
    ------
    OutOfRangeError
        An id is not a row of the table.
    InvalidArgumentError
        More than max_unique distinct ids; or no max_unique under `jit`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, rowgrad.jax
    >>> table, ids = jnp.ones((1000, 2)), jnp.array([7, 1, 7])
    >>> taken = rowgrad.jax.take_rows(table, ids)
    >>> def loss(rows):
    ...     return rowgrad.jax.embedding_bag(rows, taken.positions, [0, 2], combiner="sum").sum()
    >>> gradient = jax.grad(loss)(taken.rows)
    >>> taken.sorted_unique_indices.tolist(), gradient.tolist()
    ([1, 7], [[1.0, 1.0], [2.0, 2.0]])
    >>> table = taken.put_into(table, taken.rows - 0.1 * gradient)
    >>> table[7].tolist()
    [0.800000011920929, 0.800000011920929]
    """
    if arrays.kind_of(table) is not arrays.JAX:
        table = to_jax("table", arrays.adopt(table))
    if arrays.kind_of(ids) is not arrays.JAX:
        ids = to_jax("ids", arrays.adopt(ids))
    flat = ids.reshape(-1)
    # The compact gradient of rows without columns: it finds the distinct ids, checks them, and sums nothing.
    nothing = jnp.zeros((1, 0), jnp.float32)
    _, unique = apply(OPERATORS["SparseSegmentSumGradV2"],
                      [nothing, flat, jnp.zeros_like(flat), table.shape[0]], most=max_unique)  # fmt: skip
    positions = apply(OPERATORS["IndexRank"], [unique, flat])
    rows = table.at[unique].get(mode="fill", fill_value=0)
    return TakenRows(rows, unique, positions.reshape(ids.shape))


def value_and_row_grad(loss: Callable[..., Any], *, max_unique: int | None = None) -> Callable[..., Any]:
    """Return a function that computes the value of `loss` and its compact gradient with respect to a table.

    Parameters
    ----------
    loss : function of rows, positions and others, to a number
        Written as if `rows` were the table and `positions` the ids.
    max_unique : int, optional
        As for `take_rows`.

    Returns
    -------
    function of table, ids and others
        It returns the value and a `RowGradient`.

    Examples
    --------
    >>> import jax.numpy as jnp, rowgrad.jax
    >>> def loss(rows, positions, offsets):
    ...     return rowgrad.jax.embedding_bag(rows, positions, offsets, combiner="mean").sum()
    >>> value, gradient = rowgrad.jax.value_and_row_grad(loss)(jnp.ones((1000, 2)), [7, 1, 7], [0, 2])
    >>> float(value), gradient.sorted_unique_indices.tolist(), gradient.output.tolist()
    (4.0, [1, 7], [[0.5, 0.5], [1.5, 1.5]])
    """

    def function(table: Any, ids: Any, *others: Any, **named: Any) -> tuple[Any, RowGradient]:
        taken = take_rows(table, ids, max_unique=max_unique)
        value, gradient = jax.value_and_grad(lambda rows: loss(rows, taken.positions, *others, **named))(taken.rows)
        return value, RowGradient(gradient, taken.sorted_unique_indices)

    return function
