"""OffsetFetch (API key 9): returns committed offsets of groups, those of all topics if ``topics`` is null.

From version 8 on a request names several groups, and each has its own error. Versions 2 to 7 have one error for the
whole response; in version 1 it stands in every row. Version 10 names topics by id.

Source: ``KafkaApis.handleOffsetFetchRequest``, ``OffsetFetchResponse``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_by_row, chunked_steps
from oncelog.broker.requests.authorization import DESCRIBE, GROUP_RESOURCE, TOPIC_RESOURCE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.offset_fetch import (
    OFFSET_FETCH_TOPIC_ID_VERSION,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.steps import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.steps import Steps

WHOLE_ERROR_VERSION = 2
SEVERAL_GROUPS_VERSION = 8
NO_OFFSET = -1


def handle(
    services: Services, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | Pending[OffsetFetchResponse]:
    def fetch(
        groups: list[OffsetFetchRequestGroup],
    ) -> OffsetFetchResponse | Pending[OffsetFetchResponse]:
        return _fetch(services, groups, request, context)

    if context.api_version < SEVERAL_GROUPS_VERSION:
        return fetch([_only_group(request)])
    return chunked_by_row(request.groups, fetch, lambda response: response.groups, same=_request_key)


def _request_key(group: OffsetFetchRequestGroup) -> Hashable:
    """Return the same key for groups of a request that have the same result.

    A group with a list of topics has a key of its own: its result is not much longer than the list.
    """
    if group.topics is not None:
        return id(group)
    return group.group_id, group.member_id, group.member_epoch


def _fetch(
    services: Services,
    groups: list[OffsetFetchRequestGroup],
    request: OffsetFetchRequest,
    context: RequestContext,
) -> OffsetFetchResponse | Pending[OffsetFetchResponse]:
    version = context.api_version
    authorization = services.authorization
    may_describe = None
    if authorization.authorizer is not None:
        may_describe = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE)
    may_describe_group = authorization.predicate(context, DESCRIBE, GROUP_RESOURCE)
    lookups = [
        _Lookup(group, version, may_describe, is_denied=not may_describe_group(group.group_id))
        for group in groups
    ]
    shards: list[GroupShard] = []

    def error_response(error: KafkaError) -> OffsetFetchResponse:
        return finish(_response([_error_result(group, error, version) for group in groups], version))

    def read() -> Steps[OffsetFetchResponse]:
        results = []
        for lookup in lookups:
            result = yield from _group_result(
                services, lookup, shards, require_stable=request.require_stable, version=version
            )
            results.append(result)
        return (yield from _response(results, version))

    def fetch() -> Steps[OffsetFetchResponse | Pending[OffsetFetchResponse]]:
        for lookup in lookups:
            yield from lookup.resolve(services.cluster)
        response = yield from read()
        # Everything that is committed now includes the rows read before.
        return services.groups.runtime.respond_read(shards, response, error_response, lambda: finish(read()))

    return chunked_steps(fetch())


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(topic.name, ZERO_UUID, topic.partition_indexes) for topic in topics],
    )


class _Lookup:
    """One group of a request. `resolve` replaces topic ids by names, and makes the results for unknown ids, and for
    topics that the client may not describe (``may_describe``; None: all may be).
    """

    __slots__ = ("by_id", "checked", "group", "is_denied", "may_describe", "resolved", "unknown")

    def __init__(
        self,
        group: OffsetFetchRequestGroup,
        version: int,
        may_describe: Callable[[str], bool] | None,
        *,
        is_denied: bool,
    ) -> None:
        self.group = self.resolved = group
        self.is_denied = is_denied
        """Whether the client may not describe the group."""
        self.may_describe = may_describe
        self.by_id = version >= OFFSET_FETCH_TOPIC_ID_VERSION
        self.checked = (group.topics or ()) if self.by_id or may_describe is not None else ()
        """The topics that `resolve` has to look at."""
        self.unknown: list[OffsetFetchResponseTopics] = []

    def resolve(self, cluster: Cluster) -> Iterator[None]:
        if not self.checked:
            return
        known_topics: list[OffsetFetchRequestTopics] = []
        for topic in self.checked:
            name: str | None = topic.name
            if self.by_id:
                image = cluster.topic_by_id(topic.topic_id)
                name = None if image is None else image.name
            if name is None:
                self._refuse(topic, ErrorCode.UNKNOWN_TOPIC_ID)
            elif self.may_describe is not None and not self.may_describe(name):
                self._refuse(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            else:
                known_topics.append(OffsetFetchRequestTopics(name, topic.topic_id, topic.partition_indexes))
            yield
        group = self.group
        self.resolved = OffsetFetchRequestGroup(
            group.group_id, group.member_id, group.member_epoch, known_topics
        )

    def _refuse(self, topic: OffsetFetchRequestTopics, code: ErrorCode) -> None:
        rows = [
            OffsetFetchResponsePartitions(partition, NO_OFFSET, error_code=code)
            for partition in topic.partition_indexes
        ]
        self.unknown.append(OffsetFetchResponseTopics(topic.name, topic.topic_id, rows))


def _group_result(
    services: Services, lookup: _Lookup, shards: list[GroupShard], *, require_stable: bool, version: int
) -> Steps[OffsetFetchResponseGroup]:
    """Return one group's result; append the shard that was read to ``shards``. Where all topics are wanted, those that
    still exist have their present ids.
    """
    from oncelog.coordinator.groups.offsets import fetch_offsets

    group = lookup.group
    if lookup.is_denied:
        return _error_result(group, KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED), version)
    try:
        shard = services.groups.shard(group.group_id, empty_allowed=True)
        result = yield from fetch_offsets(shard, lookup.resolved, require_stable=require_stable)
    except KafkaError as error:
        return _error_result(group, error, version)
    shards.append(shard)
    may_describe = lookup.may_describe
    if group.topics is None:
        topics, result.topics = result.topics, []
        for topic in topics:
            if may_describe is not None and not may_describe(topic.name):
                continue
            if version >= OFFSET_FETCH_TOPIC_ID_VERSION:
                existing = services.cluster.topic(topic.name)
                if existing is None:
                    continue
                topic.topic_id = existing.topic_id
            result.topics.append(topic)
            yield
    result.topics += lookup.unknown
    return result


def _error_result(
    group: OffsetFetchRequestGroup, error: KafkaError, version: int
) -> OffsetFetchResponseGroup:
    if version >= WHOLE_ERROR_VERSION:
        return OffsetFetchResponseGroup(group.group_id, error_code=error.code)
    rows = [
        OffsetFetchResponseTopics(
            topic.name,
            partitions=[
                OffsetFetchResponsePartitions(partition, NO_OFFSET, metadata="", error_code=error.code)
                for partition in topic.partition_indexes
            ],
        )
        for topic in group.topics or ()
    ]
    return OffsetFetchResponseGroup(group.group_id, rows)


def _response(groups: list[OffsetFetchResponseGroup], version: int) -> Steps[OffsetFetchResponse]:
    if version >= SEVERAL_GROUPS_VERSION:
        return OffsetFetchResponse(groups=groups)
    [group] = groups
    topics = []
    for topic in group.topics:
        rows = []
        for row in topic.partitions:
            old = OffsetFetchResponsePartition(
                row.partition_index,
                row.committed_offset,
                row.committed_leader_epoch,
                row.metadata,
                row.error_code,
            )
            rows.append(old)
            yield
        topics.append(OffsetFetchResponseTopic(topic.name, rows))
    return OffsetFetchResponse(0, topics, group.error_code)
