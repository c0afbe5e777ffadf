"""Runs attacks in a process of their own: ``python -m adversary.run ATTACK SECONDS [SEED [PATTERN]]``.

Each target is named before it is attacked, so that whoever started the process knows what it died of.
"""

import faulthandler
import itertools
import resource
import sys

import numpy as np

from adversary.attacks import ATTACKS, parallel
from adversary.targets import targets

MEMORY = 12 * 2**30  # what a wrong id asks for must be refused, not tried


def main(attack: str, seconds: float, seed: int = 0, pattern: str = "") -> None:
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    random = np.random.default_rng(seed)
    count = 0
    with parallel():
        for id_dtype, target in itertools.chain.from_iterable(
            ((id_dtype, target) for target in targets(pattern, id_dtype)) for id_dtype in (np.int32, np.int64)
        ):
            print(f"{attack} {target.name} {np.dtype(id_dtype).name}", flush=True)
            ATTACKS[attack](target, seconds, random)
            count += 1
    print(f"done {count}", flush=True)


if __name__ == "__main__":
    attack, seconds, *rest = sys.argv[1:]
    main(attack, float(seconds), int(rest[0]) if rest else 0, rest[1] if len(rest) > 1 else "")
