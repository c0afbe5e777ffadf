"""New tables, drawn so that any number of ranks, however tables are placed, draws the same."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rowgrad.torch._configs import EmbeddingBagConfig
from rowgrad.torch.distributed._placement import Shard

BLOCK = 1 << 16  # rows that are drawn together


def seed_of(*numbers: int) -> int:
    """A seed for each combination of numbers; those of neighbours have nothing in common."""
    sequence = np.random.SeedSequence([number % 2**64 for number in numbers])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def draw(weight: Tensor, table: EmbeddingBagConfig, shard: Shard, seed: Any) -> None:
    """Fill a shard of a new table."""
    columns = slice(shard.first_column, shard.last_column)
    with torch.no_grad():
        if table.init_fn is not None:  # which knows whole tables only
            whole = torch.empty(table.num_embeddings, table.embedding_dim, dtype=table.data_type)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed_of(*seed))
                table.fill(whole)
            weight.copy_(whole[shard.first_row : shard.last_row, columns])
            return
        low, high = table.get_weight_init_min(), table.get_weight_init_max()
        for block in range(shard.first_row // BLOCK, -(-shard.last_row // BLOCK)):
            begin, end = block * BLOCK, min((block + 1) * BLOCK, table.num_embeddings)
            generator = torch.Generator().manual_seed(seed_of(*seed, block))
            drawn = torch.empty(end - begin, table.embedding_dim).uniform_(low, high, generator=generator)
            a, b = max(begin, shard.first_row), min(end, shard.last_row)
            weight[a - shard.first_row : b - shard.first_row] = drawn[a - begin : b - begin, columns].to(weight.dtype)
