"""What the consumers of a classic group read: parsed when somebody asks, since nearly nobody does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.wire.errors import DecodeError
from oncelog.wire.stored.consumer_protocol import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION_SIZE = 2
"""Bytes of the version before a subscription's fields."""


class ClassicSubscriptions:
    """The subscriptions of a generation's members, as they put them into their JoinGroup.

    Kafka parses them when the generation begins. That is 500,000 names for 500 members of 1,000 topics: far more than
    the loop may be held for, and only asked for by OffsetDelete and by the expiry of offsets.
    """

    __slots__ = ("_metadata", "_topics")

    def __init__(self, metadata: Iterable[bytes]) -> None:
        self._metadata: frozenset[bytes] | None = frozenset(metadata)
        self._topics: frozenset[str] | None = None

    def topics(self) -> frozenset[str] | None:
        """The names of all topics that a member is subscribed to; None where a subscription cannot be read."""
        if self._metadata is not None:
            try:
                self._topics = frozenset(topic for data in self._metadata for topic in _topics(data))
            except DecodeError:
                self._topics = None
            self._metadata = None
        return self._topics


def _topics(metadata: bytes) -> list[str]:
    # Every version begins as version 0 does.
    if len(metadata) < VERSION_SIZE:
        raise DecodeError("a subscription has no version")
    subscription: ConsumerProtocolSubscription
    subscription, _ = ConsumerProtocolSubscription.decoder(0)(metadata, VERSION_SIZE)
    return subscription.topics
