"""Random bytes that nobody can guess: nonces, salts, keys. What a test may repeat comes from a ``random.Random``."""

from __future__ import annotations

import os


def unguessable(count: int) -> bytes:
    """Return ``count`` random bytes from the operating system."""
    return os.urandom(count)
