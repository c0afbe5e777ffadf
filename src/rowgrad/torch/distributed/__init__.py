"""Tables beyond one machine, on `torch.distributed`: compact gradients summed over ranks, and tables spread over them.

`ShardedEmbeddingBag` holds a part of a table on each rank, with fused optimizers and checkpoints that any number of
ranks can load; `all_reduce_rows` is for tables that each rank holds whole. See `docs/scale.md`.
"""

from rowgrad.torch.distributed._errors import CommunicationError, PeerError
from rowgrad.torch.distributed._ownership import Ownership
from rowgrad.torch.distributed._request import Request
from rowgrad.torch.distributed._rows import all_reduce_rows
from rowgrad.torch.distributed._sharded import ShardedEmbeddingBag
from rowgrad.torch.distributed._traffic import Traffic
from rowgrad.torch.distributed.optimizer_state import shard_state

__all__ = [
    "CommunicationError",
    "Ownership",
    "PeerError",
    "Request",
    "ShardedEmbeddingBag",
    "Traffic",
    "all_reduce_rows",
    "shard_state",
]


def __dir__() -> list[str]:
    return __all__
