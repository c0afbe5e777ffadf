"""Rows of a ragged tensor by their numbers: their values, and where each of them begins and ends.

TensorFlow's RaggedGather gives a list of row splits, so that no block can be made of it; blocks give one of its results
each.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.broadcasting import Known, Result
from rowgrad._ops.catalogue import OPERATORS, Attribute, Example, Operator, declare, first_kind
from rowgrad._ops.pins import Pin
from rowgrad._ops.ragged_splits import check_nested
from rowgrad._ops.results import GatheredRows, GatheredValues
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import IDS, PLAIN, Array
from rowgrad._runtime.memory import allocate, check_room
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError, OutOfRangeError, RowgradError


class _Rows(NamedTuple):
    """The innermost rows of a result: where each begins among the values of the tensor, and in the result."""

    begins: Array
    splits: Array

    def positions(self) -> Array:
        """Which of the values of the tensor the result has."""
        lengths = np.diff(self.splits)
        return np.repeat(self.begins - self.splits[:-1], lengths) + np.arange(int(self.splits[-1]))

    def take(self, values: Array) -> Array:
        """These values."""
        if values.dtype.kind in "USOT" or not values.size:
            found: Array = values[self.positions()]
            return found
        found = allocate((int(self.splits[-1]), *values.shape[1:]), values.dtype, argument="indices")
        words, per = dtypes.as_words(values)
        Workers(2 * found.nbytes).run(
            kernels.ragged_rows.copy_rows, self.begins, len(values), self.splits, words,
            per * prod(values.shape[1:]), dtypes.as_words(found)[0],
        )  # fmt: skip
        return found


def _gather(nested: Sequence[Array], values: Array, indices: Array) -> tuple[list[Array], _Rows]:
    """The row splits of the result, outermost first, and its innermost rows."""
    checks.at_least_vector("params_dense_values", values)
    levels = check_nested("params_nested_splits", nested, values.shape[0])
    rows, kind = levels[0].size - 1, nested[0].dtype
    found, outer = [], 1
    for axis in range(1, indices.ndim):
        outer *= indices.shape[axis - 1]
        found.append(np.arange(outer + 1) * indices.shape[axis])
    taken = indices.reshape(-1)
    inner: _Rows | None = None
    for splits in levels:
        taken = taken if inner is None else inner.positions()
        begins, ends = np.empty(taken.size, np.int64), np.empty(taken.size + 1, np.int64)
        position = kernels.ragged_rows.pick_rows(splits, taken, begins, ends)
        if position >= 0:
            row = int(taken[position])
            raise (
                checks.changed("indices")
                if 0 <= row < rows
                else checks.out_of_range(
                    "indices",
                    position,
                    row,
                    rows,
                    "the number of rows",
                    "index-out-of-range",
                    "Drop the index, or fix it.",
                )
            )
        check_room(24 * int(ends[-1]), "indices")
        found.append(ends)
        inner = _Rows(begins, ends)
    assert inner is not None
    if kind != np.int64 and inner.splits[-1] > np.iinfo(kind).max:
        raise OutOfRangeError(f"the result has {inner.splits[-1]} values, more than {kind.name} can count.",
                              code="too-large", argument="params_nested_splits")  # fmt: skip
    # One row alone has no splits. The innermost ones are needed as they are, and results are the caller's.
    return [splits.astype(kind) for splits in found[indices.ndim == 0 :]], inner


def _values(params_nested_splits: tuple[Array, ...], params_dense_values: Array, indices: Array) -> GatheredValues:
    _, rows = _gather(params_nested_splits, params_dense_values, np.asarray(indices))
    return GatheredValues(rows.take(params_dense_values), rows.positions())


def _splits(params_nested_splits: tuple[Array, ...], params_dense_values: Array, indices: Array, *,
            level: int = 0) -> Array:  # fmt: skip
    found, _ = _gather(params_nested_splits, params_dense_values, np.asarray(indices))
    if not 0 <= level < len(found):
        raise OutOfRangeError(f"level is {level}; allowed: 0 to {len(found) - 1}, the ragged dimensions of the result.",
                              code="index-out-of-range", argument="level", value=level)  # fmt: skip
    return found[level]


def gather(params_nested_splits: Any, params_dense_values: Any, indices: Any, *, OUTPUT_RAGGED_RANK: int,
           name: Any = None) -> GatheredRows:  # fmt: skip
    """Rows of a ragged tensor, as TensorFlow's RaggedGather: a list of row splits, and the values.

    Parameters
    ----------
    params_nested_splits : list of arrays
        The row splits of each ragged dimension, outermost first.
    params_dense_values : array
        The values, row after row.
    indices : array
        The rows to gather; any shape, rows may repeat.
    OUTPUT_RAGGED_RANK : int
        The number of row splits of the result: those of the tensor, and one for each dimension of indices,
        but one.

    Returns
    -------
    GatheredRows
        `output_nested_splits`, a list of arrays, and `output_dense_values`.

    Examples
    --------
    >>> from rowgrad import raw_ops
    >>> rows = raw_ops.RaggedGather([[0, 2, 2, 3]], [1.0, 2.0, 3.0], [2, 0], OUTPUT_RAGGED_RANK=1)
    >>> rows.output_nested_splits[0].tolist(), rows.output_dense_values.tolist()
    ([0, 1, 3], [3.0, 1.0, 2.0])
    """
    operator = OPERATORS["RaggedGatherValues"]
    given = (params_nested_splits, params_dense_values, indices)
    try:
        nested, values, rows = operator.fitted(given)
        rows = np.asarray(rows)
        wanted = len(nested) + rows.ndim - 1
        if nested and wanted != OUTPUT_RAGGED_RANK:
            raise InvalidArgumentError(
                f"OUTPUT_RAGGED_RANK is {OUTPUT_RAGGED_RANK}; the result has {wanted} ragged dimensions. Pass that.",
                code="wrong-attribute", argument="OUTPUT_RAGGED_RANK", value=OUTPUT_RAGGED_RANK,
            )  # fmt: skip
        splits, found = _gather(nested, values, rows)
    except RowgradError as error:
        error.op = "RaggedGather"
        raise
    kind = first_kind(given)
    return GatheredRows([kind.hand_back(each) for each in splits], kind.hand_back(found.take(values)))


def _value_shapes(shapes: Known, values: Known, attributes: Known) -> Result:
    table = shapes.get("params_dense_values")
    return {"output_dense_values": None if table is None else (None, *table[1:]), "positions": (None,)}


# Declarations

INPUTS = (
    Pin("params_nested_splits", "Tsplits", "[R]", "The row splits of each ragged dimension, outermost first.", True,
        True),
    Pin("params_dense_values", "Tvalues", "[N, ...]", "The values, row after row."),
    Pin("indices", "Tindices", "[...]", "The rows to gather; any shape, rows may repeat."),
)  # fmt: skip
TYPES = {"Tsplits": IDS, "Tvalues": PLAIN, "Tindices": IDS}
ERRORS = (
    "InvalidArgumentError: row splits do not begin with 0, decrease, or do not end with the number of values",
    "OutOfRangeError: an index is negative, or there are not so many rows",
    "OutOfMemoryError: the result does not fit into memory",
    "DTypeError: a type that is not listed",
)
GIVEN = {"params_nested_splits": [[0, 2, 2, 3]], "params_dense_values": [1.0, 2.0, 3.0], "indices": [2, 0]}
ALL = "`raw_ops.RaggedGather` returns all results, as in TensorFlow."

declare(Operator(
    name="RaggedGatherValues",
    function=None,
    family="ragged_gather",
    summary="The values of some rows of a ragged tensor.",
    inputs=INPUTS,
    outputs=(
        Pin("output_dense_values", "Tvalues", "[M, ...]", "The values of the rows, in the order of indices."),
        Pin("positions", "int64", "[M]", "The place of each among the values of the tensor."),
    ),
    types=TYPES,
    formula="output_dense_values = the values of row indices[0], of row indices[1], …",
    errors=ERRORS,
    cost="O(values of the result + indices).",
    example=Example(GIVEN, {"output_dense_values": [3.0, 1.0, 2.0], "positions": [2, 0, 1]}),
    compute=_values,
    bounds_ids=True,
    result=GatheredValues,
    shape_rule=_value_shapes,
    gradient={
        "params_dense_values": lambda op, d_output_dense_values, positions, params_dense_values: op.ScatterNd(
            op.ExpandDims(positions, -1), d_output_dense_values, op.Shape(params_dense_values, out_type="int64")
        )
    },
    notes=ALL,
    in_tensorflow=False,
))  # fmt: skip
declare(Operator(
    name="RaggedGatherSplits",
    function=None,
    family="ragged_gather",
    summary="Where some rows of a ragged tensor begin and end in RaggedGatherValues.",
    inputs=INPUTS,
    outputs=(Pin("output_splits", "Tsplits", "[R]", "The row splits of one ragged dimension."),),
    types=TYPES,
    attributes=(Attribute("level", 0, "Which ragged dimension of the result, the outermost first.", "int"),),
    formula="output_splits[i + 1] − output_splits[i] = the length of row indices[i]",
    errors=(*ERRORS, "OutOfRangeError: level is not a ragged dimension of the result"),
    cost="O(values of the result + indices).",
    example=Example(GIVEN, {"output_splits": [0, 1, 3]}),
    compute=_splits,
    bounds_ids=True,
    shape_rule=lambda shapes, values, attributes: {"output_splits": (None,)},
    notes=ALL,
    in_tensorflow=False,
))  # fmt: skip
