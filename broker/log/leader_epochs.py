"""Leader epochs and their first offsets: ``leader-epoch-checkpoint``.

It lets a reader that knows the epoch of its last record find out where that epoch ended here, and so notice
that the log was cut (KIP-101, KIP-320). Source: Kafka's ``LeaderEpochFileCache``, ``CheckpointFile``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from oncelog.broker.seams.files import FileSystem
from oncelog.wire.errors import DecodeError

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1

_VERSION = 0


class CorruptCheckpoint(DecodeError):  # noqa: N818  # what it is, not that it is an error
    """A checkpoint file that is not in Kafka's format."""


class LeaderEpochs:
    """The leader epochs of one partition, each with its first offset; both rise. Epochs without records go, but
    the latest stays.

    A change is made in memory (``changed``); ``encode`` returns the new content of the file. That must be
    durable before the recovery point passes a record of the new epoch: a recovery derives the epochs of all
    records above the recovery point.
    """

    __slots__ = ("_epochs", "_starts", "changed", "latest")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED_EPOCH
        """The highest epoch known, -1 if there is none."""
        self.changed = False

    @classmethod
    def load(cls, files: FileSystem, path: str) -> LeaderEpochs:
        """Load the checkpoint file; without one there are no epochs. Raises CorruptCheckpoint."""
        epochs = cls()
        if files.exists(path):
            for epoch, start in parse_checkpoint(files.read_bytes(path), path):
                epochs.assign(epoch, start)
            epochs.changed = False
        return epochs

    def encode(self) -> bytes:
        return encode_checkpoint(self.entries())

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, its first offset) of each, rising."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that ``epoch`` begins at ``start_offset``. Entries that contradict this are dropped."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset}")
        if self._epochs and epoch == self.latest and start_offset >= self._starts[-1]:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._changed()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The highest known epoch that is not above ``epoch``, and its end offset (exclusive).

        An epoch below all known ones is returned with the start of the first known one; for an epoch above all
        it is (-1, -1).
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        return (self._epochs[above - 1] if above else epoch), self._starts[above]

    def epoch_for(self, offset: int) -> int:
        """The epoch of the record at ``offset``, -1 if it is not known."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at ``end_offset``: drop the epochs that begin at or after it."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._epochs[keep:], self._starts[keep:]
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now begins at ``start_offset``: drop earlier epochs, and let the epoch of that offset begin
        there."""
        before = bisect_right(self._starts, start_offset)
        if before and (before > 1 or self._starts[0] != start_offset):
            del self._epochs[: before - 1], self._starts[: before - 1]
            self._starts[0] = start_offset
            self._changed()

    def clear(self) -> None:
        del self._epochs[:], self._starts[:]
        self._changed()

    def _changed(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        self.changed = True


def encode_checkpoint(rows: list[tuple[int, int]]) -> bytes:
    """Kafka's checkpoint text: a line with the version (0), one with the count, one for each row."""
    return "".join([f"{_VERSION}\n{len(rows)}\n", *(f"{a} {b}\n" for a, b in rows)]).encode()


def parse_checkpoint(data: bytes, path: str) -> list[tuple[int, int]]:
    """The rows of Kafka's checkpoint text; none in an empty file. Raises CorruptCheckpoint."""
    lines = data.decode("ascii", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 2:
        return []
    try:
        version, count = int(lines[0]), int(lines[1])
        rows = [(int(first), int(second)) for first, second in map(str.split, lines[2:])]
    except ValueError:
        raise CorruptCheckpoint(f"malformed line in {path}") from None
    if version != _VERSION or count != len(rows):
        raise CorruptCheckpoint(f"{path}: version {version}, {len(rows)} rows of {count}")
    return rows
