"""rowgrad for Keras 3: pooled look-ups and TensorFlow's hashes as layers, on TensorFlow, PyTorch and JAX.

The layers use the front end of the backend that Keras runs on (`KERAS_BACKEND`): `rowgrad.tensorflow`,
`rowgrad.torch` or `rowgrad.jax`. They are saved and loaded with their models.
"""

from rowgrad.keras._embedding_bag import EmbeddingBag
from rowgrad.keras._hashing import Hashing

__all__ = ["EmbeddingBag", "Hashing"]


def __dir__() -> list[str]:
    return __all__
