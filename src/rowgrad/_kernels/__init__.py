"""The compiled part: plain arrays in, plain arrays out; nothing is checked and nothing allocated here.

Loading Numba takes longer than loading all the rest, so each module of this folder is imported when it is first
used: `kernels.order.sort`.
"""

import importlib
from types import ModuleType

from rowgrad._kernels import protect

MODULES = (
    "clear", "compile", "crc32c", "crossing", "fill_empty_rows", "formulas", "hashes", "kinds", "lanes", "offsets",
    "optim", "order", "ragged_rows", "raw", "reorder", "routing", "segment_max", "segments", "segments_grad", "sharing",
    "sparse_cwise", "sparse_merge", "sparse_product", "sparse_reduce", "sparse_segment", "sparse_segment_grad",
    "sparse_slice", "sparse_softmax", "tables", "tables_entries", "tables_grad", "tables_step", "team", "weighted_sum",
)  # fmt: skip


def __getattr__(name: str) -> ModuleType:
    if name in MODULES:
        if name != "kinds":
            protect.load_numba()
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
