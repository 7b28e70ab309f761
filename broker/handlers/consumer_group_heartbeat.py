"""ConsumerGroupHeartbeat (API key 68): lets a member join a consumer group, stay, acknowledge partitions or leave.

KIP-848.

- In version 0 the coordinator generates member ids. In version 1 the client does (KIP-1082), and may subscribe by a
  regular expression.
- UNSUPPORTED_VERSION while ``group.version`` is 0, or ``group.coordinator.rebalance.protocols`` lacks ``consumer``.

Source: ``KafkaApis.handleConsumerGroupHeartbeat``, ``GroupCoordinatorService.consumerGroupHeartbeat``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import after_a_turn
from oncelog.broker.handlers.client import client_of
from oncelog.broker.handlers.rights import check_rights
from oncelog.broker.metadata.features import is_consumer_protocol_enabled
from oncelog.broker.requests.authorization import DESCRIBE, TOPIC_RESOURCE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext


def handle(
    services: Services, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | Pending[ConsumerGroupHeartbeatResponse]:
    if not is_consumer_protocol_enabled(services.metadata.image, services.config.current):
        return _error_response(KafkaError(ErrorCode.UNSUPPORTED_VERSION))
    check_rights(services.authorization, context)
    from oncelog.coordinator.groups.consumer.heartbeat import check, heartbeat

    matches = services.authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE, quiet=True)
    client = client_of(context)._replace(may_describe=matches)
    try:
        check(services.groups.context, request, client.api_version)
    except KafkaError as error:
        return _error_response(error)
    response = services.groups.serve(
        request.group_id,
        lambda shard: heartbeat(shard, request, client),
        _error_response,
        sender=(request.member_id, context.connection),
    )
    # A new expression was compiled: others have their turn before the connection's next request.
    return after_a_turn(response) if request.subscribed_topic_regex else response


def _error_response(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
