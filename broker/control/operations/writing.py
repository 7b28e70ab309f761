"""Operations: write records, topics, offsets and configurations without a client.

They go through the handlers of the requests that a client would send, but past the journal and the faults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from oncelog.broker.control import conversions, views
from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError
from oncelog.broker.control.names import not_found
from oncelog.broker.control.new_records import NewRecord, assign_partitions, checked_record
from oncelog.broker.control.new_topics import similar_keys
from oncelog.broker.control.options import TopicOptions, config_texts
from oncelog.broker.control.records import partitions_of, topic_of
from oncelog.broker.control.share_types import no_committed_offsets
from oncelog.broker.control.types import Record
from oncelog.broker.metadata.topics import UNSET
from oncelog.broker.requests.authorization import Authorization
from oncelog.broker.requests.request import RequestContext, wait_for_response
from oncelog.broker.scheduling.slices import Slices
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.steps import finish
from oncelog.wire.topic_names import OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from oncelog.broker.control.controlled_broker import ControlledBroker
    from oncelog.broker.control.types import Offsets, TopicInfo
    from oncelog.broker.node.node import Node
    from oncelog.wire.schema import Message

BATCH_BYTES: Final = 256 * 1024
"""A batch is written as soon as it has so many bytes, or half as many as the topic allows."""
CLIENT_ID: Final = "oncelog"
PRODUCE_VERSION, CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION = 12, 7, 6
DELETE_RECORDS_VERSION, OFFSET_COMMIT_VERSION, ALTER_CONFIGS_VERSION = 2, 9, 1


class _LocalTransport:
    peer = "oncelog:0"


class _LocalConnection:
    """The connection of a request that came by none."""

    transport = _LocalTransport()
    listener_name = ""
    principal = "User:oncelog"


async def _ask(node: Node, api: str, request: Message, version: int) -> Any:
    """Return the handler's response to an internal request, which has all rights. Raises KafkaError."""
    from importlib import import_module

    context = RequestContext(
        cast("Any", None), version, 0, CLIENT_ID, cast("Any", _LocalConnection()), request
    )
    handle = import_module(f"oncelog.broker.handlers.{api}").handle
    services = node.services._replace(authorization=Authorization())
    return await wait_for_response(handle(services, request, context))


# -- records


async def produce(broker: ControlledBroker, *, topic: str, records: Sequence[object]) -> list[Record]:
    """Write records, each given as its value, as (key, value), or as a dictionary; return them with their offsets.

    A topic that does not exist is created if the broker creates topics on demand. Raises InvalidArgumentError and
    NotFoundError before anything is written, KafkaError for a record that the broker refuses.
    """
    node = broker.node
    await node.logs.recovered()
    checked = [checked_record(one) for one in records]
    _create_on_demand(node, topic)
    numbers = partitions_of(node, topic, None)
    ends = [node.cluster.leader_partition(topic, number).log.log_end_offset for number in numbers]
    partitions = assign_partitions(topic, checked, ends)
    written: list[Record | None] = [None] * len(checked)
    slices = Slices()
    for batch in _batches(node, topic, checked, partitions):
        try:
            for index, record in await _append(node, topic, partitions[batch[0]], checked, batch):
                written[index] = record
        except KafkaError as error:
            count = sum(one is not None for one in written)
            if len(written) > 1:
                text = f"{error.message or 'refused'} ({count} of {len(written)} records were written)"
                raise KafkaError(error.code, text) from error
            raise
        if slices.is_over():
            await slices.pause()
    return [one for one in written if one is not None]


def _create_on_demand(node: Node, topic: str) -> None:
    if topic in node.metadata.image.topics:
        return
    if not node.config.current.auto_create_topics_enable:
        error = not_found("topic", topic, node.metadata.image.topics)
        raise NotFoundError(f"{error}; create_topic() creates it, and so does auto.create.topics.enable=true")
    failed = finish(node.services.auto_topics.create([topic]))[topic]
    if failed is not None:
        raise failed


