"""A rank that trains a sharded collection and is lost on the way; see `test_collection_lost_ranks.py`.

Rank 1 is killed, or stops to answer, in its third step: when it is about to send its part of an exchange, or while rank
0 makes another collection. Rank 0 tells the error that it gets.
"""

import os
import signal
import sys
import time
from typing import Any

import torch
import torch.distributed as dist

import rowgrad
from rowgrad import optim
from rowgrad.torch import EmbeddingBagConfig
from rowgrad.torch.distributed import CommunicationError, ShardedEmbeddingBagCollection
from rowgrad.torch.distributed._exchange import Place

TABLES = [EmbeddingBagConfig(f"t{i}", 50, 8) for i in range(4)]
PLACEMENT = {"t0": "row", "t1": "column", "t2": ("table", 1), "t3": "replicated"}
STEPS, LOST = 6, 2


def main(signal_name: str, purpose: str, timeout: str) -> None:
    """Train until the other rank is lost."""
    torch.set_num_threads(1)
    rowgrad.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, steps = dist.get_rank(), 0
    collection = ShardedEmbeddingBagCollection(
        TABLES, placement=PLACEMENT, fused_optimizer=optim.Adagrad(0.1), timeout=float(timeout)
    )
    exchange = collection.exchange
    trade, meet, announce = exchange.trade, exchange.meet, exchange.announce

    def lost(what: str | None) -> None:
        if rank == 1 and steps == LOST and what == purpose:
            os.kill(os.getpid(), getattr(signal, signal_name))

    def last_trade(blocks: Any, taken: Any, what: str) -> Any:
        lost(what)
        return trade(blocks, taken, what)

    def last_meet(what: str) -> None:
        lost(what)
        meet(what)

    def last_announce(place: Place, *told: Any) -> Any:
        if exchange.memory.mail is not None:  # what is in shared memory is announced, and not sent
            lost({Place.FORWARD: "ids", Place.BACKWARD: "gradients"}.get(place))
        return announce(place, *told)

    exchange.trade, exchange.meet = last_trade, last_meet  # type: ignore[method-assign]
    exchange.announce = last_announce  # type: ignore[method-assign]
    near, ids = exchange.memory.peers, torch.arange(80).view(20, 4) % 50
    began = time.monotonic()
    try:
        while steps < STEPS:
            began = time.monotonic()
            if purpose == "making" and steps == LOST:
                if rank == 1:
                    os.kill(os.getpid(), getattr(signal, signal_name))
                ShardedEmbeddingBagCollection(TABLES, timeout=float(timeout))
            collection({table.name: ids for table in TABLES}).values().sum().backward()
            steps += 1
    except CommunicationError as error:
        print(f"step {steps}, near {near}, after {time.monotonic() - began:.1f} s, {error.code}: {error}", flush=True)
    else:
        print("nothing was raised", flush=True)
    # The second try does not hang either.
    try:
        collection({table.name: ids for table in TABLES})
    except CommunicationError as error:
        print(f"again: {error.code}", flush=True)
    os._exit(0)  # the group cannot be taken down in order without the other rank


if __name__ == "__main__":
    main(*sys.argv[1:])
