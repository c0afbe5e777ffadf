"""The distributed example as users run it: a rank is lost, the others stop, and the job ends as if nothing had been."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rowgrad
from optional import framework

torch = framework("torch")
EXAMPLE = Path(__file__).parents[3] / "examples" / "distributed_ctr.py"
SMALL = ("--steps", "14", "--batch", "128", "--rows", "2000", "--every", "4")
LONG = 600  # seconds after which a test gives up


def environment(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR")}
    return {**plain, "PYTHONPATH": str(Path(rowgrad.__file__).parents[1]), "COLUMNS": "100", **more}


def torchrun(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1")
    return subprocess.run(
        [sys.executable, *command, str(EXAMPLE), *SMALL, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LONG,
    )


def ended(text: str) -> tuple[str, str, str]:
    """The last step's loss, that of what was held out, and the digest of all parameters and states."""
    step, held_out = re.search(r"step 14: loss (\S+)", text), re.search(r"held out: loss (\S+);", text)
    digest = re.search(r"digest (\w+)", text)
    assert step and held_out and digest, text
    return step[1], held_out[1], digest[1]


def pair(*arguments: str) -> "list[subprocess.Popen[str]]":
    """Two ranks that nobody watches over."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    return [
        subprocess.Popen(
            [sys.executable, str(EXAMPLE), *SMALL, *arguments],
            env=environment(RANK=str(rank), **meeting),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


def test_a_killed_rank_is_restarted_and_the_end_is_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    undisturbed = torchrun("--exact")
    assert undisturbed.returncode == 0, undisturbed.stderr
    half = folder / "writing"  # of a job that ended while it saved
    half.mkdir(parents=True)
    (half / ".metadata").write_bytes(b"half")
    killed = torchrun("--exact", "--checkpoint", str(folder), "--die-at-step", "9")
    assert killed.returncode == 0, killed.stderr
    assert "exitcode: -9" in killed.stderr
    assert re.findall(r"steps (\d+) to 14", killed.stdout) == ["0", "8"]
    assert ended(killed.stdout) == ended(undisturbed.stdout)
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000012", "step-00000014"]
    # One process goes on from what two have saved.
    alone = subprocess.run(
        [sys.executable, str(EXAMPLE), *SMALL, "--exact", "--checkpoint", str(folder), "--steps", "15"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert alone.returncode == 0, alone.stderr
    assert "1 ranks, steps 14 to 15" in alone.stdout


@pytest.mark.parametrize("how", ["killed", "silent"])
def test_the_others_stop_with_a_message(how: str) -> None:
    """A killed rank is noticed at once; one that is silent, as behind a cut cable, after the time that was given."""
    timeout = 120 if how == "killed" else 20
    survivor, lost = pair("--timeout", str(timeout), *(["--die-at-step", "6"] if how == "killed" else []))
    try:
        if how == "silent":
            assert survivor.stdout is not None
            while "step 4" not in (line := survivor.stdout.readline()):
                assert line, survivor.communicate()[1]
            lost.send_signal(signal.SIGSTOP)
        else:
            lost.wait(LONG)
        begin = time.monotonic()
        _, errors = survivor.communicate(timeout=LONG)
        waited = time.monotonic() - begin
    finally:
        for process in (survivor, lost):
            process.kill()
            process.communicate()
    assert survivor.returncode == 1, errors
    assert "rank 0 stops: " in errors
    assert "Traceback" not in errors
    if how == "killed":
        assert "CommunicationError: the exchange of counts failed on rank 0 of 2" in errors
        assert waited < timeout  # it does not wait for the time to pass
    print(f"{how}: the survivor stopped after {waited:.1f} s")
