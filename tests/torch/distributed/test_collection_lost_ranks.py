"""A rank of a sharded collection is lost in the middle of a step: the other one raises, and does not wait for ever."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from test_lost_ranks import LONG, environment

from optional import framework

framework("torch")
from rowgrad.torch.distributed._shared_memory import SWITCH  # noqa: E402

RANK = Path(__file__).with_name("collection_rank.py")


@pytest.mark.parametrize("shared", ["1", "0"], ids=["shared memory", "gloo"])
@pytest.mark.parametrize(
    ("how", "purpose"),
    [
        ("SIGKILL", "making"),
        ("SIGKILL", "ids"),
        ("SIGKILL", "rows"),
        ("SIGKILL", "gradients"),
        ("SIGSTOP", "gradients"),
    ],
)
def test_the_other_rank_raises(how: str, purpose: str, shared: str) -> None:
    """A killed rank is noticed at once; one that is silent after the time that the group has."""
    timeout = 120 if how == "SIGKILL" else 20
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", SWITCH: shared}
    survivor, lost = (
        subprocess.Popen(
            [sys.executable, str(RANK), how, purpose, str(timeout)],
            env=environment(RANK=str(rank), **meeting),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    )
    try:
        told, errors = survivor.communicate(timeout=LONG)
    finally:
        for process in (survivor, lost):
            process.kill()
            process.communicate()
    assert lost.returncode == -signal.SIGKILL
    assert survivor.returncode == 0, errors
    found = re.match(r"step 2, near (.*), after (\S+) s, communication-failed: the exchange of (\w+) failed", told)
    assert found, told + errors
    assert found[1] == ("[1]" if shared == "1" else "[]")
    told_by_counts = ("making",) if shared == "0" else ("making", "ids", "gradients")  # what lies in shared memory
    assert found[3] == ("counts" if purpose in told_by_counts else purpose)
    if how == "SIGKILL":
        assert float(found[2]) < timeout  # it does not wait for the time to pass
    assert told.splitlines()[-1] == "again: left-early"
