"""Describes groups of one modern protocol, for ConsumerGroupDescribe and ShareGroupDescribe."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from oncelog.broker.handlers.chunked import chunked_by_row
from oncelog.broker.requests.authorization import DESCRIBE, GROUP_RESOURCE, TOPIC_RESOURCE
from oncelog.coordinator.errors import to_client_error
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.schema import Message


R = TypeVar("R", bound="Message")


class GroupKind(NamedTuple, Generic[R]):
    """How groups of one protocol are described.

    ``described`` is the message of one group: it is made of an error code, an error message and a group id.
    ``describe`` raises KafkaError. ``topics`` are the names of all topics that a described group mentions.
    """

    response: Callable[..., R]
    described: Callable[..., Any]
    describe: Callable[[GroupShard, str], Any]
    topics: Callable[[Any], Iterable[str]]


def describe_groups(
    services: Services, kind: GroupKind[R], context: RequestContext, *, is_enabled: bool
) -> R | Pending[R]:
    """Return the response about the groups of a request: UNSUPPORTED_VERSION unless the protocol ``is_enabled``."""

    def describe_some(group_ids: list[str]) -> R | Pending[R]:
        if not is_enabled:
            return _refused(kind, group_ids, KafkaError(ErrorCode.UNSUPPORTED_VERSION))
        return _describe(services, kind, group_ids, context)

    return chunked_by_row(context.request.group_ids, describe_some, attrgetter("groups"), same=str)


def _describe(
    services: Services, kind: GroupKind[R], group_ids: list[str], context: RequestContext
) -> R | Pending[R]:
    """Return the response about these groups, as they are committed."""
    shards: dict[int, GroupShard] = {}

    def response() -> R:
        return _described(services, kind, group_ids, context, shards)

    first = response()
    return services.groups.runtime.respond_read(
        list(shards.values()), first, lambda error: _refused(kind, group_ids, error), response
    )


def _described(
    services: Services,
    kind: GroupKind[R],
    group_ids: list[str],
    context: RequestContext,
    shards: dict[int, GroupShard],
) -> R:
    """Return the response about these groups. A group that cannot be described has its error there. ``shards`` gets
    the shards that it is about.
    """
    authorization = services.authorization
    may_describe = authorization.predicate(context, DESCRIBE, GROUP_RESOURCE)
    groups = []
    for group_id in group_ids:
        if not may_describe(group_id):
            groups.append(kind.described(ErrorCode.GROUP_AUTHORIZATION_FAILED, None, group_id))
            continue
        try:
            shard = services.groups.shard(group_id)
            shards[shard.partition] = shard
            group = kind.describe(shard, group_id)
        except KafkaError as error:
            group = kind.described(to_client_error(error).code, None, group_id)
        if context.request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorization.operations(context, GROUP_RESOURCE, group_id)
        groups.append(group)
    if authorization.authorizer is not None:
        may_describe_topic = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE, quiet=True)
        groups = [_without_denied_topics(kind, group, may_describe_topic) for group in groups]
    return kind.response(groups=groups)


def _refused(kind: GroupKind[R], group_ids: list[str], error: KafkaError) -> R:
    """Return the response that has ``error`` for each group."""
    return kind.response(groups=[kind.described(error.code, None, group_id) for group_id in group_ids])


def _without_denied_topics(kind: GroupKind[R], group: Any, may_describe: Callable[[str], bool]) -> Any:
    """Return the group, or an error in its place if a member has a topic that the client may not know of."""
    if all(map(may_describe, set(kind.topics(group)))):
        return group
    return kind.described(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "The client may not describe all topics of the group.",
        group.group_id,
    )
