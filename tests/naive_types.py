"""What all plain loops share: the type that sums are made in, and arithmetic without warnings."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
quiet = np.errstate(all="ignore")  # integers wrap, floats overflow: both are wanted here


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that sums are made in."""
    return np.dtype(np.float32) if dtype in (np.float16, ml_dtypes.bfloat16) else dtype
