"""The hash of the topics that a group reads: when it changes, the group needs a new assignment (KIP-1101).

It is stored with the group's epoch, so it is Kafka's to the bit: XXH3 over little-endian fields, strings as their
UTF-16 units and then their number. Source: Kafka's ``Utils.computeGroupHash``, ``computeTopicHash``.
"""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.coordinator.groups.context import Topic, Topics
    from oncelog.wire.schema import Uuid

MAGIC = 0
NO_TOPICS = 0


class TopicHashes:
    """The hashes of a group's topics, remembered: 1,000 partitions are a millisecond.

    A topic's hash is computed again when it has another number of partitions; other racks show with the next restart.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Uuid, tuple[int, int]] = {}

    def of_group(self, names: Iterable[str], topics: Topics) -> int:
        """The hash for the topics of those names, an int64; 0 where none of them exists."""
        used: dict[Uuid, tuple[int, int]] = {}
        hashes = []
        for name in sorted(names):
            topic = topics.by_name(name)
            if topic is None:
                continue
            count = len(topic.partitions)
            known = self._known.get(topic.topic_id)
            if known is None or known[0] != count:
                known = (count, topic_hash(topic, topics))
            used[topic.topic_id] = known
            hashes.append(known[1])
        self._known = used
        return _hash(pack(f"<{len(hashes)}q", *hashes)) if hashes else NO_TOPICS


def topic_hash(topic: Topic, topics: Topics) -> int:
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