def _batches(node: Node, topic: str, records: list[NewRecord], partitions: list[int]) -> list[list[int]]:
    """Return the indexes of the records of each batch, in the order of their first records."""
    limit = min(BATCH_BYTES, node.topic_config(topic).max_message_bytes // 2)
    batches: list[list[int]] = []
    last: dict[int, tuple[list[int], int]] = {}
    for index, (record, partition) in enumerate(zip(records, partitions, strict=True)):
        size = 50 + len(record.value or b"") + len(record.key or b"")
        size += sum(20 + len(name) + len(value or b"") for name, value in record.headers)
        batch, before = last.get(partition, ([], 0))
        if not batch or before + size > limit:
            batch, before = [], 0
            batches.append(batch)
        batch.append(index)
        last[partition] = (batch, before + size)
    return batches


async def _append(
    node: Node, topic: str, partition: int, records: list[NewRecord], indexes: list[int]
) -> list[tuple[int, Record]]:
    """Write one batch; return its records, each with its index. Raises KafkaError."""
    from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    now_ms = node.clock.now_ms()
    builder = BatchBuilder()
    for index in indexes:
        record = records[index]
        timestamp = now_ms if record.timestamp is None else record.timestamp
        builder.append(timestamp, record.key, record.value, record.headers)
    rows = [
        TopicProduceData(topic, partition_data=[PartitionProduceData(partition, memoryview(builder.build()))])
    ]
    response = await _ask(node, "produce", ProduceRequest(None, -1, 30_000, rows), PRODUCE_VERSION)
    node.dispatcher.complete_satisfied_fetches()
    row = response.responses[0].partition_responses[0]
    if row.error_code:
        reasons = "; ".join(one.batch_index_error_message or "" for one in row.record_errors)
        conversions.check(row.error_code, reasons or row.error_message)
    leader_epoch = node.cluster.leader_partition(topic, partition).leader_epoch
    return [
        (index, conversions.written_record(topic, records[index], row, place, now_ms, leader_epoch))
        for place, index in enumerate(indexes)
    ]


async def delete_records(
    broker: ControlledBroker, *, topic: str, before: dict[int, int] | None = None
) -> dict[int, int]:
    """Delete the records below an offset, for each partition in ``before``; without it, all records of the topic.

    Returns the log start offsets. Raises NotFoundError before anything is deleted, KafkaError.
    """
    from oncelog.wire.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    node = broker.node
    await node.logs.recovered()
    if before is None:
        before = dict.fromkeys(partitions_of(node, topic, None), -1)  # the high watermark
    else:
        for partition, offset in before.items():
            partitions_of(node, topic, partition)
            if offset < 0:
                raise InvalidArgumentError(f"before {{{partition}: {offset}}}: expected an offset from 0 on")
    rows = [DeleteRecordsPartition(partition, offset) for partition, offset in before.items()]
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, rows)], 30_000)
    response = await _ask(node, "delete_records", request, DELETE_RECORDS_VERSION)
    result = {}
    for row in response.topics[0].partitions:
        conversions.check(row.error_code, f"records of {topic}-{row.partition_index} were not deleted")
        result[row.partition_index] = row.low_watermark
    return result


# -- topics


async def create_topic(
    broker: ControlledBroker,
    *,
    name: str,
    partitions: int | None = None,
    config: Mapping[str, object] | None = None,
) -> TopicInfo:
    """Create a topic; without ``partitions``, with ``num.partitions`` of the broker. Raises KafkaError."""
    from oncelog.wire.messages.create_topics import CreateTopicsRequest

    options = TopicOptions(UNSET if partitions is None else partitions, config_texts(config or {}))
    request = CreateTopicsRequest([options.creatable(name)], 30_000)
    [row] = (await _ask(broker.node, "create_topics", request, CREATE_TOPICS_VERSION)).topics
    conversions.check(row.error_code, (row.error_message or "") + similar_keys(options.config))
    return await views.topic(broker.node, name=name)


