"""`occurrence`: makes an `Occurrence`, with a text, of work that a broker did at a deadline."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.broker.control.types import Occurrence

TEXTS = {
    "member dropped": "member {member} of group {group}: {reason}",
    "join phase ended": "group {group}: the time to join is over",
    "offsets expired": "group {group}: {offsets} expired",
    "group removed": "group {group}: removed, since it has neither members nor offsets",
    "transaction timed out": "transaction {transactional_id} (producer id {producer_id}, epoch {producer_epoch}): "
    "timed out, aborted",
    "transactional id expired": "transactional id {transactional_id}: expired",
    "record locks ended": "share group {group}, topic {topic} partition {partition}: locks of {records} ended",
    "dead letters written": "share group {group}, topic {topic} partition {partition}: {records} written to {queue}",
    "archived without a dead letter": "share group {group}, topic {topic} partition {partition}: {records} archived "
    "without a dead letter: {reason}",
    "producer expired": "topic {topic} partition {partition}: producer id {producer_id} expired",
    "segments deleted": "topic {topic} partition {partition}: {segments} deleted by retention",
    "session ended": "node {node}: its session ended, and it is fenced",
    "replica out of sync": "topic {topic} partition {partition}: the replica of node {replica} is out of sync",
    "leader elected": "topic {topic} partition {partition}: node {leader} was elected its leader",
    "log compacted": "topic {topic} partition {partition}: compacted from offset {from_offset} to {to_offset}",
}
"""By the name of the work."""

COUNTED = {
    "record locks ended": "record",
    "dead letters written": "record",
    "archived without a dead letter": "record",
    "offsets expired": "offset",
    "segments deleted": "segment",
}
"""By the name of the work: the noun that its ``count`` counts."""


def occurrence(
    at_ms: int, what: str, about: Mapping[str, str | int], node_id: int | None = None
) -> Occurrence:
    """Return the occurrence of the work ``what`` at ``at_ms``; ``node_id``: which of several nodes has done it. Raises
    KeyError for a name that is not in `TEXTS`, or a fact that is missing.
    """
    facts = dict(about)
    if what in COUNTED:
        noun, count = COUNTED[what], facts["count"]
        facts[f"{noun}s"] = f"{count} {noun}" if count == 1 else f"{count} {noun}s"
    text = TEXTS[what].format(**facts)
    if node_id is None:
        return Occurrence(at_ms, what, text, dict(about))
    return Occurrence(at_ms, what, f"node {node_id}: {text}", {**about, "node": node_id})
