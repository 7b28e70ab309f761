"""Describes groups of one modern protocol, for ConsumerGroupDescribe and ShareGroupDescribe."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from oncelog.broker.handlers.chunked import chunked_by_row, then_steps
from oncelog.broker.requests.authorization import DESCRIBE, GROUP_RESOURCE, TOPIC_RESOURCE
from oncelog.coordinator.errors import to_client_error
from oncelog.coordinator.groups.modern.described import Described
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.schema import Message
    from oncelog.wire.steps import Steps


R = TypeVar("R", bound="Message")

groups_of = attrgetter("groups")


class GroupKind(NamedTuple, Generic[R]):
    """How groups of one protocol are described.

    ``described`` is the message of one group: it is made of an error code, an error message and a group id.
    ``describe`` raises KafkaError. ``topics`` are the names of all topics that a described group mentions.
    """

    response: Callable[..., R]
    described: Callable[..., Any]
    describe: Callable[[GroupShard, str], Described[Any]]
    topics: Callable[[Any], Iterable[str]]


def describe_groups(
    services: Services, kind: GroupKind[R], context: RequestContext, *, is_enabled: bool
) -> R | Pending[R]:
    """Return the response about the groups of a request: UNSUPPORTED_VERSION unless the protocol ``is_enabled``."""

    def describe_some(group_ids: list[str]) -> R | Pending[R]:
        if not is_enabled:
            return _refused(kind, group_ids, KafkaError(ErrorCode.UNSUPPORTED_VERSION))
        return _describe(services, kind, group_ids, context)

    return chunked_by_row(context.request.group_ids, describe_some, groups_of, same=str)


def _describe(
    services: Services, kind: GroupKind[R], group_ids: list[str], context: RequestContext
) -> R | Pending[R]:
    """Return the response about these groups, as they are committed. Their members are added in steps."""
    shards: dict[int, GroupShard] = {}
    described: list[Described[Any]] = []

    def without_members() -> R:
        described[:] = _described(services, kind, group_ids, context, shards)
        return kind.response(groups=[each.group for each in described])

    first = without_members()
    response = services.groups.runtime.respond_read(
        list(shards.values()), first, lambda error: _refused(kind, group_ids, error), without_members
    )
    return then_steps(response, lambda response: _with_members(services, kind, context, response, described))


def _with_members(
    services: Services,
    kind: GroupKind[R],
    context: RequestContext,
    response: R,
    described: Iterable[Described[Any]],
) -> Steps[R]:
    for each in described:
        yield from each.add_members
    authorization = services.authorization
    if authorization.authorizer is not None:
        may_describe = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE, quiet=True)
        groups = [_without_denied_topics(kind, group, may_describe) for group in groups_of(response)]
        return kind.response(groups=groups)
    return response


def _described(
    services: Services,
    kind: GroupKind[R],
    group_ids: list[str],
    context: RequestContext,
    shards: dict[int, GroupShard],
) -> list[Described[Any]]:
    """Return the groups. One that cannot be described has its error there. ``shards`` gets the shards of all."""
    authorization = services.authorization
    may_describe = authorization.predicate(context, DESCRIBE, GROUP_RESOURCE)
    groups = []
    for group_id in group_ids:
        if not may_describe(group_id):
            refused = kind.described(ErrorCode.GROUP_AUTHORIZATION_FAILED, None, group_id)
            groups.append(Described(refused))
            continue
        try:
            shard = services.groups.shard(group_id)
            shards[shard.partition] = shard
            each = kind.describe(shard, group_id)
        except KafkaError as error:
            each = Described(kind.described(to_client_error(error).code, None, group_id))
        if context.request.include_authorized_operations and not each.group.error_code:
            each.group.authorized_operations = authorization.operations(context, GROUP_RESOURCE, group_id)
        groups.append(each)
    return groups


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
