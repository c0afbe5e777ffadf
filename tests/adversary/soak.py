"""All attacks, over and over with other random moments, for a bounded time: ``python -m adversary.soak [MINUTES]``.

The first failure ends it, with the attack, the operator and the seed that found it.
"""

import sys
import time

import pytest

from adversary.attacks import ATTACKS
from adversary.test_adversary import run

SECONDS = {"flip": 0.3, "reenter": 0.1, "interrupt": 0.1, "crowd": 0.1, "fork": 0.1, "overlap": 0.0}


def main(minutes: float = 20) -> int:
    end, seed, runs = time.monotonic() + 60 * minutes, 0, 0
    while time.monotonic() < end:
        seed += 1
        for attack in ATTACKS:
            if time.monotonic() >= end:
                break
            began = time.monotonic()
            try:
                run(attack, SECONDS[attack] / (10 if seed == 1 else 1), seed)
            except pytest.fail.Exception as failure:
                print(f"FAILED with seed {seed}: {failure}")
                return 1
            runs += 1
            print(f"{attack}, seed {seed}: nothing found in {time.monotonic() - began:.0f} s", flush=True)
    print(f"{runs} runs, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))
