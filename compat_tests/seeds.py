"""The seeds of random tests; ONCELOG_SEED sets them, to run a failed test again."""

import os
import random


def seeds(walks: int) -> list[int]:
    """The seeds of random walks: the numbers below `walks`, the same in every run.

    ONCELOG_WALKS replaces `walks`; ONCELOG_SEED (comma-separated) replaces the seeds.
    """
    if text := os.environ.get("ONCELOG_SEED"):
        return [int(seed) for seed in text.split(",")]
    return list(range(int(os.environ.get("ONCELOG_WALKS", walks))))


def printed_rng() -> random.Random:
    """A random generator with a new seed, or ONCELOG_SEED's; the seed is printed."""
    seed = int(os.environ.get("ONCELOG_SEED", random.randrange(1 << 30)))
    print(f"ONCELOG_SEED={seed}")
    return random.Random(seed)
