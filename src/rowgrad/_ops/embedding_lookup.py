"""The embedding look-ups of TensorFlow, built from the operators, for tables of any framework.

What decides which rows meet, the ids, is worked out in NumPy; tables and weights of PyTorch and JAX go through the
operators of their front end, so that gradients flow to both. TensorFlow's are computed in NumPy.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from rowgrad._ops import checks, combiners, functions, lookup_tables
from rowgrad._ops.pins import Input, Pin
from rowgrad._ops.ragged_tensor import RaggedTensor
from rowgrad._runtime import arrays
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import InvalidArgumentError, RowgradError

_IDS = ("int32", "int64")
_INDICES = Input(Pin("sp_ids.indices", "int64", "[N, D]", ""), ("int64",))
_VALUES = Input(Pin("sp_ids.values", "Tidx", "[N]", ""), _IDS)
_LOOKED_UP = Input(Pin("ids", "Tidx", "[...]", ""), _IDS)
_SHAPE = Input(Pin("sp_ids.dense_shape", "int64", "[D]", ""), ("int64",))


def embedding_lookup(params: Any, ids: Any, *, max_norm: float | None = None, partition_strategy: str = "div") -> Any:
    """Look up rows of a table by their ids.

    Parameters
    ----------
    params : array of shape [V, ...], or list of arrays
        The table, or its parts: a NumPy, PyTorch, JAX or TensorFlow array. The result is of the same kind. Gradients
        flow to PyTorch and JAX tables.
    ids : int32 or int64, any shape, or RaggedTensor
        The rows. For a ragged tensor the result is ragged too.
    max_norm : float, optional
        The largest Euclidean norm of a row; longer rows are scaled down to it.
    partition_strategy : {"div", "mod"}
        How the rows of a table in parts are numbered: each part has successive ones, or row i is in part i mod n.

    Returns
    -------
    array, shape `ids.shape` + [...]

    Raises
    ------
    OutOfRangeError
        An id is not a row of params.

    Examples
    --------
    >>> import numpy as np
    >>> import rowgrad
    >>> rowgrad.embedding_lookup(np.array([[1.0], [2.0], [3.0]]), [[2, 0]]).tolist()
    [[[3.0], [1.0]]]
    """
    if isinstance(ids, RaggedTensor):
        found = embedding_lookup(params, ids.flat_values, max_norm=max_norm, partition_strategy=partition_strategy)
        return ids.with_values(found)
    bound = lookup_tables.check_norm(max_norm)
    numbers = _LOOKED_UP.fit(_detached(ids))
    numbers = np.asarray(numbers)
    table, places = _table(params, numbers.reshape(-1), partition_strategy)
    _check_ids("ids", places, table.shape[0])
    rows = _taken(table, places)
    if bound is not None:
        rows = lookup_tables.bounded_rows(rows, bound)
    return _handed_back(_first(params), rows.reshape(*numbers.shape, *table.shape[1:]))


def embedding_lookup_sparse(params: Any, sp_ids: Any, sp_weights: Any = None, combiner: str = "mean", *,
                            max_norm: float | None = None, partition_strategy: str = "div",
                            allow_fast_lookup: bool = False) -> Any:  # fmt: skip
    """Look up the ids of a sparse matrix, and pool the rows of the table for each of its rows.

    Parameters
    ----------
    params : array of shape [V, ...], or list of arrays
        The table, or its parts: a NumPy, PyTorch, JAX or TensorFlow array. The result is of the same kind. Gradients
        flow to PyTorch and JAX tables; a TensorFlow tensor that a `tf.GradientTape` watches is an error.
    sp_ids : sparse tensor or RaggedTensor
        The ids: (indices [N, D], values [N], dense_shape [D]), or an object with these attributes. The first column of
        indices is the row that an id belongs to; rows must not decrease. Or a ragged tensor of ids.
    sp_weights : sparse tensor or RaggedTensor, optional
        A weight for each id, at the same indices; only its values are used.
    combiner : {"mean", "sqrtn", "sum"}
        With weights w: Σ w·x / Σ w, Σ w·x / sqrt(Σ w²) or Σ w·x; division by 0 gives 0. Without, each weight is 1.
    max_norm : float, optional
        The largest Euclidean norm of a row of the table; longer rows are scaled down to it before pooling.
    partition_strategy : {"div", "mod"}
        How the rows of a table in parts are numbered: each part has successive ones, or row i is in part i mod n.
    allow_fast_lookup : bool
        Has no effect: look-ups are always made in one pass.

    Returns
    -------
    array, shape [last row + 1, ...]
        The pooled rows; rows without ids are 0.

    Raises
    ------
    InvalidArgumentError
        Shapes do not fit, rows decrease, or the combiner is unknown.
    OutOfRangeError
        An id is not a row of params.

    Examples
    --------
    >>> import rowgrad
    >>> ids = ([[0, 0], [0, 1], [1, 0]], [1, 3, 0], [2, 2])
    >>> rowgrad.embedding_lookup_sparse([[1.0], [2.0], [3.0], [4.0]], ids).tolist()
    [[3.0], [1.0]]
    """
    combiners.check(combiner, sorted(combiners.COMBINERS))
    bound = lookup_tables.check_norm(max_norm)
    ids = _read(sp_ids)
    table, places = _table(params, ids.values, partition_strategy)
    table, places = _bounded(table, places, bound)
    pooled = _pool(table, places, ids.indices[:, 0], None, _weights(sp_weights, ids, table), combiner)
    return _handed_back(_first(params), pooled)


def safe_embedding_lookup_sparse(params: Any, sp_ids: Any, sp_weights: Any = None, combiner: str = "mean",
                                 default_id: int | None = None, *, max_norm: float | None = None,
                                 partition_strategy: str = "div", allow_fast_lookup: bool = False) -> Any:  # fmt: skip
    """`embedding_lookup_sparse` that drops negative ids, has a default for rows without ids, and takes ids of any rank.

    Parameters
    ----------
    params, sp_ids, sp_weights, combiner, max_norm, partition_strategy, allow_fast_lookup
        As for `embedding_lookup_sparse`. Of ids of rank D > 2, all but the last dimension count as rows. For mean and
        sqrtn, entries with weights that are not above 0 are dropped too.
    default_id : int, optional
        The id for rows without ids, with weight 1. Without it, these rows are 0.

    Returns
    -------
    array, shape `dense_shape[:-1]` + [...]
        The pooled rows.

    Examples
    --------
    >>> import rowgrad
    >>> ids = ([[0, 0], [0, 1], [2, 0]], [1, -1, 3], [3, 2])
    >>> table = [[1.0], [2.0], [3.0], [4.0]]
    >>> rowgrad.safe_embedding_lookup_sparse(table, ids).tolist()
    [[2.0], [0.0], [4.0]]
    >>> rowgrad.safe_embedding_lookup_sparse(table, ids, default_id=2).tolist()
    [[2.0], [3.0], [4.0]]
    """
    combiners.check(combiner, sorted(combiners.COMBINERS))
    bound = lookup_tables.check_norm(max_norm)
    ids = _read(sp_ids)
    weights = _weights(sp_weights, ids, _floats(_first(params), "params"))
    sizes = ids.dense_shape.tolist()
    segments = _row_numbers(ids)
    keep = ids.values >= 0
    if weights is not None and combiner != "sum":
        keep &= _plain(weights) > 0
    kept = np.flatnonzero(keep)
    if (np.diff(segments[kept]) < 0).any():
        kept = kept[np.argsort(segments[kept], kind="stable")]
    values, segments = ids.values[kept], segments[kept]
    if weights is not None:
        weights = _taken(weights, kept)
    rows = int(np.prod(sizes[:-1], dtype=np.int64))
    if default_id is not None:
        places, shape = np.stack([segments, np.zeros_like(segments)], axis=1), np.array([rows, 1])
        if weights is not None:
            one = _like(weights, np.ones((), _plain(weights).dtype))
            weights = (
                _front_end(weights)
                .sparse_fill_empty_rows(
                    *(_like(weights, x) if i != 1 else x for i, x in enumerate((places, weights, shape, one)))
                )
                .output_values
            )
        default = np.asarray(default_id, values.dtype)
        filled = functions.sparse_fill_empty_rows(places, values, shape, default)
        values, segments = filled.output_values, filled.output_indices[:, 0]
    table, values = _bounded(*_table(params, values, partition_strategy), bound)
    pooled = _pool(table, values, segments, rows, weights, combiner)
    return _handed_back(_first(params), pooled.reshape(*sizes[:-1], *pooled.shape[1:]))


def _first(params: Any) -> Any:
    """The table, or the first of its parts."""
    return params[0] if lookup_tables.is_partitioned(params) else params


def _table(params: Any, ids: Array, strategy: str) -> tuple[Any, Array]:
    """The table as one array, and where the ids stand in it."""
    lookup_tables.check_strategy(strategy)
    if not lookup_tables.is_partitioned(params):
        return _floats(params, "params"), ids
    if len(params) == 1:
        return _floats(params[0], "params"), ids
    parts = [_floats(part, "params") for part in params]
    return lookup_tables.joined(parts), lookup_tables.places_in_parts(ids, [len(part) for part in parts], strategy)


def _bounded(table: Any, places: Array, bound: float | None) -> tuple[Any, Array]:
    """The rows that are looked up, each once, with bounded norms, and where the ids stand among them."""
    if bound is None:
        return table, places
    _check_ids("sp_ids.values", places, table.shape[0])
    unique, numbers = np.unique(places, return_inverse=True)
    return lookup_tables.bounded_rows(_taken(table, unique), bound), numbers.reshape(-1).astype(np.int64)


def _check_ids(name: str, ids: Array, rows: int) -> None:
    wrong = (ids < 0) | (ids >= rows)
    if wrong.any():
        position = int(wrong.argmax())
        raise checks.out_of_range(name, position, int(ids[position]), rows, "the number of rows of params",
                                  "index-out-of-range", "Drop the id, or fix it.")  # fmt: skip


class _Ids(NamedTuple):
    indices: Array
    values: Array
    dense_shape: Array


def _read(sp_ids: Any) -> _Ids:
    if hasattr(sp_ids, "row_splits") and hasattr(sp_ids, "flat_values"):
        sp_ids = _of_ragged(sp_ids)
    parts = _parts(sp_ids, "sp_ids")
    with_names = zip((_INDICES, _VALUES, _SHAPE), parts, strict=True)
    indices, values, shape = (np.atleast_1d(fitter.fit(_detached(part))) for fitter, part in with_names)
    checks.rank("sp_ids.values", values, 1)
    if indices.size == 0 and values.size == 0:
        indices = indices.reshape(0, max(shape.size, 1))
    checks.rank("sp_ids.indices", indices, 2)
    checks.rank("sp_ids.dense_shape", shape, 1)
    checks.same_length("sp_ids.values", values.size, "sp_ids.indices", len(indices))
    checks.same_length("sp_ids.dense_shape", shape.size, "a row of sp_ids.indices", indices.shape[1])
    if shape.size == 0:
        raise InvalidArgumentError(
            "sp_ids.dense_shape is empty; ids have at least one dimension, their rows.",
            code="wrong-rank",
            argument="sp_ids.dense_shape",
        )
    for position in range(shape.size):
        checks.not_negative("sp_ids.dense_shape", shape, position)
    return _Ids(indices, values, shape)


def _of_ragged(ids: Any) -> tuple[Any, Any, Any]:
    """A ragged tensor of ids, rowgrad's or TensorFlow's, as a sparse one; their places in a row do not matter."""
    ragged = ids if isinstance(ids, RaggedTensor) else RaggedTensor.from_tensorflow(ids)
    if ragged.ragged_rank != 1:
        raise InvalidArgumentError(
            f"sp_ids has {ragged.ragged_rank} ragged dimensions; ids have rows, and no others.",
            code="wrong-rank",
            argument="sp_ids",
            value=ragged.ragged_rank,
        )
    rows = ragged.value_rowids()
    return np.stack([rows, np.zeros_like(rows)], axis=1), ragged.values, np.array([len(ragged), 1])


def _parts(sparse: Any, argument: str) -> tuple[Any, Any, Any]:
    if all(hasattr(sparse, name) for name in _Ids._fields):
        return sparse.indices, sparse.values, sparse.dense_shape
    if isinstance(sparse, tuple | list) and len(sparse) == 3:
        return sparse[0], sparse[1], sparse[2]
    raise InvalidArgumentError(
        f"{argument} is a {type(sparse).__name__}; it must be a sparse tensor: (indices, values, dense_shape).",
        code="not-sparse",
        argument=argument,
        value=type(sparse).__name__,
    )


def _weights(sp_weights: Any, ids: _Ids, params: Any) -> Any:
    """The weights, in the type that rows of the table are summed in."""
    if sp_weights is None:
        return None
    is_ragged = hasattr(sp_weights, "row_splits") and hasattr(sp_weights, "flat_values")
    weights = sp_weights.flat_values if is_ragged else _parts(sp_weights, "sp_weights")[1]
    weights = _floats(weights, "sp_weights.values")
    plain = _plain(weights)
    checks.rank("sp_weights.values", plain, 1)
    checks.same_length("sp_weights.values", plain.size, "sp_ids.values", ids.values.size)
    return _as_type(weights, "float64" if str(params.dtype).endswith("float64") else "float32")


def _row_numbers(ids: _Ids) -> Array:
    """The row of each id, all dimensions but the last as one; an index outside its dimension is an error."""
    numbers = np.zeros(len(ids.indices), np.int64)
    for column, size in enumerate(ids.dense_shape.tolist()[:-1]):
        there = ids.indices[:, column]
        wrong = (there < 0) | (there >= size)
        if wrong.any():
            position = int(wrong.argmax())
            raise checks.out_of_range("sp_ids.indices", (position, column), int(there[position]), size,
                                      f"dense_shape[{column}]", "index-out-of-range", "Fix the index.")  # fmt: skip
        numbers = numbers * size + there
    return numbers


def _pool(params: Any, ids: Array, segments: Array, rows: int | None, weights: Any, combiner: str) -> Any:
    front_end = _front_end(params)
    if weights is None:
        pool = getattr(front_end, combiners.COMBINERS[combiner].function)
        return pool(params, _like(params, ids), _like(params, segments), *(() if rows is None else (rows,)))
    if rows is None:
        rows = int(segments[-1]) + 1 if segments.size else 0
    if segments.size and not 0 <= segments.min() <= segments.max() < rows:
        raise InvalidArgumentError(
            "the first column of sp_ids.indices must not decrease, nor be negative. Sort the entries by row.",
            code="unsorted-segment-ids",
            argument="sp_ids.indices",
        )
    factors = weights
    if combiner != "sum":
        squares = weights * weights if combiner == "sqrtn" else weights
        every = _like(params, np.arange(segments.size))
        total = _front_end(weights).sparse_segment_weighted_sum(
            _like(weights, np.ones((1, 1), _plain(weights).dtype)), squares, every * 0, _like(weights, segments), rows
        )[:, 0]
        known = total != 0
        total = total + ~known
        scale = known / (total**0.5 if combiner == "sqrtn" else total)
        factors = weights * scale[_like(weights, segments)]
    return front_end.sparse_segment_weighted_sum(params, factors, _like(params, ids), _like(params, segments), rows)


# What differs from kind to kind


def _floats(values: Any, argument: str) -> Any:
    """`values` as they are computed with: lists as NumPy arrays of float32, TensorFlow's tensors as NumPy arrays."""
    kind = arrays.kind_of(values)
    if kind is not None and kind is not arrays.TENSORFLOW:
        return values
    try:
        array = arrays.adopt(values)
    except RowgradError as error:
        error.argument = argument
        error.message = f"{argument}: {error.message}"
        raise
    return array if kind is arrays.TENSORFLOW else array.astype(np.float32)


