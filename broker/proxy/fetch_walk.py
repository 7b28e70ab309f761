"""`FetchWalk`: where the tagged fields of a Fetch response begin, found while its bytes pass.

Only they can be trusted to hold node endpoints: bytes before them may be records that somebody has made to look so.
Records are not looked at, so a response takes one step for each of its topics, partitions and aborted transactions.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from oncelog.wire.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

UNIT_BYTES: Final = 48
"""Bytes of the longest thing that is read at once: a partition up to its aborted transactions."""
TAGGED_BYTES_MAX: Final = 64 * 1024
"""Bytes of a response's own tagged fields: node endpoints of a thousand nodes."""
UVARINT_BYTES_MAX: Final = 5

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
    """Walks through one response of version 16 or higher, a frame of ``size`` bytes with its own size."""

    __slots__ = (
        "_aborted",
        "_after_fields",
        "_fields",
        "_position",
        "_rows",
        "_skip",
        "_step",
        "_topics",
        "_view",
        "is_at_end",
        "left",
    )

    def __init__(self, size: int) -> None:
        self.left = size
        """Bytes that were not passed yet."""
        self.is_at_end = False
        """Whether those are the response's own tagged fields."""
        self._step: Callable[[FetchWalk], None] = FetchWalk._begin
        self._topics = self._rows = self._aborted = self._fields = self._skip = 0
        self._after_fields: Callable[[FetchWalk], None] = FetchWalk._next_topic
        self._view = memoryview(b"")
        self._position = 0

    def advance(self, view: memoryview, position: int) -> tuple[int, int]:
        """Walk through the bytes from ``position`` on. Return the position of the first one that does not pass, and how
        many bytes pass that are not in ``view``. Raises DecodeError for bytes that are no Fetch response.

        Less than all passes if it is at the end, or if more bytes are needed to go on.
        """
        self._view, self._position = view, position
        end = len(view)
        try:
            while not self.is_at_end:
                at = self._position
                if end - at < min(UNIT_BYTES, self.left):
                    return at, 0
                self._step(self)
                self.left -= self._position - at + self._skip
                if self.left < 0:
                    raise DecodeError("a Fetch response is longer than its frame")
                if self._skip:
                    self._position += self._skip
                    self._skip = 0
                    if self._position > end:
                        return end, self._position - end
            if not 0 < self.left <= TAGGED_BYTES_MAX:
                raise DecodeError(f"a Fetch response ends with {self.left} bytes of tagged fields")
            return self._position, 0
        except IndexError:
            raise DecodeError("a Fetch response ends too early") from None
        finally:
            self._view = memoryview(b"")

    # -- steps, each of at most UNIT_BYTES

    def _begin(self) -> None:
        self._position += _PREFIX
        self._begin_fields(FetchWalk._before_topics)

    def _before_topics(self) -> None:
        self._position += _BEFORE_TOPICS
        self._topics = self._count()
        self._next_topic()

    def _next_topic(self) -> None:
        if self._topics:
            self._topics -= 1
            self._step = FetchWalk._topic
        else:
            self.is_at_end = True

    def _topic(self) -> None:
        self._position += _TOPIC_ID
        self._rows = self._count()
        self._next_row()

    def _next_row(self) -> None:
        if self._rows:
            self._rows -= 1
            self._step = FetchWalk._row
        else:
            self._step = FetchWalk._end_topic

    def _row(self) -> None:
        self._position += _ROW
        self._aborted = self._count()
        self._next_aborted()

    def _next_aborted(self) -> None:
        if self._aborted:
            self._aborted -= 1
            self._step = FetchWalk._aborted_transaction
        else:
            self._step = FetchWalk._records

    def _aborted_transaction(self) -> None:
        self._position += _ABORTED
        self._begin_fields(FetchWalk._next_aborted)

    def _records(self) -> None:
        self._position += _PREFERRED_REPLICA
        self._skip = self._count()
        self._step = FetchWalk._end_row

    def _end_row(self) -> None:
        self._begin_fields(FetchWalk._next_row)

    def _end_topic(self) -> None:
        self._begin_fields(FetchWalk._next_topic)

    # -- tagged fields

    def _begin_fields(self, then: Callable[[FetchWalk], None]) -> None:
        """Read how many tagged fields there are; ``then`` chooses the step after them."""
        self._fields = self._uvarint()
        self._after_fields = then
        self._next_field()

    def _next_field(self) -> None:
        if self._fields:
            self._fields -= 1
            self._step = FetchWalk._field
        elif self._after_fields is FetchWalk._before_topics:
            self._step = FetchWalk._before_topics
        else:
            self._after_fields(self)

    def _field(self) -> None:
        self._uvarint()
        self._skip = self._uvarint()
        self._next_field()

    # -- numbers

    def _count(self) -> int:
        """Return the length of a compact array, or of bytes; none for null."""
        return max(self._uvarint() - 1, 0)

    def _uvarint(self) -> int:
        view, value = self._view, 0
        for shift in range(0, 7 * UVARINT_BYTES_MAX, 7):
            byte = view[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise DecodeError("a number of a Fetch response is too long")
