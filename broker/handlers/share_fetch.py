"""ShareFetch (API key 78): gives records to a member of a share group, which acquires them, and takes acknowledgements.

It can wait for records, and has share sessions. Version 2 brings the acquire mode record_limit and renewed locks
(KIP-932, KIP-1206, KIP-1222; ``KafkaApis.handleShareFetchRequest``). An acknowledgement is stored before the response
leaves.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from oncelog.broker.fetch.large import PARTITIONS_AT_ONCE
from oncelog.broker.handlers.share_requests import member_of
from oncelog.broker.requests.authorization import READ, TOPIC_RESOURCE
from oncelog.broker.requests.request import Pending
from oncelog.broker.scheduling.slices import Slices, in_slices
from oncelog.broker.seams.clock import real_time
from oncelog.broker.share.acknowledging import RENEW_VERSION, Acknowledging
from oncelog.broker.share.delayed import DelayedShareFetch
from oncelog.broker.share.fetch import ACQUIRE_MODES, ShareFetch, error_row, release_rows
from oncelog.broker.share.partition import NOTHING
from oncelog.broker.share.responses import by_topic, endpoints_of, leader_of
from oncelog.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.share_fetch import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import RequestContext
    from oncelog.broker.share.sessions import PartitionKey, ShareFetchContext
    from oncelog.wire.steps import Steps


def handle(
    services: Services, request: ShareFetchRequest, context: RequestContext
) -> Pending[ShareFetchResponse]:
    member = member_of(services, context)
    if request.share_acquire_mode not in ACQUIRE_MODES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown acquire mode {request.share_acquire_mode}.")
    if request.is_renew_ack:
        _check_renewal(request)
    try:
        opened = _open(services, request, context, member)
    except KafkaError as error:
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return Pending(_refuse_later(request, error))
        raise
    return Pending(_Responding(services, request, context, opened).respond())


def _check_renewal(request: ShareFetchRequest) -> None:
    """A renewal must not wait for records: its lock could end meanwhile."""
    limits = {
        "maxBytes": request.max_bytes,
        "minBytes": request.min_bytes,
        "maxRecords": request.max_records,
        "maxWaitMs": request.max_wait_ms,
    }
    wrong = "".join(f"{name} must be set to 0, " for name, value in limits.items() if value)
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{wrong}if isRenewAck is true.")


async def _refuse_later(request: ShareFetchRequest, error: KafkaError) -> ShareFetchResponse:
    """Refuse a session after the time that the client would wait for records, so that it does not ask at once again."""
    await real_time.sleep(max(0, request.max_wait_ms) / 1000)
    raise error


def _open(
    services: Services, request: ShareFetchRequest, context: RequestContext, key: tuple[str, str]
) -> ShareFetchContext:
    names = services.metadata.image.topics_by_id
    asked = {}
    has_acknowledgements = False
    for topic in request.topics:
        known = names.get(topic.topic_id)
        for partition in topic.partitions:
            asked[topic.topic_id, partition.partition_index] = known.name if known is not None else None
            has_acknowledgements = has_acknowledgements or bool(partition.acknowledgement_batches)
    forgotten = [
        (topic.topic_id, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]
    epoch = request.share_session_epoch
    shares = services.shares
    opened = shares.sessions.open(
        key, epoch, asked, forgotten, context.connection, has_acknowledgements=has_acknowledgements
    )
    if epoch == INITIAL_EPOCH:
        shares.watch(context.connection, key[0])
    return opened


class _Responding:
    """One request, whose session is open."""

    def __init__(
        self,
        services: Services,
        request: ShareFetchRequest,
        context: RequestContext,
        opened: ShareFetchContext,
    ) -> None:
        assert request.group_id is not None
        assert request.member_id is not None
        self._services = services
        self._request = request
        self._context = context
        self._opened = opened
        self._key = (request.group_id, request.member_id)
        authorization = services.authorization
        self._may_read: Callable[[str], bool] | None = None
        if authorization.authorizer is not None:
            self._may_read = cache(authorization.predicate(context, READ, TOPIC_RESOURCE))

    async def respond(self) -> ShareFetchResponse:
        """Acknowledge, read, and return the response."""
        request = self._request
        asked = [
            ((topic.topic_id, partition.partition_index), partition.acknowledgement_batches)
            for topic in request.topics
            for partition in topic.partitions
        ]
        acknowledging = None
        if any(batches for _, batches in asked):
            acknowledging = Acknowledging.begin(
                self._services.shares,
                self._services.cluster,
                *self._key,
                asked,
                self._may_read,
                types_max=4 if self._context.api_version >= RENEW_VERSION else 3,
                is_renew=request.is_renew_ack,
            )
        try:
            rows, results = await self._fetch(acknowledging)
        finally:
            if acknowledging is not None:
                acknowledging.abandon()
        try:
            response = self._response(rows, *await in_slices(self._look_at(rows)))
            self._add_acknowledgements(response, results)
        except BaseException:
            release_rows(rows.values())
            raise
        if request.share_session_epoch == FINAL_EPOCH:
            self._services.shares.end_session(self._key)
        return response

    async def _fetch(
        self, acknowledging: Acknowledging | None
    ) -> tuple[dict[PartitionKey, PartitionData], dict[PartitionKey, KafkaError]]:
        """Read the partitions of the session, and store what was acknowledged; return the rows, and the results of the
        acknowledgements. What the member has just given back, it gets only if there is nothing else (in Kafka, too).
        """
        services = self._services
        rows: dict[PartitionKey, PartitionData] = {}
        wanted: list[tuple[PartitionKey, str]] = []
        partitions = () if self._request.is_renew_ack else tuple(self._opened.partitions.items())
        self._context.has_large_response = len(partitions) > PARTITIONS_AT_ONCE
        slices = Slices()
        for key, name in partitions:
            if slices.is_over():
                await slices.pause()
            code = self._error_of(key, name)
            if code is ErrorCode.NONE:
                assert name is not None
                wanted.append((key, name))
            else:
                rows[key] = error_row(key[1], KafkaError(code))
        max_bytes = max(0, min(self._request.max_bytes, services.config.current.fetch_max_bytes))
        usage = self._context.usage
        if usage is not None:
            max_bytes = min(max_bytes, usage.quotas.fetch_bytes_max(usage))
        fetch = ShareFetch(services.shares, self._request, wanted, max_bytes)
        delayed = DelayedShareFetch(fetch, services.files)
        results: dict[PartitionKey, KafkaError] = {}
        try:
            is_complete = fetch.is_empty or await delayed.try_complete(force=self._request.max_wait_ms <= 0)
            if acknowledging is not None:
                results = await acknowledging.finish()
            if not is_complete:
                await delayed.wait(self._request.max_wait_ms)
        except BaseException:
            fetch.release()
            raise
        return {**fetch.rows, **fetch.errors, **rows}, results

    def _error_of(self, key: PartitionKey, name: str | None) -> ErrorCode:
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self._may_read is not None and not self._may_read(name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = self._services.cluster.topic(name)
        if topic is None or not 0 <= key[1] < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _look_at(
        self, rows: dict[PartitionKey, PartitionData]
    ) -> Steps[tuple[set[int], dict[PartitionKey, PartitionData]]]:
        """Name the leader in each row that says that this node is not. Return these leaders, and the rows that an
        incremental response has to hold.
        """
        partitions = {} if self._opened.session is None else self._opened.session.partitions
        leaders: set[int] = set()
        wanted = {}
        for key, row in rows.items():
            if row.error_code and (leader := leader_of(self._services.cluster, key, row.error_code)):
                row.current_leader = LeaderIdAndEpoch(*leader)
                leaders.add(leader[0])
            partition = partitions.get(key)
            if partition is not None and (row.records or partition.must_respond or row.error_code):
                wanted[key] = row
            yield
        return leaders, wanted

    def _response(
        self,
        rows: dict[PartitionKey, PartitionData],
        leaders: set[int],
        wanted: dict[PartitionKey, PartitionData],
    ) -> ShareFetchResponse:
        """Return the response with the rows that an incremental one needs, or an empty one to a client that has used
        its quota. ``leaders`` and ``wanted``: see `_look_at`.
        """
        lock_ms = self._services.shares.settings(self._key[0]).lock_ms
        opened = self._opened
        code = ErrorCode.NONE if opened.is_current() else ErrorCode.INVALID_SHARE_SESSION_EPOCH
        cluster = self._services.cluster
        if code is not ErrorCode.NONE:
            release_rows(rows.values())
            return ShareFetchResponse(error_code=code, acquisition_lock_timeout_ms=lock_ms)
        session = opened.session
        if session is not None:
            release_rows(row for key, row in rows.items() if key not in wanted)
            rows = wanted
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=lock_ms,
            responses=[
                ShareFetchableTopicResponse(topic_id, partitions)
                for topic_id, partitions in by_topic(rows).items()
            ],
            node_endpoints=[
                NodeEndpoint(*endpoint)
                for endpoint in endpoints_of(cluster, leaders, self._context.connection.listener_name)
            ],
        )
        if self._is_throttled(response):
            release_rows(rows.values())
            return ShareFetchResponse(acquisition_lock_timeout_ms=lock_ms)
        if session is not None:
            for key, row in rows.items():
                session.partitions[key].must_respond = row.error_code != 0
                if row.records:
                    session.partitions[key] = session.partitions.pop(key)
        return response

    def _is_throttled(self, response: ShareFetchResponse) -> bool:
        """Count the response against the quotas of its client, and return whether it has to be empty. What was acquired
        stays so, as in Kafka.
        """
        context = self._context
        if context.usage is None:
            return False
        out, ranges = bytearray(), []  # type: ignore[var-annotated]
        context.api.encode_response(context.api_version, context.correlation_id, response, out, ranges)
        header = 5  # the size and the tags stand for what Kafka adds
        size = len(out) - header + sum(file_range.size for _, file_range in ranges)
        return context.usage.quotas.throttle_fetch(context.usage, size) > 0

    def _add_acknowledgements(
        self, response: ShareFetchResponse, results: dict[PartitionKey, KafkaError]
    ) -> None:
        """Put the results of the acknowledgements into the rows of their partitions."""
        if not results:
            return
        topics = {topic.topic_id: topic for topic in response.responses}
        for key, error in results.items():
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = ShareFetchableTopicResponse(key[0], [])
                response.responses.append(topic)
            row = next((row for row in topic.partitions if row.partition_index == key[1]), None)
            if row is None:
                row = PartitionData(partition_index=key[1], records=NOTHING)
                topic.partitions.append(row)
            row.acknowledge_error_code = error.code
            row.acknowledge_error_message = error.message
