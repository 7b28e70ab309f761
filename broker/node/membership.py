"""`Membership`: how a node belongs to its cluster. `Alone`: that of an only node, which is its own controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from oncelog.broker.metadata.internal_topics import CreatesAtOnce
from oncelog.broker.metadata.topics import bump_leader_epoch

if TYPE_CHECKING:
    import trio

    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.handlers.services import Forward
    from oncelog.broker.log.manager import LogManager
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.metadata.internal_topics import TopicCreator
    from oncelog.broker.metadata.store import MetadataStore
    from oncelog.broker.network.network import Delivery, Links
    from oncelog.broker.node.node import Node
    from oncelog.broker.scheduling.background_work import BackgroundWork
    from oncelog.wire.schema import Message


class Membership(Protocol):
    """What a node asks of its controller, or does itself where it has none."""

    @property
    def links(self) -> Links | None:
        """The links to the other nodes; None if there are none."""

    def take_producer_ids(self) -> int:
        """Return the first id of the next block of producer ids, which no later start returns again.

        Raises KafkaError: UNKNOWN_SERVER_ERROR if no ids are left, COORDINATOR_LOAD_IN_PROGRESS until the controller
        has given one, KAFKA_STORAGE_ERROR.
        """

    def topic_creator(self, config: DynamicBrokerConfig) -> TopicCreator:
        """Return what creates topics for requests that use them first."""

    def before_load(self, logs: LogManager) -> None:
        """The node has its metadata, and not yet its partitions."""

    def on_truncated(self, cut: PartitionLog) -> None:
        """The start had to cut this log; no client reads it yet."""

    @property
    def forward(self) -> Forward | None:
        """Has the controller handle a request; None if the node is its own controller."""

    async def run(self, node: Node, task_status: trio.TaskStatus[None]) -> None:
        """Do what a member does as long as its node serves; the node is ready when it has started."""

    async def receive(self, delivery: Delivery) -> Message:
        """Handle a request that a link has brought, or a test."""

    async def leave(self) -> None:
        """The node stops cleanly: hand over what it leads, while it still serves."""


class Alone:
    """The membership of a node that is its own controller, with the ``metadata`` of both."""

    links = None
    forward = None

    def __init__(self, metadata: MetadataStore, background: BackgroundWork) -> None:
        self._metadata = metadata
        self._background = background

    def take_producer_ids(self) -> int:
        """See `Membership`."""
        return self._metadata.take_producer_ids()

    def topic_creator(self, config: DynamicBrokerConfig) -> TopicCreator:
        """See `Membership`."""
        return CreatesAtOnce(self._metadata, config)

    def before_load(self, logs: LogManager) -> None:
        """After an unclean stop begin a new leader epoch in every partition, so that consumers notice if they have read
        beyond its end (KIP-320).

        Any log may have lost its end then. A log that ends between two batches, or has lost all its files, does not
        show it. Kafka raises the epochs at every restart. It is durable before a client reads: a power loss must not
        undo an epoch, or it would be given to other records.
        """
        if logs.was_clean:
            return
        for topic in self._metadata.image.topics.values():
            self._metadata.commit(bump_leader_epoch(topic, range(len(topic.partitions))))
        self._metadata.flush()

    def on_truncated(self, cut: PartitionLog) -> None:
        """Begin a new leader epoch, durably, before a client reads."""
        topic = self._metadata.image.topics[cut.topic]
        self._metadata.commit(bump_leader_epoch(topic, [cut.partition]), durable=True)

    async def receive(self, delivery: Delivery) -> Message:
        """Nobody has a link to the only node."""
        raise NotImplementedError

    async def leave(self) -> None:
        """There is nobody to hand anything over to."""

    async def run(self, node: Node, task_status: trio.TaskStatus[None]) -> None:
        """Flush the metadata log as often as the logs' recovery points are written."""
        interval_s = node.config.current.log_flush_offset_checkpoint_interval_ms / 1000
        task_status.started()
        await self._metadata.flush_regularly(self._background, interval_s)
