"""`rename_topics`, `rename_groups`, `rename_transactional_ids`: filters that give other names, wherever requests and
responses have them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.filters.loading import FilterError
from oncelog.broker.filters.named_fields import (
    ACL_ANY,
    GROUPS,
    TOPICS,
    TRANSACTIONAL_IDS,
    Kind,
    Renaming,
    apis_that_name,
    rename,
    rename_key,
)
from oncelog.broker.filters.names import Functions, Names, Prefix, Table
from oncelog.broker.requests.request import CloseConnection
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.delete_acls import DeleteAclsRequest
from oncelog.wire.messages.describe_acls import DescribeAclsRequest
from oncelog.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.schema import deep_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from oncelog.broker.requests.request import RequestContext

    ToCluster: TypeAlias = Callable[[str, RequestContext], str | None]
    PrefixGiven: TypeAlias = str | Callable[[RequestContext], str]

T = TypeVar("T")


def rename_topics(
    names: Mapping[str, str] | None = None,
    *,
    prefix: PrefixGiven | None = None,
    to_cluster: ToCluster | None = None,
    to_client: ToCluster | None = None,
) -> Interceptor:
    """Return a filter that gives topics other names in the cluster than clients see. Say one of three.

    names: the cluster's names by the clients'. All other names are the same on both sides.
    prefix: what all names begin with in the cluster: a text, or a function of the `RequestContext`, which may say the
        prefix of a user. Clients see no other names.
    to_cluster, to_client: functions of a name and the `RequestContext`, one the other's inverse. to_client returns None
        for a name that the client does not see; to_cluster returns None to refuse a name.

    Raises ValueError for what cannot work.
    """
    return _made(TOPICS, names, prefix, to_cluster, to_client)


def rename_groups(
    names: Mapping[str, str] | None = None,
    *,
    prefix: PrefixGiven | None = None,
    to_cluster: ToCluster | None = None,
    to_client: ToCluster | None = None,
) -> Interceptor:
    """Return a filter that gives groups of all types other names in the cluster. The arguments are those of
    `rename_topics`.
    """
    return _made(GROUPS, names, prefix, to_cluster, to_client)


def rename_transactional_ids(
    names: Mapping[str, str] | None = None,
    *,
    prefix: PrefixGiven | None = None,
    to_cluster: ToCluster | None = None,
    to_client: ToCluster | None = None,
) -> Interceptor:
    """Return a filter that gives other transactional ids in the cluster. The arguments are those of `rename_topics`."""
    return _made(TRANSACTIONAL_IDS, names, prefix, to_cluster, to_client)


def _made(
    kind: Kind,
    names: Mapping[str, str] | None,
    prefix: PrefixGiven | None,
    to_cluster: ToCluster | None,
    to_client: ToCluster | None,
) -> RenameFilter:
    functions = (to_cluster is not None) + (to_client is not None)
    if (names is not None) + (prefix is not None) + (functions > 0) != 1:
        raise FilterError("expected one of these: names, prefix=, or to_cluster= and to_client=")
    if names is not None:
        return RenameFilter(kind, Table(kind.word, names))
    if prefix is not None:
        return RenameFilter(kind, Prefix(kind.word, prefix))
    if to_cluster is None or to_client is None:
        has, lacks = ("to_client", "to_cluster") if to_cluster is None else ("to_cluster", "to_client")
        raise FilterError(f"{has} without {lacks}: names go both ways")
    return RenameFilter(kind, Functions(kind.word, to_cluster, to_client))


class RenameFilter(Interceptor):
    """Renames what is of one kind. Rows of responses about what a client does not see are left out."""

    unknown_apis_pass = False

    def __init__(self, kind: Kind, names: Names) -> None:
        self.apis = apis_that_name(kind)
        self._kind = kind
        self._names = names
        self._requests: dict[RequestContext, Any] = {}
        """The requests with clients' names, of those that went on with the cluster's. All other responses have clients'
        names."""

    async def on_request(self, context: RequestContext) -> Any:
        """See `Interceptor`."""
        # In a copy, so that a request that is refused keeps its names.
        request = deep_copy(context.request, lambda buffer: buffer)
        if isinstance(request, DeleteAclsRequest | DescribeAclsRequest):
            self._check_acl_filters(request, context)
        renaming = self._to_cluster(context)
        if isinstance(request, FindCoordinatorRequest):
            request.key = self._key(request.key, request.key_type, renaming)
            request.coordinator_keys = [
                self._key(key, request.key_type, renaming) for key in request.coordinator_keys
            ]
        else:
            rename(request, self._kind, renaming)
        if (
            isinstance(request, DescribeTopicPartitionsRequest)
            and not request.topics
            and request.cursor is None
        ):
            # Topics are told by name: after the pages with the client's, none of its own follows.
            begin = self._names.begin(context)
            request.cursor = Cursor(begin) if begin else None
        self._requests[context], context.request = context.request, request
        return None

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        """See `Interceptor`."""
        request = self._requests.pop(context, None)
        if request is None:
            return response
        context.request = request
        renaming = Renaming(
            partial(self._names.to_client, context=context),
            partial(self._names.acl_to_client, context=context),
            partial(self._names.expression_to_client, context=context),
        )
        if isinstance(response, FindCoordinatorResponse):
            for row in response.coordinators:
                row.key = self._key(row.key, request.key_type, renaming)
        elif not rename(response, self._kind, renaming):
            # Only the place where DescribeTopicPartitions goes on is in no row. Its response has no error of its own.
            if self._names.begin(context) is None:
                raise CloseConnection(
                    f"a page of all topics ends before one that {context.client_id or 'the client'} does not see, and "
                    "by functions or a table nobody knows what follows: describe topics by name"
                )
            response.next_cursor = None
        return response

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        """See `Interceptor`."""
        self._requests.pop(context, None)

    def _to_cluster(self, context: RequestContext) -> Renaming:
        def name(given: str) -> str:
            return self._or_refused(given, self._names.to_cluster(given, context))

        def acl(given: str, pattern_type: int) -> tuple[str, int]:
            return self._or_refused(given, self._names.acl_to_cluster(given, pattern_type, context))

        return Renaming(name, acl, partial(self._names.expression_to_cluster, context=context))

    def _or_refused(self, given: str, new: T | None) -> T:
        if new is None:
            raise KafkaError(self._kind.refusal, f"no {self._kind.word} can have the name {given} here")
        return new

    def _key(self, key: str, key_type: int, renaming: Renaming) -> str:
        new = rename_key(key, key_type, self._kind, renaming)
        assert new is not None, "a name without another one was refused"
        return new

    def _check_acl_filters(
        self, request: DeleteAclsRequest | DescribeAclsRequest, context: RequestContext
    ) -> None:
        """Refuse filters for ACLs that cannot be renamed, and would concern what the client does not see."""
        word = self._kind.word
        deletes = isinstance(request, DeleteAclsRequest)
        for row in request.filters if isinstance(request, DeleteAclsRequest) else (request,):
            name, its_type = row.resource_name_filter, row.resource_type_filter
            if (
                name is None
                and deletes
                and self._names.hides_some(context)
                and its_type in (ACL_ANY, self._kind.acl_type)
            ):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"{word}s are renamed, and these ACLs may be about {word}s that the client does not see: name one",
                )
            if name and its_type == ACL_ANY and self._names.to_cluster(name, context) != name:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{word}s are renamed: say the type of the resource {name}"
                )
