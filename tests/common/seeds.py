"""The seeds of random tests; ONCELOG_SEED sets them, to run a failed test again."""

import os
import random

NEW = "TESTS_NEW_SEEDS"
"""The variable with the first of the seeds that a run adds which asks Kafka. A broker under test refuses unknown ones
of its own prefix.
"""


def chosen() -> list[int]:
    """The seeds of ONCELOG_SEED (one, or several with commas); none without it."""
    return [int(seed) for seed in os.environ.get("ONCELOG_SEED", "").split(",") if seed]


def seeds(walks: int, new: int = 2) -> list[int]:
    """The seeds of random walks: the numbers below `walks`, and where Kafka is asked so many `new` ones.

    ONCELOG_WALKS replaces `walks`; ONCELOG_SEED replaces the seeds.
    """
    first_new = int(os.environ.get(NEW, 0))
    news = range(first_new, first_new + new) if first_new else ()
    return chosen() or [*range(int(os.environ.get("ONCELOG_WALKS", walks))), *news]


def printed_rng() -> random.Random:
    """A random generator with a new seed, or ONCELOG_SEED's; the seed is printed."""
    [seed] = chosen() or [random.randrange(1 << 30)]
    print(f"ONCELOG_SEED={seed}")
    return random.Random(seed)
