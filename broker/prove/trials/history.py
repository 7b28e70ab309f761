"""`Event`: a request of a trial as the judge, the explanation and the report see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from oncelog.broker.prove.disturbances import LISTENER_PREFIX
from oncelog.broker.prove.trials.watch import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.control.request_types import Request
    from oncelog.broker.control.types import Record
    from oncelog.broker.prove.trials.trial_result import TrialResult
    from oncelog.broker.prove.trials.watch import Sighting

TIMELINE_MAX: Final = 600
"""How many of a trial's last requests the timeline of a finding has."""
Committed = dict[tuple[str, str, int], int]
"""Offsets by group, topic and partition."""


@dataclass
class Event:
    """One request."""

    number: int
    """As the journal counts."""
    at_s: float
    """Seconds of real time since the trial began."""
    instance: int
    run: int
    """Which process of the instance sent it."""
    api: str
    version: int
    outcome: str
    errors: tuple[str, ...]
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transactional_id: str | None = None
    records: list[Record] = field(default_factory=list)
    """The records of a Produce; those that were appended have their offsets."""
    committed: Committed = field(default_factory=dict)
    """The offsets of an OffsetCommit or a TxnOffsetCommit."""
    is_commit: bool | None = None
    """Of an EndTxn: whether it commits."""
    member_id: str = ""
    acks: int | None = None
    brought_records: bool = False
    """Of a Fetch or a ShareFetch: whether its response has records."""
    writes: int = 0
    """The writes (`BrokerState.writes`) before it came."""
    writes_after: int = 0
    """The writes before it was done."""
    folder: int = 0
    """The state of the program's folder when it came."""

    @property
    def is_acknowledged(self) -> bool:
        """Whether the program may have read that it succeeded."""
        return self.outcome == "responded" and not self.errors

    @property
    def result(self) -> str:
        """How it ended, in words."""
        return ", ".join(self.errors) or {"responded": "acknowledged"}.get(self.outcome, self.outcome)

    @property
    def text(self) -> str:
        """The request in words."""
        what = self.api
        if self.is_commit is not None:
            what += " (commit)" if self.is_commit else " (abort)"
        if self.records:
            shown = ", ".join(record_text(one) for one in self.records[:3])
            more = f" and {len(self.records) - 3} more" if len(self.records) > 3 else ""
            what += f" {shown}{more}"
        elif self.committed:
            what += " " + ", ".join(
                f"{topic}-{partition} up to {offset}"
                for (_, topic, partition), offset in sorted(self.committed.items())[:4]
            )
        elif self.brought_records:
            what += " (records)"
        elif self.topics:
            what += f" {', '.join(self.topics[:3])}"
        return what

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "number": self.number,
            "at_ms": round(self.at_s * 1000, 1),
            "instance": self.instance,
            "run": self.run,
            "request": self.text,
            "version": self.version,
            "result": self.result,
            "writes": self.writes,
            "writes_after": self.writes_after,
        }


def record_text(record: Record) -> str:
    """Return a record as text, on one line."""
    offset = f"@{record.offset}" if record.offset >= 0 else ""
    return f"{record.topic}-{record.partition}{offset} {value_text(record.key, record.value)}"


def text_of_bytes(value: bytes | None) -> str:
    """Return a key or a value as text, on one line."""
    return "none" if value is None else repr(value.decode("utf-8", "backslashreplace"))


def value_text(key: bytes | None, value: bytes | None) -> str:
    """Return key and value as text, on one line, cut where it is long."""
    shown = text_of_bytes(value)
    text = shown if key is None else f"{text_of_bytes(key)}: {shown}"
    return text if len(text) <= 160 else text[:157] + "..."


def events_of(result: TrialResult) -> list[Event]:
    """Return the requests of a trial, in their order."""
    if result.journal is None or result.watch is None:
        return []
    sightings = {one.number: one for one in result.watch.sightings}
    events = []
    for entry in result.journal.entries():
        sighting = sightings.get(entry.number)
        if sighting is not None and sighting.api not in LEFT_OUT and sighting.at_s <= result.judged_at_s:
            after = result.watch.writes_after.get(entry.number, sighting.writes)
            event = _event(result.journal.request(entry), sighting, after)
            event.brought_records = entry.number in result.watch.brought_records
            events.append(event)
    return events


def _event(request: Request, sighting: Sighting, writes_after: int) -> Event:
    body = request.body
    event = Event(
        number=request.number,
        at_s=sighting.at_s,
        instance=int(sighting.listener.removeprefix(LISTENER_PREFIX)),
        run=sighting.run,
        api=request.api,
        version=request.version,
        outcome=request.outcome,
        errors=request.errors,
        topics=request.topics,
        groups=request.groups,
        transactional_id=next(iter(request.transactional_ids), None),
        writes=sighting.writes,
        writes_after=writes_after,
        folder=sighting.folder,
    )
    match request.api:
        case "Produce":
            event.records = _records(request)
            event.acks = body.acks
        case "OffsetCommit" | "TxnOffsetCommit":
            event.committed = {
                (body.group_id, topic.name, row.partition_index): row.committed_offset
                for topic in body.topics
                for row in topic.partitions
            }
            event.member_id = body.member_id or ""
        case "EndTxn":
            event.is_commit = bool(body.committed)
    return event


def _records(request: Request) -> list[Record]:
    try:
        return request.records
    except ValueError:
        return []


def timeline(result: TrialResult, events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the requests of a trial and what was done to program and broker, by time."""
    rows: list[dict[str, Any]] = [event.to_data() for event in events]
    if len(rows) > TIMELINE_MAX:
        rows = [
            row for row in rows if row["request"].partition(" ")[0] not in ("Fetch", "Heartbeat", "Metadata")
        ]
    rows = rows[-TIMELINE_MAX:]
    rows += [
        {"at_ms": round(at * 1000, 1), "disturbance": str(one)}
        for one, at in zip(result.disturbances, result.fired_at, strict=False)
    ]
    rows += [
        {"at_ms": round(end.at_s * 1000, 1), "instance": end.instance, "program": str(end)}
        for end in result.ends
    ]
    rows += [
        {"at_ms": round(at * 1000, 1), "broker": "the broker died, and starts again"}
        for at in result.broker_ends
    ]
    return sorted(rows, key=lambda row: row["at_ms"])
