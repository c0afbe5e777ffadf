"""TensorFlow's protocol buffers, from the copy that TensorBoard ships; loaded only here, when they are needed."""

import importlib.util
from typing import Any

from rowgrad.errors import FileError


def load() -> Any:
    """The module of GraphDef and NodeDef."""
    if importlib.util.find_spec("tensorboard") is None:
        raise FileError("GraphDefs need the protocol buffers of TensorBoard, which is not installed.",
                        "pip install 'rowgrad[graphdef]'")  # fmt: skip
    from tensorboard.compat.proto import graph_pb2

    return graph_pb2
