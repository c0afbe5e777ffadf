"""Texts and numbers to ids by TensorFlow's hashes, as `keras.layers.Hashing` does, without TensorFlow."""

from typing import Any

import keras
import numpy as np
from keras import ops

from rowgrad import raw_ops
from rowgrad.errors import InvalidArgumentError


@keras.saving.register_keras_serializable(package="rowgrad")
class Hashing(keras.layers.Layer):
    """Hash strings or integers to ids from 0 to num_bins − 1, those of `keras.layers.Hashing`, on any backend.

    It takes lists and arrays, not symbolic tensors: use it before a model, or in its input pipeline.

    Parameters
    ----------
    num_bins : int
        The number of ids, including the id 0 of `mask_value`.
    mask_value : str or int, optional
        The value that gets the id 0.
    salt : int or two ints, optional
        With it, the hash is SipHash with this key; without, FarmHash64.

    Examples
    --------
    >>> import numpy as np, rowgrad.keras
    >>> np.asarray(rowgrad.keras.Hashing(num_bins=3)(np.array([["A"], ["B"], ["C"], ["D"], ["E"]]))).tolist()
    [[1], [0], [1], [1], [2]]
    """

    def __init__(self, num_bins: int, mask_value: Any = None, salt: Any = None, **kwargs: Any) -> None:
        super().__init__(**{"dtype": "int64"} | kwargs)
        if isinstance(num_bins, bool) or not isinstance(num_bins, int) or num_bins < 1:
            raise InvalidArgumentError(
                f"num_bins is {num_bins!r}; it must be a whole number of 1 or more.",
                code="wrong-argument",
                argument="num_bins",
                value=num_bins,
                op="Hashing",
            )
        self.num_bins, self.mask_value = num_bins, mask_value
        self.salt = [salt, salt] if isinstance(salt, int) else None if salt is None else [int(part) for part in salt]
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Hash."""
        values = np.asarray(inputs)
        is_masked = self.mask_value is not None and self.num_bins > 1
        texts = values if values.dtype.kind in "USOT" else values.astype(str)
        bins = self.num_bins - is_masked
        if self.salt is None:
            ids = raw_ops.StringToHashBucketFast(input=texts, num_buckets=bins)
        else:
            ids = raw_ops.StringToHashBucketStrong(input=texts, num_buckets=bins, key=self.salt)
        if is_masked:
            ids = np.where(values == self.mask_value, 0, np.asarray(ids) + 1)
        # JAX has 32 bits unless told otherwise, and warns of 64.
        is_narrow = keras.backend.backend() == "jax" and self.num_bins <= np.iinfo(np.int32).max
        return ops.convert_to_tensor(np.asarray(ids, np.int32 if is_narrow else np.int64))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        """The shape of the input."""
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        """The arguments to create the layer again."""
        return {
            **super().get_config(),
            "num_bins": self.num_bins,
            "mask_value": self.mask_value,
            "salt": self.salt,
        }
