"""Pooled look-ups as one pure function, for whoever keeps tables as parameters: Flax, Equinox, or plain JAX."""

from typing import Any

import jax
import jax.numpy as jnp

from rowgrad._ops import OPERATORS, checks
from rowgrad._ops.combiners import COMBINERS, WITH_MAX
from rowgrad._runtime import arrays
from rowgrad.errors import InvalidArgumentError
from rowgrad.jax._call import to_jax
from rowgrad.jax._differentiable import apply
from rowgrad.jax._forms.common import sum_into, widened


def embedding_bag(
    table: Any,
    ids: Any,
    offsets: Any = None,
    segment_ids: Any = None,
    *,
    combiner: str = "mean",
    per_sample_weights: Any = None,
    num_bags: int | None = None,
    padding_idx: int | None = None,
) -> jax.Array:
    """Look up rows of a table and pool those of each bag; differentiable to any order in the table and the weights.

    Parameters
    ----------
    table : array, shape [rows, ...]
        The rows: float16, bfloat16 (summed in float32 and rounded once), float32 or float64.
    ids : array of int, shape [bags, n] or [N]
        The rows to look up. A matrix has one bag a row; a vector needs `offsets` or `segment_ids`.
    offsets : array of int, shape [bags], optional
        Where in `ids` each bag begins: 0 first, not decreasing.
    segment_ids : array of int, shape [N], optional
        The bag of each id, in any order.
    combiner : {"sum", "mean", "sqrtn", "max"}
        With weights w: Σ w·x, Σ w·x / Σ w, Σ w·x / √(Σ w²), where division by 0 gives 0; without, each weight is 1.
        "max" takes the largest of each column, and no weights.
    per_sample_weights : array, of the shape of ids, optional
        A weight for each id.
    num_bags : int, optional
        The number of bags. Under `jit` it is required with `segment_ids`; otherwise it is the last bag + 1.
    padding_idx : int, optional
        The id used for padding: it is ignored. Negative numbers count from the end.

    Returns
    -------
    array, shape [bags, ...]
        The pooled rows; bags without ids are 0.

    Raises
    ------
    InvalidArgumentError
        Shapes do not fit, offsets decrease, the combiner is unknown, or `jit` does not know the number of bags.
    OutOfRangeError
        An id is not a row of the table. Under `jit`, JAX raises an error of its own with this message in it.

    Examples
    --------
    >>> import rowgrad.jax
    >>> table = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    >>> rowgrad.jax.embedding_bag(table, [0, 1, 2], [0, 2], combiner="mean").tolist()
    [[2.0, 3.0], [5.0, 6.0]]
    >>> rowgrad.jax.embedding_bag(table, [[0, 2], [1, 1]], combiner="max").tolist()
    [[5.0, 6.0], [3.0, 4.0]]
    """
    if combiner not in WITH_MAX:
        raise _wrong("combiner", f"combiner is {combiner!r}; allowed: {', '.join(WITH_MAX)}.", combiner)
    table, ids = _array("table", table), _array("ids", ids)
    checks.at_least_vector("table", table)
    weights = None if per_sample_weights is None else _array("per_sample_weights", per_sample_weights)
    if weights is not None and weights.shape != ids.shape:
        raise _wrong("per_sample_weights", f"per_sample_weights has shape {list(weights.shape)}, but ids has "
                     f"{list(ids.shape)}; each id has one weight.", weights.shape)  # fmt: skip
    if weights is not None and combiner == "max":
        raise _wrong("per_sample_weights", "per_sample_weights cannot be used with the combiner max; leave them out.")
    bags, number = _bags(ids, offsets, segment_ids, num_bags)
    ids = ids.reshape(-1)
    is_sorted = segment_ids is None and padding_idx is None
    spare = 0
    if padding_idx is not None:
        # What is left out goes into a bag of its own, behind the others, and is not looked up.
        is_padding = ids == _row("padding_idx", padding_idx, table.shape[0])
        bags, spare = jnp.where(is_padding, number, bags), 1
    pooled = _pool(table, ids, bags, number + spare, combiner, weights, is_sorted)
    return pooled[:number] if spare else pooled


