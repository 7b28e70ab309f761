"""What a loss of power leaves of a file, and how a simulated disk fails."""

from __future__ import annotations

import random
from collections.abc import Callable

from oncelog.broker.seams.memory_disk import Inode
from oncelog.broker.seams.memory_files import Operation, ProcessDied

SECTOR = 512
"""Bytes that a disk writes or does not write as one, apart from the one that the power loss cut through."""


def lose_power(inode: Inode, chance: random.Random) -> None:
    """Choose for dirty data whether it is lost, kept, or mixed."""
    luck = chance.random()
    if inode.is_dirty and luck < 0.75:
        inode.restore(inode.durable if luck < 0.25 else _torn(inode, chance))
    inode.sync()


def _torn(inode: Inode, chance: random.Random) -> bytearray:
    """Of each dirty sector the old or the new bytes, one of them cut at any byte; the size anywhere
    between the old and the new. Where only the size got to the disk there are zero bytes."""
    content, durable, position = inode.content, bytearray(inode.durable), inode.clean_bytes
    sizes = sorted((len(durable), len(content)))
    size = chance.choice((*sizes, chance.randint(*sizes)))
    torn = content[: min(position, size)]
    cut = chance.randint(position, max(position, size))
    while position < size:
        end = min((position // SECTOR + 1) * SECTOR, size)
        source = content if chance.random() < 0.6 else durable
        if position < cut < end:
            source, end = content, cut
        elif position == cut:
            source = durable
        piece = source[position:end]
        piece += durable[position + len(piece) : end]
        torn += piece.ljust(end - position, b"\0")
        position = end
    return torn


class SimulatedCrash(ProcessDied):
    """The process ends here. No ``except Exception`` in the product may see it."""


class Fault:
    """An error to raise from calls of ``operation`` on paths that ``when`` picks.

    ``after_bytes`` may still be written first (over all picked paths together); ``times`` limits how often.
    """

    def __init__(
        self,
        operation: Operation,
        error: int,
        when: Callable[[str], bool] = lambda path: True,
        *,
        after_bytes: int = 0,
        times: int | None = None,
    ) -> None:
        self.operation = operation
        self.error = error
        self.when = when
        self.after_bytes = after_bytes
        self.times = times
