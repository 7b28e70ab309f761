"""The consumer embedded protocol: subscriptions and assignments inside JoinGroup and SyncGroup of classic consumers.

Source: Kafka's ``ConsumerProtocol``, ``Utils.toConsumerProtocolAssignment``.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from oncelog.coordinator.groups.modern.requests import TOPIC_NAMES_MAX
from oncelog.wire.errors import DecodeError
from oncelog.wire.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from oncelog.coordinator.groups.context import Topics
    from oncelog.wire.schema import Buffer, Uuid

_VERSION = Struct(">h")


class CustomAssignorError(Exception):
    """An assignment has user data, which only a custom assignor understands."""


def _version(data: Buffer, newest: int) -> int:
    """The version at the start of ``data``, but at most ``newest``. Raises DecodeError."""
    if len(data) < _VERSION.size:
        raise DecodeError("a consumer's data is too short for its version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise DecodeError(f"a consumer's data has version {version}")
    return min(version, newest)


def subscription(metadata: Buffer) -> ConsumerProtocolSubscription:
    """The member's subscription. Raises DecodeError, also for one of too many topics."""
    version = _version(metadata, ConsumerProtocolSubscription.MAX_VERSION)
    # A newer version may have more fields after the known ones.
    decoded: ConsumerProtocolSubscription
    decoded, _ = ConsumerProtocolSubscription.decoder(version)(metadata, _VERSION.size)
    if len(decoded.topics) > TOPIC_NAMES_MAX:
        raise DecodeError(f"a subscription has more than {TOPIC_NAMES_MAX} topics")
    return decoded


def assigned(data: Buffer, topics: Topics) -> dict[Uuid, frozenset[int]]:
    """The assigned partitions by topic id, without unknown topics. Raises DecodeError, CustomAssignorError."""
    version = _version(data, ConsumerProtocolAssignment.MAX_VERSION)
    decoded: ConsumerProtocolAssignment
    decoded, _ = ConsumerProtocolAssignment.decoder(version)(data, _VERSION.size)
    if decoded.user_data:
        raise CustomAssignorError
    return {
        topic_id: frozenset(partitions)
        for topic_id, partitions in with_ids(
            ((row.topic, row.partitions) for row in decoded.assigned_partitions), topics
        ).items()
    }


def with_ids(rows: Iterable[tuple[str, list[int]]], topics: Topics) -> dict[Uuid, list[int]]:
    """The partitions by topic id, without unknown topics; ``rows`` have topic names."""
    by_id: dict[Uuid, list[int]] = {}
    for name, partitions in rows:
        topic = topics.by_name(name)
        if topic is not None:
            by_id[topic.topic_id] = partitions
    return by_id


def assignment(partitions: Mapping[Uuid, Collection[int]], metadata: Buffer, topics: Topics) -> bytes:
    """An encoded assignment, in the version of the member's own ``metadata``, or in version 0 if that is malformed."""
    try:
        version = _version(metadata, ConsumerProtocolAssignment.MAX_VERSION)
    except DecodeError:
        version = ConsumerProtocolAssignment.MIN_VERSION
    rows = []
    for topic_id, numbers in partitions.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            rows.append(TopicPartition(topic.name, sorted(numbers)))
    return _VERSION.pack(version) + ConsumerProtocolAssignment(rows).encode(version)
