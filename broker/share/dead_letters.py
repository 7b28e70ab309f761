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
from oncelog.broker.metadata.topics import UNSET, create
from oncelog.broker.scheduling.slices import Slices
from oncelog.broker.seams.clock import real_time
from oncelog.wire.batch import CONTROL_BIT, HEADER_SIZE, LOG_OVERHEAD, read_header
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.errors import DecodeError, KafkaError
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig
from oncelog.wire.records import iterate_records
from oncelog.wire.steps import finish

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncelog.broker.cluster.cluster import Cluster, LeaderPartition
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.config.topic_config import TopicConfig
    from oncelog.broker.metadata.store import MetadataStore
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.share.partition import SharePartition
    from oncelog.broker.share.settings import ShareGroupSettings
    from oncelog.broker.share.window.window import DeadLetters
    from oncelog.coordinator.timer_event import TimerEvent
    from oncelog.wire.records import Record

REJECTED = b"Offset rejected by client."
TOO_MANY_DELIVERIES = b"Offset delivery count exceeded the threshold."
GROUP_ENABLE = "errors.deadletterqueue.group.enable"
COPY_BYTES_MAX = 1024 * 1024
"""Bytes of the source's log that are read at once for copies."""
DECOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of a compressed batch whose records are copied, unpacked, as far as the queue's ``max.message.bytes`` does not
say less; records of a larger one get headers only."""
ATTEMPTS_MAX = 5
BACKOFF_S, BACKOFF_MAX_S = 1.0, 30.0

Headers = list[tuple[bytes, bytes]]

_log = get_logger(__name__)


class _NoQueueError(Exception):
    """The group has no usable queue; the message says why, in Kafka's words."""


