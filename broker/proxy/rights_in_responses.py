"""Removes from upstream's responses the rows that a client has no right to see. It also gives denied rows Kafka's
messages.

`AuthorizingInterceptor` refuses the rows that a request names. `restrict` handles the others: the rows of a request for
all topics or groups, the partitions that upstream's fetch session remembers, and the authorized operations (KIP-430),
which upstream lists for the proxy's own user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.requests.authorization import (
    CLUSTER_ACTION,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP_RESOURCE,
    NOT_ASKED,
    READ,
    THE_CLUSTER,
    TOPIC_RESOURCE,
    TRANSACTIONAL_ID_RESOURCE,
)
from oncelog.wire.errors import ErrorCode
from oncelog.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncelog.broker.requests.authorization import Authorization
    from oncelog.broker.requests.request import RequestContext
    from oncelog.wire.schema import Uuid
    from oncelog.wire.steps import Steps

    TopicName = Callable[[Uuid], str | None]

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MESSAGE = "The client may not do this to the topic."
NO_TOPIC = "This server does not host this topic-partition."


def restrict(
    authorization: Authorization, context: RequestContext, response: Any, topic_name: TopicName
) -> Iterator[None]:
    """Remove from a response what the client has no right to see, and give denied rows Kafka's messages; a row at each
    step. ``topic_name`` gives the name for a topic id.
    """
    function = _BY_API.get(context.api.row.name)
    if function is not None:
        yield from function(authorization, context, response, topic_name)


def _metadata(
    authorization: Authorization, context: RequestContext, response: Any, _: TopicName
) -> Iterator[None]:
    request = context.request
    is_all = request.topics is None or (context.api_version == 0 and not request.topics)
    may_describe = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE, quiet=True)
    rows = []
    for row in response.topics:
        yield
        if row.error_code == DENIED and row.topic_id != ZERO_UUID:
            row.name = None  # the client named the topic by its id, and may not learn its name
        if row.name is None or may_describe(row.name) or row.error_code == DENIED:
            if row.topic_authorized_operations != NOT_ASKED and row.name is not None:
                row.topic_authorized_operations &= authorization.operations(context, TOPIC_RESOURCE, row.name)
            rows.append(row)
        elif not is_all:  # asked for by id, which is no secret
            rows.append(type(row)(DENIED, None, row.topic_id))
    response.topics = sorted(rows, key=_place)
    yield from _cluster_operations(authorization, context, response)


def _filtered(rows: list[Any], is_kept: Callable[[Any], bool]) -> Steps[list[Any]]:
    """Return the rows that are kept, after a step for each."""
    kept = []
    for row in rows:
        if is_kept(row):
            kept.append(row)
        yield
    return kept


def _place(row: Any) -> int:
    """Return the place of a row in Kafka's Metadata responses: unknown ids first, denied topics last."""
    return {ErrorCode.UNKNOWN_TOPIC_ID: 0, DENIED: 2}.get(row.error_code, 1)


def _cluster_operations(
    authorization: Authorization, context: RequestContext, response: Any, _: TopicName | None = None
) -> Iterator[None]:
    yield
    if response.cluster_authorized_operations != NOT_ASKED:
        response.cluster_authorized_operations &= authorization.cluster_operations(context)


def _group_operations(authorization: Authorization, context: RequestContext, response: Any) -> Iterator[None]:
    for group in response.groups:
        yield
        if group.authorized_operations != NOT_ASKED and not group.error_code:
            group.authorized_operations &= authorization.operations(context, GROUP_RESOURCE, group.group_id)


def _describe_groups(
    authorization: Authorization, context: RequestContext, response: Any, _: TopicName
) -> Iterator[None]:
    yield from _group_operations(authorization, context, response)


def _group_describe(
    authorization: Authorization, context: RequestContext, response: Any, _: TopicName
) -> Iterator[None]:
    yield from _group_operations(authorization, context, response)
    may_describe = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE, quiet=True)
    for index, group in enumerate(response.groups):
        yield
        assignments = [
            assignment
            for member in group.members
            for assignment in (member.assignment, getattr(member, "target_assignment", None))
            if assignment is not None
        ]
        names = {
            partitions.topic_name for assignment in assignments for partitions in assignment.topic_partitions
        }
        if not all(map(may_describe, names)):
            text = "The client may not describe all topics of the group."
            response.groups[index] = type(group)(DENIED, text, group.group_id)


def _fetch(
    authorization: Authorization, context: RequestContext, response: Any, topic_name: TopicName
) -> Iterator[None]:
    """Refuse the topics of the session to which the client has lost its right since the session began."""
    if authorization.allows(context, CLUSTER_ACTION, *THE_CLUSTER, quiet=True):
        return  # a replica, or somebody who could be one
    may_read = authorization.predicate(context, READ, TOPIC_RESOURCE, quiet=True)
    is_any_denied = False
    for topic in response.responses:
        yield
        name = getattr(topic, "topic", None) or topic_name(topic.topic_id)
        if name is not None and may_read(name):
            continue
        code = DENIED if name is not None else ErrorCode.UNKNOWN_TOPIC_ID
        topic.partitions = [
            row if row.error_code else _refused_partition(row, code) for row in topic.partitions
        ]
        is_any_denied |= code is DENIED
    if is_any_denied:
        response.responses.sort(key=_is_known)


def _is_known(topic: Any) -> bool:
    """Whether the topic of a row exists: Kafka lists the others first."""
    return any(row.error_code != ErrorCode.UNKNOWN_TOPIC_ID for row in topic.partitions)


def _refused_partition(row: Any, code: ErrorCode) -> Any:
    refused = type(row)(row.partition_index, code)
    if hasattr(refused, "high_watermark"):
        refused.high_watermark = -1
        refused.records = b""
    return refused


