"""The hash of a group's subscribed topics: when it changes, the group rebalances (KIP-1101).

It is stored with the group epoch and equal to Kafka's: XXH3 over little-endian fields, strings as UTF-16 code units
followed by their number. Source: Kafka's ``Utils.computeGroupHash``, ``computeTopicHash``.
"""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.coordinator.groups.context import CoordinatorTopic, Topics
    from oncelog.coordinator.groups.modern.subscriptions import Subscriptions
    from oncelog.wire.schema import Uuid

MAGIC = 0
NO_TOPICS = 0


class TopicHashes:
    """Caches the hashes of a group's topics: to hash a topic of 1,000 partitions takes a millisecond.

    A topic is hashed again when its number of partitions changes, and after `forget`.
    """

    __slots__ = ("_cache",)

    def __init__(self) -> None:
        self._cache: dict[str, tuple[Uuid, int, int]] = {}

    def forget(self, names: Iterable[str]) -> None:
        """The replicas of these topics may be in other racks now."""
        for name in names:
            self._cache.pop(name, None)

    def of_group(self, subscriptions: Subscriptions, topics: Topics) -> int:
        """The hash, an int64, of the subscribed topics that exist; 0 if none does."""
        used: dict[str, tuple[Uuid, int, int]] = {}
        hashes = []
        for name in sorted(subscriptions.existing(topics)):
            topic = topics.by_name(name)
            assert topic is not None
            count = len(topic.partitions)
            cached = self._cache.get(name)
            if cached is None or cached[:2] != (topic.topic_id, count):
                cached = (topic.topic_id, count, topic_hash(topic, topics))
            used[name] = cached
            hashes.append(cached[2])
        self._cache = used
        return _hash(pack(f"<{len(hashes)}q", *hashes)) if hashes else NO_TOPICS


def topic_hash(topic: CoordinatorTopic, topics: Topics) -> int:
    high, low = int.from_bytes(topic.topic_id[:8]), int.from_bytes(topic.topic_id[8:])
    count = len(topic.partitions)
    parts = [pack("<bQQ", MAGIC, high, low), _text(topic.name), pack("<i", count)]
    for partition in range(count):
        parts.append(pack("<i", partition))
        for rack in sorted(topics.racks(topic, partition)):
            text = _text(rack)
            # Kafka writes a rack's length both before and after it.
            parts += (text[-4:], text)
    return _hash(b"".join(parts))


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + pack("<i", len(units) // 2)


def _hash(data: bytes) -> int:
    from xxhash import xxh3_64_intdigest

    value = xxh3_64_intdigest(data)
    return value - (1 << 64) if value >> 63 else value
