"""Heartbeat (API key 12): a member of a classic group lives, and learns that it must join again.

While the group is being loaded the answer is that all is well. Source: ``GroupCoordinatorService.heartbeat``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinators.groups import client_of
from wire.errors import ErrorCode, KafkaError
from wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from broker.node import Node
    from broker.request import RequestContext


def handle(
    node: Node, request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse | Coroutine[Any, Any, HeartbeatResponse]:
    from coordinator.groups.classic.heartbeat import heartbeat

    client = client_of(context)
    return node.groups.ask(request.group_id, lambda shard: heartbeat(shard, request, client), _refused)


def _refused(error: KafkaError) -> HeartbeatResponse:
    loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)