def _handed_back(params: Any, pooled: Any) -> Any:
    """The result as the kind of the table that a caller passed."""
    return arrays.TENSORFLOW.hand_back(pooled) if arrays.kind_of(params) is arrays.TENSORFLOW else pooled


def _front_end(array: Any) -> Any:
    """The module whose functions take this kind of array and pass gradients on."""
    kind = arrays.kind_of(array)
    if kind is arrays.TORCH:
        return import_module("rowgrad.torch")
    if kind is arrays.JAX:
        return import_module("rowgrad.jax")
    return functions


def _detached(array: Any) -> Any:
    return array.detach() if arrays.kind_of(array) is arrays.TORCH else array


def _plain(array: Any) -> Array:
    """The values, in NumPy."""
    if arrays.kind_of(array) is arrays.TORCH:
        array = array.detach().cpu()
    elif arrays.kind_of(array) is arrays.JAX:
        array = _stopped(array)
    return arrays.adopt(array)


def _stopped(array: Any) -> Any:
    """A JAX array without the traces that gradients leave on it."""
    while hasattr(array, "primal"):
        array = array.primal
    return array


def _like(array: Any, plain: Array) -> Any:
    """`plain` as the kind of `array`, where it is."""
    kind = arrays.kind_of(array)
    if kind is None or kind is arrays.NUMPY:
        return plain
    there = kind.hand_back(np.asarray(plain, order="C"))
    return there.to(array.device) if kind is arrays.TORCH else there


def _as_type(array: Any, name: str) -> Any:
    if arrays.kind_of(array) is arrays.TORCH:
        return array.double() if name == "float64" else array.float()
    return array.astype(name)


def _taken(array: Any, positions: Array) -> Any:
    return array[_like(array, positions)]
