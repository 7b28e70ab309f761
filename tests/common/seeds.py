"""The seeds of random tests; ONCELOG_SEED sets them, to run a failed test again."""

import os
import random


def chosen() -> list[int]:
    """The seeds of ONCELOG_SEED (one, or several with commas); none without it."""
    return [int(seed) for seed in os.environ.get("ONCELOG_SEED", "").split(",") if seed]


def seeds(walks: int) -> list[int]:
    """The seeds of random walks: the numbers below `walks`, the same in every run.

    ONCELOG_WALKS replaces `walks`; ONCELOG_SEED replaces the seeds.
    """
    return chosen() or list(range(int(os.environ.get("ONCELOG_WALKS", walks))))


def printed_rng() -> random.Random:
    """A random generator with a new seed, or ONCELOG_SEED's; the seed is printed."""
    [seed] = chosen() or [random.randrange(1 << 30)]
    print(f"ONCELOG_SEED={seed}")
    return random.Random(seed)
