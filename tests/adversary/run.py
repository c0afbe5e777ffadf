"""Runs attacks in a process of their own: ``python -m adversary.run ATTACK SECONDS [SEED [PATTERN [LIMIT]]]``.

Each target is named before it is attacked, so that whoever started the process knows what it died of. Targets come in
the order of the catalogue; with a LIMIT, in a random one, again and again until so many seconds are over.
"""

import faulthandler
import resource
import sys
import time

import numpy as np

from adversary.attacks import ATTACKS, parallel
from adversary.targets import CALLS, plans

MEMORY = 12 * 2**30  # what a wrong id asks for must be refused, not tried


def main(attack: str, seconds: float, seed: int = 0, pattern: str = "", limit: float = 0.0) -> None:
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    random, end = np.random.default_rng(seed), time.monotonic() + limit
    planned = [(f"{name} {np.dtype(id_dtype).name}", make) for id_dtype in (np.int32, np.int64)
               for name, make in plans(pattern, id_dtype)]  # fmt: skip
    count = 0
    with parallel():
        while count < len(planned) or time.monotonic() < end:
            name, make = planned[count % len(planned)]
            if limit and count % len(planned) == 0:
                random.shuffle(planned)
                name, make = planned[0]
            if limit and time.monotonic() >= end:
                break
            print(f"{attack} {name}", flush=True)
            ATTACKS[attack](make(), seconds, random)
            count += 1
    print(f"done {count} of {len(planned)}, {next(CALLS)} calls", flush=True)


if __name__ == "__main__":
    attack, seconds, *rest = sys.argv[1:]
    kinds = (int, str, float)
    main(attack, float(seconds), *(kind(value) for kind, value in zip(kinds, rest, strict=False)))
