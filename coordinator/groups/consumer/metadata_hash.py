"""The hash of the topics that a group reads: when it changes, the group needs a new assignment (KIP-1101).

It is stored with the group's epoch, so it is Kafka's to the bit: XXH3 over little-endian fields, strings as their
UTF-16 units and then their number. Source: Kafka's ``Utils.computeGroupHash``, ``computeTopicHash``.
"""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coordinator.groups.context import Topic, Topics

MAGIC = 0
NO_TOPICS = 0


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """An int64; 0 where none of the topics exists."""
    found = {name: topic for name in names if (topic := topics.by_name(name)) is not None}
    if not found:
        return NO_TOPICS
    return _hash(b"".join(pack("<q", _topic_hash(found[name], topics)) for name in sorted(found)))


def _topic_hash(topic: Topic, topics: Topics) -> int:
    high, low = int.from_bytes(topic.topic_id[:8]), int.from_bytes(topic.topic_id[8:])
    count = len(topic.partitions)
    parts = [pack("<bQQ", MAGIC, high, low), _text(topic.name), pack("<i", count)]
    for partition in range(count):
        parts.append(pack("<i", partition))
        for rack in sorted(topics.racks(topic, partition)):
            text = _text(rack)
            # Its length stands before it, too, so that no two lists of racks look the same.
            parts += (text[-4:], text)
    return _hash(b"".join(parts))


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + pack("<i", len(units) // 2)


def _hash(data: bytes) -> int:
    from xxhash import xxh3_64_intdigest

    value = xxh3_64_intdigest(data)
    return value - (1 << 64) if value >> 63 else value
