"""ShareAcknowledge (API key 79): a member of a share group accepts, releases, rejects or renews what it has acquired.

A response leaves when the new state is stored, as durably as the settings promise. Version 2 brings renewed locks
(KIP-932, KIP-1222; ``KafkaApis.handleShareAcknowledgeRequest``).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from oncelog.broker.handlers.share_requests import member_of
from oncelog.broker.requests.authorization import READ, TOPIC_RESOURCE
from oncelog.broker.requests.request import Pending
from oncelog.broker.share.acknowledging import RENEW_VERSION, Acknowledging
from oncelog.broker.share.responses import by_topic, endpoints_of, leader_of
from oncelog.broker.share.sessions import FINAL_EPOCH
from oncelog.wire.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import RequestContext


def handle(
    services: Services, request: ShareAcknowledgeRequest, context: RequestContext
) -> Pending[ShareAcknowledgeResponse]:
    member = member_of(services, context)
    services.shares.sessions.check_epoch(member, request.share_session_epoch)
    return Pending(_respond(services, request, context, *member))


async def _respond(
    services: Services,
    request: ShareAcknowledgeRequest,
    context: RequestContext,
    group_id: str,
    member_id: str,
) -> ShareAcknowledgeResponse:
    authorization = services.authorization
    may_read = None
    if authorization.authorizer is not None:
        may_read = cache(authorization.predicate(context, READ, TOPIC_RESOURCE))
    has_renew = context.api_version >= RENEW_VERSION
    acknowledging = Acknowledging.begin(
        services.shares,
        services.cluster,
        group_id,
        member_id,
        [
            ((topic.topic_id, partition.partition_index), partition.acknowledgement_batches)
            for topic in request.topics
            for partition in topic.partitions
        ],
        may_read,
        types_max=4 if has_renew else 3,
        is_renew=request.is_renew_ack,
    )
    try:
        results = await acknowledging.finish()
    finally:
        acknowledging.abandon()
    if request.share_session_epoch == FINAL_EPOCH:
        services.shares.end_session((group_id, member_id))
    rows = {}
    leaders = set()
    for key, error in results.items():
        row = rows[key] = PartitionData(partition_index=key[1], error_code=error.code)
        row.error_message = error.message
        leader = leader_of(services.cluster, key, error.code)
        if leader is not None:
            row.current_leader = LeaderIdAndEpoch(*leader)
            leaders.add(leader[0])
    endpoints = endpoints_of(services.cluster, leaders, context.connection.listener_name)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=services.shares.settings(group_id).lock_ms,
        responses=[
            ShareAcknowledgeTopicResponse(topic_id, partitions)
            for topic_id, partitions in by_topic(rows).items()
        ],
        node_endpoints=[NodeEndpoint(*endpoint) for endpoint in endpoints],
    )
