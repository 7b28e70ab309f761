"""UnregisterBroker (API key 64): removes a broker from the cluster's metadata; a node cannot remove itself.

On one node, others are there in a directory that belonged to a node of a larger cluster.
Source: ``ReplicationControlManager.unregisterBroker``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.controller.leadership import unregister
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import RequestContext


def handle(
    services: Services, request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    config, broker_id = services.config.current, request.broker_id
    try:
        if broker_id == config.node_id:
            text = f"Broker ID {broker_id} is this broker: it cannot unregister itself"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
        services.metadata.commit(unregister(services.metadata.image, config, broker_id))
    except KafkaError as error:
        return UnregisterBrokerResponse(0, error.code, error.message)
    return UnregisterBrokerResponse()
