"""How much of the fault campaign runs, and its seed.

`make faults` sets KLAMM_FAULTS=long and runs all of it; `make test` runs a sample. Every random choice comes from one
seed, which is printed and can be given as KLAMM_SEED. Without it the campaign takes a new one each time, to find
unknown bugs; the sample takes the same each time, as its failures should come from the change that it tests.
"""

from __future__ import annotations

import os
import random

SAMPLE_SEED = 1
LONG = os.environ.get("KLAMM_FAULTS") == "long"


def scaled(sample: int, campaign: int) -> int:
    """A count or a number of seconds: the first in `make test`, the second in `make faults`."""
    return campaign if LONG else sample


def seeded(what: str) -> random.Random:
    """A generator for one test; its seed is printed."""
    if given := os.environ.get("KLAMM_SEED"):
        seed = int(given)
    else:
        seed = random.SystemRandom().getrandbits(32) if LONG else SAMPLE_SEED
    print(f"{what}: KLAMM_SEED={seed}", flush=True)
    return random.Random(f"{what} {seed}")
