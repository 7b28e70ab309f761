"""`MutationQuotas`: a proxy's own quotas of changes of topics (``controller_mutation_rate``, KIP-599).

A quota counts created and deleted partitions. A strict one refuses topics while it is exhausted: it is counted before
the request is forwarded, and corrected by upstream's response. Any other is counted after the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.handlers import create_partitions, create_topics, delete_topics
from oncelog.broker.handlers.table import TOPIC
from oncelog.broker.refusal.row_refusal import Refusal
from oncelog.broker.refusal.rows import RequestRows, Row, rows_of_request
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.delete_topics import DeleteTopicState
from oncelog.wire.messages.metadata import MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from oncelog.broker.proxy.upstream_topics import UpstreamTopics
    from oncelog.broker.requests.request import RequestContext
    from oncelog.broker.security.usage import MutationQuota
    from oncelog.wire.schema import Uuid

STRICT_VERSIONS = {
    "CreateTopics": create_topics.STRICT_VERSION,
    "DeleteTopics": delete_topics.STRICT_VERSION,
    "CreatePartitions": create_partitions.STRICT_VERSION,
}
RESULTS = {"CreateTopics": "topics", "DeleteTopics": "responses", "CreatePartitions": "results"}
"""The field of each response that has a row for each topic."""
DEFAULT_PARTITIONS = 1
"""Kafka's ``num.partitions``: the count for a topic whose number of partitions upstream chooses, until it responds."""


class _Exhausted(NamedTuple):
    """The rows of topics that the quota refuses; see `RowSelector`."""

    topics: set[str]

    def depth_in(self, rows: RequestRows) -> int:
        return rows.depths.get(TOPIC, 0)

    def matches_row(self, row: Row) -> bool:
        return row.facts.get(TOPIC) in self.topics


class _Counted(NamedTuple):
    """The partitions of a request that was forwarded."""

    quota: MutationQuota
    partitions: dict[str, int]
    is_strict: bool
    """Whether the quota is strict: then they were counted before the request was forwarded."""


class MutationQuotas(Interceptor):
    """Installed while somebody has a quota. ``forward_through_own_interceptors`` is the dispatcher's; ``topic_name``
    gives the name of a topic's id.
    """

    apis = frozenset(STRICT_VERSIONS)

    def __init__(
        self,
        forward_through_own_interceptors: Callable[[RequestContext, Interceptor], Awaitable[Any]],
        topics: UpstreamTopics,
        topic_name: Callable[[Uuid], str | None],
    ) -> None:
        self._forward_through_own_interceptors = forward_through_own_interceptors
        self._topics = topics
        self._topic_name = topic_name
        self._open: dict[RequestContext, _Counted] = {}

    async def on_request(self, context: RequestContext) -> Any:
        """Count the partitions; refuse topics from the one that exhausts the quota. See `Interceptor`."""
        if context.usage is None:
            return None
        is_strict = context.api_version >= STRICT_VERSIONS[context.api_name]
        quota = context.usage.mutation_quota(is_strict=is_strict)
        if quota is None:
            return None
        counted = self._open[context] = _Counted(quota, {}, is_strict)
        exhausted: set[str] = set()
        for name, partitions in await self._changes(context):
            try:
                if is_strict:
                    quota.record(partitions)
                counted.partitions[name] = counted.partitions.get(name, 0) + partitions
            except KafkaError:
                exhausted.add(name)
        return await self._without(context, exhausted) if exhausted else None

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        """Count what upstream has done. See `Interceptor`."""
        counted = self._open.pop(context, None)
        if counted is not None:
            for row in getattr(response, RESULTS[context.api_name]):
                partitions = counted.partitions.pop(row.name, None)
                if partitions is None:
                    continue
                count = getattr(row, "num_partitions", -1)  # of CreateTopics 5 and up
                done = 0 if row.error_code else count if count > 0 else partitions
                if not counted.is_strict:
                    counted.quota.record(done)
                elif done != partitions:
                    counted.quota.correct(done - partitions)
        return response

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        """See `Interceptor`. Without a response, what was counted before stays: the changes may have been made."""
        self._open.pop(context, None)

    async def _changes(self, context: RequestContext) -> list[tuple[str, int]]:
        """Return the topics that are to be changed, and how many partitions each gets or loses."""
        request = context.request
        if context.api_name == "DeleteTopics":
            rows = request.topics or [DeleteTopicState(name) for name in request.topic_names]
            ids = [row.topic_id for row in rows if row.name is None]
            names = [row.name for row in rows if row.name is not None]
            existing = (await self._existing(context, names)) | (await self._existing(context, ids))
            wanted = [row.name or self._topic_name(row.topic_id) or "" for row in rows]
            return [(name, existing[name]) for name in dict.fromkeys(wanted) if name in existing]
        existing = await self._existing(context, [topic.name for topic in request.topics])
        if context.api_name == "CreateTopics":
            return [
                (topic.name, len(topic.assignments) or max(topic.num_partitions, DEFAULT_PARTITIONS))
                for topic in request.topics
                if topic.name not in existing
            ]
        return [
            (topic.name, topic.count - existing[topic.name])
            for topic in request.topics
            if topic.count > existing.get(topic.name, topic.count)
        ]

    async def _existing(
        self, context: RequestContext, wanted: Sequence[str] | Sequence[Uuid]
    ) -> dict[str, int]:
        """Return the partitions of those topics that there are. Kafka does not take names and ids together."""
        rows = [
            MetadataRequestTopic(name=one) if isinstance(one, str) else MetadataRequestTopic(one)
            for one in wanted
        ]
        if not rows:
            return {}
        found = (await self._topics.ask(context, rows)).topics
        return {row.name: len(row.partitions) for row in found if row.name and not row.error_code}

    async def _without(self, context: RequestContext, exhausted: set[str]) -> Any:
        """Return the response to the request with an error for these topics."""
        request = context.request
        rows = rows_of_request(context.api.row.name, request, context.api_version, self._topic_name)
        error = KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        refusal = Refusal(context.api, context.api_version, rows, _Exhausted(exhausted), error)
        handled = None
        if not refusal.leaves_nothing:
            context.request = refusal.remaining()
            try:
                handled = await self._forward_through_own_interceptors(context, self)
            finally:
                context.request = request
        response = refusal.response(handled)
        if context.api_name == "DeleteTopics":
            for row in response.responses:
                row.name = row.name or self._topic_name(row.topic_id)
        return response
