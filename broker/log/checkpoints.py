"""Files that keep one offset per partition, beside the partitions' directories.

The text, as Kafka's ``CheckpointFile`` and ``OffsetCheckpointFile`` write it: the version (0) on the first
line, the number of entries on the second, then ``topic partition offset`` for each.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.seams.files import FileSystem

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

_VERSION = "0"


class MalformedCheckpointError(Exception):
    """The file's text is not a checkpoint; the message says where and why."""


class OffsetCheckpoint:
    """One checkpoint file. ``known`` is what it holds, as this process read or wrote it last.

    Writes replace the file, durably, and happen only where something changed. They must not overlap: one task
    uses `save`; `save_now` is for where none runs.
    """

    __slots__ = ("_files", "known", "path")

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self.path = path
        self.known: dict[tuple[str, int], int] = {}

    def read(self) -> dict[tuple[str, int], int]:
        """What the file holds: (topic, partition) -> offset; nothing where there is no file.

        Raises MalformedCheckpointError, OSError.
        """
        self.known = {}
        if self._files.exists(self.path):
            self.known = parse_offsets(self._files.read_bytes(self.path), self.path)
        return self.known

    async def save(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Write in a worker thread. Raises OSError; the file then holds what it held."""
        offsets = dict(offsets)
        if offsets != self.known:
            await self._files.offload(partial(self._files.replace, self.path, format_offsets(offsets)))
            self.known = offsets

    def save_now(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Write, and return when it is durable. Raises OSError; the file then holds what it held."""
        offsets = dict(offsets)
        if offsets != self.known:
            self._files.replace(self.path, format_offsets(offsets))
            self.known = offsets


def format_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    lines = [_VERSION, str(len(offsets))]
    lines.extend(f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))
    return ("\n".join(lines) + "\n").encode()


def parse_offsets(text: bytes, path: str) -> dict[tuple[str, int], int]:
    """The reverse of `format_offsets`. An empty file and one with a version only hold nothing, as in Kafka.

    Raises MalformedCheckpointError, naming ``path``.
    """
    try:
        lines = text.decode().splitlines()
    except UnicodeDecodeError:
        raise MalformedCheckpointError(f"{path} is no text") from None
    if not lines:
        return {}
    if lines[0] != _VERSION:
        raise MalformedCheckpointError(f"{path} has version {lines[0]!r}, not {_VERSION}")
    if len(lines) == 1:
        return {}
    found: dict[tuple[str, int], int] = {}
    for line in lines[2:]:
        try:
            topic, partition, offset = line.split()
            found[topic, int(partition)] = int(offset)
        except ValueError:
            raise MalformedCheckpointError(f"{path} has a malformed line: {line!r}") from None
    if lines[1] != str(len(lines) - 2):
        raise MalformedCheckpointError(f"{path} should have {lines[1]!r} entries and has {len(lines) - 2}")
    return found
