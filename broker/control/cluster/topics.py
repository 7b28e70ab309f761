"""Operations on a Kafka cluster: topics and their records."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from oncelog.broker.client.errors import to_error_code
from oncelog.broker.client.routes import Controller, LeaderOf, Retry
from oncelog.broker.control.changes import check_timeout
from oncelog.broker.control.cluster.calls import ClusterCalls
from oncelog.broker.control.conversions import check, written_record
from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError, WaitTimeoutError
from oncelog.broker.control.names import check_word, no_partition, not_found
from oncelog.broker.control.new_records import assign_partitions, checked_record
from oncelog.broker.control.options import TopicOptions, config_texts, topic_options
from oncelog.broker.control.records import ISOLATION_LEVELS, records_of_batch
from oncelog.broker.control.types import IsolationLevel, PartitionInfo, Record, TopicInfo
from oncelog.broker.control.wanted import Wanted
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.mortal_files import without_deaths
from oncelog.wire.batch import HEADER_SIZE, read_header
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.create_topics import CreateTopicsRequest
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponseTopic
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TIMEOUT_MS = 30_000
RETRY = Retry(timeout_s=TIMEOUT_MS / 1000)
POLL_S = 0.05
MOVING = frozenset(
    (
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    )
)
"""Errors while a leader or a coordinator has gone, and another one has not come: a wait goes on."""
FETCH_BYTES = 4 * 1024 * 1024
FETCH_VERSION = PRODUCE_VERSION = 12
"""The last versions that name topics."""
DELETE_TOPICS_VERSION = 5
TOPIC_RESOURCE, TOPIC_CONFIG_SOURCE = 2, 1
EARLIEST, LATEST = -2, -1
T = TypeVar("T")


# -- which there are


async def topics(client: ClusterCalls, *, internal: bool = False) -> list[str]:
    """Return the names of all topics, sorted; those that Kafka itself uses only with ``internal``."""
    response = await client.refresh_metadata()
    return sorted(row.name for row in response.topics if row.name and (internal or not row.is_internal))


async def described(client: ClusterCalls, name: str) -> MetadataResponseTopic:
    """Return the topic's metadata. Raises NotFoundError."""
    [row] = (await client.refresh_metadata([name])).topics
    if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise not_found("topic", name, await topics(client))
    check(row.error_code, name)
    return row


async def partitions_of(client: ClusterCalls, topic: str, partition: int | None = None) -> list[int]:
    """Return all partitions of a topic, or the one given. Raises NotFoundError."""
    numbers = sorted(row.partition_index for row in (await described(client, topic)).partitions)
    if partition is None:
        return numbers
    if partition not in numbers:
        raise no_partition(topic, partition, len(numbers))
    return [partition]


async def offset(client: ClusterCalls, topic: str, partition: int, timestamp: int, isolation: int) -> int:
    """Return the offset that ListOffsets has for a timestamp, `EARLIEST` or `LATEST`."""
    rows = [ListOffsetsTopic(topic, [ListOffsetsPartition(partition, -1, timestamp)])]
    request = ListOffsetsRequest(-1, isolation, rows)
    response = await client.call(request, LeaderOf(topic, partition), retry=RETRY)
    [row] = response.topics[0].partitions
    check(row.error_code, f"{topic}-{partition}")
    return row.offset


async def topic(client: ClusterCalls, *, name: str) -> TopicInfo:
    """Return a topic. The end of the log is not known to clients: the high watermark stands for it."""
    found = await described(client, name)
    rows = []
    for row in sorted(found.partitions, key=lambda one: one.partition_index):
        at = name, row.partition_index
        high_watermark = await offset(client, *at, LATEST, 0)
        last_stable_offset = await offset(client, *at, LATEST, 1)
        start = await offset(client, *at, EARLIEST, 0)
        rows.append(
            PartitionInfo(
                row.partition_index,
                start,
                last_stable_offset,
                high_watermark,
                high_watermark,
                row.leader_epoch,
            )
        )
    resource = DescribeConfigsResource(TOPIC_RESOURCE, name, None)
    [result] = (await client.call(DescribeConfigsRequest([resource]), retry=RETRY)).results
    check(result.error_code, result.error_message)
    return TopicInfo(
        name=name,
        topic_id=base64.urlsafe_b64encode(found.topic_id).decode().rstrip("="),
        partitions=tuple(rows),
        config={row.name: row.value for row in result.configs},
        overrides={
            row.name: row.value or "" for row in result.configs if row.config_source == TOPIC_CONFIG_SOURCE
        },
        is_internal=found.is_internal,
    )


