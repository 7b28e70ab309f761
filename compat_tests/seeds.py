"""The seeds of the random walks: the same in every run, so that a red run is red again; more, or others, when asked."""

import os


def seeds(walks: int) -> list[int]:
    """Those of ONCELOG_SEED (comma-separated) where it is set, else the first `walks`, or the first ONCELOG_WALKS."""
    if given := os.environ.get("ONCELOG_SEED"):
        return [int(seed) for seed in given.split(",")]
    return list(range(int(os.environ.get("ONCELOG_WALKS", walks))))
