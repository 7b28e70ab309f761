"""`DeadLetterWriter`: writes records that no member of a share group could process to the group's dead-letter queue.

The queue is a topic that the group's configuration names (KIP-1191). One record of it stands for one offset; its
headers name the source and the reason. The broker writes as itself: no rights are asked.
Source: ``ShareGroupDLQStateManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.log.producers.state import AppendOrigin
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.configs import effective_topic_config
from oncelog.broker.metadata.image import NO_LEADER
from oncelog.broker.metadata.topics import UNSET
from oncelog.broker.scheduling.slices import Slices, in_slices
from oncelog.broker.seams.clock import real_time
from oncelog.broker.share.letters import RECORD_OVERHEAD_MAX, LetterTemplate, batch_size, originals_in
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig
from oncelog.wire.steps import finish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.config.topic_config import TopicConfig
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.metadata.internal_topics import TopicCreator
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.share.letters import Originals
    from oncelog.broker.share.partition import SharePartition
    from oncelog.broker.share.settings import ShareGroupSettings
    from oncelog.broker.share.window.window import DeadLetterRange
    from oncelog.coordinator.timer_event import TimerEvent

GROUP_ENABLE = "errors.deadletterqueue.group.enable"
RECORDS_AT_ONCE = 500
"""Records that are encoded before the slice of time is looked at."""
BATCH_BYTES_MAX = 128 * 1024
"""Bytes of a batch for the queue, unless one record takes more: its append holds the loop for about a millisecond."""
COPY_BYTES_MAX = 1024 * 1024
"""Bytes of the source's log that are read at once for copies."""
ATTEMPTS_MAX = 5
BACKOFF_S, BACKOFF_MAX_S = 1.0, 30.0
ACKS_ALL = -1

_log = get_logger(__name__)


class _NoQueueError(Exception):
    """The group has no usable queue; the message says why, in Kafka's words."""


