"""DescribeShareGroupOffsets (API key 90): returns the start offsets of share groups' partitions.

- All partitions with an initialized state if ``topics`` is null. A partition without state has the start offset -1,
  which is no error.
- Version 1 adds the lag (KIP-1226): records from the start offset on that are neither acknowledged nor archived.
- UNSUPPORTED_VERSION for each group while ``share.version`` is 0.

Source: ``KafkaApis.handleDescribeShareGroupOffsetsRequest``, ``GroupCoordinatorService.describeShareGroupOffsets``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.metadata.features import are_share_groups_enabled
from oncelog.broker.metadata.image import NO_LEADER
from oncelog.broker.requests.authorization import DESCRIBE, GROUP_RESOURCE, TOPIC_DENIED, TOPIC_RESOURCE
from oncelog.broker.requests.request import Pending
from oncelog.broker.scheduling.slices import Slices
from oncelog.coordinator.errors import to_client_error
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from oncelog.wire.primitives import wrapped_int64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.requests.request import RequestContext
    from oncelog.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequestGroup

UNINITIALIZED = -1
"""A start offset, a lag or a count that is not known."""


def handle(
    services: Services, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> Pending[DescribeShareGroupOffsetsResponse]:
    return Pending(_describe(services, request, context))


async def _describe(
    services: Services, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    may_describe = services.authorization.predicate(context, DESCRIBE, GROUP_RESOURCE)
    may_describe_topic = services.authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE)
    slices = Slices()
    groups = []
    for row in request.groups:
        group = DescribeShareGroupOffsetsResponseGroup(group_id=row.group_id)
        groups.append(group)
        if slices.is_over():
            await slices.pause()
        if not are_share_groups_enabled(services.metadata.image):
            group.error_code = ErrorCode.UNSUPPORTED_VERSION
        elif not may_describe(row.group_id):
            group.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        else:
            try:
                await _group(services, row, group, may_describe_topic, slices)
            except KafkaError as error:
                told = to_client_error(error)
                group.topics, group.error_code, group.error_message = [], told.code, told.message
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _group(
    services: Services,
    row: DescribeShareGroupOffsetsRequestGroup,
    group: DescribeShareGroupOffsetsResponseGroup,
    may_describe: Callable[[str], bool],
    slices: Slices,
) -> None:
    """Fill the group's row. Raises KafkaError."""
    from oncelog.coordinator.groups.share.offsets import initialized_partitions

    image = services.metadata.image
    denied, unknown = [], []
    if row.topics is None:
        shard = services.groups.shard(row.group_id, empty_allowed=True)
        for topic_id, state in initialized_partitions(shard, row.group_id).items():
            topic = image.topics_by_id.get(topic_id)
            if topic is not None and may_describe(topic.name):
                group.topics.append(
                    await _topic(services, row.group_id, topic, sorted(state.partitions), slices)
                )
    for wanted in row.topics or ():
        if slices.is_over():
            await slices.pause()
        name, numbers = wanted.topic_name, wanted.partitions
        topic = image.topics.get(name)
        if not may_describe(name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            denied.append(_without_offsets(name, numbers, code, TOPIC_DENIED))
        elif topic is None:
            unknown.append(_without_offsets(name, numbers))
        elif not row.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
        else:
            group.topics.append(await _topic(services, row.group_id, topic, numbers, slices))
    group.topics += unknown + denied


def _without_offsets(
    name: str, numbers: Iterable[int], code: int = 0, text: str | None = None
) -> DescribeShareGroupOffsetsResponseTopic:
    rows = [
        DescribeShareGroupOffsetsResponsePartition(number, UNINITIALIZED, error_code=code, error_message=text)
        for number in numbers
    ]
    return DescribeShareGroupOffsetsResponseTopic(topic_name=name, partitions=rows)


async def _topic(
    services: Services, group_id: str, topic: Topic, numbers: Iterable[int], slices: Slices
) -> DescribeShareGroupOffsetsResponseTopic:
    rows = []
    for number in numbers:
        rows.append(await _partition(services, group_id, topic, number))
        if slices.is_over():
            await slices.pause()
    return DescribeShareGroupOffsetsResponseTopic(topic.name, topic.topic_id, rows)


async def _partition(
    services: Services, group_id: str, topic: Topic, number: int
) -> DescribeShareGroupOffsetsResponsePartition:
    row = DescribeShareGroupOffsetsResponsePartition(number, UNINITIALIZED)
    try:
        state = await services.shares.persister.summary(group_id, topic.topic_id, number)
    except KafkaError:
        return row  # as where there is no state: Kafka treats it as absence, not as an error
    row.start_offset, row.leader_epoch = state.start_offset, state.leader_epoch
    if UNINITIALIZED in (state.start_offset, state.delivery_complete_count):
        return row
    try:
        end = await _end_offset(services, topic, number)
    except KafkaError as error:
        return DescribeShareGroupOffsetsResponsePartition(
            number, error_code=error.code, error_message=error.message
        )
    # AlterShareGroupOffsets sets any start offset, also one from which the lag overflows.
    row.lag = wrapped_int64(end - state.start_offset - state.delivery_complete_count)
    return row


async def _end_offset(services: Services, topic: Topic, number: int) -> int:
    """Return where a partition ends for consumers, whoever leads it. Raises KafkaError."""
    cluster = services.cluster
    leader_id = topic.partitions[number].leader
    if cluster.links is not None and leader_id not in (NO_LEADER, cluster.node_id):
        from oncelog.broker.share.remote_partitions import end_offset

        return await end_offset(cluster.links.to(leader_id), topic, number)
    log = cluster.leader_partition(topic.name, number).log
    log.check_alive()
    return log.high_watermark
