"""InitializeShareGroupState (API key 83): a group coordinator begins the states of share partitions.

The share coordinator is the node that leads the share partition's part of ``__share_group_state`` (KIP-932).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.share_state_results import answered
from oncelog.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionData,
    PartitionResult,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.schema import Uuid


def handle(
    services: Services, request: InitializeShareGroupStateRequest, context: RequestContext
) -> Pending[InitializeShareGroupStateResponse]:
    async def initialize(topic_id: Uuid, row: PartitionData) -> PartitionResult:
        await services.share_coordinator.initialize(
            request.group_id, topic_id, row.partition, row.state_epoch, row.start_offset
        )
        return PartitionResult(row.partition)

    response = InitializeShareGroupStateResponse()
    return answered(request, response, InitializeStateResult, PartitionResult, initialize)