async def delete_topic(broker: ControlledBroker, *, name: str) -> None:
    """Delete a topic. Raises NotFoundError, KafkaError."""
    from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    topic_of(broker.node, name)
    request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=30_000)
    [row] = (await _ask(broker.node, "delete_topics", request, DELETE_TOPICS_VERSION)).responses
    conversions.check(row.error_code, row.error_message)


# -- offsets


async def commit_offsets(broker: ControlledBroker, *, group_id: str, offsets: Offsets) -> None:
    """Commit offsets for a group that has no members, as a client without a group does. A group that does not exist is
    created.

    Raises NotFoundError before anything is committed; KafkaError: UNKNOWN_MEMBER_ID if the group has members,
    GROUP_ID_NOT_FOUND if it is a share group.
    """
    node = broker.node
    if not group_id:
        raise InvalidArgumentError("the group id is empty")
    for topic, partitions in offsets.items():
        if not isinstance(partitions, Mapping):
            raise InvalidArgumentError(f"offsets={offsets!r}: expected {{topic: {{partition: offset}}}}")
        for partition, offset in partitions.items():
            partitions_of(node, topic, partition)
            if not isinstance(offset, int) or offset < 0:
                raise InvalidArgumentError(f"{topic}-{partition}: {offset!r}: expected an offset from 0 on")
    node.services.auto_topics.ensure(OFFSETS_TOPIC)
    await views.groups(broker.node)  # they are loaded then
    response = await _ask(
        node, "offset_commit", conversions.offset_commit(group_id, offsets), OFFSET_COMMIT_VERSION
    )
    for topic in response.topics:
        for row in topic.partitions:
            message = None
            if row.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                message = f"group {group_id} has members: only they can commit its offsets"
            elif row.error_code and group_id in await views.share_group_shards(node):
                message = no_committed_offsets(group_id)
            conversions.check(row.error_code, message)


# -- configurations


async def configure_group(broker: ControlledBroker, *, group_id: str, config: Mapping[str, object]) -> None:
    """Set Kafka's configuration keys of a group, which need not exist yet. Raises InvalidArgumentError for a value that
    Kafka refuses; nothing is set then.
    """
    from oncelog.broker.config.group_config import GroupConfig
    from oncelog.broker.metadata.image import GROUP

    if not group_id:
        raise InvalidArgumentError("the group id is empty")
    await _configure(broker.node, GROUP, group_id, config, GroupConfig.KEYS, f"group {group_id}")


async def configure_client_metrics(
    broker: ControlledBroker, *, name: str, config: Mapping[str, object]
) -> None:
    """Set Kafka's configuration keys of a subscription to metrics of clients, which need not exist yet: ``metrics``,
    ``interval.ms``, ``match``. Raises InvalidArgumentError for a value that Kafka refuses, and where clients may send
    nothing; nothing is set then.
    """
    from oncelog.broker.config.client_metrics_config import ClientMetricsConfig
    from oncelog.broker.control.operations.client_metrics import nodes_with_client_metrics
    from oncelog.broker.metadata.image import CLIENT_METRICS

    if not name:
        raise InvalidArgumentError("the name of the subscription is empty")
    [node] = nodes_with_client_metrics(broker)
    await _configure(node, CLIENT_METRICS, name, config, ClientMetricsConfig.KEYS, f"subscription {name}")


async def _configure(
    node: Node,
    resource_type: int,
    name: str,
    config: Mapping[str, object],
    known: Collection[str],
    what: str,
) -> None:
    """Set configuration keys of a resource. Raises InvalidArgumentError, about ``what``."""
    request = conversions.config_change(resource_type, name, config)
    [row] = (await _ask(node, "incremental_alter_configs", request, ALTER_CONFIGS_VERSION)).responses
    conversions.check_config_change(row, config, known, what)
