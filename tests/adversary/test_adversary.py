"""A short run of every attack on every operator; `make soak` runs them for twenty minutes.

Each attack is a process of its own. If it dies, the operator that it was attacking is named.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from adversary.attacks import ATTACKS

TESTS = Path(__file__).parents[1]
SECONDS = {"flip": 0.05, "reenter": 0.01, "interrupt": 0.01, "crowd": 0.01, "fork": 0.01, "overlap": 0.0,
           "damage": 0.0}  # fmt: skip
# A kernel that is damaged has to be compiled again, so only small calls are attacked in this way, and each kernel once.
PATTERNS = {"damage": " x1"}
PATIENCE = 900  # seconds


def run(attack: str, seconds: float, seed: int = 0, pattern: str = "", limit: float = 0.0) -> str:
    """One attack on all targets that fit the pattern; a failure tells which one, and shows the end of the output.

    Gives how many targets were attacked, of how many, and the number of calls.
    """
    command = [sys.executable, "-m", "adversary.run", attack, str(seconds), str(seed), pattern, str(limit)]
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    ended = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE + limit,
        check=False,
    )
    lines = ended.stdout.splitlines()
    if ended.returncode or not lines or not lines[-1].startswith("done "):
        victim = lines[-1] if lines else "nothing"
        pytest.fail(f"{victim}: ended with {ended.returncode}\n{ended.stderr[-4000:]}")
    assert int(lines[-1].split()[1]) > 0, f"{pattern!r} fits no target"
    return lines[-1].removeprefix("done ")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and forks are those of POSIX systems")
@pytest.mark.parametrize("attack", ATTACKS)
def test_attack(attack: str) -> None:
    run(attack, SECONDS[attack], pattern=PATTERNS.get(attack, ""))
