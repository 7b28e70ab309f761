"""The subscriptions of a classic group's consumers, parsed on first use: few requests need them."""

from __future__ import annotations

from collections.abc import Iterable

from oncelog.wire.errors import DecodeError
from oncelog.wire.stored.consumer_protocol import ConsumerProtocolSubscription

VERSION_SIZE = 2
"""Bytes of the version before a subscription's fields."""


class ClassicSubscriptions:
    """The subscriptions of a generation's members, from the metadata of their JoinGroups.

    Kafka parses them when the generation begins: 500,000 names for 500 members with 1,000 topics each, which would
    block the loop for too long. Only OffsetDelete and the expiry of offsets need them.
    """

    __slots__ = ("_metadata", "_topics")

    def __init__(self, metadata: Iterable[bytes]) -> None:
        self._metadata: frozenset[bytes] | None = frozenset(metadata)
        self._topics: frozenset[str] | None = None

    def topics(self) -> frozenset[str] | None:
        """The names of all topics to which a member is subscribed; None if a subscription is malformed."""
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
