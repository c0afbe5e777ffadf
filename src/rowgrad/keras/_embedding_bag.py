"""A pooled look-up as a Keras layer, on any backend that rowgrad has a front end for.

The layer holds the table and its settings. `_bags` reads the ids of a call, and finds the front end that pools them.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from rowgrad._ops.combiners import COMBINERS, WITH_MAX
from rowgrad._runtime import dtypes
from rowgrad._runtime.limits import available
from rowgrad.errors import InvalidArgumentError, OutOfMemoryError
from rowgrad.keras._bags import (
    NAME,
    Bags,
    check_bits,
    check_ids,
    check_rank,
    check_weights,
    front_end,
    read,
    same_shape,
)
from rowgrad.keras._settings import whole


@keras.saving.register_keras_serializable(package="rowgrad")
class EmbeddingBag(keras.layers.Layer):
    """Look up rows of a table and pool those of each bag.

    Parameters
    ----------
    input_dim : int
        The number of rows of the table.
    output_dim : int
        The number of columns.
    combiner : {"mean", "sum", "sqrtn", "max"}
        With weights w, mean is Σ w·x / Σ w, sum Σ w·x and sqrtn Σ w·x / √(Σ w²), where division by 0 gives 0. Without
        weights, each is 1. "max" takes the largest of each column, and no weights.
    embeddings_initializer, embeddings_regularizer, embeddings_constraint
        As in `keras.layers.Embedding`.
    mask_zero : bool
        Whether the id 0 is padding, which is ignored.

    Notes
    -----
    The layer is called with ``inputs``, ids with a bag in each row, and optionally ``weights`` of the same form. Ids
    are a matrix [batch, n]; a `tf.RaggedTensor`, or a `tf.SparseTensor` whose values are ids; a jagged nested tensor or
    a sparse COO tensor of PyTorch; a `BCOO` of JAX.

    The table and the sums have the layer's variable type; results are rounded once to its compute type, so a policy of
    mixed precision loses no precision within a bag. Bags without ids are 0. An id that is not a row is an error.

    Examples
    --------
    >>> import numpy as np, rowgrad.keras
    >>> layer = rowgrad.keras.EmbeddingBag(10, 2, combiner="sum", embeddings_initializer="ones")
    >>> np.asarray(layer(np.array([[1, 4, 4], [0, 9, 9]]))).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        combiner: str = "mean",
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        input_dim, output_dim = whole(NAME, "input_dim", input_dim), whole(NAME, "output_dim", output_dim)
        if not isinstance(combiner, str) or combiner not in WITH_MAX:
            raise _wrong("combiner", f"combiner is {combiner!r}; it must be one of {', '.join(WITH_MAX)}.", combiner)
        if not isinstance(mask_zero, bool | np.bool_):
            raise _wrong("mask_zero", f"mask_zero is {mask_zero!r}; it must be True or False.", mask_zero)
        mask_zero = bool(mask_zero)
        self.input_dim, self.output_dim, self.combiner, self.mask_zero = input_dim, output_dim, combiner, mask_zero
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.embeddings_regularizer = keras.regularizers.get(embeddings_regularizer)
        self.embeddings_constraint = keras.constraints.get(embeddings_constraint)

    def build(self, inputs_shape: Any = None, weights_shape: Any = None) -> None:
        """Create the table."""
        # Frameworks do not all survive a table that is larger than the memory.
        nbytes = self.input_dim * self.output_dim * dtypes.NUMPY[self.variable_dtype].itemsize
        free = available()
        if nbytes > free:
            raise OutOfMemoryError(
                f"the table of input_dim {self.input_dim} × output_dim {self.output_dim} takes {nbytes:,} bytes, and "
                f"about {free:,} are free. Make it smaller, or use a table on disk (rowgrad.Table).",
                code="out-of-memory",
                argument="input_dim",
                value=self.input_dim,
                op=NAME,
            )
        self.embeddings = self.add_weight(
            shape=(self.input_dim, self.output_dim),
            initializer=self.embeddings_initializer,
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
            name="embeddings",
            autocast=False,
        )
        self.built = True

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Pool; ids are looked at before Keras makes tensors of them, which JAX may do with 32 bits only."""
        check_bits(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs: Any, weights: Any = None) -> Any:
        """Look up and pool."""
        if weights is not None and self.combiner == "max":
            raise _wrong("weights", "weights cannot be used with the combiner max; leave them out.")
        bags = read(inputs, weights)
        table = self.embeddings.value
        if self.combiner == "max":
            found = self._largest(table, bags)
        elif bags.weights is None and bags.is_sorted and not self.mask_zero:
            pool = getattr(front_end(), COMBINERS[self.combiner].function)
            found = pool(table, bags.ids, bags.segment_ids, bags.number)
        else:
            found = self._weighted(table, bags)
        return ops.cast(found, self.compute_dtype)

    def _weighted(self, table: Any, bags: Bags) -> Any:
        """Sums that take bags in any order, divided by the sums of weights; a weight is 0 for ids that mean nothing."""
        ids, rows = bags.ids, bags.segment_ids
        dtype = self.embeddings.dtype
        weights = ops.ones_like(ids, dtype=dtype) if bags.weights is None else ops.cast(bags.weights, dtype)
        if self.mask_zero:
            weights = ops.where(ids == 0, ops.zeros_like(weights), weights)
        number = bags.number + 1 if not bags.is_sorted else bags.number
        pool = front_end().sparse_segment_weighted_sum
        found = pool(table, weights, ids, rows, number)
        if self.combiner != "sum":
            column = ops.expand_dims(weights, 1)
            zero = ops.zeros_like(ids)
            # The totals are sums by bag too: of a table of one row, 1, weighted.
            one = ops.ones((1, 1), dtype=dtype)
            squared = ops.reshape(ops.square(column) if self.combiner == "sqrtn" else column, (-1,))
            totals = pool(one, squared, zero, rows, number)
            is_zero = totals == 0
            safe = ops.where(is_zero, ops.ones_like(totals), totals)
            found = ops.where(
                is_zero, ops.zeros_like(found), found / (ops.sqrt(safe) if self.combiner == "sqrtn" else safe)
            )
        return found[: bags.number]

    def _largest(self, table: Any, bags: Bags) -> Any:
        rows = ops.cast(bags.segment_ids, "int32")
        if self.mask_zero:
            rows = ops.where(bags.ids == 0, ops.cast(bags.number, "int32"), rows)
        found = front_end().sparse_segment_max(table, bags.ids, rows, bags.number + 1)[0]
        return found[: bags.number]

    def compute_output_shape(self, inputs_shape: Any, weights_shape: Any = None) -> tuple[Any, ...]:
        """[batch, output_dim]."""
        return (inputs_shape[0], self.output_dim)

    def compute_output_spec(self, inputs: Any, weights: Any = None) -> Any:
        """[batch, output_dim], with the type."""
        check_rank(inputs.shape)
        check_ids(inputs.dtype)
        if weights is not None:
            check_weights(weights.dtype)
            same_shape(weights.shape, inputs.shape)
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """The arguments to create the layer again."""
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "combiner": self.combiner,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "embeddings_regularizer": keras.regularizers.serialize(self.embeddings_regularizer),
            "embeddings_constraint": keras.constraints.serialize(self.embeddings_constraint),
            "mask_zero": self.mask_zero,
        }


def _wrong(argument: str, message: str, value: Any = None) -> InvalidArgumentError:
    return InvalidArgumentError(message, code="wrong-argument", argument=argument, value=value, op=NAME)
