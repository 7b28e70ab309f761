"""The seeds of random tests; ONCELOG_SEED sets them, to run a failed test again."""

import os
import random

NEW = "ONCELOG_NEW_SEEDS"
"""The variable with the seeds that a run adds which asks Kafka."""


def chosen() -> list[int]:
    """The seeds of ONCELOG_SEED (one, or several with commas); none without it."""
    return [int(seed) for seed in os.environ.get("ONCELOG_SEED", "").split(",") if seed]


def seeds(walks: int) -> list[int]:
    """The seeds of random walks: the numbers below `walks`, and new ones where Kafka is asked.

    ONCELOG_WALKS replaces `walks`; ONCELOG_SEED replaces the seeds.
    """
    new = [int(seed) for seed in os.environ.get(NEW, "").split(",") if seed]
    return chosen() or [*range(int(os.environ.get("ONCELOG_WALKS", walks))), *new]


def printed_rng() -> random.Random:
    """A random generator with a new seed, or ONCELOG_SEED's; the seed is printed."""
    [seed] = chosen() or [random.randrange(1 << 30)]
    print(f"ONCELOG_SEED={seed}")
    return random.Random(seed)
