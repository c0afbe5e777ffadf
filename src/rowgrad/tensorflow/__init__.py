"""rowgrad for people who have TensorFlow, or come from it.

`load_checkpoint` reads checkpoints, SavedModels and files of Keras, and needs no TensorFlow.
"""

from rowgrad.tensorflow._checkpoint import Checkpoint, Variable, load_checkpoint

__all__ = ["Checkpoint", "Variable", "load_checkpoint"]


def __dir__() -> list[str]:
    return __all__