# -- made and deleted


async def create_topics(client: ClusterCalls, *, topics: Mapping[str, object] | Iterable[str]) -> None:
    """Create topics, and wait until each partition has a leader. Raises InvalidArgumentError; none is created then."""
    wanted = topic_options(topics)
    rows = [topic.creatable(name) for name, topic in wanted.items()]
    if not rows:
        return
    for validate_only in (True, False):
        request = CreateTopicsRequest(rows, TIMEOUT_MS, validate_only)
        response = await client.call(request, Controller(), retry=RETRY)
        for row in response.topics:
            if row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                raise InvalidArgumentError(
                    f"topic {row.name} exists in the cluster. A test's topics are created before it and deleted "
                    "after it, and no others are touched: delete it, or use another cluster. (Tests with the same "
                    "topics cannot run at the same time.)"
                )
            if row.error_code:
                reason = row.error_message or to_error_code(row.error_code).name
                raise InvalidArgumentError(f"topic {row.name}: {reason}")
    for name, topic in wanted.items():
        await _wait_led(client, name, topic.partitions)


async def create_topic(
    client: ClusterCalls,
    *,
    name: str,
    partitions: int | None = None,
    config: Mapping[str, object] | None = None,
) -> None:
    """Create a topic, and wait until each partition has a leader. Raises KafkaError."""
    options = TopicOptions(-1 if partitions is None else partitions, config_texts(config or {}))
    row = options.creatable(name)
    response = await client.call(CreateTopicsRequest([row], TIMEOUT_MS), Controller(), retry=RETRY)
    check(response.topics[0].error_code, response.topics[0].error_message)
    await _wait_led(client, name, 1)


async def _wait_led(client: ClusterCalls, topic: str, partitions: int) -> None:
    for partition in range(partitions):
        await client.call(MetadataRequest([]), LeaderOf(topic, partition), retry=RETRY)


async def delete_topics(client: ClusterCalls, *, names: Sequence[str]) -> None:
    """Delete those of the topics that exist, and wait until the cluster has forgotten them."""
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)
    await client.call(request, Controller(), version=DELETE_TOPICS_VERSION)
    with real_time.move_on_after(RETRY.timeout_s):
        while any(not row.error_code for row in (await client.refresh_metadata(names)).topics):
            await real_time.sleep(POLL_S)


async def delete_topic(client: ClusterCalls, *, name: str) -> None:
    """Delete a topic. Raises NotFoundError."""
    await described(client, name)
    await delete_topics(client, names=[name])


async def delete_records(
    client: ClusterCalls, *, topic: str, before: dict[int, int] | None = None
) -> dict[int, int]:
    """Delete the records below an offset of each partition in ``before``; without it, all. Returns the log starts."""
    numbers = await partitions_of(client, topic)
    starts = {}
    for partition, end in (dict.fromkeys(numbers, -1) if before is None else before).items():
        rows = [DeleteRecordsTopic(topic, [DeleteRecordsPartition(partition, end)])]
        response = await client.call(
            DeleteRecordsRequest(rows, TIMEOUT_MS), LeaderOf(topic, partition), retry=RETRY
        )
        [row] = response.topics[0].partitions
        check(row.error_code, f"{topic}-{partition}")
        starts[partition] = row.low_watermark
    return starts


# -- records


async def records(
    client: ClusterCalls,
    *,
    topic: str,
    isolation: IsolationLevel = "read_uncommitted",
    partition: int | None = None,
    from_offset: int = 0,
    limit: int | None = None,
) -> list[Record]:
    """Return a topic's records by partition and offset. Raises NotFoundError, InvalidArgumentError."""
    level = int(check_word("isolation", isolation, ISOLATION_LEVELS) == "read_committed")
    found: list[Record] = []
    for number in await partitions_of(client, topic, partition):
        end = await offset(client, topic, number, LATEST, level)
        start = max(from_offset, await offset(client, topic, number, EARLIEST, 0))
        if limit is not None and len(found) >= limit:
            break
        found += await _read(client, topic, number, start, end, level)
    return found[:limit]


