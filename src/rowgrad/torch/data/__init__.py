"""Data sets of Parquet and Arrow files for PyTorch, in batches that collections of tables accept.

`JaggedDataset` is an `IterableDataset`; `JaggedLoader` runs it in workers, knows its position and shows a progress bar.
Both need pyarrow.
"""

from rowgrad.torch.data._dataset import Batch, JaggedDataset
from rowgrad.torch.data._loader import JaggedLoader

__all__ = ["Batch", "JaggedDataset", "JaggedLoader"]


def __dir__() -> list[str]:
    return __all__
