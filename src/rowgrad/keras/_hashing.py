"""Texts and numbers to ids by TensorFlow's hashes, as `keras.layers.Hashing` does, without TensorFlow."""

import operator
from typing import Any

import keras
import numpy as np
from keras import ops

from rowgrad import raw_ops
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.keras._settings import whole

NAME = "Hashing"
TEXT = "USOT"  # kinds of types


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
        self.num_bins, self.mask_value, self.salt = whole(NAME, "num_bins", num_bins), _mask(mask_value), _key(salt)
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Hash."""
        values = _values(inputs)
        is_masked = self.mask_value is not None and self.num_bins > 1
        texts = values if values.dtype.kind in TEXT else values.astype(str)
        bins = self.num_bins - is_masked
        if self.salt is None:
            ids = raw_ops.StringToHashBucketFast(input=texts, num_buckets=bins)
        else:
            ids = raw_ops.StringToHashBucketStrong(input=texts, num_buckets=bins, key=self.salt)
        if is_masked:
            ids = np.where(_equal(values, self.mask_value), 0, np.asarray(ids) + 1)
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


def _values(inputs: Any) -> Array:
    """Texts or whole numbers."""
    try:
        values = np.asarray(inputs)
    except (TypeError, ValueError) as error:
        raise _wrong("inputs", "inputs has rows of different lengths, or is no array; hash flat values, and make a "
                     "ragged tensor of the ids.", type(inputs).__name__) from error  # fmt: skip
    if values.dtype.kind not in TEXT + "iu" and values.size:
        raise DTypeError(
            f"inputs is {values.dtype}; texts and whole numbers are hashed. Convert them first.",
            code="wrong-dtype",
            argument="inputs",
            value=str(values.dtype),
            op=NAME,
        )
    return values


def _mask(mask_value: Any) -> Any:
    if mask_value is None or isinstance(mask_value, str | bytes):
        return mask_value
    if isinstance(mask_value, bool) or not isinstance(mask_value, int | np.integer):
        raise _wrong("mask_value", f"mask_value is {mask_value!r}; it must be a text or a whole number.", mask_value)
    return int(mask_value)


def _key(salt: Any) -> list[int] | None:
    if salt is None:
        return None
    parts = [salt, salt] if isinstance(salt, int | np.integer) else salt
    try:
        key = [None if isinstance(part, bool) else operator.index(part) for part in parts]
    except TypeError:
        key = []
    if len(key) != 2 or not all(part is not None and -(2**63) <= part < 2**63 for part in key):
        raise _wrong("salt", f"salt is {salt!r}; it must be a whole number of 64 bits, or two of them.", salt)
    return [int(part) for part in key if part is not None]


def _equal(values: Array, mask: Any) -> Any:
    """Which values are the mask; a text is the same as its bytes, as in TensorFlow."""
    is_text = values.dtype.kind in TEXT
    if is_text == isinstance(mask, int):
        raise _wrong("mask_value", f"mask_value is {mask!r}, but inputs is {values.dtype}; they must both be texts, or "
                     "both whole numbers.", mask)  # fmt: skip
    if not is_text:
        return values == mask
    text, data = (mask, mask.encode()) if isinstance(mask, str) else (mask.decode(errors="surrogateescape"), mask)
    if values.dtype.kind == "O":
        return (values == text) | (values == data)
    return values == (data if values.dtype.kind == "S" else text)


def _wrong(argument: str, message: str, value: Any) -> InvalidArgumentError:
    return InvalidArgumentError(message, code="wrong-argument", argument=argument, value=value, op=NAME)
