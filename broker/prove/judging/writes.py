"""`Writes`: what became of the records of Produce requests.

A record counts as written where a reader at read_committed sees it. Others look like it in the requests: one in a
transaction that was not committed, and one that the broker took for a repetition, since it has a sequence number that
its producer has used: the broker acknowledges it, and writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from oncelog.broker.prove.judging.transactions import is_committed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.control.types import Record
    from oncelog.broker.prove.trials.history import Event

Send: TypeAlias = "tuple[Event, Record]"
"""A Produce request, and a record of it."""
_Numbers: TypeAlias = tuple[str, int, int, int, int]


class Writes:
    """``events`` are the requests of a trial, in their order."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._first: dict[_Numbers, Send] = {}
        """The first request with each sequence number that the broker answered."""
        for event in events:
            for record in event.records:
                if record.offset >= 0 and record.sequence >= 0:
                    self._first.setdefault(_numbers(record), (event, record))

    def original_of(self, event: Event, record: Record) -> Send | None:
        """Return the earlier request of which the broker took this record for a repetition; None if it did not."""
        first = self._first.get(_numbers(record))
        return None if record.offset < 0 or first is None or first[0] is event else first

    def is_visible(self, event: Event, record: Record) -> bool:
        """Return whether readers at read_committed see what the request wrote."""
        return record.offset >= 0 and self.may_be_visible(event, record)

    def may_be_visible(self, event: Event, record: Record) -> bool:
        """Return the same, also where the broker did not say whether it wrote it."""
        return self.original_of(event, record) is None and not self.is_aborted(event, record)

    def is_aborted(self, event: Event, record: Record) -> bool:
        """Return whether a record was written in a transaction that was not committed."""
        return record.is_transactional and record.offset >= 0 and not is_committed(event, self._events)


def _numbers(record: Record) -> _Numbers:
    return record.topic, record.partition, record.producer_id, record.producer_epoch, record.sequence