def _offset_fetch(
    authorization: Authorization, context: RequestContext, response: Any, topic_name: TopicName
) -> Iterator[None]:
    may_describe = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE, quiet=True)
    request = context.request

    def may_see(topic: Any) -> bool:
        name = getattr(topic, "name", "") or topic_name(topic.topic_id)
        return name is not None and may_describe(name)

    if context.api_version < 8:
        if request.topics is None:
            response.topics = yield from _filtered(response.topics, lambda topic: may_describe(topic.name))
        return
    everything = {group.group_id for group in request.groups if group.topics is None}
    for group in response.groups:
        yield
        if group.group_id in everything:
            group.topics = yield from _filtered(group.topics, may_see)


def _list_groups(
    authorization: Authorization, context: RequestContext, response: Any, _: TopicName
) -> Iterator[None]:
    if not authorization.allows(context, DESCRIBE, *THE_CLUSTER, quiet=True):
        may_describe = authorization.predicate(context, DESCRIBE, GROUP_RESOURCE, quiet=True)
        response.groups = yield from _filtered(response.groups, lambda group: may_describe(group.group_id))


def _list_transactions(
    authorization: Authorization, context: RequestContext, response: Any, _: TopicName
) -> Iterator[None]:
    may_describe = authorization.predicate(context, DESCRIBE, TRANSACTIONAL_ID_RESOURCE, quiet=True)
    response.transaction_states = yield from _filtered(
        response.transaction_states, lambda state: may_describe(state.transactional_id)
    )


def _describe_transactions(
    authorization: Authorization, context: RequestContext, response: Any, _: TopicName
) -> Iterator[None]:
    may_describe = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE, quiet=True)
    for state in response.transaction_states:
        yield
        state.topics = yield from _filtered(state.topics, lambda topic: may_describe(topic.topic))


def _describe_topic_partitions(
    authorization: Authorization, context: RequestContext, response: Any, _: TopicName
) -> Iterator[None]:
    may_describe = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE, quiet=True)
    rows = []
    for row in response.topics:
        yield
        if row.error_code != DENIED and not may_describe(row.name or ""):
            continue
        if row.topic_authorized_operations != NOT_ASKED:
            row.topic_authorized_operations &= authorization.operations(
                context, TOPIC_RESOURCE, row.name or ""
            )
        rows.append(row)
    response.topics = rows


def _create_topics(
    authorization: Authorization, context: RequestContext, response: Any, _: TopicName
) -> Iterator[None]:
    may_describe = authorization.predicate(context, DESCRIBE_CONFIGS, TOPIC_RESOURCE, quiet=True)
    for row in response.topics:
        yield
        if not row.error_code and context.api_version >= 5 and not may_describe(row.name):
            row.topic_config_error_code = DENIED
            row.num_partitions = row.replication_factor = -1
            row.configs = []


def _delete_topics(
    authorization: Authorization, context: RequestContext, response: Any, topic_name: TopicName
) -> Iterator[None]:
    """Name the topics that the client may describe and upstream refused to delete by id."""
    may_describe = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE, quiet=True)
    for row in response.responses:
        yield
        if row.error_code and hasattr(row, "error_message"):
            text = MESSAGE if row.error_code == DENIED else NO_TOPIC
            row.error_message = row.error_message or text
        topic_id = getattr(row, "topic_id", ZERO_UUID)
        if row.error_code == DENIED and topic_id != ZERO_UUID:
            name = topic_name(topic_id)
            row.name = name if name is not None and may_describe(name) else None


def _describe_producers(
    authorization: Authorization, context: RequestContext, response: Any, _: TopicName
) -> Iterator[None]:
    for topic in response.topics:
        yield
        for row in topic.partitions:
            if row.error_code == DENIED:
                row.error_message = MESSAGE


def _describe_share_group_offsets(
    authorization: Authorization, context: RequestContext, response: Any, _: TopicName
) -> Iterator[None]:
    may_describe = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE, quiet=True)
    everything = {group.group_id for group in context.request.groups if group.topics is None}
    for group in response.groups:
        yield
        if group.group_id in everything:
            group.topics = yield from _filtered(group.topics, lambda topic: may_describe(topic.topic_name))
        yield from _tell_why(group.topics)


def _share_group_offsets(
    authorization: Authorization, context: RequestContext, response: Any, _: TopicName
) -> Iterator[None]:
    yield from _tell_why(response.responses)


def _tell_why(topics: Any) -> Iterator[None]:
    """Put the message of a denial into the rows, or the rows' partitions, that have its error."""
    for topic in topics:
        yield
        for row in (topic, *getattr(topic, "partitions", ())):
            if getattr(row, "error_code", 0) == DENIED:
                row.error_message = MESSAGE


_BY_API: dict[str, Callable[[Authorization, RequestContext, Any, TopicName], Iterator[None]]] = {
    "metadata": _metadata,
    "describe_cluster": _cluster_operations,
    "describe_groups": _describe_groups,
    "consumer_group_describe": _group_describe,
    "share_group_describe": _group_describe,
    "fetch": _fetch,
    "share_fetch": _fetch,
    "offset_fetch": _offset_fetch,
    "list_groups": _list_groups,
    "list_transactions": _list_transactions,
    "describe_transactions": _describe_transactions,
    "describe_topic_partitions": _describe_topic_partitions,
    "create_topics": _create_topics,
    "delete_topics": _delete_topics,
    "describe_producers": _describe_producers,
    "describe_share_group_offsets": _describe_share_group_offsets,
    "alter_share_group_offsets": _share_group_offsets,
    "delete_share_group_offsets": _share_group_offsets,
}
