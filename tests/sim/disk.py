"""What a simulated disk keeps, what a loss of power leaves of it, and how it fails."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal

Operation = Literal["open", "read", "write", "truncate", "fsync", "rename", "remove", "makedirs", "sync_dir"]

SECTOR = 512
"""Bytes that a disk writes or does not write as one, apart from the one that the power loss cut through."""


class Inode:
    """A file's content now, and what of it is on the disk; the two are equal below ``dirty_from``."""

    __slots__ = ("content", "dirty_from", "durable", "modified_ms")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.dirty_from: int | None = None
        self.modified_ms = 0

    def dirty(self, offset: int) -> None:
        self.dirty_from = offset if self.dirty_from is None else min(self.dirty_from, offset)

    def write(self, data: bytes, offset: int, now_ms: int) -> None:
        self.dirty(offset)
        self.content[offset : offset + len(data)] = data
        self.modified_ms = now_ms

    def sync(self) -> None:
        if self.dirty_from is not None:
            self.durable[self.dirty_from :] = self.content[self.dirty_from :]
            self.dirty_from = None

    def lose_power(self, chance: random.Random) -> None:
        """What was dirty is lost, kept, or a mixture."""
        luck = chance.random()
        if self.dirty_from is not None and luck < 0.75:
            self.content = bytearray(self.durable) if luck < 0.25 else self._torn(self.dirty_from, chance)
        self.durable = bytearray(self.content)
        self.dirty_from = None

    def _torn(self, position: int, chance: random.Random) -> bytearray:
        """Of each dirty sector the old or the new bytes, one of them cut at any byte; the size anywhere
        between the old and the new. Where only the size got to the disk there are zero bytes."""
        sizes = sorted((len(self.durable), len(self.content)))
        size = chance.choice((*sizes, chance.randint(*sizes)))
        torn = self.content[: min(position, size)]
        cut = chance.randint(position, max(position, size))
        while position < size:
            end = min((position // SECTOR + 1) * SECTOR, size)
            source = self.content if chance.random() < 0.6 else self.durable
            if position < cut < end:
                source, end = self.content, cut
            elif position == cut:
                source = self.durable
            piece = source[position:end]
            piece += self.durable[position + len(piece) : end]
            torn += piece.ljust(end - position, b"\0")
            position = end
        return torn


class Directory:
    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}


class Change:
    """A node got, lost or changed its name; not yet on the disk. Either side may be missing."""

    __slots__ = ("node", "source", "target")

    def __init__(
        self,
        node: Inode | Directory,
        source: tuple[Directory, str] | None,
        target: tuple[Directory, str] | None,
    ) -> None:
        self.node = node
        self.source = source
        self.target = target

    def touches(self, directory: Directory) -> bool:
        return any(side is not None and side[0] is directory for side in (self.source, self.target))

    def persist(self) -> None:
        if self.source is not None:
            directory, name = self.source
            if directory.durable.get(name) is not self.node:
                return  # what made the name was lost
            del directory.durable[name]
        if self.target is not None:
            self.target[0].durable[self.target[1]] = self.node


class SimulatedCrash(BaseException):
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
