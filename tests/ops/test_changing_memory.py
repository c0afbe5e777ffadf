"""An id that was wrong when a kernel read it, and is right when the error is written, is told as what it is."""

import numpy as np

from rowgrad._ops import checks
from rowgrad._ops.offsets import _diagnose as diagnose_offset
from rowgrad._ops.segment_max import _bad_choice
from rowgrad.optim._arguments import bad_row


def test_what_is_right_again_is_not_called_wrong() -> None:
    ids = np.arange(3)
    for error in (
        checks.out_of_range("indices", 1, 1, 3, "rows", "index-out-of-range", "Drop the entry."),
        diagnose_offset(ids, 1, 3),
        _bad_choice(ids, 1, 3, "rows"),
        bad_row(ids, 1, 3),
    ):
        assert error.code == "changed-during-call" and "changed during the call" in str(error)