async def _read(
    client: ClusterCalls, topic: str, partition: int, start: int, end: int, isolation: int
) -> list[Record]:
    """Return the records that a consumer reads in [start, end). Source: ``CompletedFetch`` of Kafka's consumer."""
    found: list[Record] = []
    position = start
    while position < end:
        row = FetchPartition(partition, fetch_offset=position, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=isolation,
            session_epoch=-1,
            topics=[FetchTopic(topic, partitions=[row])],
        )
        response = await client.call(request, LeaderOf(topic, partition), version=FETCH_VERSION, retry=RETRY)
        check(response.error_code, "Fetch")
        [fetched] = response.responses[0].partitions
        check(fetched.error_code, f"{topic}-{partition}")
        aborting = sorted(
            ((one.first_offset, one.producer_id) for one in fetched.aborted_transactions or ()), reverse=True
        )
        aborted: set[int] = set()
        data: Any = fetched.records or b""
        at, before = 0, position
        while at + HEADER_SIZE <= len(data):
            header = read_header(data, at)
            if at + header.size > len(data):
                break
            while aborting and aborting[-1][0] <= header.last_offset:
                aborted.add(aborting.pop()[1])
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                read = records_of_batch(topic, partition, data, at, header)
                found += (record for record in read if start <= record.offset < end)
            at += header.size
            position = header.next_offset
        if position == before:
            break  # a gap up to the end, as compaction leaves it
    return found


async def wait_for_records(
    client: ClusterCalls,
    *,
    topic: str,
    count: int = 1,
    isolation: IsolationLevel = "read_uncommitted",
    partition: int | None = None,
    timeout: float = 10,
) -> list[Record]:
    """Read until a topic has so many records; return them all. Raises WaitTimeoutError, InvalidArgumentError."""
    wanted: Wanted[list[Record]] = Wanted(
        f"topic {topic} has not got {count} records",
        lambda found: len(found) >= count,
        lambda found: f"it has {len(found)}",
    )
    return await asked(
        lambda: records(client, topic=topic, isolation=isolation, partition=partition), wanted, timeout
    )


async def asked(ask: Callable[[], Awaitable[T]], wanted: Wanted[T], timeout: float) -> T:
    """Ask until the answer is the ``wanted`` state; return it. Raises WaitTimeoutError, InvalidArgumentError."""
    deadline = real_time.monotonic() + check_timeout(timeout)
    while True:
        try:
            found = await ask()
        except NotFoundError as error:
            instead = str(error)
        except KafkaError as error:
            if error.code not in MOVING:
                raise
            instead = str(error)
        except BaseException as error:
            if without_deaths(error) is not None:
                raise
            instead = "the node that was asked has died"
        else:
            if wanted.matches(found):
                return found
            instead = wanted.describe(found)
        if real_time.monotonic() > deadline:
            raise WaitTimeoutError(f"{wanted.failed} in {timeout:g} s: {instead}")
        await real_time.sleep(POLL_S)


async def produce(client: ClusterCalls, *, topic: str, records: Sequence[object]) -> list[Record]:
    """Write records, each in a batch of its own; return them with their offsets. The topic must exist."""
    checked = [checked_record(one) for one in records]
    epochs = {row.partition_index: row.leader_epoch for row in (await described(client, topic)).partitions}
    numbers = sorted(epochs)
    ends = [await offset(client, topic, number, LATEST, 0) for number in numbers]
    written = []
    for record, partition in zip(checked, assign_partitions(topic, checked, ends), strict=True):
        timestamp = client.now_ms if record.timestamp is None else record.timestamp
        builder = BatchBuilder()
        builder.append(timestamp, record.key, record.value, record.headers)
        rows = [
            TopicProduceData(
                topic, partition_data=[PartitionProduceData(partition, memoryview(builder.build()))]
            )
        ]
        request = ProduceRequest(None, -1, TIMEOUT_MS, rows)
        response = await client.call(request, LeaderOf(topic, partition), version=PRODUCE_VERSION)
        [row] = response.responses[0].partition_responses
        message = row.error_message
        if row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS and message is None:
            found = (await described(client, topic)).partitions
            isr = next(sorted(one.isr_nodes) for one in found if one.partition_index == partition)
            message = f"{topic}-{partition} has in sync {isr}: fewer than min.insync.replicas"
        check(row.error_code, message)
        written.append(written_record(topic, record, row, 0, timestamp, epochs[partition]))
    return written
