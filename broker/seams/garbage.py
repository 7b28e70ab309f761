"""The garbage collector of a process that does nothing but serve."""

from __future__ import annotations

import gc

FULL_COLLECTIONS_RARER = 100
"""Times. The objects of one request with 100,000 rows else set off several full collections while they live, each of
which visits all of them: up to 0.3 seconds. What becomes garbage by cycles is found by the smaller collections; a
connection or a request leaves none.
"""


def settle() -> None:
    """Visit the objects of the start never again, and others rarely. Call it once the process serves: not in a process
    that is somebody else's.
    """
    gc.freeze()
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, old * FULL_COLLECTIONS_RARER)
