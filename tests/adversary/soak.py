"""All attacks for a bounded time, of which each gets its share: ``python -m adversary.soak [MINUTES [SEED [FILE]]]``.

An attack meets the targets in a random order, over and over until its share is used up or it finds something. A finding
is printed with the attack, the operator and the seed, and the next attack goes on. FILE gets the counts as JSON.
"""

import json
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from adversary.attacks import ATTACKS
from adversary.test_adversary import run

SECONDS = {"flip": 0.1, "reenter": 0.05, "interrupt": 0.05, "crowd": 0.05, "fork": 0.05, "overlap": 0.0, "damage": 0.05}
SHARES = {"overlap": 0.25, "damage": 1.5}  # of what the others get


def main(minutes: str = "20", seed: str = "", file: str = "") -> int:
    chosen = int(seed or time.time())
    whole = sum(SHARES.get(attack, 1.0) for attack in ATTACKS)
    counts: dict[str, dict[str, Any]] = {}
    for attack in ATTACKS:
        share = 60 * float(minutes) * SHARES.get(attack, 1.0) / whole
        try:
            done = run(attack, SECONDS[attack], chosen, limit=share)
        except pytest.fail.Exception as failure:
            print(f"FAILED with seed {chosen}: {failure}", flush=True)
            counts[attack] = {"seconds": round(share), "finding": str(failure)}
            continue
        print(f"{attack}, seed {chosen}, {share:.0f} s: nothing found; targets {done}", flush=True)
        attacked, targets, calls = map(int, re.findall(r"\d+", done))
        counts[attack] = {"seconds": round(share), "targets": targets, "attacked": attacked, "calls": calls}
    if file:
        found = {
            "date": datetime.now(UTC).date().isoformat(),
            "minutes": float(minutes),
            "seed": chosen,
            "attacks": counts,
        }
        Path(file).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(any("finding" in count for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
