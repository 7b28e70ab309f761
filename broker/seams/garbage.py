"""The garbage collector of a process that does nothing but serve."""

from __future__ import annotations

import gc

FULL_COLLECTIONS_RARER = 10_000
"""Times. The objects of one request with 100,000 rows else set off several full collections while they live, each of
which visits all objects, in up to 0.9 seconds. They find hardly anything: topics, groups and connections leave
no cycles of references, and what a refused request leaves is found young, by the smaller collections.
"""


def settle() -> None:
    """Visit the objects of the start never again, and others rarely. Call it once the process serves: not in a process
    that is somebody else's.
    """
    gc.freeze()
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, old * FULL_COLLECTIONS_RARER)