class DeadLetterWriter:
    """Writes dead letters of any share group of a node."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        config: DynamicBrokerConfig,
        cluster: Cluster,
        creator: TopicCreator,
        clock: Clock,
        files: FileSystem,
        timer_event: TimerEvent,
    ) -> None:
        self._metadata = metadata
        self._config = config
        self._cluster = cluster
        self._creator = creator
        self._clock = clock
        self._files = files
        self._timer_event = timer_event

    async def write(
        self, source: SharePartition, settings: ShareGroupSettings, ranges: Sequence[DeadLetterRange]
    ) -> None:
        """Write a record for each offset. Those that cannot be written are logged, each range with the reason."""
        try:
            limit = (await self._checked_queue(source.group_id, settings.dead_letter_topic)).max_message_bytes
        except (_NoQueueError, KafkaError) as error:
            self.note_lost(source, [(first, last) for first, last, _, _ in ranges], str(error))
            return
        batch = _Batch(self, source, settings, self._clock.now_ms(), limit)
        for records in ranges:
            if settings.copies_dead_letters:
                await self._copy(batch, records)
            else:
                await batch.add_range(records)
        await batch.append()

    def note_written(self, source: SharePartition, queue: str, count: int) -> None:
        """Report that dead letters were written, as an occurrence for tests that move time."""
        self._report("dead letters written", source, count, queue=queue)

    def note_lost(self, source: SharePartition, ranges: Sequence[tuple[int, int]], reason: str) -> None:
        """Log records that are archived without a dead letter: first and last offset of each range."""
        for first, last in ranges:
            _log.error(
                "records archived without a dead letter",
                group=source.group_id,
                topic=source.topic,
                partition=source.partition,
                first_offset=first,
                last_offset=last,
                reason=reason,
            )
            self._report("archived without a dead letter", source, last - first + 1, reason=reason)

    def _report(self, what: str, source: SharePartition, count: int, **about: str) -> None:
        group, topic, partition = source.group_id, source.topic, source.partition
        self._timer_event(what, group=group, topic=topic, partition=partition, count=count, **about)

    async def _copy(self, batch: _Batch, records: DeadLetterRange) -> None:
        """Write records with the key and value of the original, as far as it can be read and the queue has room."""
        template, offset = batch.template(records), records.first
        while offset <= records.last:
            originals, end = await self._originals(batch, offset, records.last)
            for one in range(offset, end):
                key, value = originals.get(one, (None, None))
                fields = template.letter(one, key, value)
                if batch_size(fields) > batch.limit:
                    fields = template.letter(one)
                await batch.add(one, [fields])
            offset = end

    async def _originals(self, batch: _Batch, offset: int, last: int) -> tuple[Originals, int]:
        """Return records of the source from an offset on, and the offset after those that one read reaches."""
        source = batch.source
        log = source.leader.log
        try:
            found = log.read(offset, COPY_BYTES_MAX, minimum_one=True, up_to=log.high_watermark).records
            if isinstance(found, bytes):  # there is nothing to read
                return {}, last + 1
            try:
                data = found.file.pread_cached(found.size, found.position)
                if data is None:
                    data = await self._files.offload(found.read)
            finally:
                found.release()
        except (KafkaError, OSError) as error:
            _log.warning(
                "dead letters have no copy of their records",
                group=source.group_id,
                topic=source.topic,
                partition=source.partition,
                offset=offset,
                error=str(error),
            )
            return {}, last + 1
        originals, end = await in_slices(originals_in(data, offset, last, batch.limit))
        return originals, min(max(end, offset + 1), last + 1)

    # -- the queue

    async def _checked_queue(self, group_id: str, topic: str) -> TopicConfig:
        """Return the queue's configuration. Create the queue if need be (``validateDlqTopic``).

        Raises _NoQueueError, KafkaError.
        """
        config = self._config.current
        if not topic:
            raise _NoQueueError(f"Configured DLQ topic name in share group: {group_id} is empty.")
        prefix = config.errors_deadletterqueue_topic_name_prefix
        if not topic.startswith(prefix):
            raise _NoQueueError(
                "Configured DLQ topic name does not comply with the DLQ topic prefix in share group: "
                f"{group_id}, topic: {topic}, prefix: {prefix}."
            )
        if topic not in self._metadata.image.topics:
            if not config.errors_deadletterqueue_auto_create_topics_enable:
                raise _NoQueueError(
                    "DLQ topic does not exist and auto create is disabled on cluster for share group: "
                    f"{group_id}, topic: {topic}."
                )
            await self._create(topic)
        found = effective_topic_config(self._metadata.image, config, topic)
        if not found.errors_deadletterqueue_group_enable:
            raise _NoQueueError(
                f"DLQ is not enabled on configured DLQ topic for share group: {group_id}, topic: {topic}."
            )
        return found

    async def _create(self, topic: str) -> None:
        """Create the queue, and wait until it is there. Raises _NoQueueError."""
        configs = {GROUP_ENABLE: "true", "message.timestamp.type": "CreateTime"}
        rows = [CreatableTopicConfig(key, value) for key, value in configs.items()]
        for row in finish(self._creator.create([CreatableTopic(topic, UNSET, UNSET, [], rows)])):
            if row.error_code:
                raise _NoQueueError(f"DLQ topic {topic} could not be created: {row.error_message}")
            _log.info("created a dead-letter queue", topic=topic)
        for attempt in range(ATTEMPTS_MAX):
            if topic in self._metadata.image.topics:
                return
            await real_time.sleep(min(BACKOFF_S * 2**attempt, BACKOFF_MAX_S))
        raise _NoQueueError(f"DLQ topic {topic} was not created in time.")

    async def append(self, source: SharePartition, settings: ShareGroupSettings, batch: bytearray) -> None:
        """Append a batch with acks=all to the queue's partition for a partition of the source, on the node that leads
        it. Raises KafkaError, _NoQueueError.
        """
        cluster, timeout_ms = self._cluster, self._config.current.request_timeout_ms
        topic = self._metadata.image.topics.get(settings.dead_letter_topic)
        if topic is None:
            raise _NoQueueError(f"DLQ topic {settings.dead_letter_topic} was deleted.")
        number = source.partition % len(topic.partitions)
        leader_id = topic.partitions[number].leader
        if cluster.links is not None and leader_id not in (NO_LEADER, cluster.node_id):
            from oncelog.broker.share.remote_partitions import produce

            await produce(cluster.links.to(leader_id), topic, number, batch, timeout_ms)
            return
        leader = cluster.leader_partition(topic.name, number)
        leader.check_isr()
        result = leader.log.append(
            memoryview(batch), leader_epoch=leader.leader_epoch, origin=AppendOrigin.CLIENT
        )
        if result.must_wait:
            await leader.wait_acknowledged(ACKS_ALL, result.last_offset + 1, timeout_ms / 1000)


class _Batch:
    """The records of one call that are still to be appended to the queue, as one batch."""

    def __init__(
        self,
        writer: DeadLetterWriter,
        source: SharePartition,
        settings: ShareGroupSettings,
        now_ms: int,
        limit: int,
    ) -> None:
        self._writer = writer
        self.source = source
        self._settings = settings
        self._now_ms = now_ms
        self.limit = limit
        """Bytes of a batch that the queue takes."""
        self._builder = BatchBuilder()
        self._ranges: list[tuple[int, int]] = []
        """The offsets of the source that the batch stands for: the first and the last of each range."""
        self._slices = Slices()

    def template(self, records: DeadLetterRange) -> LetterTemplate:
        """Return the headers of the dead letters for ``records``."""
        source = self.source
        return LetterTemplate(
            source.topic,
            source.partition,
            source.group_id,
            records.delivery_count,
            is_rejected=records.is_rejected,
        )

    async def add_range(self, records: DeadLetterRange) -> None:
        """Add a record without key and value for each offset."""
        template, offset = self.template(records), records.first
        while offset <= records.last:
            fields = template.letters(offset, min(records.last + 1, offset + RECORDS_AT_ONCE))
            await self.add(offset, fields)
            offset += len(fields)

    async def add(self, offset: int, records: Sequence[bytes]) -> None:
        """Add encoded records of about the same size for the offsets from ``offset`` on; append what is full."""
        size = len(max(records, key=len)) + RECORD_OVERHEAD_MAX
        begin = 0
        while begin < len(records):
            builder = self._builder
            room = (min(self.limit, BATCH_BYTES_MAX) - builder.size) // size
            if room <= 0 and builder.record_count:
                await self.append()
                continue
            some = records[begin : begin + max(1, room)]
            builder.extend(self._now_ms, some)
            self._note_range(offset + begin, offset + begin + len(some) - 1)
            begin += len(some)
        if self._slices.is_over():
            await self._slices.pause()

    def _note_range(self, first: int, last: int) -> None:
        if self._ranges and self._ranges[-1][1] + 1 == first:
            first = self._ranges.pop()[0]
        self._ranges.append((first, last))

    async def append(self) -> None:
        """Append the batch to the queue as a Produce with acks=all, after retries; log what was not written."""
        if not self._builder.record_count:
            return
        batch, count, self._builder = self._builder.build(), self._builder.record_count, BatchBuilder()
        ranges, self._ranges = self._ranges, []
        try:
            for attempt in range(ATTEMPTS_MAX):
                try:
                    await self._writer.append(self.source, self._settings, bytearray(batch))
                    self._writer.note_written(self.source, self._settings.dead_letter_topic, count)
                    return
                except KafkaError as error:
                    if attempt == ATTEMPTS_MAX - 1 or not error.code.retriable:
                        raise
                await real_time.sleep(min(BACKOFF_S * 2**attempt, BACKOFF_MAX_S))
        except (_NoQueueError, KafkaError) as error:
            self._writer.note_lost(self.source, ranges, str(error))
