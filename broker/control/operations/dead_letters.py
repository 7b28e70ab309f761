"""Operations: the dead-letter queues of share groups (KIP-1191)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.config.group_config import DLQ_TOPIC_NAME
from oncelog.broker.control.operations.waiting import wait_until_wanted
from oncelog.broker.control.records import RecordReader
from oncelog.broker.control.share_types import dead_letters_of, no_dead_letter_queue, no_queue_topic
from oncelog.broker.control.wanted import wanted_dead_letters
from oncelog.broker.metadata.features import are_dead_letter_queues_enabled
from oncelog.broker.metadata.image import GROUP, TOPIC
from oncelog.broker.share.dead_letters import GROUP_ENABLE

if TYPE_CHECKING:
    from oncelog.broker.control.controlled_broker import ControlledBroker
    from oncelog.broker.control.share_types import DeadLetter
    from oncelog.broker.node.node import Node

ARCHIVED_WITHOUT = "records archived without a dead letter"
"""The line of the broker's log that says why a record is in no queue."""


async def dead_letters(broker: ControlledBroker, *, group_id: str) -> list[DeadLetter]:
    """Return a share group's records in its dead-letter queue, by the queue's partition and offset.

    Raises NotFoundError if the group has no queue, or the queue does not exist.
    """
    return await _QueueReader(group_id).read(broker.node)


async def wait_for_dead_letters(
    broker: ControlledBroker, *, group_id: str, count: int = 1, timeout: float = 10
) -> list[DeadLetter]:
    """Wait until a share group has at least so many records in its dead-letter queue; return them all.

    Neither the group nor the queue need exist yet. Raises WaitTimeoutError, InvalidArgumentError.
    """
    reader = _QueueReader(group_id)
    return await wait_until_wanted(
        broker,
        wanted_dead_letters(group_id, count, lambda: _hints(broker, group_id)),
        lambda: reader.read(broker.node),
        lambda node: RecordReader(_queue_of(node, group_id)).logs(node),
        timeout,
    )


class _QueueReader:
    """Reads a group's queue again and again, and each of its records once."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._records: RecordReader | None = None
        self._found: list[DeadLetter] = []

    async def read(self, node: Node) -> list[DeadLetter]:
        """Return all dead letters of the group. Raises NotFoundError, KafkaError."""
        queue = _queue_of(node, self._group_id)
        if self._records is None or self._records.topic != queue:
            self._records, self._found = RecordReader(queue), []
        topic_id = self._records.topic_id
        records = await self._records.read(node)
        if self._records.topic_id != topic_id:  # the topic was created anew
            self._found = []
        self._found += dead_letters_of(records, self._group_id)
        return sorted(self._found, key=lambda one: (one.queue_partition, one.queue_offset))


def _queue_of(node: Node, group_id: str) -> str:
    """Return the topic that is a group's queue. Raises NotFoundError."""
    queues = {
        name: queue
        for (kind, name), configs in node.metadata.image.configs.items()
        if kind == GROUP and (queue := configs.get(DLQ_TOPIC_NAME))
    }
    if group_id not in queues:
        raise no_dead_letter_queue(group_id, queues)
    queue = queues[group_id]
    image = node.metadata.image
    if queue not in image.topics:
        enabled = [
            name
            for (kind, name), configs in image.configs.items()
            if kind == TOPIC and GROUP_ENABLE in configs
        ]
        raise no_queue_topic(group_id, queue, enabled)
    return queue


def _hints(broker: ControlledBroker, group_id: str) -> str:
    """Return why there may be fewer than expected."""
    text = ""
    if not are_dead_letter_queues_enabled(broker.node.metadata.image):
        text = "; with share.version below 2 nothing is written"
    lines = [line for line in broker.lines.latest() if ARCHIVED_WITHOUT in line and group_id in line]
    return f"{text}; the broker's log: {lines[-1].partition(ARCHIVED_WITHOUT)[2].strip()}" if lines else text
