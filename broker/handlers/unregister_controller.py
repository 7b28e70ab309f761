"""UnregisterController (API key 94): removes a controller that is gone from the cluster's metadata.

It needs ``metadata.version`` 4.4-IV2. This node is the active controller and cannot remove itself. Source:
``QuorumController.unregisterController``, ``ClusterControlManager.unregisterController``.
"""

from __future__ import annotations

from oncelog.broker.handlers.services import Services
from oncelog.broker.metadata.features import METADATA_VERSION_4_4_IV2
from oncelog.broker.metadata.image import METADATA_VERSION
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from oncelog.wire.stored.metadata import UnregisterControllerRecord


def handle(
    services: Services, request: UnregisterControllerRequest, context: RequestContext
) -> UnregisterControllerResponse:
    image, controller_id = services.metadata.image, request.controller_id
    if controller_id == services.config.current.node_id:
        text = "Controller cannot unregister itself while it is active."
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if image.features.get(METADATA_VERSION, 0) < METADATA_VERSION_4_4_IV2:
        text = "The current MetadataVersion is too old to support controller unregistration."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
    if controller_id not in image.controllers:
        text = f"Controller ID {controller_id} is not currently registered."
        raise KafkaError(ErrorCode.CONTROLLER_ID_NOT_REGISTERED, text)
    services.metadata.commit([UnregisterControllerRecord(controller_id)])
    return UnregisterControllerResponse()
