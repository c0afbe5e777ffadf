"""Tables over several machines, with `torch.distributed`: all-reduce of compact gradients, and sharded tables.

`ShardedEmbeddingBagCollection` spreads many tables, with one exchange for all of them. `ShardedEmbeddingBag` holds a
part of one table on each rank, with fused optimizers and checkpoints that any number of
ranks can load; `all_reduce_rows` is for tables that each rank holds whole. See `docs/scale.md`.
"""

from rowgrad.torch.distributed._collection import ShardedEmbeddingBagCollection
from rowgrad.torch.distributed._collection_request import CollectionRequest
from rowgrad.torch.distributed._errors import CommunicationError, PeerError
from rowgrad.torch.distributed._ownership import Ownership
from rowgrad.torch.distributed._placement import Plan
from rowgrad.torch.distributed._planner import Planner
from rowgrad.torch.distributed._request import Request
from rowgrad.torch.distributed._rows import all_reduce_rows
from rowgrad.torch.distributed._sharded import ShardedEmbeddingBag
from rowgrad.torch.distributed._traffic import Traffic
from rowgrad.torch.distributed.optimizer_state import shard_state

__all__ = [
    "CollectionRequest",
    "CommunicationError",
    "Ownership",
    "PeerError",
    "Plan",
    "Planner",
    "Request",
    "ShardedEmbeddingBag",
    "ShardedEmbeddingBagCollection",
    "Traffic",
    "all_reduce_rows",
    "shard_state",
]


def __dir__() -> list[str]:
    return __all__
