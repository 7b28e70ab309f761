"""Acknowledgements of records: accept, release, reject, renew, or a gap. Source: ``SharePartition.acknowledge``."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.share.window.in_flight import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, NOBODY
from oncelog.broker.share.window.window import joined
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oncelog.broker.share.window.in_flight import InFlightBatch, InFlightState
    from oncelog.broker.share.window.window import Window
    from oncelog.coordinator.share.state import DeliveryState, StateBatch

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
STATE_OF: dict[int, DeliveryState] = {
    GAP: ARCHIVED,
    ACCEPT: ACKNOWLEDGED,
    RELEASE: AVAILABLE,
}
"""The new state of records by the type of their acknowledgement, but for REJECT (`Window.after_failure`) and RENEW."""


class Acknowledgement(NamedTuple):
    """``types``: one for all offsets, or one for each."""

    first: int
    last: int
    types: Sequence[int]


def acknowledge(
    window: Window, member_id: str, acknowledgements: Iterable[Acknowledgement], deadline: float
) -> list[StateBatch]:
    """Begin the transitions that a member's acknowledgements ask for; `Window.complete` ends them. A renewal is not
    stored: it holds at once, and the lock then ends at ``deadline``.

    Raises KafkaError: INVALID_RECORD_STATE, INVALID_REQUEST. No state has changed then.
    """
    changes: list[StateBatch] = []
    try:
        for one in acknowledgements:
            if one.last >= window.start_offset:
                for batch in _batches(window, one):
                    if batch.last >= window.start_offset:
                        _Acknowledger(window, member_id, deadline, changes).acknowledge(batch, one)
    except KafkaError:
        window.complete(changes, is_stored=False)
        raise
    return joined(changes)


def _batches(window: Window, asked: Acknowledgement) -> list[InFlightBatch]:
    """Return the batches of the window that have acknowledged offsets. Raises KafkaError for offsets outside them."""
    index = window.floor(asked.first)
    if index < 0:
        if not asked.first < window.start_offset <= asked.last:
            raise _invalid("Batch record not found. The request batch offsets are not found in the cache.")
        index = window.floor(window.start_offset)
    found = window.slice(window.firsts[index], asked.last) if index >= 0 else []
    if not found or found[-1].last < asked.first:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Batch record not found. The first offset in request is past acquired records.",
        )
    if asked.last > found[-1].last:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Batch record not found. The last offset in request is past acquired records.",
        )
    return found


class _Acknowledger:
    def __init__(self, window: Window, member_id: str, deadline: float, changes: list[StateBatch]) -> None:
        self._window = window
        self._member_id = member_id
        self._deadline = deadline
        self._changes = changes

    def acknowledge(self, batch: InFlightBatch, asked: Acknowledgement) -> None:
        start = self._window.start_offset
        if not batch.is_split:
            self._check_whole(batch.whole)
        is_inside = asked.first <= batch.first and batch.last <= asked.last
        if is_inside and not batch.is_split and len(asked.types) == 1 and batch.first >= start:
            if batch.whole.state is not ACQUIRED:
                raise _invalid("The batch cannot be acknowledged. The batch is not in the acquired state.")
            self._begin(batch.whole, asked.types[0])
            return
        if not batch.is_split:
            if batch.whole.state is not ACQUIRED:
                raise _invalid(
                    "The batch cannot be acknowledged. The subset batch is not in the acquired state."
                )
            batch.is_split = True
        for first, last, kind in _by_type(asked):
            first, last = max(first, batch.first, start), min(last, batch.last)
            if first <= last:
                for records in batch.cut_between(first, last):
                    self._check(records)
                    self._begin(records, kind)

    def _check_whole(self, records: InFlightState) -> None:
        # While the end of a lock is being stored, Kafka has already forgotten the member.
        if records.member_id == NOBODY or records.pending is not None:
            raise _invalid("The batch cannot be acknowledged. The batch is not in the acquired state.")
        if records.member_id != self._member_id:
            raise _invalid("Member is not the owner of batch record")

    def _check(self, records: InFlightState) -> None:
        if records.outcome is not ACQUIRED:
            raise _invalid("The offset cannot be acknowledged. The offset is not acquired.")
        if records.member_id != self._member_id:
            raise _invalid("Member is not the owner of offset")

    def _begin(self, records: InFlightState, kind: int) -> None:
        window = self._window
        if kind == REJECT:
            records.is_rejected = window.limits.has_dead_letter_queue
            window.begin(records, window.after_failure, self._changes)
            return
        if kind != RENEW:
            window.begin(records, STATE_OF[kind], self._changes)
            return
        if not window.limits.may_renew:
            raise _invalid("Renewing acquisition locks is not enabled for the group.")
        records.deadline = self._deadline
        window.queue_lock_end(self._deadline, records.first, records.last)


def _by_type(asked: Acknowledgement) -> Iterable[tuple[int, int, int]]:
    """Yield the ranges of offsets with one type: first, last, type."""
    if len(asked.types) == 1:
        yield asked.first, asked.last, asked.types[0]
        return
    first = asked.first
    for kind, same in groupby(asked.types):
        count = sum(1 for _ in same)
        yield first, first + count - 1, kind
        first += count


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, text)
