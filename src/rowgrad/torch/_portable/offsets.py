"""The segment of each entry, from where each segment begins, made of repeat_interleave."""

from collections.abc import Callable
from typing import Any

import torch

from rowgrad.torch._portable.common import complain


def spread(offsets: Any, size: int) -> Any:
    """Number the entries by the segment that they belong to."""
    if offsets.dim() != 1 or size < 0 or (len(offsets) == 0 and size > 0):
        complain("SegmentIdsFromOffsets", offsets, size)
    if len(offsets) == 0:
        return torch.empty(0, dtype=torch.int32, device=offsets.device)
    ends = torch.cat([offsets[1:], offsets.new_full((1,), size)])
    lengths = ends - offsets
    if bool((offsets[0] != 0) | (lengths < 0).any()):
        complain("SegmentIdsFromOffsets", offsets, size)
    numbers = torch.arange(len(offsets), dtype=torch.int32, device=offsets.device)
    return torch.repeat_interleave(numbers, lengths, output_size=size)


PATHS: dict[str, Callable[..., Any]] = {"SegmentIdsFromOffsets": spread}
