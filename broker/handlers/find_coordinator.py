"""FindCoordinator (API key 10): which node coordinates a group or a transactional id; so far none does.

Groups and transactions are not served yet, so no node coordinates them. For a group the answer is
COORDINATOR_NOT_AVAILABLE, as from a Kafka whose offsets topic cannot be made: librdkafka asks for the coordinator of
its `group.id` also when it only reads by assign(), and hands any other error to the application. For transactions it
is UNSUPPORTED_VERSION, at which clients stop with a clear error. Malformed requests get Kafka's own errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wire.errors import ErrorCode
from wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from broker.node import Node
    from broker.request import RequestContext

GROUP, TRANSACTION, SHARE = 0, 1, 2
SHARE_VERSION = 6
BATCH_VERSION = 4
NOBODY = ("", -1)
MESSAGE = "oncelog has no coordinator of that type yet"


def handle(node: Node, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    code = _error(request.key_type, context.api_version)
    unknown = f"no coordinator has the type {request.key_type}"
    message = unknown if code is ErrorCode.INVALID_REQUEST else MESSAGE
    if context.api_version < BATCH_VERSION:
        return FindCoordinatorResponse(0, code, message, -1, *NOBODY)
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key, -1, *NOBODY, code, message) for key in request.coordinator_keys]
    )


def _error(key_type: int, version: int) -> ErrorCode:
    if key_type not in (GROUP, TRANSACTION, SHARE) or (key_type == SHARE and version < SHARE_VERSION):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if key_type == GROUP else ErrorCode.UNSUPPORTED_VERSION
