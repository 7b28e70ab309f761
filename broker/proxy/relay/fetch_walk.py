"""`FetchWalk`: where the tagged fields of a Fetch response begin, found while its bytes are forwarded.

Only they can be trusted to hold node endpoints: bytes before them may be records that somebody has made to look so.
Records are not looked at, so a response takes one step for each of its topics, partitions and aborted transactions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from oncelog.wire.compiler import uvarint
from oncelog.wire.errors import DecodeError

UNIT_BYTES: Final = 48
"""Bytes of the longest step: a partition up to its aborted transactions."""
TAGGED_BYTES_MAX: Final = 64 * 1024
"""Bytes of a response's own tagged fields: node endpoints of a thousand nodes."""

_PREFIX = 4 + 4
"""Size and correlation id."""
_BEFORE_TOPICS = struct.calcsize(">ihi")
"""Throttle time, error, session id."""
_TOPIC_ID = 16
_ROW = struct.calcsize(">ihqqq")
"""Partition, error, high watermark, last stable offset, log start offset."""
_ABORTED = struct.calcsize(">qq")
_PREFERRED_REPLICA = 4


class FetchWalk:
    """Walks through one response of version 16 or higher: ``size`` bytes, with its size field."""

    __slots__ = ("_position", "_steps", "_view", "is_at_end", "left")

    def __init__(self, size: int) -> None:
        self.left = size
        """Bytes that were not forwarded yet."""
        self.is_at_end = False
        """Whether the bytes in `left` are the response's own tagged fields."""
        self._view = memoryview(b"")
        self._position = 0
        self._steps = self._walk()

    def advance(self, view: memoryview, position: int) -> tuple[int, int]:
        """Walk through the bytes from ``position`` on. Return the position of the first one that is not forwarded, and
        how many are forwarded that are not in ``view``. Raises DecodeError for bytes that are no Fetch response.

        Less than all is forwarded if it is at the end, or if more bytes are needed to go on.
        """
        self._view, self._position = view, position
        end = len(view)
        try:
            while not self.is_at_end and end - self._position >= min(UNIT_BYTES, self.left):
                at = self._position
                skipped = next(self._steps, None)
                if skipped is None:
                    self.is_at_end = True
                    if not 0 < self.left <= TAGGED_BYTES_MAX:
                        raise DecodeError(f"a Fetch response ends with {self.left} bytes of tagged fields")
                    break
                self._position += skipped
                self.left -= self._position - at
                if self.left < 0:
                    raise DecodeError("a Fetch response is longer than its frame")
            return min(self._position, end), max(self._position - end, 0)
        except IndexError:
            raise DecodeError("a Fetch response ends too early") from None
        finally:
            self._view = view[:0]

    def _walk(self) -> Iterator[int]:
        """Go on by a step of at most `UNIT_BYTES`; yield how many bytes are skipped after it. End where the
        response's own tagged fields begin.
        """
        self._position += _PREFIX
        yield from self._tagged_fields()
        self._position += _BEFORE_TOPICS
        topics = self._length()
        yield 0
        for _ in range(topics):
            self._position += _TOPIC_ID
            rows = self._length()
            yield 0
            for _ in range(rows):
                self._position += _ROW
                aborted = self._length()
                yield 0
                for _ in range(aborted):
                    self._position += _ABORTED
                    yield from self._tagged_fields()
                self._position += _PREFERRED_REPLICA
                yield self._length()
                yield from self._tagged_fields()
            yield from self._tagged_fields()

    def _tagged_fields(self) -> Iterator[int]:
        count = self._uvarint()
        yield 0
        for _ in range(count):
            self._uvarint()
            yield self._uvarint()

    def _length(self) -> int:
        """Return the length of a compact array, or of bytes; none for null."""
        return max(self._uvarint() - 1, 0)

    def _uvarint(self) -> int:
        try:
            value, self._position = uvarint(self._view, self._position)
        except DecodeError:
            raise DecodeError("a number of a Fetch response is too long") from None
        return value
