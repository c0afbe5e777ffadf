"""A process that is killed leaves a whole step: the last that was flushed, or the one that was being flushed."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ROUNDS = 60  # ten of them while training, fifty while flushing


def test_killed_at_random_moments_it_opens_at_a_whole_step(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "table_killed.py"), str(tmp_path), str(ROUNDS), "7"],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rounds) == ROUNDS
    for found in rounds:
        assert found["same"], found
        assert found["last"] <= found["steps"] <= found["tried"], found
        if found["recovered"] == "discarded":
            assert found["steps"] == found["last"]
    flushing = [found for found in rounds if not found["training"]]
    assert len(flushing) == 50
    outcomes = Counter(found["recovered"] for found in flushing)
    print(outcomes)
    # Kills have to hit in the middle: while the log was written, and after that.
    assert outcomes["discarded"] > 0, outcomes
    assert outcomes["replayed"] > 0, outcomes
    assert any(found["last"] < found["steps"] for found in flushing)
