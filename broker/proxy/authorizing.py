"""`AuthorizingInterceptor`: enforces a proxy's own ACLs. It refuses denied rows, or the whole request where Kafka does,
and forwards the other rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.handlers.rights import check_rights
from oncelog.broker.handlers.table import TOPIC
from oncelog.broker.proxy.rights import AllRows, DeniedResources, row_selectors
from oncelog.broker.proxy.rights_in_responses import restrict
from oncelog.broker.refusal.row_refusal import Refusal
from oncelog.broker.refusal.rows import rows_of_request_in_steps
from oncelog.broker.requests.authorization import CREATE, DELETE, THE_CLUSTER, TOPIC_RESOURCE
from oncelog.broker.requests.request import NO_RESPONSE
from oncelog.broker.scheduling.slices import Slices, in_slices
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.header import METADATA_KEY
from oncelog.wire.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.steps import listed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from oncelog.broker.host.host import Host
    from oncelog.broker.proxy.rights import Selector
    from oncelog.broker.proxy.upstream_topics import UpstreamTopics
    from oncelog.broker.refusal.rows import RequestRows
    from oncelog.broker.requests.request import RequestContext
    from oncelog.wire.schema import Uuid
    from oncelog.wire.steps import Steps

AUTO_CREATION_VERSION = 4
"""The first version of Metadata with ``allow_auto_topic_creation``."""


class AuthorizingInterceptor(Interceptor):
    """Asks the authorizer of ``host``. ``forward_through_own_interceptors`` is the dispatcher's, for the allowed rows
    of a request, and ``topics`` asks upstream. ``topic_name`` gives the name for a topic id, None for an id that
    upstream has not shown yet.
    """

    def __init__(
        self,
        host: Host,
        forward_through_own_interceptors: Callable[[RequestContext, Interceptor], Awaitable[Any]],
        topics: UpstreamTopics,
        topic_name: Callable[[Uuid], str | None],
    ) -> None:
        self._host = host
        self._authorization = host.authorization
        self._forward_through_own_interceptors = forward_through_own_interceptors
        self._topics = topics
        self._name_of = topic_name

    async def on_request(self, context: RequestContext) -> Any:
        """See `Interceptor`."""
        check_rights(self._authorization, context)
        await self._learn_names(context, _ids_in(context.request))
        selectors = list(row_selectors(self._authorization, self._host, context))
        if context.api.row.api_key == METADATA_KEY:
            selectors += await self._selectors_of_creation(context)
        elif context.api.row.name == "delete_topics" and selectors:
            # After the right to describe, before the right to delete.
            selectors.insert(1, await self._selector_of_deletion(context))
        return await self._refuse_denied(context, selectors)

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        """See `Interceptor`."""
        if context.request is not None:
            await in_slices(restrict(self._authorization, context, response, self._name_of))
        return response

    # -- rows

    async def _refuse_denied(self, context: RequestContext, selectors: Sequence[Selector]) -> Any:
        """Refuse the rows that the first selector with any matches, and forward the rest, after the later selectors
        have refused theirs. Returns the response with all rows; None if no selector matches a row: then nothing was
        forwarded.
        """
        request = context.request
        name, version = context.api.row.name, context.api_version
        rows = await in_slices(rows_of_request_in_steps(name, request, version, self._name_of))
        for index, selector in enumerate(selectors):
            if not await in_slices(_matches_any(selector, rows)):
                continue
            refusal = await in_slices(Refusal.in_steps(context.api, version, rows, selector, selector.error))
            handled = None
            if not refusal.leaves_nothing:
                context.request = await in_slices(refusal.remaining_in_steps())
                later = selectors[index + 1 :]
                if name == "add_partitions_to_txn":  # partitions are added all or none
                    later = await self._selectors_beside_denied(context)
                try:
                    handled = await self._refuse_denied(context, later)
                    if handled is None:
                        handled = await self._forward_through_own_interceptors(context, self)
                        if handled is NO_RESPONSE:
                            handled = None
                finally:
                    context.request = request
            elif name == "metadata":  # version 0 cannot ask for no topics
                brokers = (await self._topics.ask(context, [])).brokers
                handled = MetadataResponse(
                    brokers=[MetadataResponseBroker(row.node_id, row.host, row.port) for row in brokers]
                )
            return await in_slices(refusal.response_in_steps(handled))
        return None

    async def _selectors_of_creation(self, context: RequestContext) -> list[Selector]:
        """Return a selector of the topics that do not exist, and that upstream would create for this Metadata although
        the client has no right to create them.
        """
        request, version = context.request, context.api_version
        if not request.topics or (version >= AUTO_CREATION_VERSION and not request.allow_auto_topic_creation):
            return []
        if self._authorization.allows(context, CREATE, *THE_CLUSTER, quiet=True):
            return []
        may_create = self._authorization.predicate(context, CREATE, TOPIC_RESOURCE, quiet=True)
        names = []
        slices = Slices()
        for topic in request.topics:
            if topic.name and not may_create(topic.name):
                names.append(topic.name)
            if slices.is_over():
                await slices.pause()
        if not names:
            return []
        missing = await self._missing(context, names)
        error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return [DeniedResources(TOPIC, lambda name: name not in missing, error)]

    async def _selector_of_deletion(self, context: RequestContext) -> Selector:
        """Return a selector of the topics that do not exist, and that the client has no right to delete: Kafka answers
        UNKNOWN_TOPIC_OR_PARTITION for these.
        """
        may_delete = self._authorization.predicate(context, DELETE, TOPIC_RESOURCE, quiet=True)
        rows = await in_slices(
            rows_of_request_in_steps("delete_topics", context.request, context.api_version, self._name_of)
        )
        names: list[str] = []
        slices = Slices()
        for row in rows.whole.leaves():
            name = row.facts.get(TOPIC)
            if not row.facts.get("topic_id") and name is not None and not may_delete(name):
                names.append(name)
            if slices.is_over():
                await slices.pause()
        missing = await self._missing(context, names) if names else set()
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such topic.")
        return DeniedResources(TOPIC, lambda name: name not in missing, error)

    async def _missing(self, context: RequestContext, names: Iterable[str]) -> set[str]:
        """Return the names of the topics that upstream does not have."""
        response = await self._topics.ask(context, (MetadataRequestTopic(name=name) for name in names))
        codes = frozenset({int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.INVALID_TOPIC_EXCEPTION)})
        rows = (row.name for row in response.topics if row.name and row.error_code in codes)
        return set(await in_slices(listed(rows)))

    async def _selectors_beside_denied(self, context: RequestContext) -> list[Selector]:
        """Return the selectors for the allowed rows of an AddPartitionsToTxn that has refused ones, too."""
        names = {topic.name for topic in context.request.v3_and_below_topics}
        missing = await self._missing(context, names)
        return [
            DeniedResources(
                TOPIC,
                lambda name: name not in missing,
                KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ),
            AllRows(KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED)),
        ]

    # -- topics by id

    async def _learn_names(self, context: RequestContext, ids: Iterable[Uuid]) -> None:
        """Ask upstream for the names of topics whose ids it has not shown yet: ACLs name topics by name."""
        unknown = [topic_id for topic_id in dict.fromkeys(ids) if self._name_of(topic_id) is None]
        if unknown and context.api.row.api_key != METADATA_KEY:
            await self._topics.ask(context, [MetadataRequestTopic(topic_id=topic_id) for topic_id in unknown])


def _matches_any(selector: Selector, rows: RequestRows) -> Steps[bool]:
    """Return whether the selector matches any row."""
    for row in rows.whole.leaves():
        if selector.matches_row(row):
            return True
        yield
    return False


def _ids_in(request: Any) -> Iterable[Uuid]:
    """Yield the topic ids that a request names."""
    for field in ("topics", "topic_data", "groups"):
        for row in getattr(request, field, None) or ():
            if field == "groups" and not isinstance(row, str):
                yield from _ids_in(row)
            topic_id = getattr(row, "topic_id", ZERO_UUID)
            if topic_id != ZERO_UUID:
                yield topic_id