def _pool(table: Any, ids: Any, bags: Any, number: int, combiner: str, weights: Any, is_sorted: bool) -> Any:
    if combiner == "max":
        return apply(OPERATORS["SparseSegmentMax"], [table, ids, bags, number])[0]
    if weights is not None:
        weights = _normalised(weights.reshape(-1), bags, number, combiner)
        return apply(OPERATORS["SparseSegmentWeightedSum"], [table, weights, ids, bags, number])
    # The gradient of a gradient pools as the forward operator does, but takes bags in any order.
    suffix = "WithNumSegments" if is_sorted else "GradGrad"
    return apply(OPERATORS[f"SparseSegment{COMBINERS[combiner].name}{suffix}"], [table, ids, bags, number])


def _normalised(weights: Any, bags: Any, number: int, combiner: str) -> Any:
    """The weights divided by their bag's Σ w or √(Σ w²); 0 where that is 0."""
    if combiner == "sum":
        return weights
    wide = widened(weights)
    totals = sum_into(wide if combiner == "mean" else wide * wide, bags, number)
    is_zero = totals == 0
    # Both branches of a choice are differentiated, so the one that is not taken must not divide by 0.
    safe = jnp.where(is_zero, 1, totals)
    factors = jnp.where(is_zero, 0, 1 / (safe if combiner == "mean" else jnp.sqrt(safe)))
    return wide * factors.at[bags].get(mode="fill", fill_value=0)


def _bags(ids: Any, offsets: Any, segment_ids: Any, num_bags: Any) -> tuple[Any, int]:
    """The bag of each id, and how many bags there are."""
    if ids.ndim == 2:
        if offsets is not None or segment_ids is not None:
            raise _wrong(
                "ids", "ids is a matrix, whose rows are the bags; leave out offsets and segment_ids.", ids.shape
            )
        _check_number(num_bags, ids.shape[0])
        return jnp.repeat(jnp.arange(ids.shape[0], dtype=jnp.int32), ids.shape[1]), ids.shape[0]
    checks.rank("ids", ids, 1)
    if (offsets is None) == (segment_ids is None):
        raise _wrong("offsets", "ids is a vector; pass either offsets or segment_ids, for the bag of each id.")
    if offsets is not None:
        offsets = _array("offsets", offsets)
        checks.rank("offsets", offsets, 1)
        _check_number(num_bags, offsets.shape[0])
        return apply(OPERATORS["SegmentIdsFromOffsets"], [offsets, ids.shape[0]]), offsets.shape[0]
    segment_ids = _array("segment_ids", segment_ids)
    checks.rank("segment_ids", segment_ids, 1)
    checks.same_length("segment_ids", segment_ids.shape[0], "ids", ids.shape[0])
    if num_bags is not None:
        return segment_ids, checks.count("num_bags", int(num_bags))
    if isinstance(segment_ids, jax.core.Tracer):
        raise _wrong("num_bags", "under `jit` and `vmap` the number of bags must be known beforehand. Pass num_bags, a "
                     "Python int.", code="no-static-size")  # fmt: skip
    return segment_ids, int(segment_ids.max()) + 1 if segment_ids.size else 0


def _check_number(num_bags: Any, number: int) -> None:
    if num_bags is not None and num_bags != number:
        raise _wrong("num_bags", f"num_bags is {num_bags}, but there are {number} bags. Leave it out.", num_bags)


def _row(name: str, row: int, rows: int) -> int:
    if not -rows <= row < rows:
        raise checks.out_of_range(name, 0, row, rows, "the number of rows of table", "index-out-of-range", "Fix it.")
    return row % rows


def _array(name: str, value: Any) -> Any:
    """`value` as an array of JAX."""
    if arrays.kind_of(value) is arrays.JAX:
        return value
    return to_jax(name, arrays.adopt(value))


def _wrong(argument: str, message: str, value: Any = None, code: str = "wrong-argument") -> InvalidArgumentError:
    return InvalidArgumentError(message, code=code, argument=argument, value=value, op="embedding_bag")
