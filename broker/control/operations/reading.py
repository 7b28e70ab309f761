"""Operations: what there is in the broker, see `oncelog.broker.control.views`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.control import views
from oncelog.broker.control.records import read_records

if TYPE_CHECKING:
    from oncelog.broker.control.controlled_broker import ControlledBroker
    from oncelog.broker.control.types import (
        GroupInfo,
        IsolationLevel,
        ProducerInfo,
        Record,
        TopicInfo,
        TransactionInfo,
    )


async def topics(broker: ControlledBroker, *, internal: bool = False) -> list[str]:
    """Return the names of all topics, sorted; those that Kafka itself uses only with ``internal``."""
    return await views.topics(broker.node, internal=internal)


async def topic(broker: ControlledBroker, *, name: str) -> TopicInfo:
    """Return a topic. Raises NotFoundError."""
    return await views.topic(broker.node, name)


async def records(
    broker: ControlledBroker,
    *,
    topic: str,
    isolation: IsolationLevel = "read_uncommitted",
    partition: int | None = None,
    from_offset: int = 0,
    limit: int | None = None,
) -> list[Record]:
    """Return a topic's records by partition and offset. Raises NotFoundError, InvalidArgumentError."""
    return await read_records(
        broker.node, topic, isolation=isolation, partition=partition, from_offset=from_offset, limit=limit
    )


async def groups(broker: ControlledBroker) -> list[str]:
    """Return the ids of all groups but share groups, sorted."""
    return await views.groups(broker.node)


async def group(
    broker: ControlledBroker, *, group_id: str, isolation: IsolationLevel = "read_uncommitted"
) -> GroupInfo:
    """Return a group; its lag is counted as a consumer of that isolation level does. Raises NotFoundError."""
    return await views.group(broker.node, group_id, isolation=isolation)


async def transactions(broker: ControlledBroker) -> list[TransactionInfo]:
    """Return all transactional ids with their last transaction, by id."""
    return await views.transactions(broker.node)


async def transaction(broker: ControlledBroker, *, transactional_id: str) -> TransactionInfo:
    """Return a transactional id. Raises NotFoundError."""
    return await views.transaction(broker.node, transactional_id)


async def producers(
    broker: ControlledBroker, *, topic: str | None = None, partition: int | None = None
) -> list[ProducerInfo]:
    """Return the producers that the partitions know, by topic, partition and producer id. Raises NotFoundError."""
    return await views.producers(broker.node, topic=topic, partition=partition)
