"""`TimeGaps`: spans in which no broker time passed for the data, because it lay in a snapshot.

Records keep their timestamps, which clients see. But what depends on their age (retention, compaction lags, the memory
of producers) must not count the time in the snapshot: the records of a year-old snapshot would be gone with its first
use. A file beside the partitions' directories says when each snapshot was taken and for how long it lay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from oncelog.broker.seams.files import FileSystem

TIME_GAPS_FILE = "oncelog-time-gaps"
_VERSION = "0"


class MalformedTimeGapsError(Exception):
    """The file does not say gaps; the message names it."""


class TimeGap(NamedTuple):
    """From ``begin_ms`` (broker time) on, ``length_ms`` milliseconds passed only outside; negative where the clock was
    set back.
    """

    begin_ms: int
    length_ms: int


class TimeGaps:
    """The gaps of one data directory, in the order in which they came."""

    __slots__ = ("_gaps",)

    def __init__(self, gaps: Iterable[TimeGap] = ()) -> None:
        self._gaps = tuple(gaps)

    def aged(self, timestamp: int) -> int:
        """Return from when the age of what bears ``timestamp`` (ms) counts: later by the gaps that came after it."""
        for begin_ms, length_ms in self._gaps:
            if timestamp <= begin_ms:
                timestamp += length_ms
        return timestamp

    def and_then(self, gap: TimeGap) -> TimeGaps:
        """Return the gaps with another one after them."""
        return TimeGaps((*self._gaps, gap))

    def encode(self) -> bytes:
        """Return the content of `TIME_GAPS_FILE`: the version, then a line with begin and length of each."""
        return "".join(f"{line}\n" for line in (_VERSION, *(f"{a} {b}" for a, b in self._gaps))).encode()


def parse_time_gaps(content: bytes, path: str) -> TimeGaps:
    """Return what `TimeGaps.encode` wrote. Raises MalformedTimeGapsError, which names ``path``."""
    try:
        version, *lines = content.decode("ascii").splitlines()
        if version != _VERSION:
            raise ValueError(f"version {version}")
        pairs = (line.split(" ") for line in lines)
        return TimeGaps(TimeGap(int(begin), int(length)) for begin, length in pairs)
    except ValueError as error:
        raise MalformedTimeGapsError(f"{path} is malformed: {error}") from None


def read_time_gaps(files: FileSystem, data_dir: str) -> TimeGaps:
    """Return the gaps of a data directory; none if it has no such file. Raises OSError, MalformedTimeGapsError."""
    path = f"{data_dir}/{TIME_GAPS_FILE}"
    return parse_time_gaps(files.read_bytes(path), path) if files.exists(path) else TimeGaps()
