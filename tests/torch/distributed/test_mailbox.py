"""Short messages through shared memory arrive whole and in order, and a rank that is gone is noticed."""

import gc
import os
import random
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from optional import framework

torch = framework("torch")
from rowgrad.torch.distributed._mailbox import ORDERED, Lost, Mailbox, words  # noqa: E402

pytestmark = pytest.mark.skipif(not ORDERED, reason="messages go through the process group on this system")


def mailboxes(size, seconds=60.0, processes=None):
    """Those of ranks that are threads of this process, or of the processes given."""
    slots = {rank: np.zeros(words(size), np.int64) for rank in range(size)}
    pids = processes or {rank: os.getpid() for rank in range(size)}
    return [
        Mailbox(rank, size, slots, {peer: pids[peer] for peer in range(size) if peer != rank}, seconds)
        for rank in range(size)
    ]


def exchanged(box, letters):
    result = torch.empty(letters.nbytes, dtype=torch.uint8)
    box.post(letters, result).wait()
    return result.view(torch.int64).numpy().reshape(letters.shape)


@pytest.mark.parametrize("size", [2, 3])
def test_messages_arrive_whole_and_in_order(size):
    count, boxes, wrong = 1500, mailboxes(size), []

    def train(rank):
        chance = random.Random(rank)
        for number in range(count):
            letters = np.array([[number, rank, peer] + [number * rank] * 4 for peer in range(size)])
            found = exchanged(boxes[rank], letters)
            expected = [[number, peer, rank] + [number * peer] * 4 for peer in range(size)]
            if found.tolist() != expected:
                wrong.append((number, found.tolist()))
            if chance.random() < 0.01:  # once this rank is late, once another
                time.sleep(0.003)

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_rank_that_is_silent_is_told():
    first, _other = mailboxes(2, seconds=0.3)
    with pytest.raises(Lost, match=r"rank 1 did not answer for 0\.3 s"):
        exchanged(first, np.zeros((2, 1), np.int64))


def test_a_rank_that_left_is_noticed_and_what_it_said_before_is_read():
    first, *others = mailboxes(2, seconds=600)
    others[0].post(np.full((2, 1), 7), torch.empty(16, dtype=torch.uint8))
    others.clear()
    gc.collect()
    assert exchanged(first, np.zeros((2, 1), np.int64)).ravel().tolist() == [0, 7]
    with pytest.raises(Lost, match="rank 1 has ended"):
        exchanged(first, np.zeros((2, 1), np.int64))


def test_a_process_that_is_killed_is_noticed():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    first, _other = mailboxes(2, seconds=600, processes={0: os.getpid(), 1: child.pid})
    threading.Timer(0.2, child.kill).start()
    with pytest.raises(Lost, match="rank 1 has ended"):
        exchanged(first, np.zeros((2, 1), np.int64))
    child.wait()