class DeadLetterWriter:
    """Writes for one group, with its settings as they are now."""

    def __init__(
        self,
        metadata: MetadataStore,
        config: DynamicBrokerConfig,
        cluster: Cluster,
        clock: Clock,
        settings: ShareGroupSettings,
        timer_event: TimerEvent,
    ) -> None:
        self._metadata = metadata
        self._config = config
        self._cluster = cluster
        self._clock = clock
        self._settings = settings
        self._timer_event = timer_event

    async def write(self, source: SharePartition, letters: Sequence[DeadLetters]) -> None:
        """Write a record for each offset. Those that cannot be written are logged, each range with the reason."""
        try:
            limit = self._checked_queue(source.group_id).max_message_bytes
        except (_NoQueueError, KafkaError) as error:
            for first, last, _, _ in letters:
                self._note_lost(source, first, last, last - first + 1, str(error))
            return
        slices = Slices()
        for first, last, batch in self._batches(source, letters, limit):
            count = read_header(batch).record_count
            try:
                await self._append(source, batch)
            except (_NoQueueError, KafkaError) as error:
                self._note_lost(source, first, last, count, str(error))
            else:
                self._note("dead letters written", source, count, queue=self._settings.dead_letter_topic)
            if slices.is_over():
                await slices.pause()

    def _note_lost(self, source: SharePartition, first: int, last: int, count: int, reason: str) -> None:
        _log.error(
            "records archived without a dead letter",
            group=source.group_id,
            topic=source.topic,
            partition=source.partition,
            first_offset=first,
            last_offset=last,
            reason=reason,
        )
        self._note("archived without a dead letter", source, count, reason=reason)

    def _note(self, what: str, source: SharePartition, count: int, **about: str) -> None:
        group, topic, partition = source.group_id, source.topic, source.partition
        self._timer_event(what, group=group, topic=topic, partition=partition, count=count, **about)

    # -- the queue

    def _checked_queue(self, group_id: str) -> TopicConfig:
        """Return the queue's configuration. Create the queue if need be (``validateDlqTopic``).

        Raises _NoQueueError, KafkaError.
        """
        topic, config = self._settings.dead_letter_topic, self._config.current
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
            self._create(topic)
        found = effective_topic_config(self._metadata.image, config, topic)
        if not found.errors_deadletterqueue_group_enable:
            raise _NoQueueError(
                f"DLQ is not enabled on configured DLQ topic for share group: {group_id}, topic: {topic}."
            )
        return found

    def _create(self, topic: str) -> None:
        configs = {GROUP_ENABLE: "true", "message.timestamp.type": "CreateTime"}
        rows = [CreatableTopicConfig(key, value) for key, value in configs.items()]
        [row] = finish(create(self._metadata, self._config, [CreatableTopic(topic, UNSET, UNSET, [], rows)]))
        if row.error_code:
            raise _NoQueueError(f"DLQ topic {topic} could not be created: {row.error_message}")
        _log.info("created a dead-letter queue", topic=topic)

    def _queue_partition(self, source_partition: int) -> LeaderPartition:
        """Return the partition of the queue for a partition of the source. Raises KafkaError, _NoQueueError."""
        topic = self._metadata.image.topics.get(self._settings.dead_letter_topic)
        if topic is None:
            raise _NoQueueError(f"DLQ topic {self._settings.dead_letter_topic} was deleted.")
        return self._cluster.leader_partition(topic.name, source_partition % len(topic.partitions))

    async def _append(self, source: SharePartition, batch: memoryview) -> None:
        """Append a batch as a Produce with acks=all. Raises KafkaError, after retries, and _NoQueueError."""
        for attempt in range(ATTEMPTS_MAX):
            try:
                leader = self._queue_partition(source.partition)
                result = leader.log.append(
                    memoryview(bytearray(batch)), leader_epoch=leader.leader_epoch, origin=AppendOrigin.CLIENT
                )
                if result.must_flush:
                    await leader.log.flush(result.last_offset + 1)
            except KafkaError as error:
                if attempt == ATTEMPTS_MAX - 1 or not error.code.retriable:
                    raise
                await real_time.sleep(min(BACKOFF_S * 2**attempt, BACKOFF_MAX_S))
            else:
                return

    # -- records

    def _batches(
        self, source: SharePartition, letters: Sequence[DeadLetters], limit: int
    ) -> Iterator[tuple[int, int, memoryview]]:
        """Yield batches of at most ``limit`` bytes, each with its first and last offset in the source."""
        builder, first, last = BatchBuilder(), -1, -1
        now_ms = self._clock.now_ms()
        for offset, headers, original in self._records(source, letters, limit):
            key, value = (original.key, original.value) if original is not None else (None, None)
            size = _size(key, value, headers)
            if HEADER_SIZE + size > limit:
                key = value = None  # too large for the queue
                size = _size(key, value, headers)
            if builder.record_count and builder.size + size > limit:
                yield first, last, memoryview(builder.build())
                builder = BatchBuilder()
            if not builder.record_count:
                first = offset
            builder.append(now_ms, key, value, headers)
            last = offset
        if builder.record_count:
            yield first, last, memoryview(builder.build())

    def _records(
        self, source: SharePartition, letters: Sequence[DeadLetters], limit: int
    ) -> Iterator[tuple[int, Headers, Record | None]]:
        for first, last, delivery_count, is_rejected in letters:
            originals: dict[int, Record] = {}
            read_up_to = first
            for offset in range(first, last + 1):
                if self._settings.copies_dead_letters and offset >= read_up_to:
                    originals, read_up_to = _originals(source, offset, last, limit)
                headers = [
                    (b"__dlq.errors.topic", source.topic.encode()),
                    (b"__dlq.errors.partition", b"%d" % source.partition),
                    (b"__dlq.errors.offset", b"%d" % offset),
                    (b"__dlq.errors.group", source.group_id.encode()),
                    (b"__dlq.errors.delivery.count", b"%d" % delivery_count),
                    (b"__dlq.errors.message", REJECTED if is_rejected else TOO_MANY_DELIVERIES),
                ]
                yield offset, headers, originals.get(offset)


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the bytes of a record; its offset may take a few more."""
    builder = BatchBuilder()
    builder.append(0, key, value, headers)
    return builder.size - HEADER_SIZE


def _originals(source: SharePartition, offset: int, last: int, limit: int) -> tuple[dict[int, Record], int]:
    """Return the source's records from an offset to the last one, as far as one read reaches, and the next offset.

    Those of a compressed batch that unpacks to more than ``limit`` bytes are left out (``decompressBounded``).
    """
    log = source.leader.log
    try:
        records = log.read(offset, COPY_BYTES_MAX, minimum_one=True, up_to=log.high_watermark).records
        data = records if isinstance(records, bytes) else records.read()
    except (KafkaError, OSError) as error:
        _log.warning("dead letters without a copy", group=source.group_id, offset=offset, error=str(error))
        return {}, last + 1
    if not isinstance(records, bytes):
        records.release()
    found: dict[int, Record] = {}
    max_size = min(limit, DECOMPRESSED_BYTES_MAX)
    position, end = 0, last + 1
    while position + HEADER_SIZE <= len(data):
        batch = memoryview(data)[position:]
        header = read_header(batch)
        size = header.batch_length + LOG_OVERHEAD
        if size > len(batch) or header.base_offset > last:
            break
        end = header.base_offset + header.last_offset_delta + 1
        if not header.attributes & CONTROL_BIT:
            try:
                records_in = iterate_records(
                    batch[:size], header, max_size=max_size if header.codec else size
                )
                found.update((one.offset, one) for one in records_in if offset <= one.offset <= last)
            except DecodeError as error:
                _log.warning("dead letters without a copy", group=source.group_id, error=str(error))
        position += size
    return found, max(end, offset + 1)
